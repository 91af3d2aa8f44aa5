"""Rules on tiles: they cover the result once, suit the machine, and are summed in the fixed order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from npu_kit.errors import PlanError
from npu_kit.graph.ops import OPS
from npu_kit.plan import tiling
from npu_kit.plan.geometry import (
    Contraction,
    Elementwise,
    Movement,
    Problem,
    Reduction,
    Rows,
    Window,
    problem_of,
)
from npu_kit.plan.ir import Axis, Plan
from npu_kit.plan.steps import label

MOST_PIECES = 1 << 20  # along one axis of a result: the proof looks at each of them, for ten microseconds

_CHUNK = ("c", "kh", "kw")
# The loops of each dataflow that a program exists for, outermost first, and the operand that they keep near.
LOOPS: Mapping[str, Mapping[tuple[str, ...], str]] = {
    "output_stationary": {
        ("group", "n", "batch", "y", "x", *_CHUNK): "w",
        ("batch", "group", "y", "x", "n", *_CHUNK): "x",
    },
    "weight_stationary": {("group", "n", *_CHUNK, "batch", "y", "x"): "w"},
    "input_stationary": {("batch", "group", "y", "x", *_CHUNK, "n"): "x"},
}


def _axes_are_those_of_the_operation(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        name = label(plan.graph, step.nodes)
        extents = problem_of(plan.graph, step.nodes[0]).extents
        found = {axis.name: axis.extent for axis in step.axes}
        if found != extents or len(found) != len(step.axes):
            yield f"{name} has the axes {found}, its operation {extents}"
            continue
        if step.family == "contraction":
            if tuple(found) not in LOOPS.get(step.dataflow, {}):
                yield f"{name} has no loops of {step.dataflow or 'no dataflow'} in the order {', '.join(found)}"
        elif step.dataflow or tuple(found) != tuple(extents):
            yield f"the loops of {name} run in the order {', '.join(found)}, not {', '.join(extents)}"
        for axis in step.axes:
            if axis.tile < 1:
                yield f"axis {axis.name} of {name} has a tile of {axis.tile}"


def _operands_have_the_names_of_their_tiles(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        known = [name for name in problem_of(plan.graph, step.nodes[0]).layouts(step.axes) if name != "out"]
        found = [operand.name for operand in step.operands]
        if found != known:
            yield f"step {step.index} loads {', '.join(found)}, its tiles are {', '.join(known)}"
        beside = [operand.name for operand in step.reads][len(found) :]
        wanted = [
            f"epilogue{number}.{position}"
            for number, group in enumerate(step.epilogue_operands)
            for position, operand in enumerate(group)
            if operand is not None
        ]
        if beside != wanted:
            yield f"step {step.index} loads {', '.join(beside)} beside its tile, not {', '.join(wanted)}"


def _loops_do_all_of_the_work(plan: Plan) -> Iterator[str]:
    """The iteration space has as many points as the graph's own tables count elements and multiply-accumulates."""
    for step in plan.steps:
        node, problem = plan.graph.nodes[step.nodes[0]], problem_of(plan.graph, step.nodes[0])
        outputs = math.prod(axis.extent for axis in step.axes if axis.name not in problem.reduction)
        if outputs != node.outputs[0].elements:
            yield f"the loops of step {step.index} visit {outputs} of {node.outputs[0].elements} elements"
        if node.is_kernel:
            types = [plan.graph.type_of(entry) for entry in node.inputs]
            macs = OPS[node.name].macs(types, node.attrs, node.outputs[0])
            points = math.prod(axis.extent for axis in step.axes)
            if macs and macs != points:
                yield f"the loops of step {step.index} do {points} MACs, {node.name} has {macs}"


def _tiles_cover_the_output_once(plan: Plan) -> Iterator[str]:
    """Along each axis of the tensor the tiles' pieces follow each other without a gap: a box is a product of pieces."""
    for step in plan.steps:
        shape = plan.graph.type_of(step.output).shape
        name = label(plan.graph, step.nodes)
        if math.prod(shape) and not all(_coverage(problem_of(plan.graph, step.nodes[0]), step.axes, shape, name)):
            yield f"the tiles of {name} leave elements out or store them twice"


def _coverage(problem: Problem, axes: tuple[Axis, ...], shape: tuple[int, ...], name: str) -> Iterator[bool]:
    """For each set of tensor axes that share loops, whether the loops' pieces cover it once.

    Raises:
        PlanError: the pieces of one set are more than ``MOST_PIECES``.
    """
    outer = [axis for axis in axes if axis.name not in problem.reduction]
    first = {axis.name: axis.span(0) for axis in axes}

    def piece(loops: tuple[Axis, ...], at: tuple[int, ...]) -> tuple[slice, ...]:
        spans = {**first, **{axis.name: axis.span(index) for axis, index in zip(loops, at, strict=True)}}
        return problem.box("out", axes, spans).index

    origin = piece((), ())
    moved = {axis: _moved(origin, piece((axis,), (axis.count - 1,))) for axis in outer}
    groups: list[tuple[set[Axis], set[int]]] = []
    for axis, along in moved.items():
        apart = [group for group in groups if not group[1] & along]
        joint = [group for group in groups if group[1] & along]
        groups = [*apart, (set().union({axis}, *(g[0] for g in joint)), set().union(along, *(g[1] for g in joint)))]
    still = set(range(len(shape))) - set().union(*moved.values())
    yield all((origin[dim].start, origin[dim].stop) == (0, shape[dim]) for dim in still)
    for loops, shared in groups:
        dims, ordered = sorted(shared), tuple(axis for axis in outer if axis in loops)
        count = math.prod(axis.count for axis in ordered)
        if count > MOST_PIECES:
            together = " and ".join(axis.name for axis in ordered)
            why = f"it has {count:,} tiles along {together}, and at most {MOST_PIECES:,} are planned"
            raise PlanError(name, why, "a larger tile, or a smaller tensor.")
        boxes = (piece(ordered, at) for at in itertools.product(*(range(axis.count) for axis in ordered)))
        yield _is_covered([tuple(box[dim] for dim in dims) for box in boxes], [shape[dim] for dim in dims])


def _is_covered(boxes: Sequence[tuple[slice, ...]], shape: Sequence[int]) -> bool:
    """Whether boxes fill a shape once: pieces of one axis, or along several axes single positions of them.

    The boxes are compared, not marked in an array of the shape: that would have the size of the tensor.
    """
    if any(one.step not in (None, 1) for box in boxes for one in box):
        return False
    if len(shape) == 1:
        ends = [0, *(box[0].stop for box in sorted(boxes, key=lambda box: int(box[0].start)))]
        return sorted(box[0].start for box in boxes) == ends[:-1] and ends[-1] == shape[0]
    places = {tuple(one.start for one in box) for box in boxes}
    is_inside = all(
        0 <= one.start < size and one.stop == one.start + 1
        for box in boxes
        for one, size in zip(box, shape, strict=True)
    )
    return is_inside and len(places) == len(boxes) == math.prod(shape)


def _moved(one: tuple[slice, ...], other: tuple[slice, ...]) -> set[int]:
    return {dim for dim, (a, b) in enumerate(zip(one, other, strict=True)) if a != b}


def _tiles_suit_the_machine(plan: Plan) -> Iterator[str]:
    rows, columns = plan.spec.tile.rows, plan.spec.tile.columns
    for step in plan.steps:
        tile = {axis.name: axis.tile for axis in step.axes}
        problem = problem_of(plan.graph, step.nodes[0])
        if isinstance(problem, Elementwise | Movement):
            sides = {"elements": (math.prod(tile.values()), rows * columns)}
        elif isinstance(problem, Reduction):
            reduced = math.prod(tile[name] for name in tile if name in problem.reduction)
            sides = {
                "elements": (math.prod(tile.values()) // max(1, reduced), rows * columns),
                "reduced": (reduced, columns),
            }
        elif isinstance(problem, Rows):
            sides = {"outer": (tile["outer"], 1), "rows": (tile["inner"], rows), "columns": (tile["k"], columns)}
        else:
            across = "c" if isinstance(problem, Window) else "n"
            sides = {"rows": (tile["y"] * tile["x"], rows), "columns": (tile[across], columns)}
            sides |= {name: (tile[name], 1) for name in ("batch", "group") if name in tile}
        for side, (found, limit) in sides.items():
            if found > limit:
                name = label(plan.graph, step.nodes)
                yield f"a tile of {name} has {found} {side}, at most {limit} are computed at once"


def _tiles_are_summed_in_the_fixed_order(plan: Plan) -> Iterator[str]:
    """What the bits of a result depend on follows from the operation alone."""
    for step in plan.steps:
        problem, tile = problem_of(plan.graph, step.nodes[0]), {axis.name: axis.tile for axis in step.axes}
        fixed: dict[str, int] = {}
        if isinstance(problem, Contraction):
            chunk = tiling.reduction_chunk(problem)
            fixed = {"batch": 1, "group": 1, **dict(zip(problem.reduction, chunk, strict=True))}
            if tile["y"] * tile["x"] > plan.spec.tile.rows:
                rows = f"{tile['y'] * tile['x']} rows, the machine's {plan.spec.tile.rows}"
                yield f"a tile of step {step.index} has {rows}"
        elif isinstance(problem, Rows):
            fixed = {"outer": 1, "k": plan.spec.tile.columns}
        elif isinstance(problem, Reduction):
            fixed = tiling.reduction_chunks(problem, plan.spec)
        elif isinstance(problem, Window):
            fixed = {"batch": 1}
        wrong = {name: tile[name] for name, size in fixed.items() if tile[name] != size}
        if wrong:
            yield f"step {step.index} has tiles of {wrong}, its sums are in those of {fixed}"


RULES = (
    _axes_are_those_of_the_operation,
    _operands_have_the_names_of_their_tiles,
    _loops_do_all_of_the_work,
    _tiles_suit_the_machine,
    _tiles_cover_the_output_once,
    _tiles_are_summed_in_the_fixed_order,
)
