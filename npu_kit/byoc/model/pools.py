"""Pools of other ranks as pools of 2-D data: the windows see the same elements, in the same order."""

from __future__ import annotations

from typing import Any

from tvm import relax

from npu_kit.byoc.model.calls import is_reshape_target, shape_of

_POOL2D = {"max_pool": relax.op.nn.max_pool2d, "avg_pool": relax.op.nn.avg_pool2d}
POOLS = tuple(f"relax.nn.{kind}{rank}d" for kind in _POOL2D for rank in (1, 3))


def as_pool2d(builder: Any, call: Any, data: Any) -> Any | None:
    """``call``, one of ``POOLS``, as a reshape, a pool of 2-D data and a reshape; None where that is another pool.

    1-D data is one row. 3-D data is one row for each D, if a window is one element high and one wide: so ONNX's LRN
    comes, as a mean over neighbouring channels. ``data`` holds the elements of the operand, in any shape.
    """
    shape, out, attrs = shape_of(call.args[0]), shape_of(call), call.attrs
    if not is_reshape_target(shape) or not is_reshape_target(out):
        return None
    if str(attrs.layout) not in ("NCW", "NCDHW") or attrs.out_layout != attrs.layout:
        return None
    size, strides, dilation, padding = (
        [int(one) for one in getattr(attrs, key)] for key in ("pool_size", "strides", "dilation", "padding")
    )
    before, after = padding[: len(size)], padding[len(size) :]
    is_one_row = len(size) == 1
    if not is_one_row and [*size[1:], *strides[1:], *before[1:], *after[1:]] != [1, 1, 1, 1, 0, 0, 0, 0]:
        return None

    def pair(along: int, across: int) -> tuple[int, int]:
        """Numbers for rows and columns of the 2-D data: one along the axis that is pooled, one across it."""
        return (across, along) if is_one_row else (along, across)

    rows, columns = (1, shape[2]) if is_one_row else (shape[2], shape[3] * shape[4])
    image = builder.emit(relax.op.reshape(data, (*shape[:2], rows, columns)))
    pool = _POOL2D[str(call.op.name).removeprefix("relax.nn.")[:-2]](
        image,
        pair(size[0], 1),
        pair(strides[0], 1),
        (*pair(before[0], 0), *pair(after[0], 0)),
        pair(dilation[0], 1),
        bool(attrs.ceil_mode),
        bool(attrs.count_include_pad),
    )
    return builder.normalize(relax.op.reshape(builder.emit(pool), out))
