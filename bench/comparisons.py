"""What is compared: the kit's fast mode with plain NumPy, ONNX Runtime and TVM on the same work."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import tvm_peers
from numpy_layers import activate, convolve, numpy_network
from timing import Comparison

import npu_kit
from npu_kit.byoc.compile import Compiled
from npu_kit.graph.ir import Entry, Graph, Node, TensorType
from npu_kit.graph.ops import OPS, normalise_attrs
from npu_kit.graph.verify import verify_graph
from npu_kit.plan.planner import make_plan
from npu_kit.runtime.execute import execute
from npu_kit.runtime.fast import FastPlan
from npu_kit.zoo import networks

Array = np.ndarray[Any, Any]
HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime"))
NO_ONNX = () if HAS_ONNX else ("ONNX Runtime: not installed (pip install 'npu-kit[bench]')",)


def comparisons(threads: int, only: str = "") -> Iterator[Comparison]:
    """The comparisons with ``only`` in their names, the quick ones first; each is set up when it is asked for."""
    builders: dict[str, Callable[[], Comparison]] = {
        "matmul": lambda: matmul(threads),
        "matmul, small tiles": matmul_small_tiles,
        "matmul, int8": matmul_int8,
        "convolution": convolution,
        "planning": planning,
        "modes": modes,
    }
    if HAS_ONNX:
        models = {
            "resnet18": Network(networks.resnet18, threads),
            "resnet18, batch norm kept": Network(networks.resnet18, threads, fold=False),
            "mobilenet_v2": Network(networks.mobilenet_v2, threads),
        }
        for name, model in models.items():
            builders[name] = partial(model.comparison, name)
            builders[f"{name}, recorded"] = partial(model.recorded, f"{name}, recorded")
    for name, build in builders.items():
        if only in name:
            yield build()


def one_operation(name: str, shapes: tuple[tuple[int, ...], ...], dtype: str = "float32", **attrs: Any) -> Graph:
    """A graph of one operation on inputs of these shapes."""
    types = [TensorType(shape, dtype) for shape in shapes]
    out = OPS[name].infer(types, full := normalise_attrs(name, attrs, types), "int32" if dtype == "int8" else None)
    inputs = [Node("input", f"a{i}", (kind,)) for i, kind in enumerate(types)]
    entries = tuple(map(Entry, range(len(inputs))))
    kernel = Node("kernel", name, (out,), entries, full, f"example_npu.{name}#0")
    graph = Graph(name, (*inputs, kernel), tuple(range(len(inputs))), (Entry(len(inputs)),))
    verify_graph(graph)
    return graph


def runner(graph: Graph, arrays: list[Array], *, tile: int | None = None) -> Callable[[], Any]:
    """Fast mode of a graph on arrays, into one output array."""
    plan = make_plan(graph, npu_kit.load_spec("example"), tile=tile)
    prepared = FastPlan(plan)
    out = [np.empty(graph.type_of(head).shape, graph.type_of(head).dtype) for head in graph.heads]
    return lambda: execute(plan, arrays, out, prepared=prepared)


def square(size: int, dtype: str = "float32") -> list[Array]:
    rng = np.random.default_rng(0)
    if dtype == "int8":
        return [rng.integers(-128, 127, (size, size), np.int8, endpoint=True) for _ in range(2)]
    return [rng.standard_normal((size, size), dtype=np.float32) for _ in range(2)]


def matmul(threads: int, size: int = 1024) -> Comparison:
    a, b = square(size)
    out = np.empty((size, size), np.float32)
    function = tvm_peers.matmul_function(size)
    functions = {
        "np.matmul": lambda: np.matmul(a, b, out=out),
        "kit, 32x32 tiles": runner(one_operation("matmul", (a.shape, b.shape)), [a, b]),
        "TVM, ten-line schedule": tvm_peers.compiled(tvm_peers.scheduled(function), a, b, tvm_peers.THIS_PROCESSOR),
        "TVM, default build": tvm_peers.compiled(function, a, b, tvm_peers.DEFAULT),
    }
    if HAS_ONNX:
        from onnx_layers import matmul_session

        functions["ONNX Runtime"] = matmul_session(size, threads, a, b)
    question = f"float32 matmul, {size} cubed: how far from the BLAS is a run that keeps to the tiles?"
    notes = (*NO_ONNX, tvm_peers.UNTUNED)
    return Comparison("matmul", question, functions, "np.matmul", ["TVM, default build"], notes)


def matmul_small_tiles(size: int = 1024) -> Comparison:
    a, b = square(size)
    out = np.empty((size, size), np.float32)
    graph = one_operation("matmul", (a.shape, b.shape))
    functions = {
        "np.matmul": lambda: np.matmul(a, b, out=out),
        "kit, 16x16 tiles": runner(graph, [a, b], tile=16),
        "kit, 8x8 tiles": runner(graph, [a, b], tile=8),
    }
    return Comparison("matmul, small tiles", "and with smaller tiles?", functions, "np.matmul")


def matmul_int8(size: int = 1024) -> Comparison:
    shapes = ((size, size), (size, size))
    functions = {
        "kit, float32": runner(one_operation("matmul", shapes), square(size)),
        "kit, int8 into int32": runner(one_operation("matmul", shapes, "int8"), square(size, "int8")),
    }
    question = "what do exact integers cost, which the BLAS only has as floats?"
    return Comparison("matmul, int8", question, functions, "kit, float32")


def convolution() -> Comparison:
    """3x3, 64 to 64 channels, 56 x 56: a layer of ResNet-18."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((1, 56, 56, 64), (3, 3, 64, 64)))
    matrix = w.reshape(-1, 64)
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 1, 1, 1)}
    functions = {
        "NumPy, im2col": lambda: activate(convolve(x, matrix, 3, 1), ""),
        "kit": runner(one_operation("conv2d", (x.shape, w.shape), **layouts), [x, w]),
    }
    question = "conv 3x3, 64 to 64 channels, 56x56, weights packed at each run: what does one layer cost?"
    return Comparison("convolution", question, functions, "NumPy, im2col")


class Network:
    """A network of the zoo from ONNX, through the whole path: partition, codegen, TVM's virtual machine."""

    def __init__(self, topology: Any, threads: int, *, fold: bool = True) -> None:
        self.topology, self.threads, self.fold = topology, threads, fold
        self.image = np.random.default_rng(0).standard_normal((1, 3, 224, 224), dtype=np.float32)

    @cached_property
    def model(self) -> Any:
        from onnx_layers import onnx_model

        return onnx_model(self.topology, fold=self.fold)

    @cached_property
    def module(self) -> Any:
        from tvm.relax.frontend.onnx import from_onnx

        return from_onnx(self.model, keep_params_in_input=False)

    @cached_property
    def compiled(self) -> Compiled:
        return npu_kit.compile(self.module, bind_constants=True)

    def comparison(self, name: str) -> Comparison:
        """Against plain NumPy, ONNX Runtime and TVM's own build."""
        from onnx_layers import session

        plain = numpy_network(self.topology)
        functions = {
            "NumPy, im2col": lambda: plain.run(self.image),
            "kit": lambda: self.compiled.run(self.image),
            "ONNX Runtime": session(self.model, self.threads, image=self.image),
            "TVM, default build": tvm_peers.default_model(self.module, self.image),
        }
        question = "1x3x224x224 float32, constants bound, merged regions: how long does an image take?"
        return Comparison(name, question, functions, "NumPy, im2col", ["TVM, default build"], (tvm_peers.UNTUNED,))

    def recorded(self, name: str) -> Comparison:
        """The same run while it is recorded."""

        def recorded() -> None:
            with npu_kit.record():
                self.compiled.run(self.image)

        functions = {"kit": lambda: self.compiled.run(self.image), "kit, recorded": recorded}
        return Comparison(name, "what does recording a run cost?", functions, "kit")


def planning() -> Comparison:
    """Plans of whole networks and of one layer: tiles, places, cost and proof."""
    spec = npu_kit.load_spec("example")
    layer = one_operation("conv2d", ((1, 64, 56, 56), (64, 64, 3, 3)), padding=(1, 1, 1, 1))
    functions = {"one layer": lambda: make_plan(layer, spec)}
    for name, build in (("resnet18", networks.resnet18_model), ("mobilenet_v2", networks.mobilenet_v2_model)):
        graph = npu_kit.compile(build(), bind_constants=True).graphs[0]
        functions[name] = lambda graph=graph: make_plan(graph, spec)
    return Comparison(
        "planning", "does a slider that plans again stay smooth?", functions, "one layer", ["mobilenet_v2"]
    )


def modes() -> Comparison:
    """Both modes on the trained classifier of the lessons."""
    from npu_kit.data import load_digits_data

    module = npu_kit.zoo.build("digits")
    image = load_digits_data().test_images[:1]
    functions = {}
    for mode in ("fast", "step"):
        compiled = npu_kit.compile(module, bind_constants=True, mode=mode)
        functions[mode] = lambda compiled=compiled: compiled.run(image)
    return Comparison("modes", "what does moving every tile of one digit through real buffers cost?", functions, "fast")
