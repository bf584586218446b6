"""Which samples clients take in each step: drawn beforehand, alike whoever else is planned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from srfca.data.clients import Samples
from srfca.federation.base import Work
from srfca.random import Key, batches, bits, integers, streams


@dataclass(frozen=True)
class Plan:
    """What clients take in each of their steps, drawn beforehand."""

    index: Tensor
    """``[steps, c, b]`` places of samples."""
    weights: Tensor
    """``[steps, c, b]`` of each sample in its client's loss."""
    changes: Tensor
    """``[steps, c]`` random streams of the augmentation."""
    rates: Tensor
    """``[steps]``"""

    def block(self, clients: slice, width: int) -> Plan:
        """Some of the clients, and as many samples as the widest of them takes."""
        return Plan(
            self.index[:, clients, :width],
            self.weights[:, clients, :width],
            self.changes[:, clients],
            self.rates,
        )


@dataclass(frozen=True)
class Planner:
    """Draws plans for the clients of a federation."""

    samples: Samples
    words: Tensor
    """``[m]`` of the clients' ids: what their randomness starts from."""
    dtype: torch.dtype
    """Of the weights."""

    def plan(self, who: Tensor, batch: Tensor, work: Work, key: Key) -> Plan:
        """A round of clients ``who``, each of whom takes ``batch`` samples in a step: ``[c]``."""
        words, sizes, device = self.words[who], self.samples.sizes[who], self.words.device
        span, widest = work.span(key.round), int(batch.max())
        index = batches(streams(key, words), sizes, widest, len(span))  # [c, steps, b]
        if work.resample:
            boot = streams(Key(key.seed, f"{key.purpose}/resample"), words)
            drawn = integers(boot, int(sizes.max()), sizes)
            index = drawn.gather(1, index.flatten(1)).view(index.shape)
        inside = torch.arange(widest, device=device) < batch.unsqueeze(-1)
        share = inside.to(self.dtype) / batch.unsqueeze(-1)
        change = streams(Key(key.seed, f"{key.purpose}/augment", key.round), words)
        return Plan(
            (index + self.samples.offsets[who].view(-1, 1, 1)).transpose(0, 1),
            share.expand(len(span), -1, -1),
            bits(change, len(span)).T,
            torch.tensor(
                [work.rate(step) for step in span],
                dtype=torch.float64 if device.type == "cpu" else torch.float32,
                device=device,
            ),
        )


class Take(NamedTuple):
    """What clients take in one step."""

    at: Tensor
    """``[c b]`` places of samples."""
    y: Tensor
    """``[c, b, ...]``"""
    weights: Tensor
    """``[c, b]``"""
    changes: Tensor
    """``[c]``"""
    rate: float | Tensor


class Takes(Protocol):
    """A plan step by step."""

    def load(self, plan: Plan) -> None:
        """Begin a plan."""

    def next(self) -> Take:
        """What is planned for the next step."""


class Listed:
    """All steps are made ready when a plan begins: on a CPU a small operation costs its call."""

    def __init__(self, y: Tensor) -> None:
        self._y = y
        self._left: Iterator[Take] = iter(())

    def load(self, plan: Plan) -> None:
        """Begin a plan."""
        parts = plan.index.flatten(1), self._y[plan.index], plan.weights, plan.changes
        self._left = map(Take, *parts, plan.rates.tolist())

    def next(self) -> Take:
        """What is planned for the next step."""
        return next(self._left)


class Replayed:
    """In buffers that stay where they are, and the GPU counts the steps: one can be replayed."""

    def __init__(self, y: Tensor, plan: Plan) -> None:
        self._y = y
        self._plan = Plan(*(t.new_zeros(t.shape) for t in _tensors(plan)))
        self._done = torch.zeros(1, dtype=torch.int64, device=y.device)

    def load(self, plan: Plan) -> None:
        """Begin a plan."""
        for mine, theirs in zip(_tensors(self._plan), _tensors(plan), strict=True):
            mine.copy_(theirs)
        self._done.zero_()

    def next(self) -> Take:
        """What is planned for the next step."""
        index, weights, changes, rate = (
            planned.index_select(0, self._done).squeeze(0) for planned in _tensors(self._plan)
        )
        self._done += 1
        at = index.flatten()
        y = self._y.index_select(0, at).view(*index.shape, *self._y.shape[1:])
        return Take(at, y, weights, changes, rate)


def _tensors(plan: Plan) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return plan.index, plan.weights, plan.changes, plan.rates
