"""The cases of the ``onnx`` package, held against what they came to when ``scripts/conformance.py --update`` ran last.

Here run those with something on the NPU, and the networks with random weights. ``make conformance`` runs all.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm")

from conformance_report import OFFLOADED, OUTCOMES, Expectation, Row, is_worse, report
from onnx_cases import NETWORKS, SUITES, cases, network
from onnx_verdict import compare, judge

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
EXPECTED = Expectation.read(Path(__file__).with_name("expected.json"))
ON_NPU = [key for key, found in EXPECTED.outcomes.items() if found in OFFLOADED and not key.startswith("network/")]


@pytest.mark.parametrize("key", ON_NPU)
def test_case(key):
    case = cases(key.split("/")[0]).get(key)
    if case is None:
        pytest.skip(f"onnx {EXPECTED.versions['onnx']} has this case, and the installed one has not")
    verdict = judge(case)
    assert verdict.npu_calls
    assert not is_worse(verdict.outcome, EXPECTED.outcomes[key]), verdict


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    case = network(name, seed=0)
    verdict = judge(case, bindings=[True])
    assert verdict.npu_calls
    assert not is_worse(verdict.outcome, EXPECTED.outcomes[case.key]), verdict


def test_nothing_is_expected_to_be_the_fault_of_the_kit():
    faults = {key: found for key, found in EXPECTED.outcomes.items() if found in ("crashed", "wrong", "failed")}
    assert faults == {}


LEFT_ON_THE_HOST = (
    r"refused: (dtype|shape), found .*(float64|bfloat16|u?int(32|64))$",  # no machine computes in these
    r"refused: shape, found .*v.* \w+$",  # a size that is known only at run time
    r"^reshape refused: operand, found an operand that comes from elsewhere$",  # it moves nothing, on either side
    r"^rms_norm refused: attribute, found \((\d+, )+\d+\)$",  # over several axes
    r"^no pattern for (nonzero|where|zeros|vm.builtin.tensor_to_shape|call_tir tile)$",  # not in the table
)


def test_every_case_with_an_operation_of_the_kit_is_on_the_npu_or_left_for_a_known_reason():
    """And the count that the document states is that of the expectation."""
    text = DOCUMENT.read_text(encoding="utf-8")
    right = sum(found in OFFLOADED for found in EXPECTED.outcomes.values())
    assert re.search(rf"^\| all \| \d+ \| {right} \| \d+ \|$", text, re.MULTILINE)
    left = re.findall(r"^\| (\w+ refused: .*|no pattern .*) \| \d+ \|$", text, re.MULTILINE)
    assert left and [why for why in left if not any(re.search(known, why) for known in LEFT_ON_THE_HOST)] == []


def test_the_package_still_has_nearly_all_of_the_cases():
    known = {key for suite in SUITES for key in cases(suite)}
    expected = [key for key in EXPECTED.outcomes if not key.startswith("network/")]
    assert sum(key in known for key in expected) > 0.95 * len(expected)


def test_the_document_was_generated_with_the_expectation():
    text = DOCUMENT.read_text(encoding="utf-8")
    for suite in (*SUITES, "network"):
        count = [
            sum(1 for key, found in EXPECTED.outcomes.items() if key.split("/")[0] == suite and found == outcome)
            for outcome in reversed(OUTCOMES)
        ]
        assert f"| {' | '.join([suite, *map(str, count), str(sum(count))])} |" in text


def test_a_worse_outcome_is_noticed():
    assert is_worse("right in part", "right")
    assert is_worse("crashed", "not imported")
    assert not is_worse("right", "right in part")
    assert not is_worse("wrong", None)


@pytest.mark.parametrize(
    ("found", "expected", "what"),
    [
        ([1.0, 2.0], [1.0, 2.0005], ""),
        ([1.0, 2.0], [1.0, 2.1], "1 of 2 values differ, at (1,) 2 for 2.1"),
        ([1.0, float("nan")], [1.0, float("nan")], ""),
        ([1.0, float("nan")], [1.0, 1.0], "1 of 2 values differ"),
        ([1], [1.0], r"(1,) int64, and (1,) float64 expected"),
        ([[1.0]], [1.0], "(1, 1) float64, and (1,) float64 expected"),
        ([1, 2], [1, 3], "1 of 2 values differ"),
    ],
)
def test_a_difference_is_noticed(found, expected, what):
    difference = compare(np.asarray(found), [np.asarray(expected)], rtol=1e-3, atol=1e-7)
    assert what in difference and bool(what) == bool(difference)


def test_a_report_escapes_what_a_message_holds():
    row = Row("node/test_x", "X", "not imported", 0, 0, 0, "<class 'A'> | B & C")
    assert "&lt;class 'A'&gt; &#124; B &amp; C" in report([row])
