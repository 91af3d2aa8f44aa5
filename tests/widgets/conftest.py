"""Small partitions and graphs, made by hand: the Python half of a view needs no kernel, no browser and no TVM."""

from __future__ import annotations

from itertools import pairwise

import pytest

from npu_kit.byoc.report import CallReport, Partition, Refusal, Region, Report
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.hw import load_spec
from npu_kit.render import Arrow, Box, Diagram

FUSED = "example_npu.conv2d_relu_fused"
CONV = "example_npu.conv2d"


@pytest.fixture(scope="session")
def refusal():
    return Refusal("memory", "16 KB of L1", "4 KB", "a larger L1")


def call(index, op, where="npu", composite="", refusals=(), reason="", name="y"):
    return CallReport(
        index=index,
        span=f"main:{index}",
        op=op,
        name=name,
        type="1x4x6x6 float32",
        where=where,
        pattern=composite.split("#")[0],
        composite=composite,
        region="region0" if where == "npu" else "",
        refusals=refusals,
        reason=reason or (f"matched {composite.split('#')[0]}" if where == "npu" else f"no pattern names {op}"),
    )


def partition_of(calls, merged=True):
    regions = tuple(
        Region(label, f"symbol_of_{label}", f"function of {label}", (), ())
        for label in dict.fromkeys(c.region for c in calls if c.region)
    )
    spec = load_spec("example")
    return Partition(None, None, None, spec, regions, Report(tuple(calls)), merged, "Because of the test.")


@pytest.fixture(scope="session")
def fused(refusal):
    """conv2d and relu in one composite, a reshape on the host, a conv that was refused."""
    return partition_of(
        [
            call(0, "relax.nn.conv2d", composite=f"{FUSED}#0"),
            call(1, "relax.nn.relu", composite=f"{FUSED}#0"),
            call(2, "relax.reshape", where="host"),
            call(3, "relax.nn.conv2d", where="host", refusals=((CONV, refusal),), reason=f"{CONV} refused it"),
        ]
    )


@pytest.fixture(scope="session")
def apart():
    """The same model when nothing is fused, and the reshape is not there."""
    return partition_of(
        [
            call(0, "relax.nn.conv2d", composite=f"{CONV}#0"),
            call(1, "relax.nn.relu", composite="example_npu.relu#1"),
            call(2, "relax.nn.conv2d", composite=f"{CONV}#2"),
        ],
        merged=False,
    )


@pytest.fixture(scope="session")
def describe():
    """A picture with one box per call, as ``npu_kit.byoc.describe`` draws it: the key is the span."""

    def boxes(partition):
        drawn = tuple(Box(c.span, "op", c.op, place=c.where) for c in partition.report)
        arrows = tuple(Arrow(a.key, b.key) for a, b in pairwise(drawn))
        return Diagram("Partitioned model", drawn, arrows)

    return boxes


@pytest.fixture(scope="session")
def conv_relu():
    """conv2d 3x3 and relu, 1x4x12x12 to 20 filters, as the graph of the region above."""
    x, w, y = TensorType((1, 4, 12, 12), "float32"), TensorType((20, 4, 3, 3), "float32"), (1, 20, 12, 12)
    attrs = {
        "strides": (1, 1),
        "padding": (1, 1, 1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
    }
    out = TensorType(y, "float32")
    return Graph(
        "symbol_of_region0",
        (
            Node("input", "x", (x,)),
            Node("const", "w", (w,)),
            Node("kernel", "conv2d", (out,), (Entry(0), Entry(1)), attrs, f"{FUSED}#0", "main:0"),
            Node("kernel", "relu", (out,), (Entry(2),), {}, f"{FUSED}#0", "main:1"),
        ),
        (0, 1),
        (Entry(3),),
    )


@pytest.fixture(scope="session")
def long_matmul():
    """A matmul of 64x300 and 300x64: several chunks of the reduction axis for each tile."""
    a, b, c = (TensorType(shape, "float32") for shape in ((64, 300), (300, 64), (64, 64)))
    return Graph(
        "long_matmul",
        (
            Node("input", "a", (a,)),
            Node("input", "b", (b,)),
            Node("kernel", "matmul", (c,), (Entry(0), Entry(1)), {}, "example_npu.matmul#0", "main:0"),
        ),
        (0, 1),
        (Entry(2),),
    )
