"""A mixture of models as one module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from srfca.models.signature import mixed_outputs


class MixtureModule(nn.Module):
    """Predicts with a weighted mean of its models.

    If it averages probabilities, it returns their logarithms: softmax gives the probabilities, and
    cross entropy their loss, as for any other logits.

    Args:
        models: k modules.
        weights: ``[k]``, non-negative with sum 1.
        averages_probabilities: Average the models' probabilities; otherwise their outputs.

    Examples:
        >>> modules = [nn.Linear(1, 1, bias=False) for _ in range(2)]
        >>> for module, weight in zip(modules, (1.0, 3.0), strict=True):
        ...     _ = nn.init.constant_(module.weight, weight)
        >>> mixture = MixtureModule(modules, torch.tensor([0.5, 0.5]), averages_probabilities=False)
        >>> mixture(torch.ones(1, 1)).item()
        2.0
    """

    weights: Tensor

    def __init__(
        self, models: Sequence[nn.Module], weights: Tensor, averages_probabilities: bool
    ) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.averages_probabilities = averages_probabilities
        self.register_buffer("weights", weights.detach().cpu().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs ``[n, ...]`` to outputs ``[n, ...]``."""
        outputs = torch.stack([model(x) for model in self.models])
        log_weights = self.weights.log().view(-1, *[1] * (outputs.ndim - 1))
        return mixed_outputs(outputs, log_weights, self.averages_probabilities)
