from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from srfca import data
from srfca.errors import InputError


def test_rotated_mnist_deals_all_images(real_data: Callable[[str], Path]) -> None:
    folder = real_data("mnist")
    rotated = data.rotated_mnist(folder=folder, seed=1)
    assert len(rotated) == 100
    assert set(rotated.train.sizes.tolist()) == {600}
    assert rotated.truth is not None
    assert rotated.truth.sizes.tolist() == [25] * 4
    one_cluster = data.rotated_mnist(folder=folder, rotations=1, num_clients=4)
    four_clusters = data.rotated_mnist(folder=folder, rotations=4, num_clients=4)
    assert one_cluster.train.x.shape == four_clusters.train.x.shape
    with pytest.raises(InputError, match="rotations must be"):
        data.rotated_mnist(folder=folder, rotations=3)


def test_inverted_mnist_is_bright_for_half_of_the_clients(
    real_data: Callable[[str], Path],
) -> None:
    inverted = data.inverted_mnist(
        folder=real_data("mnist"), num_clients=10, standardize="federation"
    )
    bright, dark = (inverted.train.of(client)[0].mean().item() for client in (1, 0))
    assert bright > 0.5
    assert dark < -0.5
