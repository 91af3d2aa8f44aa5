"""What differs between two plans: the machine, the totals, and of each step the decisions, places, bytes and cycles."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from npu_kit.hw.sources import numbers
from npu_kit.plan.cost import CostModel
from npu_kit.plan.estimate import estimate_cost
from npu_kit.plan.forecast import forecast, step_bounds
from npu_kit.plan.ir import Plan, Step
from npu_kit.plan.nest import instruction_count
from npu_kit.plan.steps import label
from npu_kit.plan.traffic import plan_counters
from npu_kit.trace.counters import Counters, total

EXACT_INSTRUCTIONS = 50_000  # of both plans together; above that cycles are estimates

Fact = str | int


@dataclass(frozen=True)
class Change:
    """One thing that two plans have differently."""

    where: str  # "machine", "plan", or a step in words
    what: str  # "tile of y", "cycles", "L3 to L1", "slot x", ...
    one: Fact  # "" where the first plan has nothing of the kind
    other: Fact

    @property
    def difference(self) -> int | None:
        """``other`` less ``one``; None where one of them is no number."""
        return self.other - self.one if isinstance(self.one, int) and isinstance(self.other, int) else None


def compare_plans(one: Plan, other: Plan) -> tuple[Change, ...]:
    """All differences, machine first, then totals, then step by step; none for equal plans."""
    is_exact = instruction_count(one) + instruction_count(other) <= EXACT_INSTRUCTIONS
    cycles = [_cycles(plan, is_exact) for plan in (one, other)]
    counters = [plan_counters(plan) for plan in (one, other)]
    word = "cycles" if is_exact else "cycles, about"
    changes = [*_changes("machine", _machine(one), _machine(other))]
    whole: list[dict[str, Fact]] = [{word: sum(of)} for of in cycles]
    whole = [facts | _counted(total(counted)) for facts, counted in zip(whole, counters, strict=True)]
    changes += _changes("plan", *whole)
    for pair in _pairs(one, other):
        facts: list[Mapping[str, Fact]] = []
        names: list[str] = []
        for plan, index, of, counted in zip((one, other), pair, cycles, counters, strict=True):
            if index is None:
                facts.append({})
                continue
            step = plan.steps[index]
            names.append(f"step {index}, {label(plan.graph, step.nodes)}")
            facts.append(_decisions(plan, step) | {word: of[index]} | _counted(counted[index]))
        changes += _changes(names[0], *facts)
    return (*changes, *_changes("tensors", _places(one), _places(other)))


def _changes(where: str, one: Mapping[str, Fact], other: Mapping[str, Fact]) -> Iterator[Change]:
    for what in dict.fromkeys((*one, *other)):
        if one.get(what, "") != other.get(what, ""):
            yield Change(where, what, one.get(what, ""), other.get(what, ""))


def _pairs(one: Plan, other: Plan) -> Iterator[tuple[int | None, int | None]]:
    """Steps that do the same, in order; a step that only one of the plans has stands alone."""
    names, others = ([label(plan.graph, step.nodes) for step in plan.steps] for plan in (one, other))
    for word, i, i_end, j, j_end in difflib.SequenceMatcher(None, names, others, autojunk=False).get_opcodes():
        both = i_end - i if word == "equal" else 0
        yield from ((i + n, j + n) for n in range(both))
        yield from ((n, None) for n in range(i + both, i_end))
        yield from ((None, n) for n in range(j + both, j_end))


def _machine(plan: Plan) -> dict[str, Fact]:
    values = {path: f"{value:g}" if isinstance(value, float) else value for path, value in numbers(plan.spec)}
    return {"name": plan.spec.name, "power mode": plan.power_mode, **values}


def _decisions(plan: Plan, step: Step) -> dict[str, Fact]:
    """What was decided about a step."""
    facts: dict[str, Fact] = {"engine": step.engine, "dataflow": step.dataflow.replace("_", " ")}
    nodes = [plan.graph.nodes[node] for node in step.nodes]
    facts["attributes"] = "; ".join(f"{node.name} {dict(sorted(node.attrs.items()))}" for node in nodes if node.attrs)
    facts |= {f"extent of {axis.name}": axis.extent for axis in step.axes}
    facts["loops"] = " ".join(axis.name for axis in step.axes if axis.count > 1)
    facts |= {f"tile of {axis.name}": axis.tile for axis in step.axes}
    for operand in step.reads:
        facts[f"{operand.name} from"] = operand.tier
    facts["out to"] = step.output_tier
    facts["prefetch"] = ", ".join(plan.graph.nodes[entry.node].name for entry in step.prefetch)
    facts["spills"] = ", ".join(plan.graph.nodes[entry.node].name for entry in step.spills)
    for slot in step.slots:
        facts[f"slot {slot.name}"] = (
            f"{slot.tier}@{slot.offset_bytes}, {slot.nbytes} bytes, {slot.copies} x {slot.parts}"
        )
    return facts


def _counted(counters: Counters) -> dict[str, Fact]:
    moved = {f"{source} to {target}": counters.nbytes[source, target] for source, target in sorted(counters.nbytes)}
    return {"tiles": counters.tiles, "MACs": counters.macs, **moved, "sums into L0": counters.sum_bytes}


def _cycles(plan: Plan, is_exact: bool) -> list[int]:
    if not is_exact:
        cost = CostModel(plan.spec, plan.power_mode)
        return [estimate_cost(plan.graph, step, cost).cycles for step in plan.steps]
    bounds = step_bounds(forecast(plan), len(plan.steps))
    return [end - begin for begin, end in itertools.pairwise(bounds)]


def _places(plan: Plan) -> dict[str, Fact]:
    return {
        f"{buffer.role} {buffer.name} (node {buffer.entry.node}), from step {buffer.first_step}": (
            f"{buffer.tier}@{buffer.offset_bytes}, {buffer.nbytes} bytes, to step {buffer.last_step}"
        )
        for buffer in plan.buffers
    }
