"""Rotated digits: real images that come with scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from srfca.data.clients import ClientData
from srfca.errors import require


def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images ``[1797, 8, 8]`` of 0 to 16, and digits, from the file that comes with scikit-learn.

    Its own loader imports all of its data sets, which takes longer than a small run.
    """
    found = find_spec("sklearn")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0])
    numbers = np.loadtxt(folder / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return numbers[:, :-1].reshape(-1, 8, 8), numbers[:, -1].astype(np.int64)


def rotated_digits(*, clients: int = 40, rotations: int = 4, seed: int = 0) -> ClientData:
    """scikit-learn's 1,797 handwritten 8x8 digits, dealt to clients that see them turned.

    Every image goes to one client. Client i turns all of its images by ``i mod rotations`` times
    ``360 / rotations`` degrees; a fifth of them is its test data.
    """
    require(rotations in (1, 2, 4), f"rotations must be 1, 2 or 4, not {rotations}")
    require(
        rotations <= clients <= 300,
        f"clients must be at least {rotations} (rotations) and at most 300, not {clients}",
    )
    digits, target = read_digits()
    images = (digits / 16.0).astype(np.float32)
    order = np.random.default_rng([seed, clients]).permutation(len(images))
    truth = np.arange(clients) % rotations
    train, test = [], []
    for cluster, share in zip(truth, np.array_split(order, clients), strict=True):
        x = np.rot90(images[share], int(cluster) * (4 // rotations), axes=(1, 2)).copy()
        y = target[share]
        held = len(share) // 5
        test.append((x[:held], y[:held]))
        train.append((x[held:], y[held:]))
    return ClientData.of(train, test, truth)
