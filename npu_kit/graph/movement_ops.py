"""The operations of the table that compute nothing: the dma engine copies, and a reshape is another way to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npu_kit.graph import movement_shapes as shapes
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.definition import ANY, OpDef
from npu_kit.graph.ir import AttrValue, TensorType


def _movement(
    name: str,
    summary: str,
    formula: str,
    rule: Callable[..., TensorType],
    attributes: Mapping[str, AttrDef],
    relax: str = "",
    **more: Any,
) -> OpDef:
    return OpDef(
        name,
        f"relax.{relax or name}",
        family="movement",
        engine="dma",
        summary=summary,
        formula=formula,
        inputs={"x": ANY},
        rule=rule,
        attributes=attributes,
        **more,
    )


def is_constant(value: Any, full: Mapping[str, AttrValue]) -> str:
    """Only "constant"."""
    return "" if value == "constant" else f"is {value!r} and must be 'constant': the dma engine repeats no data"


MOVEMENT_OPS = (
    _movement(
        "permute_dims",
        "axes in another order: a transpose",
        "out[i0, i1, ..] = x with index i0 along axes[0], i1 along axes[1], ..",
        shapes.infer_permute,
        {"axes": AttrDef("order", ())},
    ),
    _movement(
        "broadcast_to",
        "repeated along axes of size 1",
        "x, in a larger shape",
        shapes.infer_broadcast_to,
        {"newshape": AttrDef("sizes")},
        arguments={"newshape": 1},
    ),
    _movement(
        "strided_slice",
        "a box of a tensor, every so many elements; also each part of a split",
        "x[begin:end:strides]",
        shapes.infer_slice,
        {"begin": AttrDef("sizes"), "end": AttrDef("sizes"), "strides": AttrDef("sizes", minimum=1)},
        has_more_arguments=True,
        limits="Strides are positive. begin and end have one number for each axis, counted from the front.",
    ),
    _movement(
        "pad",
        "a number around a tensor",
        "x, with pad_width elements of pad_value before and behind each axis",
        shapes.infer_pad,
        {"pad_width": AttrDef("sizes"), "pad_value": AttrDef("float", 0.0)},
        relax="nn.pad",
        dropped={"pad_mode": is_constant},
        limits="Only the mode constant; in integers the value is one of the dtype.",
    ),
    _movement(
        "concat",
        "tensors one behind the other along an axis",
        "x0, then x1, .. along axis",
        shapes.infer_concat,
        {"axis": AttrDef("axis", 0)},
        is_variadic=True,
    ),
    OpDef(
        "reshape",
        "relax.reshape",
        family="reshape",
        engine="dma",
        summary="the same elements in another shape: nothing moves",
        formula="x, read in rows, in rows of another length",
        inputs={"x": ANY},
        rule=shapes.infer_reshape,
        attributes={"newshape": AttrDef("sizes")},
        arguments={"newshape": 1},
        limits="A reshape of what the NPU did not make, or that the model returns, stays on the host, for free; "
        "one that a region returns is a copy. squeeze, expand_dims and flatten are written as reshape.",
    ),
)
