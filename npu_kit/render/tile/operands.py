"""One operand of a tile, as drawable data: which box of the tensor the tile needs, seen along two axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from npu_kit.graph.ir import DTYPE_BYTES
from npu_kit.plan.geometry import (
    Box,
    Contraction,
    Elementwise,
    Movement,
    Problem,
    Reduction,
    Window,
    aligned_operand,
    problem_of,
    spans_of,
)
from npu_kit.plan.ir import Operand, Plan, Step
from npu_kit.render.names import operand_roles, tensor_name
from npu_kit.render.tile.letters import tile_letters

Span = tuple[int, int]  # start and stop
Pair = tuple[int, int]
Place = Mapping[str, int]  # axis name -> tile index


@dataclass(frozen=True)
class Side:
    """One side of the tensor as it is drawn: an axis, and what of it the tile needs."""

    label: str  # "H", "K", ...; "" for an axis the tensor does not have
    extent: int
    span: Span
    own: Span  # ``span`` without the halo


@dataclass(frozen=True)
class OperandBox:
    """One operand, seen along two of its axes."""

    name: str  # of its slot
    title: str  # "x", "operand 1 of add"
    tensor: str  # "image: 1x3x32x32 float32"
    tensor_name: str  # in full
    tier: str  # where its tiles come from
    rows: Side
    columns: Side
    index: str  # the box in the tensor's own axes: "[0:1, 0:3, 4:11, 5:13:2]"
    elements: int  # moved for this tile, padding not counted
    nbytes: int
    is_panel: bool  # kept in L1 for the tiles that follow


def operand_boxes(
    plan: Plan, step: Step, at: Place, chunks: Sequence[Place], drawn: Sequence[str]
) -> Iterator[OperandBox]:
    """The operands of ``step``, the epilogue's too, at one output tile.

    Args:
        plan, step: a plan and one of its steps.
        at: tile index along each output axis.
        chunks: tile indices along the reduction axes, one mapping per chunk to include.
        drawn: names of the two output axes that the picture's grid shows.
    """
    roles = operand_roles(plan, step)
    problem = problem_of(plan.graph, step.nodes[0])
    layouts = problem.layouts(step.axes)
    places = [_spans(step, {**at, **chunk}) for chunk in chunks]
    for operand in step.operands:
        boxes = [problem.box(operand.name, step.axes, spans) for spans in places]
        tile_axes = layouts[operand.name].axes
        shown = _shown(tile_axes, _positions(problem, operand.name, drawn))
        own = _own_spans(problem, step, at) if operand.name == "x" else {}
        yield _box(plan, operand, operand.name, boxes, tile_axes, shown, tile_letters(problem, operand.name), own)
    out_box = problem.box("out", step.axes, _spans(step, at))
    for node, position, beside in step.epilogue_reads:
        aligned = aligned_operand(plan.graph, node, position)
        tile_axes = aligned.layout(layouts["out"]).axes
        shown = _shown(tile_axes, _positions(problem, "out", drawn))
        box = aligned.box(layouts["out"], out_box)
        yield _box(plan, beside, roles[beside.name], [box], tile_axes, shown, tile_letters(problem, "out"), {})


def _spans(step: Step, at: Place) -> dict[str, Span]:
    return spans_of(step.axes, tuple(at.get(axis.name, -1) for axis in step.axes))


def _positions(problem: Problem, operand: str, drawn: Sequence[str]) -> Pair:
    """Which two axes of the operand's *tile* to draw."""
    if isinstance(problem, Contraction) and operand == "w":
        return 2, 3  # input and output channels, or depth and columns
    if isinstance(problem, Contraction) and drawn[0] != "y":
        return 1, 2  # a matmul or conv1d has one row y
    if isinstance(problem, Reduction):
        kept = [problem.kept.index(int(name[1:])) if name else -1 for name in drawn]
        # Of x: the results that stand beside each other, and what each of them sums.
        return (kept[1], len(problem.x.shape) - 1) if operand == "x" else (kept[0], kept[1])
    if isinstance(problem, Elementwise | Movement):
        first, second = (int(name[1:]) if name else -1 for name in drawn)
        return first, second
    return 0, 1


def _shown(tile_axes: Sequence[int], wanted: Pair) -> Pair:
    """The wanted positions; where the tensor is broadcast along both, the last two along which it is not."""
    if any(position >= 0 and tile_axes[position] >= 0 for position in wanted):
        return wanted
    real = [position for position, axis in enumerate(tile_axes) if axis >= 0]
    padded = [-1, -1, *real][-2:]
    return padded[0], padded[1]


def _own_spans(problem: Problem, step: Step, at: Place) -> dict[int, Span]:
    """Per axis of a sliding operand's tile, the input positions that belong to no other tile."""
    own: dict[int, Span] = {}
    if isinstance(problem, (Contraction, Window)):
        for position, (name, sliding) in enumerate((("y", problem.rows), ("x", problem.columns))):
            if sliding.kernel > 1 and sliding.upsample == 1:
                start, stop = step.axis(name).span(at[name])
                own[position] = min(start * sliding.stride, sliding.size), min(stop * sliding.stride, sliding.size)
    return own


def _box(
    plan: Plan,
    operand: Operand,
    title: str,
    boxes: Sequence[Box],
    tile_axes: Sequence[int],
    shown: Pair,
    letters: str,
    own: Mapping[int, Span],
) -> OperandBox:
    tensor = plan.graph.type_of(operand.entry)
    pieces = [[box.index[axis] for box in boxes] for axis in range(len(tensor.shape))]
    bounds = [_bounds(along) for along in pieces]
    sides = []
    for position in shown:
        axis = tile_axes[position] if position >= 0 else -1
        if axis < 0:
            sides.append(Side("", 1, (0, 1), (0, 1)))
            continue
        span = bounds[axis]
        low, high = own.get(position, span)
        low, high = max(span[0], low), min(span[1], high)
        label = letters[position] if letters else f"axis {axis}"
        sides.append(Side(label, tensor.shape[axis], span, (low, high) if low < high else span))
    elements = sum(box.elements for box in boxes)
    return OperandBox(
        name=operand.name,
        title=title,
        tensor=f"{tensor_name(plan.graph, operand.entry)}: {tensor}",
        tensor_name=plan.graph.nodes[operand.entry.node].name,
        tier=operand.tier,
        rows=sides[0],
        columns=sides[1],
        index=f"[{', '.join(map(_indexed, pieces))}]",
        elements=elements,
        nbytes=elements * DTYPE_BYTES[tensor.dtype],
        is_panel=operand.is_panel,
    )


def _bounds(pieces: Sequence[slice]) -> Span:
    ranges = [_range(piece) for piece in pieces]
    real = [one for one in ranges if one]
    return (min(min(one) for one in real), max(max(one) for one in real) + 1) if real else (0, 0)


def _indexed(pieces: Sequence[slice]) -> str:
    """The positions along one axis, ``27:50``; ``27:50:2`` where all pieces take every second one of them."""
    start, stop = _bounds(pieces)
    steps = {abs(piece.step or 1) for piece in pieces if len(_range(piece)) > 1}
    places = {piece.start for piece in pieces}
    return f"{start}:{stop}" if len(places) > 1 or steps <= {1} else f"{start}:{stop}:{max(steps)}"


def _range(piece: slice) -> range:
    """The positions of a slice; one that runs backwards to the first element has no number for its end."""
    step = piece.step or 1
    return range(piece.start, piece.stop if piece.stop is not None else -1, step)
