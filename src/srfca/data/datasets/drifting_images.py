"""Images with concept drift, in one of its phases."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from srfca.data.client_data import ClientData
from srfca.data.datasets._images import load_images
from srfca.data.datasets.rotated_digits import read_digits
from srfca.data.drift import (
    ConceptShift,
    DriftKind,
    concept_transforms,
    drift_phases,
    drift_schedule,
    split_samples,
)
from srfca.data.partition import federate
from srfca.data.partitioners import DirichletPartitioner
from srfca.data.registry import register_dataset
from srfca.data.transforms import Array, unchanged
from srfca.errors import require, unknown
from srfca.parameters import choices

DriftImageSet = Literal["digits", "mnist", "fashion_mnist", "cifar10"]
"""Images with ten classes; "digits" are scikit-learn's and need no file."""


def drifting_image_phases(
    *,
    dataset: DriftImageSet = "digits",
    drift: DriftKind = "sudden",
    shift: ConceptShift = "label_swap",
    groups: int = 1,
    new_groups: int = 3,
    drifting: float = 1.0,
    num_clients: int = 20,
    samples: int | None = None,
    alpha: float | None = None,
    new_samples: bool = False,
    folder: str | Path | None = None,
    seed: int = 0,
) -> tuple[ClientData, ...]:
    """Return images in all phases of a concept drift; ``drifting_images`` returns one of them.

    Args:
        dataset: "digits", "mnist", "fashion_mnist" or "cifar10".
        drift: "none", "sudden", "incremental" or "recurrent".
        shift: In what concepts differ: "label_swap" or "rotation".
        groups: Number of concepts at first.
        new_groups: Number of new concepts that clients drift to; 0 for a drift between the groups.
        drifting: The fraction of each group's clients that drift.
        num_clients: Number of clients.
        samples: Training images per client, or their mean with ``alpha``; None to deal all images.
        alpha: Concentration of Dirichlet label skew; None for none.
        new_samples: Divide each client's training images among the phases.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides all draws.

    Returns:
        The clients in each phase; ``truth`` is their concepts.

    Raises:
        InputError: If files are missing or damaged, or an argument is out of range.

    Examples:
        >>> phases = drifting_image_phases(drift="incremental")
        >>> [phase.truth.num_clusters for phase in phases]
        [1, 2, 3, 3]
    """
    concepts = drift_schedule(
        num_clients, drift, groups=groups, new_groups=new_groups, drifting=drifting, seed=seed
    )
    transforms = concept_transforms(shift, groups + new_groups)
    train, test = _images(dataset, folder)
    parts = len(concepts) if new_samples else 1
    dealt = federate(
        *train,
        num_clients=num_clients,
        clusters=[unchanged],
        sizes="balanced" if samples is None else samples * parts,
        partitioner=None if alpha is None else DirichletPartitioner(alpha),
        test=test,
        seed=seed,
    )
    return drift_phases(split_samples(dealt, parts) if new_samples else dealt, concepts, transforms)


@register_dataset("drifting_images")
def drifting_images(
    *,
    dataset: DriftImageSet = "digits",
    drift: DriftKind = "sudden",
    phase: int = 0,
    shift: ConceptShift = "label_swap",
    groups: int = 1,
    new_groups: int = 3,
    drifting: float = 1.0,
    num_clients: int = 20,
    samples: int | None = None,
    alpha: float | None = None,
    new_samples: bool = False,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return images in one phase of a concept drift.

    The defaults are FedCCFA's form (docs/drift.md): one concept at first, then three, in which the
    labels 1 and 2, 3 and 4, or 5 and 6 are swapped. ``groups=3, new_groups=0, drifting=0.25`` is
    another one: three groups, and a quarter of each one's clients changes to the next.

    Args:
        dataset: "digits", "mnist", "fashion_mnist" or "cifar10".
        drift: "none", "sudden", "incremental" or "recurrent".
        phase: From 0: the phase that is returned. There are two of no drift and of sudden drift,
            three of recurrent drift, and of incremental drift one more than concepts to drift to.
        shift: In what concepts differ: "label_swap" or "rotation".
        groups: Number of concepts at first.
        new_groups: Number of new concepts that clients drift to; 0 for a drift between the groups.
        drifting: The fraction of each group's clients that drift.
        num_clients: Number of clients.
        samples: Training images per client, or their mean with ``alpha``; None to deal all images.
        alpha: Concentration of Dirichlet label skew; None for none.
        new_samples: Divide each client's training images among the phases (``samples`` is for one
            phase). Otherwise clients keep their images, as in FedCCFA's code.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides all draws.

    Returns:
        The clients; ``truth`` is their concepts in this phase.

    Raises:
        InputError: If files are missing or damaged, or an argument is out of range.

    Examples:
        >>> drifting_images(phase=1).truth.sizes.tolist()
        [6, 6, 8]
    """
    phases = drifting_image_phases(
        dataset=dataset, drift=drift, shift=shift, groups=groups, new_groups=new_groups,
        drifting=drifting, num_clients=num_clients, samples=samples, alpha=alpha,
        new_samples=new_samples, folder=folder, seed=seed,
    )  # fmt: skip
    require(
        0 <= phase < len(phases),
        f"phase must be from 0 to {len(phases) - 1} for {drift} drift, not {phase}",
    )
    return phases[phase]


_TEST_DIGITS = 5
"""Every fifth of the digits is a test image."""


def _images(
    dataset: DriftImageSet, folder: str | Path | None
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return training and test images, each with their labels."""
    if dataset not in choices(DriftImageSet):
        raise unknown("dataset", dataset, choices(DriftImageSet))
    if dataset != "digits":
        images = load_images(dataset, folder)
        return (images.train_x, images.train_y), (images.test_x, images.test_y)
    x, y = read_digits()
    x = (x / 16.0).astype(np.float32)
    is_test = np.arange(len(x)) % _TEST_DIGITS == 0
    return (x[~is_test], y[~is_test]), (x[is_test], y[is_test])
