"""Which layers of the clusters' models differ most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class LayerDifference:
    """How much the clusters' models differ in one layer.

    Args:
        name: Name of the layer.
        difference: Root mean square distance of two clusters' parameters, divided by how far they
            have moved from the initial model.
    """

    name: str
    difference: float


def layer_differences(
    models: Tensor, initial_model: Tensor, layers: Mapping[str, slice]
) -> tuple[LayerDifference, ...]:
    """Return the layers, those first in which the models differ most.

    Args:
        models: ``[q, P]`` at least two clusters' models.
        initial_model: ``[P]`` what they were trained from.
        layers: Where each layer lies in a row.

    >>> import torch
    >>> models = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> layer_differences(models, torch.zeros(2), {"a": slice(0, 1), "b": slice(1, 2)})
    (LayerDifference(name='b', difference=2.0), LayerDifference(name='a', difference=0.0))
    """
    rows = models.detach().cpu().double().numpy()
    moved = rows - initial_model.detach().cpu().double().numpy()
    q = len(rows)
    differences = []
    for name, part in layers.items():
        deviation = rows[:, part] - rows[:, part].mean(0)
        between = 2 * (deviation**2).sum() / (q - 1)
        movement = (moved[:, part] ** 2).sum() / q
        ratio = float(np.sqrt(between / movement)) if movement else 0.0
        differences.append(LayerDifference(name, ratio))
    return tuple(sorted(differences, key=lambda layer: -layer.difference))
