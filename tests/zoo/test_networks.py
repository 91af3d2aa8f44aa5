"""ResNet-18 and MobileNet-V2 of the zoo: the published sizes, and nothing on the host."""

from __future__ import annotations

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from npu_kit.byoc.partition import partition  # noqa: E402
from npu_kit.zoo import networks  # noqa: E402

# Multiply-accumulates of one image at 224x224: torchvision's documentation of both models.
PUBLISHED_MACS = {"resnet18": 1.81e9, "mobilenet_v2": 0.30e9}
PUBLISHED_WEIGHTS = {"resnet18": 11_689_512, "mobilenet_v2": 3_504_872}


class Counting:
    """Layers that only count: a value is the number of rows of its image."""

    def __init__(self) -> None:
        self.macs, self.weights = 0, 0

    def conv(
        self, x: int, channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1, relu: str = ""
    ) -> int:
        out, weights = -(-x // stride), filters * channels // groups * kernel * kernel
        self.macs += weights * out * out
        self.weights += weights + 2 * filters  # and a factor and a shift of the batch norm
        return out

    def add(self, a: int, b: int, relu: str = "") -> int:
        assert a == b
        return a

    def max_pool(self, x: int) -> int:
        return -(-x // 2)

    def classify(self, x: int, channels: int, size: int) -> int:
        assert x == size
        self.macs += channels * networks.CLASSES
        self.weights += (channels + 1) * networks.CLASSES
        return x


@pytest.mark.parametrize("name", PUBLISHED_MACS)
def test_the_networks_have_the_published_size(name: str) -> None:
    layers = Counting()
    assert getattr(networks, name)(layers, 224) == 7
    assert layers.macs == pytest.approx(PUBLISHED_MACS[name], rel=0.02)
    assert layers.weights == PUBLISHED_WEIGHTS[name]


@pytest.mark.parametrize("name", PUBLISHED_MACS)
def test_nothing_stays_on_the_host(name: str) -> None:
    module = getattr(networks, f"{name}_model")(size=64)
    assert tvm.relax.analysis.check_well_formed(module)
    parted = partition(module, bind_constants=True)
    assert len(parted.regions) == 1 and not parted.report.on_host


def test_folding_keeps_what_a_convolution_and_its_batch_norm_compute() -> None:
    p = networks.LayerWeights().conv(channels=4, filters=6, kernel=1)
    x = np.random.default_rng(0).standard_normal(4).astype(np.float32)
    normed = (p.w[:, :, 0, 0] @ x - p.mean) / np.sqrt(p.var + networks.EPSILON) * p.gamma + p.beta
    w, bias = p.folded()
    np.testing.assert_allclose(w[:, :, 0, 0] @ x + bias, normed, rtol=1e-4, atol=1e-5)
    assert (p.var > 0).all() and not np.allclose(p.gamma, 1)
