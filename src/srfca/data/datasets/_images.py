"""What data sets of images share: dealing the images to clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from srfca.data.client_data import ClientData
from srfca.data.loaders.images import Images
from srfca.data.partition import SizeRule, Standardization, federate
from srfca.data.transforms import Transform, rotate
from srfca.errors import require, unknown
from srfca.parameters import choices

ImageSet = Literal["mnist", "fashion_mnist", "cifar10"]
"""Published images with ten classes."""


def load_images(dataset: ImageSet, folder: str | Path | None) -> Images:
    """Load published images by name.

    Args:
        dataset: Their name.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

    Raises:
        InputError: If there is no such data set, or its files are missing or damaged.
    """
    from srfca.data.loaders import cifar10, fashion_mnist, mnist

    loaders = {"mnist": mnist.load, "fashion_mnist": fashion_mnist.load, "cifar10": cifar10.load}
    if dataset not in loaders:
        raise unknown("dataset", dataset, choices(ImageSet))
    return loaders[dataset](folder)


def rotation_transforms(rotations: int) -> list[Transform]:
    """Return transforms by equally spaced multiples of 90 degrees, starting with 0.

    Raises:
        InputError: If the number of rotations is not 1, 2 or 4.
    """
    require(rotations in (1, 2, 4), f"rotations must be 1, 2 or 4, not {rotations}")
    return [rotate(turn * 360 / rotations) for turn in range(rotations)]


def federate_images(
    images: Images,
    clusters: Sequence[Transform],
    num_clients: int,
    sizes: SizeRule | int,
    seed: int,
    reuse: bool = False,
    standardize: Standardization = "federation",
) -> ClientData:
    """Deal the training and test images to clients; see ``federate``."""
    return federate(
        images.train_x,
        images.train_y,
        num_clients=num_clients,
        clusters=clusters,
        sizes=sizes,
        test=(images.test_x, images.test_y),
        reuse=reuse,
        standardize=standardize,
        seed=seed,
    )
