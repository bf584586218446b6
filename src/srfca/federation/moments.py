"""Moments of samples by group: what clients report instead of values of single samples."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor

from srfca.errors import require

SHARPNESS = 3.0
"""A loss of ``scale / SHARPNESS`` is where ``compress`` turns from linear to logarithmic."""
MAX_COMPRESSED = 50.0
"""The compressed loss of a sample whose loss is infinite or NaN."""


def compress(losses: Tensor, scales: Tensor) -> Tensor:
    """Return ``asinh(3 loss / scale)``: linear in small losses, logarithmic in large ones.

    Losses of single samples have long tails. Their means say little; those of compressed losses do.

    Args:
        losses: ``[k, n]``
        scales: ``[k]`` a typical loss of each model.

    >>> compress(torch.tensor([[0.0, 1.0, 100.0]]), torch.tensor([1.0]))
    tensor([[0.0000, 1.8184, 6.3969]])
    """
    values = torch.asinh(SHARPNESS * losses / scales.to(losses).unsqueeze(1))
    return values.nan_to_num(nan=MAX_COMPRESSED).clamp(-MAX_COMPRESSED, MAX_COMPRESSED)


@dataclass(frozen=True, eq=False)
class GroupMoments:
    """Moments of vectors of length d, one for each sample; samples are in g groups.

    Args:
        counts: ``[c, k, g]`` samples of each client, for each model, in each group.
        means: ``[c, k, g, d]`` mean of a group, 0 if it is empty.
        scatter: ``[c, k, d, d]`` sum over all samples of the products of their deviations from the
            mean of their group.
    """

    counts: Tensor
    means: Tensor
    scatter: Tensor

    def pack(self) -> Tensor:
        """Return all moments of a client and a model in one vector: ``[c, k, g + g d + d d]``."""
        return torch.cat([self.counts, self.means.flatten(2), self.scatter.flatten(2)], dim=2)

    @classmethod
    def unpack(cls, values: Tensor, groups: int, width: int) -> GroupMoments:
        """Return the moments of ``groups`` groups of vectors of length ``width``.

        >>> ones = torch.ones
        >>> values = GroupMoments(ones(2, 1, 3), ones(2, 1, 3, 2), ones(2, 1, 2, 2)).pack()
        >>> values.shape, GroupMoments.unpack(values, 3, 2).means.shape
        (torch.Size([2, 1, 13]), torch.Size([2, 1, 3, 2]))
        """
        counts, means, scatter = values.split([groups, groups * width, width * width], dim=2)
        shape = values.shape[:2]
        return cls(
            counts, means.reshape(*shape, groups, width), scatter.reshape(*shape, width, width)
        )


def group_moments(
    values: Tensor, owner: Tensor, groups: Tensor, num_clients: int, num_groups: int
) -> GroupMoments:
    """Return the moments of vectors by client and group.

    Args:
        values: ``[k, n, d]`` for each model and sample.
        owner: ``[n]`` the client of each sample.
        groups: ``[k, n]`` the group of each sample, for each model.
        num_clients: c
        num_groups: g
    """
    k, _, d = values.shape
    cells = owner * num_groups + groups
    ones = values.new_ones(cells.shape)
    counts = values.new_zeros(k, num_clients * num_groups).scatter_add_(1, cells, ones)
    index = cells.unsqueeze(2).expand_as(values)
    sums = values.new_zeros(k, num_clients * num_groups, d).scatter_add_(1, index, values)
    means = sums / counts.clamp(min=1).unsqueeze(2)
    deviations = values - means.gather(1, index)
    scatter = values.new_zeros(k, num_clients, d, d)
    per_pass = max(1, _PASS // (k * d * d))
    for part, clients in zip(deviations.split(per_pass, 1), owner.split(per_pass), strict=True):
        scatter.index_add_(1, clients, part.unsqueeze(3) * part.unsqueeze(2))
    return GroupMoments(
        counts.view(k, num_clients, num_groups).transpose(0, 1),
        means.view(k, num_clients, num_groups, d).transpose(0, 1),
        scatter.transpose(0, 1),
    )


_PASS = 2**22
"""Products that are held at once."""


@dataclass(frozen=True, eq=False)
class ClientLosses:
    """The reply to ``LossMoments``, by name.

    Args:
        mean: ``[c, k]`` mean loss.
        paired_variance: ``[c, k]`` variance over the client's samples of the difference between the
            loss of this model and that of the client's best one; 0 for a single sample.
        compressed: Moments of the compressed losses; samples are grouped by their label.
    """

    mean: Tensor
    paired_variance: Tensor
    compressed: GroupMoments

    def pack(self) -> Tensor:
        """Return everything in one tensor: ``[c, k, 3 + 2 g]``."""
        first = torch.stack([self.mean, self.paired_variance], dim=2)
        return torch.cat([first, self.compressed.pack()], dim=2)

    @classmethod
    def unpack(cls, values: Tensor) -> ClientLosses:
        """Return what ``pack`` packed.

        Raises:
            InputError: If the tensor has another shape.
        """
        groups, odd = divmod(values.shape[2] - 3, 2)
        require(groups >= 1 and not odd, f"moments of losses have no shape {tuple(values.shape)}")
        mean, variance, moments = values[..., 0], values[..., 1], values[..., 2:]
        return cls(mean, variance, GroupMoments.unpack(moments, groups, 1))


def client_losses(
    losses: Tensor,
    scales: Tensor,
    owner: Tensor,
    groups: Tensor,
    num_clients: int,
    num_groups: int,
) -> ClientLosses:
    """Return what clients report of the losses of their samples.

    Args:
        losses: ``[k, n]`` of each model on each sample, in double precision.
        scales: ``[k]`` a typical loss of each model.
        owner: ``[n]`` the client of each sample; every client has one.
        groups: ``[n]`` the group of each sample.
        num_clients: c
        num_groups: g
    """
    sizes = torch.bincount(owner, minlength=num_clients).to(losses)

    def sums(values: Tensor) -> Tensor:
        return values.new_zeros(len(values), num_clients).index_add_(1, owner, values)

    mean = _nan_to_inf(sums(losses) / sizes)
    best = mean.argmin(0)
    difference = losses - losses.gather(0, best[owner].unsqueeze(0))
    deviation = difference - (sums(difference) / sizes)[:, owner]
    variance = sums(deviation.square()) / (sizes - 1).clamp(min=1)
    compressed = compress(losses, scales).unsqueeze(2)
    groups = groups.expand(len(losses), -1)
    return ClientLosses(
        mean.T,
        _nan_to_inf(variance).T,
        group_moments(compressed, owner, groups, num_clients, num_groups),
    )


def _nan_to_inf(values: Tensor) -> Tensor:
    return values.masked_fill(values.isnan(), torch.inf)


def unpack_outputs(values: Tensor) -> GroupMoments:
    """Return the reply to ``OutputMoments``, ``[c, k, d + 2 d d]``, by name.

    Raises:
        InputError: If the tensor has another shape.

    >>> unpack_outputs(torch.zeros(5, 2, 21)).means.shape
    torch.Size([5, 2, 3, 3])
    """
    size = values.shape[2]
    width = (isqrt(1 + 8 * size) - 1) // 4
    require(
        size > 0 and width * (1 + 2 * width) == size,
        f"moments of outputs have no shape {tuple(values.shape)}",
    )
    return GroupMoments.unpack(values, width, width)
