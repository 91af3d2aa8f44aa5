"""Fast mode of a window: pools and depthwise convolutions, some output rows at a time, tap by tap over whole rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.plan.geometry import Window
from npu_kit.plan.ir import Step
from npu_kit.runtime.arithmetic import compute_dtype
from npu_kit.runtime.fast_epilogue import BoundEpilogue, Call, arrange
from npu_kit.runtime.fast_patches import fill_border
from npu_kit.runtime.workspace import BLOCK_BYTES, Scratch, Shapes, cut, shapes_bytes

Array = NDArray[Any]
WORTH_SHARING = 2_000_000  # taps of a step that two threads share: half a millisecond


@dataclass(frozen=True)
class Block:
    """Output rows of some images that are computed together."""

    images: tuple[int, int]
    rows: tuple[int, int]
    source: slice  # the image's rows that their windows touch
    target: slice  # where these stand in the padded piece of image


class FastWindow:
    """One pool or depthwise convolution of a plan, ready to be bound to arrays.

    Args:
        step: what is run.
        problem: of the step's anchor, with as many images as there are.
        threads: threads that share the blocks.
    """

    def __init__(self, step: Step, problem: Window, threads: int) -> None:
        self._problem = problem
        self._fill = problem.layouts(step.axes)["x"].fill
        self._dtype = compute_dtype(problem.out.dtype)
        self._start = self._dtype.type(self._fill)  # of the maximum or the sum
        self._columns, self._channels = problem.columns.out, problem.extents["c"]
        self._kernel = (problem.rows.kernel, problem.columns.kernel)
        # Columns a stride S apart stand side by side, (rows, S, W / S, C), so that what a tap sees of a row is one run.
        self._source, self._target = problem.columns.box((0, self._columns), (0, self._kernel[1]), self._kernel[1])
        self._steps = (problem.rows.steps(self._kernel[0]), problem.columns.steps(self._kernel[1]))  # stride, dilation
        work = problem.out.elements * self._kernel[0] * self._kernel[1]
        self.blocks = list(self._blocks(threads if work >= WORTH_SHARING else 1)) if work else []
        self.scratch_bytes = max((shapes_bytes(self._shapes(block)) for block in self.blocks), default=0)

    def _blocks(self, threads: int) -> Iterator[Block]:
        most = max(1, BLOCK_BYTES // shapes_bytes(self._shapes(Block((0, 1), (0, 1), slice(0), slice(0)))))  # rows
        height, count = self._problem.rows.out, self._problem.extents["batch"]
        for images in cut(count, max(1, most // height), threads if count >= threads else 1):
            for rows in cut(height, most, 1 if count >= threads else threads):
                yield Block(images, rows, *self._problem.rows.box(rows, (0, self._kernel[0]), self._kernel[0]))

    def _shapes(self, block: Block) -> Shapes:
        images, rows = (stop - start for start, stop in (block.images, block.rows))
        out = (images, rows, self._columns, self._channels)
        height = self._problem.rows.halo(rows, self._kernel[0])
        width, phases = self._problem.columns.halo(self._columns, self._kernel[1]), self._steps[1][0]
        return {
            "image": ((images, height, phases, -(-width // phases), self._channels), self._dtype),
            "sums": (out, self._dtype),
            "product": (out, self._dtype),
        }

    def pack_weights(self, w: Array) -> Array:
        """Depthwise weights as (KH, KW, columns, C): beside a row of the output, each tap's are one run."""
        taps = w.transpose([self._problem.w_axes.index(letter) for letter in "HWIO"])[:, :, 0].astype(self._dtype)
        return np.repeat(taps[:, :, None], self._columns, axis=2)

    def images(self, x: Array) -> Array:
        """The image's tensor as (N, H, W, C)."""
        return arrange(x, tuple(self._problem.x_axes.index(letter) for letter in "NHWC"))

    def bind(
        self, block: Block, images: Array, weights: Array | None, epilogue: BoundEpilogue, scratch: Scratch
    ) -> Iterator[Call]:
        """The NumPy calls that reduce the windows of one block.

        Args:
            block: one of ``blocks``.
            images: from ``images``.
            weights: of a depthwise convolution, from ``pack_weights``.
            epilogue: takes the block.
            scratch: of at least ``scratch_bytes``.
        """
        arrays = scratch.arrays(self._shapes(block))
        yield from self._pack(images[slice(*block.images)], block, arrays["image"])
        sums, product = arrays["sums"], arrays["product"]
        fold = np.maximum if self._problem.is_maximum else np.add
        for number, (kh, kw) in enumerate(np.ndindex(self._kernel)):
            tap = self._tap(arrays["image"], kh, kw, sums.shape[1])
            if weights is None:
                yield partial(fold, sums if number else self._start, tap, out=sums)
            elif not number:
                yield partial(np.multiply, tap, weights[kh, kw], sums)  # the epilogue adds 0.0
            else:
                yield partial(np.multiply, tap, weights[kh, kw], product)
                yield partial(np.add, sums, product, sums)
        if self._problem.is_mean:
            by_row, by_column = self._problem.divisors()
            divisors = np.outer(by_row[slice(*block.rows)], by_column)[:, :, None]
            yield partial(np.divide, sums, np.maximum(divisors, 1).astype(np.float32), sums)
        yield epilogue.call(sums, (slice(*block.images), slice(*block.rows), slice(None), slice(None)))

    def _pack(self, images: Array, block: Block, packed: Array) -> Iterator[Call]:
        """The padded piece of each image that a block needs."""
        data = images[:, block.source, self._source]
        height, phases, width = packed.shape[1:4]
        if phases == 1:
            yield from fill_border(packed[:, :, 0], (slice(None), block.target, self._target), self._fill)
        elif data.shape[1] < height or data.shape[2] < phases * width:
            yield partial(packed.fill, self._fill)
        for phase in range(phases):
            first = (phase - self._target.start) % phases  # data column of this phase
            start = (self._target.start + first) // phases
            some = data[:, :, first::phases]
            yield partial(np.copyto, packed[:, block.target, phase, start : start + some.shape[2]], some)

    def _tap(self, packed: Array, kh: int, kw: int, rows: int) -> Array:
        """What tap (kh, kw) of each window sees: (N, rows, columns, C)."""
        (stride, dilation), (phases, across) = self._steps
        top, left = kh * dilation, kw * across
        picked = packed[:, top : top + (rows - 1) * stride + 1 : stride, left % phases]
        return picked[:, :, left // phases : left // phases + self._columns]
