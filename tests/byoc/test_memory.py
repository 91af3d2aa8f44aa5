"""Running and compiling again and again takes no more memory: what modules need goes when they go."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm import relax

import npu_kit
from npu_kit.byoc.codegen.registration import register
from npu_kit.byoc.run import store

# One process: 300 runs of one model, then 30 models of 2 MB of weights each, compiled, run and dropped.
GROWTH = """
import gc, resource, sys, tracemalloc
import numpy as np
import npu_kit
from tvm import relax

def model(seed, size=512):
    random = np.random.default_rng(seed)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4, size), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for _ in range(2):
                weight = relax.const(random.standard_normal((size, size), "float32"))
                y = builder.emit(relax.op.exp(builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(y, weight))))))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return builder.get()

def pages():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

x = np.zeros((4, 512), "float32")
def compile_and_run(seed):
    npu_kit.compile(model(seed), bind_constants=True).run(x)

tracemalloc.start()
compiled = npu_kit.compile(model(0), bind_constants=True)
for _ in range(20):
    compiled.run(x)
before, traced = pages(), tracemalloc.get_traced_memory()[0]
for _ in range(300):
    compiled.run(x)
print(pages() - before, tracemalloc.get_traced_memory()[0] - traced)
tracemalloc.stop()  # it makes compiling several times slower
for seed in range(1, 6):
    compile_and_run(seed)
before = pages()
for seed in range(6, 36):
    compile_and_run(seed)
print(pages() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_neither_runs_nor_models_that_are_gone_take_memory():
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    runs_rss, runs_traced, models_rss = map(int, done.stdout.split())
    assert runs_rss < 8e6 and runs_traced < 100e3
    assert models_rss < 30e6  # the weights of 30 models are 63 MB


def weighted(seed=0):
    random = np.random.default_rng(seed)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((2, 4), "float32"))
    weight = random.standard_normal((4, 4), "float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.matmul(x, relax.const(weight)))
        builder.emit_func_output(y)
    return builder.get(), weight


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((2, 4)).astype("float32")


def held_keys():
    gc.collect()
    return set(store._constants)


def test_constants_go_with_the_last_that_can_read_them(x):
    before = held_keys()
    mod, weight = weighted(11)
    compiled = npu_kit.compile(mod, bind_constants=True)
    (key,) = held_keys() - before
    executable = compiled.executable
    compiled.run(x)
    del compiled
    assert key in held_keys()
    plain = relax.VirtualMachine(executable.mod, tvm.cpu())
    del executable
    np.testing.assert_allclose(plain["main"](tvm.runtime.tensor(x)).numpy(), x @ weight, atol=1e-5)
    assert key in held_keys()
    del plain
    assert key not in held_keys()


def test_two_models_of_one_content_share_constants_and_part_one_by_one(x):
    before = held_keys()
    mod, weight = weighted(12)
    first, second = (npu_kit.compile(mod, bind_constants=True) for _ in range(2))
    assert len(held_keys() - before) == 1
    first.run(x)
    del first
    np.testing.assert_allclose(second.run(x), x @ weight, atol=1e-5)
    del second
    assert held_keys() == before


def test_constants_of_a_library_go_with_its_model(x, tmp_path):
    before = held_keys()
    mod, weight = weighted(13)
    library = npu_kit.compile(mod, bind_constants=True).export(tmp_path / "model.so")
    assert held_keys() == before
    for _ in range(2):
        loaded = npu_kit.load(library, trust=True)
        np.testing.assert_allclose(loaded.run(x), x @ weight, atol=1e-5)
        assert len(held_keys() - before) == 1
        del loaded
        assert held_keys() == before


def test_plans_of_models_that_are_gone_are_gone():
    before = set(store._alive)
    compiled = npu_kit.compile(weighted(14)[0], tile=24)
    assert set(store._alive) > before
    del compiled
    gc.collect()
    assert set(store._alive) == before


def test_a_plain_machine_keeps_the_last_regions_only(x, monkeypatch):
    """Regions of other codegen users: planned again from their text where they were dropped."""
    monkeypatch.setattr(store, "RECENT", 2)
    mods = [weighted(seed) for seed in range(20, 24)]
    machines = []
    for mod, _ in mods:
        compiled = npu_kit.compile(mod, tile=16)
        machines.append(relax.VirtualMachine(compiled.executable.mod, tvm.cpu()))
        del compiled
    gc.collect()
    for _ in range(2):
        for machine, (_, weight) in zip(machines, mods, strict=True):
            np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(x)).numpy(), x @ weight, atol=1e-5)
    assert len(store._recent) <= 2


def test_registering_again_changes_nothing(x):
    mod, weight = weighted(15)
    compiled = npu_kit.compile(mod)
    sizes = []
    for _ in range(3):
        register()
        np.testing.assert_allclose(compiled.run(x), x @ weight, atol=1e-5)
        sizes.append((len(set(store._alive)), len(set(store._constants)), len(store._recent)))
    assert len(set(sizes)) == 1
