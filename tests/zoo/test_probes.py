"""The probes show what they are for, and compute what TVM's own build computes."""

from __future__ import annotations

import numpy as np
import pytest

import npu_kit
from npu_kit.byoc.run.host import build_for_host
from npu_kit.zoo import probes, random_arguments

COMPUTED = {
    "bias": probes.conv_add_relu,
    "residual": lambda: probes.conv_add_relu((1, 24, 16, 16)),
    "grouped": lambda: probes.conv_of(kernel=3, groups=3),
    "pointwise": probes.conv_of,
    "loop through the host": probes.host_loop,
    "matmul": lambda: probes.matmul_of(33, 70, 9),
    "channels last": probes.conv_nhwc,
}


@pytest.mark.parametrize("build", COMPUTED.values(), ids=COMPUTED.keys())
def test_values_are_those_of_the_host(build):
    model = build()
    arguments = random_arguments(model)
    found, expected = npu_kit.compile(model).run(*arguments), build_for_host(model).run(*arguments)
    assert found.shape == expected.shape
    # Sums of at most 72 products of standard normal numbers; a sine makes no error larger.
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_a_scale_of_zero_is_refused():
    (call,) = npu_kit.partition(probes.quantize_by(0.0)).report
    assert (call.where, call.refusals[-1][1].rule) == ("host", "scale")
    (call,) = npu_kit.partition(probes.quantize_by(0.5)).report
    assert call.is_on_npu


def test_no_composite_closes_the_loop_through_the_host():
    conv, detour, add = npu_kit.partition(probes.host_loop()).report
    assert [conv.where, detour.where, add.where] == ["npu", "host", "npu"]
    assert "cycle" in {refusal.rule for _, refusal in add.refusals}
    assert conv.composite != add.composite
