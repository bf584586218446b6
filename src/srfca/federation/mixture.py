"""Mixtures of models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Mixture:
    """Models that clients share, and each client's weights of them.

    A client's mixture predicts the weighted mean of the models' probabilities if the loss is cross
    entropy, and of their outputs otherwise. The posterior of a model, given a sample, is
    proportional to ``weight * exp(-loss)``, divided by the model's share of the sample's class if
    class shares are given.

    Args:
        models: ``[k, P]``
        weights: ``[c, k]`` of each client: non-negative, with sum 1.
        class_shares: ``[k, g]`` how common the classes are among each model's samples: positive.
            The class of a sample is its label modulo g; targets that are not classes have g = 1.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> from srfca.federation import Scores
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> mixture = Mixture(torch.randn(2, 650), torch.full((4, 2), 0.5))
        >>> fed.ask(Scores(range(4), mixture)).values.loss.shape
        torch.Size([4])
    """

    models: Tensor
    weights: Tensor
    class_shares: Tensor | None = None

    def __len__(self) -> int:
        return len(self.weights)

    def select(self, index: NDArray[np.int64]) -> Mixture:
        """Return the mixtures of some of the clients.

        Args:
            index: ``[n]`` positions of clients among those of the weights.
        """
        at = torch.as_tensor(index, device=self.weights.device)
        return replace(self, weights=self.weights[at])
