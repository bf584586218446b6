"""Partitions, graphs and thresholds; nothing here knows of learning."""

from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.clustering.partition import Partition
from srfca.clustering.precomputed import cluster
from srfca.clustering.threshold import Choice, choose, profile

__all__ = [
    "Choice",
    "Partition",
    "choose",
    "cluster",
    "cluster_graph",
    "profile",
    "threshold_graph",
]
