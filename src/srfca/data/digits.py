"""Rotated digits: real images that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from srfca.data.clients import ClientData
from srfca.errors import require


def rotated_digits(*, clients: int = 40, rotations: int = 4, seed: int = 0) -> ClientData:
    """scikit-learn's 1,797 handwritten 8x8 digits, dealt to clients that see them turned.

    Every image goes to one client. Client i turns all of its images by ``i mod rotations`` times
    ``360 / rotations`` degrees; a fifth of them is its test data.
    """
    from sklearn.datasets import load_digits

    require(rotations in (1, 2, 4), f"rotations must be 1, 2 or 4, not {rotations}")
    require(
        rotations <= clients <= 300,
        f"clients must be at least {rotations} (rotations) and at most 300, not {clients}",
    )
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    order = np.random.default_rng([seed, clients]).permutation(len(images))
    truth = np.arange(clients) % rotations
    train, test = [], []
    for cluster, share in zip(truth, np.array_split(order, clients), strict=True):
        x = np.rot90(images[share], int(cluster) * (4 // rotations), axes=(1, 2)).copy()
        y = digits.target[share]
        held = len(share) // 5
        test.append((x[:held], y[:held]))
        train.append((x[held:], y[held:]))
    return ClientData.of(train, test, truth)
