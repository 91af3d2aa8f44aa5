"""When each instruction starts: in order on its engine, as soon as what it reads is there and what it writes is free.

Simplified: one dma engine with one queue, an instruction holds its slots from its first to its last cycle, and a step
begins when the one before it has ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from npu_kit.graph.ir import Entry
from npu_kit.plan.geometry.rows import LAST
from npu_kit.plan.ir import Operand, Step
from npu_kit.plan.program import WHOLE, Instruction
from npu_kit.trace.events import CAUSES, ENGINES, KINDS, TIERS

Key = Hashable  # a slot's copy, a part of the partial sums, the accumulator, or a tensor
ACCUMULATOR = "accumulator"


def hazards(step: Step, instruction: Instruction, entry: Entry | None = None) -> tuple[list[Key], list[Key]]:
    """What an instruction reads and what it writes; ``entry`` is the tensor that a load or a copy reads."""
    copies = instruction.copies
    kind = instruction.kind
    if instruction.tile == WHOLE:
        return [entry], [(entry, step.index)]
    if kind == "load":
        near = (entry, step.index) if entry in step.prefetch else entry
        return [near], [(instruction.operand, copies.get(instruction.operand, 0), instruction.part)]
    if kind == "compute":
        reads: list[Key] = [
            (o.name, copies.get(o.name, 0), _part(o.slot.parts, instruction)) for o in operands_read(step, instruction)
        ]
        return reads, [ACCUMULATOR]
    if kind == "epilogue":
        beside = (operand for operand in step.epilogue_operands[instruction.part] if operand is not None)
        return [ACCUMULATOR, *((o.name, copies.get(o.name, 0), 0) for o in beside)], [ACCUMULATOR]
    if kind == "fill":
        return [("partials", instruction.part)], [ACCUMULATOR]
    if kind == "spill":
        return [ACCUMULATOR], [("partials", instruction.part)]
    out = ("out", copies.get("out", 0))
    if kind == "drain":
        return [ACCUMULATOR], [out]
    return [out], [step.output]


def operands_read(step: Step, instruction: Instruction) -> tuple[Operand, ...]:
    """The operands of the anchor whose slots a compute reads."""
    if instruction.stage == "finish" and step.family in ("window", "reduction"):
        return ()
    if step.family == "rows" and instruction.stage != LAST:
        return step.operands[:1]  # the parameters of a norm take part in the last pass alone
    return step.operands


def _part(parts: int, instruction: Instruction) -> int:
    return instruction.part if parts > 1 else 0


class Timeline:
    """The cycles of one step at which engines become free and data becomes ready."""

    def __init__(self, begin: int = 0) -> None:
        self._begin = self.end = begin
        self._engine_free: dict[str, int] = {}
        self._written: dict[Key, int] = {}
        self._read: dict[Key, int] = {}

    def place(self, engine: str, cycles: int, reads: Iterable[Key], writes: Iterable[Key]) -> tuple[int, int]:
        """Start cycle of the next instruction on ``engine``, and the index into CAUSES of what it waited for."""
        free = start = self._engine_free.get(engine, self._begin)
        cause = ""
        for key in reads:
            ready = self._written.get(key, 0)
            if ready > start:
                start, cause = ready, _cause(key, "operand")
        for key in writes:
            ready = max(self._written.get(key, 0), self._read.get(key, 0))
            if ready > start:
                start, cause = ready, _cause(key, "slot")
        end = start + cycles
        self._engine_free[engine] = end
        self.end = max(self.end, end)
        for key in reads:
            self._read[key] = max(self._read.get(key, 0), end)
        for key in writes:
            self._written[key] = end
        return start, CAUSES.index(cause) if start > free else 0

    def record(
        self,
        step: Step,
        instruction: Instruction,
        node: int,
        engine: str,
        ends: tuple[str, str],
        took: tuple[int, int, int],
        entry: Entry | None = None,
    ) -> tuple[int, ...]:
        """Place an instruction and write its row of EVENT_DTYPE.

        Args:
            step, instruction: what runs.
            node: the graph node computed, or whose tensor is moved.
            engine: the engine it runs on.
            ends: the tiers that the bytes come from and go to.
            took: bytes, MACs and cycles.
            entry: the tensor that a load or a copy reads.
        """
        nbytes, macs, cycles = took
        start, cause = self.place(engine, cycles, *hazards(step, instruction, entry))
        source, target = (TIERS.index(end) for end in ends)
        place = (step.index, instruction.tile, node, KINDS.index(instruction.kind), ENGINES.index(engine))
        return (*place, source, target, nbytes, macs, start, cycles, cause)


def _cause(key: Key, otherwise: str) -> str:
    if key == ACCUMULATOR:
        return "accumulator"
    if isinstance(key, Entry) or (isinstance(key, tuple) and isinstance(key[0], Entry)):
        return "tensor"
    return otherwise
