"""The corpus of the fuzzer, found inputs included, through every loader: without the fuzzer itself."""

from __future__ import annotations

from pathlib import Path

import fuzz_targets
import pytest

from npu_kit.graph.ops import OPS

CASES = [
    pytest.param(target, path, id=f"{name}-{path.stem}")
    for name, target in fuzz_targets.TARGETS.items()
    for path in sorted((fuzz_targets.CORPUS / name).iterdir())
]


@pytest.mark.parametrize(("target", "path"), CASES)
def test_a_loader_takes_or_refuses(target, path: Path):
    target(path.read_bytes())


@pytest.mark.parametrize(("target", "path"), CASES)
def test_a_loader_takes_or_refuses_it_cut_and_changed(target, path: Path):
    content = path.read_bytes()
    for size in range(0, len(content), max(1, len(content) // 20)):
        target(content[:size])
        target(content[:size] + bytes([content[size] ^ 0x11]) + content[size + 1 :])


def test_every_loader_has_a_corpus():
    assert {path.name for path in fuzz_targets.CORPUS.iterdir()} == set(fuzz_targets.TARGETS)


def test_every_shape_rule_has_an_operation_in_the_corpus():
    texts = [path.read_text() for path in (fuzz_targets.CORPUS / "graph").iterdir()]
    covered = {op.rule for name, op in OPS.items() if any(f'"name":"{name}"' in text for text in texts)}
    assert covered == {op.rule for op in OPS.values()}
