"""Clusters from distances: partitions, graphs, thresholds, linkage. No learning in here."""

from srfca.clustering.candidates import METRICS, Candidate, Metric
from srfca.clustering.graph import (
    GRAPH_CLUSTERINGS,
    GraphClustering,
    cluster_graph,
    threshold_graph,
)
from srfca.clustering.linkage import LINKAGES, Linkage, agglomerate
from srfca.clustering.partition import Partition
from srfca.clustering.precomputed import cluster
from srfca.clustering.profile import Profile, denoised_profiles
from srfca.clustering.threshold import Choice, choose_threshold

__all__ = [
    "GRAPH_CLUSTERINGS",
    "LINKAGES",
    "METRICS",
    "Candidate",
    "Choice",
    "GraphClustering",
    "Linkage",
    "Metric",
    "Partition",
    "Profile",
    "agglomerate",
    "choose_threshold",
    "cluster",
    "cluster_graph",
    "denoised_profiles",
    "threshold_graph",
]
