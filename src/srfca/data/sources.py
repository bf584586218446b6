"""What a client's data may be given as."""

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


def as_arrays(source: Source, where: str = "the data") -> tuple[Tensor, Tensor]:
    """All samples of a source: ``x`` ``[n, ...]`` and ``y`` ``[n, ...]``.

    A pair that is yielded is a single sample where its y is one number, and else a batch. A Dataset
    with an index always yields single samples.

    Args:
        source: The samples.
        where: What errors call it.

    >>> x, y = as_arrays((torch.tensor([1.0 * i, 2.0 * i]), i) for i in range(3))
    >>> x.shape, y
    (torch.Size([3, 2]), tensor([0, 1, 2]))
    """
    if isinstance(source, tuple):
        return _pair(source, where)
    pairs = [_pair(item, where) for item in _items(source, where)]
    require(bool(pairs), f"{where}: there are no samples")
    xs, ys = zip(*pairs, strict=True)
    single = ys[0].ndim == 0 or _has_index(source)
    for place, (x, y) in enumerate(pairs):
        fits = x.shape == xs[0].shape and y.shape == ys[0].shape
        if not single:
            fits = x.ndim > 0 and y.ndim > 0 and len(x) == len(y)
            fits = fits and x.shape[1:] == xs[0].shape[1:] and y.shape[1:] == ys[0].shape[1:]
        require(
            fits,
            f"{where}: item {place} has x of shape {tuple(x.shape)} and y of shape "
            f"{tuple(y.shape)}, which does not go with item 0: {tuple(xs[0].shape)} and "
            f"{tuple(ys[0].shape)}",
        )
    return (torch.stack(xs), torch.stack(ys)) if single else (torch.cat(xs), torch.cat(ys))


def _has_index(source: Source) -> bool:
    return isinstance(source, Dataset) and not isinstance(source, IterableDataset)


def _items(source: Any, where: str) -> Iterator[Any]:
    if _has_index(source):
        return (source[i] for i in range(len(source)))
    if isinstance(source, Iterable):
        return iter(source)
    raise InputError(
        f"{where}: must be a tuple (x, y) or yield such pairs, but is a {type(source).__name__}"
    )


def _pair(item: Any, where: str) -> tuple[Tensor, Tensor]:
    require(
        isinstance(item, tuple | list) and len(item) == 2,
        f"{where}: must be a tuple (x, y) or yield such pairs, but there is a "
        f"{type(item).__name__}{f' of {len(item)}' if isinstance(item, tuple | list) else ''}",
    )
    x, y = item
    return _tensor(x, f"{where}: x"), _tensor(y, f"{where}: y")


def _tensor(values: Any, what: str) -> Tensor:
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} must be numbers in a regular shape: {error}") from error
