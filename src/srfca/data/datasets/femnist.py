"""LEAF's FEMNIST: handwritten digits and letters, a client for each writer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from srfca.clustering.partition import Partition
from srfca.data.client_data import ClientData, Samples
from srfca.data.datasets._users import draw_users, users_as_clients
from srfca.data.loaders.users import Users, UserSamples
from srfca.data.registry import register_dataset
from srfca.errors import require


@register_dataset("femnist")
def femnist(
    *,
    num_clients: int = 50,
    min_samples: int = 100,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return randomly drawn writers of FEMNIST.

    Images are ``[28, 28]``, standardized over the training images of the drawn writers; there are
    62 classes. The true partition is not known.

    Args:
        num_clients: Number of writers.
        min_samples: Minimum number of images of a writer, training and test together.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides which writers are drawn.

    Returns:
        The writers, each a client.

    Raises:
        InputError: If FEMNIST's files are missing or damaged, or too few writers have that many
            images.

    Examples:
        With the files in the data folder::

            data = femnist(num_clients=20)
    """
    from srfca.data.loaders import femnist as loader

    writers = loader.load(folder).at_least(total=min_samples, test=1)
    users = draw_users(writers, num_clients, seed)
    pixels = users.train.x.astype(np.float32)
    mean, deviation = pixels.mean(), pixels.std()

    def standardized(samples: UserSamples) -> UserSamples:
        x = (samples.x.astype(np.float32) - mean) / deviation
        return UserSamples(x.reshape(-1, 28, 28), samples.y, samples.sizes)

    return users_as_clients(Users(users.names, standardized(users.train), standardized(users.test)))


@register_dataset("transposed_femnist")
def transposed_femnist(
    *,
    num_clients: int = 50,
    min_samples: int = 100,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return randomly drawn writers of FEMNIST, half of them with transposed images.

    Every second writer's images have rows and columns exchanged, which makes two true clusters of
    real clients. Images are ``[28, 28]``, standardized over the drawn writers.

    Args:
        num_clients: Number of writers, at least 2.
        min_samples: Minimum number of images of a writer, training and test together.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides which writers are drawn.

    Returns:
        The writers, each a client; ``truth`` says whose images are transposed.

    Raises:
        InputError: If FEMNIST's files are missing or damaged, or too few writers have that many
            images.

    Examples:
        With the files in the data folder::

            data = transposed_femnist(num_clients=20)
    """
    require(num_clients >= 2, f"num_clients must be at least 2, not {num_clients}")
    writers = femnist(num_clients=num_clients, min_samples=min_samples, folder=folder, seed=seed)
    truth = np.arange(num_clients) % 2
    assert writers.test is not None

    def transposed(samples: Samples) -> Samples:
        clusters = torch.as_tensor(truth).repeat_interleave(samples.sizes)
        x = torch.where((clusters == 1)[:, None, None], samples.x.transpose(1, 2), samples.x)
        return replace(samples, x=x)

    return replace(
        writers,
        train=transposed(writers.train),
        test=transposed(writers.test),
        truth=Partition(truth),
    )
