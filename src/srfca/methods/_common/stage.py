"""The history of a run: its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from srfca.clustering.partition import Partition
from srfca.federation.middleware.counting import Budget
from srfca.federation.replies import ClientScores
from srfca.methods._common.curve import CurvePoint


@dataclass(frozen=True)
class Stage:
    """One stage of a run.

    Args:
        name: ONE_SHOT, RECLUSTER 1, ...
        labels: Cluster of each client after it, -1 for none.
        seconds: How long it took.
        loss: Mean over the clients of their model's loss on their held-out data.
        accuracy: The same for accuracy; None if the targets are not classes.
        budget: What it cost the clients.
        notes: What it decided and why: the threshold, its candidates, joined clusters, ...
        distances: ``[m, m]`` between the clients' local models, NaN if unknown.
        curve: Scores that became known during the stage, the last at its end.
        scores: ``[m]`` what ``loss`` and ``accuracy`` are the means of, NaN if unknown.

    Examples:
        >>> stage = Stage("ONE_SHOT", labels=(0, 0, 1), seconds=0.1, loss=0.5)
        >>> stage.partition
        Partition(2 in cluster 0, 1 in cluster 1)
    """

    name: str
    labels: tuple[int, ...]
    seconds: float
    loss: float | None = None
    accuracy: float | None = None
    budget: Budget = field(default_factory=Budget)
    notes: Mapping[str, Any] = field(default_factory=dict)
    distances: np.ndarray | None = None
    curve: tuple[CurvePoint, ...] = ()
    scores: ClientScores | None = field(default=None, compare=False)

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)
