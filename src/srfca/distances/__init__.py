"""Distances between models: of two clients, of a client and a cluster, of two clusters."""

from srfca.distances.functions import (
    DISTANCES,
    Distance,
    allows_unknown,
    balanced_cross_loss,
    cosine,
    cross_loss,
    distance_named,
    lq,
    norms,
    one_sided_loss,
    presence_balanced_cross_loss,
)
from srfca.distances.matched import matched
from srfca.distances.model_set import ModelSet
from srfca.distances.wasserstein import wasserstein

__all__ = [
    "DISTANCES",
    "Distance",
    "ModelSet",
    "allows_unknown",
    "balanced_cross_loss",
    "cosine",
    "cross_loss",
    "distance_named",
    "lq",
    "matched",
    "norms",
    "one_sided_loss",
    "presence_balanced_cross_loss",
    "wasserstein",
]
