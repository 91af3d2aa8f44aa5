"""The element-wise operations of the table: one element of each input, broadcast, makes one of the output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_kit.graph import axis_shapes, shapes
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.definition import ANY, OpDef, anything, is_false
from npu_kit.graph.shapes import FLOATS, INTEGERS, SIGNED

NAN = "a NaN stays a NaN; TVM gives one of the bounds"


def _unary(
    name: str, summary: str, formula: str, dtypes: tuple[str, ...] = FLOATS, relax: str = "", **more: Any
) -> OpDef:
    """One input. The activation engine computes what is not linear, the vector engine the rest."""
    more = {"engine": "activation", **more}
    return OpDef(
        name,
        f"relax.{relax or name}",
        "elementwise",
        summary=summary,
        formula=formula,
        inputs={"x": dtypes},
        rule=shapes.infer_broadcast,
        **more,
    )


def _binary(name: str, summary: str, formula: str, dtypes: tuple[str, ...] = ANY, **more: Any) -> OpDef:
    more = {"engine": "vector", **more}
    return OpDef(
        name,
        f"relax.{name}",
        "elementwise",
        summary=summary,
        formula=formula,
        inputs={"a": dtypes, "b": dtypes},
        rule=shapes.infer_broadcast,
        **more,
    )


def _affine(name: str, summary: str, formula: str, dtypes: tuple[str, ...], **more: Any) -> OpDef:
    return OpDef(
        name,
        f"relax.{name}",
        "elementwise",
        "vector",
        summary,
        formula,
        inputs={"x": dtypes, "scale": FLOATS, "zero_point": INTEGERS},
        rule=axis_shapes.infer_quantize,
        attributes={"axis": AttrDef("axis", -1)},
        dropped={"out_dtype": anything},
        parameters_on_axis=True,
        limits="A scale must be finite and above 0.",
        **more,
    )


_ALPHA: Mapping[str, AttrDef] = {"alpha": AttrDef("float", 0.01)}
_WRAPS = "Integers wrap, as in TVM."

BINARY_OPS = (
    _binary("add", "element by element, broadcast", "a + b", limits=_WRAPS),
    _binary("subtract", "element by element, broadcast", "a - b", limits=_WRAPS),
    _binary("multiply", "element by element, broadcast", "a * b", limits=_WRAPS),
    _binary(
        "divide",
        "element by element, broadcast; integers truncate",
        "a / b",
        differs="an integer divided by 0 raises ZeroDivisionError; TVM's code ends the process",
    ),
    _binary("maximum", "the larger of two, broadcast", "max(a, b)", differs=NAN),
    _binary("minimum", "the smaller of two, broadcast", "min(a, b)", differs=NAN),
    _binary(
        "power",
        "a to the power of b, broadcast; floats only",
        "a ** b",
        FLOATS,
        engine="activation",
        limits="Integer powers stay on the host.",
    ),
)

ACTIVATION_OPS = (
    _unary("relu", "max(x, 0)", "max(x, 0)", ANY, "nn.relu", other_engine="vector", differs=NAN),
    OpDef(
        "clip",
        "relax.clip",
        "elementwise",
        "activation",
        "clip between any two numbers",
        "min(max(x, min), max)",
        inputs={"x": ANY},
        rule=shapes.infer_clip,
        attributes={"min": AttrDef("float"), "max": AttrDef("float")},
        arguments={"min": 1, "max": 2},
        other_engine="vector",
        differs=NAN,
        limits="The bounds of integers are values of their dtype.",
    ),
    _unary("sigmoid", "1 / (1 + exp(-x))", "1 / (1 + exp(-x))"),
    _unary("tanh", "hyperbolic tangent", "tanh(x)"),
    _unary("gelu", "x times the normal distribution's cdf, by erf", "x * (1 + erf(x / sqrt(2))) / 2", relax="nn.gelu"),
    _unary(
        "gelu_tanh",
        "the tanh approximation of gelu",
        "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2",
        relax="nn.gelu_tanh",
    ),
    _unary("silu", "x times its sigmoid, also called swish", "x / (1 + exp(-x))", relax="nn.silu"),
    _unary(
        "leaky_relu",
        "x, or alpha * x below 0",
        "x if x > 0 else alpha * x",
        relax="nn.leakyrelu",
        attributes=_ALPHA,
        other_engine="vector",
    ),
    OpDef(
        "prelu",
        "relax.nn.prelu",
        "elementwise",
        "activation",
        "leaky_relu with a slope for each channel",
        "x if x > 0 else alpha * x",
        inputs={"x": FLOATS, "alpha": FLOATS},
        rule=axis_shapes.infer_prelu,
        attributes={"axis": AttrDef("axis", 1)},
        parameters_on_axis=True,
        other_engine="vector",
    ),
    _unary("exp", "exponential", "exp(x)"),
    _unary("log", "natural logarithm", "log(x)", limits="log of a negative number is NaN, of 0 is -inf."),
    _unary("sqrt", "square root", "sqrt(x)", limits="The root of a negative number is NaN."),
    _unary("rsqrt", "one over the square root", "1 / sqrt(x)", limits="1 over the root of 0 is inf."),
    _unary("erf", "the error function", "2 / sqrt(pi) * integral of exp(-t**2) for t from 0 to x"),
)

VECTOR_OPS = (
    _unary("negative", "the sign turned round", "-x", (*FLOATS, *SIGNED), engine="vector", limits=_WRAPS),
    _unary("abs", "absolute value", "x if x > 0 else -x", (*FLOATS, *SIGNED), engine="vector", limits=_WRAPS),
    _unary("square", "x times x", "x * x", ANY, engine="vector", limits=_WRAPS),
    _unary("floor", "the largest whole number not above x", "floor(x)", engine="vector"),
    _unary("ceil", "the smallest whole number not below x", "ceil(x)", engine="vector"),
    _unary("round", "the nearest whole number, halves to even", "rint(x)", engine="vector"),
    OpDef(
        "batch_norm",
        "relax.nn.batch_norm",
        "elementwise",
        "vector",
        "inference on the moving mean and variance",
        "(x - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta",
        inputs={"x": FLOATS, "gamma": FLOATS, "beta": FLOATS, "moving_mean": FLOATS, "moving_var": FLOATS},
        rule=axis_shapes.infer_batch_norm,
        attributes={
            "axis": AttrDef("axis"),
            "epsilon": AttrDef("float", 1e-5),
            "center": AttrDef("bool", True),
            "scale": AttrDef("bool", True),
        },
        dropped={"momentum": anything, "training": is_false},
        parameters_on_axis=True,
        differs="float16 stays float16; TVM returns float32 where float16 is declared",
        limits="Only with training=False.",
    ),
    _affine(
        "quantize",
        "round(x / scale) + zero point, saturated",
        "clip(rint(x / scale) + zero_point)",
        FLOATS,
        differs="the same, NaN included, which becomes the highest value; the kit warns of it",
    ),
    _affine("dequantize", "(x - zero point) * scale", "(x - zero_point) * scale", INTEGERS),
)
