"""The box of a tile along one axis, against a count of every position one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from npu_kit.plan.geometry.sliding import Sliding


@st.composite
def slidings(draw: st.DrawFn) -> Sliding:
    kernel, stride, dilation = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    before, after = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    extent = dilation * (kernel - 1) + 1
    size = draw(st.integers(max(1, extent - before - after), 25))
    out = (size + before + after - extent) // stride + 1
    return Sliding(size, out, kernel, stride, dilation, before, after)


@given(slidings(), st.data())
def test_a_box_holds_what_its_tile_reads(sliding: Sliding, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, sliding.out - 1))
    last = data.draw(st.integers(first + 1, sliding.out))
    kernel_tile = data.draw(st.integers(1, sliding.kernel))
    k0 = data.draw(st.integers(0, sliding.kernel - 1)) // kernel_tile * kernel_tile
    k1 = min(k0 + kernel_tile, sliding.kernel)
    source, target = sliding.box((first, last), (k0, k1), kernel_tile)
    length = sliding.halo(last - first, kernel_tile)
    held: list[int | None] = [None] * length
    held[target] = range(sliding.size)[source]
    stride, dilation = sliding.steps(kernel_tile)
    for output in range(first, last):
        for tap in range(k0, k1):
            position = output * sliding.stride + tap * sliding.dilation - sliding.before
            wanted = position if 0 <= position < sliding.size else None
            assert held[(output - first) * stride + (tap - k0) * dilation] == wanted


@given(slidings(), st.booleans())
def test_taps_that_count(sliding: Sliding, include_padding: bool) -> None:
    low, high = (-sliding.before, sliding.size + sliding.after) if include_padding else (0, sliding.size)
    data = range(low, high)
    for output, taps in enumerate(sliding.taps(include_padding)):
        first = output * sliding.stride - sliding.before
        assert taps == sum(first + k * sliding.dilation in data for k in range(sliding.kernel))
