"""The program of a step with its repeated tiles folded into loops: no tile is visited, however many there are.

What comes once before or behind a loop stands outside of it. That is the order in which things are done; where slots
have two copies, the loads of the next tile are issued before the work of this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from npu_kit.plan.cost import CostModel
from npu_kit.plan.forecast import Effect, StepEffects
from npu_kit.plan.geometry.rows import LAST
from npu_kit.plan.ir import Axis, Plan, Step
from npu_kit.plan.listing import name_of, offset_of
from npu_kit.plan.nest import PASS, Line, Nest, nest_of
from npu_kit.plan.program import Instruction, copies_after, copies_before
from npu_kit.plan.traffic import epilogue_loads, operand_loads, step_counters


@dataclass(frozen=True)
class FoldedLine:
    """One instruction of a folded program, with what all its repetitions have in common."""

    kind: str
    what: str
    node: int
    engine: str
    ends: tuple[str, str]  # the tiers that bytes come from and go to; two times "" where nothing moves
    offset_bytes: int  # of the first tile in the nearer tier
    tile_bytes: int  # of the largest tile
    cycles: int  # of the largest tile
    times: int  # in the whole step
    nbytes: int  # of all tiles together
    condition: str = ""  # at which place of the loops around it takes part, "" for each
    number: int = 0  # of an epilogue


@dataclass(frozen=True)
class Repeat:
    """A body that is repeated along one or several axes, the last one fastest."""

    axes: tuple[Axis, ...]
    body: tuple[FoldedItem, ...]


FoldedItem = Repeat | FoldedLine


def fold_step(plan: Plan, step: Step) -> tuple[FoldedItem, ...]:
    """The program of a step as loops."""
    cost = CostModel(plan.spec, plan.power_mode)
    effects = StepEffects(plan.graph, step, cost)
    nest = nest_of(step, effects.problem)
    facts = _Facts(plan, effects, nest)
    before = map(facts.whole, copies_before(plan.graph, step))
    after = map(facts.whole, copies_after(step))
    axes = [axis for axis in nest.axes if axis.count != 1]
    lines = [line for line in nest.body if nest.times(line)]
    return (*before, *_fold(facts, axes, lines, ()), *after)


def lines_of(items: Sequence[FoldedItem]) -> Iterator[FoldedLine]:
    """The lines of a folded program, in order."""
    for item in items:
        if isinstance(item, Repeat):
            yield from lines_of(item.body)
        else:
            yield item


def _fold(facts: _Facts, axes: list[Axis], lines: list[Line], around: tuple[str, ...]) -> Iterator[FoldedItem]:
    if not axes or not lines:
        yield from (facts.of(line, around) for line in lines)
        return
    axis, rest = axes[0], axes[1:]
    if axis.name == PASS:
        for number in range(axis.count):
            yield from _fold(facts, rest, [line for line in lines if line.only == number], around)
        return
    here = {one.name for one in axes if one.name != PASS}
    before = [line for line in lines if here <= set(line.first)]
    behind = [line for line in lines if here <= set(line.last)]
    inside = [line for line in lines if line not in before and line not in behind]
    yield from (facts.of(line, around) for line in before)
    body = tuple(_fold(facts, rest, inside, (*around, axis.name)))
    if len(body) == 1 and isinstance(body[0], Repeat):
        yield Repeat((axis, *body[0].axes), body[0].body)
    elif body:
        yield Repeat((axis,), body)
    yield from (facts.of(line, around) for line in behind)


class _Facts:
    """What the lines of a nest move, and where."""

    def __init__(self, plan: Plan, effects: StepEffects, nest: Nest) -> None:
        self.plan, self.effects, self.nest, self.step = plan, effects, nest, effects.step
        self._totals = dict(self._bytes())
        self._alike = [_key(line) for line in nest.body]
        self._cut = {axis.name for axis in nest.axes if axis.count > 1}

    def of(self, line: Line, around: tuple[str, ...] = ()) -> FoldedLine:
        """The facts of a line; ``around``: the axes of the loops that it stands in."""
        first = self._at(line, [0] * len(self.step.axes))
        folded = self._line(first, self._largest(line), self.nest.times(line), self._total(line))
        return replace(folded, condition=self._condition(line, around), number=line.number)

    def whole(self, instruction: Instruction) -> FoldedLine:
        """The facts of a copy of a whole tensor."""
        effect = self.effects.of(instruction)
        return self._line(instruction, effect, 1, effect.moved[0] if effect is not None else 0)

    def _line(self, first: Instruction, effect: Effect | None, times: int, nbytes: int) -> FoldedLine:
        return FoldedLine(
            first.kind,
            name_of(self.plan, self.step, first),
            self.step.nodes[0] if effect is None else effect.node,
            self.step.engine if effect is None else effect.engine,
            ("", "") if effect is None else effect.ends,
            offset_of(self.plan, self.step, first),
            0 if effect is None else effect.moved[0],
            0 if effect is None else effect.moved[2],
            times,
            nbytes,
        )

    def _largest(self, line: Line) -> Effect | None:
        """What the line does at its largest tile: along each axis in the middle, or at an end if more is there."""
        at = [axis.count // 2 for axis in self.step.axes]
        best = self.effects.of(self._at(line, at))
        for i, axis in enumerate(self.step.axes):
            if axis.count < 2:
                continue
            for place in (0, axis.count - 1):
                other = self.effects.of(self._at(line, [*at[:i], place, *at[i + 1 :]]))
                if other is not None and (best is None or other.moved > best.moved):
                    best, at[i] = other, place
        return best

    def _at(self, line: Line, at: Sequence[int]) -> Instruction:
        """The line at a tile."""
        return Instruction(line.kind, 0, tuple(at), line.operand, line.number, line.stage)

    def _condition(self, line: Line, around: tuple[str, ...]) -> str:
        words = (
            ("first {} only", line.first),
            ("last {} only", line.last),
            ("not first {}", line.later),
            ("not last {}", line.earlier),
        )
        found = [
            pattern.format(", ".join(cut))
            for pattern, axes in words
            if (cut := [name for name in axes if name in around and name in self._cut])
        ]
        return ", ".join(found)

    def _total(self, line: Line) -> int:
        """Bytes of all tiles of the line; lines that do the same in several passes share them evenly."""
        key = _key(line)
        return self._totals.get(key, 0) // self._alike.count(key)

    def _bytes(self) -> Iterator[tuple[tuple[str, str, int], int]]:
        plan, step, problem = self.plan, self.step, self.effects.problem
        graph = plan.graph
        counters = step_counters(graph, step, self.effects.cost)
        for operand in step.operands:
            yield ("load", operand.name, 0), operand_loads(problem, step.axes, operand)[1]
        read = counters.nbytes.get(("L1", "L0"), 0)
        loads = {operand.name: nbytes for operand, nbytes in epilogue_loads(graph, step, problem)}
        yield from ((("load", name, 0), nbytes) for name, nbytes in loads.items())
        for number, operands in enumerate(step.epilogue_operands):
            beside = sum(loads[one.name] for one in operands if one is not None)
            yield ("epilogue", "", number), beside
            read -= beside
        out = graph.type_of(step.output).nbytes
        partial = counters.nbytes.get(("L0", "L1"), 0) - out
        stages = {line.stage for line in self.nest.body if line.kind == "compute"}
        is_rows = any(axis.name == PASS for axis in self.nest.axes)
        others = (operand_loads(problem, step.axes, operand) for operand in step.operands[1:])
        parameters = sum(nbytes for _, nbytes in others) if is_rows else 0  # of a norm: read in the last pass
        for stage in stages:
            is_finish = stage == "finish" and len(stages) > 1  # of a window: it reads nothing from L1
            share = (read - partial - parameters) // (len(stages) if is_rows else 1)
            yield ("compute", stage, 0), 0 if is_finish else share + (parameters if stage == LAST else 0)
        yield from ((key, partial) for key in (("fill", "", 0), ("spill", "", 0)))
        yield from ((key, out) for key in (("drain", "", 0), ("store", "", 0)))


def _key(line: Line) -> tuple[str, str, int]:
    return line.kind, line.operand or line.stage, line.number
