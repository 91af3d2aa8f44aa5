"""Exercises of lesson 04: tiles in real memory, and what they move."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.byoc.compile import compile as compile_model
from npu_kit.exercises.compare import describe, first_difference
from npu_kit.exercises.exercise import (
    Exercise,
    NotDone,
    NoValue,
    function_exercise,
    is_stub,
    refuse_stub,
    told,
    value_exercise,
)
from npu_kit.exercises.watched import WatchedMemory, in_dram
from npu_kit.hw.presets import load_spec
from npu_kit.plan.ir import Plan
from npu_kit.zoo import probes

Array = NDArray[Any]

_SIZES = (100, 300, 80)  # M, K, N of the lesson's product
_TILE = 32
_PRODUCTS = ((32, 32, 32), (40, 70, 50), (33, 300, 7))
_TOLERANCE = 1e-4  # sums of at most 300 products of standard normal numbers, in any order


def _plan() -> Plan:
    (plan,) = compile_model(probes.matmul_of(*_SIZES)).plans
    return plan


def _tile_count() -> int:
    m, _, n = _SIZES
    return math.ceil(m / _TILE) * math.ceil(n / _TILE)


def _load(tile: Array, piece: Array) -> Array:
    tile[...] = 0
    tile[: piece.shape[0], : piece.shape[1]] = piece
    return tile


def _loads() -> list[tuple[Array, Array]]:
    ones = np.ones((3, 2), np.float32)
    return [(np.full(shape, 7, np.float32), ones) for shape in ((3, 2), (4, 4))]


def _judge_product(name: str, last: Callable[[Array], Array]) -> Callable[[Any], str]:
    """A judge of a tiled product: the values, on memory full of NaN, and what it left in that memory."""

    def judge(multiply: Any) -> str:
        random = np.random.default_rng(4)
        for m, k, n in _PRODUCTS:
            a, b = (random.standard_normal(shape, np.float32) for shape in ((m, k), (k, n)))
            memory, what = WatchedMemory(load_spec()), f"{m}x{k} times {k}x{n}"
            try:
                found = multiply(in_dram(a), in_dram(b), memory)
            except NotImplementedError:
                raise NotDone from None
            except Exception as error:
                raise NoValue(f"{what} raised {told(error)}") from error
            if is_stub(found):
                refuse_stub(multiply, found, what)
            if not isinstance(found, np.ndarray):
                return f"it returns {describe(found)}, expected an array"
            if difference := first_difference(found, last(a @ b), _TOLERANCE):
                return f"{what}, in memory that is full of NaN: {difference}"
            for tier, holds, tensor in (("L1", "piece of a", a), ("L1", "piece of b", b), ("L0", name, last(a @ b))):
                if not any(_holds_piece(view, tensor) for view in memory[tier].views):
                    return f"{what}: the values are right, but at the end no view of {tier} holds a {holds}"
        return ""

    return judge


def _holds_piece(view: Array, tensor: Array) -> bool:
    """Does the upper left corner of ``view`` hold a piece of ``tensor``, cut into pieces of the view's shape?"""
    if view.ndim != 2 or not view.size:
        return False
    rows, columns = view.shape
    for i, j in product(range(0, tensor.shape[0], rows), range(0, tensor.shape[1], columns)):
        piece = tensor[i : i + rows, j : j + columns]
        if not first_difference(view[: piece.shape[0], : piece.shape[1]], piece, _TOLERANCE):
            return True
    return False


def _loop_bytes(m: int, k: int, n: int, tile: int) -> int:
    return 4 * (m * k * math.ceil(n / tile) + k * n * math.ceil(m / tile) + m * n)


def _patches(image: Array, kernel: int) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(image, (kernel, kernel), axis=(0, 1))
    y, x, channels = windows.shape[:3]
    return np.ascontiguousarray(windows.transpose(0, 1, 3, 4, 2)).reshape(y * x, kernel * kernel * channels)


def _images() -> list[tuple[Array, int]]:
    return [(np.arange(h * w * c, dtype=np.float32).reshape(h, w, c), k) for h, w, c, k in ((3, 3, 1, 2), (5, 4, 3, 3))]


def _padded_share() -> float:
    m, k, n = _SIZES
    chunk = _plan().steps[0].axis("c").tile
    full = math.ceil(m / _TILE) * math.ceil(n / _TILE) * _TILE * _TILE * math.ceil(k / chunk) * chunk
    return 1 - m * k * n / full


def _identity(product: Array) -> Array:
    return product


def _relu(product: Array) -> Array:
    return np.asarray(np.maximum(product, np.float32(0)))


EXERCISES = (
    value_exercise("runtime.tile_count", _tile_count, hint="a ragged tile is a tile"),
    function_exercise("runtime.load", _load, _loads, hint="zeros first, then the piece into the corner", into=0),
    Exercise(
        "runtime.tiled_matmul",
        _judge_product("tile of the product", _identity),
        hint="clear the accumulator once for each output tile; NaN means that something was not cleared",
    ),
    function_exercise(
        "runtime.loop_bytes",
        _loop_bytes,
        lambda: [(32, 32, 32, 32), (64, 32, 32, 32), (32, 32, 64, 32), (100, 300, 80, 32), (100, 300, 80, 8)],
        hint="a is read once for each column of tiles, b once for each row of tiles",
    ),
    function_exercise(
        "runtime.patches", _patches, _images, hint="image[i : i + kernel, j : j + kernel].ravel() is one row"
    ),
    value_exercise(
        "runtime.padded_share", _padded_share, tolerance=0.01, hint="real products over products of full tiles"
    ),
    Exercise(
        "runtime.tiled_matmul_relu",
        _judge_product("tile of the relu", _relu),
        hint="once per output tile, after the last chunk and before it is taken out of L0",
    ),
)
