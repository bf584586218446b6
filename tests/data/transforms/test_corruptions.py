from __future__ import annotations

import numpy as np
import pytest

from srfca.data.transforms import CORRUPTIONS, blur, brightness, contrast, gaussian_noise
from srfca.errors import InputError

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (40, 12, 12)).astype(np.uint8)
COLOR = RNG.integers(0, 256, (40, 3, 12, 12)).astype(np.uint8)
Y = np.arange(40) % 4


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("x", [GRAY, COLOR], ids=["gray", "color"])
def test_severities_change_images_more_and_more(name: str, x: np.ndarray) -> None:
    changes = []
    for severity in range(1, 6):
        changed, labels = CORRUPTIONS[name](severity)(x, Y)
        assert changed.dtype == np.uint8
        assert changed.shape == x.shape
        assert labels is Y
        changes.append(float(abs(changed.astype(float) - x).mean()))
    assert changes[0] > 0
    assert changes == sorted(changes)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_floats_from_0_to_1_are_changed_as_integers_from_0_to_255(name: str) -> None:
    corruption = CORRUPTIONS[name](3)
    floats = corruption(GRAY / np.float32(255), Y)[0]
    assert floats.dtype == np.float32
    assert floats.min() >= 0
    assert floats.max() <= 1
    np.testing.assert_allclose(floats * 255, corruption(GRAY, Y)[0], atol=0.51)


def test_brightness_keeps_the_hue() -> None:
    x = np.zeros((1, 3, 1, 2))
    x[0, :, 0, 0] = [0.4, 0.2, 0.0]
    changed = brightness(4)(x, Y[:1])[0]
    np.testing.assert_allclose(changed[0, :, 0, 0], [0.6, 0.3, 0.0], rtol=1e-5)
    np.testing.assert_allclose(changed[0, :, 0, 1], [0.2] * 3, rtol=1e-5)


def test_contrast_and_blur_keep_the_mean() -> None:
    x = RNG.random((3, 20, 20)) * 0.5 + 0.25
    for corruption in (contrast(3), blur(5)):
        changed = corruption(x, Y[:3])[0]
        np.testing.assert_allclose(changed.mean((1, 2)), x.mean((1, 2)), atol=0.01)
        assert (changed.std((1, 2)) < x.std((1, 2))).all()


def test_invalid_arguments_are_refused() -> None:
    for corruption in CORRUPTIONS.values():
        for severity in (0, 6):
            with pytest.raises(InputError, match=f"from 1 to 5, not {severity}"):
                corruption(severity)
    with pytest.raises(InputError, match="gaussian_noise needs images"):
        gaussian_noise(1)(GRAY[:, 0, 0], Y)
