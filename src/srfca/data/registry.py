"""The registry of data sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from srfca.data.client_data import ClientData
from srfca.errors import InputError
from srfca.registry import Registry

DatasetFunction = Callable[..., ClientData]
"""A function of keyword arguments, ``seed`` among them, that returns client data."""

F = TypeVar("F", bound=DatasetFunction)


def _check_dataset(name: str, item: Any) -> DatasetFunction:
    """Return an imported object if it can be called.

    Raises:
        InputError: If it cannot.
    """
    if not callable(item):
        raise InputError(
            f"data set {name!r} must be a function that returns ClientData, "
            f"not of type {type(item).__name__}"
        )
    dataset: DatasetFunction = item
    return dataset


DATASETS: Registry[DatasetFunction] = Registry(
    "data set", "srfca.data.datasets", "srfca.datasets", _check_dataset
)
"""All data sets by key: ours, those of installed packages, and ``MODULE:FUNCTION``."""


def register_dataset(key: str) -> Callable[[F], F]:
    """Return a decorator that registers a function as a data set.

    The function takes keyword arguments alone, one of them ``seed``, and returns ``ClientData``. A
    data set that reads files also takes ``folder``, the data folder.

    Args:
        key: The name that experiments use.

    Returns:
        The decorator, which returns the function unchanged.

    Raises:
        InputError: If another data set has this key.

    Examples:
        In a file of ``srfca.data.datasets``, or in a module that an installed package names as an
        entry point of the group ``srfca.datasets``::

            @register_dataset("coin_tosses")
            def coin_tosses(*, num_clients: int = 10, seed: int = 0) -> ClientData: ...
    """

    def register(function: F) -> F:
        DATASETS.add(key, function)
        return function

    return register
