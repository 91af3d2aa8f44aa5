"""One event of a step in words, and what of its tile a picture should show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npu_kit.plan.geometry import problem_of
from npu_kit.plan.ir import Operand, Plan, Step
from npu_kit.render import chunk_count, tile_count
from npu_kit.render.format import format_count, format_cycles, number_of, shorten
from npu_kit.render.operand_boxes import letters_of
from npu_kit.render.tile_scene import output_axes
from npu_kit.trace.events import ENGINES, KINDS, TIERS, Events


@dataclass(frozen=True)
class Moment:
    """What happens at one position."""

    tile: int  # number of the output tile, in loop order; the first one for what comes before all tiles
    chunk: int | None  # the pass over the reduction axes, None where it is about the whole tile
    sentence: str


def moment_of(plan: Plan, step: Step, events: Events, position: int) -> Moment:
    """Describe event ``position`` of ``events``, which are those of ``step`` alone."""
    event = events[position]
    kind, tile = KINDS[int(event["kind"])], int(event["tile"])
    chunk = _chunk(step, events, position)
    passes = chunk_count(step)
    where = f"tile {tile} of {tile_count(step)} ({tile_spans(plan, step, tile)})" if tile >= 0 else ""
    of_pass = f", pass {chunk} of {passes}" if chunk is not None and passes > 1 else ""
    engine, names = ENGINES[int(event["engine"])], node_names(plan, step)
    name = names.get(int(event["node"]), "a tensor")
    nbytes, macs = int(event["nbytes"]), int(event["macs"])
    source, target = (TIERS[int(event[end])] for end in ("src", "dst"))
    amount = number_of(nbytes, "byte")
    reading = f"reading {amount} from {source}" + (f" for {number_of(macs, 'MAC')}" if macs else "")
    said = {
        "prefetch": f"copies {name} whole, before the first tile: {amount} from {source} to {target}",
        "load": f"loads what {where} needs of {name}: {amount} from {source} to {target}",
        "compute": f"computes {where}{of_pass}, {reading}",
        "epilogue": f"applies {name} to {where}" + (f", {reading}" if nbytes else ""),
        "drain": f"moves {where} out of the accumulator: {amount} from {source} to {target}",
        "store": f"stores {where}: {amount} from {source} to {target}",
    }[kind]
    start, cycles = format_count(int(event["start"])), format_cycles(int(event["cycles"]))
    return Moment(max(tile, 0), chunk, f"Cycle {start}: {engine} engine {said}; {cycles}.")


def tile_sentence(plan: Plan, step: Step, tile: int) -> str:
    """Where an output tile stands, for a step whose events are too many to forecast."""
    return f"Tile {tile} of {tile_count(step)} ({tile_spans(plan, step, tile)}) on the {step.engine} engine."


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


def node_names(plan: Plan, step: Step) -> dict[int, str]:
    """Short names of the nodes that a step moves or computes: constants are named after content, so by their role."""
    named: dict[int, str] = {node: plan.graph.nodes[node].name for node in step.nodes}
    for operand in step.operands:
        named.setdefault(operand.entry.node, _operand_name(plan, operand, f"constant {operand.name}"))
    for number, operands in zip(step.nodes[1:], step.epilogue_operands, strict=True):
        for position, beside in enumerate(operands):
            if beside is not None:
                role = f"{plan.graph.nodes[number].name} input {position}"
                named.setdefault(beside.entry.node, _operand_name(plan, beside, role))
    return named


def _operand_name(plan: Plan, operand: Operand, role: str) -> str:
    node = plan.graph.nodes[operand.entry.node]
    return role if node.kind == "const" else shorten(node.name, 24)


def _chunk(step: Step, events: Events, position: int) -> int | None:
    """The pass that event ``position`` belongs to, by the computes of the same tile before it."""
    event, chunks = events[position], chunk_count(step)
    kind = KINDS[int(event["kind"])]
    if kind not in ("load", "compute") or chunks <= 1 or step.family not in ("contraction", "window"):
        return None
    panels = {operand.entry.node for operand in step.operands if operand.is_panel}
    if kind == "load" and int(event["node"]) in panels:
        return None  # a panel is loaded for all passes, before the first
    before = events[:position]
    computes = (before["tile"] == event["tile"]) & (before["kind"] == KINDS.index("compute"))
    passed = int(np.count_nonzero(computes))
    return passed if passed < chunks else None
