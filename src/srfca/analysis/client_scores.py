"""Scores of clients: which samples they are on, and as lists for JSON."""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch
from torch import Tensor

from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores
from srfca.federation.requests import Split


def best_split(federation: Federation) -> Split:
    """Return what models are scored on: test data, else held-out data, else training data."""
    splits: tuple[Split, ...] = ("test", "validation", "train")
    return next(split for split in splits if split in federation.splits)


def to_list(values: Any) -> list[float | None]:
    """Return numbers as a list, None where they are not finite.

    >>> to_list(torch.tensor([1.0, torch.nan]))
    [1.0, None]
    """
    return [float(value) if isfinite(value) else None for value in values.tolist()]


def from_list(values: list[float | None]) -> Tensor:
    """Return what ``to_list`` returned: ``[m]`` in double precision, NaN for None."""
    return torch.tensor(
        [torch.nan if value is None else value for value in values], dtype=torch.float64
    )


def scores_to_json(scores: ClientScores) -> dict[str, Any]:
    """Return scores as lists."""
    return {
        "loss": to_list(scores.loss),
        "accuracy": None if scores.accuracy is None else to_list(scores.accuracy),
        "num_samples": [int(count) for count in scores.num_samples.tolist()],
    }


def scores_from_json(content: dict[str, Any]) -> ClientScores:
    """Return what ``scores_to_json`` returned."""
    accuracy = content["accuracy"]
    return ClientScores(
        from_list(content["loss"]),
        None if accuracy is None else from_list(accuracy),
        torch.tensor(content["num_samples"], dtype=torch.int64),
    )
