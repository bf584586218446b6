"""The registry of methods: what the command line, the documentation and the tests read."""

from __future__ import annotations

from typing import Any, TypeVar

from srfca.errors import InputError, unknown
from srfca.methods._common.base import FAMILIES, Method, Variant
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

    Args:
        method: The class.

    Returns:
        The same class.

    Raises:
        InputError: If the class does not declare what every method declares.

    Examples:
        >>> from srfca.methods import FedAvg
        >>> register(FedAvg) is METHODS["global"]
        True
    """
    for attribute in ("key", "name", "paper"):
        if not isinstance(getattr(method, attribute, None), str):
            raise InputError(f"method {method.__name__} must declare {attribute!r}, a string")
    METHODS.add(method.key, method)
    return method


def method_key(name: str) -> str:
    """Return the key of a method by its key, its displayed name or its class, in any case.

    A name that no method has is returned unchanged; of a variant, the settings are.

    >>> method_key("SR-FCA"), method_key("FedAvg"), method_key("nothing")
    ('sr-fca', 'global', 'nothing')
    >>> method_key("IFCA:restarts=5")
    'ifca:restarts=5'
    """
    if name in METHODS:
        return name
    base, colon, settings = name.partition(":")
    if colon:
        key, first = method_key(base), settings.split(":")[0]
        return f"{key}:{settings}" if key in METHODS and _is_part(METHODS[key], first) else name
    for key, method in METHODS.items().items():
        if name.lower() in (key.lower(), method.name.lower(), method.__name__.lower()):
            return key
    return name


def all_methods() -> list[type[Method]]:
    """Return all registered methods, ordered by family and name.

    Returns:
        Classes; each has ``key``, ``name`` and ``paper``.

    Examples:
        >>> [method.key for method in all_methods()][0]
        'sr-fca'
    """
    methods = METHODS.items().values()
    return sorted(methods, key=lambda method: (FAMILIES.index(method.family), method.name.lower()))


def split_variant(key: str) -> tuple[str, tuple[str, ...]]:
    """Return the method of a variant, and its settings as ``--set`` takes them.

    A variant is a method with settings of its own, a line of its own in a comparison:
    ``KEY:NAME=VALUE``, or ``KEY:NAME`` for settings that the method has a name for
    (``Method.variants``). Several are separated by colons. ``KEY`` may be ``MODULE:CLASS``.

    Raises:
        InputError: If the method has no variant of that name.

    >>> split_variant("ifca:restarts=5:start=clients")
    ('ifca', ('restarts=5', 'start=clients'))
    >>> split_variant("ifca"), split_variant("package.module:Method")
    (('ifca', ()), ('package.module:Method', ()))
    """
    base, parts = _split(key)
    settings: list[str] = []
    for part in parts:
        settings += [part] if "=" in part else _named_variant(METHODS[base], part).settings
    return base, tuple(settings)


def method_of(key: str) -> type[Method]:
    """Return the method of a key, of a variant or of ``MODULE:CLASS``.

    Raises:
        InputError: If there is none.
    """
    return METHODS[split_variant(key)[0]]


def method_name(key: str) -> str:
    """Return the name in tables of a method or a variant.

    >>> method_name("ifca"), method_name("ifca:restarts=5")
    ('IFCA', 'IFCA, restarts=5')
    """
    base, parts = _split(key)
    method = METHODS[base]
    words = [part if "=" in part else _named_variant(method, part).name for part in parts]
    return ", ".join([method.name, *words])


def _split(key: str) -> tuple[str, list[str]]:
    """Split a key into the method and the parts of a variant."""
    first, *parts = key.split(":")
    if not parts or (first in METHODS and _is_part(METHODS[first], parts[0])):
        return first, parts
    return f"{first}:{parts[0]}", parts[1:]


def _is_part(method: type[Method], part: str) -> bool:
    """Return whether this is a setting or a variant of a method, rather than a module's class."""
    return "=" in part or part in method.variants or not part.isidentifier() or part.islower()


def _named_variant(method: type[Method], name: str) -> Variant:
    if name not in method.variants:
        raise unknown(f"variant of {method.name}", name, [*method.variants, "NAME=VALUE"])
    return method.variants[name]
