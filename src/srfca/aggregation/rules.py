"""Aggregation rules: named functions from the rows of a cluster to one row.

A rule is a small frozen dataclass with a key, so that a request can carry it to wherever the rows
are: the server, or workers that each hold some of the clients.

Every rule commutes with translation and scaling of its rows: for a row ``w`` and a number ``a``,
``rule(w + a * rows, sizes) == w + a * rule(rows, sizes)``, up to rounding. Where clients exchange
gradients, the server can therefore take each client's step ``w - lr * gradient`` first and
aggregate the results, as it aggregates models.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor

from srfca.aggregation import functions
from srfca.aggregation.outliers import clip_changes
from srfca.errors import InputError, unknown
from srfca.parameters import check_parameters, constrained


@runtime_checkable
class Aggregation(Protocol):
    """A named rule from the rows of a cluster's clients to one row."""

    key: ClassVar[str]
    """The rule's name in requests, experiments and on the command line."""

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Aggregate rows.

        Args:
            rows: ``[J, P]``, one row per client.
            sizes: ``[J]``, the number of training samples of each client.

        Returns:
            ``[P]``.
        """
        ...


@dataclass(frozen=True)
class Mean:
    """The mean of the rows, as in FedAvg.

    Args:
        weighted: Weight clients by their number of samples; False weights them equally.

    Examples:
        >>> import torch
        >>> rows, sizes = torch.tensor([[1.0], [4.0]]), torch.tensor([2, 1])
        >>> Mean()(rows, sizes), Mean(weighted=False)(rows, sizes)
        (tensor([2.]), tensor([2.5000]))
    """

    key: ClassVar[str] = "mean"
    weighted: bool = True

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the mean of rows ``[J, P]``: ``[P]``."""
        return functions.mean(rows, sizes) if self.weighted else functions.mean(rows)


@dataclass(frozen=True)
class TrimmedMean:
    """The coordinate-wise trimmed mean, TrMean_beta; all clients have equal weight.

    Args:
        beta: Fraction that is dropped on each side, in [0, 1/2): at least the fraction of
            corrupt clients.
        at_least: Clients that are dropped on each side of small clusters too, if beta is not 0.

    Raises:
        InputError: If a value is out of range.
    """

    key: ClassVar[str] = "trimmed_mean"
    beta: float = constrained(at_least=0, less_than=0.5)
    at_least: int = constrained(0, at_least=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the trimmed mean of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return functions.trimmed_mean(rows, self.beta, self.at_least)


@dataclass(frozen=True)
class Median:
    """The coordinate-wise median; all clients have equal weight."""

    key: ClassVar[str] = "median"

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the median of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return functions.median(rows)


@dataclass(frozen=True)
class GeometricMedian:
    """The point with the smallest sum of distances to the rows; all clients have equal weight.

    It bears up to half of the rows being corrupt, and unlike the coordinate-wise median it does not
    depend on the coordinates.
    """

    key: ClassVar[str] = "geometric_median"

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the geometric median of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return functions.geometric_median(rows, tolerance=1e-4, iterations=100)


@dataclass(frozen=True)
class ClippedMean:
    """The mean of rows whose distance from their median is bounded; all clients weigh the same.

    Args:
        limit: Rows further from the coordinate-wise median than this many times the median
            distance are moved to that distance.

    Raises:
        InputError: If the limit is less than 1.
    """

    key: ClassVar[str] = "clipped_mean"
    limit: float = constrained(2.0, at_least=1)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the clipped mean of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return functions.mean(clip_changes(rows, functions.median(rows), self.limit))


Rule = type[Mean] | type[TrimmedMean] | type[Median] | type[GeometricMedian] | type[ClippedMean]

AGGREGATIONS: dict[str, Rule] = {
    rule.key: rule for rule in (Mean, TrimmedMean, Median, GeometricMedian, ClippedMean)
}
"""Rules by key."""


def aggregation_named(key: str, **parameters: Any) -> Aggregation:
    """Return the rule of a key.

    Args:
        key: One of ``AGGREGATIONS``.
        **parameters: The fields of the rule.

    Raises:
        InputError: If there is no such rule, or the parameters are not those of the rule.

    Examples:
        >>> aggregation_named("trimmed_mean", beta=0.1)
        TrimmedMean(beta=0.1, at_least=0)
    """
    if key not in AGGREGATIONS:
        raise unknown("aggregation", key, AGGREGATIONS)
    rule = AGGREGATIONS[key]
    required = {field.name: field.default is MISSING for field in fields(rule)}
    for name in parameters:
        if name not in required:
            allowed = ", ".join(required) or "none"
            raise InputError(
                f"aggregation {key!r} has no parameter {name!r}: its parameters are {allowed}"
            )
    for name, is_required in required.items():
        if is_required and name not in parameters:
            raise InputError(f"aggregation {key!r} needs the parameter {name!r}")
    return rule(**parameters)


RobustAggregation = Literal["trimmed_mean", "median", "geometric_median", "clipped_mean"]
"""Rules that bound what a few corrupt clients can do."""


def robust_aggregation(key: RobustAggregation, beta: float, at_least: int = 0) -> Aggregation:
    """Return a robust rule by its key; beta and at_least are those of the trimmed mean."""
    if key == "trimmed_mean":
        return TrimmedMean(beta, at_least)
    return aggregation_named(key)
