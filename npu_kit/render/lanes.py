"""Events sorted into lanes, as drawable data: one lane per engine, and for the dma engine one per pair of tiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from npu_kit.render.format import format_bytes, format_count, format_cycles, number_of
from npu_kit.trace.events import CAUSES, ENGINES, KINDS, TIERS, Events

WINDOW = 200  # events; more become hairlines


@dataclass(frozen=True)
class Slice:
    """One event, ready to draw."""

    index: int  # row among all events
    step: int
    kind: str
    start: int  # cycle
    stop: int
    label: str
    short: str  # for a slice too narrow for the label
    tooltip: str
    waits_for: str  # one of CAUSES


@dataclass(frozen=True)
class Stall:
    """Cycles in which an engine waits between two computes of one step."""

    start: int
    stop: int
    cause: str  # the event whose end the engine waited for, "" if none ends there
    waits_for: str  # one of CAUSES: "operand", "accumulator", "slot", "tensor"; "" if the event names none


@dataclass(frozen=True)
class Lane:
    """What one engine did, in order of time."""

    engine: str
    label: str
    slices: tuple[Slice, ...]
    stalls: tuple[Stall, ...]  # none in lanes of the dma engine and of engines that only do epilogues


def lanes_of(
    events: Events, names: Mapping[int, str] | None = None, *, first: int = 0, count: int = WINDOW
) -> tuple[Lane, ...]:
    """Sort a window of events into lanes.

    Args:
        events: rows of EVENT_DTYPE, of one run.
        names: a name for each node id ("conv1"); "node 3" where it has none.
        first: index of the first event of the window.
        count: number of events in it.
    """
    window = events[first : first + count]
    lanes: dict[tuple[int, int, int], list[Slice]] = {}
    for offset, event in enumerate(window):
        engine, source, target = int(event["engine"]), int(event["src"]), int(event["dst"])
        is_dma = ENGINES[engine] == "dma"
        key = (engine, source if is_dma else 0, target if is_dma else 0)
        lanes.setdefault(key, []).append(_slice(first + offset, event, names or {}))
    ends: dict[int, Slice] = {}
    for slices in lanes.values():
        for piece in slices:
            ends.setdefault(piece.stop, piece)
    ordered = sorted(lanes, key=lambda key: (key[0], -key[1], -key[2]))
    return tuple(_lane(key, sorted(lanes[key], key=lambda piece: piece.start), ends) for key in ordered)


def _slice(index: int, event: Events, names: Mapping[int, str]) -> Slice:
    kind, engine = KINDS[int(event["kind"])], ENGINES[int(event["engine"])]
    node, tile, start, cycles = (int(event[key]) for key in ("node", "tile", "start", "cycles"))
    name = names.get(node, f"node {node}")
    where = f"step {int(event['step'])}" + (f", tile {tile}" if tile >= 0 else "")
    parts = [
        f"event {index}: {kind} {name}",
        where,
        f"{engine}, {format_cycles(cycles)} from cycle {format_count(start)}",
    ]
    if nbytes := int(event["nbytes"]):
        parts.append(f"{format_bytes(nbytes)} {TIERS[int(event['src'])]} to {TIERS[int(event['dst'])]}")
    if macs := int(event["macs"]):
        parts.append(number_of(macs, "MAC"))
    if engine == "dma":
        label, short = f"{kind} {name}", name
    else:
        label, short = f"{name if kind == 'compute' else kind} t{tile}", f"t{tile}"
    waits_for = CAUSES[int(event["cause"])]
    return Slice(index, int(event["step"]), kind, start, start + cycles, label, short, "; ".join(parts), waits_for)


def _lane(key: tuple[int, int, int], slices: list[Slice], ends: Mapping[int, Slice]) -> Lane:
    engine = ENGINES[key[0]]
    if engine == "dma":
        return Lane(engine, f"dma {TIERS[key[1]]} to {TIERS[key[2]]}", tuple(slices), ())
    stalls, free = [], 0
    for before, piece in pairwise(slices):
        free = max(free, before.stop)
        if piece.start > free and piece.kind == "compute" and piece.step == before.step:
            cause = ends.get(piece.start)
            stalls.append(Stall(free, piece.start, cause.label if cause else "", piece.waits_for))
    return Lane(engine, engine, tuple(slices), tuple(stalls))
