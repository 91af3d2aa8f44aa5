"""Step mode: the program of a plan, one instruction at a time, on real tiers.

A kernel receives only views into tier memory, so nothing can be computed that was not moved there first. Counters and
events come from the copies that are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.plan.cost import CostModel
from npu_kit.plan.geometry import (
    Box,
    Contraction,
    Softmax,
    TileLayout,
    Window,
    aligned_operand,
    problem_of,
    spans_of,
)
from npu_kit.plan.ir import Operand, Plan, Step
from npu_kit.plan.program import Instruction, instructions
from npu_kit.runtime.arithmetic import apply_elementwise, compute_dtype, to_declared
from npu_kit.runtime.kernels import (
    multiply_accumulate,
    reduce_taps,
    sliding_windows,
    softmax_maximum,
    softmax_powers,
    softmax_sum,
)
from npu_kit.runtime.memory import OnChipMemory
from npu_kit.trace.counters import Counters
from npu_kit.trace.events import ENGINES, KINDS, TIERS

Array = NDArray[Any]
Row = tuple[int, ...]


class StepRunner:
    """Runs the instructions of one step.

    Args:
        plan: the plan the step belongs to.
        step: the step.
        tensors: the arrays in L3, by entry, and views of those in L2.
        output: where the step's result goes.
        memory: the on-chip tiers.
        poison: fill every slot with NaN before it is used again, so that a stale element cannot go unnoticed.
    """

    def __init__(
        self,
        plan: Plan,
        step: Step,
        tensors: Mapping[Entry, Array],
        output: Array,
        memory: OnChipMemory,
        *,
        poison: bool = False,
    ) -> None:
        self.graph: Graph = plan.graph
        self.step, self.memory, self.poison = step, memory, poison
        self.tensors, self.output = dict(tensors), output
        self.problem = problem_of(plan.graph, step.nodes[0])
        self.layouts = self.problem.layouts(step.axes)
        self.cost = CostModel(plan.spec, plan.power_mode)
        self.counters, self.rows = Counters(), list[Row]()
        self.anchor: Node = plan.graph.nodes[step.nodes[0]]
        self.last: Node = plan.graph.nodes[step.nodes[-1]]
        self.tile_rows = plan.spec.tile.rows
        self.running_dtype = self.anchor.outputs[0].dtype  # declared dtype of the value in the accumulator
        self._residents = {b.entry: b for b in plan.buffers if b.role == "resident" and b.first_step == step.index}
        self._operands = {operand.name: operand for operand in step.operands}
        self._pieces: dict[str, Box] = {}  # what each slot holds, of the tile being computed
        self._epilogue: dict[str, tuple[Operand, int, int]] = {}
        for node_id, operands in zip(step.nodes[1:], step.epilogue_operands, strict=True):
            for position, operand in enumerate(operands):
                if operand is not None:
                    self._epilogue[operand.name] = (operand, node_id, position)

    def run(self) -> tuple[Counters, list[Row]]:
        """Run all instructions; returns what was counted, and one event row per instruction that took part."""
        for entry in self.step.prefetch:
            self._prefetch(entry)
        actions = {
            "clear": self._clear,
            "load": self._load,
            "compute": self._compute,
            "epilogue": self._run_epilogue,
            "drain": self._drain,
            "store": self._store,
        }
        for instruction in instructions(self.step, self.problem):
            actions[instruction.kind](instruction)
        return self.counters, self.rows

    # Memory ----------------------------------------------------------------------------------------------------------

    def _record(self, instruction: Instruction, node: int, engine: str, ends: tuple[str, str], row: Row) -> None:
        nbytes, macs, cycles = row
        self.rows.append(
            (
                self.step.index,
                instruction.tile,
                node,
                KINDS.index(instruction.kind),
                ENGINES.index(engine),
                TIERS.index(ends[0]),
                TIERS.index(ends[1]),
                nbytes,
                macs,
                0,
                cycles,
            )
        )

    def _slot(self, name: str, shape: tuple[int, ...], dtype: str, part: int = 0) -> Array:
        slot = self.step.slot(name)
        offset = slot.offset_bytes + part * (slot.nbytes // slot.parts)
        return self.memory[slot.tier].view(offset, shape, dtype)

    def _fresh(self, name: str, part: int = 0) -> None:
        """A slot (or one part of it) is about to be reused."""
        if self.poison:
            slot = self.step.slot(name)
            size = slot.nbytes // slot.parts
            self.memory[slot.tier].poison(slot.offset_bytes + part * size, size)

    def _prefetch(self, entry: Entry) -> None:
        buffer = self._residents[entry]
        source = self.tensors[entry]
        near = self.memory["L2"].view(buffer.offset_bytes, source.shape, self.graph.type_of(entry).dtype)
        near[...] = source
        self.tensors[entry] = near
        self.counters.move("L3", "L2", source.nbytes)
        cycles = self.cost.transfer("L3", "L2", source.nbytes) if source.nbytes else 0
        row = (source.nbytes, 0, cycles)
        self._record(Instruction("prefetch", -1, ()), entry.node, "dma", ("L3", "L2"), row)

    def _copy_in(self, instruction: Instruction, operand: Operand, layout: TileLayout, box: Box, tile: Array) -> None:
        """Copy a box of a tensor into its tile; elements that no real data covers get the layout's fill."""
        if box.lengths != layout.shape:
            tile[...] = layout.fill
        self._pieces[operand.name] = box
        source = self.tensors[operand.entry][_keep(box.index)].transpose(layout.order).reshape(box.lengths)
        tile[box.target] = source
        self.counters.move(operand.tier, "L1", source.nbytes)
        if source.nbytes:
            row = (source.nbytes, 0, self.cost.transfer(operand.tier, "L1", source.nbytes))
            self._record(instruction, operand.entry.node, "dma", (operand.tier, "L1"), row)

    # Instructions ----------------------------------------------------------------------------------------------------

    def _clear(self, instruction: Instruction) -> None:
        self._fresh("accumulator")
        accumulator = self._accumulator(self.anchor.outputs[0].dtype)
        is_maximum = isinstance(self.problem, Window) and self.problem.is_maximum
        accumulator[...] = self.layouts["x"].fill if is_maximum else 0
        self.running_dtype = self.anchor.outputs[0].dtype

    def _load(self, instruction: Instruction) -> None:
        name = instruction.operand
        self._fresh(name, instruction.part)
        if name in self._epilogue:
            operand, node_id, position = self._epilogue[name]
            aligned = aligned_operand(self.graph, node_id, position)
            layout = aligned.layout(self.layouts["out"])
            box = aligned.box(self.layouts["out"], self._out_box(instruction))
        else:
            operand, layout = self._operands[name], self.layouts[name]
            box = self.problem.box(name, self.step.axes, spans_of(self.step.axes, self._full(instruction.at)))
        tile = self._slot(name, layout.shape, layout.type.dtype, instruction.part)
        self._copy_in(instruction, operand, layout, box, tile)

    def _compute(self, instruction: Instruction) -> None:
        problem = self.problem
        if isinstance(problem, Contraction):
            self._compute_contraction(problem, instruction)
        elif isinstance(problem, Window):
            self._compute_window(problem, instruction)
        elif isinstance(problem, Softmax):
            self._compute_softmax(instruction)
        else:
            self._compute_elementwise(instruction)

    def _compute_contraction(self, problem: Contraction, instruction: Instruction) -> None:
        tile = {axis.name: axis.tile for axis in self.step.axes}
        spans = spans_of(self.step.axes, instruction.at)
        x_layout, w_layout = self.layouts["x"], self.layouts["w"]
        x_part, w_part = (instruction.part if operand.is_panel else 0 for operand in self.step.operands)
        depth, pixels = tile["c"] * tile["kh"] * tile["kw"], tile["y"] * tile["x"]
        x = self._slot("x", x_layout.shape, x_layout.type.dtype, x_part)
        w = self._slot("w", (depth, tile["n"]), w_layout.type.dtype, w_part)
        if tile["kh"] == tile["kw"] == 1:
            a = self._slot("x", (self.tile_rows, depth), x_layout.type.dtype, x_part)
            a[pixels:] = 0
        else:
            self._fresh("patches")
            a = self._slot("patches", (self.tile_rows, depth), x_layout.type.dtype)
            a[pixels:] = 0
            step = np.array([problem.rows.steps(tile["kh"]), problem.columns.steps(tile["kw"])]).T
            windows = sliding_windows(x, (tile["y"], tile["x"]), (tile["kh"], tile["kw"]), step)
            a[:pixels].reshape(windows.shape)[...] = windows
        multiply_accumulate(self._accumulator_matrix(self.running_dtype), a, w)
        sizes = {name: stop - start for name, (start, stop) in spans.items()}
        m, n, k = sizes["y"] * sizes["x"], sizes["n"], sizes["c"] * sizes["kh"] * sizes["kw"]
        real_a, real_b = a[:m, :k].nbytes, w[:k, :n].nbytes
        self._computed(instruction, real_a + real_b, m * n * k, self.cost.array(self.step.engine, m, n, k), reads=2)

    def _compute_window(self, problem: Window, instruction: Instruction) -> None:
        tile = {axis.name: axis.tile for axis in self.step.axes}
        box = self._out_box(instruction)
        y, x, c = box.lengths
        accumulator = self._accumulator(self.running_dtype)[:y, :x, :c]
        if instruction.stage == "finish":
            if problem.operation == "avg_pool2d":
                rows, columns = problem.divisors()
                here = [piece for piece, axis in zip(box.index, problem.x_axes, strict=True) if axis in "HW"]
                counts = np.outer(rows[here[0]], columns[here[1]])[:, :, None]
                with np.errstate(all="ignore"):
                    accumulator /= np.maximum(counts, 1).astype(np.float32)
            return
        x_layout = self.layouts["x"]
        kernel = tuple(
            axis.span(index)[1] - axis.span(index)[0]
            for axis, index in zip(self.step.axes[4:], instruction.at[4:], strict=True)
        )
        box_view = self._slot("x", x_layout.shape, x_layout.type.dtype)
        step = np.array([problem.rows.steps(tile["kh"]), problem.columns.steps(tile["kw"])]).T
        windows = sliding_windows(box_view, (y, x), (kernel[0], kernel[1]), step)[..., :c]
        weights = None
        nbytes = y * x * c * math.prod(kernel) * box_view.itemsize
        if "w" in self.layouts:
            layout = self.layouts["w"]
            weights = self._slot("w", layout.shape, layout.type.dtype)[: kernel[0], : kernel[1], :c]
            nbytes += weights.nbytes
        reduce_taps(accumulator, windows, weights, problem.is_maximum)
        operations = y * x * c * math.prod(kernel)
        cycles = self.cost.lanes(self.step.engine, operations)
        reads = 1 if weights is None else 2
        self._computed(instruction, nbytes, operations if weights is not None else 0, cycles, reads=reads)

    def _compute_softmax(self, instruction: Instruction) -> None:
        layout = self.layouts["x"]
        x = self._slot("x", layout.shape, layout.type.dtype, instruction.part if self.step.operands[0].is_panel else 0)
        maximum = self._slot("maximum", layout.shape[:1], "float32")
        total = self._slot("sum", layout.shape[:1], "float32")
        if instruction.stage == "maximum":
            if instruction.at[-1] == 0:
                maximum[...], total[...] = -np.inf, 0
            softmax_maximum(maximum, x)
        elif instruction.stage == "sum":
            softmax_sum(total, x, maximum)
        else:
            self._clear(instruction)
            with np.errstate(all="ignore"):
                self._accumulator(self.running_dtype)[...] = softmax_powers(x, maximum) / total[:, None]
        rows, columns = self._out_box(instruction).lengths
        cycles = self.cost.lanes(self.step.engine, rows * columns)
        self._computed(instruction, rows * columns * x.itemsize, 0, cycles)

    def _compute_elementwise(self, instruction: Instruction) -> None:
        self._fresh("accumulator")
        box = self._out_box(instruction)
        values, nbytes = [], 0
        for operand in self.step.operands:
            layout = self.layouts[operand.name]
            value = self._slot(operand.name, layout.shape, layout.type.dtype)[_keep(self._pieces[operand.name].target)]
            values.append(value)
            nbytes += value.nbytes
        self.running_dtype = self.anchor.outputs[0].dtype
        into = self._accumulator(self.running_dtype)
        into[_real(box)] = (
            apply_elementwise(self.anchor.name, self.anchor.attrs, values, self.running_dtype)
            if self.anchor.is_kernel
            else values[0]
        )
        cycles = self.cost.lanes(self.step.engine, box.elements)
        self._computed(instruction, nbytes, 0, cycles, reads=sum(value.nbytes > 0 for value in values))

    def _run_epilogue(self, instruction: Instruction) -> None:
        number = instruction.part
        node = self.graph.nodes[self.step.nodes[1 + number]]
        box = self._out_box(instruction)
        here = _real(box)
        running = to_declared(self._accumulator(self.running_dtype)[here], self.running_dtype)
        values, nbytes, reads = [], 0, 0
        for operand in self.step.epilogue_operands[number]:
            if operand is None:
                values.append(running)
                continue
            _, node_id, position = self._epilogue[operand.name]
            layout = aligned_operand(self.graph, node_id, position).layout(self.layouts["out"])
            value = self._slot(operand.name, layout.shape, layout.type.dtype)[_keep(self._pieces[operand.name].target)]
            values.append(value)
            nbytes += value.nbytes
            reads += 1
        self.running_dtype = node.outputs[0].dtype
        result = apply_elementwise(node.name, node.attrs, values, self.running_dtype)
        self._accumulator(self.running_dtype)[here] = result
        engine = self.step.epilogue_engines[number]
        cycles = self.cost.lanes(engine, box.elements)
        self.counters.move("L1", "L0", nbytes, reads)
        self._record(instruction, self.step.nodes[1 + number], engine, ("L1", "L0"), (nbytes, 0, cycles))

    def _drain(self, instruction: Instruction) -> None:
        """The finished tile leaves the accumulator in the dtype its tensor declares."""
        box = self._out_box(instruction)
        here = _real(box)
        dtype = self.last.outputs[0].dtype
        self._fresh("out")
        out = self._slot("out", self.layouts["out"].shape, dtype)[here]
        out[...] = to_declared(self._accumulator(self.running_dtype)[here], dtype)
        self.counters.move("L0", "L1", out.nbytes)
        cycles = self.cost.transfer("L0", "L1", out.nbytes)
        self._record(instruction, self.step.nodes[-1], self.step.engine, ("L0", "L1"), (out.nbytes, 0, cycles))

    def _store(self, instruction: Instruction) -> None:
        box, layout = self._out_box(instruction), self.layouts["out"]
        out = self._slot("out", layout.shape, self.last.outputs[0].dtype)
        piece = out[_real(box)]
        target = self.output[_keep(box.index)].transpose(layout.order)
        target[...] = piece.reshape(target.shape)
        self.counters.move("L1", self.step.output_tier, piece.nbytes)
        self.counters.tiles += 1
        self.counters.stored_elements += piece.size
        cycles = self.cost.transfer("L1", self.step.output_tier, piece.nbytes)
        row = (piece.nbytes, 0, cycles)
        self._record(instruction, self.step.nodes[-1], "dma", ("L1", self.step.output_tier), row)

    # Views -----------------------------------------------------------------------------------------------------------

    def _computed(self, instruction: Instruction, nbytes: int, macs: int, cycles: int, reads: int = 1) -> None:
        self.counters.move("L1", "L0", nbytes, reads)
        self.counters.macs += macs
        self._record(instruction, self.step.nodes[0], self.step.engine, ("L1", "L0"), (nbytes, macs, cycles))

    def _accumulator_matrix(self, declared: str) -> Array:
        columns = self.step.axis("n").tile
        return self._slot("accumulator", (self.tile_rows, columns), compute_dtype(declared).name)

    def _accumulator(self, declared: str) -> Array:
        """The accumulator in the shape of the output tile."""
        return self._slot("accumulator", self.layouts["out"].shape, compute_dtype(declared).name)

    def _out_box(self, instruction: Instruction) -> Box:
        return self.problem.box("out", self.step.axes, spans_of(self.step.axes, self._full(instruction.at)))

    @staticmethod
    def _full(at: tuple[int, ...]) -> tuple[int, ...]:
        """A tile index with 0 for the axes that the instruction stands outside of: a box does not depend on them."""
        return tuple(max(0, index) for index in at)


def _keep(index: tuple[slice, ...]) -> Any:
    """An index that gives a view even of a scalar's tensor, which a plain empty index would turn into a number."""
    return (*index, ...)


def _real(box: Box) -> Any:
    """The index of the real part of an output tile."""
    return _keep(tuple(slice(0, size) for size in box.lengths))
