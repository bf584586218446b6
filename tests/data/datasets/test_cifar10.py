from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import data
from tests.data.loaders.test_cifar10 import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with CIFAR-10 in small: 100 training and 20 test images."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3072), dtype=np.uint8)
    write(tmp_path, pickle.dumps({b"labels": [i % 10 for i in range(20)], b"data": pixels}))
    return tmp_path


def test_clusters_of_rotated_cifar10_share_all_images(folder: Path) -> None:
    rotated = data.rotated_cifar10(folder=folder, num_clients=4)
    assert rotated.test is not None
    assert rotated.truth is not None
    assert rotated.truth.labels.tolist() == [0, 1, 0, 1]
    assert rotated.train.x.shape == (200, 3, 32, 32)
    assert rotated.test.sizes.tolist() == [10] * 4
    upright, turned = (
        torch.cat([rotated.train.of(client)[0] for client in clients]).sum(0)
        for clients in ([0, 2], [1, 3])
    )
    torch.testing.assert_close(upright, turned.flip(1, 2), rtol=0, atol=1e-3)


def test_clusters_of_label_cifar10_have_different_classes(folder: Path) -> None:
    dealt = data.label_cifar10(folder=folder, num_clients=2, sizes=40)
    assert dealt.train.sizes.tolist() == [40, 40]
    assert set(dealt.train.of(0)[1].tolist()) == {0, 1, 2, 3, 4}
    assert set(dealt.train.of(1)[1].tolist()) == {5, 6, 7, 8, 9}
