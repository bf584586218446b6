"""The registry of methods: what the command line, the documentation and the tests read."""

from __future__ import annotations

from typing import Any, TypeVar

from srfca.errors import InputError
from srfca.methods._common.base import FAMILIES, Method
from srfca.registry import Registry

M = TypeVar("M", bound=Method)


def _check(name: str, item: Any) -> type[Method]:
    if not (isinstance(item, type) and issubclass(item, Method)):
        raise InputError(f"method {name!r} must be a subclass of srfca.methods.Method")
    return item


METHODS: Registry[type[Method]] = Registry("method", "srfca.methods", "srfca.methods", _check)
"""Methods by key: the modules of this package, and entry points of the group ``srfca.methods``."""


def register(method: type[M]) -> type[M]:
    """Register a method, as a class decorator above ``@dataclass``.

    Raises:
        InputError: If the class does not declare what every method declares.
    """
    for attribute in ("key", "name", "paper"):
        if not isinstance(getattr(method, attribute, None), str):
            raise InputError(f"method {method.__name__} must declare {attribute!r}, a string")
    METHODS.add(method.key, method)
    return method


def method_key(name: str) -> str:
    """Return the key of a method by its key, its displayed name or its class, in any case.

    A name that no method has is returned unchanged.

    >>> method_key("SR-FCA"), method_key("FedAvg"), method_key("nothing")
    ('sr-fca', 'global', 'nothing')
    """
    if name in METHODS:
        return name
    for key, method in METHODS.items().items():
        if name.lower() in (key.lower(), method.name.lower(), method.__name__.lower()):
            return key
    return name


def all_methods() -> list[type[Method]]:
    """Return all registered methods, ordered by family and name."""
    methods = METHODS.items().values()
    return sorted(methods, key=lambda method: (FAMILIES.index(method.family), method.name.lower()))
