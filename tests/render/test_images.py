"""Small grey images side by side."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from npu_kit.errors import RenderError
from npu_kit.render.image_picture import MAX_IMAGES, images

SVG = "{http://www.w3.org/2000/svg}"


def pixels(picture):
    """Fill colours of the pixels: every rectangle whose fill is a shade of grey, but for the white ground."""
    fills = [rect.get("fill") for rect in ElementTree.fromstring(picture).iter(f"{SVG}rect")]
    return [fill for fill in fills if re.fullmatch(r"#(..)\1\1", fill) and fill != "#FFFFFF"]


def test_dark_is_one_and_white_is_not_drawn():
    picture = images([np.array([[0.0, 1.0], [0.5, 0.0]])])
    assert pixels(picture) == ["#000000", "#808080"]


def test_values_outside_of_the_range_and_nan_are_drawn_as_its_ends():
    assert pixels(images([np.array([[2.0, -1.0, np.nan, np.inf]])])) == ["#000000", "#000000"]


def test_captions_stand_under_their_images_and_are_text():
    picture = images(np.ones((2, 3, 3, 1)), ["<one>", "two"])
    texts = [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert texts == ["<one>", "two"]


@pytest.mark.parametrize(
    ("arrays", "captions", "message"),
    [
        ([], (), "cannot draw 0 images"),
        (np.ones((MAX_IMAGES + 1, 2, 2)), (), "room for 1 to"),
        (np.ones((2, 2, 2)), ("one",), "1 captions for 2 images"),
        ([np.ones((2, 2)), np.ones((2, 2, 3))], (), "image 1 of shape 2x2x3"),
        ([np.ones((33, 2))], (), "image 0 of shape 33x2"),
        ([np.ones((0, 2))], (), "image 0 of shape 0x2"),
    ],
)
def test_what_cannot_be_drawn_is_named(arrays, captions, message):
    with pytest.raises(RenderError, match=message):
        images(arrays, captions)
