"""Checks of single calls, against the kit's table of operations and the machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_kit.byoc.model.calls import (
    attributes_of,
    constant_value,
    describe_type,
    dtype_of,
    find_definition,
    result_of,
    shape_of,
    tensor_operands,
    tensor_type,
)
from npu_kit.byoc.patterns.match import Match
from npu_kit.byoc.report import Refusal
from npu_kit.errors import GraphError, UnsupportedError
from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.definition import OpDef
from npu_kit.graph.ops import normalise_attrs
from npu_kit.graph.shapes import FLOATS
from npu_kit.graph.verify import MAX_RANK
from npu_kit.hw.spec import NpuSpec

# A machine that computes a signed dtype also holds its unsigned twin, and int32 where integer products are summed.
_COMPANIONS = {"int8": ("uint8", "int32"), "int16": ("uint16", "int32")}


def dtypes_of(spec: NpuSpec) -> tuple[str, ...]:
    """Every dtype that a tensor on the NPU may have: the machine's own, and those that its integers bring along."""
    extra = [companion for dtype in spec.dtypes for companion in _COMPANIONS.get(dtype, ())]
    return tuple(dict.fromkeys([*spec.dtypes, *extra]))


def check_dtypes(match: Match, call: Any) -> list[Refusal]:
    """Operands and result have dtypes of the machine, and those that the operation is defined for.

    In a quantized chain the machine's dtypes hold for what enters and leaves. The floats between are how Relax writes
    the arithmetic of an integer kernel, and so are the scales.
    """
    definition = _definition(call)
    own = dtypes_of(match.spec)
    is_chain = match.is_quantized_chain
    refused: dict[tuple[str, str], list[str]] = {}  # (dtypes wanted, dtype found) -> operands, to say it once for all
    lacking: dict[tuple[str, ...], list[str]] = {}  # dtypes of the operation, none of them the machine's -> operands
    for name, expr in (*named_operands(definition, call), ("result", result_of(call))):
        if name == "result":
            is_between = not call.same_as(match.root)
        else:
            is_between = name in ("scale", "zero_point") or match.is_inside(expr)
        allowed = (*own, *FLOATS) if is_chain and is_between else own
        wanted = [dtype for dtype in allowed if dtype in definition.inputs.get(name, allowed)]
        found = dtype_of(expr)
        if not wanted:
            lacking.setdefault(definition.inputs[name], []).append(name)
        elif found not in wanted:
            refused.setdefault((", ".join(wanted), found), []).append(name)
    return [
        *(
            Refusal(
                "dtype",
                f"a machine with {' or '.join(dtypes)} for {_listed(names)} of {definition.name}",
                f"one with {_listed(list(own))}",
                "another machine, or leave it on the host",
            )
            for dtypes, names in lacking.items()
        ),
        *(
            Refusal(
                "dtype",
                f"{definition.name} with {_listed(names)} of {wanted}",
                found or "no known dtype",
                "a cast, or leave it on the host",
            )
            for (wanted, found), names in refused.items()
        ),
    ]


def named_operands(definition: OpDef, call: Any) -> list[tuple[str, Any]]:
    """The tensor operands of a call, each with its name in the table."""
    operands = tensor_operands(call)
    names = list(definition.inputs) * (len(operands) if definition.is_variadic else 1)
    return list(zip(names, operands, strict=True))


def check_shapes(call: Any) -> list[Refusal]:
    """Every tensor has a known, fixed shape of at most MAX_RANK axes. Windows and softmax need something to look at."""
    definition = _definition(call)
    for expr in (*tensor_operands(call), result_of(call)):
        shape = shape_of(expr)
        if shape is None:
            hint = "fixed sizes, with relax.transform.BindSymbolicVars"
            return [Refusal("shape", "sizes that are numbers", describe_type(expr.ty), hint)]
        if len(shape) > MAX_RANK:
            found = f"{len(shape)} axes in {describe_type(expr.ty)}"
            return [Refusal("shape", f"at most {MAX_RANK} axes", found, "a reshape that joins axes")]
        # Products of nothing are 0 and elementwise results are empty, but nothing has no maximum and no mean.
        least = 1 if definition.family in ("window", "reduction", "rows") else 0
        if min(shape, default=least) < least:
            needed = f"{definition.name} with sizes of {least} or more"
            return [Refusal("shape", needed, describe_type(expr.ty), "other sizes, or leave it on the host")]
    return []


def check_attributes(call: Any) -> list[Refusal]:
    """The attributes are ones that the kit computes with; the table of operations says which."""
    definition = _definition(call)
    given = attributes_of(call)
    types = [tensor_type(operand) for operand in tensor_operands(call)]
    rank = len(types[0].shape) if types and types[0] is not None else 0
    refusals = []
    complete = {
        key: attribute.complete(attribute.default if given[key] is None else given[key], rank)
        for key, attribute in definition.attributes.items()
    }
    for key, attribute in definition.attributes.items():
        if attribute.check(complete[key]):
            refusals.append(_refuse_attribute(definition, key, attribute, complete[key]))
    for key, check in definition.dropped.items():
        problem = check(given[key], complete)
        if problem:
            needed, hint = f"{definition.name} without {key}={given[key]}", "leave it on the host"
            refusals.append(Refusal("attribute", needed, f"{key} {problem}", hint))
    return refusals or _check_against_table(definition, call)


def check_scales(call: Any) -> list[Refusal]:
    """A constant scale is a positive finite number; the runtime checks one that arrives later (InputError)."""
    definition = _definition(call)
    if definition.name not in ("quantize", "dequantize"):
        return []
    scale = constant_value(call.args[1])
    if scale is None:
        return []
    values = np.asarray(scale, dtype=np.float64)
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if not wrong.size:
        return []
    return [Refusal("scale", "a scale that is positive and finite", f"{wrong.flat[0]:g}", "to calibrate it again")]


def _check_against_table(definition: OpDef, call: Any) -> list[Refusal]:
    """What the table's own rules say about the types and attributes together."""
    types = [tensor_type(operand) for operand in tensor_operands(call)]
    result = tensor_type(result_of(call))
    known = [type_ for type_ in types if type_ is not None]
    if result is None or len(known) != len(types):
        return []
    try:
        inferred = definition.infer(known, normalise_attrs(definition.name, attributes_of(call), known), result.dtype)
    except UnsupportedError as error:
        return [Refusal("attribute", f"{definition.name} that the NPU can compute", error.why, error.hint)]
    except GraphError as error:
        return [Refusal("shape", f"{definition.name} with shapes that fit", error.why, error.hint)]
    if inferred != result:
        return [Refusal("shape", f"a result of {inferred}", str(result), "check the attributes")]
    return []


def _refuse_attribute(definition: OpDef, key: str, attribute: AttrDef, value: Any) -> Refusal:
    if attribute.kind == "axis" and not isinstance(value, int):
        hint = "reshapes that make one axis of several, or leave it on the host"
        return Refusal("attribute", f"{definition.name} along one {key}", str(value), hint)
    if attribute.choices:
        needed = f"one of {', '.join(attribute.choices)}"
    elif attribute.kind == "float":
        needed = "a finite number"
    else:
        needed = f"whole numbers of at least {attribute.minimum or 0}"
    return Refusal("attribute", f"{definition.name} with {key} {needed}", str(value), "another value")


def _listed(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _definition(call: Any) -> OpDef:
    definition = find_definition(call)
    assert definition is not None, f"check_match lets only the kit's operations through, not {call.op}"
    return definition
