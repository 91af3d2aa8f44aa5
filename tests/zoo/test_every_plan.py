"""A plan for every model of the zoo verifies: on every machine, in every power mode, in every dtype its ops take."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from graphs import random_arrays

pytest.importorskip("tvm")

from npu_kit.byoc.compile import compile as compile_model
from npu_kit.errors import UnsupportedError
from npu_kit.graph.ir import Entry, Graph, Node
from npu_kit.graph.ops import OPS
from npu_kit.hw import load_spec, preset_names
from npu_kit.plan.planner import make_plan
from npu_kit.plan.traffic import plan_counters
from npu_kit.plan.verify import verify_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.record import record
from npu_kit.runtime.reference import run_graph
from npu_kit.zoo import MODELS, build, networks

SMALL: dict[str, dict[str, Any]] = {"conv_relu_pool": {"size": 30, "filters": 10}, "resnet18_stem": {"size": 40}}
NETWORKS = {"resnet18": networks.resnet18_model, "mobilenet_v2": networks.mobilenet_v2_model}
NAMES = [name for name in MODELS if name != "float64_matmul"]  # which no machine takes
MACHINES = [(name, mode.name) for name in preset_names() for mode in load_spec(name).power_modes]


@functools.cache
def graphs_of(name: str, size: int = 64) -> tuple[Graph, ...]:
    """The regions of a model, as the machine with all dtypes takes them."""
    module = NETWORKS[name](size=size) if name in NETWORKS else build(name, **SMALL.get(name, {}))
    return tuple(compile_model(module, "example", bind_constants=True).graphs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("machine", "mode"), MACHINES)
def test_every_model_on_every_machine_in_every_mode(name: str, machine: str, mode: str) -> None:
    for graph in graphs_of(name):
        verify_plan(make_plan(graph, load_spec(machine), power_mode=mode))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("machine", "mode"), MACHINES)
def test_the_networks_at_64x64_on_every_machine_in_every_mode(name: str, machine: str, mode: str) -> None:
    for graph in graphs_of(name):
        verify_plan(make_plan(graph, load_spec(machine), power_mode=mode))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_networks_in_full_size(name: str) -> None:
    for graph in graphs_of(name, size=224):
        verify_plan(make_plan(graph, load_spec("example")))


def retyped(node: Node, types: list[Any], dtype: str) -> Graph | None:
    """A region of one operation on inputs of ``dtype``; None where it does not take them."""
    inputs = []
    for kind, (_, allowed) in zip(types, OPS[node.name].inputs.items(), strict=True):
        wanted = dtype if dtype in allowed else kind.dtype
        inputs.append(Node("input", f"a{len(inputs)}", (replace(kind, dtype=wanted),)))
    if inputs[0].outputs[0].dtype != dtype:
        return None
    out_dtype = node.outputs[0].dtype if node.name in ("quantize", "dequantize") else None
    try:
        out = OPS[node.name].infer([one.outputs[0] for one in inputs], node.attrs, out_dtype)
    except UnsupportedError:
        return None
    kernel = replace(node, outputs=(out,), inputs=tuple(Entry(i) for i in range(len(inputs))), composite="")
    return Graph("one", (*inputs, kernel), tuple(range(len(inputs))), (Entry(len(inputs)),))


@functools.cache
def operations_in_every_dtype() -> dict[tuple[str, str], Graph]:
    """Operation and dtype -> the largest region of it in the zoo, with inputs of that dtype."""
    found: dict[tuple[str, str], Graph] = {}
    for graph in itertools.chain.from_iterable(graphs_of(name) for name in (*NAMES, *NETWORKS)):
        for node in (graph.nodes[i] for i in graph.kernels):
            types = [graph.type_of(entry) for entry in node.inputs]
            for dtype in next(iter(OPS[node.name].inputs.values())):
                single = retyped(node, types, dtype)
                key = node.name, dtype
                if single and (key not in found or _elements(single) > _elements(found[key])):
                    found[key] = single
    return found


def _elements(graph: Graph) -> int:
    return sum(node.outputs[0].elements for node in graph.nodes)


@pytest.mark.parametrize(("machine", "mode"), MACHINES)
def test_every_operation_of_the_zoo_in_every_dtype_it_takes(machine: str, mode: str) -> None:
    for graph in operations_in_every_dtype().values():
        verify_plan(make_plan(graph, load_spec(machine), power_mode=mode))


def test_the_zoo_has_the_operations_of_networks_in_floats_and_integers() -> None:
    found = operations_in_every_dtype()
    assert {name for name, _ in found} >= {"matmul", "conv1d", "conv2d", "max_pool2d", "avg_pool2d", "softmax", "add"}
    assert {dtype for name, dtype in found if name == "conv2d"} >= {"float16", "float32", "int8", "uint8", "int16"}


@pytest.mark.parametrize("machine", preset_names())
@pytest.mark.parametrize("name", NAMES)
def test_every_model_gives_its_values_on_every_machine(name: str, machine: str) -> None:
    for graph in graphs_of(name):
        plan = make_plan(graph, load_spec(machine))
        arrays = random_arrays(graph)
        with record() as trace:
            fast, step = execute(plan, arrays), execute(plan, arrays, mode="step", poison=True)
        for one, other, right in zip(fast, step, run_graph(graph, arrays), strict=True):
            assert one.tobytes() == other.tobytes()
            tolerance = 1 if right.dtype == np.int8 else 1e-4 * max(1.0, float(np.abs(right).max(initial=0)))
            np.testing.assert_allclose(one.astype(float), right.astype(float), rtol=0, atol=tolerance)
        assert trace.runs[0].counters == trace.runs[1].counters == plan_counters(plan)
