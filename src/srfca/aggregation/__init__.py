"""Aggregation: from rows ``[J, P]`` to one row ``[P]``.

The functions are plain; the rules (``Mean``, ``TrimmedMean``, ...) are the same functions with a
name and parameters, so that a request can carry them.
"""

from srfca.aggregation.functions import (
    geometric_median,
    krum,
    mean,
    median,
    trim_count,
    trimmed_mean,
)
from srfca.aggregation.outliers import clip_changes, winsorize
from srfca.aggregation.rules import (
    AGGREGATIONS,
    Aggregation,
    ClippedMean,
    GeometricMedian,
    Mean,
    Median,
    TrimmedMean,
    aggregation_named,
)

__all__ = [
    "mean",
    "trimmed_mean",
    "trim_count",
    "median",
    "geometric_median",
    "krum",
    "clip_changes",
    "winsorize",
    "AGGREGATIONS",
    "Aggregation",
    "Mean",
    "TrimmedMean",
    "Median",
    "GeometricMedian",
    "ClippedMean",
    "aggregation_named",
]
