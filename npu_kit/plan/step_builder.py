"""From a group of nodes to a step: the tile, its slots in L0 and L1, and the order of the loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from npu_kit.graph.ir import DTYPE_BYTES, Entry, Graph
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan import tiling
from npu_kit.plan.fusion import Group
from npu_kit.plan.geometry import (
    Contraction,
    Elementwise,
    Movement,
    Problem,
    Reduction,
    Rows,
    TileLayout,
    aligned_operand,
    problem_of,
)
from npu_kit.plan.ir import Axis, Operand, Slot, Step
from npu_kit.plan.no_room import refuse_slots
from npu_kit.plan.placement import SlotMemory
from npu_kit.plan.steps import engine_of, is_copied, label


class StepBuilder:
    """Candidates for one step, each complete and within L0 and L1."""

    def __init__(self, graph: Graph, spec: NpuSpec, index: int, group: Group, tiers: Mapping[Entry, str]) -> None:
        self.graph, self.spec, self.index, self.group, self.tiers = graph, spec, index, group, tiers
        self.problem = problem_of(graph, group.nodes[0])
        self.engine = engine_of(graph, group.nodes[0], self.problem)

    def candidates(
        self, dataflow: str | None = None, double_buffer: bool = True, like: Step | None = None
    ) -> Iterator[Step]:
        """The steps worth comparing by cost; at least one.

        Args:
            dataflow: for a contraction, only candidates of this dataflow.
            double_buffer: also candidates whose slots have two copies, where an engine beside dma has work.
            like: a step of the same kind; only the candidate with its loop order and its copies.

        Raises:
            PlanError: not even the smallest tile fits, or not with this dataflow.
        """
        has_work = self.engine != "dma" or len(self.group.nodes) > 1
        copies: tuple[int, ...] = (2, 1) if double_buffer and has_work else (1,)
        if like is not None:
            copies = (like.slot("out").copies,)
        if isinstance(self.problem, Contraction):
            if not self.problem.macs:
                dataflow = "output_stationary"  # a sum of nothing has no operand that could stay on the array
            orders = [order for order in tiling.LOOP_ORDERS if dataflow in (None, order.dataflow)]
            if like is not None:
                orders = [order for order in orders if order.names == tuple(axis.name for axis in like.axes)]
            attempts = [self._contraction(self.problem, order, number) for order in orders for number in copies]
        else:
            attempts = [self._streamed(number) for number in copies]
        found = [step for step, _ in attempts if step is not None]
        if not found:
            nearest = min((memory for _, memory in attempts), key=lambda memory: memory.missing_bytes)
            raise refuse_slots(label(self.graph, self.group.nodes), nearest, self.spec)
        yield from found

    def _contraction(
        self, problem: Contraction, order: tiling.LoopOrder, copies: int
    ) -> tuple[Step | None, SlotMemory]:
        """The largest output tile that fits with a panel of the operand that stays, else without one."""
        axes = tiling.contraction_axes(problem, self.spec, order)
        while True:
            for with_panel in (True, False):
                step, memory = self._contraction_step(problem, axes, order, copies, with_panel)
                if step is not None:
                    return step, memory
            tile = {axis.name: axis.tile for axis in axes}
            half = tile["y"] * tile["x"] // 2
            if half < self.spec.tile.minimum or copies > 1 or order.dataflow != "output_stationary":
                return None, memory
            kernel, minimum = (tile["kh"], tile["kw"]), self.spec.tile.minimum
            y, x = tiling.spatial_tile(problem.rows, problem.columns, kernel, half, minimum)
            smaller = {"y": y, "x": x}
            axes = tuple(replace(axis, tile=smaller.get(axis.name, axis.tile)) for axis in axes)

    def _contraction_step(
        self, problem: Contraction, axes: tuple[Axis, ...], order: tiling.LoopOrder, copies: int, with_panel: bool
    ) -> tuple[Step | None, SlotMemory]:
        named = {axis.name: axis for axis in axes}
        chunks = math.prod(named[name].count for name in Contraction.reduction)
        layouts = problem.layouts(axes)
        memory = SlotMemory(self.spec)
        pixels = named["y"].tile * named["x"].tile
        depth = math.prod(named[name].tile for name in Contraction.reduction)
        is_direct = named["kh"].tile == named["kw"].tile == 1
        outputs_stay = order.dataflow == "output_stationary" or chunks <= 1
        # With the chunk loop inside, what stays is a panel of all chunks; a single chunk is its own panel.
        stays = with_panel or chunks <= 1 or not outputs_stay
        parts = max(1, chunks) if stays and outputs_stay else 1
        keeps_x, keeps_w = (stays and order.keeps == name for name in ("x", "w"))
        x_slot = memory.add("x", "L1", layouts["x"].nbytes, parts if keeps_x else 1, copies)
        w_slot = memory.add("w", "L1", layouts["w"].nbytes, parts if keeps_w else 1, copies)
        if not is_direct:  # where each kernel position has its own box, the box is the matrix tile already
            memory.add("patches", "L1", pixels * depth * DTYPE_BYTES[problem.x.dtype])
        if not outputs_stay:
            passing = ("batch", "y", "x") if order.keeps == "w" else ("n",)
            tiles = math.prod(named[name].count for name in passing)
            memory.add("partials", "L1", pixels * named["n"].tile * DTYPE_BYTES["float32"], max(1, tiles))
        operands = (self._operand("x", 0, x_slot, keeps_x), self._operand("w", 1, w_slot, keeps_w))
        return self._finish(axes, operands, layouts["out"], memory, copies, order.dataflow)

    def wanted_axes(self, step: Step) -> Iterator[tuple[Axis, ...]]:
        """The tilings in the step's loop order, the largest first: the first is what L1 may have made smaller."""
        if not isinstance(self.problem, Contraction):
            return self._tilings()
        names = tuple(axis.name for axis in step.axes)
        order = next(one for one in tiling.LOOP_ORDERS if one.names == names)
        return iter([tiling.contraction_axes(self.problem, self.spec, order)])

    def _tilings(self) -> Iterator[tuple[Axis, ...]]:
        problem = self.problem
        if isinstance(problem, Rows):
            return tiling.row_axes(problem, self.spec)
        if isinstance(problem, Reduction):
            return tiling.reduction_axes(problem, self.spec)
        if isinstance(problem, Elementwise | Movement):
            return tiling.elementwise_axes(problem, self.spec)
        assert not isinstance(problem, Contraction)
        return tiling.window_axes(problem, self.spec)

    def _streamed(self, copies: int) -> tuple[Step | None, SlotMemory]:
        """The largest tile that fits."""
        problem = self.problem
        memory = SlotMemory(self.spec)
        for axes in self._tilings():
            for with_panel in (True, False) if isinstance(problem, Rows) else (False,):
                step, memory = self._streamed_step(problem, axes, copies, with_panel)
                if step is not None:
                    return step, memory
        return None, memory

    def _streamed_step(
        self, problem: Problem, axes: tuple[Axis, ...], copies: int, with_panel: bool
    ) -> tuple[Step | None, SlotMemory]:
        layouts = problem.layouts(axes)
        memory = SlotMemory(self.spec)
        # Only rows have chunks that a later pass reads again; a single chunk is its own panel.
        panel = isinstance(problem, Rows) and (with_panel or axes[-1].count <= 1)
        operands = []
        for i, name in enumerate(name for name in layouts if name != "out"):
            is_panel = panel and i == 0
            parts = max(1, axes[-1].count) if is_panel else 1
            slot = memory.add(name, "L1", layouts[name].nbytes, parts, copies)
            operands.append(self._operand(name, i, slot, is_panel))
        if isinstance(problem, Rows):
            for statistic in problem.stages[:-1]:
                memory.add(statistic, "L1", axes[1].tile * DTYPE_BYTES["float32"])
        return self._finish(axes, tuple(operands), layouts["out"], memory, copies)

    def _operand(self, name: str, position: int, slot: Slot, is_panel: bool) -> Operand:
        anchor = self.group.nodes[0]
        node = self.graph.nodes[anchor]
        entry = Entry(anchor) if is_copied(node) else node.inputs[position]
        return Operand(name, entry, self.tiers[entry], slot, is_panel)

    def _finish(
        self,
        axes: tuple[Axis, ...],
        operands: tuple[Operand, ...],
        out: TileLayout,
        memory: SlotMemory,
        copies: int,
        dataflow: str = "",
    ) -> tuple[Step | None, SlotMemory]:
        """Add the epilogue's slots, the accumulator and the way out; None if the tiers are too small."""
        graph, nodes = self.graph, self.group.nodes
        epilogue: list[tuple[Operand | None, ...]] = []
        for number, (node_id, running) in enumerate(zip(nodes[1:], self.group.running, strict=True)):
            group: list[Operand | None] = []
            for position, entry in enumerate(graph.nodes[node_id].inputs):
                if position == running:
                    group.append(None)
                    continue
                layout = aligned_operand(graph, node_id, position).layout(out)
                name = f"epilogue{number}.{position}"
                slot = memory.add(name, "L1", layout.nbytes, copies=copies)
                group.append(Operand(name, entry, self.tiers[entry], slot))
            epilogue.append(tuple(group))
        last = graph.nodes[nodes[-1]].outputs[0]
        memory.add("out", "L1", math.prod(out.shape) * DTYPE_BYTES[last.dtype], copies=copies)
        accumulator = self.spec.tile.rows * self.spec.tile.columns
        memory.add("accumulator", "L0", accumulator * DTYPE_BYTES["float32"])
        if memory.missing():
            return None, memory
        output = Entry(nodes[-1])
        step = Step(
            index=self.index,
            family=self._family,
            nodes=nodes,
            engine=self.engine,
            epilogue_engines=tuple(engine_of(graph, node) for node in nodes[1:]),
            axes=axes,
            operands=operands,
            epilogue_operands=tuple(epilogue),
            output=output,
            output_tier="L3" if is_copied(graph.nodes[nodes[0]]) else self.tiers[output],
            slots=tuple(memory.slots),
            dataflow=dataflow,
        )
        return step, memory

    @property
    def _family(self) -> str:
        if is_copied(self.graph.nodes[self.group.nodes[0]]):
            return "copy"
        return type(self.problem).__name__.lower()
