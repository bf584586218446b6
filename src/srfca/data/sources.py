"""The forms that one client's samples can be given in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from srfca.errors import InputError, require

Arrays = tuple[ArrayLike | Tensor, ArrayLike | Tensor]
Source = Arrays | Iterable[Any] | Dataset[Any]
"""A tuple ``(x, y)``, or anything that yields such pairs: a Dataset, a DataLoader, a generator."""


def as_arrays(source: Source, context: str = "the data") -> tuple[Tensor, Tensor]:
    """Return all samples of a source as two tensors.

    A yielded pair is a single sample if its y is one number, and a batch otherwise. An indexed
    Dataset always yields single samples.

    Args:
        source: The samples.
        context: What error messages call the source.

    Returns:
        Inputs ``[n, ...]`` and targets ``[n, ...]``.

    Raises:
        InputError: If the source is neither a pair nor yields pairs, if it yields none, or if their
            shapes do not match.

    Examples:
        >>> x, y = as_arrays((torch.tensor([1.0 * i, 2.0 * i]), i) for i in range(3))
        >>> x.shape, y
        (torch.Size([3, 2]), tensor([0, 1, 2]))
    """
    if isinstance(source, tuple):
        return _as_pair(source, context)
    pairs = [_as_pair(item, context) for item in _iterate(source, context)]
    require(bool(pairs), f"{context}: there are no samples")
    xs, ys = zip(*pairs, strict=True)
    single = ys[0].ndim == 0 or _is_indexed(source)
    for index, (x, y) in enumerate(pairs):
        matches = x.shape == xs[0].shape and y.shape == ys[0].shape
        if not single:
            matches = x.ndim > 0 and y.ndim > 0 and len(x) == len(y)
            matches = matches and x.shape[1:] == xs[0].shape[1:] and y.shape[1:] == ys[0].shape[1:]
        require(
            matches,
            f"{context}: item {index} has x of shape {tuple(x.shape)} and y of shape "
            f"{tuple(y.shape)}, which does not match item 0: {tuple(xs[0].shape)} and "
            f"{tuple(ys[0].shape)}",
        )
    return (torch.stack(xs), torch.stack(ys)) if single else (torch.cat(xs), torch.cat(ys))


def _is_indexed(source: Source) -> bool:
    """Return whether a source is a Dataset with ``__getitem__``."""
    return isinstance(source, Dataset) and not isinstance(source, IterableDataset)


def _iterate(source: Any, context: str) -> Iterator[Any]:
    """Iterate over what a source yields."""
    if _is_indexed(source):
        return (source[i] for i in range(len(source)))
    if isinstance(source, Iterable) and getattr(source, "ndim", None) != 0:
        return iter(source)
    raise InputError(
        f"{context}: must be a tuple (x, y) or yield such pairs, but is a {type(source).__name__}"
    )


def _as_pair(item: Any, context: str) -> tuple[Tensor, Tensor]:
    """Return a pair as two tensors."""
    require(
        isinstance(item, tuple | list) and len(item) == 2,
        f"{context}: must be a tuple (x, y) or yield such pairs, but there is a "
        f"{type(item).__name__}{f' of {len(item)}' if isinstance(item, tuple | list) else ''}",
    )
    x, y = item
    return _as_tensor(x, f"{context}: x"), _as_tensor(y, f"{context}: y")


def _as_tensor(values: Any, name: str) -> Tensor:
    """Return values as a tensor."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers in a regular shape: {error}") from error
