"""Fashion-MNIST with rotated images."""

from __future__ import annotations

from pathlib import Path

from srfca.data.client_data import ClientData
from srfca.data.datasets._images import federate_images, rotation_transforms
from srfca.data.partition import SizeRule
from srfca.data.registry import register_dataset


@register_dataset("rotated_fashion_mnist")
def rotated_fashion_mnist(
    *,
    num_clients: int = 100,
    rotations: int = 4,
    sizes: SizeRule | int = "balanced",
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return Fashion-MNIST with images rotated by an angle that depends on the cluster.

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
        InputError: If the files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = rotated_fashion_mnist(num_clients=40, rotations=2)
    """
    from srfca.data.loaders import fashion_mnist

    transforms = rotation_transforms(rotations)
    return federate_images(fashion_mnist.load(folder), transforms, num_clients, sizes, seed)
