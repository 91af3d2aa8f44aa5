"""What ends the process in TVM 0.27 itself is right, or refused with a sentence, where the kit is the way in.

All of it runs in one child process: should a shield break, the tests fail, and pytest lives.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from onnx_cases import cases
from onnx_verdict import judge
from tvm.support import cc

from npu_kit import errors

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"

OWN = {name for name, value in vars(errors).items() if isinstance(value, type)} | {"ZeroDivisionError"}
REFUSED = {
    "divide_by_0_on_the_npu": "divide: 4 of 4 int32 divisors are 0",
    "divide_on_the_host": "relax.divide .*on the host: dividing int64 by 0",
    "floor_divide_on_the_host": "relax.floor_divide .*on the host: dividing int32 by 0",
    "mod_on_the_host": "relax.mod .*on the host: dividing int32 by 0",
    "divide_in_the_oracle": "relax.divide .*on the host: dividing int32 by 0",
    "divide_from_onnx": "divide: 4 of 4 int32 divisors are 0",
    "divide_by_a_constant_0": "divided by a constant 0",
    "a_convolution_of_no_channels_on_the_host": "0 input channels",
    "a_pool_without_a_window": "a window or stride of 0",
    "a_convolution_to_another_layout": "cannot build NCHW to NHWC",
    "a_convolution_in_a_packed_layout": "cannot build NCHW4c to NCHW4c",
    "a_pool_to_another_layout": "cannot build NCHW to NHWC",
    "a_library_cut_short": "and its manifest says",
    "nested_5000_deep": "5,000 deep",
}
RIGHT = {
    "divide_the_lowest_by_minus_1_on_the_npu": [-(2**31)] * 4,
    "if_and_reshape": [[[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]],
    "a_chain_of_1500_bindings": 1500,
    "a_convolution_of_no_channels": [0.0] * 8,
    "threads_that_share_a_model": [],
}


@pytest.fixture(scope="module")
def attempts():
    """What became of each attempt, by name; those after a crash are missing."""
    command = [sys.executable, "crashes.py"]
    child = subprocess.run(command, cwd=SUPPORT, capture_output=True, text=True, timeout=300, check=False)
    lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_sentence(attempts, name):
    if name == "a_library_cut_short" and cc.get_cc() is None:
        pytest.skip("TVM links a library with a C compiler, and there is none")
    assert attempts[name]["error"] in OWN
    assert re.search(REFUSED[name], attempts[name]["result"])


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_right(attempts, name):
    assert (attempts[name]["error"], attempts[name]["result"]) == ("", RIGHT[name])


def test_a_damaged_graph_is_read_or_refused(attempts):
    """Cut short, it is never a graph; with one character changed, it can be another one."""
    found = attempts["a_damaged_graph"]
    assert found["error"] == "" and 300 <= found["result"] <= 600


def test_the_kit_never_hands_text_to_a_reader_of_tvm():
    """tvm.ir.load_json ends the process on some damaged texts, and tvm.script.from_source runs what it reads."""
    for path in (ROOT / "npu_kit").rglob("*.py"):
        names = [node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)]
        assert not {"load_json", "from_source"} & set(names), path.name


@pytest.mark.parametrize(
    ("key", "outcome", "reason"),
    [
        ("node/test_batchnorm_example_training_mode", "wrong in TVM", "values differ"),
        ("node/test_maxpool_with_argmax_2d_precomputed_pads", "not imported", "Missing outputs"),
        ("node/test_qlinearconv", "not imported", "not supported for frontend ONNX: QLinearConv"),
        ("node/test_convinteger_with_padding", "not imported", "not supported for frontend ONNX: ConvInteger"),
        ("node/test_dequantizelinear_blocked", "not imported", "blocked quantization is not supported"),
        ("node/test_attention_4d", "not imported", "num_heads"),
    ],
)
def test_a_shortfall_of_the_conformance_table_is_tvms(key, outcome, reason):
    verdict = judge(cases("node")[key])
    assert verdict.outcome == outcome and reason in verdict.reason
