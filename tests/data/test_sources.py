from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from srfca import ClientData
from srfca.data.sources import Source, as_arrays
from srfca.errors import InputError

X = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 2


def test_samples_from_tuples_datasets_loaders_and_generators() -> None:
    x, y = torch.as_tensor(X), torch.as_tensor(Y)

    class Endless(Dataset[tuple[Tensor, int]]):
        """Has no end but its length: ``__getitem__`` accepts any index."""

        def __getitem__(self, i: int) -> tuple[Tensor, int]:
            return x[i % 12], int(y[i % 12])

        def __len__(self) -> int:
            return 12

    class Stream(IterableDataset[tuple[Tensor, Tensor]]):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return zip(x, y, strict=True)

    dataset = TensorDataset(x, y)
    sources: dict[str, Source] = {
        "arrays": (X, Y),
        "dataset": dataset,
        "indexed": Endless(),
        "stream": Stream(),
        "batches": DataLoader(dataset, batch_size=5),
        "samples": (pair for pair in zip(X, Y, strict=True)),
        "list": [(X[:5].tolist(), Y[:5].tolist()), (X[5:], Y[5:])],
    }
    client_data = ClientData.from_arrays(sources)
    for client in range(len(sources)):
        torch.testing.assert_close(client_data.train.of(client)[0], x)
        assert torch.equal(client_data.train.of(client)[1], y)


def test_a_dataset_yields_samples_even_if_they_look_like_batches() -> None:
    sequences = torch.arange(12).reshape(3, 4)
    x, y = as_arrays(TensorDataset(sequences, sequences + 1))
    assert x.shape == y.shape == (3, 4)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "there are no samples"),
        ([X, Y], r"must be a tuple \(x, y\) or yield such pairs, but there is a ndarray"),
        ((X, Y, Y), ".*but there is a tuple of 3"),
        (7, ".*but is a int"),
        ((X.astype(object), Y), "x must be numbers in a regular shape"),
        ([(X[0], 1), (X[1, :2], 1)], r"item 1 has x of shape \(2,\)"),
        ([(X[:3], Y[:3]), (X[:3], Y[:2])], r"item 1 has x of shape \(3, 3\) and y of shape \(2,\)"),
    ],
)
def test_invalid_sources_are_refused(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"client 'ann', training data: {message}"):
        ClientData.from_arrays({"ann": source})
