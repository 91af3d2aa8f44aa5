"""The door for arrays: what is only a matter of memory is put right, what would change values is refused."""

from __future__ import annotations

import numpy as np
import pytest

from npu_kit.errors import InputError
from npu_kit.runtime.inputs import Parameter, admit

X = Parameter("x", (2, 4), "float32")


def in_any_memory(x):
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "plain": x,
        "read-only": frozen,
        "big-endian": x.astype(x.dtype.newbyteorder(">")),
        "fortran": np.asfortranarray(x),
        "strided": np.repeat(x, 3, axis=1)[:, ::3],
        "reversed": x[::-1].copy()[::-1],
        "misaligned": np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape),
        "subclass": x.view(np.matrix),
    }


@pytest.mark.parametrize("kind", list(in_any_memory(np.zeros((2, 4), "float32"))))
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_memory_is_put_right_in_a_copy(rng, kind, dtype):
    x = (rng.standard_normal((2, 4)) * 50).astype(dtype)
    given = in_any_memory(x)[kind]
    before = given.tobytes()
    (admitted,) = admit([given], [Parameter("x", (2, 4), dtype)])
    assert type(admitted) is np.ndarray and admitted.dtype == np.dtype(dtype) and admitted.dtype.isnative
    assert admitted.flags.c_contiguous and admitted.flags.aligned
    np.testing.assert_array_equal(admitted, x)
    assert given.tobytes() == before
    needs_no_copy = given.flags.c_contiguous and given.flags.aligned and given.dtype.isnative
    assert np.shares_memory(admitted, given) == needs_no_copy


def test_scalars_and_empty_arrays_keep_their_shape():
    (scalar,) = admit([np.float32(3)], [Parameter("s", (), "float32")])
    (empty,) = admit([np.zeros((0, 4), "float32")], [Parameter("e", (0, 4), "float32")])
    assert scalar.shape == () and scalar == 3 and empty.shape == (0, 4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((2, 4)), r'parameter x \(2x4 float32\): the array is float64. Try: x.astype\("float32"\)'),
        (np.zeros((2, 4), "int32"), "the array is int32"),
        (np.zeros((2, 4), "complex64"), "the array is complex64"),
        (np.zeros((2, 4), object), "the array is object"),
        (np.zeros((3, 4), "float32"), "axis 0 must be 2 and is 3 in 3x4 float32"),
        (np.zeros((2, 4, 1), "float32"), "it has 2 axes and 2x4x1 float32 has 3"),
        (np.zeros(4, "float32"), "it has 2 axes and 4 float32 has 1"),
        ([[0.0] * 4] * 2, r'a list was given. Try: np.asarray\(value, dtype="float32"\)'),
        (1.5, "a float was given"),
        (None, "a NoneType was given"),
        (np.ma.masked_array(np.zeros((2, 4), "float32")), "a MaskedArray was given"),
    ],
)
def test_what_would_change_values_is_refused(value, message):
    with pytest.raises(InputError, match=message):
        admit([value], [X])


def test_what_is_no_array_or_stands_the_wrong_way_round_is_told_how_to_become_one():
    class Tensor:  # of TVM or torch: np.asarray reads neither for sure
        def numpy(self):
            return np.zeros((2, 4), "float32")

    masked = np.ma.masked_array(np.zeros((2, 4), "float32"), True)
    for value, hint in ((Tensor(), r"value\.numpy\(\)"), (masked, r"value\.filled\(number\)")):
        with pytest.raises(InputError, match=f"Try: {hint}"):
            admit([value], [X])
    image = Parameter("x", (1, 3, 8, 9), "float32")
    with pytest.raises(InputError) as caught:
        admit([np.zeros((1, 8, 9, 3), "float32")], [image])
    assert caught.value.hint == "x.transpose(0, 3, 1, 2), if only the order of its axes differs."
    with pytest.raises(InputError) as caught:
        admit([np.zeros((1, 8, 9, 4), "float32")], [image])
    assert caught.value.hint == ""


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_number_of_arrays_is_checked_first(count):
    parameters = [X, Parameter("w", (4,), "float32")]
    with pytest.raises(
        InputError, match=rf"the model got {count} arrays?: it takes 2 arrays: x \(2x4 float32\), w \(4 f"
    ):
        admit([None] * count, parameters)


def test_a_symbol_is_one_number_everywhere():
    parameters = [Parameter("a", ("n", 4), "float32"), Parameter("b", (4, "n"), "float32")]
    admit([np.zeros((3, 4), "float32"), np.zeros((4, 3), "float32")], parameters)
    with pytest.raises(
        InputError, match=r"parameter b \(4xn float32\): n is 5 at axis 1 of 4x5 float32, and 3 at axis 0"
    ):
        admit([np.zeros((3, 4), "float32"), np.zeros((4, 5), "float32")], parameters)
