"""Turned moons: two half circles, turned by an angle that depends on the cluster."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_moons

from srfca.data import ClientData, register_dataset


@register_dataset("turned_moons")
def turned_moons(
    *, num_clients: int = 12, samples: int = 60, clusters: int = 2, seed: int = 0
) -> ClientData:
    """Return scikit-learn's two moons, turned by an angle that depends on the cluster.

    Args:
        num_clients: Number of clients.
        samples: Training samples of each client; there are as many test samples.
        clusters: Number of clusters; angles are spread evenly over a full turn.
        seed: Decides the samples.
    """
    rng = np.random.default_rng(seed)
    truth = np.arange(num_clients) % clusters
    train, test = [], []
    for cluster in truth:
        angle = 2 * np.pi * cluster / clusters
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for part in (train, test):
            x, y = make_moons(samples, noise=0.1, random_state=int(rng.integers(2**31)))
            part.append(((x @ turn).astype(np.float32), y))
    return ClientData.from_arrays(train, test, truth)
