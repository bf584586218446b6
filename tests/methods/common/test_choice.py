"""Choices among models by a few samples."""

from __future__ import annotations

import numpy as np
import torch

from srfca.federation import Replies
from srfca.federation.replies import ClientScores
from srfca.methods._common.choice import Choice


def made(losses: list[list[float]], sizes: list[int]) -> Choice:
    choice = Choice(len(losses), len(sizes))
    for model, values in enumerate(losses):
        clients = np.flatnonzero(~np.isneginf(values))
        scores = ClientScores(torch.tensor(values), None, torch.tensor(sizes))
        choice.add(model, Replies(clients, scores[torch.as_tensor(clients)]))
    return choice


def test_few_samples_follow_all_clients_and_many_decide_themselves() -> None:
    losses = [[1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 1.2]]
    assert made(losses, [4, 4, 4, 4]).best().tolist() == [1, 1, 1, 1]
    assert made(losses, [4, 4, 4, 400]).best().tolist() == [1, 1, 1, 0]


def test_missing_and_infinite_losses() -> None:
    """A model without a finite loss is never chosen, and does not decide for others."""
    missing = -np.inf
    losses = [[1.0, 1.0, np.nan, missing], [0.9, np.inf, 5.0, missing]]
    assert made(losses, [4, 4, 4, 4]).best().tolist() == [1, 0, 1, -1]
