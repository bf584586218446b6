"""A federation without data, for tests of what surrounds a federation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from srfca.federation import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    ClientScores,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Replies,
    Request,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subspaces,
    Train,
)
from srfca.models import Architecture

WIDTH = 2


class Stub:
    """Three clients without data. What they train is another row every time.

    Args:
        missing: Clients that never reply, and the reason.
        answers_rounds: Whether it answers ``Round`` itself.
    """

    client_ids: Sequence[str] = ("a", "b", "c")
    sizes = torch.tensor([5, 6, 7])
    splits: Sequence[Split] = ("train", "validation")
    architecture: Architecture | None = None
    layers: Mapping[str, slice] = {"body": slice(0, 1), "head": slice(1, WIDTH)}

    def __init__(
        self, missing: Mapping[int, str] | None = None, answers_rounds: bool = False
    ) -> None:
        self.next_row = 100.0
        self.answers_rounds = answers_rounds
        self.missing = missing or {}
        self.requests: list[Request[Any]] = []

    def fingerprint(self) -> str:
        return "stub"

    def initial_model(self, seed: int) -> Tensor:
        return torch.full((WIDTH,), float(seed), dtype=torch.float64)

    def ask(self, request: Request[Any]) -> Replies[Any]:
        self.requests.append(request)
        lost = [client for client in request.clients.tolist() if client in self.missing]
        replies: Replies[Any] = Replies(request.clients, self._values(request))
        for client in dict.fromkeys(lost):
            replies = replies.without([client], self.missing[client])
        return replies

    def _values(self, request: Request[Any]) -> Tensor | ClientScores:
        count = len(request.clients)
        match request:
            case Train():
                rows = self._rows(count)
                return rows if request.sent is None else request.sent.take(rows)
            case Gradients():
                return self._rows(count)
            case Round(models=models):
                return self._rows(len(models))
            case ClassCounts():
                return torch.full((count, 3), 4)
            case Losses(models=models) | BalancedLosses(models=models):
                return torch.zeros(count, len(models))
            case LossMoments(models=models):
                return torch.ones(count, len(models), 5)
            case OutputMoments(models=models):
                return torch.ones(count, len(models), 3)
            case BootstrapLosses(models=models):
                return torch.ones(count, len(models), 3 + len(models))
            case DataMoments():
                return torch.ones(count, 2, 7, dtype=torch.float64)
            case Shares():
                return torch.ones(count, 1)
            case Scores():
                return ClientScores(torch.zeros(count), None, torch.ones(count))
            case Subspaces(rank=rank):
                return torch.zeros(count, 3, rank)
            case SharedSamples(size=size):
                return torch.zeros(count, size, 4, dtype=torch.float64)
            case Outputs(inputs=inputs):
                return torch.zeros(count, len(inputs), 3)
            case Collect():
                return torch.zeros(count, 1)
        raise AssertionError(request.name)

    def _rows(self, count: int) -> Tensor:
        self.next_row += count
        first = torch.arange(self.next_row - count, self.next_row, dtype=torch.float64)
        return torch.stack([first] * WIDTH, dim=1)
