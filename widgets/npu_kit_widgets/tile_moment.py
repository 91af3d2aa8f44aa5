"""One event of a step in words, and what of its tile a picture should show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npu_kit.plan.geometry import chunk_count, output_axes, problem_of, tile_count
from npu_kit.plan.ir import Plan, Step
from npu_kit.render.format import format_count, format_cycles, number_of
from npu_kit.render.names import node_names
from npu_kit.render.tile.letters import letters_of
from npu_kit.trace.events import CAUSES, ENGINES, KINDS, TIERS, Events


@dataclass(frozen=True)
class Moment:
    """What happens at one position."""

    tile: int  # number of the output tile, in loop order; the first one for what comes before all tiles
    chunk: int | None  # of the reduction axes, None where it is about the whole tile
    sentence: str


_WAITED_FOR = {
    "operand": "an operand that was on its way",
    "accumulator": "the accumulator, which was in use",
    "slot": "a slot that was in use",
    "tensor": "a tensor that was not written yet",
}


def moment_of(plan: Plan, step: Step, events: Events, position: int) -> Moment:
    """Describe event ``position`` of ``events``, which are those of ``step`` alone."""
    event = events[position]
    tile, chunk = int(event["tile"]), _chunk(step, events, position)
    engine, cause = ENGINES[int(event["engine"])], CAUSES[int(event["cause"])]
    start, cycles = format_count(int(event["start"])), format_cycles(int(event["cycles"]))
    waited = f", after waiting for {_WAITED_FOR[cause]}" if cause else ""
    said = _what_happens(plan, step, event, chunk)
    return Moment(max(tile, 0), chunk, f"Cycle {start}: {engine} engine {said}; {cycles}{waited}.")


def _what_happens(plan: Plan, step: Step, event: Events, chunk: int | None) -> str:
    """What the engine does, to which tile, with how many bytes between which tiers."""
    tile, chunks = int(event["tile"]), chunk_count(step)
    where = f"tile {_of(tile, step)} ({tile_spans(plan, step, tile)})" if tile >= 0 else ""
    name = node_names(plan, step).get(int(event["node"]), "a tensor")
    nbytes, macs = int(event["nbytes"]), int(event["macs"])
    source, target = (TIERS[int(event[end])] for end in ("src", "dst"))
    moving = f"{number_of(nbytes, 'byte')} from {source} to {target}"
    reading = f"reading {number_of(nbytes, 'byte')} from {source}" + (f" for {number_of(macs, 'MAC')}" if macs else "")
    kind = KINDS[int(event["kind"])]
    if int(event["tile"]) < 0:
        when = "after the last tile, to make room" if kind == "spill" else "before the first tile"
        return f"copies {name} whole, {when}: {moving}"
    if kind == "load":
        return f"loads {name} for {where}: {moving}"
    if kind == "compute":
        of_chunk = f", chunk {chunk} of {chunks}" if chunk is not None and chunks > 1 else ""
        return f"computes {where}{of_chunk}, {reading}"
    if kind == "epilogue":
        return f"applies {name} to {where}" + (f", {reading}" if nbytes else "")
    if kind == "store":
        return f"stores {where}: {moving}"
    moved = {
        "drain": "the result out of the accumulator",
        "spill": "a partial sum out of the accumulator",
        "fill": "a partial sum back into the accumulator",
    }[kind]
    return f"moves {moved}, {where}: {moving}"


def tile_sentence(plan: Plan, step: Step, tile: int) -> str:
    """Where an output tile stands, for a step whose events are too many to forecast."""
    return f"Tile {_of(tile, step)} ({tile_spans(plan, step, tile)}) on the {step.engine} engine."


def _of(tile: int, step: Step) -> str:
    return f"{format_count(tile)} of {format_count(tile_count(step))}"


def tile_spans(plan: Plan, step: Step, tile: int) -> str:
    """``H 4:8, W 0:8, C 0:32``: an output tile in the letters of its operation, axes of length 1 left out."""
    letters = letters_of(problem_of(plan.graph, step.nodes[0]))
    axes = output_axes(step)
    index = np.unravel_index(tile, [axis.count for axis in axes]) if axes else ()
    spans = [
        f"{letters.get(axis.name, axis.name)} {start}:{stop}"
        for axis, (start, stop) in ((axis, axis.span(int(at))) for axis, at in zip(axes, index, strict=True))
        if axis.extent > 1
    ]
    return ", ".join(spans) or "one element"


def _chunk(step: Step, events: Events, position: int) -> int | None:
    """The chunk of a compute: how many computes its tile has had before, since chunks of a tile run in order."""
    event, chunks = events[position], chunk_count(step)
    if KINDS[int(event["kind"])] != "compute" or step.family not in ("contraction", "window"):
        return None
    before = events[:position]
    passed = int(np.count_nonzero((before["tile"] == event["tile"]) & (before["kind"] == event["kind"])))
    return passed if 1 < chunks > passed else None
