"""Checks of a result that was read from disk: every part fits the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from srfca.errors import require
from srfca.methods._common.stage import Stage


def check_fields(fields: Mapping[str, Any]) -> None:
    """Check the fields of a result by name.

    Raises:
        InputError: If a part has a wrong type, or does not fit the number of clients or models.
    """
    for name, kind in (("method", str), ("parameters", dict), ("clustered", bool), ("seed", int)):
        _require_type(name, fields[name], kind)
    clients = fields["client_ids"]
    require(
        len(clients) > 0 and all(isinstance(client, str) for client in clients),
        "client_ids must be one or more strings",
    )
    require(len(set(clients)) == len(clients), "client_ids has the same client twice")
    models, m = fields["models"], len(clients)
    require(
        models.ndim == 2 and models.is_floating_point() and len(models) > 0,
        f"models must be rows of numbers, not of shape {tuple(models.shape)}",
    )
    k, length = models.shape
    check_labels("labels", fields["labels"].tolist(), m, k)
    architecture = fields["architecture"]
    require(
        architecture is None or architecture.layout.length == length,
        "models and architecture have different lengths",
    )
    for name, shape in (
        ("individual_models", (m, length)),
        ("mixture_weights", (m, k)),
        ("fine_tuned_models", (m, length)),
        ("fine_tuned_steps", (m,)),
    ):
        _require_shape(name, fields[name], shape)
    for stage in fields["history"]:
        _check_stage(stage, m)


def check_labels(name: str, labels: Sequence[Any], m: int, num_clusters: int | None = None) -> None:
    """Check the clusters of m clients: integers of at least -1, and below the number of clusters.

    Raises:
        InputError: If they are something else.
    """
    require(
        len(labels) == m and all(type(label) is int for label in labels),
        f"{name} must be {m} integers",
    )
    require(all(label >= -1 for label in labels), f"{name} must be at least -1, not {min(labels)}")
    require(
        num_clusters is None or max(labels) < num_clusters,
        f"{name} names cluster {max(labels)}, but there are {num_clusters} models",
    )


def _check_stage(stage: Stage, m: int) -> None:
    _require_type("name of a stage", stage.name, str)
    name = f"stage {stage.name}"
    count = len(stage.labels)  # fewer than m where clients have joined since
    require(count <= m, f"labels of {name} must be of at most {m} clients, not {count}")
    check_labels(f"labels of {name}", stage.labels, count)
    _require_type(f"notes of {name}", stage.notes, dict)
    _require_type(f"seconds of {name}", stage.seconds, (int, float))
    for score in (stage.loss, stage.accuracy):
        _require_type(f"score of {name}", score, (int, float, type(None)))
    for cost in astuple(stage.budget):
        _require_type(f"budget of {name}", cost, int)
    if stage.distances is not None:
        _require_shape(f"distances of {name}", torch.as_tensor(stage.distances), (count, count))
    if stage.scores is not None:
        for part in (stage.scores.loss, stage.scores.accuracy, stage.scores.num_samples):
            _require_shape(f"scores of {name}", part, (count,))


def _require_type(name: str, value: Any, kind: type | tuple[type, ...]) -> None:
    allowed = kind if isinstance(kind, tuple) else (kind,)
    is_allowed = isinstance(value, allowed) and (not isinstance(value, bool) or bool in allowed)
    names = " or ".join(one.__name__ for one in allowed)
    require(is_allowed, f"{name} must be {names}, not {value!r}")


def _require_shape(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    require(
        tensor is None or tuple(tensor.shape) == shape,
        f"{name} must have the shape {shape}, not {tuple(() if tensor is None else tensor.shape)}",
    )
