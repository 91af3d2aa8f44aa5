"""One spatial axis of a convolution or a pool: which input positions an output span needs.

With output position ``o`` and kernel position ``k`` the input position is ``o * stride + k * dilation - before``. Of a
transposed convolution it is that in the input with zeros between its elements, and the kernel is turned round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sliding:
    """One spatial axis; the defaults describe an axis without a kernel, such as the rows of a matmul."""

    size: int  # input positions
    out: int  # output positions
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0  # padding
    after: int = 0
    upsample: int = 1  # input positions lie this far apart, zeros between them: a transposed convolution

    def steps(self, kernel_tile: int) -> tuple[int, int]:
        """Stride and dilation *inside the tile's box*.

        A box for one kernel position holds only the positions it uses, side by side, so a strided 1x1 convolution does
        not move the pixels it skips.
        """
        return (1, 1) if kernel_tile == 1 else (self.stride, self.dilation)

    def reach(self, out_span: tuple[int, int]) -> tuple[int, int]:
        """From the first input position that the outputs use to behind the last: in one piece, padding included."""
        last = (out_span[1] - 1) * self.stride + (self.kernel - 1) * self.dilation
        return out_span[0] * self.stride - self.before, last + 1 - self.before

    def halo(self, tile: int, kernel_tile: int) -> int:
        """Length of the box that ``tile`` outputs and ``kernel_tile`` kernel positions need."""
        stride, dilation = self.steps(kernel_tile)
        return (tile - 1) * stride + (kernel_tile - 1) * dilation + 1

    def box(self, out_span: tuple[int, int], kernel_span: tuple[int, int], kernel_tile: int) -> tuple[slice, slice]:
        """The real input positions of a tile, and where they stand in its box; both empty where all is padding."""
        first = out_span[0] * self.stride + kernel_span[0] * self.dilation - self.before
        outputs, taps = out_span[1] - out_span[0], kernel_span[1] - kernel_span[0]
        if kernel_tile == 1:
            step, count = self.stride, outputs
        else:
            step, count = 1, (outputs - 1) * self.stride + (taps - 1) * self.dilation + 1
        low = max(0, -(first // step)) if first < 0 else 0
        high = min(count, -((first - self.size) // step))
        if self.upsample > 1:
            return self._spread(first, count)
        if high <= low:
            return slice(0, 0), slice(0, 0)
        return slice(first + low * step, first + (high - 1) * step + 1, step), slice(low, high)

    def _spread(self, first: int, count: int) -> tuple[slice, slice]:
        """The same for ``count`` positions from ``first`` on, of which only every so manieth is a real one."""
        low = max(0, -(-first // self.upsample))
        high = min(self.size, -(-(first + count) // self.upsample))
        if high <= low:
            return slice(0, 0), slice(0, 0)
        start = low * self.upsample - first
        return slice(low, high), slice(start, start + (high - low - 1) * self.upsample + 1, self.upsample)

    def taps(self, include_padding: bool) -> list[int]:
        """Kernel positions that count towards a mean, per output position: on data, or on data and padding."""
        low, high = (-self.before, self.size + self.after) if include_padding else (0, self.size)
        firsts = (position * self.stride - self.before for position in range(self.out))
        return [sum(low <= first + k * self.dilation < high for k in range(self.kernel)) for first in firsts]


def sliding_of(attrs: Mapping[str, Any], place: int, size: int, out: int, kernel: int) -> Sliding:
    """The spatial axis at ``place`` in the strides, dilation and padding of a convolution or a pool."""
    strides, dilation, padding = attrs["strides"], attrs["dilation"], attrs["padding"]
    after = padding[len(strides) + place]
    return Sliding(size, out, kernel, strides[place], dilation[place], padding[place], after)
