"""Losses of several models on the same samples, compared: what clients report of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from srfca.errors import require
from srfca.random import Key, integers, streams

MAX_LOSS = 1e100
"""What the loss of a sample counts as if it is larger, infinite or NaN."""


@dataclass(frozen=True, eq=False)
class ComparedLosses:
    """The reply to ``BootstrapLosses``, by name.

    Args:
        mean: ``[c, k]`` mean loss of each model on each client's samples.
        share: ``[c, k]`` fraction of the resamples in which the model has the least mean loss.
        num_samples: ``[c]``
        covariance: ``[c, k, k]`` of the models' losses over the samples; 0 for a single sample.
    """

    mean: Tensor
    share: Tensor
    num_samples: Tensor
    covariance: Tensor

    def pack(self) -> Tensor:
        """Return everything in one tensor: ``[c, k, 3 + k]``."""
        samples = self.num_samples.unsqueeze(1).expand_as(self.mean)
        first = torch.stack([self.mean, self.share, samples], dim=2)
        return torch.cat([first, self.covariance], dim=2)

    @classmethod
    def unpack(cls, values: Tensor) -> ComparedLosses:
        """Return what ``pack`` packed.

        Raises:
            InputError: If the tensor has another shape.
        """
        require(
            values.ndim == 3 and values.shape[1] >= 1 and values.shape[2] == values.shape[1] + 3,
            f"compared losses have no shape {tuple(values.shape)}",
        )
        return cls(values[..., 0], values[..., 1], values[:, 0, 2], values[..., 3:])


def bootstrap_streams(seed: int, words: Tensor) -> Tensor:
    """Return the random stream of each client, ``[c]``, from the words of their ids."""
    return streams(Key(seed, "bootstrap"), words)


def compare_losses(losses: Tensor, stream: Tensor, replicates: int) -> ComparedLosses:
    """Return what one client reports of the losses of its samples.

    Args:
        losses: ``[k, n]`` of each model on each sample.
        stream: The client's random stream, a single number.
        replicates: How often n samples are drawn with replacement.

    >>> stream = bootstrap_streams(0, torch.tensor([1]))[0]
    >>> compared = compare_losses(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), stream, 1000)
    >>> compared.mean.tolist(), compared.covariance[0].tolist()
    ([[2.0, 2.0]], [[2.0, 0.0], [0.0, 0.0]])
    >>> bool(0.7 < compared.share[0, 0] < 0.8)  # the first one on a tie
    True
    """
    losses = losses.double().nan_to_num(MAX_LOSS, MAX_LOSS).clamp(-MAX_LOSS, MAX_LOSS)
    k, n = losses.shape
    below = torch.tensor([n], device=losses.device)
    drawn = integers(stream.view(1), replicates * n, below).view(replicates, n)
    counts = torch.zeros(replicates, n, dtype=losses.dtype, device=losses.device)
    counts.scatter_add_(1, drawn, torch.ones_like(counts))
    best = (counts @ losses.T).argmin(1)
    share = torch.bincount(best, minlength=k).double() / replicates
    mean = losses.mean(1)
    deviation = losses - mean.unsqueeze(1)
    covariance = deviation @ deviation.T / max(n - 1, 1)
    samples = torch.tensor([float(n)], dtype=losses.dtype, device=losses.device)
    return ComparedLosses(mean[None], share[None], samples, covariance[None])
