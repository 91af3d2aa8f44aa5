"""Small grey images side by side, each with a caption: what a model is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_kit.errors import RenderError
from npu_kit.render import theme
from npu_kit.render.picture import Picture
from npu_kit.render.svg import Canvas

MAX_IMAGES = 24
MAX_SIDE = 32  # pixels: each becomes a rectangle

_COLUMNS, _SIDE, _GAP, _TOP, _LINE = 8, 96, 16, 12, 18


def images(arrays: Sequence[NDArray[Any]], captions: Sequence[str] = (), *, title: str = "Images") -> Picture:
    """Draw images with values from 0 (white) to 1 (black).

    Args:
        arrays: images (H, W) or (H, W, 1), for instance one array (N, H, W, 1).
        captions: a line under each, none or one per image.
        title: for screen readers.

    Raises:
        RenderError: too many images or captions, or an image of another shape.
    """
    if not 1 <= len(arrays) <= MAX_IMAGES:
        raise RenderError(f"cannot draw {len(arrays)} images", f"the picture has room for 1 to {MAX_IMAGES}")
    if captions and len(captions) != len(arrays):
        raise RenderError(f"{len(captions)} captions for {len(arrays)} images", "there must be none or one per image")
    flat = [_to_grey(array, number) for number, array in enumerate(arrays)]
    columns, rows = min(_COLUMNS, len(flat)), -(-len(flat) // _COLUMNS)
    height = _SIDE + (_LINE if captions else 0) + _GAP
    width = _GAP + columns * (_SIDE + _GAP)
    canvas = Canvas(width, _TOP + rows * height, title, "; ".join(captions))
    for number, grey in enumerate(flat):
        row, column = divmod(number, _COLUMNS)
        x, y = _GAP + column * (_SIDE + _GAP), _TOP + row * height
        _draw(canvas, grey, x, y)
        if captions:
            center = x + _SIDE / 2
            canvas.text(center, y + _SIDE + 14, captions[number], anchor="middle", width=_SIDE + _GAP - 4)
    return canvas.picture()


def _to_grey(array: NDArray[Any], number: int) -> NDArray[Any]:
    grey = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
    if grey.ndim != 2 or not 1 <= max(grey.shape) <= MAX_SIDE or 0 in grey.shape:
        shape = "x".join(map(str, array.shape))
        raise RenderError(
            f"cannot draw image {number} of shape {shape}", f"it takes 1 to {MAX_SIDE} by {MAX_SIDE} pixels"
        )
    return np.asarray(np.clip(np.nan_to_num(grey), 0, 1))


def _draw(canvas: Canvas, grey: NDArray[Any], x: float, y: float) -> None:
    pixel = _SIDE / max(grey.shape)
    for (row, column), value in np.ndenumerate(grey):
        if value > 0:
            level = round(255 * (1 - float(value)))
            fill = f"#{level:02X}{level:02X}{level:02X}"
            canvas.rect(x + column * pixel, y + row * pixel, pixel + 0.3, pixel + 0.3, fill=fill)
    canvas.rect(x, y, pixel * grey.shape[1], pixel * grey.shape[0], stroke=theme.RULE)
