"""Labeled images with a training and a test part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Images:
    """Labeled images, with pixels from 0 to 255.

    Args:
        train_x: Gray images ``[n, height, width]`` or color images ``[n, 3, height, width]``.
        train_y: Their classes, ``[n]``.
        test_x: Test images of the same shape.
        test_y: Their classes.
    """

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]

    def __repr__(self) -> str:
        shape = self.train_x.shape[1:]
        return f"Images({len(self.train_x)} for training, {len(self.test_x)} for testing, {shape})"
