"""Label flip: attackers train honestly on wrong labels."""

from __future__ import annotations

from dataclasses import dataclass

from srfca.federation.middleware.attacks.base import Attack


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Train on labels that are turned around, and send what comes of it.

    The attack is in the data, and not in what is sent: the federation inside must hold the poisoned
    data already (``srfca.data.flip_labels``).

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.federation.middleware.attacks import Attacked
        >>> poisoned = data.flip_labels(data.rotated_digits(num_clients=4), [3])
        >>> federation = Attacked(Simulation(poisoned, models.linear(64, 10)), LabelFlip(), [3])
    """
