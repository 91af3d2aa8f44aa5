"""Registration: once at import, safe to repeat, and no obstacle where TVM is missing or broken."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

import npu_kit
from npu_kit.byoc.codegen import generate, library, registration
from npu_kit.byoc.run import regions
from npu_kit.errors import ToolError

PAIR = ("relax.ext.example_npu", "runtime.ExampleNPUJSONRuntimeCreate")


def run_python(code):
    """Standard output of ``code`` in a fresh interpreter; it must succeed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def relu_of_weights(seed):
    weight = np.random.default_rng(seed).standard_normal((4, 4)).astype("float32")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.matmul(x, relax.const(weight))))
        builder.emit_func_output(y)
    return builder.get(), weight


@pytest.fixture
def kits_own_pair():
    """Puts the kit's functions back, whatever the test registers."""
    yield
    registration.register()


def test_import_registers_upstreams_names_and_nothing_happens_besides():
    out = run_python(
        "import threading, tvm\n"
        f"names = {PAIR!r}\n"
        "print([tvm.get_global_func(n, allow_missing=True) is None for n in names])\n"
        "import npu_kit\n"
        "print([tvm.get_global_func(n, allow_missing=True) is None for n in names], threading.active_count())\n"
    )
    assert out.splitlines() == ["[True, True]", "[False, False] 1"]


def test_modules_go_on_after_a_reload(kits_own_pair):
    mod, weight = relu_of_weights(1)
    x = np.ones((2, 4), "float32")
    before = npu_kit.compile(mod, bind_constants=True)
    np.testing.assert_allclose(before.run(x), x @ weight, atol=1e-5)
    waiting = npu_kit.compile(relu_of_weights(2)[0], bind_constants=True)
    for module in (regions, library, generate, registration, npu_kit):
        importlib.reload(module)
    np.testing.assert_allclose(before.run(x), x @ weight, atol=1e-5)
    np.testing.assert_allclose(waiting.run(x), x @ relu_of_weights(2)[1], atol=1e-5)
    np.testing.assert_allclose(npu_kit.compile(mod).run(x), x @ weight, atol=1e-5)


def test_registering_again_changes_nothing(kits_own_pair):
    registration.register()
    registration.register()
    registration.require_registered()
    mod, weight = relu_of_weights(3)
    x = np.ones((2, 4), "float32")
    np.testing.assert_allclose(npu_kit.compile(mod).run(x), x @ weight, atol=1e-5)


def test_a_foreign_pair_is_replaced_as_a_pair(kits_own_pair):
    for name in PAIR:
        tvm.register_global_func(name, lambda *_: [], override=True)
    registration.register()
    registration.require_registered()
    assert all(tvm.get_global_func(name).same_as(registration._registered[name]) for name in PAIR)


@pytest.mark.parametrize("name", PAIR)
def test_compile_says_when_another_codegen_took_its_place(kits_own_pair, name):
    tvm.register_global_func(name, lambda *_: [], override=True)
    with pytest.raises(ToolError, match=r"is not the kit's function any more.*registration\.register\(\)"):
        npu_kit.compile(relu_of_weights(4)[0])


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raise ModuleNotFoundError(\"No module named 'tvm'\")", "ModuleNotFoundError: No module named 'tvm'"),
        ("raise OSError('libtvm.so is broken')", "OSError: libtvm.so is broken"),
    ],
    ids=["missing", "broken"],
)
def test_without_tvm_the_rest_of_the_kit_works(tmp_path, how, reason):
    (tmp_path / "tvm").mkdir()
    (tmp_path / "tvm" / "__init__.py").write_text(how)
    out = run_python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import npu_kit\n"
        "from npu_kit.plan.planner import make_plan\n"
        "print(npu_kit.load_spec('example').name, callable(npu_kit.compile))\n"
        "for call in (npu_kit.partition, npu_kit.compile, npu_kit.load):\n"
        "    try:\n"
        "        call(None)\n"
        "    except npu_kit.errors.ToolError as error:\n"
        "        print(error)\n"
    )
    first, *messages = out.splitlines()
    assert first == "example True"
    assert [message.split(" ")[0] for message in messages] == ["npu_kit.partition", "npu_kit.compile", "npu_kit.load"]
    assert all(f"needs TVM: import tvm raised {reason}" in message and "pip install" in message for message in messages)


def test_public_names():
    assert set(npu_kit.__all__) <= set(dir(npu_kit))
    assert all(getattr(npu_kit, name) for name in npu_kit.__all__)
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        _ = npu_kit.compil
