"""CIFAR-10 with rotated images, or with different classes for different clusters."""

from __future__ import annotations

from pathlib import Path

from srfca.data.client_data import ClientData
from srfca.data.datasets._images import federate_images, rotation_transforms
from srfca.data.partition import SizeRule
from srfca.data.registry import register_dataset
from srfca.data.transforms import only_classes


@register_dataset("rotated_cifar10")
def rotated_cifar10(
    *,
    num_clients: int = 32,
    rotations: int = 2,
    sizes: SizeRule | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return CIFAR-10 with images rotated by an angle that depends on the cluster.

    The clients of each cluster share all of the images. Images are ``[3, 32, 32]``, each channel
    standardized over the federation.

    Args:
        num_clients: Number of clients.
        rotations: Number of clusters, 1, 2 or 4: rotations by multiples of ``360 / rotations``
            degrees.
        sizes: Training samples per client: "balanced", "lognormal", or one number for all.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides which client gets which images.

    Returns:
        The clients; ``truth`` is their rotations.

    Raises:
        InputError: If CIFAR-10's files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = rotated_cifar10(num_clients=8)
    """
    from srfca.data.loaders import cifar10

    transforms = rotation_transforms(rotations)
    return federate_images(cifar10.load(folder), transforms, num_clients, sizes, seed, reuse=True)


@register_dataset("label_cifar10")
def label_cifar10(
    *,
    num_clients: int = 32,
    sizes: SizeRule | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return CIFAR-10 where half of the clients have classes 0 to 4, the other half 5 to 9.

    Images are ``[3, 32, 32]``, each channel standardized over the federation.

    Args:
        num_clients: Number of clients.
        sizes: Training samples per client: "balanced", "lognormal", or one number for all.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides which client gets which images.

    Returns:
        The clients; ``truth`` says which half each one belongs to.

    Raises:
        InputError: If CIFAR-10's files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = label_cifar10(num_clients=8)
    """
    from srfca.data.loaders import cifar10

    halves = [only_classes(range(5)), only_classes(range(5, 10))]
    return federate_images(cifar10.load(folder), halves, num_clients, sizes, seed, reuse=True)
