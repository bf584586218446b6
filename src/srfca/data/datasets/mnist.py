"""MNIST with rotated or inverted images."""

from __future__ import annotations

from pathlib import Path

from srfca.data.client_data import ClientData
from srfca.data.datasets._images import federate_images, rotation_transforms
from srfca.data.partition import SizeRule, Standardization
from srfca.data.registry import register_dataset
from srfca.data.transforms import invert, unchanged


@register_dataset("rotated_mnist")
def rotated_mnist(
    *,
    num_clients: int = 100,
    rotations: int = 4,
    sizes: SizeRule | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return MNIST with images rotated by an angle that depends on the cluster.

    Every image goes to at most one client. Images are ``[28, 28]``, standardized over the
    federation.

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
        InputError: If MNIST's files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = rotated_mnist(num_clients=40, rotations=2)
    """
    from srfca.data.loaders import mnist

    transforms = rotation_transforms(rotations)
    return federate_images(mnist.load(folder), transforms, num_clients, sizes, seed)


@register_dataset("inverted_mnist")
def inverted_mnist(
    *,
    num_clients: int = 100,
    sizes: SizeRule | int = "balanced",
    standardize: Standardization = "client",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return MNIST where half of the clients have inverted images: 255 - pixel.

    Every image goes to at most one client. Images are ``[28, 28]``.

    Args:
        num_clients: Number of clients.
        sizes: Training samples per client: "balanced", "lognormal", or one number for all.
        standardize: Standardize pixels over the "federation", for each "client" separately, or
            "no".
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides which client gets which images.

    Returns:
        The clients; ``truth`` says whose images are inverted.

    Raises:
        InputError: If MNIST's files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = inverted_mnist(num_clients=40)
    """
    from srfca.data.loaders import mnist

    return federate_images(
        mnist.load(folder), [unchanged, invert], num_clients, sizes, seed, standardize=standardize
    )
