"""What a row needs to become a module again, saved with a result: names, shapes, a factory.

A row has the trained values. The architecture has everything else: where each value belongs, the
tensors that are not in rows (a frozen backbone, counters), and the name of what makes the module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from srfca.errors import InputError, require
from srfca.models.factory import Factory, Model
from srfca.models.mixture_module import MixtureModule
from srfca.models.rows import Layout, frozen_names, make_module
from srfca.models.signature import Signature, dtype_name, dtype_named

Module = nn.Module
"""An ordinary PyTorch module."""
_PASS_MODEL = (
    "pass what makes it: Result.load(folder, model=factory), or --model MODULE:FACTORY on the "
    "command line"
)


@dataclass(frozen=True, eq=False)
class Architecture:
    """A module without its trained values.

    Args:
        layout: Where trained values lie in a row.
        frozen: Tensors that are not in rows, by name.
        state_names: Keys of the module's ``state_dict``, and the name of the tensor of each.
        factory: What makes the module, if that can be imported by name.
        signature: What the module takes, and what its outputs mean, if that is known.
        model: What makes the module, where it is at hand. It is not saved.

    Examples:
        >>> architecture = Architecture.of(lambda: nn.Linear(2, 1))
        >>> architecture.factory is None
        True
        >>> architecture.build(torch.tensor([1.0, 2.0, 3.0]))(torch.ones(1, 2)).item()
        6.0
    """

    layout: Layout
    frozen: Mapping[str, Tensor]
    state_names: Mapping[str, str]
    factory: Factory | None = None
    signature: Signature | None = None
    model: Model | None = None

    @classmethod
    def of(
        cls, model: Model, module: nn.Module | None = None, signature: Signature | None = None
    ) -> Architecture:
        """Return the architecture of a model.

        Args:
            model: A callable that makes the module, or a module.
            module: The module, if it has been made. Its frozen part is not copied.
            signature: What it takes, and what its outputs mean.

        Returns:
            The architecture; its factory is None if it cannot be imported by name.
        """
        module = make_module(model, seed=0) if module is None else module
        layout, constant = Layout.of(module), set(frozen_names(module))
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        frozen = {
            name: tensor.detach() if name in constant else tensor.detach().clone()
            for name, tensor in tensors.items()
            if name not in layout.shapes
        }
        names = {id(tensor): name for name, tensor in tensors.items()}
        state = {
            key: names[id(tensor)]
            for key, tensor in module.state_dict(keep_vars=True).items()
            if id(tensor) in names
        }
        return cls(layout, frozen, state, Factory.of(model), signature, model)

    @classmethod
    def from_json(cls, content: Mapping[str, Any], frozen: Mapping[str, Tensor]) -> Architecture:
        """Return what ``to_json`` describes.

        Args:
            content: The description.
            frozen: Tensors that are not in rows, by name.

        Returns:
            The architecture, without a model at hand.

        Raises:
            LookupError: If an entry is missing.
            InputError: If an entry is not allowed.
        """
        shapes = {name: torch.Size(shape) for name, shape in content["shapes"].items()}
        dtype = dtype_named(content["dtype"])
        factory, signature = content["factory"], content["signature"]
        return cls(
            layout=Layout(shapes, tuple(content["parameters"]), dtype),
            frozen=dict(frozen),
            state_names=dict(content["state_names"]),
            factory=None if factory is None else Factory(factory["name"], factory["arguments"]),
            signature=None if signature is None else Signature.from_json(signature),
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything but tensors, ready for JSON."""
        return {
            "factory": None if self.factory is None else asdict(self.factory),
            "shapes": {name: list(shape) for name, shape in self.layout.shapes.items()},
            "parameters": list(self.layout.parameters),
            "dtype": dtype_name(self.layout.dtype),
            "state_names": dict(self.state_names),
            "signature": None if self.signature is None else self.signature.to_json(),
        }

    def with_model(self, model: Model) -> Architecture:
        """Return this architecture with what makes the module.

        Args:
            model: A callable that makes the module, or a module.

        Returns:
            The architecture.

        Raises:
            InputError: If its tensors have other names, shapes or types.
        """
        self._check(make_module(model, seed=0), "model")
        return replace(self, model=model)

    def state_dict(self, row: Tensor) -> dict[str, Tensor]:
        """Return the ``state_dict`` of a module with a row's values; no factory is needed.

        Args:
            row: ``[P]``

        Returns:
            A tensor of the module's shape for each key.
        """
        row = row.detach().cpu()
        trained = {name: part[0] for name, part in self.layout.unstack(row.unsqueeze(0)).items()}
        tensors = trained | {name: tensor.detach().cpu() for name, tensor in self.frozen.items()}
        return {key: tensors[name].clone() for key, name in self.state_names.items()}

    def layer_titles(self) -> dict[str, str]:
        """Return the name and the type of each layer, by its name; empty if no module can be made.

        >>> Architecture.of(lambda: nn.Sequential(nn.Linear(2, 1))).layer_titles()
        {'0': '0 (Linear)'}
        """
        try:
            modules = dict(self._make().named_modules())
        except InputError:
            return {}
        return {
            name: f"{name} ({type(modules[name]).__name__})".lstrip()
            for name in self.layout.layers
            if name in modules
        }

    def build(self, row: Tensor) -> nn.Module:
        """Return a new module with a row's values, in evaluation mode on the CPU.

        Args:
            row: ``[P]``

        Returns:
            The module.

        Raises:
            InputError: If what makes the module is not known, cannot be imported, or makes
                another one.
        """
        module = self._make()
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        with torch.no_grad():
            for name, tensor in self.frozen.items():
                tensors[name].copy_(tensor)
        return self.layout.load(row.detach().cpu(), module).eval()

    def build_mixture(self, rows: Tensor, weights: Tensor) -> nn.Module:
        """Return a module that predicts with a mixture of models, in evaluation mode.

        Args:
            rows: ``[k, P]``
            weights: ``[k]`` of the models.

        Returns:
            A ``MixtureModule``.

        Raises:
            InputError: As ``build`` does; or if it is not known whether probabilities or outputs
                are averaged.
        """
        require(
            self.signature is not None,
            "the result does not say whether its mixtures average probabilities or outputs",
        )
        assert self.signature is not None
        modules = [self.build(row) for row in rows]
        return MixtureModule(modules, weights, self.signature.averages_probabilities).eval()

    def _make(self) -> nn.Module:
        """Return a new module of this architecture."""
        if self.model is not None:
            module, name = make_module(self.model, seed=0).cpu(), "model"
        elif self.factory is not None:
            name = f"model {self.factory.name!r}"
            try:
                module = make_module(self.factory, seed=0)
            except InputError as error:
                raise InputError(
                    f"the module cannot be made again: {error}: {_PASS_MODEL}"
                ) from error
        else:
            raise InputError(
                "the module cannot be made again, because the model was a module, a lambda or "
                f"another callable without an importable name: {_PASS_MODEL}"
            )
        self._check(module, name)
        return module

    def _check(self, module: nn.Module, name: str) -> None:
        """Raise an ``InputError`` if a module's tensors are not those of this architecture."""
        made = Architecture.of(module, module)
        for kind, saved, present in (
            ("trained", self.layout.shapes, made.layout.shapes),
            ("frozen", _shapes(self.frozen), _shapes(made.frozen)),
        ):
            for key in [*saved, *present]:
                if saved.get(key) != present.get(key):
                    text = f"{key!r} is {_shape_text(saved.get(key), kind)} in the result, but "
                    text += f"{_shape_text(present.get(key), kind)} in the module"
                    raise InputError(f"{name} makes another module than the result's: {text}")
        require(
            made.layout.dtype == self.layout.dtype,
            f"{name} makes a module of type {dtype_name(made.layout.dtype)}, but the result's "
            f"is of type {dtype_name(self.layout.dtype)}",
        )


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def _shape_text(shape: torch.Size | None, kind: str) -> str:
    return f"not {kind}" if shape is None else f"{kind} with shape {tuple(shape)}"
