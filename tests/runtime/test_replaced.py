"""A kernel function that a learner puts in the place of the kit's: what it does wrong is told, with its line."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from small_models import module_of
from tvm import relax

import npu_kit
from npu_kit.errors import ExecutionError, UnsupportedError
from npu_kit.runtime import arithmetic

X = np.array([[-1, 2, -3, 4]] * 2, "float32")


def one_row(attrs, dtype, out, x):
    return x[:1]


def nothing(attrs, dtype, out, x):
    np.maximum(x, 0)


def into_its_input(attrs, dtype, out, x):
    x[x < 0] = 0
    return x


def endless(attrs, dtype, out, x):
    return endless(attrs, dtype, out, x)


def complex_numbers(attrs, dtype, out, x):
    return x.astype(complex)


def masked(attrs, dtype, out, x):
    return np.ma.masked_array(x, x < 0)


class Liar(np.ndarray):
    """Says another shape than it has."""

    shape = (2, 4)


def lying(attrs, dtype, out, x):
    return np.ones((1, 1), dtype).view(Liar)


class Wordless(Exception):
    def __str__(self):
        raise Wordless


def wordless(attrs, dtype, out, x):
    raise Wordless


def misspelt(attrs, dtype, out, x):
    return x.maxmum(0)


def right(attrs, dtype, out, x):
    return np.maximum(x, 0)


@pytest.fixture(params=["fast", "step"])
def run(request, monkeypatch):
    compiled = npu_kit.compile(module_of(relax.op.nn.relu, X), mode=request.param)

    def run(function):
        monkeypatch.setitem(arithmetic._FUNCTIONS, "relu", function)
        return compiled.run(X)

    return run


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (one_row, r"it returned the shape \(1, 4\) and the operands give \(2, 4\)"),
        (nothing, "it returned NoneType and not an array"),
        (into_its_input, r"it writes an input, at into_its_input, line \d+ of test_replaced.py: x\[x < 0\] = 0"),
        (endless, "it calls itself without end"),
        (complex_numbers, "it returned complex128 and float32 is needed"),
        (masked, "it returned MaskedArray and not an array"),
        (lying, r"it returned the shape \(1, 1\) and the operands give \(2, 4\)"),
    ],
)
def test_what_it_does_wrong_is_told_with_its_line(run, function, told):
    before = X.copy()
    where = rf"your function for relu \({function.__name__}, line \d+ of test_replaced.py\): "
    with pytest.raises(ExecutionError, match=where + told):
        run(function)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(run(right), np.maximum(X, 0))


def test_what_it_raises_arrives_with_its_line(run):
    with pytest.raises(AttributeError, match="maxmum") as caught:
        run(misspelt)
    notes = "; ".join(caught.value.__notes__)
    assert re.search(r"at misspelt, line \d+ of test_replaced.py: return x.maxmum\(0\)", notes)
    assert "in step 0, relu" in notes


@pytest.mark.parametrize("values", [[0.5, 1, 2, 3], [np.nan, 1, 2, 3], [300.0, 1, 2, 3], [-1.0, 1, 2, 3]])
def test_floats_that_an_integer_tensor_cannot_hold_are_told(values, monkeypatch):
    x = np.array([1, 2, 3, 4], "uint8")
    compiled = npu_kit.compile(module_of(relax.op.add, x, x))
    for found in (values, [1.0, 255.0, 0.0, 4.0]):
        monkeypatch.setitem(arithmetic._FUNCTIONS, "add", lambda attrs, dtype, out, a, b, found=found: np.array(found))
        if found is not values:
            np.testing.assert_array_equal(compiled.run(x, x), [1, 255, 0, 4])
            continue
        with pytest.raises(ExecutionError, match="it returned float64 values that uint8 does not hold"):
            compiled.run(x, x)


def test_what_is_no_function_is_told(run):
    with pytest.raises(ExecutionError, match="what stands for relu: it is NoneType"):
        run(None)


def test_an_error_without_words_does_not_end_the_process_of_a_plain_machine(monkeypatch):
    model = npu_kit.compile(module_of(relax.op.nn.relu, X))
    machine = relax.VirtualMachine(model.executable.mod, tvm.cpu())
    monkeypatch.setitem(arithmetic._FUNCTIONS, "relu", wordless)
    with pytest.raises(RuntimeError, match=r"its __str__ raises Wordless.*at wordless, line"):
        machine["main"](tvm.runtime.tensor(X))
    with pytest.raises(Wordless):
        model.run(X)


class Quiet(BaseException):
    """Nothing about it can be had, and what it raises instead cannot be told either."""

    __notes__ = None

    def __str__(self):
        raise Quiet


@pytest.mark.parametrize("error", [Quiet, RuntimeError, SystemExit])
def test_an_error_that_cannot_be_told_is_itself(monkeypatch, error):
    """TVM ends the process where the text of an error cannot be had, and makes a Ctrl-C a RuntimeError without one."""

    def quiet(attrs, dtype, out, x):
        raise error

    model = npu_kit.compile(module_of(relax.op.nn.relu, X))
    machine = relax.VirtualMachine(model.executable.mod, tvm.cpu())
    monkeypatch.setitem(arithmetic._FUNCTIONS, "relu", quiet)
    with pytest.raises(RuntimeError, match=error.__name__):
        machine["main"](tvm.runtime.tensor(X))
    with pytest.raises(error):
        model.run(X)
    monkeypatch.undo()
    np.testing.assert_array_equal(model.run(X), np.maximum(X, 0))


def test_use_kernel_puts_a_function_in_its_place_and_the_kits_back():
    compiled = npu_kit.compile(module_of(relax.op.nn.relu, X))
    with arithmetic.use_kernel("relu", lambda attrs, dtype, out, x: x + 1):
        np.testing.assert_array_equal(compiled.run(X), X + 1)
    np.testing.assert_array_equal(compiled.run(X), np.maximum(X, 0))
    with pytest.raises(UnsupportedError, match="element-wise operation 'matmul'"), arithmetic.use_kernel("matmul", len):
        pass
