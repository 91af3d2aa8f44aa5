"""The presets as machines: what their documents say of them, their energies recomputed, and real layers on each."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from graphs import conv_relu_pool, first_layer_of_resnet18, matmul_chain, random_arrays

from npu_kit.graph.ir import Graph
from npu_kit.hw import bytes_per_second, load_spec, peak_macs_per_second, preset_names, ridge_macs_per_byte, source_of
from npu_kit.plan.planner import make_plan
from npu_kit.plan.verify import verify_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.reference import run_graph

KIB, MIB, GIB = 2**10, 2**20, 2**30
ALL_MODES = [(name, mode.name) for name in preset_names() for mode in load_spec(name).power_modes]


def test_there_are_machines_of_four_kinds() -> None:
    assert preset_names() == ("ethos_u65_like", "example", "nvdla_like", "tpu_v1_like")
    for name in preset_names():
        assert load_spec(name).name == name


# What the documents say


def test_tpu_v1_like_has_the_papers_figures() -> None:
    spec = load_spec("tpu_v1_like")
    assert spec.engine("matrix").lanes == 65_536
    assert 2 * peak_macs_per_second(spec) == pytest.approx(92e12, rel=0.005)  # 92 TOPS, a MAC is two
    assert bytes_per_second(spec) == pytest.approx(34e9, rel=0.015)
    assert ridge_macs_per_byte(spec) == pytest.approx(1350, rel=0.015)  # figure 5
    l0, l1, l2, l3 = (tier.capacity_bytes for tier in spec.tiers)
    assert (l0, l1 + l2, l3) == (4 * MIB, 24 * MIB, 8 * GIB)
    assert l0 == 4096 * 256 * 4
    assert bytes_per_second(spec, "L2") == pytest.approx(167 * GIB, rel=0.01)  # figure 1


def test_nvdla_like_has_the_figures_of_the_large_configuration() -> None:
    spec = load_spec("nvdla_like")
    assert spec.engine("conv").lanes == 2048
    assert peak_macs_per_second(spec) == 2048 * 10**9
    assert spec.tier("L1").capacity_bytes == 16 * 32 * KIB
    assert bytes_per_second(spec) == 20 * 10**9
    dram, sram = spec.tier("L3"), spec.tier("L2")
    assert 2 <= sram.bytes_per_cycle / dram.bytes_per_cycle <= 4
    assert 1 / 10 <= sram.access_cycles / dram.access_cycles <= 1 / 4


def test_ethos_u65_like_has_the_figures_of_vela() -> None:
    spec = load_spec("ethos_u65_like")
    assert spec.engine("conv").lanes == 256
    assert peak_macs_per_second(spec) == 256 * 500 * 10**6
    assert spec.tier("L0").capacity_bytes + spec.tier("L1").capacity_bytes == 48 * KIB
    assert spec.tier("L2").capacity_bytes == 393_216
    assert bytes_per_second(spec, "L2") == 8 * 10**9
    assert 0 <= 3.75e9 - bytes_per_second(spec, "L3") < 500e6  # a whole number of bytes a cycle


# Energies

# Picojoules of a 64-bit access by bytes of the memory: M. Horowitz, ISSCC 2014.
MEASURED = {8 * KIB: 10, 32 * KIB: 20, MIB: 100}
# Bytes of one bank of a tier: what a single access is spread over.
BANKS = {
    "example": (4 * KIB, 256 * KIB, 512 * KIB),
    "ethos_u65_like": (KIB, KIB, 384 * KIB),
    "nvdla_like": (3 * KIB, 32 * KIB, MIB),
    "tpu_v1_like": (16 * KIB, MIB, MIB),
}


def access_pj(nbytes: int) -> float:
    """Straight lines through ``MEASURED`` in logarithms, level below the smallest."""
    sizes, energies = np.log2([*MEASURED]), np.log2([*MEASURED.values()])
    return 2 ** float(np.interp(math.log2(nbytes), sizes, energies))


@pytest.mark.parametrize("name", preset_names())
def test_the_energy_of_on_chip_memory_follows_its_size(name: str) -> None:
    for tier, bank in zip(load_spec(name).tiers[:3], BANKS[name], strict=True):
        assert tier.energy_pj_per_byte == round(access_pj(bank) / 8, 2)


@pytest.mark.parametrize("name", preset_names())
def test_the_energy_of_dram_and_of_macs_is_the_tables(name: str) -> None:
    spec = load_spec(name)
    assert spec.tier("L3").energy_pj_per_byte == 1300 / 8
    expected = {
        "int8": 0.2 + 0.1,
        "int16": 0.2 * 4 + 0.1,
        "int32": 3.1 + 0.1,
        "float16": 1.1 + 0.9,
        "float32": 3.7 + 0.9,
    }
    assert spec.mac_energy_pj == pytest.approx(expected)


@pytest.mark.parametrize("name", preset_names())
def test_an_interpolated_or_unbuilt_energy_says_illustrative(name: str) -> None:
    spec = load_spec(name)
    for index, bank in enumerate(BANKS[name]):
        is_measured = bank in MEASURED or bank < min(MEASURED)
        source = source_of(spec, f"tiers[{index}].energy_pj_per_byte")
        # The banks of the TPU's buffer are not published: a measured size, and still a guess.
        assert source.startswith("illustrative") is (not is_measured or (name == "tpu_v1_like" and index > 0))
    for dtype in spec.mac_energy_pj:
        is_guess = dtype == "int16" or ("float" in dtype and dtype not in spec.dtypes)
        assert source_of(spec, f"mac_energy_pj.{dtype}").startswith("illustrative") is is_guess


# Layers


LAYERS = {
    "matmul_chain": matmul_chain,
    "integer_matmul": lambda: matmul_chain(m=300, k=600, n=290, dtype="int8"),
    "conv_relu_pool": conv_relu_pool,
    "first_layer_of_resnet18": first_layer_of_resnet18,
}
Arrays = Sequence[np.ndarray[Any, Any]]


@functools.cache
def layer_and_result(layer: str) -> tuple[Graph, Arrays, Arrays]:
    graph = LAYERS[layer]()
    arrays = random_arrays(graph)
    return graph, arrays, run_graph(graph, arrays)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("name", "mode"), ALL_MODES)
def test_a_layer_runs_on_every_machine_in_every_mode(name: str, mode: str, layer: str) -> None:
    graph, arrays, reference = layer_and_result(layer)
    plan = make_plan(graph, load_spec(name), power_mode=mode)
    verify_plan(plan)
    fast, step = execute(plan, arrays, mode="fast"), execute(plan, arrays, mode="step")
    for found, tile_by_tile, expected in zip(fast, step, reference, strict=True):
        assert found.tobytes() == tile_by_tile.tobytes()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 if expected.dtype.kind == "f" else 0)


@pytest.mark.parametrize("name", preset_names())
def test_the_default_tile_is_used_whole(name: str) -> None:
    """A product larger than the array is cut into the spec's own tile: L1 has room for it in each dtype."""
    spec = load_spec(name)
    for dtype in ("int8", "float32"):
        graph = matmul_chain(m=3 * spec.tile.rows, k=1024, n=3 * spec.tile.columns, dtype=dtype)
        (step,) = make_plan(graph, spec).steps
        assert (step.axis("x").tile, step.axis("n").tile) == (spec.tile.rows, spec.tile.columns)
