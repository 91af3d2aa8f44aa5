"""What a step will move and compute, by arithmetic: sums over tiles in closed form, no tile is visited.

A box is a product of spans, one per axis, so the sum of its elements over all tiles is a product of sums.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from npu_kit.graph.ir import DTYPE_BYTES, Graph
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import (
    Contraction,
    Elementwise,
    Movement,
    Problem,
    Reduction,
    Rows,
    Window,
    aligned_operand,
    chunk_count,
    problem_of,
    tile_count,
    tile_sizes,
)
from npu_kit.plan.geometry.movement import Piece
from npu_kit.plan.geometry.sliding import Sliding
from npu_kit.plan.ir import Axis, Operand, Plan, Step
from npu_kit.plan.tiling import stays_along
from npu_kit.trace.counters import Counters

Loads = tuple[int, int]  # transfers, bytes


def plan_counters(plan: Plan) -> tuple[Counters, ...]:
    """The forecast of each step of ``plan``."""
    cost = CostModel(plan.spec, plan.power_mode)
    return tuple(step_counters(plan.graph, step, cost) for step in plan.steps)


def step_counters(graph: Graph, step: Step, cost: CostModel) -> Counters:
    """The forecast of one step: its transfers, and what its engines read, sum and multiply."""
    problem = problem_of(graph, step.nodes[0])
    counters = step_transfers(graph, step, problem)
    tiles = tile_count(step)
    _compute(problem, step, cost, counters)
    for _, nbytes in epilogue_loads(graph, step, problem):
        counters.move("L1", "L0", nbytes, tiles)
    out = graph.type_of(step.output)
    counters.move("L0", "L1", out.nbytes, tiles)
    counters.tiles = tiles
    counters.stored_elements = out.elements
    return counters


def step_transfers(graph: Graph, step: Step, problem: Problem | None = None) -> Counters:
    """What the dma engine moves in one step, and nothing of what the engines do.

    ``problem`` is that of the step's anchor, where it is known already.
    """
    problem = problem or problem_of(graph, step.nodes[0])
    counters = Counters()
    for entry in step.prefetch:
        counters.move("L3", "L2", graph.type_of(entry).nbytes)
    for entry in step.spills:
        counters.move("L2", "L3", graph.type_of(entry).nbytes)
    for operand in step.operands:
        transfers, nbytes = operand_loads(problem, step.axes, operand)
        counters.move(operand.tier, "L1", nbytes, transfers)
    tiles = tile_count(step)
    for beside, nbytes in epilogue_loads(graph, step, problem):
        counters.move(beside.tier, "L1", nbytes, tiles)
    counters.move("L1", step.output_tier, graph.type_of(step.output).nbytes, tiles)
    return counters


def operand_loads(problem: Problem, axes: tuple[Axis, ...], operand: Operand) -> Loads:
    """Transfers and bytes of one operand of the anchor, over the whole step."""
    named = {axis.name: axis for axis in axes}
    if isinstance(problem, Contraction):
        return contraction_loads(problem, axes, operand.name, operand.is_panel)
    if isinstance(problem, Window):
        return _window_loads(problem, named, operand.name)
    tiles = math.prod(axis.count for axis in axes)
    if isinstance(problem, Reduction):
        return tiles, problem.x.nbytes
    if isinstance(problem, Movement):
        return _piece_loads(problem.pieces[int(operand.name[1:])], axes)
    if isinstance(problem, Rows) and operand.name in problem.parameters:
        return tiles, named["outer"].extent * named["inner"].count * problem.parameters[operand.name].nbytes
    if isinstance(problem, Rows):
        passes = 1 if operand.is_panel else len(problem.stages)
        return passes * tiles, passes * problem.type.nbytes
    along = problem.operands[int(operand.name[1:])]
    elements = math.prod(
        named[f"d{i}"].extent if axis >= 0 else named[f"d{i}"].count for i, axis in enumerate(along.along)
    )
    return tiles, elements * DTYPE_BYTES[along.type.dtype]


def _piece_loads(piece: Piece, axes: tuple[Axis, ...]) -> Loads:
    """Each position that the piece fills is loaded once, or once a tile where it is broadcast."""
    transfers = elements = 1
    for i, axis in enumerate(axes):
        if piece.positions(i):
            tiles = (piece.stop[i] - 1) // axis.tile - piece.start[i] // axis.tile + 1
            transfers *= tiles
            elements *= piece.positions(i) if piece.along[i] >= 0 else tiles
        else:
            transfers = elements = 0
    return transfers, elements * DTYPE_BYTES[piece.type.dtype]


def contraction_loads(problem: Contraction, axes: tuple[Axis, ...], name: str, is_panel: bool) -> Loads:
    """Transfers and bytes of ``x`` or ``w``: one pass over its tiles, times how often the loops come back to it."""
    axis = {a.name: a for a in axes}
    if name == "w":
        spatial = axis["y"].count * axis["x"].count
        if not is_panel:
            passes = axis["batch"].count * spatial
        elif problem.is_weight_shared:
            passes = min(1, axis["batch"].count * spatial)
        else:
            passes = axis["batch"].count * min(1, spatial)
        tiles = [axis[letter] for letter in ("group", "n", "c", "kh", "kw")]
        elements = math.prod(a.extent for a in tiles)
        return (
            passes * math.prod(a.count for a in tiles) if elements else 0,
            passes * elements * DTYPE_BYTES[problem.w.dtype],
        )
    rows, row_pieces = _sliding_sum(problem.rows, axis["y"], axis["kh"])
    columns, column_pieces = _sliding_sum(problem.columns, axis["x"], axis["kw"])
    outer = axis["batch"].count * axis["group"].count
    passes = min(1, axis["n"].count) if is_panel else axis["n"].count
    return (
        outer * passes * row_pieces * column_pieces * axis["c"].count,
        outer * passes * rows * columns * axis["c"].extent * DTYPE_BYTES[problem.x.dtype],
    )


@functools.lru_cache(maxsize=4096)  # equal layers, stripes and candidates ask the same
def _sliding_sum(sliding: Sliding, out: Axis, kernel: Axis) -> tuple[int, int]:
    """Sum of the real box lengths over all (output tile, kernel tile) pairs, and the number of boxes with any."""
    total = pieces = 0
    for k in range(kernel.count):

        def length(i: int, taps: tuple[int, int] = kernel.span(k)) -> int:
            _, target = sliding.box(out.span(i), taps, kernel.tile)
            return len(range(target.start, target.stop, target.step or 1))

        for i, count in _unlike_tiles(sliding, out, kernel.span(k), kernel.tile):
            total += count * length(i)
            pieces += count * (length(i) > 0)
    return total, pieces


def _unlike_tiles(sliding: Sliding, out: Axis, taps: tuple[int, int], kernel_tile: int) -> Iterator[tuple[int, int]]:
    """Output tiles that stand for all whose boxes hold data, and how many have a box of that length.

    There may be millions: those at the ends come one by one, and those inside once for each place between two elements
    that a box can begin at, of which there are several in a transposed convolution only.
    """
    stride, first = out.tile * sliding.stride, taps[0] * sliding.dilation - sliding.before  # of boxes; of the first box
    last = first + (out.tile - 1) * sliding.stride  # position of the first box
    if kernel_tile > 1:
        last += (taps[1] - taps[0] - 1) * sliding.dilation
    end = (sliding.size - 1) * sliding.upsample if sliding.size else -1  # last position that has data
    low, high = max(0, -(last // stride)), min(out.count, (end - first) // stride + 1)
    start = max(low, -(first // stride))
    stop = max(start, min(high, out.extent // out.tile, (end - last) // stride + 1))
    for i in (*range(low, min(start, high)), *range(stop, high)):
        yield i, 1
    period = sliding.upsample // math.gcd(sliding.upsample, stride)
    for i in range(start, min(stop, start + period)):
        yield i, len(range(i, stop, period))


def _window_loads(problem: Window, axis: dict[str, Axis], name: str) -> Loads:
    tiles = axis["batch"].count * axis["c"].count
    channels = axis["batch"].count * axis["c"].extent
    if name == "w":
        assert problem.w is not None
        spatial = axis["y"].count * axis["x"].count
        taps, chunks = axis["kh"].extent * axis["kw"].extent, axis["kh"].count * axis["kw"].count
        return tiles * spatial * chunks, channels * spatial * taps * DTYPE_BYTES[problem.w.dtype]
    rows, row_pieces = _sliding_sum(problem.rows, axis["y"], axis["kh"])
    columns, column_pieces = _sliding_sum(problem.columns, axis["x"], axis["kw"])
    return tiles * row_pieces * column_pieces, channels * rows * columns * DTYPE_BYTES[problem.x.dtype]


def epilogue_loads(graph: Graph, step: Step, problem: Problem) -> Iterator[tuple[Operand, int]]:
    """Each operand of the epilogue, which is loaded once per output tile, and its bytes in all."""
    if len(step.nodes) == 1:
        return
    along = [(axis.extent, axis.count, natural) for axis, natural in _natural_axes(problem, step.axes)]
    for node_id, position, beside in step.epilogue_reads:
        operand = aligned_operand(graph, node_id, position)
        elements = 1
        for extent, count, natural in along:
            # An axis that the tile does not show is walked one element at a time: its count is its extent.
            elements *= extent if natural is None or operand.along[natural] >= 0 else count
        yield beside, elements * DTYPE_BYTES[operand.type.dtype]


def _natural_axes(problem: Problem, axes: tuple[Axis, ...]) -> list[tuple[Axis, int | None]]:
    """Each loop axis over output tiles with the tensor axis it runs along, None for one the tile does not show."""
    named, shown = {axis.name: axis for axis in axes}, problem.layouts(axes)["out"].axes
    if isinstance(problem, Elementwise | Movement):
        return [(axis, i) for i, axis in enumerate(axes)]
    if isinstance(problem, Reduction):
        return [(named[f"d{axis}"], out) for axis, out in zip(problem.kept, problem.out_axes, strict=True)]
    if isinstance(problem, Rows):
        pairs = [("inner", shown[0]), ("k", shown[1])]
        loose = ["outer"]
    elif isinstance(problem, Window):
        pairs, loose = [("y", shown[0]), ("x", shown[1]), ("c", shown[2])], ["batch"]
    else:
        pairs, loose = [("y", shown[0]), ("x", shown[1]), ("n", shown[2])], ["batch", "group"]
    seen = [(named[name], axis if axis >= 0 else None) for name, axis in pairs]
    return seen + [(named[name], None) for name in loose]


def _compute(problem: Problem, step: Step, cost: CostModel, counters: Counters) -> None:
    """What the engine reads from L1 while it computes, its sums, and its multiply-accumulates."""
    if isinstance(problem, Contraction):
        _contract(problem, step, cost, counters)
    elif isinstance(problem, Window):
        axis = {one.name: one for one in step.axes}
        taps, chunks = axis["kh"].extent * axis["kw"].extent, axis["kh"].count * axis["kw"].count
        computes = tile_count(step) * chunks
        counters.move("L1", "L0", problem.out.elements * taps * DTYPE_BYTES[problem.x.dtype], computes)
        counters.sum_bytes = problem.out.elements * chunks * DTYPE_BYTES["float32"]
        if problem.w is not None:
            spatial = axis["batch"].count * axis["y"].count * axis["x"].count
            nbytes = spatial * taps * axis["c"].extent * DTYPE_BYTES[problem.w.dtype]
            counters.move("L1", "L0", nbytes, computes)
            counters.macs = problem.out.elements * taps
    elif isinstance(problem, Rows):
        passes, tiles = len(problem.stages), tile_count(step)
        counters.move("L1", "L0", passes * problem.type.nbytes, passes * tiles)
        for operand in step.operands[1:]:
            transfers, nbytes = operand_loads(problem, step.axes, operand)
            counters.move("L1", "L0", nbytes, transfers)
    else:
        for operand in step.operands:
            transfers, nbytes = operand_loads(problem, step.axes, operand)
            counters.move("L1", "L0", nbytes, transfers)
        if isinstance(problem, Reduction):
            counters.sum_bytes = problem.out.elements * chunk_count(step) * DTYPE_BYTES["float32"]


def _contract(problem: Contraction, step: Step, cost: CostModel, counters: Counters) -> None:
    """Fold by fold, see ``cost.systolic_accesses``. Tiles of one size read the same: sizes are visited, not tiles."""
    x_bytes, w_bytes, sum_bytes = (DTYPE_BYTES[dtype] for dtype in (problem.x.dtype, problem.w.dtype, "float32"))
    inside = stays_along(problem, step.dataflow)
    inner = [axis for axis in step.axes if axis.name in inside]
    first = {axis.name: min(axis.tile, axis.extent) for axis in inner}  # where what stays arrives on the array
    for outside, places in tile_sizes(axis for axis in step.axes if axis.name not in inside):
        for sizes, count in tile_sizes(inner):
            size = {**outside, **sizes}
            m, n, k = size["y"] * size["x"], size["n"], size["c"] * size["kh"] * size["kw"]
            arrivals = places if sizes == first else 0
            for refills, times in ((True, arrivals), (False, places * count - arrivals)):
                x, w, sums = cost.array_accesses(step.engine, m, n, k, step.dataflow, refills)
                counters.move("L1", "L0", times * x * x_bytes, times)
                counters.move("L1", "L0", times * w * w_bytes, times)
                counters.sum_bytes += times * sums * sum_bytes
    chunks = chunk_count(step)
    if inside and chunks:
        # Between two chunks every partial sum goes to L1 and comes back.
        times, tiles = chunks - 1, tile_count(step)
        nbytes = times * problem.out.elements * DTYPE_BYTES["float32"]
        counters.move("L0", "L1", nbytes, times * tiles)
        counters.move("L1", "L0", nbytes, times * tiles)
    counters.macs = problem.macs
