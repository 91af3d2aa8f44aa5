"""Plans to break: small ones that show what a plan can hold, and changes of one thing in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from graphs import GraphBuilder, conv_relu_pool, matmul_chain

from npu_kit.hw.presets import load_spec
from npu_kit.plan.ir import Operand, Plan, Step
from npu_kit.plan.planner import make_plan

SPEC = load_spec("example")
Change = Callable[[Plan], Plan]


def convolution_and_pool() -> Plan:
    """Two steps: a convolution with bias and ReLU in its tile, and a pool; the tensor between them in L2."""
    return make_plan(conv_relu_pool(channels=12, filters=20, size=9), SPEC)


def chunks_with_partial_sums() -> Plan:
    """Weight stationary in three chunks: partial sums wait in L1."""
    return make_plan(matmul_chain(m=40, k=700, n=20), SPEC, dataflow="weight_stationary")


def panel() -> Plan:
    """Output stationary in three chunks: what stays is a panel of three tiles; single slots."""
    return make_plan(matmul_chain(m=70, k=700, n=20), SPEC, dataflow="output_stationary", double_buffer=False)


def long_softmax() -> Plan:
    """Rows of four tiles, read once and kept."""
    b = GraphBuilder()
    b.op("softmax", b.input((6, 100)), axis=1)
    return make_plan(b.graph(), SPEC)


def stripes() -> Plan:
    """A chain in three stripes, since DRAM is slow here, with views of its argument and copies in L2."""
    far = dataclasses.replace(SPEC.tier("L3"), bytes_per_cycle=1)
    spec = SPEC.replace(tiers=(*SPEC.tiers[:3], far), capacity_bytes={"L2": 6_000})
    b = GraphBuilder()
    x, w, bias = b.input((1, 3, 40, 12)), b.input((4, 3, 3, 3)), b.input((1, 4, 1, 1))
    value = b.op("conv2d", x, w, composite="conv#0", padding=(1, 1, 1, 1))
    value = b.op("relu", b.op("add", value, bias, composite="conv#0"), composite="conv#0")
    b.op("max_pool2d", value, composite="pool#1", pool_size=(2, 2), strides=(2, 2))
    return make_plan(b.graph(), spec)


def two_layers() -> Plan:
    """Two products; the weights of the second are read by the second step alone."""
    b = GraphBuilder()
    hidden = b.op("matmul", b.input((20, 30)), b.input((30, 40)), composite="dense#0")
    b.op("matmul", hidden, b.input((40, 10)), composite="dense#1")
    return make_plan(b.graph(), SPEC)


def echo() -> Plan:
    """A region that returns its input beside its result."""
    b = GraphBuilder()
    x = b.input((5, 7))
    return make_plan(b.graph(b.op("relu", x), x), SPEC)


def spilled() -> Plan:
    """A tensor that waits for the end while another one, which is read twice, takes its place in L2."""
    b = GraphBuilder()
    early = b.op("sigmoid", b.input((64, 100)))
    value = b.op("relu", b.op("tanh", early))
    b.op("add", b.op("multiply", b.op("gelu", value), value), early)
    return make_plan(b.graph(), SPEC.replace(capacity_bytes={"L2": 2 * 4 * 6400 + 600}))


PLANS = (convolution_and_pool, chunks_with_partial_sums, panel, long_softmax, two_layers, stripes, echo)


# Changes


def buffer(number: int, **changes: Any) -> Change:
    def change(plan: Plan) -> Plan:
        changed = dataclasses.replace(plan.buffers[number], **changes)
        buffers = list(plan.buffers)
        buffers[number] = changed
        return dataclasses.replace(plan, buffers=tuple(buffers))

    return change


def step(number: int = 0, **changes: Any) -> Change:
    def change(plan: Plan) -> Plan:
        steps = list(plan.steps)
        steps[number] = dataclasses.replace(steps[number], **changes)
        return dataclasses.replace(plan, steps=tuple(steps))

    return change


def axis(name: str, **changes: Any) -> Change:
    def change(plan: Plan) -> Plan:
        axes = plan.steps[0].axes
        return step(axes=tuple(dataclasses.replace(a, **changes) if a.name == name else a for a in axes))(plan)

    return change


def with_slot(first: Step, name: str, **changes: Any) -> Step:
    """The step with another slot, its operand's view of it included."""

    def moved(operand: Operand | None) -> Operand | None:
        if operand is None or operand.name != name:
            return operand
        return dataclasses.replace(operand, slot=dataclasses.replace(operand.slot, **changes))

    return dataclasses.replace(
        first,
        slots=tuple(dataclasses.replace(s, **changes) if s.name == name else s for s in first.slots),
        operands=tuple(map(moved, first.operands)),  # type: ignore[arg-type]
        epilogue_operands=tuple(tuple(map(moved, group)) for group in first.epilogue_operands),
    )


def slot(name: str, **changes: Any) -> Change:
    return lambda plan: dataclasses.replace(plan, steps=(with_slot(plan.steps[0], name, **changes), *plan.steps[1:]))


def operand(number: int, **changes: Any) -> Change:
    def change(plan: Plan) -> Plan:
        operands = list(plan.steps[0].operands)
        operands[number] = dataclasses.replace(operands[number], **changes)
        return step(operands=tuple(operands))(plan)

    return change


def steps(order: Callable[[Sequence[Step]], Sequence[Step]], renumber: bool = True) -> Change:
    def change(plan: Plan) -> Plan:
        chosen = list(order(plan.steps))
        if renumber:
            chosen = [dataclasses.replace(one, index=index) for index, one in enumerate(chosen)]
        return dataclasses.replace(plan, steps=tuple(chosen))

    return change


def first_of(plan: Plan, role: str) -> int:
    return next(number for number, one in enumerate(plan.buffers) if one.role == role)
