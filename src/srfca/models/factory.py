"""Factories by name: how a saved result makes its module again, without a pickle.

A factory is saved as a name and arguments in plain JSON. Only classes take arguments, and nothing
but networks, dataclasses and functions is called, so that a file cannot name any other callable of
an installed package and choose what it is called with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial, reduce
from types import FunctionType
from typing import Any

from torch import nn

from srfca.errors import InputError, describe, require
from srfca.models.catalog import MODELS
from srfca.models.warm_start import WarmStart
from srfca.registry import import_object

Model = nn.Module | Callable[[], nn.Module]
"""A module, or a callable that makes one."""


@dataclass(frozen=True)
class Factory:
    """A callable that makes a module, by its name.

    Args:
        name: One of our networks, such as ``mlp``, or ``MODULE:NAME`` of a class or function.
        arguments: Arguments of a class; a function has none.

    Examples:
        >>> from srfca.models import mlp
        >>> factory = Factory.of(mlp(4, 3, 2))
        >>> factory
        Factory(name='mlp', arguments={'inputs': 4, 'hidden': [3], 'outputs': 2})
        >>> factory()
        Sequential(
          (0): Flatten(start_dim=1, end_dim=-1)
          (1): Linear(in_features=4, out_features=3, bias=True)
          (2): ReLU()
          (3): Linear(in_features=3, out_features=2, bias=True)
        )
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> Factory | None:
        """Return the name of what makes a module, None if it cannot be imported by name.

        A module is not made by anything that is known, and a lambda or a function inside of a
        function can only be imported if a variable of its module holds it.

        Args:
            model: One of our networks, a dataclass with plain fields, a class, a ``partial`` of a
                class with plain keyword arguments, a function, or a module.

        Returns:
            The factory, or None.
        """
        if isinstance(model, Factory):
            return model
        if isinstance(model, WarmStart):
            return cls.of(model.model)
        maker, arguments = _maker(model)
        name = _name_of(maker)
        plain = {key: _as_plain(value) for key, value in arguments.items()}
        allowed = _is_allowed(maker, bool(plain))
        return (
            None
            if name is None or not allowed or _NOT_PLAIN in plain.values()
            else cls(name, plain)
        )

    def __call__(self) -> nn.Module:
        """Return a new module.

        Raises:
            InputError: If the name cannot be imported, or does not make a module.
        """
        maker = MODELS[self.name] if self.name in MODELS else import_object(self.name, "model")
        require(
            _is_allowed(maker, bool(self.arguments)),
            f"model {self.name!r} must be a network or a function without arguments, "
            f"not {type(maker).__name__}",
        )
        arguments = {key: _as_tuple(value) for key, value in self.arguments.items()}
        try:
            made = maker(**arguments)
            module = made if isinstance(made, nn.Module) else made()
        except Exception as error:  # whatever the user's code raises
            raise InputError(
                f"model {self.name!r}: calling it failed: {describe(error)}"
            ) from error
        require(
            isinstance(module, nn.Module),
            f"model {self.name!r} must make a module, not {type(module).__name__}",
        )
        checked: nn.Module = module
        return checked


_NOT_PLAIN = object()
"""Stands for a value that JSON cannot hold."""


def _maker(model: Any) -> tuple[object, dict[str, Any]]:
    """Return the class or function that makes a module, and its arguments."""
    if isinstance(model, partial) and isinstance(model.func, type) and not model.args:
        return model.func, model.keywords
    if is_dataclass(model) and not isinstance(model, type | nn.Module):
        values = {part.name: getattr(model, part.name) for part in fields(model) if part.init}
        return type(model), values
    return model, {}


def _is_allowed(maker: object, has_arguments: bool) -> bool:
    """Tell whether a class or function may be called by name."""
    if isinstance(maker, type):
        return issubclass(maker, nn.Module) or is_dataclass(maker)
    return isinstance(maker, FunctionType) and not has_arguments


def _name_of(maker: object) -> str | None:
    """Return the name of one of our networks, or the ``MODULE:NAME`` that imports a maker."""
    for name, network in MODELS.items():
        if maker is network:
            return name
    module: Any = sys.modules.get(str(getattr(maker, "__module__", None)))
    path = str(getattr(maker, "__qualname__", "")).split(".")
    if module is None:
        return None
    if reduce(lambda part, name: getattr(part, name, None), path, module) is maker:
        return f"{module.__name__}:{'.'.join(path)}"
    variables = (name for name, value in vars(module).items() if value is maker)
    return next((f"{module.__name__}:{name}" for name in variables), None)


def _as_plain(value: object) -> Any:
    """Return a value as JSON holds it, ``_NOT_PLAIN`` if it cannot."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = [_as_plain(item) for item in value]
        return _NOT_PLAIN if _NOT_PLAIN in items else items
    return _NOT_PLAIN


def _as_tuple(value: Any) -> Any:
    """Return a value of JSON with tuples in place of lists."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
