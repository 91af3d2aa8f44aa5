"""Indices out of range, in what the host computes: TVM alone reads or writes memory that is not the tensor's."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import module_of
from tvm import relax, tirx

import npu_kit
from npu_kit.byoc.run.host import build_for_host

op = relax.op
DATA = np.arange(12, dtype="float32").reshape(3, 4) + 1


def i(*values, dtype="int64"):
    return np.array(values, dtype)


# expression, indices in range and NumPy's answer, indices out of range and what is told of them
CASES = {
    "take": (lambda x, n: op.take(x, n, axis=0), i(2, 0), DATA[[2, 0]], i(0, 3), "index 3 at [1] is out of range"),
    "take of the last axis": (lambda x, n: op.take(x, n, axis=-1), i(3), DATA[:, [3]], i(4), "the data has 4 elements"),
    "take of a negative": (lambda x, n: op.take(x, n, axis=0), i(1), DATA[[1]], i(-1), "index -1 at [0]"),
    "take far away": (lambda x, n: op.take(x, n, axis=0), i(1), DATA[[1]], i(2**40), f"index {2**40} at [0]"),
    "gather_elements": (
        *(lambda x, n: op.gather_elements(x, n, axis=0), i(2, 1, 0, 2).reshape(1, 4)),
        *(DATA[[2, 1, 0, 2], range(4)][None], i(0, 0, 0, 3).reshape(1, 4), "index 3 at [0, 3]"),
    ),
    "gather_nd": (op.gather_nd, i(2, 3).reshape(1, 2), DATA[[2], [3]], i(2, 4).reshape(1, 2), "index 4 at [0, 1]"),
    "scatter_elements": (
        *(lambda x, n: op.scatter_elements(x, n, relax.const(np.zeros((1, 4), "float32")), axis=0), i(*[-1] * 4)[None]),
        *(DATA * [[1], [1], [0]], i(0, 0, 3, 0)[None], "index 3 at [0, 2]"),
    ),
    "scatter_nd": (
        *(lambda x, n: op.scatter_nd(x, n, relax.const(np.zeros((1, 4), "float32"))), i(1).reshape(1, 1)),
        *(DATA * [[1], [0], [1]], i(-1).reshape(1, 1), "index -1 at [0, 0]"),
    ),
    "index_tensor": (lambda x, n: op.index_tensor(x, [n]), i(1), DATA[[1]], i(5), "index 5 at [0]"),
    "index_put": (
        *(lambda x, n: op.index_put(x, (n, n), relax.const(np.zeros(1, "float32"))), i(-1)),
        *(DATA * (1 - np.eye(3, 4, 1) * [[0], [0], [1]]), i(3), "index 3 at [0] is out of range, the data has 3"),
    ),
}


@pytest.mark.parametrize("build", [npu_kit.compile, build_for_host])
@pytest.mark.parametrize("case", CASES)
def test_an_index_out_of_range_is_an_index_error(case, build):
    expression, good, expected, bad, told = CASES[case]
    model = build(module_of(expression, DATA, good))
    np.testing.assert_array_equal(model.run(DATA, good), expected)
    with pytest.raises(IndexError) as caught:
        model.run(DATA, bad)
    assert told in str(caught.value) and "variable gv of main" in str(caught.value)
    np.testing.assert_array_equal(model.run(DATA, good), expected)


def test_a_size_that_is_known_only_at_run_time_is_the_limit():
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    at = relax.Var("at", relax.TensorType((2,), "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, at]):
        with builder.dataflow():
            y = builder.emit_output(op.take(builder.emit(op.nn.relu(x)), at, axis=0))
        builder.emit_func_output(y)
    model = npu_kit.compile(builder.get())
    for rows in (3, 2):
        data = DATA[:rows]
        np.testing.assert_array_equal(model.run(data, i(0, rows - 1)), data[[0, rows - 1]])
        with pytest.raises(IndexError, match=f"the data has {rows} elements"):
            model.run(data, i(0, rows))
