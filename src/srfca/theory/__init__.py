"""The paper's theory: its quantities for given models, its bounds, and problems to measure them."""

from srfca.theory.bounds import (
    cluster_model_bound,
    contraction,
    expected_kl,
    ifca_separation,
    intra_cluster_radius,
    margin,
    one_shot_bound,
    sr_fca_separation,
)
from srfca.theory.problem import Quadratics
from srfca.theory.quantities import (
    Separations,
    best_threshold,
    cluster_impurities,
    cluster_labels,
    separations,
)

__all__ = [
    "Quadratics",
    "Separations",
    "best_threshold",
    "cluster_impurities",
    "cluster_labels",
    "cluster_model_bound",
    "contraction",
    "expected_kl",
    "ifca_separation",
    "intra_cluster_radius",
    "margin",
    "one_shot_bound",
    "separations",
    "sr_fca_separation",
]
