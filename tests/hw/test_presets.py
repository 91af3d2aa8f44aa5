"""Reading and writing hardware descriptions: the preset's numbers, strictness, and round trips."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_kit.errors import SpecError
from npu_kit.hw import (
    ENGINE_NAMES,
    TIER_NAMES,
    Engine,
    MemoryTier,
    NpuSpec,
    PowerMode,
    TileSpec,
    content_key,
    load_spec,
    numbers,
    preset_names,
    save_spec,
    source_of,
    spec_from_json,
    spec_to_json,
    verify_spec,
)
from npu_kit.hw.verify import DTYPES

DOCUMENTS = (
    "Apache TVM, ",
    "Arm Ethos-U Vela 3.10.0, ",
    "M. Horowitz, Computing's energy problem, ISSCC 2014",
    "N. Jouppi et al., In-Datacenter Performance Analysis of a Tensor Processing Unit, ISCA 2017",
    "NVDLA, ",
)


def example_content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(spec_to_json(load_spec("example")))
    return content


def load_changed(content: Any) -> NpuSpec:
    return spec_from_json(json.dumps(content), "machine.json")


# The machine of upstream's backend


def test_example_has_the_memory_of_upstreams_runtime() -> None:
    tiers = load_spec("example").tiers
    assert [(t.name, t.capacity_bytes, t.access_cycles) for t in tiers] == [
        ("L0", 4 * 1024, 0),
        ("L1", 256 * 1024, 1),
        ("L2", 512 * 1024, 4),
        ("L3", 1024**3, 100),
    ]


def test_example_has_the_constants_of_the_wheels_pattern_file() -> None:
    patterns = pytest.importorskip("tvm.relax.backend.contrib.example_npu.patterns")
    config, spec = patterns.NPUConfig, load_spec("example")
    assert (spec.tile.rows, spec.tile.columns) == (config.TILE_HEIGHT, config.TILE_WIDTH)
    assert spec.vector_elements == config.VECTOR_SIZE
    assert spec.dtypes == tuple(config.SUPPORTED_DTYPES)
    assert (spec.engine("matrix").rows, spec.engine("matrix").columns) == (config.MATRIX_ENGINE_SIZE,) * 2
    assert (spec.engine("vector").rows, spec.engine("vector").columns) == (1, config.VECTOR_ENGINE_WIDTH)
    assert tuple(mode.name for mode in spec.power_modes) == tuple(config.POWER_MODES)
    assert spec.tier("L1").capacity_bytes == config.SRAM_SIZE_KB * 1024
    assert spec.tier("L2").capacity_bytes == config.CMX_SIZE_KB * 1024


@pytest.mark.parametrize("name", preset_names())
def test_every_number_of_a_preset_cites_a_file_or_says_illustrative(name: str) -> None:
    spec = load_spec(name)
    unsourced = {
        path: source_of(spec, path)
        for path, _ in numbers(spec)
        if not source_of(spec, path).startswith(("illustrative", "a lane-wise engine", *DOCUMENTS))
    }
    assert unsourced == {}


def test_the_modes_are_ordered_as_their_names_say() -> None:
    spec = load_spec("example")
    high, balanced, low = (spec.power_mode(n) for n in ("high_performance", "balanced", "low_power"))
    assert high.clock_mhz > balanced.clock_mhz > low.clock_mhz
    assert high.active_share > balanced.active_share > low.active_share
    assert spec.power_mode() == balanced


# Names and paths


def test_a_spec_loads_by_name_path_text_and_itself(tmp_path: Path) -> None:
    spec = load_spec("example")
    path = save_spec(spec, tmp_path / "mine.json")
    assert load_spec(path) == load_spec(str(path)) == load_spec(spec) == load_spec() == spec
    assert load_spec(spec) is spec


def test_an_unknown_name_lists_the_presets_and_the_near_one() -> None:
    with pytest.raises(SpecError, match=r"no preset 'exmaple': the kit has .*\bexample\b.*Try: 'example'"):
        load_spec("exmaple")
    with pytest.raises(SpecError, match=r"the kit has .*\bexample\b.*path of a \.json file"):
        load_spec("zzz")


def test_a_wrong_argument_type_is_named() -> None:
    with pytest.raises(SpecError, match="cannot load a spec from int"):
        load_spec(3)  # type: ignore[arg-type]


def test_a_spec_given_as_object_is_checked() -> None:
    spec = load_spec("example")
    broken = NpuSpec(**{**spec.__dict__, "vector_elements": 0})
    with pytest.raises(SpecError, match="vector_elements"):
        load_spec(broken)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b" " * 1_000_001, "larger than 1,000,000 bytes"),
        (b'{"name": ', "is not JSON.*line 1 column"),
        (b"[" * 100_000, "nested too deep|is not JSON"),
        (b"[]", "the description in .*is a JSON array and must be an object"),
        (b"", "is not JSON"),
    ],
)
def test_an_unreadable_file_is_a_spec_error_that_names_it(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError, match=message) as caught:
        load_spec(path)
    assert str(path) in str(caught.value)


def test_a_folder_is_no_description(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read"):
        load_spec(tmp_path)


def test_saving_does_not_overwrite_unless_asked(tmp_path: Path) -> None:
    spec, path = load_spec("example"), tmp_path / "mine.json"
    save_spec(spec, path)
    smaller = spec.replace(tile=16)
    with pytest.raises(SpecError, match=r"it exists\. Try: another name, or overwrite=True"):
        save_spec(smaller, path)
    assert load_spec(path) == spec
    save_spec(smaller, path, overwrite=True)
    assert load_spec(path) == smaller
    with pytest.raises(SpecError, match="No such file"):
        save_spec(spec, tmp_path / "no" / "folder.json")


def test_a_spec_that_is_no_machine_is_not_saved(tmp_path: Path) -> None:
    broken = NpuSpec(**{**load_spec("example").__dict__, "vector_elements": 0})
    with pytest.raises(SpecError, match="vector_elements"):
        save_spec(broken, tmp_path / "mine.json")
    assert list(tmp_path.iterdir()) == []


# Strictness


@pytest.mark.parametrize(
    ("find", "replacement", "key"),
    [
        ('"name": "example",', '"name": "example", "name": "other",', "name"),
        ('"capacity_bytes": 262144', '"capacity_bytes": 1, "capacity_bytes": 262144', "tiers[1].capacity_bytes"),
        ('"minimum": 8', '"minimum": 8, "minimum": 8', "tile.minimum"),
        ('"dtypes": "Apache', '"dtypes": "x", "dtypes": "Apache', "sources.dtypes"),
        ('"int8": 0.3', '"int8": 0.3, "int8": 0.4', "mac_energy_pj.int8"),
    ],
)
def test_a_key_given_twice_is_refused(find: str, replacement: str, key: str) -> None:
    text = spec_to_json(load_spec("example"))
    assert text.count(find) == 1
    with pytest.raises(SpecError) as caught:
        spec_from_json(text.replace(find, replacement), "machine.json")
    assert caught.value.what == f"{key} in machine.json"
    assert "twice" in caught.value.why


def objects_of(content: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every object with fixed keys in a description, and the prefix of its keys."""
    found = [("", content), ("tile.", content["tile"])]
    for part in ("tiers", "engines", "power_modes"):
        found += [(f"{part}[{i}].", item) for i, item in enumerate(content[part])]
    return found


def test_every_missing_key_is_named() -> None:
    places = [(i, key) for i, (_, item) in enumerate(objects_of(example_content())) for key in item]
    assert len(places) > 50
    for index, key in places:
        content = example_content()
        prefix, item = objects_of(content)[index]
        del item[key]
        with pytest.raises(SpecError) as caught:
            load_changed(content)
        assert (caught.value.what, caught.value.why) == (f"{prefix}{key} in machine.json", "missing key")


def test_every_unknown_key_is_named_and_the_near_one_offered() -> None:
    for index, (prefix, item) in enumerate(objects_of(example_content())):
        key = next(iter(item))
        content = example_content()
        objects_of(content)[index][1][key + "s"] = 1
        with pytest.raises(SpecError) as caught:
            load_changed(content)
        assert caught.value.what == f"{prefix}{key}s in machine.json"
        assert caught.value.why.startswith("unknown key")
        assert caught.value.hint == f"{key!r}."


@pytest.mark.parametrize("wrong", [None, True, "8", 8.0, [], {}, 1e400, float("nan")])
def test_every_number_refuses_every_other_type(wrong: Any) -> None:
    for path, _ in numbers(load_spec("example")):
        if path.endswith(("active_share", "energy_pj_per_byte")) and isinstance(wrong, float):
            continue
        if path.startswith("mac_energy_pj") and isinstance(wrong, float):
            continue
        content = example_content()
        owner: Any = content
        *steps, last = path.replace("[", ".").replace("]", "").split(".")
        for step in steps:
            owner = owner[int(step)] if step.isdigit() else owner[step]
        owner[last] = wrong
        # json.dumps writes inf and nan as words, which are no JSON
        with pytest.raises(SpecError) as caught:
            load_changed(content)
        assert path in str(caught.value) or "is not JSON" in caught.value.why


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e400", "0", "-0.5", "1.0000001"])
def test_a_share_is_a_finite_number_of_zero_to_one(word: str) -> None:
    text = spec_to_json(load_spec("example")).replace('"active_share": 0.5', f'"active_share": {word}')
    with pytest.raises(SpecError, match=r"active_share|is not JSON|larger than any float"):
        spec_from_json(text)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e400", "-1e-9", "1000000.5", "null", "true"])
@pytest.mark.parametrize("energy", ['"energy_pj_per_byte": 162.5', '"int8": 0.3'])
def test_an_energy_is_a_finite_number_from_zero(energy: str, word: str) -> None:
    text = spec_to_json(load_spec("example"))
    assert text.count(energy) == 1
    key = energy.split(":")[0]
    for inside in ("0", "0.0", "5e-324", "1000000", "162.5"):
        spec_from_json(text.replace(energy, f"{key}: {inside}"))
    with pytest.raises(
        SpecError, match=r"tiers\[3\].energy_pj_per_byte|mac_energy_pj.int8|is not JSON|larger than any float"
    ):
        spec_from_json(text.replace(energy, f"{key}: {word}"))


def test_an_integer_too_long_to_print_is_refused() -> None:
    text = spec_to_json(load_spec("example")).replace("262144", "9" * 5000)
    with pytest.raises(SpecError):
        spec_from_json(text)
    with pytest.raises(SpecError, match="it is an integer of 20,001 bits"):
        load_spec("example").replace(vector_elements=2**20000)


@pytest.mark.parametrize("part", ["tiers", "engines", "power_modes", "dtypes", "sources", "tile", "mac_energy_pj"])
@pytest.mark.parametrize("wrong", [None, 3, "text", [1]])
def test_every_part_refuses_another_json_type(part: str, wrong: Any) -> None:
    content = example_content()
    content[part] = wrong
    with pytest.raises(SpecError, match=part):
        load_changed(content)


@pytest.mark.parametrize("version", [0, 2, "1", 1.0, True])
def test_another_format_version_is_refused(version: Any) -> None:
    with pytest.raises(SpecError, match=r"format_version .* reads 1"):
        load_changed(example_content() | {"format_version": version})


# Equality, hash and content key


def test_a_spec_is_a_key_of_a_dict() -> None:
    one, other = load_spec("example"), load_spec("example")
    assert one is not other
    assert {one: "seen"}[other] == "seen"
    assert one.replace(tile=16) not in {one: "seen"}


def test_content_keys_are_equal_for_equal_specs_only() -> None:
    spec = load_spec("example")
    assert content_key(spec) == content_key(load_spec("example"))
    changed = [
        spec.replace(tile=16),
        spec.replace(capacity_bytes={"L2": 1024}),
        spec.replace(name="other"),
        spec.replace(energy_pj_per_byte={"L3": 31.2}),
        spec.replace(mac_energy_pj={**spec.mac_energy_pj, "int8": 0.07}),
    ]
    assert len({content_key(s) for s in [spec, *changed]}) == 6
    assert len({spec, *changed}) == 6


def test_equal_specs_have_equal_keys_however_they_are_written() -> None:
    spec = load_spec("example")
    energies = dict(reversed([*spec.mac_energy_pj.items()]))
    other = NpuSpec(
        **{
            **spec.__dict__,
            "sources": dict(reversed([*spec.sources.items()])),
            "mac_energy_pj": {**energies, "float16": 2},  # 2.0 in the file
            "power_modes": (PowerMode("high_performance", 1000, 1), *spec.power_modes[1:]),  # 1.0 in the file
        }
    )
    assert other == spec
    assert hash(other) == hash(spec)
    assert content_key(other) == content_key(spec)
    zeros = [spec.replace(energy_pj_per_byte={"L0": zero}) for zero in (0, 0.0, -0.0)]
    assert len({content_key(s) for s in zeros}) == 1


def test_the_mappings_of_a_spec_do_not_change() -> None:
    energies = {"int8": 0.3}
    spec = load_spec("example")
    held = NpuSpec(**{**spec.__dict__, "mac_energy_pj": energies})
    energies["int8"] = 99.0
    assert held.mac_energy_pj == {"int8": 0.3}
    with pytest.raises(TypeError, match="item assignment"):
        held.mac_energy_pj["int8"] = 99.0  # type: ignore[index]
    with pytest.raises(TypeError, match="item assignment"):
        held.sources["dtypes"] = "me"  # type: ignore[index]


def test_a_spec_is_copied_and_pickled() -> None:
    spec = load_spec("example")
    for copied in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert copied == spec
        assert hash(copied) == hash(spec)
        assert copied.mac_energy_pj is not spec.mac_energy_pj


@st.composite
def specs(draw: st.DrawFn) -> NpuSpec:
    """Machines of any shape that the rules allow, at their limits too."""
    side = st.integers(1, 2**16 - 1)
    minimum = draw(st.integers(1, 64))
    tile = TileSpec(draw(st.integers(minimum, 2_000)), draw(st.integers(minimum, 2_000)), minimum)
    capacities = draw(st.lists(st.integers(tile.rows * tile.columns * 4, 2**50), min_size=4, max_size=4))
    capacities[3] = max(capacities)
    latencies = sorted(draw(st.lists(st.integers(0, 10**6), min_size=4, max_size=4)))
    energy = st.floats(0, 10**6) | st.integers(0, 10**6)
    tiers = tuple(
        MemoryTier(
            name, draw(st.text("AZaz 09é", max_size=32)), size, cycles, draw(st.integers(1, 2**20)), draw(energy)
        )
        for name, size, cycles in zip(TIER_NAMES, capacities, latencies, strict=True)
    )
    engines = tuple(
        Engine(name, draw(side) if name in ("matrix", "conv") else 1, draw(side))
        for name in draw(st.permutations(ENGINE_NAMES))
    )
    names = draw(st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True), min_size=1, unique=True))
    modes = tuple(
        PowerMode(name, draw(st.integers(1, 100_000)), draw(st.floats(0, 1, exclude_min=True))) for name in names
    )
    dtypes = tuple(draw(st.lists(st.sampled_from(DTYPES), min_size=1, unique=True)))
    more = draw(st.lists(st.sampled_from(DTYPES)))
    spec = NpuSpec(
        name=draw(st.sampled_from(names)),
        description=draw(st.text("AZaz 09é\"'<&", max_size=80)),
        tiers=tiers,
        engines=engines,
        tile=tile,
        vector_elements=draw(side),
        dtypes=dtypes,
        power_modes=modes,
        default_power_mode=draw(st.sampled_from(names)),
        mac_energy_pj={dtype: draw(energy) for dtype in (*dtypes, *more)},
    )
    return NpuSpec(**{**spec.__dict__, "sources": dict.fromkeys((p for p, _ in numbers(spec)), "illustrative")})


@given(specs())
def test_every_machine_round_trips(spec: NpuSpec) -> None:
    verify_spec(spec)
    text = spec_to_json(spec)
    again = spec_from_json(text)
    assert again == spec
    assert hash(again) == hash(spec)
    assert spec_to_json(again) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_any_json_is_a_machine_or_a_spec_error(content: Any) -> None:
    with pytest.raises(SpecError):
        load_changed(content)


@given(st.text(max_size=60))
def test_any_name_is_a_preset_or_a_spec_error(name: str) -> None:
    if name in preset_names():
        return
    with pytest.raises(SpecError):
        load_spec(name)
