from __future__ import annotations

import numpy as np
import pytest
import torch

from srfca import ClientData
from srfca.data.client_data import hold_out
from srfca.errors import InputError


def test_arrays_and_lists_by_client_id() -> None:
    client_data = ClientData.from_arrays(
        {"ann": ([[1.0], [2.0]], [0, 1]), "bob": (np.ones((3, 1)), np.ones(3, int))}
    )
    assert client_data.client_ids == ("ann", "bob")
    assert client_data.train.sizes.tolist() == [2, 3]
    assert client_data.train.of(1)[1].dtype == torch.int64
    assert "2 to 3 training samples of shape (1,)" in repr(client_data)


X, Y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({}, "at least one client"),
        (
            {"ann": (X, Y), "bob": (X[:0], Y[:0])},
            "client 'bob', training data: there are no samples",
        ),
        ({"ann": (X, Y[:3])}, "client 'ann', training data: 4 inputs but 3 targets"),
        (
            {"ann": (X, Y), "bob": (X[:, :2], Y)},
            r"client 'bob'.*\(2,\), but client 'ann' has \(3,\)",
        ),
        ({"ann": (X, Y), "bob": (X, Y.float())}, "client 'bob', training data: y is of type"),
        (
            {"ann": (X.clone().fill_(np.nan), Y)},
            "client 'ann', training data: x has a NaN.*sample 0",
        ),
        ({"ann": (X, torch.tensor([0, 1, np.inf, 1]))}, "y has a NaN or an infinity in sample 2"),
    ],
)
def test_errors_name_the_client(
    train: dict[str, tuple[torch.Tensor, torch.Tensor]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        ClientData.from_arrays(train)


def test_client_ids_become_strings() -> None:
    pair = (torch.zeros(2, 3), torch.zeros(2))
    assert ClientData.from_arrays({0: pair, 7: pair}).client_ids == ("0", "7")  # type: ignore[dict-item]
    with pytest.raises(InputError, match="two clients have the same name"):
        ClientData.from_arrays({1: pair, "1": pair})  # type: ignore[dict-item]


def test_invalid_test_data_and_truth_are_refused() -> None:
    with pytest.raises(InputError, match=r"client 'bob', test data.*the training data has \(3,\)"):
        ClientData.from_arrays({"bob": (X, Y)}, {"bob": (X[:, :2], Y)})
    with pytest.raises(InputError, match="client 'bob' has training or test data, but not both"):
        ClientData.from_arrays({"ann": (X, Y), "bob": (X, Y)}, {"ann": (X, Y)})
    with pytest.raises(InputError, match="3 labels for 1 clients"):
        ClientData.from_arrays([(X, Y)], truth=[0, 1, 2])


def test_held_out_samples_depend_on_the_client_id_not_on_the_order() -> None:
    pairs = {name: (torch.arange(20.0).unsqueeze(1), torch.arange(20)) for name in "abc"}
    forward = hold_out(ClientData.from_arrays(pairs), 0.25, seed=1)[1]
    backward = hold_out(ClientData.from_arrays(dict(reversed(pairs.items()))), 0.25, seed=1)[1]
    assert forward.sizes.tolist() == [5, 5, 5]
    assert torch.equal(forward.of(0)[1], backward.of(2)[1])
    assert not torch.equal(forward.of(0)[1], forward.of(1)[1])


def test_select_returns_one_client() -> None:
    pairs = {name: (X + i, Y) for i, name in enumerate("abc")}
    client_data = ClientData.from_arrays(pairs, pairs, truth=[0, 1, 1])
    selected = client_data.select(1)
    assert selected.client_ids == ("b",)
    assert torch.equal(selected.train.x, X + 1)
    assert selected.test is not None
    assert torch.equal(selected.test.y, Y)
    assert ClientData.from_arrays(pairs).select(2).test is None
    with pytest.raises(InputError, match="clients are numbered 0 to 2, not 3"):
        client_data.select(3)


def test_fingerprints_of_different_data_differ() -> None:
    pairs = {"ann": (X, Y), "bob": (X + 1, Y)}
    fingerprint = ClientData.from_arrays(pairs).fingerprint()
    assert fingerprint == ClientData.from_arrays(pairs).fingerprint()
    others = [
        ClientData.from_arrays({"ann": (X, Y), "eve": (X + 1, Y)}),
        ClientData.from_arrays({"ann": (X, Y), "bob": (X + 2, Y)}),
        ClientData.from_arrays(pairs, pairs),
        ClientData.from_arrays(pairs, truth=[0, 1]),
    ]
    fingerprints = {fingerprint, *(client_data.fingerprint() for client_data in others)}
    assert len(fingerprints) == 5
