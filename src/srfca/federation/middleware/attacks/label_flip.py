"""Label flip: attackers train honestly on wrong labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from srfca.data import ClientData
from srfca.errors import require
from srfca.federation.middleware.attacks.base import Attack
from srfca.federation.replies import Clients


@dataclass(frozen=True)
class LabelFlip(Attack):
    """Rename class c of C to ``C - 1 - c`` in the attackers' training data.

    It concerns the data, and not what is sent, so that a simulation has to be made of the poisoned
    data. What attackers hold out for validation comes from their training data, and is poisoned
    too; test data are not.
    """

    def poison(self, data: ClientData, attackers: Clients) -> ClientData:
        """Return the data with the training labels of attackers ``[a]`` turned around.

        Raises:
            InputError: If targets are no classes.
        """
        y = data.train.y
        require(
            y.ndim == 1 and not y.is_floating_point(),
            "label-flip needs targets that are classes, one for each sample, not targets of type "
            f"{y.dtype} and shape {tuple(y.shape[1:])}",
        )
        corrupt = torch.zeros(len(data.client_ids), dtype=torch.bool)
        corrupt[torch.as_tensor(attackers)] = True
        flipped = torch.where(corrupt.repeat_interleave(data.train.sizes), y.max() - y, y)
        return replace(data, train=replace(data.train, y=flipped))
