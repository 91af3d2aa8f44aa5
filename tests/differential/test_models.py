"""Generated models: the kit against TVM's LLVM build, float64 with an error bound, and the kit's own reference.

The same seeded models each time; ``make fuzz`` draws thousands of others.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tvm")

from differential import Mismatch, Options, agreement, compare_with_llvm, is_in_parity, observe
from drafts import Draft
from float64_reference import RULES
from fuzz_cases import Case, Failure, draw_case, draw_options, reduce_failure, run_cases
from llvm_oracle import run_on_llvm
from reduce_model import reduce_model
from relax_models import OPERATIONS, single_operation
from sample_model import HOST_OPS, Leaf, Model, Step

from npu_kit.graph.ops import OPS

CASES = 100

# NaN in a quantize, and int8 products that wrap, are drawn on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_every_operation_of_the_kit_is_drawn_and_has_a_definition_in_float64():
    assert set(OPERATIONS) == set(OPS)
    assert set(RULES) >= {*OPERATIONS, *HOST_OPS, "tuple"}


@pytest.mark.parametrize("op", sorted(OPERATIONS))
def test_one_operation_in_every_dtype_that_it_takes(op):
    source = random.Random(op)
    dtypes = next(iter(OPS[op].inputs.values()))
    dtypes = dtypes * (2 if len(dtypes) < 4 else 1)
    cases = []
    for number, dtype in enumerate(dtypes):
        options = replace(draw_options(source), spec="example", has_upstream_patterns=False)
        cases.append(Case(f"{op} {number}", single_operation(Draft(source, dtype), op), options))
    agreements, failures = run_cases(cases, opt_level=0)
    assert failures == []
    assert {dtype for dtype, a in zip(dtypes, agreements, strict=True) if a.npu_calls} == set(dtypes)


@pytest.mark.parametrize("first", range(0, CASES, 20))
def test_cases_of_all_kinds(first):
    _, failures = run_cases(draw_case(0, number) for number in range(first, first + 20))
    assert failures == []


def test_the_comparisons_are_worth_something():
    """Bounds are finite and tight, TVM's build takes part, and the NPU computes."""
    agreements, failures = run_cases((draw_case(1, number) for number in range(40)), opt_level=0)
    assert failures == []
    assert len(agreements) > 30
    assert sum(a.with_llvm for a in agreements) > 0.8 * len(agreements)
    assert sum(a.npu_calls > 0 for a in agreements) > 0.8 * len(agreements)
    assert sum(a.compared > 0.9 and a.tightness < 0.05 for a in agreements) > 0.8 * len(agreements)


# --- The comparison itself --------------------------------------------------------------------------------------------

CHAIN = Model(
    (Leaf((4, 6), "float32"), Leaf((6, 5), "float32")),
    (
        Step("relu", (~0,), (4, 6), "float32"),
        Step("matmul", (0, ~1), (4, 5), "float32"),
        Step("tanh", (1,), (4, 5), "float32"),
    ),
    (2, 1),
)


@pytest.mark.parametrize("result", [0, 1])
def test_a_difference_beyond_rounding_is_found(result):
    observation = observe(CHAIN, Options())
    (theirs,) = run_on_llvm([CHAIN])
    compare_with_llvm(observation, theirs)
    wrong = [array.copy() for array in theirs]
    wrong[result][2, 3] += 1e-4
    with pytest.raises(Mismatch, match=rf"result {result} at \(2, 3\)"):
        compare_with_llvm(observation, wrong)


def test_a_bound_depends_on_the_dtype_and_on_how_many_terms_are_summed():
    def bound(dtype, depth):
        leaves = (Leaf((4, depth), dtype), Leaf((depth, 5), dtype))
        model = Model(leaves, (Step("matmul", (~0, ~1), (4, 5), dtype),), (0,))
        observation = observe(model, Options())
        assert is_in_parity(observation)
        return agreement(observation).tightness

    assert bound("float32", 4) < bound("float32", 400) < 1e-3
    assert bound("float32", 4) < bound("float16", 4)
    assert bound("int8", 40) == 0


def test_a_case_is_the_same_whichever_ran_before():
    assert draw_case(3, 7) == draw_case(3, 7) != draw_case(3, 8)
    model = draw_case(3, 7).model
    assert all(np.array_equal(a, b) for a, b in zip(model.arrays, draw_case(3, 7).model.arrays, strict=True))


def test_a_failure_is_made_small_and_keeps_its_values():
    small = reduce_model(CHAIN, lambda model: "matmul" in model.ops)
    assert small.ops == ("matmul",) and len(small.leaves) == 2
    assert np.array_equal(small.arrays[0], CHAIN.arrays[1])  # the weight; the relu gave way to a parameter


def test_a_failure_that_is_none_any_more_stays_as_it_is():
    failure = Failure(Case("a", CHAIN), Mismatch("somewhere"))
    assert reduce_failure(failure) == failure
