"""Mixtures of linear regressions: the paper's synthetic experiment."""

from __future__ import annotations

import numpy as np

from srfca.data.clients import ClientData
from srfca.errors import require


def synthetic(
    *,
    clients: int = 100,
    samples: int = 100,
    dimension: int = 1000,
    clusters: int = 2,
    noise: float = 0.001,
    seed: int = 0,
) -> ClientData:
    """Linear regression with a ``w*`` of its own for each cluster.

    ``y = <x, w*> + noise N(0, 1)``, ``x ~ N(0, I)``, each coordinate of ``w*`` is 0 or 1 with equal
    chance. Clients are dealt to the clusters in turn. Test data are as many samples again.
    """
    for name, value in (("clients", clients), ("samples", samples), ("dimension", dimension)):
        require(value >= 1, f"{name} must be at least 1, not {value}")
    require(
        1 <= clusters <= clients,
        f"clusters must be at least 1 and at most {clients} (clients), not {clusters}",
    )
    require(noise >= 0, f"noise must not be negative, but is {noise}")
    rng = np.random.default_rng([seed, clients, dimension])
    optima = rng.integers(0, 2, (clusters, dimension)).astype(np.float64)
    truth = np.arange(clients, dtype=np.int64) % clusters

    def draw(cluster: np.int64) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((samples, dimension))
        y = x @ optima[cluster] + noise * rng.standard_normal(samples)
        return x.astype(np.float32), y.astype(np.float32)

    train = [draw(cluster) for cluster in truth]
    test = [draw(cluster) for cluster in truth]
    return ClientData.of(train, test, truth, optima=optima)
