"""The operations of the kit, in one table: attributes, dtypes, engine, shape rule and multiply-accumulates of each.

Names are those of ``Node.name``. Every other module that must know what an operation is reads ``OPS``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npu_kit.errors import GraphError, UnsupportedError
from npu_kit.graph.definition import FAMILIES, OpDef
from npu_kit.graph.elementwise_ops import ACTIVATION_OPS, BINARY_OPS, VECTOR_OPS
from npu_kit.graph.ir import AttrValue, Node, TensorType
from npu_kit.graph.movement_ops import MOVEMENT_OPS
from npu_kit.graph.tile_ops import CONTRACTION_OPS, REDUCTION_OPS, ROW_OPS, TRANSPOSED_OPS, WINDOW_OPS

__all__ = ["FAMILIES", "OPS", "OpDef", "family_of", "find_op", "is_reshape", "normalise_attrs"]


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
        value = attrs.get(key)
        if value is None:  # Relax leaves out what it has a default for
            value = definition.default
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


_DEFINITIONS = (
    *CONTRACTION_OPS,
    *TRANSPOSED_OPS,
    *WINDOW_OPS,
    *BINARY_OPS,
    *ACTIVATION_OPS,
    *VECTOR_OPS,
    *REDUCTION_OPS,
    *ROW_OPS,
    *MOVEMENT_OPS,
)

OPS: Mapping[str, OpDef] = {definition.name: definition for definition in _DEFINITIONS}


def is_reshape(node: Node) -> bool:
    """Whether a node shows the elements of its input in another shape: it has no memory of its own and never runs."""
    return node.is_kernel and OPS[node.name].family == "reshape"
