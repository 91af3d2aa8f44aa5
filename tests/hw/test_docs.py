"""docs/hardware.md: its table is that of the files, its rows are the keys of a file, and its examples run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from npu_kit.hw import load_spec, preset_names, spec_to_json
from npu_kit.hw.table import preset_table

BEGIN, END = "<!-- begin: python -m npu_kit.hw.table -->\n", "<!-- end -->\n"


def test_the_table_in_the_docs_is_that_of_the_files(repository: Path, request: pytest.FixtureRequest) -> None:
    path = repository / "docs" / "hardware.md"
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    table, after = rest.split(END)
    if request.config.getoption("--update-golden"):
        path.write_text(before + BEGIN + preset_table() + END + after, encoding="utf-8", newline="\n")
        return
    assert table == preset_table(), "run pytest --update-golden tests/hw/test_docs.py"


def test_each_row_has_a_cell_for_each_preset() -> None:
    lines = preset_table().splitlines()
    assert sorted(re.findall(r"`(\w+)`", lines[0])) == sorted(preset_names())
    assert {line.count("|") for line in lines} == {len(preset_names()) + 2}


def test_the_example_stands_first_and_has_its_numbers() -> None:
    cells = {line.split(" | ")[0].strip("| "): line.split(" | ")[1] for line in preset_table().splitlines()[2:]}
    assert cells["peak in that mode"] == "89.6 GMAC/s"
    assert cells["DRAM in that mode"] == "11.2 GB/s"
    assert cells["ridge point"] == "8 MACs a DRAM byte"
    assert cells["L1"] == "SRAM: 256 KiB, 128 B a cycle, 6.57 pJ a byte"
    assert cells["pJ a MAC"] == "int8 0.3, int16 0.9, float16 2, float32 4.6"


def test_no_text_of_a_preset_breaks_the_table() -> None:
    for name in preset_names():
        spec = load_spec(name)
        assert not any("|" in text for text in (spec.description, *(tier.label for tier in spec.tiers)))


def test_the_docs_name_each_key_of_a_file(repository: Path) -> None:
    content = json.loads(spec_to_json(load_spec("example")))
    keys = {*content, *(f"tiers[i].{key}" for key in content["tiers"][0] if key not in ("name", "label"))}
    text = (repository / "docs" / "hardware.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text.split("## What a file says")[1].split("\n## ")[0], re.MULTILINE)
    assert {key for row in rows for key in re.findall(r"`(.+?)`", row)} == keys


def test_the_examples_of_the_docs_run(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (repository / "docs" / "hardware.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, "docs/hardware.md", "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("48 bytes a cycle: N. Jouppi et al.")
    assert second == "changed with replace"
