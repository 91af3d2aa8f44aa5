"""make fuzz: cases that are right end with 0; one that is wrong is printed, made small, and ends with 1."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "fuzz.py"


@pytest.fixture
def fuzz():
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_right_cases():
    command = [sys.executable, SCRIPT, "--cases", "6", "--seed", "3", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no mismatch in 6 cases of seed 3" in done.stdout


def test_a_wrong_kernel_is_found_and_the_case_made_small(fuzz, monkeypatch, capsys):
    from npu_kit.runtime import arithmetic

    monkeypatch.setitem(arithmetic._FUNCTIONS, "tanh", lambda attrs, dtype, out, x: x)
    # Not every case shows it: a tanh of zeros is right all the same.
    wrong = next(n for n in range(300) if "tanh" in _ops(n) and fuzz.run_part(0, n, 1) == 1)
    printed = capsys.readouterr().out
    assert f"case 0:{wrong}: Mismatch" in printed
    smaller = printed.split("smaller: ")[1]
    assert smaller.count("Step(") == 1 and "op='tanh'" in smaller


def _ops(number):
    from fuzz_cases import draw_case

    case = draw_case(0, number)
    return () if case.batches or case.options.may_refuse else case.model.ops
