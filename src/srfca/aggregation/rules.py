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

from srfca.aggregation import byzantine, functions
from srfca.aggregation.outliers import clip_changes
from srfca.errors import InputError, unknown
from srfca.parameters import check_parameters, constrained


@runtime_checkable
class Aggregation(Protocol):
    """A named rule from the rows of a cluster's clients to one row.

    A rule of your own is a frozen dataclass with a ``key`` of its own, called like those that are
    here.

    Examples:
        >>> isinstance(Median(), Aggregation), Median.key in AGGREGATIONS
        (True, True)
    """

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

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[1.0], [2.0], [3.0], [100.0]])
        >>> TrimmedMean(beta=0.25)(rows, torch.ones(4))
        tensor([2.5000])
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
    """The coordinate-wise median; all clients have equal weight.

    Examples:
        >>> import torch
        >>> Median()(torch.tensor([[1.0], [2.0], [100.0]]), torch.ones(3))
        tensor([2.])
    """

    key: ClassVar[str] = "median"

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the median of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return functions.median(rows)


@dataclass(frozen=True)
class GeometricMedian:
    """The point with the smallest sum of distances to the rows; all clients have equal weight.

    It tolerates up to half of the rows being corrupt, and unlike the coordinate-wise median it does
    not depend on the coordinates.

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]])
        >>> bool(GeometricMedian()(rows, torch.ones(3)).abs().max() < 1e-6)
        True
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

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0]])
        >>> ClippedMean(limit=2.0)(rows, torch.ones(5))
        tensor([2.])
    """

    key: ClassVar[str] = "clipped_mean"
    limit: float = constrained(2.0, at_least=1)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the clipped mean of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return functions.mean(clip_changes(rows, functions.median(rows), self.limit))


@dataclass(frozen=True)
class CenteredClipping:
    """The mean of rows whose distance from that mean is bounded; all clients weigh the same.

    Args:
        limit: The bound, in median distances.
        iterations: How often the mean is computed again.

    Raises:
        InputError: If a value is out of range.

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [100.0]])
        >>> bool(CenteredClipping()(rows, torch.ones(5)) < 3)
        True
    """

    key: ClassVar[str] = "centered_clipping"
    limit: float = constrained(1.0, at_least=1)
    iterations: int = constrained(3, at_least=1)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return the centered clipping of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        return byzantine.centered_clipping(rows, self.limit, self.iterations)


@dataclass(frozen=True)
class Krum:
    """The row that is nearest to most others; few rows that Krum cannot judge give their median.

    Args:
        beta: The fraction of corrupt clients, in [0, 1/2), as far as Krum tolerates it.
        at_least: Corrupt clients to tolerate in small clusters too, if beta is not 0.

    Raises:
        InputError: If a value is out of range.

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[0.0], [0.1], [0.3], [0.6], [99.0]])
        >>> Krum(beta=0.2)(rows, torch.ones(5))
        tensor([0.1000])
    """

    key: ClassVar[str] = "krum"
    beta: float = constrained(at_least=0, less_than=0.5)
    at_least: int = constrained(0, at_least=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return Krum's choice among rows ``[J, P]``: ``[P]``; sizes are ignored."""
        if len(rows) < 3:
            return functions.median(rows)
        return functions.krum(rows, _tolerated(rows, self.beta, self.at_least, 2))


@dataclass(frozen=True)
class MultiKrum:
    """The mean of the rows that are nearest to most others, without as many as may be corrupt.

    Args:
        beta: As in ``Krum``.
        at_least: As in ``Krum``.

    Raises:
        InputError: If a value is out of range.

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [99.0]])
        >>> MultiKrum(beta=0.2)(rows, torch.ones(5))
        tensor([1.5000])
    """

    key: ClassVar[str] = "multi_krum"
    beta: float = constrained(at_least=0, less_than=0.5)
    at_least: int = constrained(0, at_least=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return Multi-Krum of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        if len(rows) < 3:
            return functions.median(rows)
        corrupt = _tolerated(rows, self.beta, self.at_least, 2)
        return functions.krum(rows, corrupt, len(rows) - corrupt)


@dataclass(frozen=True)
class Bulyan:
    """The mean of the values nearest to the median, of rows that Krum chooses.

    Args:
        beta: The fraction of corrupt clients, in [0, 1/2), as far as Bulyan tolerates it: a
            quarter.
        at_least: As in ``Krum``.

    Raises:
        InputError: If a value is out of range.

    Examples:
        >>> import torch
        >>> rows = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [99.0]])
        >>> bool(Bulyan(beta=0.15)(rows, torch.ones(7)) < 5)
        True
    """

    key: ClassVar[str] = "bulyan"
    beta: float = constrained(at_least=0, less_than=0.5)
    at_least: int = constrained(0, at_least=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def __call__(self, rows: Tensor, sizes: Tensor) -> Tensor:
        """Return Bulyan of rows ``[J, P]``: ``[P]``; sizes are ignored."""
        if len(rows) < 3:
            return functions.median(rows)
        return byzantine.bulyan(rows, _tolerated(rows, self.beta, self.at_least, 4))


def _tolerated(rows: Tensor, beta: float, at_least: int, times: int) -> int:
    """Return how many corrupt rows to tolerate: at most ``(J - 3) / times``."""
    return min(functions.trim_count(len(rows), beta, at_least), (len(rows) - 3) // times)


_RULES = (
    Mean, TrimmedMean, Median, GeometricMedian, ClippedMean, CenteredClipping, Krum, MultiKrum,
    Bulyan,
)  # fmt: skip
AGGREGATIONS: dict[str, type[Any]] = {rule.key: rule for rule in _RULES}
"""Rules by key."""


def aggregation_named(key: str, **parameters: Any) -> Aggregation:
    """Return the rule of a key.

    Args:
        key: One of ``AGGREGATIONS``: ``mean``, ``trimmed_mean``, ``median``, ``geometric_median``,
            ``clipped_mean``, ``centered_clipping``, ``krum``, ``multi_krum`` or ``bulyan``.
        **parameters: The fields of the rule.

    Returns:
        The rule.

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
    made: Aggregation = rule(**parameters)
    return made


RobustAggregation = Literal[
    "trimmed_mean", "median", "geometric_median", "clipped_mean", "centered_clipping", "krum",
    "multi_krum", "bulyan",
]  # fmt: skip
"""Rules that bound what a few corrupt clients can do."""


def robust_aggregation(key: RobustAggregation, beta: float, at_least: int = 0) -> Aggregation:
    """Return a robust rule by its key; beta and at_least are for those that drop clients.

    Args:
        key: ``trimmed_mean``, ``median``, ``geometric_median``, ``clipped_mean``,
            ``centered_clipping``, ``krum``, ``multi_krum`` or ``bulyan``.
        beta: The fraction of clients to drop or to tolerate, in [0, 1/2).
        at_least: Clients to drop in small clusters too, if beta is not 0.

    Returns:
        The rule.

    Raises:
        InputError: If a value is out of range.

    Examples:
        >>> robust_aggregation("krum", beta=0.1), robust_aggregation("median", beta=0.1)
        (Krum(beta=0.1, at_least=0), Median())
    """
    if key in ("trimmed_mean", "krum", "multi_krum", "bulyan"):
        return aggregation_named(key, beta=beta, at_least=at_least)
    return aggregation_named(key)
