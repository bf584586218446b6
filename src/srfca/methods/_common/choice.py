"""Each client's choice among several models, by a few samples of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from srfca.federation.replies import ClientScores, Replies

PRIOR_SAMPLES = 20
"""Further samples that each client is taken to have, with the losses of the average client."""


class Choice:
    """The losses of several models of each client, and the best one of each.

    A handful of held-out samples says little about which model is better for a client, but those of
    all clients together say which one is better on average. So each client is taken to have
    ``PRIOR_SAMPLES`` more, with the mean losses of all clients. Where a client has many samples,
    its own decide.

    Args:
        num_models: g, the models of each client.
        num_clients: m

    >>> import torch
    >>> choice = Choice(num_models=2, num_clients=3)
    >>> for model, losses in enumerate([[1.0, 1.0, 1.0], [0.9, 1.1, 0.2]]):
    ...     scores = ClientScores(torch.tensor(losses), None, torch.tensor([4, 4, 4]))
    ...     choice.add(model, Replies(np.arange(3), scores))
    >>> choice.best().tolist()  # client 1 alone would choose the first
    [1, 1, 1]
    """

    def __init__(self, num_models: int, num_clients: int) -> None:
        self._losses = np.full((num_models, num_clients), np.inf)
        self._sizes = np.zeros(num_clients)

    def add(self, model: int, replies: Replies[ClientScores]) -> None:
        """Add the losses of one model of each client that replied."""
        losses = replies.values.loss.cpu().double().numpy()
        self._losses[model, replies.clients] = np.where(np.isfinite(losses), losses, np.inf)
        self._sizes[replies.clients] = replies.values.num_samples.cpu().numpy()

    def best(self) -> NDArray[np.int64]:
        """Return the model of least loss of each client, the first on a tie: ``[m]``.

        It is -1 for clients that scored none of their models.
        """
        losses = self._losses
        scored = np.isfinite(losses)
        complete = scored.all(0)
        means = losses[:, complete].mean(1) if complete.any() else np.zeros(len(losses))
        own = self._sizes * np.where(scored, losses, 0.0)
        steadied = np.where(scored, own + PRIOR_SAMPLES * means[:, None], np.inf)
        return np.where(scored.any(0), steadied.argmin(0), -1)
