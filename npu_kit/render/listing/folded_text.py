"""A folded program as text: a head, then for each step its tensors and its loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from npu_kit.graph.ir import Entry
from npu_kit.plan.cost import CostModel
from npu_kit.plan.estimate import estimate_cost
from npu_kit.plan.folding import FoldedItem, FoldedLine, Repeat
from npu_kit.plan.geometry.rows import GATHERED
from npu_kit.plan.ir import Axis, Buffer, Plan, Step
from npu_kit.plan.storage import homes
from npu_kit.render.format import clean, format_count, number_of, shorten
from npu_kit.render.listing.columns import Cells, aligned
from npu_kit.render.names import step_titles, tensor_name

Start = Callable[[int, FoldedLine], str]
HEADINGS = ("", "engine", "moves", "bytes", "times", "all bytes", "cycles", "start")
_IS_NUMBER = (False, False, False, True, True, True, True, True)
_NAME_CHARACTERS = 32


def folded_lines(
    plan: Plan,
    steps: Sequence[tuple[Step, tuple[FoldedItem, ...]]],
    start: Start,
    begins: Sequence[tuple[int, int]] | None,
) -> list[str]:
    """The lines of a program.

    Args:
        plan: the plan.
        steps: those that are shown, with their loops; what has none is left out.
        start: the start of a line's first instruction, as text.
        begins: the cycles in which each of ``steps`` begins and ends; None if unknown.
    """
    titles = step_titles(plan, with_composite=True)
    cost, places = CostModel(plan.spec, plan.power_mode), _Places(plan)
    rows: list[Cells] = [HEADINGS]
    for number, (step, items) in enumerate(steps):
        if not items:
            continue
        if begins is None:
            when = f"about {format_count(estimate_cost(plan.graph, step, cost).cycles)} cycles"
        else:
            when = "cycles {} to {}".format(*map(format_count, begins[number]))
        rows.append(("",))
        rows.append((f"step {step.index}: {clean(titles[step.index])}; {', '.join(_choices(step))}; {when}",))
        rows += [(line,) for line in _tensors(plan, step, places)]
        rows += _rows(step, items, "  ", start)
    if len(rows) == 1:
        rows = [("nothing that was asked for",)]
    return aligned(rows, _IS_NUMBER)


def _choices(step: Step) -> Iterator[str]:
    yield f"{step.engine} engine"
    if step.dataflow:
        yield step.dataflow.replace("_", " ")
    yield "double slots" if step.is_double_buffered else "single slots"


class _Places:
    """Where tensors are, by step: a view of rows, or a piece of a join, is where its owner is."""

    def __init__(self, plan: Plan) -> None:
        self._owner = homes(plan.graph)
        self._buffers: dict[tuple[Entry, str], list[Buffer]] = {}
        for buffer in plan.buffers:
            self._buffers.setdefault((buffer.entry, buffer.tier), []).append(buffer)

    def find(self, entry: Entry, tier: str, step: int) -> Buffer | None:
        """The place of a tensor in a tier; None for the caller's own array."""
        for owner in (entry, self._owner[entry]):
            for buffer in self._buffers.get((owner, tier), ()):
                if buffer.first_step <= step <= buffer.last_step:
                    return buffer
        return None


def _tensors(plan: Plan, step: Step, places: _Places) -> Iterator[str]:
    """Where the tensors are that a step reads and writes."""
    ends = [(one.name, one.entry, one.tier) for one in step.reads] + [("out", step.output, step.output_tier)]
    for name, entry, tier in ends:
        buffer = places.find(entry, tier, step.index)
        where = f"{tier}@{format_count(buffer.offset_bytes)}" if buffer is not None else tier
        named = shorten(tensor_name(plan.graph, entry), _NAME_CHARACTERS)
        yield f"  {name} is {named}, {plan.graph.type_of(entry)}, in {where}"


def _rows(step: Step, items: Sequence[FoldedItem], indent: str, start: Start) -> Iterator[Cells]:
    for item in items:
        if isinstance(item, Repeat):
            yield (f"{indent}for {', '.join(map(_loop, item.axes))}:",)
            yield from _rows(step, item.body, indent + "  ", start)
        else:
            yield _row(step, item, indent, start)


def _loop(axis: Axis) -> str:
    rest = axis.extent - (axis.count - 1) * axis.tile
    ragged = f", last {rest}" if rest != axis.tile else ""
    each = f" ({axis.tile} each{ragged})" if axis.tile > 1 else ""
    return f"{axis.name} in 0..{axis.count - 1}{each}"


def _row(step: Step, line: FoldedLine, indent: str, start: Start) -> Cells:
    named = shorten(line.what, _NAME_CHARACTERS)
    condition = f" [{line.condition}]" if line.condition else ""
    return (
        f"{indent}{line.kind} {named}".rstrip() + condition,
        line.engine if line.cycles else "",
        moves(line.kind, line.what, line.ends, line.offset_bytes) if line.tile_bytes else "",
        format_count(line.tile_bytes) if line.tile_bytes else "",
        format_count(line.times),
        format_count(line.nbytes) if line.tile_bytes else "",
        format_count(line.cycles) if line.cycles else "",
        start(step.index, line),
    )


def moves(kind: str, what: str, ends: tuple[str, str], offset_bytes: int) -> str:
    """``L3 -> L1@4,096``: the offset stands at the end where the tile stands in a slot, the accumulator or a copy."""
    source, target = ends
    if kind == "compute" and what in GATHERED:
        target = "L1"
    place = f"@{format_count(offset_bytes)}"
    # A whole tensor is spilled from L2 to DRAM, a partial sum from the accumulator to its slot; filled the other way.
    is_source = (kind, source) in (("store", "L1"), ("fill", "L1"), ("spill", "L2"))
    return f"{source}{place} -> {target}" if is_source else f"{source} -> {target}{place}"


def head(plan: Plan, instructions: int, cycles: int | None) -> str:
    """The first line of a listing."""
    time = f", {number_of(cycles, 'cycle')}" if cycles is not None else ""
    tile = f"tiles of {plan.spec.tile.rows}x{plan.spec.tile.columns}"
    counts = f"{number_of(len(plan.steps), 'step')}, {number_of(instructions, 'instruction')}{time}"
    symbol = shorten(plan.graph.symbol, 60)
    return f"{symbol} on {clean(plan.spec.name)}, {plan.power_mode}, {tile}: {counts}"
