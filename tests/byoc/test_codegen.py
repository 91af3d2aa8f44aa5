"""Codegen and the seam to the virtual machine: what RunCodegen is given back, and what happens when it runs."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
import tvm
import tvm.relax.backend.contrib.example_npu
from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen
from tvm.script import ir as I
from tvm.script import relax as R

from npu_kit.byoc.codegen import generate, library
from npu_kit.byoc.run import regions, store
from npu_kit.byoc.run.callback import guarded
from npu_kit.byoc.run.region_text import Package, Settings, digest_constants, key_of, package_from_json
from npu_kit.errors import ExecutionError, GraphError, InputError, PartitionError, PlanError, SpecError
from npu_kit.graph.serialize import to_json
from npu_kit.hw.presets import load_spec, save_spec


@I.ir_module
class MatmulRelu:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


@I.ir_module
class Divide:
    @R.function
    def main(x: R.Tensor((4,), "int32"), y: R.Tensor((4,), "int32")):
        with R.dataflow():
            z = R.divide(x, y)
            R.output(z)
        return z


@I.ir_module
class BatchNormAlone:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4, 4), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        var: R.Tensor((3,), "float32"),
    ):
        with R.dataflow():
            out = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, training=False)
            R.output(out)
        return out


@I.ir_module
class TupleParameter:
    @R.function
    def region(
        t: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")),
    ) -> R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")):
        R.func_attr({"Codegen": "example_npu"})
        a = t[0]
        b = t[1]
        c: R.Tensor((2,), "float32") = R.subtract(b, a)
        return (c, b)

    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
        cls = TupleParameter
        with R.dataflow():
            t = (x, y)
            z = cls.region(t)
            R.output(z)
        return z


def layers(seed, count=2, size=4):
    """main(x) = relu(... relu(x @ w0) @ w1 ...) with seeded constants, and the same in NumPy."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((size, size)).astype("float32") for _ in range(count)]
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, size), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for weight in weights:
                y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(y, relax.const(weight)))))
            y = builder.emit_output(y)
        builder.emit_func_output(y)

    def reference(value):
        for weight in weights:
            value = np.maximum(value @ weight, 0)
        return value

    return builder.get(), reference


def partition(mod, *, bind_constants=False, annotate=False):
    patterns = get_patterns_with_prefix("example_npu")
    mod = FuseOpsByPattern(patterns, bind_constants=bind_constants, annotate_codegen=annotate)(mod)
    return mod if annotate else MergeCompositeFunctions()(mod)


def build(mod, options=None, **how):
    generated = RunCodegen({"example_npu": options} if options else None)(partition(mod, **how))
    return relax.build(generated.without_attr("const_name_to_constant"), tvm.target.Target("llvm"))


def machine(executable):
    return relax.VirtualMachine(executable.mod, tvm.cpu())


def call(vm, *arrays):
    return vm["main"](*map(tvm.runtime.tensor, arrays))


def generate_only_region(mod, settings=None, **how):
    parts = partition(mod, **how)
    functions = (f for f in parts.functions.values() if isinstance(f, relax.Function))
    (function,) = (f for f in functions if "Codegen" in (f.attrs or {}))
    return generate.generate(function, settings or Settings(load_spec("example")))


@pytest.fixture
def matrices(rng):
    return tuple(rng.standard_normal(shape).astype("float32") for shape in ((2, 4), (4, 8)))


@pytest.fixture
def executed(monkeypatch):
    """What ``regions`` hands to ``execute``, in order: (plan, arguments, outputs, mode)."""
    calls = []
    real = regions.execute

    def record(plan, arguments, outputs, *, mode, prepared=None):
        constants = prepared.constants if prepared else ()
        calls.append((plan, [*arguments, *constants], list(outputs), mode))
        return real(plan, arguments, outputs, mode=mode, prepared=prepared)

    monkeypatch.setattr(regions, "execute", record)
    return calls


@pytest.mark.parametrize("annotate", [False, True], ids=["merged", "annotated"])
@pytest.mark.parametrize("bind_constants", [False, True])
def test_values_are_those_of_numpy(rng, annotate, bind_constants):
    mod, reference = layers(1)
    x = rng.standard_normal((2, 4)).astype("float32")
    vm = machine(build(mod, annotate=annotate, bind_constants=bind_constants))
    np.testing.assert_allclose(call(vm, x).numpy(), reference(x), atol=1e-5)


def test_two_models_of_one_shape_live_together(rng):
    x = rng.standard_normal((2, 4)).astype("float32")
    models = [layers(seed) for seed in (1, 2)]
    machines = [machine(build(mod, bind_constants=True)) for mod, _ in models]
    for _ in range(2):
        for vm, (_, reference) in zip(machines, models, strict=True):
            np.testing.assert_allclose(call(vm, x).numpy(), reference(x), atol=1e-5)


def test_one_module_for_all_regions_and_their_constants():
    parts = partition(layers(1)[0], bind_constants=True, annotate=True)
    external = RunCodegen()(parts).attrs["external_mods"]
    assert len(external) == 1
    assert [module.kind for module in external[0].imports] == ["llvm"]


def test_codegen_can_run_twice(matrices):
    x, w = matrices
    parts = partition(MatmulRelu)
    for generated in (RunCodegen()(parts), RunCodegen()(parts), RunCodegen()(RunCodegen()(parts))):
        vm = machine(relax.build(generated, tvm.target.Target("llvm")))
        np.testing.assert_allclose(call(vm, x, w).numpy(), np.maximum(x @ w, 0), atol=1e-5)


def test_options_choose_machine_tile_mode_and_power(matrices, executed, tmp_path):
    x, w = matrices
    path = save_spec(
        load_spec("example").replace(name="mine", capacity_bytes={"L1": 64 * 1024}), tmp_path / "mine.json"
    )
    options = {"spec": str(path), "power_mode": "low_power", "tile": [8, 16], "mode": "step"}
    result = call(machine(build(MatmulRelu, options)), x, w).numpy()
    np.testing.assert_allclose(result, np.maximum(x @ w, 0), atol=1e-5)
    ((plan, _, _, mode),) = executed
    assert (plan.spec.name, plan.spec.tier("L1").capacity_bytes) == ("mine", 64 * 1024)
    assert (plan.power_mode, mode) == ("low_power", "step")
    assert (plan.spec.tile.rows, plan.spec.tile.columns, plan.steps[0].axis("n").tile) == (8, 16, 16)


def test_default_options(matrices, executed):
    call(machine(build(MatmulRelu)), *matrices)
    ((plan, _, _, mode),) = executed
    assert (plan.spec, plan.power_mode, mode) == (load_spec("example"), "balanced", "fast")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tiles": 16}, PartitionError, r"no option 'tiles' of example_npu: it has spec: .*; tile: "),
        ({"tile": "16"}, PartitionError, "option tile of example_npu: it is '16', not the side"),
        ({"tile": [8, 8, 8]}, PartitionError, "option tile of example_npu"),
        ({"tile": True}, PartitionError, "option tile of example_npu"),
        ({"spec": 3}, PartitionError, "option spec of example_npu: it is 3"),
        ({"spec": "exmaple"}, SpecError, "no preset 'exmaple'"),
        ({"power_mode": "turbo"}, SpecError, "no power mode 'turbo'"),
        ({"mode": "slow"}, ExecutionError, "no mode 'slow': there are fast and step"),
    ],
)
def test_options_that_do_not_exist_are_named(options, error, message):
    with pytest.raises(error, match=message):
        generate.read_options(options)


def test_a_wrong_option_keeps_its_message_through_run_codegen():
    with pytest.raises(RuntimeError, match="PartitionError: no option 'tiles' of example_npu"):
        RunCodegen({"example_npu": {"tiles": 16}})(partition(MatmulRelu))


@pytest.mark.parametrize("tile", [None, 16, (8, 16)])
def test_options_written_are_read_back(tile):
    settings = Settings(load_spec("example").replace(name="other", tile=tile), "low_power", "step")
    assert generate.read_options(generate.write_options(settings)) == settings


def test_a_region_that_does_not_fit_fails_when_it_is_compiled():
    tiny = load_spec("example").replace(capacity_bytes={"L1": 64})
    with pytest.raises(PlanError, match="64"):
        generate_only_region(MatmulRelu, Settings(tiny))


def forget_regions():
    store._recent.clear()
    gc.collect()


def test_a_long_text_is_handed_over_once(matrices, monkeypatch):
    x, w = matrices
    loads = []
    real = regions.load
    monkeypatch.setattr(library, "MAX_INLINE_BYTES", 0)
    load = guarded(lambda key, text: (loads.append(key), real(key, text))[1])
    tvm.register_global_func(regions.LOAD, load, override=True)
    try:
        vm = machine(build(MatmulRelu, {"tile": 24}))
        forget_regions()  # as in a process that loads a library
        for _ in range(3):
            np.testing.assert_allclose(call(vm, x, w).numpy(), np.maximum(x @ w, 0), atol=1e-5)
    finally:
        tvm.register_global_func(regions.LOAD, guarded(real), override=True)
    assert len(loads) == 1 and store.find(loads[0]) is not None


def test_inputs_are_read_only_views_and_outputs_are_written_in_place(executed, rng):
    mod, _ = layers(3)
    call(machine(build(mod, bind_constants=True)), rng.standard_normal((2, 4)).astype("float32"))
    ((plan, arguments, outputs, _),) = executed
    assert [array.flags.writeable for array in arguments] == [False] * len(plan.graph.arg_nodes)
    assert not any(array.flags.owndata for array in (*arguments, *outputs))
    assert [array.flags.writeable for array in outputs] == [True]


def test_batch_norm_returns_three_tensors(rng):
    x = rng.standard_normal((2, 3, 4, 4)).astype("float32")
    gamma, beta, mean, var = (rng.uniform(0.5, 2.0, 3).astype("float32") for _ in range(4))
    results = call(machine(build(BatchNormAlone, annotate=True)), x, gamma, beta, mean, var)
    out, new_mean, new_var = (result.numpy() for result in results)
    scale, shift = (value.reshape(1, 3, 1, 1) for value in (gamma / np.sqrt(var + 1e-5), beta))
    np.testing.assert_allclose(out, (x - mean.reshape(1, 3, 1, 1)) * scale + shift, atol=1e-5)
    np.testing.assert_array_equal(new_mean, mean)
    np.testing.assert_array_equal(new_var, var)


def test_a_wrong_number_of_arguments_is_counted_before_anything_is_read(matrices):
    code = generate_only_region(MatmulRelu).code
    x, w = map(tvm.runtime.tensor, matrices)
    with pytest.raises(RuntimeError, match=r"InputError: region .* got 2 arguments: it takes 3, outputs included"):
        library.build_library([code])[code.symbol](x, w)


def test_constants_that_never_came_raise(rng):
    region = generate_only_region(layers(4)[0], bind_constants=True)
    built = library.build_library([region.code])
    x, out = (tvm.runtime.tensor(np.zeros((2, 4), "float32")) for _ in range(2))
    with pytest.raises(RuntimeError, match=r"ExecutionError: region .* its 2 constants were never handed to the kit"):
        built[region.code.symbol](x, out)


def test_constants_of_another_model_raise():
    region = generate_only_region(layers(5)[0], bind_constants=True)
    wrong = [tvm.runtime.tensor(np.ones((4, 4), "float32")) for _ in region.constants]
    assert regions.set_constants(region.code.key, wrong) == 0
    x = tvm.runtime.tensor(np.zeros((2, 4), "float32"))
    with pytest.raises(ExecutionError, match="its constants are not those it was compiled with"):
        regions.run(region.code.key, region.code.text, x, x)


def test_a_damaged_text_raises(matrices):
    code = generate_only_region(MatmulRelu).code
    with pytest.raises(GraphError, match="a region is damaged: its text has sha256"):
        regions.load(code.key, code.text.replace("relu", "tanh"))


def test_the_key_covers_graph_constants_and_settings():
    spec = load_spec("example")
    base = generate_only_region(layers(6)[0], bind_constants=True).code
    assert generate_only_region(layers(6)[0], bind_constants=True).code == base
    others = [
        generate_only_region(layers(7)[0], bind_constants=True),
        generate_only_region(layers(6)[0], Settings(spec.replace(tile=16)), bind_constants=True),
        generate_only_region(layers(6)[0], Settings(spec, mode="step"), bind_constants=True),
        generate_only_region(layers(6)[0], Settings(spec, power_mode="low_power"), bind_constants=True),
        generate_only_region(layers(6)[0], Settings(spec.replace(name="other")), bind_constants=True),
    ]
    assert len({base.key, *(region.code.key for region in others)}) == 6
    assert {region.code.symbol for region in others} == {base.symbol}


def test_a_package_reads_back_and_is_ascii():
    settings = Settings(load_spec("example").replace(tile=(8, 16)), mode="step")
    region = generate_only_region(layers(8)[0], settings, bind_constants=True)
    text = region.code.text
    package = package_from_json(text)
    assert text.isascii() and "\0" not in text
    assert package.to_json() == text and key_of(text) == region.code.key
    assert (package.graph, package.settings) == (region.graph, settings)
    assert package.constants_sha256 == digest_constants(region.constants.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("spec"), "must be an object with the keys"),
        (lambda c: c.update(format_version=99), "version 99, and this kit reads"),
        (lambda c: c.update(format="other"), "it is 'other'"),
        (lambda c: c["graph"].pop("heads"), "heads"),
    ],
)
def test_a_package_of_another_form_is_refused(change, message):
    content = json.loads(generate_only_region(MatmulRelu).code.text)
    change(content)
    with pytest.raises(GraphError, match=message):
        package_from_json(json.dumps(content))


def test_digests_tell_dtype_shape_and_bytes_apart():
    zeros = np.zeros(4, "int16")
    arrays = [zeros, zeros.reshape(2, 2), zeros.view("uint16"), np.ones(4, "int16"), np.zeros((), "int16"), zeros[:0]]
    assert len({digest_constants([array]) for array in arrays}) == len(arrays)
    assert digest_constants([zeros[::2]]) == digest_constants([zeros[:2].copy()])


def test_upstreams_runtime_name_makes_a_module_from_a_bare_graph(matrices):
    graph = generate_only_region(MatmulRelu).graph
    create = tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
    module = create("my_region", to_json(graph), [])
    x, w = matrices
    out = tvm.runtime.tensor(np.full((2, 8), np.nan, "float32"))
    module["my_region"](tvm.runtime.tensor(x), tvm.runtime.tensor(w), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w, 0), atol=1e-5)


def test_upstreams_runtime_name_takes_constants_from_a_loader(rng):
    mod, reference = layers(9)
    region = generate_only_region(mod, bind_constants=True)
    create = tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
    for text in (region.code.text, to_json(region.graph)):
        tensors = {name: tvm.runtime.tensor(value) for name, value in region.constants.items()}
        loader = tvm.get_global_func("ffi.Module.create.const_loader")(tensors, {"my_region": list(tensors)})
        loader.import_module(create("my_region", text, list(tensors)))
        x, out = rng.standard_normal((2, 4)).astype("float32"), tvm.runtime.tensor(np.zeros((2, 4), "float32"))
        loader["my_region"](tvm.runtime.tensor(x), out)
        np.testing.assert_allclose(out.numpy(), reference(x), atol=1e-5)


def test_upstreams_runtime_name_wants_the_constants_of_the_graph():
    region = generate_only_region(layers(9)[0], bind_constants=True)
    with pytest.raises(GraphError, match=r"the graph has const_.* and other were given"):
        generate.create_runtime("my_region", to_json(region.graph), ["other"])


def test_one_bare_graph_cannot_have_two_sets_of_constants():
    region = generate_only_region(layers(10)[0], bind_constants=True)
    key = store.add(Package(region.graph, Settings(load_spec("example")), ""))[0].key
    values = list(region.constants.values())
    assert regions.set_constants(key, [tvm.runtime.tensor(value) for value in values]) == 0
    assert regions.set_constants(key, [tvm.runtime.tensor(value) for value in values]) == 0
    with pytest.raises(ExecutionError, match="the same graph is in use with other constants"):
        regions.set_constants(key, [tvm.runtime.tensor(value + 1) for value in values])


def test_a_tensor_of_another_shape_is_refused():
    code = generate_only_region(MatmulRelu).code
    x, w, out = (tvm.runtime.tensor(np.zeros(shape, "float32")) for shape in ((3, 4), (4, 8), (2, 8)))
    with pytest.raises(InputError, match=r"x .* must be 2x4 float32, it is 3x4 float32"):
        regions.run(code.key, code.text, x, w, out)


def test_a_plain_machine_names_class_operation_and_composite():
    vm = machine(build(Divide))
    one, zero = np.ones(4, "int32"), np.zeros(4, "int32")
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError: .*divide") as caught:
        call(vm, one, zero)
    assert "in step 0" in str(caught.value)
    assert call(vm, one, one).numpy().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", [KeyError, ValueError, MemoryError])
def test_a_plain_machine_keeps_three_classes(matrices, monkeypatch, kind):
    vm = machine(build(MatmulRelu))

    def fail(*_args, **_options):
        error = kind("from the kernel")
        error.__notes__ = ["in step 3"]
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(regions, "execute", fail)
        with pytest.raises(kind, match=rf"{kind.__name__}: .*from the kernel.*; in step 3") as caught:
            call(vm, *matrices)
    assert "fail" in [frame.name for frame in caught.traceback]
    assert call(vm, *matrices).shape == (2, 8)


def test_a_tuple_parameter_arrives_as_its_tensors():
    vm = machine(relax.build(RunCodegen()(TupleParameter), tvm.target.Target("llvm")))
    x, y = np.array([1, 2], "float32"), np.array([5, 7], "float32")
    difference, second = (result.numpy().tolist() for result in call(vm, x, y))
    assert (difference, second) == ([4.0, 5.0], [5.0, 7.0])
