"""first_difference: what counts as the same, and what the sentence says."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest

from npu_kit.byoc.report import CallReport, Report
from npu_kit.exercises import compare
from npu_kit.exercises.compare import describe, first_difference
from npu_kit.exercises.exercise import function_exercise
from npu_kit.graph.ir import Graph, Node


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (3, 3),
        (3.0, 3),
        (np.int64(3), 3),
        (np.True_, True),
        (float("nan"), float("nan")),
        (float("-inf"), float("-inf")),
        (2**60 + 1, 2**60 + 1),
        ("NHWC", "NHWC"),
        ([1, (2, 3)], (1, [2, 3])),
        ({"L1": 4}, {"L1": 4}),
        ({"a", "b"}, frozenset("ab")),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan])),
        (np.zeros((0, 3)), np.zeros((0, 3))),
    ],
)
def test_same(found, expected):
    assert first_difference(found, expected) == ""


@pytest.mark.parametrize(
    ("found", "expected", "sentence"),
    [
        (4, 3, "found 4, expected 3"),
        (2**60, 2**60 + 1, f"found {2**60}, expected {2**60 + 1}"),
        (True, 1, "found True, expected 1"),
        ("NCHW", "NHWC", "found 'NCHW', expected 'NHWC'"),
        ([1, 2, 5], (1, 2, 3), "element 2: found 5, expected 3"),
        ([1], (1, 2), "found 1 elements, expected 2"),
        ("ab", ("a", "b"), "found 'ab', expected a list or tuple of 2"),
        (np.arange(2), [0, 1], "found an array, [0, 1], expected a list or tuple of 2"),
        ({"L1": 4}, {"L1": 4, "L2": 8}, "the key 'L2' is missing"),
        ({"L1": 4, "L3": 0}, {"L1": 4}, "the key 'L3' is too much"),
        ({"L1": 5}, {"L1": 4}, "key 'L1': found 5, expected 4"),
        ({"a"}, {"a", "b"}, "'b' is missing"),
        (7, np.zeros(2), "found 7, which is an int, expected an array"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "found shape (2, 3), expected (3, 2)"),
        (np.zeros(2), np.zeros(2, "float32"), "found dtype float64, expected float32"),
    ],
)
def test_different(found, expected, sentence):
    assert first_difference(found, expected) == sentence


def test_array_names_the_first_element_in_order():
    expected = np.arange(6, dtype="int32").reshape(2, 3)
    found = expected.copy()
    found[1, 0] = 9
    found[1, 2] = 9
    sentence = "2 of 6 elements differ, the first at [1, 0]: found 9, expected 3"
    assert first_difference(found, expected) == sentence


def test_tolerance_is_relative_above_one_and_absolute_below():
    assert first_difference(1000.5, 1000.0, tolerance=1e-3) == ""
    assert first_difference(1002.0, 1000.0, tolerance=1e-3) != ""
    assert first_difference(1e-4, 0.0, tolerance=1e-3) == ""
    assert first_difference(np.float32([1e-2]), np.float32([0.0]), tolerance=1e-3) != ""


def test_describe_shortens():
    assert describe(np.arange(3)) == "[0, 1, 2]"
    assert describe(np.zeros((64, 64), "float32")) == "array 64x64 float32"
    assert len(describe("x" * 1000)) == 80
    assert len(describe(list(range(1000)))) == 80


def test_an_object_of_the_kit_is_told_by_type_and_name_and_not_printed():
    graph = Graph("region0", tuple(Node("input", f"x{i}", ()) for i in range(20)), (), ())
    assert describe(graph) == "Graph 'region0'"
    assert describe([graph, graph]) == "[Graph 'region0', Graph 'region0']"
    named = describe(replace(graph, symbol="fused_" + "conv2d_" * 50))
    assert named.startswith("Graph 'fused_conv2d_")
    assert len(named) < 60
    call = CallReport(0, "main:0", "relax.nn.relu", "y", "1x4 float32", "host", "", "", "", (), "it is a test")
    assert describe(Report((call,) * 3)) == "Report of length 3"


def test_a_wrong_answer_about_a_graph_stays_short():
    graph = Graph("region0", tuple(Node("input", f"x{i}", ()) for i in range(20)), (), ())
    outcome = function_exercise("graph.count", lambda one: len(one.nodes), lambda: [(graph,)]).check(lambda one: 3)
    assert outcome.message == "graph.count: <lambda>(Graph 'region0'): found 3, expected 20"


def test_examples_in_docstrings():
    results = doctest.testmod(compare)
    assert (results.attempted, results.failed) == (5, 0)
