"""1,797 scans of handwritten digits and the weights of a classifier trained on them; ``README.md`` has the licence.

``scripts/train_digits.py`` wrote both files and can be run again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npu_kit.data.arrays import load_arrays

IMAGES_FILE = Path(__file__).with_name("digits_images.npz")
WEIGHTS_FILE = Path(__file__).with_name("digits_weights.npz")
MAX_PIXEL = 16  # each pixel counts the dark points of a 4x4 block of the original scan
EPSILON = 1e-5  # of the classifier's batch norms


@dataclass(frozen=True, eq=False)
class DigitsData:
    """Images with their digits, and which of them the training never saw."""

    images: NDArray[np.float32]  # (1797, 8, 8, 1), NHWC, 0 white to 1 black
    labels: NDArray[np.int64]  # (1797,), 0 to 9
    is_test: NDArray[np.bool_]  # (1797,), True for the 360 held-out images

    @property
    def test_images(self) -> NDArray[np.float32]:
        return self.images[self.is_test]

    @property
    def test_labels(self) -> NDArray[np.int64]:
        return self.labels[self.is_test]

    @property
    def train_images(self) -> NDArray[np.float32]:
        return self.images[~self.is_test]

    @property
    def train_labels(self) -> NDArray[np.int64]:
        return self.labels[~self.is_test]

    def __repr__(self) -> str:
        return f"DigitsData({len(self.images)} images of 8x8, {int(self.is_test.sum())} held out)"


def load_digits_data() -> DigitsData:
    """Load the images, as fresh arrays.

    >>> load_digits_data()
    DigitsData(1797 images of 8x8, 360 held out)
    """
    stored = load_arrays(IMAGES_FILE)
    is_test = np.zeros(len(stored["labels"]), np.bool_)
    is_test[stored["test_indices"]] = True
    images = stored["images"][..., np.newaxis].astype(np.float32) / np.float32(MAX_PIXEL)
    return DigitsData(images, stored["labels"].astype(np.int64), is_test)


def load_digits_parameters() -> dict[str, NDArray[np.float32]]:
    """Load the weights by name, in the order in which the network uses them.

    ``conv1_weight`` (3, 3, 1, 12) and ``conv2_weight`` (3, 3, 12, 40) are HWIO, ``dense_weight`` is (360, 10); each
    convolution is followed by a batch norm with ``_gamma``, ``_beta``, ``_mean`` and ``_var``.

    >>> load_digits_parameters()["conv2_weight"].shape
    (3, 3, 12, 40)
    """
    return load_arrays(WEIGHTS_FILE)
