"""The plan of one region, as types: everything that is decided before anything runs.

A plan is a list of steps. A step is one operation with its epilogue, cut into tiles; it says which engine runs it,
where each tensor lives, which slots of on-chip memory hold its tiles, and why. ``program`` expands a step into
instructions; the runtime executes exactly those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npu_kit.graph.ir import Entry, Graph
from npu_kit.hw.spec import NpuSpec


@dataclass(frozen=True)
class Reason:
    """One decision, what was chosen, and why, with its numbers."""

    # "fuse", "tile", "chunk", "engine", "order", "buffering", "chain", "tier", "spill", "resident"; "wait" is of
    # plan.alternatives, which decides nothing.
    decision: str
    subject: str  # the step, tensor or operand it is about
    chosen: str
    because: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.decision} of {self.subject}: {self.chosen}, because {self.because}"


@dataclass(frozen=True)
class Axis:
    """One axis of a step's iteration space and its tile."""

    name: str
    extent: int
    tile: int

    @property
    def count(self) -> int:
        """Number of tiles, the last one possibly ragged."""
        return -(-self.extent // self.tile) if self.extent else 0

    def span(self, index: int) -> tuple[int, int]:
        """Start and stop of tile ``index``."""
        start = index * self.tile
        return start, min(start + self.tile, self.extent)


@dataclass(frozen=True)
class Buffer:
    """A place for a whole tensor."""

    name: str
    entry: Entry
    role: str  # "argument", "constant", "intermediate", "output", "resident" (a copy, kept near for reuse)
    tier: str
    offset_bytes: int
    nbytes: int
    first_step: int  # first and last step during which it is live
    last_step: int


@dataclass(frozen=True)
class Slot:
    """A place in L0 or L1 that holds one tile (or a panel of tiles) while a step runs."""

    name: str  # "accumulator", "partials", "x", "w", "patches", "epilogue0.1", "out", ...
    tier: str
    offset_bytes: int
    nbytes: int  # of all parts and copies together
    parts: int = 1  # a panel, or the partial sums, hold this many tiles side by side
    copies: int = 1  # 2: the dma engine fills one copy while the engine reads the other

    def place(self, part: int = 0, copy: int = 0) -> tuple[int, int]:
        """Offset and size in bytes of one part of one copy."""
        size = self.nbytes // (self.parts * self.copies)
        return self.offset_bytes + (copy * self.parts + part) * size, size


@dataclass(frozen=True)
class Operand:
    """A tensor that a step reads in tiles."""

    name: str  # also the name of its slot
    entry: Entry
    tier: str  # where its tiles are loaded from: "L3", "L2"
    slot: Slot
    is_panel: bool = False  # kept in L1, with all chunks that the loops inside need, until the loop outside moves on


@dataclass(frozen=True)
class Step:
    """One operation with its epilogue, cut into tiles."""

    index: int
    family: str  # of its problem: "contraction", "window", "elementwise", "reduction", "rows", "movement"; or "copy"
    nodes: tuple[int, ...]  # the anchor, then its epilogue, in order
    engine: str  # of the anchor
    epilogue_engines: tuple[str, ...]  # one per epilogue node
    axes: tuple[Axis, ...]  # in loop order, outermost first; reduction axes last
    operands: tuple[Operand, ...]  # of the anchor, in its own order
    epilogue_operands: tuple[tuple[Operand | None, ...], ...]  # per epilogue node; None is the running tile
    output: Entry  # of the last node
    output_tier: str  # "L3" or "L2"
    slots: tuple[Slot, ...]
    dataflow: str = ""  # of a contraction: what stays on the array, see plan.cost.DATAFLOWS
    prefetch: tuple[Entry, ...] = ()  # tensors copied whole to L2 before the first tile
    spills: tuple[Entry, ...] = ()  # tensors copied whole from L2 to L3 after the last tile, to make room

    @property
    def reads(self) -> tuple[Operand, ...]:
        """All operands, those of the epilogue last."""
        beside = (operand for group in self.epilogue_operands for operand in group)
        return (*self.operands, *(operand for operand in beside if operand is not None))

    @property
    def epilogue_reads(self) -> tuple[tuple[int, int, Operand], ...]:
        """What the epilogue reads beside the running tile: the node, which of its inputs it is, and the operand."""
        return tuple(
            (node, position, operand)
            for node, group in zip(self.nodes[1:], self.epilogue_operands, strict=True)
            for position, operand in enumerate(group)
            if operand is not None
        )

    @property
    def is_double_buffered(self) -> bool:
        """Whether its slots have two copies, so that transfers overlap compute."""
        return self.slot("out").copies > 1

    @property
    def only_moves(self) -> bool:
        """Whether nothing is computed, so that the dma engine does all of it."""
        return self.engine == "dma" and not self.epilogue_engines

    def axis(self, name: str) -> Axis:
        """The axis called ``name``; KeyError if there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    def slot(self, name: str) -> Slot:
        """The slot called ``name``; KeyError if there is none."""
        for slot in self.slots:
            if slot.name == name:
                return slot
        raise KeyError(name)


@dataclass(frozen=True)
class Plan:
    """Everything decided about one region on one machine."""

    graph: Graph
    spec: NpuSpec
    power_mode: str
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    reasons: tuple[Reason, ...]
