"""Labelled images, as the image data sets publish them: one training and one test part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Images:
    """Grey images ``[N, H, W]`` or colour images ``[N, 3, H, W]`` with their classes ``[N]``."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]

    def __repr__(self) -> str:
        shape = self.train_x.shape[1:]
        return f"Images({len(self.train_x)} for training, {len(self.test_x)} for testing, {shape})"
