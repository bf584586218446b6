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

DOUBTFUL = 0.8
"""A client of less confidence is called doubtful."""
COIN_TOSS = 0.65
"""A client of less confidence might as well be in the next cluster."""


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
        client_ids: The c clients.
    """

    labels: NDArray[np.int64]
    losses: Tensor
    scores: NDArray[np.float64]
    confidence: NDArray[np.float64]
    client_ids: tuple[str, ...]

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """``[c]`` which clients were placed, but might as well belong to the next cluster."""
        return np.asarray((self.labels >= 0) & (self.confidence < DOUBTFUL))

    @property
    def next_cluster(self) -> NDArray[np.int64]:
        """``[c]`` the best cluster but the nearest one, -1 if there is none or nothing is known."""
        losses = self.losses.double().numpy()
        apart = np.where(np.isnan(losses).all(1, keepdims=True), self.scores, losses)
        if apart.shape[1] < 2:
            return np.full(len(apart), -1)
        order = np.where(np.isfinite(apart), apart, np.inf).argsort(1, kind="stable")
        return np.where(np.isfinite(self.confidence), order[:, 1], -1)

    def sentences(self) -> list[str]:
        """Return for each client where it belongs, and how sure that is.

        >>> losses, scores = torch.tensor([[2.0, 1.0]]), np.zeros((1, 2))
        >>> assignment = Assignment(np.array([1]), losses, scores, np.array([0.56]), ("ann",))
        >>> assignment.sentences()
        ["'ann' is nearly a coin toss between cluster 1 and cluster 0 (confidence 56%)."]
        """
        return [self._sentence(client) for client in range(len(self.labels))]

    def _sentence(self, client: int) -> str:
        name, label = repr(self.client_ids[client]), int(self.labels[client])
        confidence, other = float(self.confidence[client]), int(self.next_cluster[client])
        if np.isnan(confidence):
            return f"{name} did not reply."
        if label < 0 and bool(self.losses[client].isnan().all()):
            return f"{name} cannot be placed by its inputs (confidence {confidence:.0%})."
        if label < 0:
            return f"{name} fits no cluster."
        if other < 0:
            return f"{name} belongs to cluster {label}."
        if confidence < COIN_TOSS:
            return (
                f"{name} is nearly a coin toss between cluster {label} and cluster {other} "
                f"(confidence {confidence:.0%})."
            )
        text = f"{name} belongs to cluster {label} (confidence {min(confidence, 0.99):.0%}"
        more = " or more" if confidence > 0.99 else ""
        doubt = f"; cluster {other} is possible" if confidence < DOUBTFUL else ""
        return f"{text}{more}{doubt})."


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
    names = _names(newcomers, clients)
    return _assignment(replies.answered, labels, reported.mean, scores, confidence, names)


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
    names = _names(newcomers, clients)
    return _assignment(replies.answered, labels, losses, scores, confidence, names)


def _names(newcomers: Federation, clients: Clients) -> tuple[str, ...]:
    return tuple(newcomers.client_ids[client] for client in clients.tolist())


def _assignment(
    answered: NDArray[np.bool_],
    labels: NDArray[np.int64],
    losses: Tensor,
    scores: NDArray[np.float64],
    confidence: NDArray[np.float64],
    client_ids: tuple[str, ...],
) -> Assignment:
    """Return an assignment from what is known of the clients that answered."""
    every_label = np.full(len(answered), -1, dtype=np.int64)
    every_label[answered] = labels

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        every = np.full((len(answered), *values.shape[1:]), np.nan)
        every[answered] = values
        return every

    every_loss = torch.from_numpy(spread(losses.double().numpy()))
    return Assignment(every_label, every_loss, spread(scores), spread(confidence), client_ids)
