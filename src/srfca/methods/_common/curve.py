"""Learning curves: what becomes known of the clusters' scores during a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Labels
from srfca.federation.replies import ClientScores
from srfca.federation.requests import Split

Means = tuple[float | None, ...]
"""A mean for each cluster; None for a cluster of which nothing is known."""


@dataclass(frozen=True)
class CurvePoint:
    """How the clusters' models do at one time of a run: a point of each cluster's learning curve.

    Args:
        training: What was trained: FEDAVG, TRIMMED_MEAN_GD 1, ...
        round: How many rounds of it were done.
        local_steps: How many local steps all clients together had taken in the run.
        split: On which of the clients' data.
        loss: ``[k]`` the mean over each cluster's clients. Methods that give every client a model
            of its own have one mean, over all clients. Clusters are those of this time: of one
            training they have the numbers of the stage's ``labels``, unless it splits clusters.
        accuracy: The same for accuracy; None if the targets are not classes, or it is unknown.

    Examples:
        >>> point = CurvePoint("FEDAVG", 1, 20, "validation", loss=(0.5,))
        >>> CurvePoint.from_json(asdict(point)) == point
        True
    """

    training: str
    round: int
    local_steps: int
    split: Split
    loss: Means
    accuracy: Means | None = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CurvePoint:
        """Return the point that ``asdict`` and JSON made of one.

        Args:
            content: The fields by name.
        """
        accuracy = content["accuracy"]
        return cls(
            content["training"],
            content["round"],
            content["local_steps"],
            content["split"],
            tuple(content["loss"]),
            None if accuracy is None else tuple(accuracy),
        )


class LearningCurve:
    """The points since the last stage of the history.

    Attributes:
        points: In the order of time.
    """

    def __init__(self) -> None:
        self.points: list[CurvePoint] = []
        self._round = ("", 0)

    def end_round(self, training: str, done: int) -> None:
        """Note how many rounds of a training are done."""
        self._round = (training, done)

    def rounds_done(self, training: str) -> int:
        """Return how many rounds of a training are done, 0 if it is not the latest one."""
        return self._round[1] if self._round[0] == training else 0

    def add_scores(
        self,
        training: str,
        local_steps: int,
        scores: ClientScores,
        labels: Labels,
        num_clusters: int,
    ) -> None:
        """Add scores on held-out data.

        Args:
            training: What was trained.
            local_steps: How many local steps all clients have taken in the run.
            scores: ``[c]``, NaN if unknown.
            labels: ``[c]`` the cluster of each client, -1 for none.
            num_clusters: k.
        """
        loss = cluster_means(scores.loss, labels, num_clusters)
        accuracy = None
        if scores.accuracy is not None:
            accuracy = cluster_means(scores.accuracy, labels, num_clusters)
        done = self.rounds_done(training)
        self.points.append(CurvePoint(training, done, local_steps, "validation", loss, accuracy))

    def add_training_losses(
        self, training: str, local_steps: int, losses: Tensor, labels: Labels, num_clusters: int
    ) -> None:
        """Add losses ``[c]`` on training data; the other arguments are those of ``add_scores``."""
        means = cluster_means(losses, labels, num_clusters)
        done = self.rounds_done(training)
        self.points.append(CurvePoint(training, done, local_steps, "train", means))

    def renumber(self, training: str, labels: Labels) -> None:
        """Number the clusters of a training as a ``Partition`` does: by their first client.

        Args:
            training: Whose points are changed.
            labels: ``[m]`` the final cluster of each client in the numbers of the points, -1 for
                none. Clusters without clients come last.

        >>> curve = LearningCurve()
        >>> curve.points = [CurvePoint("IFCA", 1, 10, "train", (0.0, 1.0, 2.0))]
        >>> curve.renumber("IFCA", np.array([2, -1, 0, 2]))
        >>> curve.points[0].loss
        (2.0, 0.0, 1.0)
        """
        first = dict.fromkeys(labels[labels >= 0].tolist())

        def reorder(means: Means) -> Means:
            return tuple(means[old] for old in {**first, **dict.fromkeys(range(len(means)))})

        for number, point in enumerate(self.points):
            if point.training == training:
                accuracy = None if point.accuracy is None else reorder(point.accuracy)
                self.points[number] = replace(point, loss=reorder(point.loss), accuracy=accuracy)

    def state(self) -> Tensor:
        """Return the points as bytes of JSON, so that a run can resume: ``[n]``."""
        content = {"round": self._round, "points": [asdict(point) for point in self.points]}
        return torch.tensor(list(json.dumps(content).encode()), dtype=torch.uint8)

    def restore(self, state: Tensor) -> None:
        """Continue from a ``state``."""
        content = json.loads(bytes(state.tolist()))
        training, done = content["round"]
        self._round = (training, done)
        self.points = [CurvePoint.from_json(point) for point in content["points"]]


def cluster_means(values: Tensor, labels: Labels, num_clusters: int) -> Means:
    """Return the mean of each cluster's values, None if all of them are unknown.

    Args:
        values: ``[c]``, NaN if unknown.
        labels: ``[c]`` the cluster of each value, -1 for none.
        num_clusters: k.

    >>> cluster_means(torch.tensor([1.0, 3.0, torch.nan, 9.0]), np.array([0, 0, 1, -1]), 2)
    (2.0, None)
    """
    numbers = values.detach().cpu().double().numpy()
    counted = np.isfinite(numbers) & (labels >= 0)
    counts = np.bincount(labels[counted], minlength=num_clusters)
    sums = np.bincount(labels[counted], numbers[counted], minlength=num_clusters)
    return tuple(
        float(total / count) if count else None for total, count in zip(sums, counts, strict=True)
    )
