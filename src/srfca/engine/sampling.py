"""The batches of every client and step, drawn before training starts.

They depend on the client and the round alone, not on which clients are planned together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from srfca.data.client_data import Samples
from srfca.federation.local_training import LocalTraining
from srfca.random import Key, batches, bits, integers, streams


@dataclass(frozen=True)
class BatchPlan:
    """The batches of c clients in each of their steps.

    Args:
        index: ``[steps, c, b]`` positions of samples.
        weights: ``[steps, c, b]`` weight of each sample in its client's loss.
        augment_streams: ``[steps, c]`` random streams of the augmentation.
        rates: ``[steps]`` learning rates.
    """

    index: Tensor
    weights: Tensor
    augment_streams: Tensor
    rates: Tensor

    def block(self, clients: slice, width: int) -> BatchPlan:
        """Return the plan of some clients, with at most ``width`` samples in a batch."""
        return BatchPlan(
            self.index[:, clients, :width],
            self.weights[:, clients, :width],
            self.augment_streams[:, clients],
            self.rates,
        )

    def steps(self, span: range) -> BatchPlan:
        """Return the plan of some consecutive steps."""
        if len(span) == len(self.rates):
            return self
        part = slice(span.start, span.stop)
        return BatchPlan(
            self.index[part], self.weights[part], self.augment_streams[part], self.rates[part]
        )


@dataclass(frozen=True)
class Sampler:
    """Draws batch plans.

    Args:
        samples: Training data of all clients.
        words: ``[m]`` hashes of the client ids, which every draw starts from.
        dtype: Data type of the sample weights.
    """

    samples: Samples
    words: Tensor
    dtype: torch.dtype

    def plan(
        self, clients: Tensor, batch_sizes: Tensor, local: LocalTraining, key: Key
    ) -> BatchPlan:
        """Draw the batches of a round.

        Args:
            clients: ``[c]``, on the CPU or the device.
            batch_sizes: ``[c]`` samples per step of each client; on the CPU, nothing waits for a
                GPU here.
            local: How the clients train.
            key: The training and its round.
        """
        device, span, widest = self.words.device, local.span(key.round), int(batch_sizes.max())
        clients, batch_sizes = clients.to(device), batch_sizes.to(device)
        words, sizes = self.words[clients], self.samples.sizes[clients]
        index = batches(streams(key, words), sizes, widest, len(span))  # [c, steps, b]
        if local.resample:
            bootstrap = streams(Key(key.seed, f"{key.purpose}/resample"), words)
            drawn = integers(bootstrap, int(sizes.max()), sizes)
            index = drawn.gather(1, index.flatten(1)).view(index.shape)
        inside = torch.arange(widest, device=device) < batch_sizes.unsqueeze(-1)
        weight = inside.to(self.dtype) / batch_sizes.unsqueeze(-1)
        augment = streams(Key(key.seed, f"{key.purpose}/augment", key.round), words)
        return BatchPlan(
            (index + self.samples.offsets[clients].view(-1, 1, 1)).transpose(0, 1),
            weight.expand(len(span), -1, -1),
            bits(augment, len(span)).T,
            torch.tensor(
                [local.rate(step) for step in span],
                dtype=torch.float64 if device.type == "cpu" else torch.float32,
                device=device,
            ),
        )


class StepBatch(NamedTuple):
    """The batches of c clients in one step."""

    positions: Tensor
    """``[c b]`` of the samples."""
    y: Tensor
    """``[c, b, ...]``"""
    weights: Tensor
    """``[c, b]``"""
    augment_streams: Tensor
    """``[c]``"""
    rate: float | Tensor


class BatchFeed(Protocol):
    """Hands out a plan step by step."""

    def load(self, plan: BatchPlan) -> None:
        """Start with a plan."""

    def next(self) -> StepBatch:
        """Return the batches of the next step."""


class ListedBatches:
    """Slices all steps when a plan is loaded: on a CPU a small operation costs its call."""

    def __init__(self, y: Tensor) -> None:
        self._y = y
        self._remaining: Iterator[StepBatch] = iter(())

    def load(self, plan: BatchPlan) -> None:
        """Start with a plan."""
        parts = plan.index.flatten(1), self._y[plan.index], plan.weights, plan.augment_streams
        self._remaining = map(StepBatch, *parts, plan.rates.tolist())

    def next(self) -> StepBatch:
        """Return the batches of the next step."""
        return next(self._remaining)


class ReplayedBatches:
    """Keeps the plan in fixed buffers with a step counter on the GPU, for CUDA graph replay."""

    def __init__(self, y: Tensor, plan: BatchPlan) -> None:
        self._y = y
        self._plan = BatchPlan(*(t.new_zeros(t.shape) for t in _tensors(plan)))
        self._step = torch.zeros(1, dtype=torch.int64, device=y.device)

    def load(self, plan: BatchPlan) -> None:
        """Start with a plan."""
        for buffer, values in zip(_tensors(self._plan), _tensors(plan), strict=True):
            buffer.copy_(values)
        self._step.zero_()

    def next(self) -> StepBatch:
        """Return the batches of the next step."""
        index, weights, augment_streams, rate = (
            buffer.index_select(0, self._step).squeeze(0) for buffer in _tensors(self._plan)
        )
        self._step += 1
        flat = index.flatten()
        y = self._y.index_select(0, flat).view(*index.shape, *self._y.shape[1:])
        return StepBatch(flat, y, weights, augment_streams, rate)


def _tensors(plan: BatchPlan) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return plan.index, plan.weights, plan.augment_streams, plan.rates
