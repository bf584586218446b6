"""A model is a row: everything that is trained of a module, as one vector of length P.

The row holds what is trained. A parameter with ``requires_grad=False`` is frozen: it is not in the
row. A buffer follows the parameters around it: take the module that registers it, then the modules
that contain that one, up to the first with any parameters; if all of those are frozen, so is the
buffer. The running statistics of a trained BatchNorm are thus in the row, also with
``affine=False`` inside a trained network, and those of a frozen backbone are not. The frozen part
is held once and never sent; ``frozen_digest`` tells whether two modules agree on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from math import prod

import torch
from torch import Tensor, nn

from srfca.errors import require

_UNUSED_COUNTER = "num_batches_tracked"
"""A buffer that BatchNorm does not read in evaluation mode, which a frozen one is always in."""


@dataclass(frozen=True)
class Layout:
    """Where each trained parameter and each floating-point buffer of a module lies in its row.

    Parameters come first, in the order of the module, then buffers. A tensor that several modules
    share has one entry.

    Args:
        shapes: The entries of the row, in order, by name.
        parameters: The entries that are parameters; the others are buffers.
        dtype: Data type of the row.

    Examples:
        >>> layout = Layout.of(nn.Linear(3, 2))
        >>> layout.length, layout.parameters
        (8, ('weight', 'bias'))
        >>> {name: tuple(t.shape) for name, t in layout.unstack(torch.zeros(5, 8)).items()}
        {'weight': (5, 2, 3), 'bias': (5, 2)}
    """

    shapes: Mapping[str, torch.Size]
    parameters: tuple[str, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """Return the layout of a module.

        Args:
            module: The module.
        """
        state = _row_state(module)
        trained = (name for name, p in module.named_parameters() if p.requires_grad)
        dtype = next(iter(state.values())).dtype if state else torch.get_default_dtype()
        return cls({name: t.shape for name, t in state.items()}, tuple(trained), dtype)

    @property
    def length(self) -> int:
        """P, the number of coordinates of a row."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def layers(self) -> dict[str, slice]:
        """Where each layer with trained parameters lies in a row, in the order of the module.

        >>> Layout.of(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))).layers
        {'0': slice(0, 8, None), '2': slice(8, 11, None)}
        """
        layers: dict[str, slice] = {}
        start = 0
        for name, shape in self.shapes.items():
            end = start + prod(shape)
            if name in self.parameters:
                layer = name.rpartition(".")[0]
                layers[layer] = slice(layers[layer].start if layer in layers else start, end)
            start = end
        return layers

    def unstack(self, rows: Tensor) -> dict[str, Tensor]:
        """Split rows ``[k, P]`` into one tensor ``[k, *shape]`` per entry.

        Args:
            rows: ``[k, P]``

        Returns:
            ``[k, *shape]`` by name; views of the rows.
        """
        parts = rows.split([prod(shape) for shape in self.shapes.values()], dim=1)
        return {
            name: part.reshape(len(rows), *shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }

    def stack(self, state: Mapping[str, Tensor]) -> Tensor:
        """Join one tensor ``[k, *shape]`` per entry into rows ``[k, P]``, inverting ``unstack``.

        Args:
            state: ``[k, *shape]`` by name.

        Returns:
            ``[k, P]``
        """
        return torch.cat(
            [state[name].detach().reshape(len(state[name]), -1) for name in self.shapes], dim=1
        )

    def row(self, module: nn.Module) -> Tensor:
        """Return the row ``[P]`` of a module of this layout.

        Args:
            module: Module of this layout.

        Returns:
            ``[P]``
        """
        state = _row_state(module)
        parts = [state[name].detach().flatten().to(self.dtype) for name in self.shapes]
        return torch.cat(parts) if parts else torch.empty(0, dtype=self.dtype)

    def load(self, row: Tensor, module: nn.Module) -> nn.Module:
        """Write a row ``[P]`` into a module of this layout, and return the module.

        The frozen part of the module does not change.

        Args:
            row: ``[P]``
            module: It is changed.

        Returns:
            The same module.
        """
        state = _row_state(module)
        with torch.no_grad():
            for name, value in self.unstack(row.unsqueeze(0)).items():
                state[name].copy_(value[0])
        return module


def make_module(model: nn.Module | Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a new module, which shares no tensor with any other.

    Args:
        model: A callable that returns a module, called with torch's generator seeded; or a module,
            which is copied.
        seed: The seed.

    Raises:
        InputError: If it is neither.
    """
    if isinstance(model, nn.Module):
        return deepcopy(model)
    require(callable(model), f"model must be a module, or a function that returns one: {model!r}")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = model()
    require(isinstance(made, nn.Module), f"model must return a module, not {made!r}")
    return deepcopy(made)  # the callable may return the same module every time


def frozen_names(module: nn.Module) -> tuple[str, ...]:
    """Return the names of a module's frozen tensors, parameters first, then buffers.

    Counters of batches in a BatchNorm are not listed: a frozen BatchNorm does not read them.

    Args:
        module: The module.

    Returns:
        Names, as in ``state_dict``.

    Examples:
        >>> module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
        >>> frozen_names(module)
        ()
        >>> _ = module[:2].requires_grad_(False)
        >>> frozen_names(module)
        ('0.weight', '0.bias', '1.weight', '1.bias', '1.running_mean', '1.running_var')
    """
    return tuple(_frozen_state(module))


def frozen_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen tensors of a module by name: one copy serves all clients."""
    return _frozen_state(module)


def frozen_digest(module: nn.Module) -> str:
    """Return a digest of a module's frozen tensors: their names, types, shapes and values.

    Rows are only exchangeable between modules with equal digests.

    Args:
        module: The module.

    Returns:
        64 hexadecimal digits; the empty string if nothing is frozen.

    Examples:
        >>> frozen_digest(nn.Linear(3, 2))
        ''
    """
    state = _frozen_state(module)
    if not state:
        return ""
    digest = sha256()
    for name, tensor in state.items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous()
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def set_training(module: nn.Module) -> nn.Module:
    """Switch a module to training mode, except where it has frozen buffers; return the module.

    ``module.train()`` alone would let a frozen BatchNorm update its running statistics. These are
    not in the row: all clients share them, so each client's result would depend on which clients
    were trained before. Submodules that register a frozen buffer, and what they contain, therefore
    stay in evaluation mode, as is usual for a frozen backbone. Other modules without parameters,
    such as dropout, are switched to training mode.

    Args:
        module: It is changed.

    Returns:
        The same module.

    Examples:
        >>> module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
        >>> module[1].requires_grad_(False) is module[1]
        True
        >>> [layer.training for layer in set_training(module)]
        [True, False, True]
    """
    module.train()
    frozen = _frozen_buffers(module)
    for part in module.modules():
        if any(id(buffer) in frozen for buffer in part.buffers(recurse=False)):
            part.eval()
    return module


def as_slice(indices: Tensor) -> slice | Tensor:
    """Return consecutive indices as a slice, which makes a view and not a copy.

    Examples:
        >>> as_slice(torch.tensor([2, 3, 4])), as_slice(torch.tensor([2, 4]))
        (slice(2, 5, None), tensor([2, 4]))
    """
    first = int(indices[0])
    offsets = torch.arange(len(indices), device=indices.device)
    is_consecutive = torch.equal(indices - first, offsets)
    return slice(first, first + len(indices)) if is_consecutive else indices


def _row_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module that are in its row, by name."""
    trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    frozen = _frozen_buffers(module)
    buffers = [(name, b) for name, b in module.named_buffers() if id(b) not in frozen]
    return {name: t for name, t in [*trained, *buffers] if t.is_floating_point()}


def _frozen_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the frozen tensors of a module by name, of any type."""
    parameters = {name: p for name, p in module.named_parameters() if not p.requires_grad}
    frozen = _frozen_buffers(module)
    return parameters | {
        name: b
        for name, b in module.named_buffers()
        if id(b) in frozen and name.rpartition(".")[2] != _UNUSED_COUNTER
    }


def _frozen_buffers(module: nn.Module) -> set[int]:
    """Return the ids of the frozen buffers; one that a trained module shares is not frozen."""
    by_frozen: dict[bool, set[int]] = {False: set(), True: set()}
    for part, is_frozen in _parts(module, False):
        by_frozen[is_frozen].update(map(id, part.buffers(recurse=False)))
    return by_frozen[True] - by_frozen[False]


def _parts(module: nn.Module, inherited: bool) -> Iterator[tuple[nn.Module, bool]]:
    """Yield a module and all modules in it, each with whether its buffers are frozen.

    A module without parameters in its subtree inherits this from the module that contains it.
    """
    flags = [p.requires_grad for p in module.parameters()]
    is_frozen = not any(flags) if flags else inherited
    yield module, is_frozen
    for child in module.children():
        yield from _parts(child, is_frozen)
