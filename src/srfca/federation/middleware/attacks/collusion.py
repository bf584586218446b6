"""Attacks of clients that know what honest clients send, and act together."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from srfca.federation.middleware.attacks.base import Attack, Updates
from srfca.federation.middleware.attacks.updates import SignFlip
from srfca.parameters import check_parameters, constrained


@dataclass(frozen=True)
class LittleIsEnough(Attack):
    """Send the mean of honest changes, moved within their spread in every coordinate (ALIE).

    Baruch et al.: A Little Is Enough: Circumventing Defenses For Distributed Learning.
    NeurIPS 2019.

    Args:
        deviations: How far, in standard deviations of the coordinate.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> LittleIsEnough(deviations=1.5).changes(updates)
        tensor([[0.5000, 1.0000]])
    """

    deviations: float = constrained(1.5, more_than=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return updates.from_peers(
            lambda peers: peers.mean(0) - self.deviations * peers.std(0, correction=0)
        )


@dataclass(frozen=True)
class InnerProduct(Attack):
    """Send a multiple of the opposite of the mean honest change (IPM).

    Xie et al.: Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation.
    UAI 2019.

    Args:
        factor: The multiple. A small one hides among honest changes.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> InnerProduct(factor=0.5).changes(updates)
        tensor([[-1.0000, -0.5000]])
    """

    factor: float = constrained(0.5, more_than=0)

    def __post_init__(self) -> None:
        check_parameters(self)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return updates.from_peers(lambda peers: -self.factor * peers.mean(0))


@dataclass(frozen=True)
class Mimic(Attack):
    """Send what the first honest client of the group sends, so that it counts too much.

    Karimireddy et al.: Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing.
    ICLR 2022.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> Mimic().changes(updates)
        tensor([[1., 1.]])
    """

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        return updates.from_peers(lambda peers: peers[0])


@dataclass(frozen=True)
class Sybils(Attack):
    """One client under many names: all attackers of a group send what the first of them sends.

    Fung et al.: The Limitations of Federated Learning in Sybil Settings. RAID 2020.

    Args:
        attack: What the first one does.

    Examples:
        >>> import torch
        >>> from srfca.federation.middleware.attacks import Updates
        >>> updates = Updates(
        ...     starts=torch.zeros(2, 2), changes=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        ...     groups=torch.tensor([0, 0]), peers=[torch.ones(3, 2)],
        ...     streams=torch.tensor([7, 8]), useless=torch.ones(2),
        ... )
        >>> Sybils(SignFlip()).changes(updates)
        tensor([[-1., -2.],
                [-1., -2.]])
    """

    attack: Attack = field(default_factory=SignFlip)

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes that attackers send: ``[a, P]``."""
        changes = self.attack.changes(updates)
        first = torch.stack([(updates.groups == group).int().argmax() for group in updates.groups])
        return changes[first]
