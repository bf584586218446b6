"""A model is a row: all the floating-point state of a module as one vector of length P."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layout:
    """Where each parameter and each floating-point buffer of a module lies in its row.

    >>> layout = Layout.of(nn.Linear(3, 2))
    >>> layout.length, layout.parameters
    (8, ('weight', 'bias'))
    >>> {name: tuple(t.shape) for name, t in layout.unstack(torch.zeros(5, 8)).items()}
    {'weight': (5, 2, 3), 'bias': (5, 2)}
    """

    shapes: Mapping[str, torch.Size]
    parameters: tuple[str, ...]
    """The entries that are trained: parameters that require a gradient."""
    dtype: torch.dtype

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a module."""
        state = _float_state(module)
        trained = (name for name, p in module.named_parameters() if p.requires_grad)
        dtype = next(iter(state.values())).dtype if state else torch.get_default_dtype()
        return cls({name: t.shape for name, t in state.items()}, tuple(trained), dtype)

    @property
    def length(self) -> int:
        """P, the number of entries of a row."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def layers(self) -> dict[str, slice]:
        """Where each layer lies in a row: those with trained parameters, in the module's order.

        >>> Layout.of(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))).layers
        {'0': slice(0, 8, None), '2': slice(8, 11, None)}
        """
        found: dict[str, slice] = {}
        at = 0
        for name, shape in self.shapes.items():
            end = at + prod(shape)
            if name in self.parameters:
                layer = name.rpartition(".")[0]
                found[layer] = slice(found[layer].start if layer in found else at, end)
            at = end
        return found

    def unstack(self, rows: Tensor) -> dict[str, Tensor]:
        """Rows ``[k, P]`` as one tensor ``[k, *shape]`` for each entry of the module."""
        parts = rows.split([prod(shape) for shape in self.shapes.values()], dim=1)
        return {
            name: part.reshape(len(rows), *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def stack(self, state: Mapping[str, Tensor]) -> Tensor:
        """The inverse of ``unstack``: ``[k, P]``."""
        return torch.cat(
            [state[name].detach().reshape(len(state[name]), -1) for name in self.shapes], dim=1
        )

    def row(self, module: nn.Module) -> Tensor:
        """The state of a module as a row: ``[P]``."""
        state = _float_state(module)
        return torch.cat([state[name].detach().flatten().to(self.dtype) for name in self.shapes])

    def load(self, row: Tensor, module: nn.Module) -> nn.Module:
        """Write a row ``[P]`` into a module of this layout, and return the module."""
        state = _float_state(module)
        with torch.no_grad():
            for name, value in self.unstack(row.unsqueeze(0)).items():
                state[name].copy_(value[0])
        return module


def make(model: nn.Module | Callable[[], nn.Module], seed: int) -> nn.Module:
    """A new module: made with this seed, or a copy of a module whose weights are given."""
    if isinstance(model, nn.Module):
        return deepcopy(model)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return deepcopy(model())  # it may return the same one every time


def _float_state(module: nn.Module) -> dict[str, Tensor]:
    entries = [*module.named_parameters(), *module.named_buffers()]
    return {name: t for name, t in entries if t.is_floating_point()}


def run_of(places: Tensor) -> slice | Tensor:
    """The same places as a slice, if they follow each other: that is a view, not a copy.

    >>> run_of(torch.tensor([2, 3, 4])), run_of(torch.tensor([2, 4]))
    (slice(2, 5, None), tensor([2, 4]))
    """
    first = int(places[0])
    following = torch.equal(places - first, torch.arange(len(places), device=places.device))
    return slice(first, first + len(places)) if following else places
