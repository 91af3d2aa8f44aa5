"""Tiles are legal: within the machine's tile, aligned where an axis is cut, never below the least side."""

from __future__ import annotations

import math

import pytest
from graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machines

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Graph
from npu_kit.hw import NpuSpec, load_spec, preset_names
from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.planner import make_plan
from npu_kit.plan.tiling import spatial_tile


def check_tiles(plan: Plan) -> None:
    for step in plan.steps:
        CHECKS[step.family](step, plan.spec)
        for axis in step.axes:
            spans = [axis.span(index) for index in range(axis.count)]
            assert [start for start, _ in spans] == [0, *(stop for _, stop in spans)][: len(spans)]
            assert not spans or spans[-1][1] == axis.extent  # a ragged edge ends where the tensor does


def check_contraction(step: Step, spec: NpuSpec) -> None:
    y, x, n = (step.axis(name) for name in ("y", "x", "n"))
    assert y.tile * x.tile <= spec.tile.rows
    check_rows(y.tile * x.tile, y.extent, x.extent, spec)
    assert n.tile == spec.tile.columns
    depth = math.prod(step.axis(name).tile for name in ("c", "kh", "kw"))
    assert depth <= 288
    c = step.axis("c")
    assert c.tile >= c.extent or c.tile % 8 == 0


def check_window(step: Step, spec: NpuSpec) -> None:
    y, x, c = (step.axis(name) for name in ("y", "x", "c"))
    assert y.tile * x.tile <= spec.tile.rows
    check_rows(y.tile * x.tile, y.extent, x.extent, spec)
    assert spec.tile.minimum <= c.tile <= spec.tile.columns


def check_rows(rows: int, y: int, x: int, spec: NpuSpec) -> None:
    """Not below the least side, unless the tensor is, or has no rectangle of a size between that and the tile's."""
    rectangles = [h * w for h in range(1, y + 1) for w in range(1, x + 1) if h * w <= spec.tile.rows]
    assert rows >= min(spec.tile.minimum, max(rectangles, default=1))


def check_elementwise(step: Step, spec: NpuSpec) -> None:
    elements = math.prod(axis.tile for axis in step.axes)
    assert elements <= spec.tile.rows * spec.tile.columns
    if step.axes and math.prod(axis.extent for axis in step.axes):
        last = step.axes[-1]
        assert last.tile >= last.extent or last.tile % spec.vector_elements == 0 or last.tile < spec.vector_elements
        assert elements >= min(spec.tile.minimum, last.extent)


def check_reduction(step: Step, spec: NpuSpec) -> None:
    kept = [axis for axis in step.axes if axis.name.startswith("d")]
    reduced = [axis for axis in step.axes if axis.name.startswith("r")]
    assert math.prod(axis.tile for axis in reduced) <= spec.tile.columns
    results = math.prod(axis.tile for axis in kept)
    assert results <= spec.tile.rows * spec.tile.columns
    if kept:
        assert results >= min(spec.tile.minimum, kept[-1].extent)


def check_rows_of_columns(step: Step, spec: NpuSpec) -> None:
    assert step.axis("k").tile == spec.tile.columns
    inner = step.axis("inner")
    assert min(spec.tile.minimum, inner.extent) <= inner.tile <= spec.tile.rows


CHECKS = {
    "contraction": check_contraction,
    "window": check_window,
    "elementwise": check_elementwise,
    "reduction": check_reduction,
    "movement": check_elementwise,
    "rows": check_rows_of_columns,
    "copy": check_elementwise,
}


@pytest.mark.parametrize("name", preset_names())
@settings(max_examples=40)
@given(graph=graphs())
def test_tiles_are_legal_on_every_preset(name: str, graph: Graph) -> None:
    check_tiles(make_plan(graph, load_spec(name)))


@settings(max_examples=80)
@given(graphs(), machines())
def test_tiles_are_legal_on_any_machine(graph: Graph, spec: NpuSpec) -> None:
    try:
        plan = make_plan(graph, spec)
    except PlanError:
        return
    check_tiles(plan)


@pytest.mark.parametrize("name", preset_names())
def test_the_tile_of_a_preset_is_whole_folds_of_its_array(name: str) -> None:
    spec = load_spec(name)
    for engine in ("matrix", "conv"):
        array = spec.engine(engine)
        assert spec.tile.rows % array.rows == spec.tile.columns % array.columns == 0
    assert spec.tile.columns % spec.vector_elements == 0
    assert spec.tile.minimum % 8 == 0


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3), st.sampled_from([(1, 1), (3, 3), (1, 5)]))
def test_a_spatial_tile_is_not_below_the_least_side(
    rows: int, columns: int, stride: int, kernel: tuple[int, int]
) -> None:
    y, x = (Sliding(size * stride + k, size, k, stride) for size, k in zip((rows, columns), kernel, strict=True))
    spec = load_spec("example").replace(tile=8)
    height, width = spatial_tile(y, x, kernel, spec.tile.rows, spec.tile.minimum)
    assert height <= rows and width <= columns
    check_rows(height * width, rows, columns, spec)
