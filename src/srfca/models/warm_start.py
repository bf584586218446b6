"""A warm start: a model whose initial values are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from srfca.models.rows import Layout, make_module


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A model that starts from a given row, whatever the seed.

    Unlike a module with these values, it keeps the name of what makes the module.

    Args:
        model: A callable that makes the module, or a module.
        row: ``[P]`` the initial values.

    Examples:
        >>> import torch
        >>> WarmStart(lambda: nn.Linear(2, 1), torch.tensor([1.0, 2.0, 3.0]))().bias
        Parameter containing:
        tensor([3.], requires_grad=True)
    """

    model: nn.Module | Callable[[], nn.Module]
    row: Tensor

    def __call__(self) -> nn.Module:
        """Return a new module with the initial values."""
        module = make_module(self.model, seed=0)
        return Layout.of(module).load(self.row, module)
