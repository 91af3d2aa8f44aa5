"""The operations of the kit, in one table: attributes, dtypes, shape rule and multiply-accumulates of each.

Names are those of ``Node.name``. Every other module that must know what an operation is reads ``OPS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_kit.errors import GraphError, UnsupportedError
from npu_kit.graph import shapes
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.ir import AttrValue, TensorType
from npu_kit.graph.shapes import FLOATS, INTEGERS, Attrs, Types

FAMILIES = ("contraction", "window", "elementwise", "softmax")

ANY = (*FLOATS, *INTEGERS)

Dropped = Callable[[Any, Mapping[str, AttrValue]], str]  # (value, full attributes) -> what is wrong, or ""


@dataclass(frozen=True)
class OpDef:
    """One operation.

    Call ``infer`` and ``macs``; ``rule`` and ``count`` are the functions behind them.
    """

    name: str
    relax_name: str
    family: str  # one of FAMILIES
    inputs: Mapping[str, tuple[str, ...]]  # name of each input, in order, and the dtypes it may have
    rule: Callable[[str, Types, Attrs, str | None], TensorType]
    attributes: Mapping[str, AttrDef] = field(default_factory=dict)
    # Attributes of the Relax call that a graph does not carry, each with a check that dropping it changes nothing.
    dropped: Mapping[str, Dropped] = field(default_factory=dict)
    count: Callable[[Types, Attrs, TensorType], int] | None = None

    @property
    def arity(self) -> int:
        """Number of inputs."""
        return len(self.inputs)

    def infer(
        self, input_types: Sequence[TensorType], attrs: Mapping[str, AttrValue], out_dtype: str | None = None
    ) -> TensorType:
        """The type of the output.

        Args:
            input_types: one type per input.
            attrs: all attributes, in the form ``normalise_attrs`` gives.
            out_dtype: the dtype asked for; None for the inputs' own (quantize and dequantize need one).

        Raises:
            GraphError: the number of inputs, or shapes that do not fit together.
            UnsupportedError: a dtype or a combination that the NPU does not compute.
        """
        if len(input_types) != self.arity:
            why = f"it takes {self.arity} inputs ({', '.join(self.inputs)}) and got {len(input_types)}"
            raise GraphError(self.name, why)
        for (name, dtypes), given in zip(self.inputs.items(), input_types, strict=True):
            if given.dtype not in dtypes:
                raise UnsupportedError(
                    f"{self.name} of {' and '.join(map(str, input_types))}",
                    f"{name} needs one of {', '.join(dtypes)} and is {given.dtype}",
                    "a cast, or leave the operation on the host",
                )
        return self.rule(self.name, input_types, attrs, out_dtype)

    def macs(self, input_types: Sequence[TensorType], attrs: Mapping[str, AttrValue], output: TensorType) -> int:
        """Multiply-accumulates of the whole operation; 0 for everything but a contraction."""
        return self.count(input_types, attrs, output) if self.count else 0


def normalise_attrs(name: str, attrs: Mapping[str, Any], input_types: Sequence[TensorType]) -> dict[str, AttrValue]:
    """Complete the attributes of one operation: defaults filled in, short forms expanded, axes counted from the front.

    Args:
        name: a key of ``OPS``.
        attrs: what the caller or the Relax call gave. Relax attributes that a graph does not carry (``out_layout``,
            ``momentum``, ...) are accepted where leaving them out changes nothing.
        input_types: for negative axes.

    Returns:
        exactly the attributes of ``OPS[name]``, in the table's order.

    Raises:
        GraphError: an operation or attribute that does not exist, or one that is missing.
        UnsupportedError: a value that the NPU cannot compute with.
    """
    op = find_op(name)
    rank = len(input_types[0].shape) if input_types else 0
    what = f"{name} of {' and '.join(map(str, input_types))}"
    unknown = sorted(set(attrs) - set(op.attributes) - set(op.dropped))
    if unknown:
        known = ", ".join(op.attributes) or "no attributes"
        raise GraphError(what, f"it has no attribute {unknown[0]!r}", f"one of: {known}")
    full: dict[str, AttrValue] = {}
    for key, definition in op.attributes.items():
        value = attrs.get(key, definition.default)
        if value is None:
            raise GraphError(what, f"the attribute {key} is missing", f"give {key}")
        full[key] = definition.complete(value, rank)
        problem = definition.check(full[key])
        if problem:
            raise UnsupportedError(what, f"{key} {problem}", "another value, or leave the operation on the host")
    for key, check in op.dropped.items():
        problem = check(attrs[key], full) if key in attrs else ""
        if problem:
            raise UnsupportedError(what, f"{key} {problem}", "leave the operation on the host")
    return full


def find_op(name: str) -> OpDef:
    """The definition of ``name``; GraphError if the kit has no such operation."""
    try:
        return OPS[name]
    except KeyError:
        raise GraphError(f"no operation {name!r}", f"the kit has {', '.join(OPS)}") from None


def family_of(name: str) -> str:
    """The family of operation ``name``: how it is tiled and on which kind of engine it runs."""
    return find_op(name).family


def _equal_layout(key: str) -> Dropped:
    def check(value: Any, full: Mapping[str, AttrValue]) -> str:
        return "" if value in (None, "", full[key]) else f"is {value!r} and must be {key}'s {full[key]!r}"

    return check


def _is_false(value: Any, full: Mapping[str, AttrValue]) -> str:
    return "" if not value else "is True, and the NPU normalises with running statistics only"


def _anything(value: Any, full: Mapping[str, AttrValue]) -> str:
    return ""


def _conv_attributes(axes: int, data_layouts: tuple[str, ...], kernel_layouts: tuple[str, ...]) -> dict[str, AttrDef]:
    return {
        "strides": AttrDef("ints", 1, axes, minimum=1),
        "padding": AttrDef("padding", 0, 2 * axes),
        "dilation": AttrDef("ints", 1, axes, minimum=1),
        "groups": AttrDef("int", 1, minimum=1),
        "data_layout": AttrDef("str", data_layouts[0], choices=data_layouts),
        "kernel_layout": AttrDef("str", kernel_layouts[0], choices=kernel_layouts),
    }


# The defaults are Relax's: a pool moves by 1 and does not count its padding.
_POOL_ATTRIBUTES = {
    "pool_size": AttrDef("ints", 1, 2, minimum=1),
    "strides": AttrDef("ints", 1, 2, minimum=1),
    "padding": AttrDef("padding", 0, 4),
    "dilation": AttrDef("ints", 1, 2, minimum=1),
    "ceil_mode": AttrDef("bool", False),
    "count_include_pad": AttrDef("bool", False),
    "layout": AttrDef("str", "NCHW", choices=("NCHW", "NHWC")),
}

_PAIR = {"a": ANY, "b": ANY}
_CONV = {"x": ANY, "w": ANY}
_CONV_DROPPED: Mapping[str, Dropped] = {"out_layout": _equal_layout("data_layout"), "out_dtype": _anything}


def _pool(name: str, dtypes: tuple[str, ...]) -> OpDef:
    dropped = {"out_layout": _equal_layout("layout")}
    return OpDef(name, f"relax.nn.{name}", "window", {"x": dtypes}, shapes.infer_pool, _POOL_ATTRIBUTES, dropped)


def _unary(name: str, relax: str, dtypes: tuple[str, ...]) -> OpDef:
    return OpDef(name, relax, "elementwise", {"x": dtypes}, shapes.infer_broadcast)


def _binary(name: str) -> OpDef:
    return OpDef(name, f"relax.{name}", "elementwise", _PAIR, shapes.infer_broadcast)


def _affine(name: str, dtypes: tuple[str, ...]) -> OpDef:
    inputs = {"x": dtypes, "scale": FLOATS, "zero_point": INTEGERS}
    attributes = {"axis": AttrDef("axis", -1)}
    return OpDef(
        name, f"relax.{name}", "elementwise", inputs, shapes.infer_quantize, attributes, {"out_dtype": _anything}
    )


_DEFINITIONS = (
    OpDef(
        "matmul",
        "relax.matmul",
        "contraction",
        _PAIR,
        shapes.infer_matmul,
        dropped={"out_dtype": _anything},
        count=shapes.macs_of_matmul,
    ),
    OpDef(
        "conv1d",
        "relax.nn.conv1d",
        "contraction",
        _CONV,
        shapes.infer_conv,
        _conv_attributes(1, ("NCW", "NWC"), ("OIW", "WIO", "OWI")),
        _CONV_DROPPED,
        shapes.macs_of_conv,
    ),
    OpDef(
        "conv2d",
        "relax.nn.conv2d",
        "contraction",
        _CONV,
        shapes.infer_conv,
        _conv_attributes(2, ("NCHW", "NHWC"), ("OIHW", "HWIO", "OHWI", "HWOI")),
        _CONV_DROPPED,
        shapes.macs_of_conv,
    ),
    _pool("max_pool2d", ANY),
    _pool("avg_pool2d", FLOATS),
    _binary("add"),
    _binary("subtract"),
    _binary("multiply"),
    _binary("divide"),
    _binary("maximum"),
    _binary("minimum"),
    _unary("relu", "relax.nn.relu", ANY),
    OpDef(
        "clip",
        "relax.clip",
        "elementwise",
        {"x": ANY},
        shapes.infer_clip,
        {"min": AttrDef("float"), "max": AttrDef("float")},
    ),
    _unary("sigmoid", "relax.sigmoid", FLOATS),
    _unary("tanh", "relax.tanh", FLOATS),
    _unary("gelu", "relax.nn.gelu", FLOATS),
    _unary("gelu_tanh", "relax.nn.gelu_tanh", FLOATS),
    OpDef(
        "batch_norm",
        "relax.nn.batch_norm",
        "elementwise",
        {"x": FLOATS, "gamma": FLOATS, "beta": FLOATS, "moving_mean": FLOATS, "moving_var": FLOATS},
        shapes.infer_batch_norm,
        {
            "axis": AttrDef("axis"),
            "epsilon": AttrDef("float", 1e-5),
            "center": AttrDef("bool", True),
            "scale": AttrDef("bool", True),
        },
        {"momentum": _anything, "training": _is_false},
    ),
    _affine("quantize", FLOATS),
    _affine("dequantize", INTEGERS),
    OpDef(
        "softmax",
        "relax.nn.softmax",
        "softmax",
        {"x": FLOATS},
        shapes.infer_softmax,
        {"axis": AttrDef("axis", -1)},
    ),
)

OPS: Mapping[str, OpDef] = {definition.name: definition for definition in _DEFINITIONS}
