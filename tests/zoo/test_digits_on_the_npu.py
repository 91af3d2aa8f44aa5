"""Every held-out image on the NPU: the host's predictions and logits, and a weight that is wrong is found out."""

from __future__ import annotations

import numpy as np
import pytest

import npu_kit
from npu_kit.byoc.run.host import build_for_host
from npu_kit.data import load_digits_data, load_digits_parameters
from npu_kit.zoo import digits_model

DATA = load_digits_data()


@pytest.fixture(scope="module")
def models():
    module = digits_model(batch=len(DATA.test_images), bind=False)
    return npu_kit.compile(module), build_for_host(module)


def worst_difference(npu_parameters, models):
    """The largest difference of a logit, up to the constant that a softmax forgets; inf if a prediction differs."""
    compiled, host = models
    found = compiled.run(DATA.test_images, *npu_parameters.values())
    wanted = host.run(DATA.test_images, *load_digits_parameters().values())
    if (found.argmax(1) != wanted.argmax(1)).any():
        return np.inf
    visible = (found > 1e-30) & (wanted > 1e-30)  # below, float32 has no digits left to compare
    return np.abs(np.log(found[visible]) - np.log(wanted[visible])).max()


def test_predictions_and_logits_are_the_hosts(models):
    assert len(DATA.test_images) >= 350
    assert worst_difference(load_digits_parameters(), models) < 1e-3


@pytest.mark.parametrize("name", ["conv1_weight", "conv2_weight"])
def test_a_transposed_filter_is_found_out(models, name):
    planted = load_digits_parameters()
    planted[name] = np.ascontiguousarray(planted[name].transpose(1, 0, 2, 3))  # rows and columns of the filter swapped
    assert worst_difference(planted, models) > 1e-2
