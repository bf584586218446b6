"""Label flip: attackers train honestly on wrong labels."""

from __future__ import annotations

from dataclasses import dataclass

from srfca.federation.middleware.attacks.base import Attack


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Train on labels that are turned around, and send what comes of it.

    The attack is in the data, and not in what is sent: the federation inside must hold the poisoned
    data already (``srfca.data.flip_labels``).
    """
