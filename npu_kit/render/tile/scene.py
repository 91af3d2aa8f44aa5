"""One tile of one step, as drawable data: where it stands in the output, and what it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from npu_kit.errors import RenderError
from npu_kit.plan.geometry import (
    Movement,
    Rows,
    chunk_axes,
    chunk_count,
    output_axes,
    problem_of,
    tile_count,
    tile_indices,
)
from npu_kit.plan.ir import Axis, Plan
from npu_kit.render.format import number_of
from npu_kit.render.names import step_title
from npu_kit.render.tile.letters import letters_of
from npu_kit.render.tile.operands import OperandBox, operand_boxes

MAX_CHUNKS = 100_000  # whose operands are looked up for one picture: two seconds

_MISSING = Axis("", 1, 1)  # stands for an axis that the output does not have


@dataclass(frozen=True)
class TileScene:
    """One output tile among the others."""

    title: str
    engine: str
    tile: int  # number in loop order
    tiles: int
    rows: Axis
    columns: Axis
    labels: tuple[str, str]  # of rows and columns
    at: tuple[int, int]  # index of this tile along rows and columns
    origin: int  # number of the tile at (0, 0), with the other axes as they are
    strides: tuple[int, int]  # by how much the number grows along rows and columns
    others: tuple[str, ...]  # where the tile stands along the axes that are not drawn
    elements: int  # real elements of this tile
    full_elements: int  # of a tile that is not ragged
    ragged: tuple[str, ...]  # axes along which this tile is cut short
    padding: int  # elements of it that no operand has
    passes: tuple[str, ...]  # over the columns, of an operation that walks along its rows more than once
    chunks: int  # chunks of the reduction axes
    chunk: int | None  # the chunk that the operands show, None for all
    operands: tuple[OperandBox, ...]

    def number(self, row: int, column: int) -> int:
        """Number of the tile at (row, column), in loop order."""
        return self.origin + row * self.strides[0] + column * self.strides[1]


def tile_scene(plan: Plan, step_index: int, tile: int = 0, chunk: int | None = None) -> TileScene:
    """Extract one tile of one step.

    Args:
        plan: the plan.
        step_index: which step.
        tile: number of the output tile, in loop order.
        chunk: number of one chunk of the reduction axes, to show only what it needs; None for the whole tile.

    Raises:
        RenderError: no such step, tile or chunk, or more than ``MAX_CHUNKS`` at once.
    """
    _check("step", step_index, len(plan.steps))
    step = plan.steps[step_index]
    outer, inner = output_axes(step), chunk_axes(step)
    _check("tile", tile, tile_count(step))
    chunks = _chunks(inner, chunk)
    at = _named(outer, _unravel(tile, [axis.count for axis in outer]))
    rows, columns = _drawn_axes(outer)
    place = at.get(rows.name, 0), at.get(columns.name, 0)
    weight = {axis.name: math.prod(other.count for other in outer[i + 1 :]) for i, axis in enumerate(outer)}
    strides = weight.get(rows.name, 0), weight.get(columns.name, 0)
    problem = problem_of(plan.graph, step.nodes[0])
    letters = letters_of(problem)
    spans = {axis.name: axis.span(at[axis.name]) for axis in outer}
    return TileScene(
        title=f"Step {step.index}, {step_title(plan, step)}: tile {tile:,} of {tile_count(step):,}, counted from 0",
        engine=step.engine,
        tile=tile,
        tiles=tile_count(step),
        rows=rows,
        columns=columns,
        labels=(letters.get(rows.name, rows.name), letters.get(columns.name, columns.name)),
        at=place,
        origin=tile - place[0] * strides[0] - place[1] * strides[1],
        strides=strides,
        others=tuple(
            f"{letters.get(axis.name, axis.name)} {spans[axis.name][0]}:{spans[axis.name][1]} of {axis.extent}"
            for axis in outer
            if axis not in (rows, columns) and axis.extent > 1
        ),
        elements=math.prod(stop - start for start, stop in spans.values()),
        full_elements=math.prod(axis.tile for axis in outer),
        ragged=tuple(
            letters.get(axis.name, axis.name) for axis in outer if spans[axis.name][1] - spans[axis.name][0] < axis.tile
        ),
        padding=problem.padding([spans[axis.name] for axis in step.axes]) if isinstance(problem, Movement) else 0,
        passes=problem.stages if isinstance(problem, Rows) else (),
        chunks=chunk_count(step),
        chunk=chunk,
        operands=tuple(operand_boxes(plan, step, at, chunks, (rows.name, columns.name))),
    )


def _chunks(axes: tuple[Axis, ...], chunk: int | None) -> list[dict[str, int]]:
    """The places of the chunks whose operands are shown: one, or all where ``chunk`` is None."""
    counts = [axis.count for axis in axes]
    count = math.prod(counts)
    if chunk is not None:
        _check("chunk", chunk, count)
        return [_named(axes, _unravel(chunk, counts))]
    if count > MAX_CHUNKS:
        why = f"it is summed up in {count:,} chunks, and what at most {MAX_CHUNKS:,} need is shown together"
        raise RenderError("a tile with all its chunks", why, "chunk=0, for the first of them.")
    return [_named(axes, index) for index in tile_indices(axes)]


def _drawn_axes(outer: Sequence[Axis]) -> tuple[Axis, Axis]:
    """Rows and columns of the image or matrix; where those are in one piece, the two axes that are cut most."""
    if len(outer) < 2:
        return _MISSING, outer[0] if outer else _MISSING
    named = {axis.name: axis for axis in outer}
    if "n" in named and named["y"].extent == 1:  # a matmul or conv1d: its rows lie along x
        usual = named["x"], named["n"]
    elif "y" in named:
        usual = named["y"], named["x"]
    else:
        usual = outer[-2], outer[-1]
    if usual[0].count * usual[1].count == 1:
        first, second = sorted(sorted(outer, key=lambda axis: -axis.count)[:2], key=outer.index)
        return (first, second) if first.count * second.count > 1 else usual
    return usual


def _named(axes: Sequence[Axis], index: Sequence[int]) -> dict[str, int]:
    return dict(zip((axis.name for axis in axes), index, strict=True))


def _unravel(number: int, counts: Sequence[int]) -> tuple[int, ...]:
    index: list[int] = []
    for count in reversed(counts):
        number, place = divmod(number, count)
        index.append(place)
    return tuple(reversed(index))


def _check(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise RenderError(
            f"no {what} {number}", f"there {'is' if count == 1 else 'are'} {number_of(count, what)}, from 0"
        )
