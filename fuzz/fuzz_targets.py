"""What is fuzzed: one function per loader, given any bytes.

A function returns where a loader took the bytes or refused them with an error of the kit; any other exception, and a
value that does not survive the way through text, is a finding. ``tests/test_fuzz_targets.py`` replays the corpus.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from npu_kit.byoc.run.artefact import read_manifest
from npu_kit.byoc.run.region_text import package_from_json
from npu_kit.data.arrays import load_arrays
from npu_kit.errors import NpuKitError
from npu_kit.graph.ir import DTYPE_BYTES, Graph
from npu_kit.graph.ops import OPS
from npu_kit.graph.serialize import from_json, to_json
from npu_kit.hw.presets import load_spec, spec_from_json, spec_to_json
from npu_kit.outside import OutsideError
from npu_kit.plan.ir import Plan
from npu_kit.plan.planner import make_plan
from npu_kit.plan.serialize import plan_from_json, plan_to_json
from npu_kit.runtime.execute import execute

CORPUS = Path(__file__).with_name("corpus")
SMALL = 20_000  # elements and MACs of a graph that is run, too
ARRAY_BYTES = 1 << 20


def graph(data: bytes) -> None:
    """A JSON graph: the way through text, then its plan, and where it is small its values in both modes."""
    try:
        read = from_json(_text(data))
        assert from_json(to_json(read)) == read
        planned = make_plan(read, load_spec("example"))
    except NpuKitError:
        return
    if _work(read) <= SMALL:
        _run(planned)


def plan(data: bytes) -> None:
    """A stored plan: the way through text, then a run where it is small."""
    try:
        read = plan_from_json(_text(data))
    except NpuKitError:
        return
    assert plan_from_json(plan_to_json(read)) == read
    if _work(read.graph) <= SMALL:
        _run(read)


def spec(data: bytes) -> None:
    """A machine."""
    try:
        read = spec_from_json(_text(data))
    except NpuKitError:
        return
    assert spec_from_json(spec_to_json(read)) == read


def region(data: bytes) -> None:
    """The text that a compiled module carries."""
    try:
        read = package_from_json(_text(data))
    except NpuKitError:
        return
    assert package_from_json(read.to_json()) == read


def manifest(data: bytes) -> None:
    """The manifest beside an exported library."""
    try:
        _, entry, parameters = read_manifest(_text(data))
    except OutsideError:
        return
    assert entry
    for parameter in parameters:
        np.dtype(parameter.dtype)


def arrays(data: bytes) -> None:
    """An npz file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.npz")
        Path(path).write_bytes(data)
        try:
            read = load_arrays(path, max_bytes=ARRAY_BYTES)
        except NpuKitError:
            return
    assert sum(array.nbytes for array in read.values()) <= ARRAY_BYTES


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (graph, plan, spec, region, manifest, arrays)
}


def _run(plan: Plan) -> None:
    """In both modes, on two different fillings of the outputs: what is not written differs."""
    graph = plan.graph
    arguments = [np.ones(graph.nodes[i].outputs[0].shape, graph.nodes[i].outputs[0].dtype) for i in graph.arg_nodes]
    fast, step = _outputs(graph, 0x5A), _outputs(graph, 0xA5)
    try:
        execute(plan, arguments, fast)
        execute(plan, arguments, step, mode="step", poison=True)
    except (NpuKitError, ZeroDivisionError):
        return
    for one, other in zip(fast, step, strict=True):
        np.testing.assert_array_equal(one, other)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _work(read: Graph) -> int:
    """Elements of all tensors, and an upper bound of the work on them."""
    work = 0
    for node in read.nodes:
        (out,) = node.outputs
        work += out.elements
        if node.is_kernel:
            operation = OPS[node.name]
            types = [read.type_of(entry) for entry in node.inputs]
            work += operation.macs(types, node.attrs, out)
            window = node.attrs.get("pool_size", (1,))
            work += out.elements * (math.prod(window) if isinstance(window, tuple) else 1)
            work += sum(size for size in _sizes(node.attrs.get("padding", ())))
    return work


def _sizes(value: object) -> tuple[int, ...]:
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, tuple) else ()


def _outputs(read: Graph, byte: int) -> list[np.ndarray]:
    types = [read.type_of(entry) for entry in read.heads]
    return [
        np.full(kind.elements * DTYPE_BYTES[kind.dtype], byte, np.uint8).view(kind.dtype).reshape(kind.shape)
        for kind in types
    ]
