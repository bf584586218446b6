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
from srfca.distances.model_set import ModelSet

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
    "norms",
    "one_sided_loss",
    "presence_balanced_cross_loss",
]
