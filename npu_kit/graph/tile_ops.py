"""The operations of the table that combine more than one element: contractions, windows, reductions, rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_kit.graph import axis_shapes, shapes
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.definition import ANY, Dropped, OpDef, anything, equal_layout
from npu_kit.graph.shapes import FLOATS


def _conv_attributes(axes: int, data_layouts: tuple[str, ...], kernel_layouts: tuple[str, ...]) -> dict[str, AttrDef]:
    return {
        "strides": AttrDef("ints", 1, axes, minimum=1),
        "padding": AttrDef("padding", 0, 2 * axes),
        "dilation": AttrDef("ints", 1, axes, minimum=1),
        "groups": AttrDef("int", 1, minimum=1),
        "data_layout": AttrDef("str", data_layouts[0], choices=data_layouts),
        "kernel_layout": AttrDef("str", kernel_layouts[0], choices=kernel_layouts),
    }


_CONV_DROPPED: Mapping[str, Dropped] = {"out_layout": equal_layout("data_layout"), "out_dtype": anything}
_SUMS = "float16 and integers are summed in float32 and int32 and rounded once; TVM sums in the dtype of the result"
NAN_AND_INFINITY = (
    "a NaN stays a NaN, and of nothing but infinities the result is one; TVM starts from the largest finite number"
)
_NEEDS_OUT_DTYPE = "Operands of two integer dtypes need out_dtype; floats are never promoted."


def _conv(name: str, summary: str, formula: str, attributes: Mapping[str, AttrDef]) -> OpDef:
    return OpDef(
        name,
        f"relax.nn.{name}",
        "contraction",
        "conv",
        summary,
        formula,
        inputs={"x": ANY, "w": ANY},
        rule=shapes.infer_conv,
        attributes=attributes,
        dropped=_CONV_DROPPED,
        count=shapes.macs_of_conv,
        other_engine="matrix",
        differs=_SUMS,
        limits=_NEEDS_OUT_DTYPE,
    )


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


def _pool(name: str, summary: str, formula: str, dtypes: tuple[str, ...], **more: Any) -> OpDef:
    return OpDef(
        name,
        f"relax.nn.{name}",
        "window",
        "pooling",
        summary,
        formula,
        inputs={"x": dtypes},
        rule=shapes.infer_pool,
        attributes=_POOL_ATTRIBUTES,
        dropped={"out_layout": equal_layout("layout")},
        other_engine="vector",
        **more,
    )


CONTRACTION_OPS = (
    OpDef(
        "matmul",
        "relax.matmul",
        "contraction",
        "matrix",
        "matmul of any two tensors, batches broadcast",
        "out[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]",
        inputs={"a": ANY, "b": ANY},
        rule=shapes.infer_matmul,
        dropped={"out_dtype": anything},
        count=shapes.macs_of_matmul,
        other_engine="conv",
        differs=_SUMS,
        limits=_NEEDS_OUT_DTYPE,
    ),
    _conv(
        "conv1d",
        "conv1d, NCW or NWC",
        "out[b, o, x] = sum over i, k of x[b, i, x * stride + k * dilation - padding] * w[o, i, k]",
        _conv_attributes(1, ("NCW", "NWC"), ("OIW", "WIO", "OWI")),
    ),
    _conv(
        "conv2d",
        "conv2d, NCHW or NHWC, any groups",
        "the same as conv1d over rows and columns",
        _conv_attributes(2, ("NCHW", "NHWC"), ("OIHW", "HWIO", "OHWI", "HWOI")),
    ),
)

TRANSPOSED_OPS = (
    OpDef(
        "conv2d_transpose",
        "relax.nn.conv2d_transpose",
        "contraction",
        "conv",
        "transposed conv2d, also called deconvolution, NCHW",
        "out[b, o, y * stride + k * dilation - padding, ..] += x[b, i, y, ..] * w[i, o, k, ..], over all y, k and i",
        inputs={"x": ANY, "w": ANY},
        rule=shapes.infer_transposed_conv,
        attributes={
            "strides": AttrDef("ints", 1, 2, minimum=1),
            "padding": AttrDef("padding", 0, 4),
            "output_padding": AttrDef("ints", 0, 2),
            "dilation": AttrDef("ints", 1, 2, minimum=1),
            "groups": AttrDef("int", 1, minimum=1),
            "data_layout": AttrDef("str", "NCHW", choices=("NCHW",)),
            "kernel_layout": AttrDef("str", "IOHW", choices=("IOHW",)),
        },
        dropped=_CONV_DROPPED,
        count=shapes.macs_of_transposed_conv,
        other_engine="matrix",
        differs=_SUMS + "; between the taps of a dilated kernel TVM multiplies by zeros: infinity gives NaN there",
        limits="The array multiplies by the zeros that stand between the elements, so it does as many MACs as a conv2d "
        "over an image that large. " + _NEEDS_OUT_DTYPE,
    ),
)

WINDOW_OPS = (
    _pool(
        "max_pool2d",
        "largest value of each window",
        "out[b, c, y, x] = max over the window of x",
        ANY,
        differs="out of parity where a window holds a NaN: TVM's result depends on the order",
        limits="A window that sees nothing but padding gives the lowest finite value.",
    ),
    _pool(
        "avg_pool2d",
        "mean of each window, floats only",
        "out[b, c, y, x] = sum over the window of x / its taps on data (and padding, with count_include_pad)",
        FLOATS,
        differs=_SUMS,
        limits="A padding that is not smaller than the window stays on the host. Integers but int64 are refused there "
        "too: TVM wraps their sums and returns int64.",
    ),
    OpDef(
        "adaptive_avg_pool2d",
        "relax.nn.adaptive_avg_pool2d",
        "window",
        "pooling",
        "mean of windows, so many that the output has a given size",
        "avg_pool2d with windows and strides of H / output_size rows and as many columns",
        inputs={"x": FLOATS},
        rule=shapes.infer_adaptive_pool,
        attributes={
            "output_size": AttrDef("sizes", ()),
            "layout": AttrDef("str", "NCHW", choices=("NCHW", "NHWC")),
        },
        dropped={"out_layout": equal_layout("layout")},
        other_engine="vector",
        differs=_SUMS,
        limits="The output size must divide the size of the data; an output_size of () is the data's own.",
    ),
)


def _reduction(name: str, summary: str, formula: str, dtypes: tuple[str, ...], **more: Any) -> OpDef:
    return OpDef(
        name,
        f"relax.{name}",
        "reduction",
        "vector",
        summary,
        formula,
        inputs={"x": dtypes},
        rule=axis_shapes.infer_reduction,
        attributes={"axis": AttrDef("axes", ()), "keepdims": AttrDef("bool", False)},
        **more,
    )


REDUCTION_OPS = (
    _reduction("sum", "sum over some axes", "sum of x over axis", ANY, differs=_SUMS),
    _reduction(
        "mean",
        "mean over some axes, floats only: global average pooling",
        "sum of x over axis / the number of its elements",
        FLOATS,
        differs=_SUMS,
        limits="Integers of 64 bits stay on the host; others are refused there too: TVM returns int64 for them.",
    ),
    _reduction("max", "largest value over some axes", "max of x over axis", ANY, differs=NAN_AND_INFINITY),
    _reduction("min", "smallest value over some axes", "min of x over axis", ANY, differs=NAN_AND_INFINITY),
)


def _norm(name: str, summary: str, formula: str, parameters: tuple[str, ...], **more: Any) -> OpDef:
    flags = {"center": AttrDef("bool", True), "scale": AttrDef("bool", True)} if len(parameters) > 1 else {}
    return OpDef(
        name,
        f"relax.nn.{name}",
        "rows",
        "vector",
        summary,
        formula,
        inputs={"x": FLOATS} | dict.fromkeys(parameters, FLOATS),
        rule=axis_shapes.infer_norm,
        attributes={"axis": AttrDef("axis", -1), "epsilon": AttrDef("float", 1e-5), **flags},
        renamed={"axis": "axes"},
        limits="One axis only.",
        **more,
    )


ROW_OPS = (
    OpDef(
        "softmax",
        "relax.nn.softmax",
        "rows",
        "activation",
        "exponentials along one axis that sum to 1",
        "exp(x - max) / sum of exp(x - max), along axis",
        inputs={"x": FLOATS},
        rule=axis_shapes.infer_softmax,
        attributes={"axis": AttrDef("axis", -1)},
        differs="float16 is summed in float32; TVM sums in float16",
    ),
    OpDef(
        "log_softmax",
        "relax.nn.log_softmax",
        "rows",
        "activation",
        "the logarithm of softmax",
        "x - max - log(sum of exp(x - max)), along axis",
        inputs={"x": FLOATS},
        rule=axis_shapes.infer_softmax,
        attributes={"axis": AttrDef("axis", -1)},
        differs="float16 is summed in float32; TVM sums in float16",
    ),
    _norm(
        "layer_norm",
        "mean 0 and variance 1 along one axis",
        "(x - mean) / sqrt(mean of (x - mean)**2 + epsilon) * gamma + beta, along axis",
        ("gamma", "beta"),
        differs="without center there is no beta, without scale no gamma; TVM's code takes both all the same",
    ),
    _norm(
        "rms_norm",
        "root mean square 1 along one axis",
        "x / sqrt(mean of x**2 + epsilon) * weight, along axis",
        ("weight",),
        differs="any axis; TVM builds only the last ones, with one before them",
    ),
)
