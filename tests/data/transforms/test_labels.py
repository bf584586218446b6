from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srfca.data.transforms import label_noise, reverse_labels, shift_labels
from srfca.errors import InputError

X = np.zeros(5000)
Y = np.arange(5000) % 10


def test_relabeled_concepts() -> None:
    assert reverse_labels(10)(X, Y)[1].tolist() == (9 - Y).tolist()
    assert shift_labels(10)(X, Y)[1].tolist() == ((Y + 1) % 10).tolist()
    assert shift_labels(10, by=3)(X, Y)[1].tolist() == ((Y + 3) % 10).tolist()
    with pytest.raises(InputError, match="classes 0 to 8"):
        reverse_labels(9)(X, Y)


@given(rate=st.floats(0, 1), seed=st.integers(0, 99))
def test_label_noise_replaces_a_fraction_by_other_classes_alike(rate: float, seed: int) -> None:
    x, y = label_noise(rate, 10, splits="all").draw(X, Y, np.random.default_rng(seed))
    assert x is X
    replaced = y != Y
    assert replaced.mean() == pytest.approx(rate, abs=0.03)
    assert y.min() >= 0
    assert y.max() <= 9
    if rate > 0.5:
        shifts = np.bincount((y - Y)[replaced] % 10, minlength=10)[1:]
        np.testing.assert_allclose(shifts / replaced.sum(), 1 / 9, atol=0.03)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(InputError, match=r"rate must be in \[0, 1\], not 1.5"):
        label_noise(1.5, 10, splits="all")
    with pytest.raises(InputError, match="num_classes must be at least 2"):
        label_noise(0.5, 1, splits="all")
    with pytest.raises(InputError, match="unknown splits 'test'"):
        label_noise(0.5, 10, splits="test")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="classes 0 to 4, but labels are from 0 to 9"):
        label_noise(0.5, 5, splits="all")(X, Y)
