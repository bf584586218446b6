"""What an attack is: how corrupt clients change what they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from srfca.federation.replies import ClientScores
from srfca.federation.requests import Split


@dataclass(frozen=True, eq=False)
class Updates:
    """What attackers know when they answer a request for models or gradients.

    Attackers are omniscient: they see what the honest clients of their group send. ``a`` is the
    number of their entries, P the length of what is sent. With gradients a start is zero.

    Args:
        starts: ``[a, P]`` the models that attackers were sent.
        changes: ``[a, P]`` what attackers would honestly send, less their starts.
        groups: ``[a]`` the group of each attacker, from 0.
        peers: ``[p, P]`` the changes of honest clients, for each group.
        streams: ``[a]`` of random numbers, one per entry.
        useless: ``[P]`` a model that was never trained.

    Examples:
        >>> import torch
        >>> updates = Updates(
        ...     starts=torch.zeros(1, 2), changes=torch.tensor([[1.0, -2.0]]),
        ...     groups=torch.tensor([0]), peers=[torch.tensor([[1.0, 1.0], [3.0, 1.0]])],
        ...     streams=torch.tensor([7]), useless=torch.ones(2),
        ... )
        >>> updates.from_peers(lambda peers: peers.mean(0))
        tensor([[2., 1.]])
    """

    starts: Tensor
    changes: Tensor
    groups: Tensor
    peers: Sequence[Tensor]
    streams: Tensor
    useless: Tensor

    def from_peers(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what a function makes of each attacker's peers: ``[a, P]``.

        An attacker without peers keeps its change.

        Args:
            function: From the changes of peers ``[p, P]`` to one ``[P]``.
        """
        changes = self.changes.clone()
        for group, peers in enumerate(self.peers):
            if len(peers):
                changes[self.groups == group] = function(peers)
        return changes


@dataclass(frozen=True)
class Attack:
    """How corrupt clients behave. What a subclass does not override is honest.

    An attack is a small frozen dataclass. ``Attacked`` puts it around a federation.

    Examples:
        An attack of your own:

        >>> import torch
        >>> from srfca import Simulation, data, models
        >>> from srfca.federation import Gradients
        >>> from srfca.federation.middleware.attacks import Attacked
        >>> @dataclass(frozen=True)
        ... class FreeRider(Attack):
        ...     def changes(self, updates):
        ...         return torch.zeros_like(updates.changes)
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> request = Gradients(range(4), fed.initial_model(0).repeat(4, 1))
        >>> Attacked(fed, FreeRider(), [3]).ask(request).values.abs().sum(1).bool().tolist()
        [True, True, True, False]
    """

    def changes(self, updates: Updates) -> Tensor:
        """Return the changes of models that attackers send, or the gradients: ``[a, P]``."""
        return updates.changes

    def losses(self, losses: Tensor) -> Tensor:
        """Return the losses ``[a, k]`` that attackers report, given the true ones."""
        return losses

    def scores(self, scores: ClientScores) -> ClientScores:
        """Return the scores ``[a]`` that attackers report, given the true ones."""
        return scores

    def lies_about(self, splits: Sequence[Split]) -> bool:
        """Return whether attackers lie about losses and scores on this data."""
        return True

    def sizes(self, sizes: Tensor) -> Tensor:
        """Return the numbers of samples ``[a]`` that attackers report, given the true ones."""
        return sizes


def lengths(rows: Tensor) -> Tensor:
    """Return the root mean square of each row ``[n, P]``: ``[n, 1]``."""
    mean_squares: Tensor = rows.square().mean(1, keepdim=True)
    return mean_squares.sqrt()
