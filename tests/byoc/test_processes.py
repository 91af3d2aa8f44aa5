"""One kernel, many uses: submodules reloaded, threads at once, a process that was forked."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from small_models import module_of
from tvm import relax

import npu_kit
from npu_kit.byoc.run import store

X = np.random.default_rng(0).standard_normal((40, 40)).astype("float32")


def module(scale):
    weight = relax.const(X * np.float32(scale))
    return module_of(lambda x: relax.op.nn.relu(relax.op.matmul(x, weight)), X)


def model(scale):
    return npu_kit.compile(module(scale), bind_constants=True)


def expected(scale):
    return np.maximum(X @ (X * np.float32(scale)), 0)


def test_two_models_of_one_structure_alive_at_once_and_out_of_order():
    models = {scale: model(scale) for scale in (1, 2, 3)}
    for scale in (3, 1, 2, 2, 1, 3):
        np.testing.assert_allclose(models[scale].run(X), expected(scale), rtol=1e-4, atol=1e-4)
    models[2] = model(2)  # a cell that is run again
    del models[1]
    for scale in (3, 2):
        np.testing.assert_allclose(models[scale].run(X), expected(scale), rtol=1e-4, atol=1e-4)


RELOAD = """
import importlib, sys
import numpy as np
import npu_kit
from npu_kit.byoc.run import store
from tvm import relax

def module(scale):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.matmul(x, relax.const(np.full((4, 4), scale, "float32"))))
        builder.emit_func_output(y)
    return builder.get()

def check(model, scale):
    assert (model.run(np.ones((4, 4), "float32")) == 4 * scale).all()

before = npu_kit.compile(module(1), bind_constants=True)
check(before, 1)
waiting = npu_kit.compile(module(2), bind_constants=True)  # its machine, and so its constants, come later
for name in sys.argv[1:]:
    importlib.reload(sys.modules[name])
check(before, 1)
check(waiting, 2)
after = npu_kit.compile(module(3), bind_constants=True)
check(after, 3)
check(before, 1)
print("right")
"""


@pytest.mark.parametrize(
    "names",
    [
        ["npu_kit"],
        ["npu_kit.byoc.codegen.registration", "npu_kit"],
        ["npu_kit.byoc.run.store"],
        ["npu_kit.byoc.run.regions"],
        ["npu_kit.byoc.run.store", "npu_kit.byoc.run.regions", "npu_kit.byoc.codegen.generate", "npu_kit"],
        ["npu_kit.byoc.run.callback", "npu_kit.byoc.run.model", "npu_kit.byoc.compile", "npu_kit"],
        ["npu_kit.runtime.fast", "npu_kit.runtime.execute", "npu_kit.plan.planner"],
    ],
    ids=lambda names: names[0],
)
def test_reloaded_submodules_go_on_to_work(names):
    done = subprocess.run([sys.executable, "-c", RELOAD, *names], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr[-1500:]


def test_threads_run_one_compiled_model_at_once():
    compiled = model(1)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda scale: compiled.run(X * np.float32(scale)), range(1, 33)))
    for scale, values in enumerate(found, start=1):
        np.testing.assert_allclose(values, expected(scale), rtol=1e-4, atol=1e-4 * scale)


def test_threads_compile_at_once():
    modules = [module(scale) for scale in range(1, 7)]  # TVM's BlockBuilder is for one thread at a time

    def compiled_alone(mod):
        return npu_kit.compile(mod, bind_constants=True)

    with ThreadPoolExecutor(3) as threads:
        for scale, compiled in enumerate(threads.map(compiled_alone, modules), start=1):
            np.testing.assert_allclose(compiled.run(X), expected(scale), rtol=1e-4, atol=1e-4 * scale)


FORK = """
import os, sys
import numpy as np
import npu_kit
from npu_kit.byoc.run import store
from npu_kit.data import load_digits_data
from npu_kit.zoo import build

images = load_digits_data().test_images[:4]
compiled = npu_kit.compile(build("digits", batch=4), bind_constants=True)
expected = compiled.run(images)
child = os.fork()
if child == 0:
    same = np.array_equal(compiled.run(images), expected)
    again = npu_kit.compile(build("digits", batch=4), bind_constants=True).run(images)
    os._exit(0 if same and np.array_equal(again, expected) else 3)
_, status = os.waitpid(child, 0)
assert np.array_equal(compiled.run(images), expected)
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_runs_and_compiles():
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr[-1500:]


def test_importing_again_registers_nothing_twice():
    registration = sys.modules["npu_kit.byoc.codegen.registration"]
    registered = dict(registration._registered)
    importlib.import_module("npu_kit")
    assert registration._registered == registered
    registration.require_registered()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_in_the_middle_of_another_threads_planning_compiles(monkeypatch):
    """The thread that holds the lock is not there in the new process."""
    is_planning, goes_on = threading.Event(), threading.Event()
    make_plan = store.make_plan

    def slowly(*arguments, **options):
        is_planning.set()
        goes_on.wait(30)
        return make_plan(*arguments, **options)

    monkeypatch.setattr(store, "make_plan", slowly)
    thread = threading.Thread(target=model, args=(11,))
    thread.start()
    assert is_planning.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(30)
        goes_on.set()
        os._exit(int(not np.allclose(model(12).run(X), expected(12), rtol=1e-4, atol=1e-4)))
    _, status = os.waitpid(child, 0)
    goes_on.set()
    thread.join()
    assert status == 0


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal here")
def test_a_signals_handler_may_compile_in_the_middle_of_planning(monkeypatch):
    make_plan, models = store.make_plan, []

    def interrupted(*arguments, **options):
        monkeypatch.undo()
        os.kill(os.getpid(), signal.SIGUSR1)
        return make_plan(*arguments, **options)

    before = signal.signal(signal.SIGUSR1, lambda *_: models.append(model(14)))
    monkeypatch.setattr(store, "make_plan", interrupted)
    models.append(model(13))
    signal.signal(signal.SIGUSR1, before)
    for one, scale in zip(models, (14, 13), strict=True):
        np.testing.assert_allclose(one.run(X), expected(scale), rtol=1e-4, atol=1e-4)
