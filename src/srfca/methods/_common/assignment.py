"""The clusters of new clients: by losses where they have labels, else by their inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import InputError
from srfca.federation.moments import ClientLosses, unpack_outputs
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients
from srfca.federation.requests import OutputMoments, Split
from srfca.methods._common.input_statistics import InputStatistics, input_scores, place_by_inputs
from srfca.methods._common.loss_limits import LossLimits
from srfca.methods._common.placement import paired_confidence, place_by_losses, placement_request


@dataclass(frozen=True, eq=False)
class Assignment:
    """The clusters of new clients.

    Args:
        labels: ``[c]`` cluster of each, -1 if none fits or the client did not reply.
        losses: ``[c, k]`` loss of each cluster's model on each client's data; NaN if the client did
            not reply, or was placed without labels.
        scores: ``[c, k]`` how unlike a cluster's clients a newcomer is, in standard deviations;
            beyond 4.25 with labels, or 3 without, it does not belong to the cluster. NaN if the
            client did not reply, or the result has no limits.
        confidence: ``[c]`` how sure the nearest cluster is against the next one, from 0 to 1; NaN
            if the client did not reply.
    """

    labels: NDArray[np.int64]
    losses: Tensor
    scores: NDArray[np.float64]
    confidence: NDArray[np.float64]


def assign_by_losses(
    newcomers: Federation, clients: Clients, models: Tensor, limits: LossLimits | None
) -> Assignment:
    """Assign clients to the cluster whose model has the least loss on their data.

    Args:
        newcomers: A federation.
        clients: ``[c]`` which of its clients.
        models: ``[k, P]`` the clusters' models.
        limits: What the losses of each cluster's clients are like, or None for no limits.
    """
    replies = newcomers.ask(placement_request(clients, models, newcomers.splits, limits))
    reported = ClientLosses.unpack(replies.values.cpu())
    labels, scores = place_by_losses(reported, limits)
    confidence = paired_confidence(reported)
    return _assignment(replies.answered, labels, reported.mean, scores, confidence)


def assign_by_inputs(
    newcomers: Federation, clients: Clients, models: Tensor, statistics: InputStatistics | None
) -> Assignment:
    """Assign clients to the cluster whose clients have similar inputs, to its model.

    Args:
        newcomers: A federation, whose targets are not read.
        clients: ``[c]`` which of its clients.
        models: ``[k, P]`` the clusters' models.
        statistics: What the inputs of each cluster's clients look like.

    Raises:
        InputError: If there are no statistics.
    """
    if statistics is None:
        raise InputError(
            "the result has no statistics of its clients' inputs, which newcomers without "
            "labels are compared with: result = result.with_input_statistics(federation), with "
            "the federation that it was found in"
        )
    splits: tuple[Split, ...] = ("train", "validation")
    held = tuple(split for split in splits if split in newcomers.splits)
    replies = newcomers.ask(OutputMoments(clients, models, held))
    scores = input_scores(statistics, unpack_outputs(replies.values.cpu()))
    labels, confidence = place_by_inputs(scores, statistics.alike.numpy())
    losses = torch.full(scores.shape, torch.nan, dtype=torch.float64)
    return _assignment(replies.answered, labels, losses, scores, confidence)


def _assignment(
    answered: NDArray[np.bool_],
    labels: NDArray[np.int64],
    losses: Tensor,
    scores: NDArray[np.float64],
    confidence: NDArray[np.float64],
) -> Assignment:
    """Return an assignment from what is known of the clients that answered."""
    every_label = np.full(len(answered), -1, dtype=np.int64)
    every_label[answered] = labels

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        every = np.full((len(answered), *values.shape[1:]), np.nan)
        every[answered] = values
        return every

    every_loss = torch.from_numpy(spread(losses.double().numpy()))
    return Assignment(every_label, every_loss, spread(scores), spread(confidence))
