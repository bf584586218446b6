"""Trimmed mean of 100 rows of 10 million: srfca, scipy, and Flower's strategy if installed."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from harness import Contestant, serve
from scipy import stats
from setting import Setting, parse_setting

from srfca.aggregation import trimmed_mean

BETA = 0.1


def contestants(setting: Setting) -> dict[str, Contestant]:
    """Return the contestants, all on the same rows; each returns the norm of its mean."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(setting.num_rows, setting.row_length, generator=generator)
    available: dict[str, Contestant] = {
        "srfca": lambda: float(trimmed_mean(rows, BETA).norm()),
        "scipy.stats.trim_mean": lambda: norm(stats.trim_mean(rows.numpy(), BETA, axis=0)),
    }
    if find_spec("flwr"):
        from flwr.serverapp.strategy.fedtrimmedavg import trim_mean

        client_rows = list(rows.numpy())
        available["Flower's FedTrimmedAvg"] = lambda: norm(trim_mean(np.stack(client_rows), BETA))
    return available


def norm(row: np.ndarray) -> float:
    """Return the norm of a row, computed by torch as for srfca."""
    return float(torch.from_numpy(row).norm())


if __name__ == "__main__":
    serve(contestants(parse_setting()))
