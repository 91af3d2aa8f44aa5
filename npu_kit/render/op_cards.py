"""The table of operations as text: a card for each, and an overview. What a card says, the table decides."""

from __future__ import annotations

from collections.abc import Mapping

from npu_kit.graph.attributes import AttrDef
from npu_kit.graph.definition import OpDef
from npu_kit.graph.ops import OPS
from npu_kit.graph.verify import MAX_RANK
from npu_kit.hw.spec import ENGINE_NAMES
from npu_kit.render.tables import Table

FAMILIES: Mapping[str, str] = {
    "contraction": "sums of products, chunk by chunk, into an output tile",
    "window": "a window slides over each channel",
    "elementwise": "each element on its own; joins the tile of the operation before it where both are in one composite",
    "reduction": "some axes are folded, tile by tile",
    "rows": "several passes over tiles along one axis",
    "movement": "tiles are copied, and nothing is computed",
    "reshape": "nothing runs: the same memory, read in another shape",
}


def overview() -> Table:
    """Every operation in a line."""
    rows = tuple((op.name, op.relax_name, op.engine, op.family, op.summary) for op in OPS.values())
    return Table(("operation", "Relax", "engine", "family", "what it is"), rows)


def card_rows(op: OpDef) -> list[tuple[str, str]]:
    """What there is to know about one operation: pairs of a heading and a text."""
    inputs = "; ".join(f"{name}: {', '.join(dtypes)}" for name, dtypes in op.inputs.items())
    attributes = "; ".join(f"{name}{_attribute(one)}" for name, one in op.attributes.items())
    rows = [
        ("is", op.summary),
        ("computes", op.formula),
        ("Relax", op.relax_name),
        ("engine", op.engine),
        ("family", f"{op.family}: {FAMILIES[op.family]}"),
        ("inputs", inputs + (", one or more" if op.is_variadic else "")),
        ("attributes", attributes or "none"),
        ("not in a graph", ", ".join(op.dropped)),
        ("limits", op.limits),
        ("unlike TVM", op.differs),
    ]
    return [(heading, text) for heading, text in rows if text]


def card(op: OpDef) -> str:
    """One operation for the terminal."""
    return "\n".join([op.name, *(f"  {heading:<15} {text}" for heading, text in card_rows(op))])


def markdown(rewritten: tuple[str, ...], others: tuple[str, ...]) -> str:
    """The page of all cards.

    Args:
        rewritten: Relax operators that become others before patterns are looked for, where that is possible.
        others: Relax operators that have no card.
    """
    lines = [
        "# Operations",
        "",
        "What the NPU computes, written by `scripts/build_op_cards.py` out of the table `npu_kit.graph.ops.OPS`.",
        "Calls of other operators stay on the host, and so do those that a card refuses; the report of a partition",
        "says why.",
        "",
        "A machine computes the dtypes of its own list among those of a card. Sizes are fixed, and a tensor has",
        f"at most {MAX_RANK} axes. *Unlike TVM* is what TVM's own LLVM code gives otherwise.",
    ]
    for engine in ENGINE_NAMES:
        names = [op.name for op in OPS.values() if op.engine == engine]
        lines += ["", f"**{engine}**: {', '.join(f'[{name}](#{name})' for name in names)}"]
    for op in OPS.values():
        lines += ["", f"## {op.name}", "", "| | |", "|---|---|"]
        lines += [f"| {heading} | {_escaped(heading, text)} |" for heading, text in card_rows(op)]
    lines += ["", "## Written in other operations", ""]
    lines += [
        "Relax operators that the partition writes in operations with a card first, where shapes are fixed. Of pools"
    ]
    lines += ["of 3-D data it is those whose windows lie along D alone, in NCDHW."]
    lines += ["", _names(rewritten)]
    lines += ["", "## Not on the NPU", "", "Relax operators that have no card, and so stay on the host:", ""]
    return "\n".join([*lines, _names(others)]) + "\n"


def _names(operators: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in operators) + "."


def _attribute(definition: AttrDef) -> str:
    kinds = {
        "ints": f"{definition.length} integers",
        "padding": f"{definition.length} integers, before all axes and behind them",
        "int": "an integer",
        "axis": "an axis",
        "axes": "axes, () for all",
        "order": "axes, () for the reverse order",
        "sizes": "integers",
        "float": "a finite number",
        "bool": "True or False",
        "str": f"one of {', '.join(definition.choices)}",
    }
    least = f" of at least {definition.minimum}" if definition.minimum is not None else ""
    default = "" if definition.default is None else f" = {definition.default}"
    return f"{default} ({kinds[definition.kind]}{least})"


def _escaped(heading: str, text: str) -> str:
    text = text.replace("|", "\\|")
    return f"`{text}`" if heading in ("computes", "Relax") else text.replace("*", "\\*").replace("<", "&lt;")
