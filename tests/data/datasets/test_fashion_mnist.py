from __future__ import annotations

from pathlib import Path

import pytest

from srfca import data
from srfca.errors import InputError
from tests.data.loaders.test_mnist import write


def test_rotated_fashion_mnist_deals_the_images_of_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "fashion-mnist")
    dealt = data.rotated_fashion_mnist(folder=tmp_path, num_clients=1, rotations=1)
    assert dealt.truth is not None
    assert dealt.truth.labels.tolist() == [0]
    assert dealt.train.sizes.tolist() == [5]
    assert dealt.train.x.shape == (5, 28, 28)
    with pytest.raises(InputError, match="rotations must be"):
        data.rotated_fashion_mnist(folder=tmp_path, rotations=3)
