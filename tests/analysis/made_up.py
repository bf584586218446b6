"""Results and analyses without training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from srfca import Result, Simulation
from srfca.analysis import Analysis
from srfca.federation import ClientScores
from srfca.methods._common.stage import Stage


def scores(accuracy: Sequence[float] | None, loss: Sequence[float] | None = None) -> ClientScores:
    """Return scores of clients with ten samples each."""
    values = loss if loss is not None else [0.0] * len(accuracy or ())
    return ClientScores(
        torch.tensor(values, dtype=torch.float64),
        None if accuracy is None else torch.tensor(accuracy, dtype=torch.float64),
        torch.full((len(values),), 10),
    )


def analysis(labels: Sequence[int], **fields: object) -> Analysis:
    """Return an analysis of clients a, b, c, ..."""
    m = len(labels)
    names = tuple(chr(ord("a") + i) if m <= 26 else f"client {i}" for i in range(m))
    values: dict[str, object] = {
        "method": "SR-FCA", "seed": 0, "client_ids": names, "clustered": True, "split": "test",
        "labels": np.asarray(labels, dtype=np.int64), "scores": scores([0.9] * m),
    }  # fmt: skip
    return Analysis(**{**values, **fields})  # type: ignore[arg-type]


def result(
    federation: Simulation,
    labels: Sequence[int],
    models: torch.Tensor,
    history: tuple[Stage, ...] = (),
    clustered: bool = True,
) -> Result:
    """Return a result with these clusters and models."""
    return Result(
        "Made up", {}, 0, tuple(federation.client_ids), np.asarray(labels, dtype=np.int64),
        models, history=history, clustered=clustered,
    )  # fmt: skip
