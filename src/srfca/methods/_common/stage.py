"""The history of a run: its stages, also ready for files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.middleware.counting import Budget
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

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)


def pack_stage(stage: Stage) -> dict[str, Any]:
    """Return a stage without its distances, ready for JSON."""
    return {
        "name": stage.name,
        "labels": stage.labels,
        "seconds": stage.seconds,
        "loss": stage.loss,
        "accuracy": stage.accuracy,
        "notes": dict(stage.notes),
        "budget": asdict(stage.budget),
        "curve": [asdict(point) for point in stage.curve],
    }


def unpack_stage(content: Mapping[str, Any], distances: Tensor | None) -> Stage:
    """Return the stage that ``pack_stage`` and JSON made of one."""
    return Stage(
        name=content["name"],
        labels=tuple(content["labels"]),
        seconds=content["seconds"],
        loss=content["loss"],
        accuracy=content["accuracy"],
        notes=content["notes"],
        budget=Budget(**content["budget"]),
        curve=tuple(CurvePoint.from_json(point) for point in content["curve"]),
        distances=None if distances is None else distances.numpy(),
    )


def pack_distances(history: Sequence[Stage]) -> dict[str, Tensor]:
    """Return the distances of the stages that have any, by ``distances/`` and their number."""
    return {
        distances_name(number): torch.as_tensor(stage.distances).contiguous()
        for number, stage in enumerate(history)
        if stage.distances is not None
    }


def unpack_history(
    content: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> tuple[Stage, ...]:
    """Return the stages that were packed."""
    return tuple(
        unpack_stage(entry, tensors.get(distances_name(number)))
        for number, entry in enumerate(content)
    )


def distances_name(number: int) -> str:
    """Return the name of the tensor of a stage's distances."""
    return f"distances/{number}"
