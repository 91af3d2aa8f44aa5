"""The views on real models: every call of the model is a part of the picture, and a real refusal is told."""

from __future__ import annotations

import pytest

import npu_kit
from npu_kit.byoc.codegen.lower import lower
from npu_kit.byoc.patterns.table import pattern_table
from npu_kit.zoo import build
from npu_kit_widgets import GraphExplorer, PartitionExplorer, PatternExplorer


@pytest.fixture(scope="module")
def digits():
    return build("digits")


def partition(mod, options):
    return npu_kit.partition(mod, **options)


@pytest.mark.parametrize("bind_constants", [True, False])
def test_each_call_of_a_partition_can_be_chosen(digits, bind_constants):
    explorer = PartitionExplorer({"digits": digits}, partition)
    explorer.bind_constants = bind_constants
    assert explorer.error is None
    spans = [call.span for call in explorer.partition.report]
    assert len(spans) == 11
    assert explorer._picture.part_ids() == spans


def test_a_small_l1_is_told_as_the_reason(digits):
    explorer = PartitionExplorer({"digits": digits}, partition)
    assert "memory" in {refusal.rule for call in explorer.partition.report for _, refusal in call.refusals}
    assert "does not fit L1 SRAM" in explorer._story.value


def test_the_order_of_the_kits_table_matters(digits):
    table = pattern_table()
    tables = {"specific first": table, "general first": table[::-1]}

    def run(mod, patterns):
        return npu_kit.partition(mod, patterns=patterns)

    explorer = PatternExplorer({"digits": digits}, tables, run)
    counts = []
    for name in tables:
        explorer.table = name
        assert explorer.error is None
        counts.append(len({(c.region, c.composite) for c in explorer.partition.report.on_npu}))
    assert counts[0] < counts[1]


def test_every_call_in_a_region_has_its_node(digits):
    explorer = GraphExplorer(npu_kit.partition(digits, bind_constants=True), lower)
    seen = []
    for span, call in explorer._calls.items():
        explorer.selected = span
        assert explorer.error is None
        assert bool(explorer.nodes) == call.is_on_npu
        seen += [(call.region, node) for node in explorer.nodes]
    assert len(set(seen)) == len(seen)
    kernels = sum(len(graph.kernels) for graph in explorer._graphs.values())
    assert len(seen) == kernels
