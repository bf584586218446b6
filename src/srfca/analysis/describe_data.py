"""Compare the clusters' data, by sums that clients report (``DataMoments``).

Each cluster is compared with all other clients: its labels, its inputs, and its inputs class by
class. If inputs and labels are alike, but the inputs of a class are not, then it is the relation
between inputs and labels that differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.difference_words import STANDS_OUT, difference_words
from srfca.analysis.differences import ClusterDifference, FeatureDifference
from srfca.analysis.evidence import blocks, positions_of
from srfca.data.schema import Schema
from srfca.errors import require
from srfca.federation.data_moments import ColumnMoments
from srfca.federation.protocol import Federation
from srfca.federation.requests import DataMoments, Split

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_FEATURES = 10
"""Features that are listed of each cluster."""
MOST_INPUTS = 4096
"""Largest number of inputs whose means are kept."""


@dataclass(frozen=True)
class Names:
    """Names and units of features and targets, as far as they are known.

    Args:
        features: Names of the inputs.
        classes: Names of the classes.
        input_shape: The shape of an input.
        target: Name of a target that is a value.
        units: Mean and scale of each column, inputs and then a target that is a value, that were
            standardized by them; empty for columns as they are.
        shares: Names of inputs that are 1 or 0, whose means are shares.
    """

    features: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    input_shape: tuple[int, ...] | None = None
    target: str = "target"
    units: tuple[tuple[float, float], ...] = ()
    shares: frozenset[str] = frozenset()

    @property
    def are_images(self) -> bool:
        """Whether inputs are images, whose single pixels are not worth a word."""
        return self.input_shape is not None and len(self.input_shape) > 1 and self.features is None

    def in_units(self, column: int, mean: float) -> float:
        """Return the mean of a column in the units that it had before it was standardized."""
        if column >= len(self.units):
            return mean
        center, scale = self.units[column]
        return mean * scale + center


def table_names(schema: Schema) -> Names:
    """Return the names and units of a table's columns.

    >>> schema = Schema(("age", "city"), target="pay", categories={"city": ("Bonn", "Ulm")},
    ...                 mean=(40.0, 0.0, 0.0), scale=(10.0, 1.0, 1.0), target_scale=100.0)
    >>> names = table_names(schema)
    >>> names.features, names.in_units(0, 1.5), names.in_units(3, 2.0), sorted(names.shares)
    (('age', 'city=Bonn', 'city=Ulm'), 55.0, 200.0, ['city=Bonn', 'city=Ulm'])
    """
    classes = tuple(map(str, schema.classes)) or None
    if schema.shape is not None:
        return Names(classes=classes, input_shape=schema.shape, target=schema.target or "target")
    inputs = schema.inputs
    unchanged = ((0.0, 1.0),) * len(inputs)
    units = tuple(zip(schema.mean, schema.scale, strict=True)) or unchanged
    if schema.target_kind == "values":
        units = (*units, (schema.target_mean, schema.target_scale))
    shares = frozenset(f"{name}={v}" for name, values in schema.categories.items() for v in values)
    return Names(inputs, classes, None, schema.target or "target", units, shares)


def describe_data(
    federation: Federation, labels: Labels, clusters: Labels, names: Names
) -> tuple[ClusterDifference, ...]:
    """Ask clients for sums of their data, and compare each cluster with all other clients.

    Args:
        federation: The clients.
        labels: ``[m]`` their clusters.
        clusters: ``[q]`` labels of the clusters to describe.
        names: Names of features and classes.

    Raises:
        InputError: If there are not as many names as features or classes.
    """
    held: tuple[Split, ...] = ("train", "validation")
    splits = tuple(split for split in held if split in federation.splits)
    positions = positions_of(labels, clusters)
    groups = np.where(positions >= 0, positions, len(clusters))
    totals: Array | None = None
    for block in _blocks(federation):
        replies = federation.ask(DataMoments(block, splits))
        values = replies.values.cpu().double().numpy()
        if totals is None:
            totals = np.zeros((len(clusters) + 1, *values.shape[1:]))
        np.add.at(totals, groups[replies.clients], values)
    assert totals is not None
    described = []
    for position, cluster in enumerate(clusters.tolist()):
        inside = _Sums.of(totals[position])
        outside = _Sums.of(totals.sum(0) - totals[position])
        described.append(_compare(cluster, inside, outside, names))
    return tuple(described)


def _blocks(federation: Federation) -> list[Labels]:
    """Return the clients in blocks; the reply of the first one tells how large replies are."""
    everyone = np.arange(len(federation.client_ids))
    first = federation.ask(DataMoments(everyone[:1])).values
    numbers = np.full(len(everyone), max(int(np.prod(first.shape[1:])), 1))
    return list(blocks(everyone, numbers))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over some samples by class: counts ``[g]``, sums and squares ``[g, w]``."""

    counts: Array
    sums: Array
    squares: Array

    @classmethod
    def of(cls, values: Array) -> _Sums:
        import torch

        moments = ColumnMoments.unpack(torch.from_numpy(values[None]))
        parts = (moments.counts, moments.sums, moments.squares)
        return cls(*(part[0].numpy() for part in parts))

    @property
    def together(self) -> _Sums:
        """The same over all classes."""
        return _Sums(
            *(part.sum(0, keepdims=True) for part in (self.counts, self.sums, self.squares))
        )

    @property
    def shares(self) -> Array:
        """The share of each class: ``[g]``."""
        return np.asarray(self.counts / max(self.counts.sum(), 1.0))

    @property
    def means(self) -> Array:
        """Means of the columns by class: ``[g, w]``."""
        return np.asarray(self.sums / np.maximum(self.counts, 1)[:, None])

    @property
    def variances(self) -> Array:
        """Variances of the columns by class: ``[g, w]``."""
        count = np.maximum(self.counts, 1)[:, None]
        return np.asarray(np.maximum(self.squares / count - self.means**2, 0.0))


def _standardized(inside: _Sums, outside: _Sums) -> Array:
    """Return the differences of means in standard deviations: ``[g, w]``, 0 for constants."""
    deviation = np.sqrt((inside.variances + outside.variances) / 2)
    difference = inside.means - outside.means
    usable = deviation > 1e-9 * np.maximum(np.abs(inside.means), np.abs(outside.means))
    return np.where(usable, difference / np.where(usable, deviation, 1.0), 0.0)


def _compare(cluster: int, inside: _Sums, outside: _Sums, names: Names) -> ClusterDifference:
    """Compare the data of a cluster with those of all other clients."""
    num_classes, width = inside.sums.shape
    has_classes = num_classes > 1
    class_names = _names_of(names.classes, num_classes, "classes", "{}") if has_classes else ()
    num_inputs = _num_inputs(names, width, has_classes)
    features = _feature_names(names, num_inputs, width - num_inputs)
    overall, rest = inside.together, outside.together
    differences = _standardized(overall, rest)[0]
    order = np.argsort(-np.abs(differences), kind="stable")
    listed = tuple(
        _feature(overall, rest, 0, column, features[column], names)
        for column in order[:MOST_FEATURES].tolist()
    )
    described = ClusterDifference(
        cluster=cluster,
        samples=int(overall.counts[0]),
        class_names=class_names,
        class_shares=tuple(inside.shares.tolist()) if has_classes else (),
        other_shares=tuple(outside.shares.tolist()) if has_classes else (),
        class_differences=_class_differences(inside, outside) if has_classes else (),
        features=listed,
        mean_input=_mean_input(overall, num_inputs),
        words="",
    )
    within = {}
    if has_classes and not names.are_images:
        within = _features_within_classes(inside, outside, features, class_names, names)
    words = difference_words(described, names.are_images, names.shares, within)
    return ClusterDifference(**{**vars(described), "words": words})


def _feature(
    inside: _Sums, outside: _Sums, group: int, column: int, name: str, names: Names
) -> FeatureDifference:
    """Return how the mean of a column differs in one of the classes."""
    return FeatureDifference(
        name,
        names.in_units(column, float(inside.means[group, column])),
        names.in_units(column, float(outside.means[group, column])),
        float(_standardized(inside, outside)[group, column]),
    )


def _features_within_classes(
    inside: _Sums,
    outside: _Sums,
    features: Sequence[str],
    class_names: Sequence[str],
    names: Names,
) -> dict[str, FeatureDifference]:
    """Return the feature that differs most within each class, though it does not over all classes.

    Returns:
        By name of the class, the largest difference first; only what stands out.
    """
    if not features:
        return {}
    overall = np.abs(_standardized(inside.together, outside.together)[0])
    within = np.where(overall < STANDS_OUT, np.abs(_standardized(inside, outside)), 0.0)
    counts = np.minimum(inside.counts, outside.counts)
    limits = np.maximum(STANDS_OUT, 4 / np.sqrt(np.maximum(counts, 1)))
    columns = within.argmax(1)
    places = [
        (group, column)
        for group, column in enumerate(columns.tolist())
        if counts[group] > 1 and within[group, column] >= limits[group]
    ]
    places.sort(key=lambda place: -within[place])
    return {
        class_names[group]: _feature(inside, outside, group, column, features[column], names)
        for group, column in places
    }


def _class_differences(inside: _Sums, outside: _Sums) -> tuple[float | None, ...]:
    """Return how much the inputs of each class differ, None for classes that one side lacks."""
    if not inside.sums.shape[1]:
        return (None,) * len(inside.counts)
    squares = (_standardized(inside, outside) ** 2).mean(1)
    present = (inside.counts > 1) & (outside.counts > 1)
    noise = 1 / np.maximum(inside.counts, 1) + 1 / np.maximum(outside.counts, 1)
    values = np.sqrt(np.maximum(squares - noise, 0.0))
    pairs = zip(values.tolist(), present.tolist(), strict=True)
    return tuple(value if is_present else None for value, is_present in pairs)


def _num_inputs(names: Names, width: int, has_classes: bool) -> int:
    """Return how many of the columns are inputs; the others are targets that are values."""
    if names.input_shape is not None:
        return min(int(np.prod(names.input_shape)), width)
    return width if has_classes else max(width - 1, 0)


def _feature_names(names: Names, num_inputs: int, num_targets: int) -> tuple[str, ...]:
    """Return a name for each column: inputs, then targets."""
    given = _names_of(names.features, num_inputs, "features", "input {}")
    if num_targets == 1:
        return (*given, names.target)
    return (*given, *(f"target {number}" for number in range(num_targets)))


def _mean_input(overall: _Sums, num_inputs: int) -> tuple[float, ...] | None:
    if not 0 < num_inputs <= MOST_INPUTS:
        return None
    return tuple(overall.means[0, :num_inputs].tolist())


def _names_of(given: Sequence[str] | None, count: int, kind: str, pattern: str) -> tuple[str, ...]:
    if given is None:
        return tuple(pattern.format(number) for number in range(count))
    require(len(given) == count, f"there are {count} {kind}, but {len(given)} names for them")
    return tuple(map(str, given))
