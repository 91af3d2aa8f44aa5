"""compile and run: values, several outputs, inputs that stay as they are, errors that keep their class, threads."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R

import npu_kit
from npu_kit.byoc.run import regions
from npu_kit.byoc.run.host import build_for_host
from npu_kit.errors import ExecutionError, InputError, PartitionError, SpecError, UnsupportedError
from npu_kit.zoo import build


@I.ir_module
class ConvBlock:
    @R.function
    def main(x: R.Tensor((1, 3, 10, 10), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            y = R.nn.conv2d(x, w, padding=(1, 1))
            z = R.nn.relu(y)
            p = R.nn.max_pool2d(z, pool_size=(2, 2), strides=(2, 2))
            R.output(z, p)
        return (z, p)


@I.ir_module
class Divide:
    @R.function
    def main(x: R.Tensor((4,), "int32"), y: R.Tensor((4,), "int32")):
        with R.dataflow():
            z = R.divide(x, y)
            R.output(z)
        return z


@I.ir_module
class SubtractAfterMatmul:
    @R.function
    def main(a: R.Tensor((4, 4), "float32"), b: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            y = R.matmul(a, b)
            z = R.subtract(b, y)
            R.output(z)
        return z


@I.ir_module
class HostAndNpu:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.exp(R.add(x, y))
            b = R.nn.relu(w)
            c = R.matmul(a, b)
            R.output(c)
        return c


@I.ir_module
class Identity:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return (x, y)


@I.ir_module
class NotCalledMain:
    @R.function
    def forward(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y


def dense(seed, *, rows=2):
    """main(x) = relu(x @ w + b) with seeded constants, and the same in NumPy."""
    rng = np.random.default_rng(seed)
    w, b = rng.standard_normal((4, 8)).astype("float32"), rng.standard_normal(8).astype("float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((rows, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(w)))
            y = builder.emit_output(relax.op.nn.relu(builder.emit(relax.op.add(product, relax.const(b)))))
        builder.emit_func_output(y)
    return builder.get(), lambda value: np.maximum(value @ w + b, 0)


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, 4)).astype("float32")


@pytest.mark.parametrize("mode", ["fast", "step"])
@pytest.mark.parametrize("bind_constants", [False, True])
def test_values(x, mode, bind_constants):
    mod, reference = dense(1)
    compiled = npu_kit.compile(mod, bind_constants=bind_constants, mode=mode)
    assert compiled.mode == mode and len(compiled.graphs) == len(compiled.plans) == len(compiled.partition.regions) == 1
    assert [len(graph.constants) for graph in compiled.graphs] == [2 if bind_constants else 0]
    result = compiled.run(x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result, reference(x), atol=1e-5)


def test_a_model_that_returns_a_tuple_gives_one(rng):
    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((1, 3, 10, 10), (4, 3, 3, 3))]
    results = npu_kit.compile(ConvBlock).run(*arrays)
    expected = build_for_host(ConvBlock).run(*arrays)
    assert isinstance(results, tuple) and [r.shape for r in results] == [(1, 4, 10, 10), (1, 4, 5, 5)]
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, atol=1e-5)


@pytest.mark.parametrize("merge", ["safe", "never"])
def test_graphs_and_plans_are_in_region_order(merge):
    compiled = npu_kit.compile(ConvBlock, merge=merge)
    assert len(compiled.graphs) == (1 if merge == "safe" else 2)
    assert [graph.symbol for graph in compiled.graphs] == [region.symbol for region in compiled.partition.regions]
    assert [plan.graph for plan in compiled.plans] == list(compiled.graphs)
    spans = [node.span for graph in compiled.graphs for node in graph.nodes if node.is_kernel]
    assert spans == [call.span for call in compiled.partition.report.on_npu]


def test_composite_labels_are_those_of_the_report():
    compiled = npu_kit.compile(ConvBlock)
    labels = {node.span: node.composite for node in compiled.graphs[0].nodes if node.is_kernel}
    assert labels == {call.span: call.composite for call in compiled.partition.report.on_npu}


def test_operand_order_survives(rng):
    a, b = (rng.standard_normal((4, 4)).astype("float32") for _ in range(2))
    product = is_op("relax.matmul")(wildcard(), wildcard())
    patterns = [("example_npu.matmul_sub", is_op("relax.subtract")(wildcard(), product))]
    for chosen in (None, patterns):
        compiled = npu_kit.compile(SubtractAfterMatmul, patterns=chosen)
        np.testing.assert_allclose(compiled.run(a, b), b - a @ b, atol=1e-5)


def test_the_tile_is_that_of_the_machine_which_the_checks_ask(make_model):
    """A tile of 32 does not fit this L1: refused to the host, as if the machine had had that tile from the start."""
    inputs = {"a": ((64, 512), "float32"), "b": ((512, 64), "float32")}
    model = make_model(lambda builder, a, b: relax.op.matmul(a, b), **inputs)
    spec = npu_kit.load_spec("example").replace(tile=8, capacity_bytes={"L1": 24 * 1024})
    assert npu_kit.compile(model, spec).partition.report.counts == {"npu": 1, "host": 0}
    compiled = npu_kit.compile(model, spec, tile=32)
    wanted = npu_kit.partition(model, spec.replace(tile=32))
    assert compiled.partition.report == wanted.report and compiled.partition.spec == wanted.spec
    assert [refusal.rule for _, refusal in wanted.report[0].refusals[-1:]] == ["memory"]
    x, y = (np.random.default_rng(0).standard_normal(shape).astype("float32") for shape in ((64, 512), (512, 64)))
    np.testing.assert_allclose(compiled.run(x, y), x @ y, atol=1e-4)


def test_tile_power_mode_and_spec_reach_the_plan(x):
    mod, reference = dense(2)
    spec = npu_kit.load_spec("example").replace(name="mine")
    compiled = npu_kit.compile(mod, spec, tile=(8, 16), power_mode="low_power")
    (plan,) = compiled.plans
    assert (plan.spec.name, plan.power_mode) == ("mine", "low_power")
    assert (plan.spec.tile.rows, plan.spec.tile.columns) == (8, 16)
    np.testing.assert_allclose(compiled.run(x), reference(x), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"mode": "slow"}, ExecutionError), ({"power_mode": "turbo"}, SpecError), ({"spec": "exmaple"}, SpecError)],
)
def test_options_that_do_not_exist_are_refused(options, error):
    with pytest.raises(error):
        npu_kit.compile(dense(2)[0], **options)


def test_two_models_of_one_shape_live_together(x):
    models = [dense(seed) for seed in (1, 2)]
    compiled = [npu_kit.compile(mod, bind_constants=True) for mod, _ in models]
    for _ in range(2):
        for one, (_, reference) in zip(compiled, models, strict=True):
            np.testing.assert_allclose(one.run(x), reference(x), atol=1e-5)


def test_constants_are_stored_once(x):
    compiled = npu_kit.compile(dense(3)[0], bind_constants=True)
    loaders = [module for module in _all_modules(compiled.executable.mod) if module.kind == "const_loader"]
    assert len(loaders) == 1


def _all_modules(module):
    return [module, *(inner for imported in module.imports for inner in _all_modules(imported))]


def test_inputs_are_never_written_or_shared(monkeypatch):
    """Even where a kernel tries to write its input, and where the model returns its input."""
    compiled = npu_kit.compile(Identity)
    x = np.array([-1.0, 0.0, 2.0], "float32")
    kept, relu = compiled.run(x)
    kept[...] = relu[...] = 7
    assert x.tolist() == [-1.0, 0.0, 2.0]

    def scribble(_plan, arguments, outputs, **_options):
        arguments[0][...] = 99

    monkeypatch.setattr(regions, "execute", scribble)
    with pytest.raises(ValueError, match="read-only"):
        compiled.run(x)
    assert x.tolist() == [-1.0, 0.0, 2.0]


def test_arrays_in_any_memory_are_accepted(rng):
    mod, reference = dense(4)
    compiled = npu_kit.compile(mod)
    x = rng.standard_normal((2, 4)).astype("float32")
    frozen = x.copy()
    frozen.flags.writeable = False
    misaligned = np.frombuffer(b"\0" + x.tobytes(), "float32", offset=1).reshape(2, 4)
    for same in (x, frozen, x.astype(">f4"), np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], misaligned):
        np.testing.assert_allclose(compiled.run(same), reference(x), atol=1e-5)


def test_arrays_that_do_not_fit_are_refused(x):
    compiled = npu_kit.compile(dense(5)[0])
    with pytest.raises(InputError, match=r'parameter x \(2x4 float32\): the array is float64.*astype\("float32"\)'):
        compiled.run(x.astype("float64"))
    with pytest.raises(InputError, match=r"parameter x \(2x4 float32\): axis 0 must be 2 and is 3 in 3x4 float32"):
        compiled.run(np.zeros((3, 4), "float32"))
    with pytest.raises(InputError, match=r"the model got 2 arrays: it takes 1 array: x \(2x4 float32\)"):
        compiled.run(x, x)


def test_symbolic_extents_stay_on_the_host_and_must_agree(rng):
    compiled = npu_kit.compile(HostAndNpu)
    assert {call.op for call in compiled.partition.report.on_npu} == {"relax.nn.relu"}
    w = rng.standard_normal((4, 4)).astype("float32")
    for n in (1, 5):
        x, y = (rng.standard_normal((n, 4)).astype("float32") for _ in range(2))
        np.testing.assert_allclose(compiled.run(x, y, w), np.exp(x + y) @ np.maximum(w, 0), rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="n is 2 at axis 0 of 2x4 float32, and 5 at axis 0 of x"):
        compiled.run(x, np.zeros((2, 4), "float32"), w)


def test_an_entry_of_another_name():
    compiled = npu_kit.compile(NotCalledMain)
    assert compiled.entry == "forward"
    assert compiled.run(np.array([-1.0, 0.0, 2.0], "float32")).tolist() == [0.0, 0.0, 2.0]


def test_an_error_keeps_class_frames_and_node():
    compiled = npu_kit.compile(Divide)
    one, zero = np.ones(4, "int32"), np.zeros(4, "int32")
    with pytest.raises(ZeroDivisionError, match="divide") as caught:
        compiled.run(one, zero)
    frames = [entry.name for entry in caught.traceback]
    assert "run" in frames and "execute" in frames
    assert caught.value.__context__ is None
    assert any("in step 0" in note for note in caught.value.__notes__)
    assert compiled.run(one, one).tolist() == [1, 1, 1, 1]


def test_a_subclass_keeps_its_class(x, monkeypatch):
    compiled = npu_kit.compile(dense(6)[0])

    def fail(*_args, **_options):
        raise np.exceptions.AxisError("from the kernel")

    monkeypatch.setattr(regions, "execute", fail)
    with pytest.raises(np.exceptions.AxisError, match="from the kernel"):
        compiled.run(x)


@pytest.fixture
def ctrl_c():
    """Ctrl-C as a terminal has it: a process that was started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_kernel_is_a_keyboard_interrupt_and_the_next_run_is_right(x, monkeypatch):
    mod, reference = dense(7)
    compiled = npu_kit.compile(mod)

    def interrupt(*_args, **_options):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    with monkeypatch.context() as patched:
        patched.setattr(regions, "execute", interrupt)
        with pytest.raises(KeyboardInterrupt):
            compiled.run(x)
    np.testing.assert_allclose(compiled.run(x), reference(x), atol=1e-5)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_the_host_computes_is_a_keyboard_interrupt(rng):
    """Python delivers it at the entry of the next callback, where TVM loses the class."""
    builder, v = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1000, 1000), "float32"))
    with builder.function("main", [v]):
        with builder.dataflow():
            h = builder.emit(relax.op.sort(v, axis=0))
            for _ in range(4):
                h = builder.emit(relax.op.sort(builder.emit(relax.op.sin(relax.op.cos(h))), axis=0))
            y = builder.emit_output(relax.op.nn.relu(h))
        builder.emit_func_output(y)
    compiled = npu_kit.compile(builder.get())
    assert {call.op for call in compiled.partition.report.on_npu} == {"relax.nn.relu"}
    array = rng.standard_normal((1000, 1000)).astype("float32")
    expected = compiled.run(array)
    started = time.perf_counter()
    compiled.run(array)
    timer = threading.Timer((time.perf_counter() - started) * 0.4, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        compiled.run(array)
        time.sleep(5)  # on a machine that was suddenly faster, the interrupt comes here
    np.testing.assert_array_equal(compiled.run(array), expected)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_at_any_moment_of_compiling_is_a_keyboard_interrupt(x):
    """TVM makes a RuntimeError of one that Python delivers at the entry of a pattern's check."""
    mod, reference = dense(17)
    npu_kit.compile(mod, bind_constants=True)
    started = time.perf_counter()
    npu_kit.compile(mod, bind_constants=True)
    took = time.perf_counter() - started
    for part in range(10):
        timer = threading.Timer(took * (part + 0.5) / 10, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            npu_kit.compile(mod, bind_constants=True)
            time.sleep(5)  # on a machine that was suddenly faster, the interrupt comes here
    np.testing.assert_allclose(npu_kit.compile(mod, bind_constants=True).run(x), reference(x), atol=1e-5)


def test_threads_have_a_machine_each(rng):
    mod, reference = dense(8)
    compiled = npu_kit.compile(mod, bind_constants=True)
    inputs = [rng.standard_normal((2, 4)).astype("float32") for _ in range(8)]
    results: dict[int, list[np.ndarray]] = {}

    def work(number):
        results[number] = [compiled.run(inputs[number]) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(8):
        for result in results[number]:
            np.testing.assert_allclose(result, reference(inputs[number]), atol=1e-5)


def test_a_recording_sees_run_and_plain_machine(x):
    mod, _ = dense(9)
    compiled = npu_kit.compile(mod)
    machine = relax.VirtualMachine(compiled.executable.mod, tvm.cpu())
    with npu_kit.record() as trace:
        compiled.run(x)
        machine["main"](tvm.runtime.tensor(x))
    compiled.run(x)
    assert [run.plan for run in trace.runs] == list(compiled.plans) * 2
    assert trace.counters.macs == 2 * 2 * 4 * 8


def test_what_the_npu_cannot_compute_is_refused_with_ones_own_patterns():
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.sin(x))
        builder.emit_func_output(y)
    patterns = [("example_npu.sin", is_op("relax.sin")(wildcard()))]
    with pytest.raises(UnsupportedError, match=r"relax\.sin in composite example_npu\.sin#0"):
        npu_kit.compile(builder.get(), patterns=patterns)


def test_a_model_is_copied_as_itself_and_where_it_cannot_be_pickled_another_way_is_told(x):
    mod, reference = dense(11)
    compiled = npu_kit.compile(mod, bind_constants=True)
    for same in (copy.copy(compiled), copy.deepcopy({"model": compiled})["model"]):
        np.testing.assert_allclose(same.run(x), reference(x), atol=1e-5)
    with pytest.raises(UnsupportedError, match=r"cannot be pickled: .* Try: export\(path\) here and npu_kit\.load"):
        pickle.dumps(compiled)


def test_of_two_functions_none_is_main_and_the_advice_runs_one(x):
    forward, other = (dense(seed) for seed in (12, 13))
    mod = tvm.IRModule({"forward": forward[0]["main"], "other": other[0]["main"]})
    with pytest.raises(PartitionError, match=r"it has forward, other\. Try: tvm\.IRModule") as caught:
        npu_kit.compile(mod)
    advised = caught.value.hint.partition(", with")[0]
    assert advised == "tvm.IRModule({'main': mod['forward']})"
    result = npu_kit.compile(tvm.IRModule({"main": mod["forward"]})).run(x)
    np.testing.assert_allclose(result, forward[1](x), atol=1e-5)


def test_repr_is_short():
    assert len(repr(npu_kit.compile(dense(10)[0]))) < 200


def test_what_tvm_cannot_build_on_the_host_is_told(monkeypatch):
    def refuse(module):
        raise ValueError("Reshape expects the new shape to be convertible\nand more")

    monkeypatch.setattr("npu_kit.byoc.compile.build_executable", refuse)
    with pytest.raises(UnsupportedError, match=r"TVM cannot build what stays on the host.*ValueError: Reshape.*report"):
        npu_kit.compile(build("matmul_relu"))
