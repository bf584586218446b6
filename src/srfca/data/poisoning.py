"""Poisoned data: what a label-flip attack does to the clients' samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from srfca.data.client_data import ClientData
from srfca.errors import require


def flip_labels(data: ClientData, clients: Sequence[int] | NDArray[np.int64]) -> ClientData:
    """Rename class c of C to ``C - 1 - c`` in the training data of some clients.

    What they hold out for validation comes from their training data, and is poisoned too; test data
    are not.

    Args:
        data: Data of all clients.
        clients: Positions of those whose labels are flipped.

    Returns:
        The same clients, with the renamed labels.

    Raises:
        InputError: If targets are no classes.

    Examples:
        >>> data = ClientData.from_arrays([(np.zeros((3, 1)), np.array([0, 1, 2]))] * 2)
        >>> flip_labels(data, [1]).train.y.tolist()
        [0, 1, 2, 2, 1, 0]
    """
    y = data.train.y
    require(
        y.ndim == 1 and not y.is_floating_point(),
        "flipping labels needs targets that are classes, one for each sample, not targets of type "
        f"{y.dtype} and shape {tuple(y.shape[1:])}",
    )
    corrupt = torch.zeros(len(data.client_ids), dtype=torch.bool)
    corrupt[torch.as_tensor(clients)] = True
    flipped = torch.where(corrupt.repeat_interleave(data.train.sizes), y.max() - y, y)
    return replace(data, train=replace(data.train, y=flipped))
