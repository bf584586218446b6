"""Mixtures of linear regressions: the paper's synthetic experiment."""

from __future__ import annotations

import numpy as np

from srfca.data.client_data import ClientData
from srfca.data.registry import register_dataset
from srfca.errors import require, require_positive, require_seed


@register_dataset("synthetic")
def synthetic(
    *,
    num_clients: int = 100,
    samples: int = 100,
    dimension: int = 1000,
    clusters: int = 2,
    noise: float = 0.001,
    seed: int = 0,
) -> ClientData:
    """Return linear regressions with a different ``w*`` for each cluster.

    ``y = <x, w*> + noise N(0, 1)`` with ``x ~ N(0, I)``; each coordinate of ``w*`` is 0 or 1 with
    equal probability. Clients are assigned to the clusters in turn.

    Args:
        num_clients: Number of clients.
        samples: Training samples per client; there are as many test samples.
        dimension: Length of ``x``.
        clusters: Number of clusters.
        noise: Standard deviation of the noise.
        seed: Decides all draws.

    Returns:
        The clients, with their true partition and the true ``w*`` as ``optima``.

    Raises:
        InputError: If an argument is out of range.

    Examples:
        >>> synthetic(num_clients=4, samples=10, dimension=3)
        ClientData(4 clients, 10 training samples of shape (3,), 40 test samples, 2 true clusters)
    """
    require_positive(
        num_clients=num_clients, samples=samples, dimension=dimension, clusters=clusters
    )
    require_seed(seed)
    require(
        1 <= clusters <= num_clients,
        f"clusters must be at least 1 and at most {num_clients} (num_clients), not {clusters}",
    )
    require(noise >= 0, f"noise must not be negative, but is {noise}")
    rng = np.random.default_rng([seed, num_clients, dimension])
    optima = rng.integers(0, 2, (clusters, dimension)).astype(np.float64)
    truth = np.arange(num_clients, dtype=np.int64) % clusters

    def draw(cluster: np.int64) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((samples, dimension))
        y = x @ optima[cluster] + noise * rng.standard_normal(samples)
        return x.astype(np.float32), y.astype(np.float32)

    train = [draw(cluster) for cluster in truth]
    test = [draw(cluster) for cluster in truth]
    return ClientData.from_arrays(train, test, truth, optima=optima)
