"""Stages as JSON and tensors, for the files of a result, and of a running one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from srfca.federation.middleware.counting import Budget
from srfca.federation.replies import ClientScores
from srfca.methods._common.curve import CurvePoint
from srfca.methods._common.stage import Stage

_SCORES = ("loss", "accuracy", "num_samples")
"""The tensors of a stage's scores, which it may lack."""


def pack_stage(stage: Stage) -> dict[str, Any]:
    """Return a stage without its tensors, ready for JSON."""
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


def pack_tensors(history: Sequence[Stage]) -> dict[str, Tensor]:
    """Return distances and scores of the stages: ``distances/NUMBER``, ``scores/NUMBER/NAME``."""
    tensors = {}
    for number, stage in enumerate(history):
        if stage.distances is not None:
            tensors[f"distances/{number}"] = torch.as_tensor(stage.distances).contiguous()
        for part in _SCORES:
            if stage.scores is not None and (values := getattr(stage.scores, part)) is not None:
                tensors[f"scores/{number}/{part}"] = values.detach().cpu().clone()
    return tensors


def unpack_history(
    content: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]
) -> tuple[Stage, ...]:
    """Return the stages that were packed."""
    return tuple(_stage(entry, number, tensors) for number, entry in enumerate(content))


def _stage(content: Mapping[str, Any], number: int, tensors: Mapping[str, Tensor]) -> Stage:
    distances = tensors.get(f"distances/{number}")
    scores = {part: tensors.get(f"scores/{number}/{part}") for part in _SCORES}
    return Stage(
        name=content["name"],
        labels=tuple(content["labels"]),
        seconds=content["seconds"],
        loss=content["loss"],
        accuracy=content["accuracy"],
        notes=content["notes"],
        budget=Budget(**content["budget"]),
        distances=None if distances is None else distances.numpy(),
        curve=tuple(CurvePoint.from_json(point) for point in content["curve"]),
        scores=_scores(**scores),
    )


def _scores(
    loss: Tensor | None, accuracy: Tensor | None, num_samples: Tensor | None
) -> ClientScores | None:
    """Return the scores of a stage, None if it has none."""
    if loss is None or num_samples is None:
        return None
    return ClientScores(loss, accuracy, num_samples)
