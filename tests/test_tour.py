"""The tour: it passes on the kit as it is, and each of its checks can fail."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import npu_kit
from npu_kit import tour
from npu_kit.byoc.run.host import build_for_host
from npu_kit.errors import UnsupportedError
from npu_kit.graph.ir import Graph
from npu_kit.trace.counters import Counters


class Doctored:
    """A compiled model or a host build whose results are changed."""

    def __init__(self, model, change):
        self._model, self._change = model, change

    def run(self, *arrays):
        return self._change(self._model.run(*arrays))

    def __getattr__(self, name):
        return getattr(self._model, name)


def nudge(array):
    """One value a little off: 1e-3 more for the third image's first digit."""
    array[2, 0] += 1e-3
    return array


def one_nan(array):
    array[2, 0] = np.nan
    return array


@pytest.fixture
def report(capsys):
    """Run the tour; gives its exit code, its text, and the checks that went wrong."""

    def run():
        code = tour.run_tour()
        text = capsys.readouterr().out
        wrong = [line.split("WRONG")[1].split(":")[0].strip() for line in text.splitlines() if "  WRONG" in line]
        return code, text, wrong

    return run


def test_it_passes_and_shows_each_stage(report):
    code, text, wrong = report()
    assert (code, wrong) == (0, [])
    for part in ("1 partition: ", "2 codegen: ", "3 plan: ", "4 run: ", "Checks", "\nPASS after "):
        assert part in text
    assert "NPU 357 of 360 (99.2%), host 357" in text  # npu_kit/data/README.md says the same
    assert not [line for line in text.splitlines() if line.startswith("  host: ")]
    assert text.isascii()


@pytest.mark.parametrize("change", [nudge, one_nan])
def test_a_wrong_value_of_the_npu_fails(report, monkeypatch, change):
    compile_model = npu_kit.compile

    def compile_wrong(model, *arguments, **options):
        compiled = compile_model(model, *arguments, **options)
        return Doctored(compiled, change) if "mode" not in options else compiled

    monkeypatch.setattr(npu_kit, "compile", compile_wrong)
    code, text, wrong = report()
    assert code == 1
    assert "probabilities as TVM's own build gives them" in wrong
    assert "\nFAIL after " in text


def test_a_host_that_disagrees_fails(report, monkeypatch):
    monkeypatch.setattr(tour, "build_for_host", lambda model: Doctored(build_for_host(model), lambda p: p[:, ::-1]))
    code, _, wrong = report()
    assert code == 1
    assert {"the same digit for every image", "digits read right"} <= set(wrong)


def test_wrong_labels_fail(report, monkeypatch):
    load = tour.load_digits_data
    monkeypatch.setattr(tour, "load_digits_data", lambda: dataclasses.replace(load(), labels=(load().labels + 1) % 10))
    assert report()[::2] == (1, ["digits read right"])


def test_a_run_that_was_not_planned_so_fails(report, monkeypatch):
    monkeypatch.setattr(tour, "plan_counters", lambda plan: tuple(Counters(macs=1) for _ in plan.steps))
    assert report()[::2] == (1, ["the run moved and computed what was planned"])


def test_text_that_reads_back_otherwise_fails(report, monkeypatch):
    monkeypatch.setattr(tour, "from_json", lambda text: Graph("other", (), (), ()))
    assert report()[::2] == (1, ["graphs read back from their text the same"])


def test_an_npu_that_computes_nothing_fails(report, monkeypatch):
    compile_model = npu_kit.compile
    monkeypatch.setattr(npu_kit, "compile", lambda *a, **k: compile_model(*a, patterns=[], **k))
    assert report()[::2] == (1, ["the NPU computes, and what it does not has a reason"])


def test_step_mode_that_differs_fails(report, monkeypatch):
    compile_model = npu_kit.compile

    def compile_wrong(*arguments, mode="fast", **options):
        compiled = compile_model(*arguments, mode=mode, **options)
        return Doctored(compiled, nudge) if mode == "step" else compiled

    monkeypatch.setattr(npu_kit, "compile", compile_wrong)
    assert report()[::2] == (1, ["tile by tile in real buffers, the same bits"])


@pytest.mark.parametrize("machine", ["ethos_u65_like", "nvdla_like", "tpu_v1_like"])
def test_a_machine_of_integers_gets_the_model_in_integers(capsys, machine):
    assert tour.run_tour(machine) == 0
    text = capsys.readouterr().out
    assert "Model 'digits_int8': quantized after training, since the machine computes in int8" in text
    assert "22 of 25 calls on the NPU" in text
    assert "NPU 356 of 360 (98.9%), host 356" in text  # npu_kit/data/README.md says the same
    assert "largest difference 0.0e+00" in text  # the same arithmetic, to the bit
    on_host = [line.split(",")[0] for line in text.splitlines() if line.startswith("  host: ")]
    assert on_host == [f"  host: relax.{op}" for op in ("quantize", "dequantize", "nn.softmax")]


def test_a_machine_without_a_dtype_of_either_model_is_told_so():
    spec = npu_kit.load_spec("example").replace(dtypes=("int16", "float16"))
    with pytest.raises(UnsupportedError, match="one in float32 and one in int8, and the machine computes in int16, fl"):
        tour.run_tour(spec)


def test_a_small_machine_leaves_more_to_the_host_and_passes(capsys):
    small = npu_kit.load_spec("example").replace(capacity_bytes={"L3": 600 * 1024, "L2": 300 * 1024})
    assert tour.run_tour(small) == 0
    text = capsys.readouterr().out
    assert "host: relax.nn.conv2d" in text
    assert max(map(len, text.splitlines())) < 200
