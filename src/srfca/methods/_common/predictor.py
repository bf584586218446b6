"""What a client of a result predicts with: rows of models, and their weights in a mixture."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from srfca.errors import InputError, require, unknown

if TYPE_CHECKING:
    from srfca.methods._common.result_models import ResultModels


@dataclass(frozen=True, eq=False)
class Predictor:
    """One model, or a mixture of models.

    Args:
        rows: ``[k, P]`` the models.
        weights: ``[k]`` their weights in a mixture, None if there is one model.
    """

    rows: Tensor
    weights: Tensor | None = None


def predictor_of(result: ResultModels, client: str | int | None, cluster: int | None) -> Predictor:
    """Return the final model or mixture of a client, or the model of a cluster.

    Args:
        result: The result.
        client: A client's name or position.
        cluster: Instead, the number of a cluster.

    Raises:
        InputError: If there is no such client or cluster, or it has no model.
    """
    require(
        (client is None) != (cluster is None),
        "name a client or a cluster: client='hospital-3', or cluster=0",
    )
    if client is None:
        return Predictor(_cluster_row(result, index(cluster)))  # type: ignore[arg-type]
    return _predictor_of_client(result, client_position(result, client))


def client_position(result: ResultModels, client: str | int) -> int:
    """Return the position of a client.

    Args:
        result: The result.
        client: Its name, or its position.

    Raises:
        InputError: If there is no such client; the message names the nearest.
    """
    if isinstance(client, str):
        if client not in result.client_ids:
            raise unknown("client", client, result.client_ids)
        return result.client_ids.index(client)
    position, count = index(client), len(result.client_ids)
    require(
        0 <= position < count,
        f"there is no client at position {position}: positions are 0 to {count - 1}; a name is a "
        f"string, such as {result.client_ids[0]!r}",
    )
    return position


def _predictor_of_client(result: ResultModels, client: int) -> Predictor:
    name = result.client_ids[client]
    require(
        result.personal is None or result.individual_models is not None,
        f"client {name!r} keeps a part of its model to itself, so that its model is not in the "
        "result: see 'receive' in docs/flower.md; cluster=0 is the common part",
    )
    tuned, steps = result.fine_tuned_models, result.fine_tuned_steps
    is_mixture = result.mixture_weights is not None
    if tuned is not None and not (is_mixture and steps is not None and steps[client] == 0):
        row = tuned[client]
    elif result.mixture_weights is not None:
        return Predictor(result.models, result.mixture_weights[client])
    elif result.individual_models is not None:
        row = result.individual_models[client]
    else:
        label = int(result.labels[client])
        row = result.models[label] if label >= 0 else result.models.new_full((1,), torch.nan)
    if bool(row.isnan().any()):
        raise InputError(
            f"client {name!r} is in no cluster and has no model: choose one of the "
            f"{len(result.models)} clusters, such as cluster=0"
        )
    return Predictor(row.unsqueeze(0))


def _cluster_row(result: ResultModels, cluster: int) -> Tensor:
    count = len(result.models)
    require(
        0 <= cluster < count,
        f"there is no cluster {cluster}: "
        + ("there is one, cluster 0" if count == 1 else f"clusters are 0 to {count - 1}"),
    )
    return result.models[cluster].unsqueeze(0)
