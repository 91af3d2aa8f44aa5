"""Arrays from files: what is no plain npz of numbers, or larger than it may be, is refused before it is unpacked."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from npu_kit.data.arrays import load_arrays
from npu_kit.errors import ToolError


def member(shape, dtype="<f4", data=b"", order=False):
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": dtype, "fortran_order": order, "shape": shape})
    return file.getvalue() + data


def write(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(save, tmp_path):
    arrays = {
        "a": np.arange(6, dtype="int8").reshape(2, 3),
        "b": np.asfortranarray(np.ones((3, 2), "float16")),
        "c": np.array(3.5),
        "d": np.zeros((0, 4), "uint16"),
        "e": np.array([True, False]),
        "f": np.arange(3, dtype=">i4"),
    }
    save(tmp_path / "a.npz", **arrays)
    found = load_arrays(tmp_path / "a.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_zip_bomb_is_refused_without_being_unpacked(tmp_path):
    """2 MB of file that claims 2 GB, and unpacks to them."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        file.write(member((500, 1 << 20)))
        for _ in range(300):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 2e6
    tracemalloc.start()
    with pytest.raises(ToolError, match=r"its arrays take 314,572,\d+ bytes and the limit is 268,435,456"):
        load_arrays(path)
    with pytest.raises(ToolError, match="says that it has 2,097,152,000 bytes of data, and 314,572,800 follow"):
        load_arrays(path, max_bytes=1 << 30)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


HUGE = 2**40
WRONG = {
    "more than it holds": ([("a.npy", member((HUGE,)))], "says that it has 4,398,046,511,104 bytes of data, and 0"),
    "less than it holds": ([("a.npy", member((1,), data=bytes(8)))], "says that it has 4 bytes of data, and 8 follow"),
    "objects": ([("a.npy", member((1,), "|O", bytes(8)))], "holds object, and only numbers are read"),
    "texts": ([("a.npy", member((1,), "<U4", bytes(16)))], "only numbers are read"),
    "records": ([("a.npy", member((1,), [("x", "<f4")], bytes(4)))], "only numbers are read"),
    "complex": ([("a.npy", member((1,), "<c8", bytes(8)))], "only numbers are read"),
    "a negative size": ([("a.npy", member((-1,)))], "shape"),
    "a shape of 100 axes": ([("a.npy", member((1,) * 100, data=bytes(4)))], "has the shape"),
    "two of one name": ([("a.npy", member((1,), data=bytes(4)))] * 2, "two of its arrays have one name"),
    "no npy": ([("a.txt", b"hello")], "'a.txt' is no array"),
    "a pickle": ([("a.npy", b"\x80\x04N.")], "magic"),
    "another version": ([("a.npy", b"\x93NUMPY\x03\x00")], "npy version"),
    "a header that is code": (
        [("a.npy", b"\x93NUMPY\x01\x00\x20\x00" + b"__import__('os').getcwd()".ljust(32))],
        "malformed node",
    ),
    "a deep header": ([("a.npy", b"\x93NUMPY\x01\x00\x00\x20" + (b"(" * 4000).ljust(8192))], "."),
    "many arrays": ([(f"{i}.npy", b"") for i in range(1001)], "1,001 arrays and the limit is 1,000"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_plain_array_is_refused(case, tmp_path):
    members, told = WRONG[case]
    with pytest.raises(ToolError, match=f"cannot read the arrays in .*{told}"):
        load_arrays(write(tmp_path / "a.npz", members))


def test_damage_anywhere_is_refused_or_harmless(tmp_path):
    np.savez_compressed(tmp_path / "good.npz", a=np.arange(20.0))
    content = (tmp_path / "good.npz").read_bytes()
    path = tmp_path / "bad.npz"
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x41]) + content[place + 1 :])
        try:
            found = load_arrays(path, max_bytes=10_000)
        except ToolError:
            continue
        assert sum(array.nbytes for array in found.values()) <= 10_000


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", json.dumps({}).encode()])
def test_what_is_no_zip_is_refused(content, tmp_path):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ToolError, match="cannot read the arrays"):
        load_arrays(tmp_path / "a.npz")
    for path in (tmp_path, tmp_path / "nothing.npz"):
        with pytest.raises(ToolError, match="no ordinary file"):
            load_arrays(path)
