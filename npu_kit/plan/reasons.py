"""The reasons of a step: what was chosen, against what, and which limit decided, with the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from npu_kit.plan import tiling
from npu_kit.plan.estimate import Cost
from npu_kit.plan.geometry import Contraction, chunk_axes
from npu_kit.plan.ir import Axis, Reason, Step
from npu_kit.plan.step_builder import StepBuilder

_ENGINE_REASONS = {
    "matrix": "it is a matrix product",
    "conv": "it is a matrix product over patches, which this engine gathers itself",
    "vector": "each element (or channel) is computed on its own, lane by lane",
    "pooling": "a window is reduced channel by channel",
    "activation": "it is a nonlinear function of each element",
    "dma": "nothing is computed",
}


@dataclass(frozen=True)
class Candidate:
    """One way to run a step, and what it costs."""

    bare: Step  # without copies in L2
    step: Step
    cost: Cost


def step_reasons(builder: StepBuilder, step: Step, name: str) -> list[Reason]:
    """Why these nodes, this tile, this engine and this depth."""
    reasons = []
    if len(step.nodes) > 1:
        because = "they come from one composite and nothing else reads the values between them"
        reasons.append(Reason("fuse", name, f"{len(step.nodes)} operations in one tile", because))
    reasons += [_tile_reason(builder, step, name), _engine_reason(builder, step, name)]
    if step.only_moves:
        because = "the dma engine does all of it, so nothing could run beside its transfers"
        reasons.append(Reason("buffering", name, "single slots", because))
    if isinstance(builder.problem, Contraction):
        chunk = chunk_axes(step)
        depth = math.prod(axis.tile for axis in chunk)
        because = f"at most {tiling.CHUNK_LIMIT} products are summed at once; no bit depends on the memory there is"
        reasons.append(
            Reason("chunk", name, tile_in_words(chunk), because, {"depth": depth, "limit": tiling.CHUNK_LIMIT})
        )
    return reasons


def _tile_reason(builder: StepBuilder, step: Step, name: str) -> Reason:
    spec, problem = builder.spec, builder.problem
    elements = math.prod(problem.layouts(step.axes)["out"].shape)
    limit = spec.tile.rows * spec.tile.columns
    used = {tier: sum(slot.nbytes for slot in step.slots if slot.tier == tier) for tier in ("L0", "L1")}
    capacity = spec.tier("L1").capacity_bytes
    if _is_smaller_than_wanted(builder, step):
        because = f"a larger tile does not fit L1: this one takes {used['L1']} of its {capacity} bytes"
    elif elements == limit:
        because = f"it fills the accumulator in L0, {spec.tile.rows}x{spec.tile.columns} elements"
    else:
        filled = f"{elements} of the accumulator's {limit} elements"
        because = f"with these sides the tensor takes the fewest tiles; one fills {filled}"
    numbers = {"elements": elements, "L0_bytes": used["L0"], "L1_bytes": used["L1"], "L1_capacity": capacity}
    return Reason("tile", name, tile_in_words(long_axes(step)), because, numbers)


def long_axes(step: Step) -> list[Axis]:
    """The axes of a step that have more than one element, in loop order."""
    return [axis for axis in step.axes if axis.extent > 1]


def tile_in_words(axes: Sequence[Axis]) -> str:
    """How much of each axis a tile takes: "n 32/45 x c 152/300"."""
    return " x ".join(f"{axis.name} {axis.tile}/{axis.extent}" for axis in axes) or "one element"


def _is_smaller_than_wanted(builder: StepBuilder, step: Step) -> bool:
    """Whether L1 made the tile smaller than the accumulator and the tensor would have it."""
    first = next(builder.wanted_axes(step))
    return math.prod(axis.tile for axis in first) > math.prod(axis.tile for axis in step.axes)


def _engine_reason(builder: StepBuilder, step: Step, name: str) -> Reason:
    engine = builder.spec.engine(step.engine)
    numbers = {"lanes": float(engine.lanes)}
    because = _ENGINE_REASONS[step.engine]
    if isinstance(builder.problem, Contraction):
        m, n = step.axis("y").tile * step.axis("x").tile, min(step.axis("n").tile, step.axis("n").extent)
        folds = math.ceil(m / engine.rows) * math.ceil(n / engine.columns)
        numbers["share"] = m * n / (folds * engine.lanes) if folds else 0.0
        because += f", and a tile of {m} by {n} uses {100 * numbers['share']:.0f} % of the array"
    return Reason("engine", name, step.engine, because, numbers)


def comparisons(name: str, best: Candidate, compared: Sequence[Candidate]) -> list[Reason]:
    """Why this loop order, and why this buffering: the best of those that were not chosen, with its cycles."""
    reasons = []
    chosen = order_in_words(best.step)
    others = sorted((one for one in compared if one is not best), key=lambda one: one.cost)
    for other in others:
        if order_in_words(other.step) != chosen:
            because, numbers = against(best.cost, other.cost, order_in_words(other.step))
            reasons.append(Reason("order", name, chosen, because, numbers))
            break
    for other in others:
        if order_in_words(other.step) == chosen and other.step.is_double_buffered != best.step.is_double_buffered:
            words = ("double", "single") if best.step.is_double_buffered else ("single", "double")
            because, numbers = against(best.cost, other.cost, f"{words[1]} slots")
            reasons.append(Reason("buffering", name, f"{words[0]} slots", because, numbers))
            break
    return reasons


def against(chosen: Cost, other: Cost, name: str) -> tuple[str, dict[str, float]]:
    """Why something was chosen against the next best, called ``name``: a clause, and the numbers in it.

    A chosen one may be slower by a little: estimates are only near the truth, so what is known to be no worse is kept
    until something else is clearly better.
    """
    cycles, dram_bytes, other_cycles, other_bytes = chosen.cycles, chosen.dram_bytes, other.cycles, other.dram_bytes
    numbers: dict[str, float] = {
        "cycles": cycles,
        "other_cycles": other_cycles,
        "dram_bytes": dram_bytes,
        "other_dram_bytes": other_bytes,
    }
    moved = f"it moves {dram_bytes} bytes to and from DRAM, and {name} {other_bytes}"
    if cycles == other_cycles:
        if dram_bytes == other_bytes:
            return f"it is a tie with {name}, {cycles} cycles and {dram_bytes} bytes of DRAM traffic each", numbers
        return f"both take about {cycles} cycles; {moved}", numbers
    if cycles > other_cycles:
        return f"{name}, about {other_cycles} cycles for {cycles}, is not clearly better by an estimate", numbers
    return f"it takes about {cycles} cycles, and {name} {other_cycles}", numbers


def order_in_words(step: Step) -> str:
    """The loop order of a contraction; all other steps have one, and no word for it."""
    if not step.dataflow:
        return ""
    names = [axis.name for axis in step.axes]
    outside = "inputs" if names.index("n") > names.index("x") else "weights"
    return f"{step.dataflow.replace('_', ' ')} with {outside} outside"
