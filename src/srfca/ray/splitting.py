"""Requests, split into those of each shard, and answers, joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require
from srfca.federation.algorithms import Descent
from srfca.federation.mixture import Mixture
from srfca.federation.replies import ClientScores
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Request,
    Scores,
    Shares,
    Train,
)
from srfca.ray.shards import client_range

_MIN_SHARED_BYTES = 2**17
"""Bytes of models that make it worth sending them once to each machine."""
_MAX_SHARED_BYTES = 2**28
"""Bytes of models that a machine gets at once."""


@dataclass(frozen=True, eq=False)
class Part:
    """The part of a request that is for one shard.

    Args:
        request: With the positions of clients in the shard.
        entries: Which entries of the whole request these are.
    """

    request: Request[Any]
    entries: NDArray[np.int64]


def split(
    request: Request[Any], bounds: NDArray[np.int64], shards: Sequence[int] | None = None
) -> dict[int, Part]:
    """Split a request by shard.

    Args:
        request: The request.
        bounds: Bounds of the shards.
        shards: Those to include even if none of their clients is asked; None is the first one if
            no client at all is asked.

    Raises:
        InputError: If there are not as many rows as clients.
    """
    _check_entries(request)
    shard_of = client_range(bounds, request.clients)
    present = np.unique(shard_of).tolist()
    chosen = sorted({*present, *(shards or ())}) or [0]
    parts = {}
    for shard in chosen:
        entries = np.flatnonzero(shard_of == shard)
        part = request if len(entries) == len(request.clients) else request.select(entries)
        parts[shard] = Part(replace(part, clients=part.clients - bounds[shard]), entries)
    return parts


def take_models(request: Request[Any]) -> tuple[Request[Any], Tensor | None]:
    """Take the models out of a request if every shard gets them, and they are large."""
    kinds = (Losses, BalancedLosses, LossMoments, OutputMoments, BootstrapLosses, Shares)
    if not isinstance(request, kinds) or not isinstance(request.models, Tensor):
        return request, None
    if not is_large(request.models):
        return request, None
    return replace(request, models=request.models[:0]), request.models


def is_large(models: Tensor) -> bool:
    """Tell whether models are so large that each machine should get them once."""
    return models.numel() * models.element_size() >= _MIN_SHARED_BYTES


def tiles(request: Request[Any]) -> list[Request[Any]]:
    """Return requests for some of the models each, if there are too many for a machine at once.

    Their answers belong side by side, in their order.
    """
    if not isinstance(request, Losses | BalancedLosses):
        return [request]
    models = request.models
    length = max(1, _MAX_SHARED_BYTES // max(1, models[:1].numel() * models.element_size()))
    if len(models) <= length:
        return [request]
    if isinstance(request, Losses):
        return [replace(request, models=part) for part in models.split(length)]
    parts = zip(models.split(length), request.class_shares.split(length), strict=True)
    return [replace(request, models=part, class_shares=shares) for part, shares in parts]


def join(parts: Mapping[int, Part], answers: Mapping[int, Any]) -> Any:
    """Join the answers of the shards in the order of the whole request's entries."""
    entries = [parts[shard].entries for shard in sorted(parts)]
    values = [answers[shard] for shard in sorted(parts)]
    if len(values) == 1:
        return values[0]
    order = torch.from_numpy(np.argsort(np.concatenate(entries), kind="stable"))
    if not isinstance(values[0], ClientScores):
        return _ordered(torch.cat(values), order)
    accuracies = [scores.accuracy for scores in values]
    given = [accuracy for accuracy in accuracies if accuracy is not None]
    return ClientScores(
        _ordered(torch.cat([scores.loss for scores in values]), order),
        _ordered(torch.cat(given), order) if len(given) == len(accuracies) else None,
        _ordered(torch.cat([scores.num_samples for scores in values]), order),
    )


def _ordered(values: Tensor, order: Tensor) -> Tensor:
    is_ordered = torch.equal(order, torch.arange(len(order)))
    return values if is_ordered else values[order]


def _check_entries(request: Request[Any]) -> None:
    """Raise an error unless there is a row for each entry."""
    count = len(request.clients)
    for rows in _entries_of(request):
        require(
            len(rows) == count, f"{count} clients need as many rows or mixtures, not {len(rows)}"
        )


def _entries_of(request: Request[Any]) -> list[Tensor | Mixture]:
    """Return everything in a request that has a row for each entry."""
    match request:
        case Train(starts=starts, algorithm=algorithm):
            rows: list[Tensor | Mixture] = [starts, *algorithm.tensors().values()]
            if isinstance(algorithm, Descent) and algorithm.posterior is not None:
                rows += [algorithm.posterior.mixture, algorithm.posterior.component]
            return rows
        case Gradients(models=models) | Scores(models=models) | Outputs(models=models):
            return [models]
        case Shares(models=Mixture() as mixture):
            return [mixture]
    return []
