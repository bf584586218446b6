"""Sizes of models that follow from the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from srfca import ClientData
from srfca.errors import InputError
from srfca.fitting.sizes import model_sizes, num_outputs
from tests.experiments.small import X, Y


@dataclass(frozen=True)
class ImageModel:
    classes: int = 9
    channels: int = 3
    size: int = 32
    hidden: int = 5


@pytest.mark.parametrize(
    ("x", "sizes"),
    [
        (np.zeros((4, 8, 8)), {"channels": 1, "size": 8, "classes": 2}),
        (np.zeros((4, 2, 6, 6)), {"channels": 2, "size": 6, "classes": 2}),
    ],
)
def test_sizes_of_a_model_follow_from_the_data(x: NDArray[Any], sizes: dict[str, int]) -> None:
    assert model_sizes(ImageModel, "cnn", ClientData.from_arrays([(x, [0, 1, 0, 1])])) == sizes


def test_the_number_of_outputs_follows_from_the_targets() -> None:
    def outputs(y: Any, test: Any = None) -> int:
        test_data = None if test is None else [(X, test)]
        return num_outputs(ClientData.from_arrays([(X, y)], test_data))

    assert outputs(Y) == 2
    assert outputs(Y, np.full(12, 4)) == 5, "a class that only test data has counts"
    assert outputs(0 * Y) == 2, "a single output would be scored as yes or no"
    assert outputs(X[:, 0]) == 1
    assert outputs(X) == 3
    for wrong in (Y - 1, Y + 30):
        with pytest.raises(InputError, match="classes are numbered from 0"):
            outputs(wrong)
    with pytest.raises(InputError, match="cnn takes square images"):
        model_sizes(ImageModel, "cnn", ClientData.from_arrays([(X, Y)]))
