"""Each rule of a hardware description, just inside and just outside."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest

from npu_kit.errors import SpecError
from npu_kit.graph.ir import DTYPE_BYTES
from npu_kit.hw import (
    Engine,
    NpuSpec,
    PowerMode,
    load_spec,
    numbers,
    source_of,
    spec_from_json,
    spec_to_json,
    verify_spec,
)
from npu_kit.hw.verify import DTYPES


def changed(path: str, value: Any, base: NpuSpec | None = None) -> NpuSpec:
    """A copy of ``base`` with the leaf at ``path`` set, unchecked."""

    def put(owner: Any, steps: list[str]) -> Any:
        if not steps:
            return value
        step, rest = steps[0], steps[1:]
        if isinstance(owner, Mapping):
            return {**owner, step: put(owner[step], rest)}
        if isinstance(owner, tuple):
            items = list(owner)
            items[int(step)] = put(items[int(step)], rest)
            return tuple(items)
        return dataclasses.replace(owner, **{step: put(getattr(owner, step), rest)})

    result = put(base or load_spec("example"), re.findall(r"\w+", path))
    assert isinstance(result, NpuSpec)
    return result


def refusal(spec: NpuSpec) -> SpecError:
    with pytest.raises(SpecError) as caught:
        verify_spec(spec)
    return caught.value


RANGES = [
    ("tiers[0].capacity_bytes", 4096, 2**30, 0, None),
    ("tiers[1].capacity_bytes", 1, 2**30, 0, None),
    ("tiers[3].capacity_bytes", 524288, 2**50, None, 2**50 + 1),
    ("tiers[0].access_cycles", 0, 1, -1, None),
    ("tiers[3].access_cycles", 4, 10**6, None, 10**6 + 1),
    ("tiers[2].bytes_per_cycle", 1, 2**20, 0, 2**20 + 1),
    ("engines[0].rows", 1, 65_535, 0, 65_536),
    ("engines[0].columns", 1, 65_535, 0, 65_536),
    ("engines[2].columns", 1, 65_535, -5, 65_536),
    ("tile.minimum", 1, 32, 0, None),
    ("tile.rows", 8, 32, 0, 65_536),
    ("vector_elements", 1, 65_535, 0, 65_536),
    ("power_modes[1].clock_mhz", 1, 100_000, 0, 100_001),
    ("power_modes[1].active_share", 1e-300, 1, 0, 1.0000000000000002),
    ("tiers[3].energy_pj_per_byte", 0, 10**6, -5e-324, 1000000.0000000001),
    ("tiers[0].energy_pj_per_byte", 5e-324, 1e6, -1, 10**6 + 1),
    ("mac_energy_pj.float32", 0.0, 10**6, -0.1, 10**6 + 1),
]


@pytest.mark.parametrize(("path", "low", "high", "below", "above"), RANGES)
def test_each_range_inside_and_outside(path: str, low: Any, high: Any, below: Any, above: Any) -> None:
    verify_spec(changed(path, low))
    verify_spec(changed(path, high))
    for outside in (below, above):
        if outside is not None:
            error = refusal(changed(path, outside))
            assert error.what == f"{path} in spec 'example'"
            assert (f"{outside:,}" if isinstance(outside, int) else repr(outside)) in error.why


@pytest.mark.parametrize("wrong", [True, 8.0, "8", None, [8]])
def test_each_whole_number_refuses_other_types(wrong: Any) -> None:
    for path, value in numbers(load_spec("example")):
        if isinstance(value, int):
            error = refusal(changed(path, wrong))
            assert error.what == f"{path} in spec 'example'"
            assert "whole number" in error.why


@pytest.mark.parametrize("wrong", [True, "1", None, float("nan"), float("inf"), -0.0])
def test_a_share_refuses_what_is_no_share(wrong: Any) -> None:
    assert refusal(changed("power_modes[0].active_share", wrong)).what.startswith("power_modes[0].active_share")


@pytest.mark.parametrize("path", ["tiers[2].energy_pj_per_byte", "mac_energy_pj.int8"])
@pytest.mark.parametrize("wrong", [True, "1", None, float("nan"), float("inf"), -float("inf"), 2**70])
def test_an_energy_refuses_what_is_no_energy(path: str, wrong: Any) -> None:
    assert refusal(changed(path, wrong)).what == f"{path} in spec 'example'"


def test_a_message_shows_the_value_the_limit_and_the_file() -> None:
    spec = changed("tiers[1].capacity_bytes", 0)
    with pytest.raises(SpecError) as caught:
        verify_spec(spec, "machines/mine.json")
    assert str(caught.value) == (
        "tiers[1].capacity_bytes in machines/mine.json: it is 0 and must be between 1 and 1,125,899,906,842,624"
    )


# Tiers


def test_there_are_four_tiers_in_order() -> None:
    spec = load_spec("example")
    assert "there are 3 and there must be 4" in refusal(changed("tiers", spec.tiers[:3])).why
    assert refusal(changed("tiers", spec.tiers[::-1])).what.startswith("tiers[0].name")
    assert "5 entries" in refusal(changed("tiers", (*spec.tiers, spec.tiers[3]))).why
    assert "must be a tuple" in refusal(changed("tiers", list(spec.tiers))).why
    assert refusal(changed("tiers", (*spec.tiers[:3], "L3"))).what.startswith("tiers[3]")


def test_a_farther_tier_never_answers_sooner() -> None:
    verify_spec(changed("tiers[2].access_cycles", 1))  # L1 has 1
    assert "L2 answers in 0 cycles and the nearer L1 in 1" in refusal(changed("tiers[2].access_cycles", 0)).why
    assert "L3 answers in 100 cycles and the nearer L2 in 101" in refusal(changed("tiers[2].access_cycles", 101)).why


def test_the_last_tier_is_the_largest() -> None:
    verify_spec(changed("tiers[2].capacity_bytes", 2**30))
    error = refusal(changed("tiers[2].capacity_bytes", 2**30 + 1))
    assert "L2 holds 1,073,741,825 bytes and L3, the last tier, only 1,073,741,824" in error.why


def test_a_smaller_l2_than_l1_is_a_machine() -> None:
    verify_spec(changed("tiers[2].capacity_bytes", 1024))


# Tile


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_a_tile_side_is_never_below_the_minimum(side: str) -> None:
    verify_spec(changed(f"tile.{side}", 8))
    error = refusal(changed(f"tile.{side}", 7))
    assert error.what.startswith(f"tile.{side} ")
    assert "it is 7 and the smallest tile side of this machine is 8" in error.why


def test_the_accumulators_of_one_tile_fit_in_l0() -> None:
    spec = load_spec("example")
    verify_spec(spec)  # 32 * 32 * 4 is exactly the 4,096 bytes of L0
    error = refusal(changed("tile.columns", 33))
    assert "32x33 accumulators takes 4,224 bytes and L0 holds 4,096" in error.why
    assert refusal(changed("tiers[0].capacity_bytes", 4095)).what.startswith("tile ")
    spec.replace(tile=(8, 128))
    with pytest.raises(SpecError, match="16,384 bytes and L0 holds 4,096"):
        spec.replace(tile=64)
    spec.replace(tile=64, capacity_bytes={"L0": 16_384})


def test_a_tile_is_a_tile_spec() -> None:
    assert refusal(changed("tile", (32, 32, 8))).what.startswith("tile ")


# Engines


def test_each_engine_exists_once() -> None:
    engines = load_spec("example").engines
    assert refusal(changed("engines", [*engines])).why.endswith("must be a tuple")
    assert refusal(changed("engines", (*engines[:5], "dma"))).what.startswith("engines[5]")
    verify_spec(changed("engines", engines[::-1]).replace())
    without_conv = tuple(e for e in engines if e.name != "conv")
    assert "missing: conv" in refusal(changed("engines", without_conv)).why
    twice = (*without_conv, Engine("matrix", 8, 8))
    assert "'matrix' is already engines[0]" in refusal(changed("engines", twice)).why
    error = refusal(changed("engines[0].name", "matrx"))
    assert (error.what, error.hint) == ("engines[0].name in spec 'example'", "'matrix'.")


@pytest.mark.parametrize("name", ["vector", "pooling", "activation", "dma"])
def test_a_lane_wise_engine_has_one_row(name: str) -> None:
    engines = load_spec("example").engines
    index = next(i for i, e in enumerate(engines) if e.name == name)
    error = refusal(changed(f"engines[{index}].rows", 2))
    assert f"it is 2 and the {name} engine is one row" in error.why


# Dtypes, layout, power modes


def test_the_dtypes_are_those_the_graph_knows() -> None:
    assert set(DTYPES) == set(DTYPE_BYTES)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_of_the_kit_may_be_declared(dtype: str) -> None:
    verify_spec(changed("dtypes", (dtype,)))


def test_each_declared_dtype_has_an_energy() -> None:
    spec = load_spec("example")
    for dtype in spec.dtypes:
        rest = {other: energy for other, energy in spec.mac_energy_pj.items() if other != dtype}
        error = refusal(changed("mac_energy_pj", rest))
        assert error.what == f"mac_energy_pj.{dtype} in spec 'example'"
        assert error.why == f"missing, and {dtype} is one of the dtypes"
    sources = {path: text for path, text in spec.sources.items() if not path.startswith("mac_energy_pj")}
    only = NpuSpec(**{**spec.__dict__, "dtypes": ("uint16",), "mac_energy_pj": {"int16": 1.0}, "sources": sources})
    assert "mac_energy_pj.int16 in" in refusal(only).what  # the energy is enough, and it has no source
    verify_spec(changed("sources", sources | {"mac_energy_pj.int16": "illustrative"}, only))


def test_the_energy_of_a_mac_by_dtype() -> None:
    spec = load_spec("example")
    assert spec.mac_energy("int8") == spec.mac_energy("uint8") == spec.mac_energy_pj["int8"]
    assert spec.mac_energy("uint16") == spec.mac_energy_pj["int16"]
    own = spec.replace(mac_energy_pj={**spec.mac_energy_pj, "uint8": 0.25})
    assert (own.mac_energy("uint8"), own.mac_energy("int8")) == (0.25, 0.3)
    with pytest.raises(SpecError, match="no energy of a float64 MAC in spec 'example': it has int8, int16, "):
        spec.mac_energy("float64")


@pytest.mark.parametrize(
    ("energies", "key"),
    [
        (None, "mac_energy_pj"),
        ([("int8", 0.3)], "mac_energy_pj"),
        ({"int9": 0.3}, "mac_energy_pj.int9"),
        ({8: 0.3}, "mac_energy_pj"),
        ({}, "mac_energy_pj.int8"),
    ],
)
def test_other_tables_of_energies_are_refused(energies: Any, key: str) -> None:
    assert refusal(changed("mac_energy_pj", energies)).what == f"{key} in spec 'example'"
    assert refusal(changed("mac_energy_pj", {"int9": 0.3})).hint == "'int8'."


@pytest.mark.parametrize(
    ("dtypes", "key"),
    [
        ((), "dtypes"),
        (("float64",), "dtypes[0]"),
        (("int8", "bfloat16"), "dtypes[1]"),
        (("int8", "int8"), "dtypes[1]"),
        (["int8"], "dtypes"),
        (("int8", 8), "dtypes[1]"),
    ],
)
def test_other_dtypes_are_refused(dtypes: Any, key: str) -> None:
    assert refusal(changed("dtypes", dtypes)).what == f"{key} in spec 'example'"


def test_the_default_power_mode_exists() -> None:
    verify_spec(changed("default_power_mode", "low_power"))
    error = refusal(changed("default_power_mode", "low-power"))
    assert "must be one of high_performance, balanced, low_power" in error.why
    assert error.hint == "'low_power'."
    assert refusal(changed("power_modes", ())).what.startswith("power_modes")


def test_power_modes_have_different_names() -> None:
    assert refusal(changed("power_modes[2].name", "very low")).what.startswith("power_modes[2].name")
    assert "'balanced' is already power_modes[1]" in refusal(changed("power_modes[2].name", "balanced")).why


# Names and text


@pytest.mark.parametrize("name", ["a", "A1", "my-npu_2.0", "a" * 64])
def test_names_inside(name: str) -> None:
    verify_spec(changed("name", name))


@pytest.mark.parametrize("name", ["", "a" * 65, "my npu", "-a", "<b>", 'a"b', "../x", "é", None, 3, "a\n"])
def test_names_outside(name: Any) -> None:
    assert refusal(changed("name", name)).what.startswith("name in spec")


def test_text_is_printable_and_short() -> None:
    verify_spec(changed("description", "é" * 2_000))
    assert "2,001 characters" in refusal(changed("description", "x" * 2_001)).why
    assert "printable" in refusal(changed("description", "a\x00b")).why
    verify_spec(changed("tiers[0].label", "x" * 32))
    assert refusal(changed("tiers[0].label", "x" * 33)).what.startswith("tiers[0].label")
    assert "must be text" in refusal(changed("tiers[0].label", None)).why


# Sources


def test_each_number_needs_a_source() -> None:
    spec = load_spec("example")
    for key in spec.sources:
        rest = {k: v for k, v in spec.sources.items() if k != key}
        owned = [path for path, _ in numbers(spec) if path == key or re.sub(r"\d+", "*", path) == key]
        without = changed("sources", rest)
        if owned:
            error = refusal(without)
            assert error.what == f"{owned[0]} in spec 'example'"
            assert "has no source" in error.why
        else:  # the key of a text: it may have a source and needs none
            verify_spec(without)


def test_a_source_of_nothing_is_refused() -> None:
    sources = dict(load_spec("example").sources)
    error = refusal(changed("sources", sources | {"tiers[4].capacity_bytes": "x"}))
    assert error.what.startswith("sources['tiers[4].capacity_bytes']")
    assert refusal(changed("sources", sources | {"dtypes": " "})).why == "it is empty"
    assert refusal(changed("sources", sources | {"dtypes": 5})).what.startswith("sources['dtypes']")
    assert refusal(changed("sources", ["dtypes"])).what.startswith("sources ")
    assert refusal(changed("sources", sources | {3: "x"})).what.startswith("sources[3]")


def test_a_full_path_goes_before_any_index() -> None:
    sources = dict(load_spec("example").sources) | {"tiers[3].capacity_bytes": "a datasheet"}
    spec = changed("sources", sources)
    verify_spec(spec)
    assert source_of(spec, "tiers[3].capacity_bytes") == "a datasheet"
    assert source_of(spec, "tiers[2].capacity_bytes").startswith("Apache TVM")
    assert source_of(spec, "tiers[9].nothing") == ""


def test_replace_does_not_keep_the_source_of_a_number_it_changes() -> None:
    spec = load_spec("example")
    smaller = spec.replace(tile=16, capacity_bytes={"L1": 65_536})
    differs = {path for path, _ in numbers(spec) if source_of(spec, path) != source_of(smaller, path)}
    assert differs == {"tile.rows", "tile.columns", "tiers[1].capacity_bytes"}
    assert source_of(smaller, "tile.rows") == "changed with replace"
    assert spec.replace() == spec


def test_replace_changes_energies_by_tier_beside_capacities() -> None:
    spec = load_spec("example")
    cheaper = spec.replace(energy_pj_per_byte={"L3": 31.25, "L2": 1}, capacity_bytes={"L2": 1024})
    assert [tier.energy_pj_per_byte for tier in cheaper.tiers] == [1.25, 6.57, 1, 31.25]
    assert [tier.capacity_bytes for tier in cheaper.tiers] == [4096, 262144, 1024, 2**30]
    differs = {path for path, _ in numbers(spec) if source_of(spec, path) != source_of(cheaper, path)}
    assert differs == {"tiers[2].energy_pj_per_byte", "tiers[3].energy_pj_per_byte", "tiers[2].capacity_bytes"}
    with pytest.raises(SpecError, match=r"no tier 'L9'"):
        spec.replace(energy_pj_per_byte={"L9": 3})
    with pytest.raises(SpecError, match=r"tiers\[3\].energy_pj_per_byte .* must be between 0 and 1,000,000 picojoules"):
        spec.replace(energy_pj_per_byte={"L3": -3})


def test_replace_changes_capacities_of_the_tiers_that_it_is_given() -> None:
    spec = load_spec("example")
    slow = dataclasses.replace(spec.tier("L3"), bytes_per_cycle=1)
    changed_spec = spec.replace(tiers=(*spec.tiers[:3], slow), capacity_bytes={"L2": 6_000})
    assert changed_spec.tier("L3").bytes_per_cycle == 1
    assert changed_spec.tier("L2").capacity_bytes == 6_000


def test_replace_of_the_mac_energies_keeps_no_old_source() -> None:
    spec = load_spec("example")
    changed_spec = spec.replace(mac_energy_pj={**spec.mac_energy_pj, "int8": 0.07}, dtypes=("int8",))
    assert source_of(changed_spec, "mac_energy_pj.int8") == "changed with replace"
    assert source_of(changed_spec, "mac_energy_pj.int16") == source_of(spec, "mac_energy_pj.int16")


def test_replace_of_a_whole_part_gives_a_machine_with_sources() -> None:
    one_mode = load_spec("example").replace(power_modes=(PowerMode("only", 5, 0.5),), default_power_mode="only")
    verify_spec(one_mode)
    assert source_of(one_mode, "power_modes[0].clock_mhz") == "changed with replace"


def test_replace_names_an_unknown_field_and_an_unknown_tier() -> None:
    with pytest.raises(SpecError, match=r"cannot change spec 'example'.*titles"):
        load_spec("example").replace(titles=3)
    with pytest.raises(SpecError, match=r"no tier 'L9'.*L0, L1, L2, L3"):
        load_spec("example").replace(capacity_bytes={"L9": 3})


def test_what_is_no_machine_and_no_text_of_one_is_refused():
    spec = load_spec("example")
    with pytest.raises(SpecError, match=r"a machine is needed: it is None \(NoneType\)"):
        spec_to_json(None)
    with pytest.raises(SpecError, match="text is not JSON: it must be text and is bytes"):
        spec_from_json(b"{}")
    with pytest.raises(SpecError, match="capacity_bytes=65536: it must map names of tiers to numbers"):
        spec.replace(capacity_bytes=65536)
