"""A user's model: ``MODULE:FACTORY``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from srfca.errors import InputError, describe, require
from srfca.experiments.source_code import package_files
from srfca.registry import import_object


def import_model(name: str) -> Callable[[], nn.Module]:
    """Import a factory of models from the current folder or from what is installed.

    Args:
        name: ``MODULE:FACTORY``, a class or function without arguments that returns a
            ``torch.nn.Module``.

    Raises:
        InputError: If it cannot be imported, or does not return a module.
    """
    factory: Any = import_object(name, "model")
    require(
        callable(factory) and not isinstance(factory, nn.Module),
        f"model {name!r} must be a class or function that returns a torch.nn.Module, "
        f"not of type {type(factory).__name__}",
    )
    try:
        module: Any = factory()
    except Exception as error:  # whatever the user's code raises
        raise InputError(f"model {name!r}: calling it failed: {describe(error)}") from error
    require(
        isinstance(module, nn.Module),
        f"model {name!r} must return a torch.nn.Module, not of type {type(module).__name__}",
    )
    checked: Callable[[], nn.Module] = factory
    return checked


def model_files(name: str) -> set[Path]:
    """Return the source files of ``MODULE:FACTORY``: of its package, and of its layers' classes."""
    module: nn.Module = import_model(name)()
    classes = {type(layer).__module__ for layer in module.modules()}
    users = [name for name in classes if name.partition(".")[0] not in ("torch", "srfca")]
    files = {Path(file) for user in users if (file := getattr(sys.modules[user], "__file__", None))}
    return package_files(name.partition(":")[0]) | {file for file in files if file.is_file()}
