"""Memory pictures: what sits where in one step, and how full each tier is over the steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs import conv_relu_pool
from pictures import HOSTILE_NAMES, SVG, check, rename, words

from npu_kit.errors import RenderError
from npu_kit.hw.spec import NpuSpec
from npu_kit.plan.ir import Plan, Slot
from npu_kit.plan.planner import make_plan
from npu_kit.render import memory_map, occupancy
from npu_kit.render.memory_picture import pieces_of
from npu_kit.render.occupancy_picture import levels_of

FAMILIES = ["conv", "matmul", "softmax"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tier_shows_its_slots_and_the_buffers_that_are_live(plans: dict[str, Plan], family: str) -> None:
    plan = plans[family]
    for step in plan.steps:
        shown = {tier.name: pieces_of(plan, step.index, tier.name) for tier in plan.spec.tiers}
        slots = [piece.name for pieces in shown.values() for piece in pieces if piece.what == "slot"]
        assert sorted(slots) == sorted(slot.name for slot in step.slots)
        live = [b.name for b in plan.buffers if b.first_step <= step.index <= b.last_step]
        buffers = [piece.name for pieces in shown.values() for piece in pieces if piece.what != "slot"]
        assert sorted(buffers) == sorted(live)


@pytest.mark.parametrize("family", FAMILIES)
def test_pictures_are_readable_and_say_the_numbers(plans: dict[str, Plan], family: str) -> None:
    plan = plans[family]
    for step in plan.steps:
        shown = words(check(memory_map(plan, step.index)))
        assert any(word.startswith("L1 SRAM: ") and "of 256 KB in use" in word for word in shown)
        assert any(word.startswith("1 accumulator") for word in shown)
        assert "drawn as far as it is used" in shown
        for label in ("slot", "whole tensor", "free"):
            assert label in shown
    shown = words(check(occupancy(plan, step=0)))
    for text in ("L0 register", "L1 SRAM", "L2 CMX", "capacity"):
        assert text in shown
    assert any(word.startswith("L3 DRAM: peak ") for word in shown)


def test_bars_stand_at_their_offsets(matmul_plan: Plan) -> None:
    root = check(memory_map(matmul_plan, 0))
    step, capacity = matmul_plan.steps[0], matmul_plan.spec.tier("L1").capacity_bytes
    drawn = {}
    for group in root.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if group.get("data-piece") and rect is not None:
            drawn.setdefault(group.get("data-piece"), (float(rect.get("x", "")), float(rect.get("width", ""))))
    scale = (900 - 32) / capacity
    for slot in step.slots:
        if slot.tier == "L1":
            x, width = drawn[slot.name]
            assert x == pytest.approx(16 + slot.offset_bytes * scale, abs=0.02)
            assert width == pytest.approx(max(1.0, slot.nbytes * scale), abs=0.02)


def test_a_panel_shows_its_parts(matmul_plan: Plan) -> None:
    assert any(slot.parts > 1 for slot in matmul_plan.steps[0].slots)
    assert any("parts)" in word for word in words(check(memory_map(matmul_plan, 0))))


def test_a_full_tier_has_nothing_free(conv_plan: Plan) -> None:
    """L0 is exactly one accumulator."""
    shown = words(check(memory_map(conv_plan, 0)))
    assert "L0 register: 4 KB of 4 KB in use, 100 %" in shown
    full = replace(conv_plan.steps[0], slots=(Slot("accumulator", "L0", 0, 4096), Slot("x", "L1", 0, 256 * 1024)))
    shown = words(check(memory_map(replace(conv_plan, steps=(full,)), 0)))
    assert not any(word.endswith("KB free") and word.startswith("0") for word in shown)


def test_levels_count_slots_and_live_buffers(conv_plan: Plan) -> None:
    levels = {level.tier.name: level for level in levels_of(conv_plan)}
    for name, level in levels.items():
        assert len(level.used_bytes) == len(conv_plan.steps)
        for step, used in zip(conv_plan.steps, level.used_bytes, strict=True):
            assert used == sum(piece.nbytes for piece in pieces_of(conv_plan, step.index, name))
        assert 0 < level.peak_bytes <= level.tier.capacity_bytes


def test_many_steps_keep_their_numbers_apart(spec: NpuSpec) -> None:
    plan = make_plan(conv_relu_pool(), spec)
    many = tuple(replace(plan.steps[0], index=i) for i in range(90))
    check(occupancy(replace(plan, steps=many), step=45))


def test_a_plan_without_steps_is_drawn_empty(conv_plan: Plan) -> None:
    check(occupancy(replace(conv_plan, steps=(), buffers=())))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_are_only_text(spec: NpuSpec, name: str) -> None:
    plan = make_plan(rename(conv_relu_pool(), name), spec)
    check(memory_map(plan, 0))
    check(occupancy(plan, title=name or "untitled"))


def test_a_step_that_is_not_there_is_refused(conv_plan: Plan) -> None:
    with pytest.raises(RenderError, match="no step 7: the plan has 2 steps, counted from 0"):
        memory_map(conv_plan, 7)
    with pytest.raises(RenderError, match="no step -1"):
        occupancy(conv_plan, step=-1)
