"""Proof of a plan: rules that every plan keeps, derived again from the plan and its graph alone.

Nothing here asks how the planner decided. What is shared with it is what the runtime shares too: which box of a tensor
a tile needs (``plan.geometry``, held against counting positions one by one) and a step's program (``plan.program``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from npu_kit.errors import PlanError
from npu_kit.plan.geometry import problem_of, spans_of
from npu_kit.plan.ir import Plan
from npu_kit.plan.program import instructions
from npu_kit.plan.steps import label
from npu_kit.plan.verify import memory, order, slots, tiles, work

Rule = Callable[[Plan], Iterator[str]]

RULES: tuple[Rule, ...] = (*work.RULES, *tiles.RULES, *slots.RULES, *memory.RULES, *order.RULES)
SHOWN = 3  # violations in one message


def verify_plan(plan: Plan) -> None:
    """Check the rules one after the other: each may take for granted what the ones before it say.

    Raises:
        PlanError: a rule is broken; up to three violations, each with the step or tensor, and both numbers.
    """
    for rule in RULES:
        found = list(itertools.islice(rule(plan), SHOWN + 1))
        if found:
            title = rule.__name__.strip("_").replace("_", " ")
            more = "; and more" if len(found) > SHOWN else ""
            why = f"{title}: {'; '.join(found[:SHOWN])}{more}"
            raise PlanError(f"the plan of {plan.graph.symbol[:80]} breaks a rule", why)


def verify_coverage(plan: Plan) -> None:
    """Check, instruction by instruction, that every output element is stored exactly once. Takes as long as a run.

    Raises:
        PlanError: an element is stored never or more than once; names the step.
    """
    for step in plan.steps:
        problem = problem_of(plan.graph, step.nodes[0])
        stored = np.zeros(plan.graph.type_of(step.output).shape, np.int64)
        for instruction in instructions(step, problem):
            if instruction.kind == "store":
                stored[problem.box("out", step.axes, spans_of(step.axes, instruction.inside)).index] += 1
        if not (stored == 1).all():
            wrong = int((stored != 1).sum())
            why = f"{wrong} of {stored.size} elements are stored never or more than once"
            raise PlanError(f"step {step.index}, {label(plan.graph, step.nodes)}", why)
