"""What differs between the clusters' data, and between their models, as data."""

from __future__ import annotations

from dataclasses import dataclass

from srfca.analysis.layers import LayerDifference


@dataclass(frozen=True)
class FeatureDifference:
    """A feature whose mean differs.

    Args:
        name: Name of the feature; ``input 3`` if it has none, ``target`` for targets that are
            values.
        mean: Over the cluster's samples.
        others: Over those of all other clients.
        difference: Difference of the means, in standard deviations within both (Cohen's d).
    """

    name: str
    mean: float
    others: float
    difference: float


@dataclass(frozen=True)
class SampleInput:
    """One training sample of a client.

    Args:
        client: Its name.
        target: The class, None if targets are no classes.
        values: The input, as one list.
    """

    client: str
    target: int | None
    values: tuple[float, ...]


@dataclass(frozen=True)
class ClusterDifference:
    """What the data of a cluster are like, and how they differ from those of all other clients.

    Args:
        cluster: Its label.
        samples: Samples that were summed up.
        class_names: Names of the classes; empty if targets are values.
        class_shares: Share of each class among the cluster's samples.
        other_shares: The same of all other clients.
        class_differences: By how many standard deviations the inputs of each class differ, as a
            root mean square over features, less what chance explains; None if it is unknown.
        features: Features whose means differ most, at most ten; the first differs most.
        mean_input: Mean of each input, None if they are too many.
        words: The same in words.
        sample_inputs: Single inputs, if they were asked for.
    """

    cluster: int
    samples: int
    class_names: tuple[str, ...]
    class_shares: tuple[float, ...]
    other_shares: tuple[float, ...]
    class_differences: tuple[float | None, ...]
    features: tuple[FeatureDifference, ...]
    mean_input: tuple[float, ...] | None
    words: str
    sample_inputs: tuple[SampleInput, ...] = ()


@dataclass(frozen=True)
class Differences:
    """What differs between clusters.

    Args:
        by_cluster: One for each cluster of at least two clients.
        layers: The layers of the clusters' models, those first that differ most.
        input_shape: The shape of an input, if it is known: that of an image, for ``mean_input``.
    """

    by_cluster: tuple[ClusterDifference, ...]
    layers: tuple[LayerDifference, ...] = ()
    input_shape: tuple[int, ...] | None = None
