"""Models whose batch is a symbol: what the NPU refuses for that runs on the host, and is right for every batch."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("tvm")

from differential import Mismatch, check_symbolic
from drafts import Draft
from relax_models import batched_model
from sample_model import Leaf, Model, Step


@pytest.mark.parametrize("number", range(12))
def test_a_symbolic_batch(number):
    check_symbolic(batched_model(Draft(random.Random(number))), batches=(1, 4))


def test_a_model_that_is_wrong_for_one_batch_is_found():
    """The batch of the bias is 1, which broadcasts to any other; one of 3 does not."""
    leaves = (Leaf((1, 4), "float32", "batch"), Leaf((1, 4), "float32"))
    model = Model(leaves, (Step("add", (~0, ~1), (1, 4), "float32"),), (0,))
    check_symbolic(model, batches=(1, 3))
    wrong = Model(leaves, (Step("subtract", (~1, ~0), (1, 4), "float32"),), (0,))
    object.__setattr__(wrong, "module", model.module)
    with pytest.raises(Mismatch, match="of batch 3"):
        check_symbolic(wrong, batches=(3,))
