"""Partitioners: how the samples of a data set are dealt to clients.

They have the names of Flower Datasets, and its meaning of their parameters, except that the number
of partitions is an argument of ``partition``. ``srfca.data.federate`` uses one inside each cluster.
"""

from srfca.data.partitioners.base import MIN_SAMPLES, Partitioner, Parts
from srfca.data.partitioners.by_label import (
    DirichletPartitioner,
    ExtendedDirichletPartitioner,
    InnerDirichletPartitioner,
    PathologicalPartitioner,
    ShardPartitioner,
)
from srfca.data.partitioners.by_size import (
    ExponentialPartitioner,
    IidPartitioner,
    LinearPartitioner,
    SizePartitioner,
    SquarePartitioner,
)
from srfca.data.partitioners.matching import matching_partition

__all__ = [
    "DirichletPartitioner",
    "ExponentialPartitioner",
    "ExtendedDirichletPartitioner",
    "IidPartitioner",
    "InnerDirichletPartitioner",
    "LinearPartitioner",
    "MIN_SAMPLES",
    "Partitioner",
    "Parts",
    "PathologicalPartitioner",
    "ShardPartitioner",
    "SizePartitioner",
    "SquarePartitioner",
    "matching_partition",
]
