"""Images dealt to clients as the federations of the field are: label skew, noise, outliers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from srfca.data.client_data import ClientData
from srfca.data.datasets._images import ImageSet, load_images
from srfca.data.partition import Standardization, federate
from srfca.data.partitioners import (
    DirichletPartitioner,
    ExponentialPartitioner,
    ExtendedDirichletPartitioner,
    InnerDirichletPartitioner,
    LinearPartitioner,
    Partitioner,
    PathologicalPartitioner,
    ShardPartitioner,
    SquarePartitioner,
)
from srfca.data.registry import register_dataset
from srfca.data.transforms import (
    CORRUPTIONS,
    Splits,
    Transform,
    compose,
    invert,
    label_noise,
    only_classes,
    permute_labels,
    reverse_labels,
    rotate,
    shift_labels,
    transpose,
    unchanged,
)
from srfca.errors import InputError, require, unknown
from srfca.parameters import choices

GroupShift = Literal[
    "none", "rotation", "permutation", "relabeling", "inversion", "transposition", "classes",
    "corruption",
]  # fmt: skip
"""In what the groups of clients differ."""
PartitionRule = Literal[
    "iid", "dirichlet", "inner-dirichlet", "relative-dirichlet", "extended-dirichlet",
    "pathological", "shard", "linear", "square", "exponential",
]  # fmt: skip
"""How the samples of a group are dealt to its clients."""
CorruptionName = Literal["none", "random", "brightness", "contrast", "gaussian_noise", "blur"]
NUM_CLASSES = 10
SEVERITIES = 5


@register_dataset("field_images")
def field_images(
    *,
    dataset: ImageSet = "fashion_mnist",
    num_clients: int = 60,
    samples: int | None = 100,
    shift: GroupShift = "none",
    groups: int = 1,
    shares: tuple[int, ...] | None = None,
    outliers: int = 0,
    partition: PartitionRule = "iid",
    alpha: float | None = None,
    classes_per_client: int | None = None,
    min_samples: int = 10,
    self_balancing: bool = False,
    label_noise_rate: float = 0.0,
    label_noise_clients: float = 0.5,
    label_noise_splits: Splits = "train",
    corruption: CorruptionName = "none",
    corrupted_clients: float = 0.5,
    severity: int | None = 3,
    standardize: Standardization = "federation",
    reuse: bool = False,
    folder: str | Path | None = None,
    seed: int = 0,
) -> ClientData:
    """Return images with groups of clients, label skew, noise, corruptions and outliers.

    Every image goes to at most one client, unless ``reuse`` is set. A client's test images have the
    same shares of the classes as its training images, where ``partition`` skews them. Label noise
    and corruptions of single clients do not change the true partition.

    Args:
        dataset: "mnist", "fashion_mnist" or "cifar10".
        num_clients: Number of clients, outliers included.
        samples: Mean number of training images per client; None to deal all images.
        shift: In what groups differ: "rotation" by multiples of ``360 / groups`` degrees;
            "permutation" of the classes, drawn at random, but for the first group; "relabeling" of
            class c to c, ``9 - c`` or ``c + 1`` (3 groups); "inversion" of the second group's
            pixels; "transposition" of the second group's images; "classes" that no other group has,
            drawn at random; "corruption", another one for each group but the first (5 groups); or
            "none".
        groups: Number of groups.
        shares: Relative sizes of the groups; None for equal sizes.
        outliers: Number of clients that belong to no group, each with a random permutation of the
            classes.
        partition: How a group's images are dealt to its clients (see ``srfca.data.partitioners``).
            "relative-dirichlet" is ``InnerDirichletPartitioner(alpha, relative=True)``.
        alpha: Concentration of the Dirichlet distributions.
        classes_per_client: Classes of a client, or shards, for "extended-dirichlet",
            "pathological" and "shard".
        min_samples: Minimum number of training images per client, for "dirichlet" and
            "extended-dirichlet".
        self_balancing: For "dirichlet" and "extended-dirichlet": clients above the average get none
            of the following classes.
        label_noise_rate: The fraction of labels that are replaced by other classes.
        label_noise_clients: The fraction of clients with such noise, drawn at random.
        label_noise_splits: "train" for noise in training labels alone, or "all".
        corruption: The corruption of some clients' images, "random" to draw one for each of them,
            or "none".
        corrupted_clients: The fraction of clients with corrupted images, drawn at random.
        severity: Severity of corruptions, 1 to 5; None to draw one for each client or group.
        standardize: Standardize pixels over the "federation", for each "client" separately, or
            "no".
        reuse: If true, each group deals all images among its clients.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        seed: Decides all draws.

    Returns:
        The clients; ``truth`` is their groups, and each outlier is alone.

    Raises:
        InputError: If files are missing or damaged, or an argument is out of range.

    Examples:
        With the files in the data folder::

            data = field_images(shift="rotation", groups=3, partition="dirichlet", alpha=0.3)
    """
    require(outliers >= 0, f"outliers must not be negative, but is {outliers}")
    require(groups >= 1, f"groups must be at least 1, not {groups}")
    rng = np.random.default_rng([seed, num_clients, groups, outliers])
    group_transforms = _group_transforms(shift, groups, severity, rng)
    outlier_transforms = [_permuted(rng) for _ in range(outliers)]
    noisy = _draw_clients(num_clients, label_noise_clients if label_noise_rate else 0.0, rng)
    corrupted = _draw_clients(num_clients, 0.0 if corruption == "none" else corrupted_clients, rng)
    changes: dict[int, Transform] = {
        client: _corruption(corruption, severity, rng) for client in corrupted
    }
    for client in noisy:
        noise = label_noise(label_noise_rate, NUM_CLASSES, splits=label_noise_splits)
        changes[client] = compose(changes.get(client, unchanged), noise)
    images = load_images(dataset, folder)
    return federate(
        images.train_x,
        images.train_y,
        num_clients=num_clients,
        clusters=group_transforms,
        shares=_normalized(shares),
        outliers=outlier_transforms,
        sizes="balanced" if samples is None else samples,
        partitioner=_partitioner(partition, alpha, classes_per_client, min_samples, self_balancing),
        test=(images.test_x, images.test_y),
        reuse=reuse,
        standardize=standardize,
        client_transforms=changes,
        seed=seed,
    )


def _group_transforms(
    shift: GroupShift, groups: int, severity: int | None, rng: np.random.Generator
) -> list[Transform]:
    """Return the transform of each group.

    Raises:
        InputError: If there is no such shift, or not for as many groups.
    """
    match shift:
        case "none":
            transforms: Sequence[Transform] = [unchanged]
        case "rotation":
            transforms = [rotate(turn * 360 / groups) for turn in range(groups)]
        case "permutation":
            transforms = [unchanged, *(_permuted(rng) for _ in range(groups - 1))]
        case "relabeling":
            transforms = [unchanged, reverse_labels(NUM_CLASSES), shift_labels(NUM_CLASSES)]
        case "inversion":
            transforms = [unchanged, invert]
        case "transposition":
            transforms = [unchanged, transpose]
        case "classes":
            order = rng.permutation(NUM_CLASSES).tolist()
            transforms = [only_classes(order[group::groups]) for group in range(min(groups, 10))]
        case "corruption":
            names = list(CORRUPTIONS)
            transforms = [unchanged, *(CORRUPTIONS[n](_severity(severity, rng)) for n in names)]
        case _:
            raise unknown("shift", shift, choices(GroupShift))
    require(
        groups <= len(transforms),
        f"groups must be at most {len(transforms)} with shift={shift!r}, not {groups}",
    )
    require(
        groups > 1 or shift in ("none", "rotation", "permutation"),
        f"shift={shift!r} needs groups of at least 2, not 1",
    )
    return list(transforms[:groups])


def _partitioner(
    partition: PartitionRule,
    alpha: float | None,
    classes_per_client: int | None,
    min_samples: int,
    self_balancing: bool,
) -> Partitioner | None:
    """Return the partitioner of a rule, None to deal samples at random.

    Raises:
        InputError: If there is no such rule, or it lacks a parameter.
    """
    match partition:
        case "iid":
            return None
        case "dirichlet":
            return DirichletPartitioner(_given(partition, alpha=alpha), min_samples, self_balancing)
        case "inner-dirichlet":
            return InnerDirichletPartitioner(_given(partition, alpha=alpha))
        case "relative-dirichlet":
            return InnerDirichletPartitioner(_given(partition, alpha=alpha), relative=True)
        case "extended-dirichlet":
            return ExtendedDirichletPartitioner(
                int(_given(partition, classes_per_client=classes_per_client)),
                _given(partition, alpha=alpha),
                min_samples,
                self_balancing,
            )
        case "pathological":
            classes = _given(partition, classes_per_client=classes_per_client)
            return PathologicalPartitioner(int(classes))
        case "shard":
            shards = _given(partition, classes_per_client=classes_per_client)
            return ShardPartitioner(num_shards_per_partition=int(shards))
        case "linear":
            return LinearPartitioner()
        case "square":
            return SquarePartitioner()
        case "exponential":
            return ExponentialPartitioner()
    raise unknown("partition", partition, choices(PartitionRule))


def _given(partition: PartitionRule, **parameter: float | None) -> float:
    """Return a parameter that must not be None."""
    [(name, value)] = parameter.items()
    if value is None:
        raise InputError(f"partition={partition!r} needs {name}: set it to a number")
    return value


def _corruption(name: CorruptionName, severity: int | None, rng: np.random.Generator) -> Transform:
    """Return a corruption by its name, or one at random."""
    if name != "random" and name not in CORRUPTIONS:
        raise unknown("corruption", name, choices(CorruptionName))
    drawn = list(CORRUPTIONS)[rng.integers(len(CORRUPTIONS))] if name == "random" else name
    return CORRUPTIONS[drawn](_severity(severity, rng))


def _severity(severity: int | None, rng: np.random.Generator) -> int:
    return int(rng.integers(1, SEVERITIES + 1)) if severity is None else severity


def _permuted(rng: np.random.Generator) -> Transform:
    """Return a random permutation of the classes."""
    return permute_labels(rng.permutation(NUM_CLASSES).tolist())


def _draw_clients(num_clients: int, fraction: float, rng: np.random.Generator) -> list[int]:
    """Draw a fraction of the clients, rounded to whole clients."""
    require(0 <= fraction <= 1, f"a fraction of clients must be in [0, 1], not {fraction}")
    count = round(fraction * num_clients)
    drawn: list[int] = np.sort(rng.permutation(num_clients)[:count]).tolist()
    return drawn


def _normalized(shares: tuple[int, ...] | None) -> list[float] | None:
    """Return shares that sum to 1."""
    if shares is None:
        return None
    require(
        len(shares) > 0 and min(shares) > 0,
        f"shares must be positive numbers, not {list(shares)}",
    )
    return [share / sum(shares) for share in shares]
