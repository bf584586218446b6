"""Federations and parameters that the tests of SR-FCA share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from srfca import LocalTraining, Partition, Simulation
from srfca.clustering import Choice
from srfca.methods import Run
from srfca.methods.sr_fca.thresholds import OneShot
from srfca.models import linear
from tests import examples

LOCAL = LocalTraining(steps=30, local_steps=3, batch_size=10, lr=0.05)
FIXED = OneShot(Partition([0]), Choice("distance", 1.0, None, "given"), distance="l2")

OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"threshold": 2.5, "distance": "l2"},
    "per stage": {"threshold": 2.5, "merge_threshold": 1.0, "distance": "l2"},
    "quantile": {"threshold": "30%"},
    "components": {"graph": "components", "threshold": 2.5, "distance": "l2"},
    "cliques": {"graph": "cliques", "threshold": 2.5, "distance": "l2"},
    "l1": {"distance": "l1"},
    "l1.5": {"distance": "l1.5"},
    "linf": {"distance": "linf"},
    "cosine": {"distance": "cosine"},
    "matched": {"distance": "matched"},
    "wasserstein": {"distance": "wasserstein"},
    "one-sided": {"distance": "one_sided_loss"},
    "callable": {"distance": lambda a, b: torch.cdist(a.models, b.models).double().numpy()},
    "gradients": {"exchange": "gradients", "server_lr": 0.1},
    "participation": {"participation": 0.5},
    "ball": {"diameter": 100.0},
    "resample": {"resample": True},
    "merge first": {"merge_first": True},
    "warm start": {"continue_training": True},
    "one pass of pivots": {"restarts": 0, "threshold": 2.5, "distance": "l2"},
    "no refine": {"refine_steps": 0},
    "short ONE_SHOT": {"one_shot_steps": 25},
    "fedavg": {"final_steps": 9},
    "fedprox": {"final_steps": 9, "final_mu": 0.1},
    "no trim": {"trim": 0.0},
    "much trim": {"trim": 0.45},
}
"""Parameters that find the clusters of ``regressions``."""


def regressions(num_clients: int = 12, clusters: int = 3, **options: Any) -> Simulation:
    """Return linear regressions of 20 to 22 samples each."""
    data = examples.regression([20 + i % 3 for i in range(num_clients)], clusters=clusters)
    return Simulation(data, linear(4), **options)


def run_without_requests(num_clients: int = 1) -> Run:
    """Return a run for steps that only look at rows."""
    return Run(Simulation(examples.regression([4] * num_clients), linear(4)))


def on_a_line(width: float, seed: int) -> tuple[Simulation, np.ndarray]:
    """Return regressions that vary without a gap, and where each lies between -1 and 1."""
    data, places = examples.on_a_line(width, seed)
    return Simulation(data, linear(6), validation=0.25), places
