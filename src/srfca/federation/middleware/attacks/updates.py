"""Attacks on models: each attacker changes what it would honestly send."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from srfca.federation.middleware.attacks.base import Attack, Updates, lengths
from srfca.parameters import check_parameters, constrained
from srfca.random import uniform


@dataclass(frozen=True)
class SignFlip(Attack):
    """Send the opposite of the change: ascent instead of descent.

    Args:
        factor: How many times the change, in the opposite direction.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> SignFlip().changes(updates)
        tensor([[-1.,  2.]])
    """

    factor: float = constrained(1.0, more_than=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return -self.factor * updates.changes


@dataclass(frozen=True)
class Scaling(Attack):
    """Send many times the change, to outvote the others in a mean.

    Args:
        factor: How many times.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> Scaling(factor=10).changes(updates)
        tensor([[ 10., -20.]])
    """

    factor: float = constrained(10.0, more_than=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return self.factor * updates.changes


@dataclass(frozen=True)
class GaussianNoise(Attack):
    """Send noise instead of the change.

    Args:
        scale: Its standard deviation, in root mean squares of the honest change.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> GaussianNoise().changes(updates).shape
        torch.Size([1, 2])
    """

    scale: float = constrained(3.0, more_than=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        noise = torch.stack([_normal(s, updates.changes.shape[1]) for s in updates.streams])
        return self.scale * lengths(updates.changes) * noise.to(updates.changes)


@dataclass(frozen=True)
class ModelReplacement(Attack):
    """Send a useless model, so far away that a mean would become that model.

    Bagdasaryan et al.: How To Backdoor Federated Learning. AISTATS 2020.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> ModelReplacement().changes(updates)
        tensor([[3., 3.]])
    """

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        attackers = torch.bincount(updates.groups, minlength=len(updates.peers)).cpu()
        peers = torch.tensor([len(rows) for rows in updates.peers])
        boosts = (1 + peers / attackers.clamp(min=1)).to(updates.changes)[updates.groups]
        return boosts.unsqueeze(1) * (updates.useless - updates.starts)


@dataclass(frozen=True)
class NotFinite(Attack):
    """Send NaN.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> NotFinite().changes(updates)
        tensor([[nan, nan]])
    """

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return torch.full_like(updates.changes, torch.nan)


def _normal(stream: Tensor, count: int) -> Tensor:
    """Draw standard normal numbers ``[count]`` from a stream (Box and Muller)."""
    half = (count + 1) // 2
    radius, angle = uniform(stream.cpu(), 2 * max(half, 1)).split(max(half, 1))
    radius = (-2 * torch.log1p(-radius)).sqrt()
    return torch.cat([radius * (2 * pi * angle).cos(), radius * (2 * pi * angle).sin()])[:count]
