"""Generated models: the kit against TVM's LLVM build, float64 with an error bound, and the kit's own reference.

A bounded part runs always, with the same models each time. ``make fuzz`` draws thousands: NPU_KIT_FUZZ is their number
and NPU_KIT_FUZZ_SEED where they start.
"""

from __future__ import annotations

import os

import hypothesis
import pytest

pytest.importorskip("tvm")

from differential import Agreement, Options, check
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_models import OPERATIONS, models, single_operations

from npu_kit.graph.ops import OPS

EXAMPLES = int(os.environ.get("NPU_KIT_FUZZ", "0"))
SEED = int(os.environ.get("NPU_KIT_FUZZ_SEED", "0"))

options = st.builds(
    Options,
    bind_constants=st.booleans(),
    merge=st.sampled_from(["safe", "safe", "never"]),
    mode=st.sampled_from(["fast"] * 9 + ["step"]),
    tile=st.sampled_from([None] * 6 + [8, 16, (8, 32)]),
    has_upstream_patterns=st.sampled_from([False] * 9 + [True]),
)


# No strategy draws these yet: tests/byoc/test_patterns.py has one model of each, tests/support/graphs.py draws their
# graphs, without TVM.
NOT_DRAWN = {
    "conv2d_transpose",
    "adaptive_avg_pool2d",
    "power",
    "silu",
    "leaky_relu",
    "prelu",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "erf",
    "negative",
    "abs",
    "square",
    "floor",
    "ceil",
    "round",
    "sum",
    "mean",
    "max",
    "min",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "permute_dims",
    "broadcast_to",
    "strided_slice",
    "pad",
    "concat",
    "reshape",
}


def test_every_operation_of_the_kit_is_drawn():
    assert set(OPERATIONS) == set(OPS) - NOT_DRAWN
    assert set(OPS) >= NOT_DRAWN


@pytest.mark.parametrize("op", sorted(OPERATIONS))
@given(data=st.data())
@settings(max_examples=4)
def test_one_operation(op, data):
    check(data.draw(single_operations(op)), data.draw(options))


def test_models():
    """Also that the comparisons are worth something: bounds are tight, and TVM's build takes part."""
    agreements: list[Agreement] = []

    @settings(max_examples=100)
    @given(models(), options)
    def run(model, chosen):
        agreement = check(model, chosen)
        if agreement is not None:
            agreements.append(agreement)

    run()
    assert len(agreements) > 90
    assert sum(a.with_llvm for a in agreements) > 0.85 * len(agreements)
    assert sum(a.compared > 0.9 and a.tightness < 0.05 for a in agreements) > 0.85 * len(agreements)


@pytest.mark.skipif(not EXAMPLES, reason="NPU_KIT_FUZZ is not set")
@hypothesis.seed(SEED)
@settings(max_examples=EXAMPLES or 1, derandomize=False, database=None)
@given(models(), options)
def test_fuzz(model, chosen):
    check(model, chosen)
