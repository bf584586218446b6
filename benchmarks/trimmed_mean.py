"""Trimmed mean of 100 rows of 10 million: srfca, scipy, and Flower's strategy where it is there."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from harness import Contestant, serve
from scipy import stats
from setting import Setting, setting

from srfca.aggregation import trimmed_mean

BETA = 0.1


def contestants(sizes: Setting) -> dict[str, Contestant]:
    """All of them, on the same rows; each tells the norm of what it finds."""
    rows = torch.randn(sizes.rows, sizes.length, generator=torch.Generator().manual_seed(0))
    found: dict[str, Contestant] = {
        "srfca": lambda: float(trimmed_mean(rows, BETA).norm()),
        "scipy.stats.trim_mean": lambda: norm(stats.trim_mean(rows.numpy(), BETA, axis=0)),
    }
    if find_spec("flwr"):
        from flwr.serverapp.strategy.fedtrimmedavg import trim_mean

        clients = list(rows.numpy())
        found["Flower's FedTrimmedAvg"] = lambda: norm(trim_mean(np.stack(clients), BETA))
    return found


def norm(row: np.ndarray) -> float:
    """As the others have it."""
    return float(torch.from_numpy(row).norm())


if __name__ == "__main__":
    serve(contestants(setting()))
