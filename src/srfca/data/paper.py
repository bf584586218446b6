"""The paper's federations of real data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from srfca.data.clients import ClientData
from srfca.data.federate import federate
from srfca.data.loaders.images import Images
from srfca.data.loaders.users import Part, Users
from srfca.data.transforms import Transform, invert, only_classes, rotate, unchanged
from srfca.errors import require


def rotated_mnist(
    *,
    clients: int = 100,
    rotations: int = 4,
    sizes: str | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """MNIST, every image with one client; each cluster sees its images turned."""
    from srfca.data.loaders import mnist

    return _of_images(mnist.load(folder), _turns(rotations), clients, sizes, seed)


def inverted_mnist(
    *,
    clients: int = 100,
    sizes: str | int = "balanced",
    standardise: str = "client",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """MNIST, every image with one client; half of the clients see 255 - pixel."""
    from srfca.data.loaders import mnist

    clusters = [unchanged, invert]
    return _of_images(mnist.load(folder), clusters, clients, sizes, seed, standardise=standardise)


def rotated_cifar10(
    *,
    clients: int = 32,
    rotations: int = 2,
    sizes: str | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """CIFAR-10; the clients of each cluster split all of the images, and see them turned."""
    from srfca.data.loaders import cifar10

    turns = _turns(rotations)
    return _of_images(cifar10.load(folder), turns, clients, sizes, seed, reuse=True)


def label_cifar10(
    *,
    clients: int = 32,
    sizes: str | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """CIFAR-10; half of the clients see classes 0 to 4, the others 5 to 9."""
    from srfca.data.loaders import cifar10

    halves = [only_classes(range(5)), only_classes(range(5, 10))]
    return _of_images(cifar10.load(folder), halves, clients, sizes, seed, reuse=True)


def femnist(
    *, clients: int = 50, min_samples: int = 100, folder: str | Path | None = None, seed: int = 0
) -> ClientData:
    """LEAF's FEMNIST: writers of at least ``min_samples`` images, drawn by the seed."""
    from srfca.data.loaders import femnist as writers

    users = _draw(writers.load(folder).keep(samples=min_samples, test=1), clients, seed)
    pixels = users.train.x.astype(np.float32)
    mean, deviation = pixels.mean(), pixels.std()

    def standardised(part: Part) -> Part:
        x = (part.x.astype(np.float32) - mean) / deviation
        return Part(x.reshape(-1, 28, 28), part.y, part.sizes)

    return _of_users(Users(users.names, standardised(users.train), standardised(users.test)))


def shakespeare(
    *,
    clients: int = 50,
    min_samples: int = 1000,
    max_samples: int | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Shakespeare's speaking roles, drawn by the seed: the next character after 80.

    ``max_samples`` takes that many training samples of a role at the most, its first ones, and a
    quarter as many for testing.
    """
    from srfca.data.loaders import shakespeare as works

    users = _draw(works.load(folder, min_samples).keep(test=1), clients, seed)
    limits = (max_samples, None if max_samples is None else max(1, max_samples // 4))
    train, test = (
        _first(part, n) for part, n in zip((users.train, users.test), limits, strict=True)
    )
    return _of_users(Users(users.names, train, test))


def _turns(rotations: int) -> list[Transform]:
    require(rotations in (1, 2, 4), f"rotations must be 1, 2 or 4, not {rotations}")
    return [rotate(turn * 360 / rotations) for turn in range(rotations)]


def _of_images(
    images: Images,
    clusters: Sequence[Transform],
    clients: int,
    sizes: str | int,
    seed: int,
    reuse: bool = False,
    standardise: str = "federation",
) -> ClientData:
    return federate(
        images.train_x,
        images.train_y,
        clients=clients,
        clusters=clusters,
        sizes=sizes,
        test=(images.test_x, images.test_y),
        reuse=reuse,
        standardise=standardise,
        seed=seed,
    )


def _draw(users: Users, clients: int, seed: int) -> Users:
    require(
        1 <= clients <= len(users),
        f"clients must be at least 1 and at most the {len(users)} users there are, not {clients}",
    )
    return users.take(
        np.sort(np.random.default_rng([seed, clients]).permutation(len(users))[:clients])
    )


def _first(part: Part, most: int | None) -> Part:
    """The first samples of every user."""
    if most is None:
        return part
    pairs = [part.of(user) for user in range(len(part.sizes))]
    x = np.concatenate([x[:most] for x, _ in pairs])
    y = np.concatenate([y[:most] for _, y in pairs])
    return Part(x, y, np.minimum(part.sizes, most))


def _of_users(users: Users) -> ClientData:
    def of(part: Part) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {
            name: (_computable(x), y)
            for name, (x, y) in zip(users.names, map(part.of, range(len(users))), strict=True)
        }

    return ClientData.of(of(users.train), of(users.test))


def _computable(x: np.ndarray) -> np.ndarray:
    """Symbols as 32-bit integers, which embeddings take; numbers as they are."""
    return x.astype(np.int32) if np.issubdtype(x.dtype, np.integer) else x
