from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from srfca import data
from srfca.data.datasets.flux import FluxShift
from srfca.errors import InputError
from srfca.parameters import choices
from tests.data.loaders.test_mnist import gzipped, idx, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with an MNIST of 1,000 training and 400 test images."""
    paths = write(tmp_path)
    rng = np.random.default_rng(0)
    for split, count in (("train", 1000), ("t10k", 400)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        paths[f"{split}-images-idx3-ubyte"].write_bytes(gzipped(idx(images)))
        paths[f"{split}-labels-idx1-ubyte"].write_bytes(
            gzipped(idx((np.arange(count) % 10).astype(np.uint8)))
        )
    return tmp_path


@pytest.mark.parametrize("level", range(1, 9))
@pytest.mark.parametrize("shift", choices(FluxShift))
def test_clients_with_the_same_pattern_are_a_cluster(
    folder: Path, shift: FluxShift, level: int
) -> None:
    dealt = data.flux_images(shift=shift, level=level, folder=folder, seed=level)
    assert dealt.truth is not None
    assert dealt.test is not None
    assert len(dealt) == 10
    assert dealt.train.x.shape[1:] == (3, 28, 28)
    assert 0 <= float(dealt.train.x.min()) < float(dealt.train.x.max()) <= 1
    limit = {
        "features": (2 + (level - 1) % 4) * (3 if level > 4 else 1),
        "labels": 1 if level == 1 else 5,
        "labels-given-features": (1, 2, 6, 10, 10, 10, 10, 10)[level - 1],
        "features-given-labels": (4, 10, 10, 10, 10, 10, 10, 10)[level - 1],
    }[shift]
    assert 1 <= dealt.truth.num_clusters <= min(limit, 10)
    again = data.flux_images(shift=shift, level=level, folder=folder, seed=level)
    assert again.fingerprint() == dealt.fingerprint()


def test_labels_are_of_one_of_five_sets(folder: Path) -> None:
    dealt = data.flux_images(shift="labels", level=8, folder=folder, num_clients=20)
    assert dealt.test is not None
    assert dealt.truth is not None
    sets = [frozenset(dealt.train.of(client)[1].tolist()) for client in range(20)]
    assert {len(classes) for classes in sets} == {3}
    assert 2 <= len(set(sets)) == dealt.truth.num_clusters <= 5
    for client, classes in enumerate(sets):
        assert set(dealt.test.of(client)[1].tolist()) <= classes


def test_features_have_color_casts_at_high_levels(folder: Path) -> None:
    colored = data.flux_images(shift="features", level=8, folder=folder)
    for client in range(10):
        filled = (colored.train.of(client)[0] == 1).all(0).flatten(1).all(1)
        assert int(filled.sum()) == 1, "one channel is filled"
    gray = data.flux_images(shift="features", level=4, folder=folder).train.x
    assert torch.equal(gray[:, 0], gray[:, 2])


def test_invalid_arguments_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="level must be from 1 to 8, not 9"):
        data.flux_images(level=9, folder=folder)
    with pytest.raises(InputError, match="did you mean 'features'"):
        data.flux_images(shift="feature", folder=folder)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        data.flux_images(dataset="mnit", folder=folder)  # type: ignore[arg-type]
