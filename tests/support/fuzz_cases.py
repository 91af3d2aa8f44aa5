"""Seeded cases of ``make fuzz``: case 17 of seed 3 is the same model, compiled in the same way, wherever it runs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from differential import (
    Agreement,
    Mismatch,
    Observation,
    Options,
    agreement,
    check,
    check_symbolic,
    compare_with_llvm,
    is_in_parity,
    observe,
)
from drafts import Draft
from llvm_oracle import run_on_llvm
from reduce_model import reduce_model
from relax_models import batched_model, draw_model
from sample_model import Model

SYMBOLIC_PERCENT = 4
DEFAULTS = Options()


@dataclass(frozen=True)
class Case:
    """A model, and how it is compiled; ``batches`` where its batch is a symbol: the sizes that it runs with."""

    name: str  # "seed:number"
    model: Model
    options: Options = DEFAULTS
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A case that is not right, and in what way."""

    case: Case
    error: Exception


def draw_case(seed: int, number: int) -> Case:
    """Case ``number`` of ``seed``; it does not depend on the cases before it."""
    name = f"{seed}:{number}"
    source = random.Random(name)
    if source.randrange(100) < SYMBOLIC_PERCENT:
        return Case(name, batched_model(Draft(source)), batches=(source.randint(1, 9), 1))
    return Case(name, draw_model(source), draw_options(source))


def draw_options(source: random.Random) -> Options:
    """Mostly the defaults, and every one of them with and without the others."""
    return Options(
        bind_constants=source.random() < 0.5,
        merge=source.choice(("safe", "safe", "never")),
        mode="step" if source.random() < 0.1 else "fast",
        tile=source.choice((*[None] * 6, 8, 16, (8, 32))),
        spec=source.choice((*["example"] * 42, *["small"] * 5, "ethos_u65_like", "nvdla_like", "tpu_v1_like")),
        has_upstream_patterns=source.random() < 0.1,
    )


def run_cases(cases: Iterable[Case], opt_level: int = 3) -> tuple[list[Agreement], list[Failure]]:
    """Check every case; those that TVM's LLVM build takes part in are built for it together, at this level of LLVM."""
    agreements: list[Agreement] = []
    failures: list[Failure] = []
    waiting: list[tuple[Case, Observation]] = []
    for case in cases:
        try:
            if case.batches:
                check_symbolic(case.model, case.batches)
                continue
            observation = observe(case.model, case.options)
        except Exception as error:
            failures.append(Failure(case, error))
            continue
        if observation is None:
            continue
        agreements.append(agreement(observation))
        if is_in_parity(observation):
            waiting.append((case, observation))
    try:
        results = run_on_llvm([case.model for case, _ in waiting], opt_level) if waiting else []
    except Exception:  # one of them: alone, each has its own
        return agreements, [*failures, *(Failure(case, e) for case, _ in waiting if (e := failure_of(case)))]
    for (case, observation), theirs in zip(waiting, results, strict=True):
        try:
            compare_with_llvm(observation, theirs)
        except Mismatch as error:
            failures.append(Failure(case, error))
    return agreements, failures


def failure_of(case: Case) -> Exception | None:
    """What goes wrong with ``case`` alone, None if nothing does."""
    try:
        if case.batches:
            check_symbolic(case.model, case.batches)
        else:
            check(case.model, case.options)
    except Exception as error:
        return error
    return None


def reduce_failure(failure: Failure) -> Failure:
    """A smaller case that fails with an error of the same class."""
    found = failure

    def fails(model: Model) -> bool:
        nonlocal found
        case = replace(failure.case, model=model)
        error = failure_of(case)
        if type(error) is not type(failure.error):
            return False
        found = Failure(case, error)
        return True

    if not failure.case.batches:  # those are short, and their first leaf has to stay
        reduce_model(failure.case.model, fails)
    return found
