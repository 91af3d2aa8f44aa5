"""Proofs of plans: each thing that can be wrong is refused by the rule that names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from breakable_plans import (
    PLANS,
    SPEC,
    Change,
    axis,
    buffer,
    chunks_with_partial_sums,
    convolution_and_pool,
    echo,
    first_of,
    long_softmax,
    operand,
    panel,
    slot,
    spilled,
    step,
    steps,
    stripes,
    two_layers,
)
from graphs import GraphBuilder, matmul_chain, random_arrays

from npu_kit.errors import PlanError
from npu_kit.graph.ir import Entry
from npu_kit.plan.ir import Axis, Operand, Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.storage import JOIN, VIEW
from npu_kit.plan.verify import RULES, verify_coverage, verify_plan
from npu_kit.runtime.execute import execute


def test_the_plans_are_what_they_are_for() -> None:
    assert [len(plan().steps) for plan in PLANS[:4]] == [2, 1, 1, 1]
    assert chunks_with_partial_sums().steps[0].slot("partials").parts == 2
    assert max(operand.slot.parts for operand in panel().steps[0].operands) == 3
    assert long_softmax().steps[0].operands[0].slot.parts == 4
    kinds = {node.kind for node in stripes().graph.nodes}
    assert {VIEW, JOIN} <= kinds and any(buffer.role == "resident" for buffer in stripes().buffers)
    assert echo().steps[-1].family == "copy"


def copies(**changes: Any) -> Change:
    return lambda plan: buffer(first_of(plan, "resident"), **changes)(plan)


def intermediate(**changes: Any) -> Change:
    return lambda plan: buffer(first_of(plan, "intermediate"), **changes)(plan)


def without_prefetch(plan: Plan) -> Plan:
    number = next(one.index for one in plan.steps if one.prefetch)
    return step(number, prefetch=())(plan)


def read_beside_the_copy(plan: Plan) -> Plan:
    number, position = next(
        (one.index, i) for one in plan.steps for i, read in enumerate(one.operands) if read.entry in one.prefetch
    )
    operands = list(plan.steps[number].operands)
    operands[position] = dataclasses.replace(operands[position], tier="L3")
    return step(number, operands=tuple(operands))(plan)


def result_in_l2(plan: Plan) -> Plan:
    number = first_of(plan, "output")
    return step(-1, output_tier="L2")(buffer(number, tier="L2", offset_bytes=1 << 18)(plan))


def spilling(plan: Plan) -> int:
    return next(one.index for one in plan.steps if one.spills)


def later_spill(plan: Plan) -> Plan:
    number = spilling(plan)
    return step(number + 1, spills=plan.steps[number].spills)(step(number, spills=())(plan))


def far(operand: Operand) -> Operand:
    return dataclasses.replace(operand, tier="L3")


def with_graph(plan: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(plan, graph=dataclasses.replace(plan.graph, **changes))


def another_channel(plan: Plan) -> Plan:
    """The convolution's result, and what follows it in the tile, has 21 channels of 20 filters."""
    nodes = list(plan.graph.nodes)
    for number in plan.steps[0].nodes:
        kind = nodes[number].outputs[0]
        shape = (kind.shape[0], 21, *kind.shape[2:])
        nodes[number] = dataclasses.replace(nodes[number], outputs=(dataclasses.replace(kind, shape=shape),))
    return with_graph(plan, nodes=tuple(nodes))


def longer_stripe(plan: Plan) -> Plan:
    nodes = list(plan.graph.nodes)
    number = next(i for i, node in enumerate(nodes) if node.kind == VIEW)
    nodes[number] = dataclasses.replace(nodes[number], attrs={**nodes[number].attrs, "start": -1})
    return dataclasses.replace(plan, graph=dataclasses.replace(plan.graph, nodes=tuple(nodes)))


def wide_l0(plan: Plan) -> Plan:
    return dataclasses.replace(plan, spec=SPEC.replace(capacity_bytes={"L0": 8192}))


CASES: dict[str, tuple[Callable[[], Plan], Change, str]] = {
    # where things lie
    "a buffer moved onto another": (convolution_and_pool, buffer(1, offset_bytes=0), "live buffers do not overlap"),
    "a buffer moved by a word": (
        convolution_and_pool,
        intermediate(offset_bytes=4),
        "places are aligned",
    ),
    "a buffer behind its tier": (
        convolution_and_pool,
        intermediate(offset_bytes=SPEC.tier("L2").capacity_bytes - 64),
        "buffers lie within their tier",
    ),
    "a buffer in L1": (convolution_and_pool, intermediate(tier="L1"), "buffers lie within their tier"),
    "a buffer with less room": (convolution_and_pool, buffer(0, nbytes=64), "buffers have their tensor s size"),
    "another role": (
        convolution_and_pool,
        buffer(0, role="intermediate"),
        "buffers have the role of their tensor: a0 is called intermediate",
    ),
    "an argument on the chip": (
        convolution_and_pool,
        buffer(0, tier="L2", offset_bytes=1 << 18),
        "buffers have the role of their tensor: a0 .argument. is kept in L2",
    ),
    "two places": (
        convolution_and_pool,
        lambda plan: dataclasses.replace(
            plan, buffers=(*plan.buffers, dataclasses.replace(plan.buffers[0], offset_bytes=1 << 20))
        ),
        "a tensor has one place",
    ),
    "a slot behind its tier": (
        convolution_and_pool,
        slot("x", offset_bytes=SPEC.tier("L1").capacity_bytes - 64),
        "slots lie within their tier",
    ),
    "a slot moved onto another": (convolution_and_pool, slot("w", offset_bytes=0), "slots do not overlap"),
    "a slot moved by a word": (
        convolution_and_pool,
        lambda plan: slot("accumulator", nbytes=4 * 32 * 32 + 4)(wide_l0(plan)),
        "places are aligned: slot accumulator",
    ),
    "a slot in the wrong tier": (convolution_and_pool, slot("accumulator", tier="L1"), "slots hold their tiles"),
    # room for tiles
    **{
        f"a small slot {name}": (plan, slot(name, nbytes=0), f"slots hold their tiles: slot {name}")
        for plan, names in (
            (convolution_and_pool, ("x", "w", "patches", "epilogue0.0", "out", "accumulator")),
            (chunks_with_partial_sums, ("partials",)),
            (long_softmax, ("maximum", "sum")),
        )
        for name in names
    },
    "no slot": (convolution_and_pool, lambda p: step(slots=p.steps[0].slots[:-1])(p), "has no slot accumulator"),
    "another slot": (
        convolution_and_pool,
        lambda p: operand(0, slot=dataclasses.replace(p.steps[0].operands[0].slot, offset_bytes=1 << 17))(p),
        "slots hold their tiles: operand x of step 0 has another slot",
    ),
    "a panel in one part": (panel, slot("w", parts=1), "slots have a part for each tile kept: slot w .* 1 parts for 3"),
    "a softmax panel in two": (
        long_softmax,
        slot("x", parts=2),
        "slots have a part for each tile kept: .* 2 parts for 4",
    ),
    "too few partial sums": (
        chunks_with_partial_sums,
        slot("partials", parts=1),
        "slots have a part for each tile kept: .* 1 parts for 2",
    ),
    "parts without a panel": (
        panel,
        operand(1, is_panel=False),
        "slots have a part for each tile kept: .* 3 parts for 1",
    ),
    "a panel of what passes": (
        panel,
        operand(0, is_panel=True),
        "slots have a part for each tile kept: slot x .* 1 parts for 3",
    ),
    "two accumulators": (
        lambda: make_plan(matmul_chain(m=40, k=700, n=20), SPEC, tile=8),
        slot("accumulator", copies=2, nbytes=1024),
        "slots have a part for each tile kept: .* 2 copies",
    ),
    "what stays is no panel": (
        chunks_with_partial_sums,
        operand(1, is_panel=False),
        "panels are what the loops keep: operand w .* stays on the array",
    ),
    "what passes is a panel": (
        chunks_with_partial_sums,
        operand(0, is_panel=True),
        "panels are what the loops keep: operand x .* load it each time",
    ),
    # tiles
    "a larger tile": (convolution_and_pool, axis("x", tile=12), "tiles suit the machine: .* 108 rows, at most 32"),
    "a deeper tile": (panel, axis("c", tile=700), "tiles are summed in the fixed order: .*'c': 700"),
    "a chunk of another depth": (
        chunks_with_partial_sums,
        axis("c", tile=100),
        "tiles are summed in the fixed order: .*'c': 100",
    ),
    "a shallower tile": (panel, axis("c", tile=100), "tiles are summed in the fixed order: .*'c': 100"),
    "no tile": (convolution_and_pool, axis("y", tile=0), "axes are those of the operation: .* tile of 0"),
    "a shorter axis": (convolution_and_pool, axis("y", extent=8), "axes are those of the operation"),
    "another order": (
        convolution_and_pool,
        lambda plan: step(axes=plan.steps[0].axes[::-1])(plan),
        "axes are those of the operation: .* has no loops",
    ),
    "another dataflow": (panel, step(dataflow="weight_stationary"), "axes are those of the operation: .* no loops"),
    "another order of a pool": (
        convolution_and_pool,
        lambda plan: step(1, axes=plan.steps[1].axes[::-1])(plan),
        "axes are those of the operation: the loops of",
    ),
    # what is computed
    "a tensor of no node": (convolution_and_pool, buffer(0, entry=Entry(40)), "tensors are those of the graph"),
    "an operand of no tile": (convolution_and_pool, operand(1, name="v"), "operands have the names of their tiles"),
    "a dropped step": (convolution_and_pool, steps(lambda s: s[:1]), "every kernel runs once"),
    "a step done twice": (convolution_and_pool, steps(lambda s: [*s, s[-1]]), "every kernel runs once"),
    "two steps swapped": (convolution_and_pool, steps(lambda s: s[::-1]), "reads follow writes"),
    "numbers swapped": (convolution_and_pool, steps(lambda s: s[::-1], renumber=False), "steps are numbered in order"),
    "a dropped operation": (
        convolution_and_pool,
        lambda plan: step(nodes=plan.steps[0].nodes[:-1])(plan),
        "every kernel runs once: node 5 .relu. runs 0 times",
    ),
    "the wrong engine": (convolution_and_pool, step(engine="pooling"), "engines can do their work: .* conv2d on pool"),
    "the wrong engine beside": (
        convolution_and_pool,
        step(epilogue_engines=("vector", "vector")),
        "engines can do their work: .* relu on vector, not activation",
    ),
    "the wrong family": (
        convolution_and_pool,
        step(1, family="elementwise"),
        "steps have the family of their operation",
    ),
    "operands swapped": (
        panel,
        lambda plan: step(operands=plan.steps[0].operands[::-1])(plan),
        "operands are those of the operation",
    ),
    "another tensor": (convolution_and_pool, operand(0, entry=Entry(1)), "operands are those of the operation"),
    "another bias": (
        convolution_and_pool,
        lambda plan: step(epilogue_operands=((plan.steps[0].operands[0], None), (None,)))(plan),
        "epilogues follow the running tile",
    ),
    "no running tile": (
        convolution_and_pool,
        lambda plan: step(epilogue_operands=(plan.steps[0].epilogue_operands[0], ()))(plan),
        "epilogues follow the running tile",
    ),
    "another result": (
        convolution_and_pool,
        step(output=Entry(3)),
        "operands are those of the operation: .* its last operation",
    ),
    "an unknown power mode": (
        convolution_and_pool,
        lambda p: dataclasses.replace(p, power_mode="turbo"),
        "the power mode is one of the machine: .*turbo",
    ),
    "a value inside is returned": (
        convolution_and_pool,
        lambda plan: with_graph(plan, heads=(*plan.graph.heads, Entry(plan.steps[0].nodes[0]))),
        "values inside a step are read there alone",
    ),
    "a channel without a filter": (convolution_and_pool, another_channel, "loops do all of the work"),
    "a stripe too long": (stripes, longer_stripe, "stripes make up their tensor"),
    # when
    "read from the wrong tier": (convolution_and_pool, operand(1, tier="L2"), "reads find their tensor live"),
    "a life too short": (convolution_and_pool, intermediate(last_step=0), "reads find their tensor live"),
    "a life too long": (stripes, intermediate(first_step=0, last_step=5), "live buffers do not overlap"),
    "a life that begins late": (convolution_and_pool, intermediate(first_step=1), "outputs have a place"),
    "an argument that comes late": (
        two_layers,
        lambda plan: buffer(2, first_step=1)(plan),
        "tensors live from their first write: a3 lives from step 1",
    ),
    "a result that ends early": (
        echo,
        lambda plan: buffer(first_of(plan, "output"), last_step=0)(plan),
        "tensors live from their first write",
    ),
    "no place": (
        convolution_and_pool,
        lambda plan: dataclasses.replace(plan, buffers=tuple(b for b in plan.buffers if b.role != "intermediate")),
        "reads find their tensor live",
    ),
    "written to the wrong tier": (convolution_and_pool, step(output_tier="L3"), "outputs have a place"),
    "a result nowhere": (convolution_and_pool, step(1, output_tier="L2"), "outputs have a place"),
    "a result on the chip": (
        convolution_and_pool,
        result_in_l2,
        "buffers have the role of their tensor: .* kept in L2",
    ),
    "a result never written": (
        two_layers,
        lambda plan: with_graph(plan, heads=(*plan.graph.heads, Entry(plan.graph.arg_nodes[0]))),
        "heads are written to dram",
    ),
    "a copy never made": (stripes, without_prefetch, "copies are made when they begin"),
    "a copy that begins late": (stripes, copies(first_step=1), "copies are made when they begin"),
    "a copy ignored": (stripes, read_beside_the_copy, "reads find their tensor live: .* its copy is in L2"),
    "a spill left out": (spilled, lambda plan: step(spilling(plan), spills=())(plan), "a tensor has one place"),
    "a spill too late": (spilled, later_spill, "spills follow the last use in l2: .* which is in L2 until step 1"),
    "read before the spill": (
        spilled,
        lambda plan: step(spilling(plan), operands=(far(plan.steps[spilling(plan)].operands[0]),))(plan),
        "reads find their tensor live|spills follow the last use in l2",
    ),
    "a copy in DRAM": (
        stripes,
        lambda plan: buffer(first_of(plan, "resident"), tier="L3", offset_bytes=1 << 20)(plan),
        "a tensor has one place: the copy",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_named(case: str) -> None:
    build, change, expected = CASES[case]
    plan = build()
    verify_plan(plan)
    with pytest.raises(PlanError, match=expected):
        verify_plan(change(plan))


def test_every_rule_has_a_case() -> None:
    titles = {rule.__name__.strip("_").replace("_", " ") for rule in RULES}
    cases = " ".join(expected for _, _, expected in CASES.values())
    # Tiles of one size always cover their axis; the next test breaks what they are made of.
    assert {title for title in titles if title not in cases} == {"tiles cover the output once"}


@pytest.mark.parametrize("build", [plan for plan in PLANS if plan is not echo])  # which has one tile
def test_tiles_that_overlap_are_found(build: Callable[[], Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = build()

    def overlapping(axis: Axis, index: int) -> tuple[int, int]:
        start = max(0, index * axis.tile - 1)
        return start, min(index * axis.tile + axis.tile, axis.extent)

    monkeypatch.setattr(Axis, "span", overlapping)
    with pytest.raises(PlanError, match="tiles cover the output once: the tiles of"):
        verify_plan(plan)
    with pytest.raises(PlanError, match=r"step \d, .*stored never or more than once"):
        verify_coverage(plan)


def test_a_proof_that_would_take_minutes_is_refused_at_once() -> None:
    b = GraphBuilder()
    graph = b.graph(b.op("softmax", b.input((1, 1 << 26))))
    with pytest.raises(PlanError, match=r"softmax.* 2,097,152 tiles along k, and at most 1,048,576 are planned"):
        make_plan(graph, SPEC)


def test_coverage_finds_an_element_that_is_never_stored() -> None:
    with pytest.raises(PlanError, match=r"step 0, conv2d.*stored never or more than once"):
        verify_coverage(axis("y", extent=8)(convolution_and_pool()))


def test_what_is_returned_reshaped_lives_until_the_copy_is_made() -> None:
    """Here a second copy follows, for which the tensor need not wait."""
    b = GraphBuilder()
    x = b.input((4, 6))
    shown = b.op("reshape", b.op("relu", x), newshape=(6, 4))
    plan = make_plan(b.graph(shown, x), SPEC)
    kept = plan.buffers[first_of(plan, "intermediate")]
    assert (kept.tier, kept.last_step, len(plan.steps)) == ("L2", 1, 3)
    arrays = random_arrays(plan.graph)
    for mode in ("fast", "step"):
        reshaped, echoed = execute(plan, arrays, mode=mode)
        assert np.array_equal(reshaped, arrays[0].clip(0).reshape(6, 4)) and np.array_equal(echoed, arrays[0])
