"""Registries: named things that the command line, the documentation and the tests find by key.

A registry is filled from three sources: the modules of one of our packages, the entry points of
installed third-party packages, and ``MODULE:NAME`` for anything that can be imported.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from srfca.errors import InputError, describe, unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Things by key, loaded when they are first asked for.

    Args:
        kind: What they are, for error messages: "method".
        package: The package whose public modules register ours, by being imported.
        group: The entry-point group of third-party packages; each entry point names a module, which
            registers by being imported, or an object.
        check: Raises ``InputError`` for an object that is not of this kind.
    """

    def __init__(
        self, kind: str, package: str, group: str, check: Callable[[str, Any], T] | None = None
    ) -> None:
        self.kind = kind
        self._package, self._group = package, group
        self._check = check
        self._items: dict[str, T] = {}
        self._complete = False

    def add(self, key: str, item: T) -> T:
        """Register an item.

        Raises:
            InputError: If another item has this key.
        """
        present = self._items.get(key)
        same = present is None or _origin(present) == _origin(item)
        if not same:
            raise InputError(
                f"two {self.kind}s have the key {key!r}: {_origin(present)} and {_origin(item)}"
            )
        self._items[key] = item
        return item

    def keys(self) -> list[str]:
        """Return all keys, ours and those of installed packages."""
        self._load()
        return list(self._items)

    def items(self) -> dict[str, T]:
        """Return everything by key."""
        self._load()
        return dict(self._items)

    def __contains__(self, key: object) -> bool:
        self._load()
        return key in self._items

    def __getitem__(self, key: str) -> T:
        """Return the item of a key, or of ``MODULE:NAME``.

        Raises:
            InputError: If there is none; the message names the nearest key.
        """
        self._load()
        if key not in self._items and ":" in key:
            item = import_object(key, self.kind)
            return item if self._check is None else self._check(key, item)
        if key not in self._items:
            raise unknown(self.kind, key, [*self._items, "MODULE:NAME"])
        return self._items[key]

    def _load(self) -> None:
        if self._complete:
            return
        self._complete = True
        package = import_module(self._package)
        for module in iter_modules(package.__path__):
            if not module.name.startswith("_"):
                import_module(f"{self._package}.{module.name}")
        for point in entry_points(group=self._group):
            try:
                self._load_entry_point(point)
            except Exception as error:  # whatever the other package raises
                text = f"{self.kind} {point.name!r} of an installed package cannot be used"
                warnings.warn(f"{text} ({point.value}): {describe(error)}", stacklevel=4)

    def _load_entry_point(self, point: EntryPoint) -> None:
        """Import the module of an entry point, and register the object that it names, if any."""
        item = point.load()
        if ":" in point.value and self._check is not None and item not in self._items.values():
            self.add(point.name, self._check(point.value, item))


def import_object(name: str, kind: str) -> Any:
    """Import ``MODULE:NAME`` from the current folder or from what is installed.

    Args:
        name: A module and an attribute of it, separated by a colon; the attribute of a class is
            ``MODULE:CLASS.NAME``.
        kind: What it is, for error messages.

    Raises:
        InputError: If it cannot be imported; the message says why.
    """
    module, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        imported: Any = import_module(module)
    except ModuleNotFoundError as error:
        missing = f"there is no module {error.name!r} in {folder} or among the installed packages"
        raise InputError(f"{kind} {name!r}: {missing}") from error
    except Exception as error:  # whatever the imported code raises
        raise InputError(
            f"{kind} {name!r}: importing {module!r} failed: {describe(error)}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(imported, part):
            raise InputError(f"{kind} {name!r}: {module!r} has no attribute {attribute!r}")
        imported = getattr(imported, part)
    return imported


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    return find_spec(module) is not None


def _origin(item: object) -> str:
    module = getattr(item, "__module__", type(item).__module__)
    return f"{module}.{getattr(item, '__qualname__', type(item).__qualname__)}"
