"""Named arrays in an npz file, read without pickles and never larger than they say they are.

An npz file is a zip of ``.npy`` members, and a zip of 2 MB can hold gigabytes: sizes are read from the directory and
from each member's header, and checked, before anything is unpacked.
"""

from __future__ import annotations

import math
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

from numpy.lib import format as npy
from numpy.typing import NDArray

from npu_kit.errors import ToolError

MAX_BYTES = 256 << 20  # of all arrays together
MAX_ARRAYS = 1_000
MAX_RANK = 32
MAX_HEADER = 10_000  # characters; NumPy's own limit
_KINDS = "biuf"  # booleans, integers, floats

Array = NDArray[Any]


def load_arrays(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> dict[str, Array]:
    """The arrays of an npz file by name, fresh.

    Args:
        path: the file.
        max_bytes: what all arrays together may take.

    Raises:
        ToolError: the file cannot be read, is no npz file, or holds more than it may or something else than numbers.
    """
    try:
        if not Path(path).is_file():
            raise ValueError("there is no ordinary file of that name")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _verify_directory(members, max_bytes)
            return {member.filename.removesuffix(".npy"): _read(archive, member) for member in members}
    except _DAMAGE as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ToolError(f"cannot read the arrays in {path}", why) from None


# What zipfile, zlib and NumPy raise where a file is not what it says: a wrong signature, a checksum, an encrypted or
# unknown method, a header that is no header.
_DAMAGE = (
    *(OSError, ValueError, EOFError, KeyError, TypeError, SyntaxError, OverflowError, RecursionError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),
    *(tokenize.TokenError, MemoryError),  # of a header that Python's parser cannot close, or finds too deep
)


def _verify_directory(members: list[zipfile.ZipInfo], max_bytes: int) -> None:
    if len(members) > MAX_ARRAYS:
        raise ValueError(f"it has {len(members):,} arrays and the limit is {MAX_ARRAYS:,}")
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise ValueError("two of its arrays have one name")
    whole = sum(member.file_size for member in members)
    if whole > max_bytes:
        raise ValueError(f"its arrays take {whole:,} bytes and the limit is {max_bytes:,}")


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """One array. Its member is unpacked as it is read, and no further than the size in the directory."""
    if not member.filename.endswith(".npy"):
        raise ValueError(f"its member {member.filename!r:.80} is no array")
    with archive.open(member) as file:
        version = npy.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = npy.read_array_header_1_0(file, max_header_size=MAX_HEADER)
        elif version == (2, 0):
            shape, _, dtype = npy.read_array_header_2_0(file, max_header_size=MAX_HEADER)
        else:
            raise ValueError(f"{member.filename!r:.80} has the npy version {version}, and numbers need 1.0 or 2.0")
        if dtype.kind not in _KINDS:
            raise ValueError(f"{member.filename!r:.80} holds {dtype!s:.80}, and only numbers are read")
        if any(type(size) is not int or size < 0 for size in shape) or len(shape) > MAX_RANK:
            raise ValueError(f"{member.filename!r:.80} has the shape {shape!s:.80}")
        needed, there = math.prod(shape) * dtype.itemsize, member.file_size - file.tell()
        if needed != there:
            raise ValueError(f"{member.filename!r:.80} says that it has {needed:,} bytes of data, and {there:,} follow")
    with archive.open(member) as file:
        array: Array = npy.read_array(file, allow_pickle=False, max_header_size=MAX_HEADER)
    return array
