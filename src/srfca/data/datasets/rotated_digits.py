"""Rotated digits: small real images that are installed with scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from srfca.data.client_data import ClientData
from srfca.data.registry import register_dataset
from srfca.errors import require, require_positive, require_seed


@register_dataset("rotated_digits")
def rotated_digits(*, num_clients: int = 40, rotations: int = 4, seed: int = 0) -> ClientData:
    """Return scikit-learn's 1,797 handwritten digits, rotated by an angle per cluster.

    Every image goes to one client. Client i rotates its images by ``i mod rotations`` times
    ``360 / rotations`` degrees; a fifth of them are its test samples. Images are ``[8, 8]``, with
    pixels in [0, 1].

    Args:
        num_clients: Number of clients, at most 300.
        rotations: Number of clusters: 1, 2 or 4.
        seed: Decides which client gets which images.

    Returns:
        The clients; ``truth`` is their rotations.

    Raises:
        InputError: If an argument is out of range.

    Examples:
        >>> rotated_digits(num_clients=8, rotations=2).truth.sizes.tolist()
        [4, 4]
    """
    require_positive(num_clients=num_clients, rotations=rotations)
    require_seed(seed)
    require(rotations in (1, 2, 4), f"rotations must be 1, 2 or 4, not {rotations}")
    require(
        rotations <= num_clients <= 300,
        f"num_clients must be at least {rotations} (rotations) and at most 300, not {num_clients}",
    )
    digits, labels = read_digits()
    images = (digits / 16.0).astype(np.float32)
    order = np.random.default_rng([seed, num_clients]).permutation(len(images))
    truth = np.arange(num_clients) % rotations
    train, test = [], []
    for cluster, indices in zip(truth, np.array_split(order, num_clients), strict=True):
        x = np.rot90(images[indices], int(cluster) * (4 // rotations), axes=(1, 2)).copy()
        y = labels[indices]
        num_test = len(indices) // 5
        test.append((x[:num_test], y[:num_test]))
        train.append((x[num_test:], y[num_test:]))
    return ClientData.from_arrays(train, test, truth)


def read_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read the digits from the file that is installed with scikit-learn.

    scikit-learn's own loader imports all of its data sets, which takes longer than a small run.

    Returns:
        Images ``[1797, 8, 8]`` with pixels from 0 to 16, and labels ``[1797]``.
    """
    spec = find_spec("sklearn")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    table = np.loadtxt(folder / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    return table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
