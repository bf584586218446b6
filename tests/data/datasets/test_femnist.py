from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from srfca import data
from srfca.errors import InputError


def test_writers_are_drawn_by_the_seed(real_data: Callable[[str], Path]) -> None:
    folder = real_data("femnist")
    writers = data.femnist(folder=folder, num_clients=20, seed=3)
    assert len(writers) == 20
    assert writers.test is not None
    assert int((writers.train.sizes + writers.test.sizes).min()) >= 100
    assert int(writers.train.y.max()) < 62
    assert writers.truth is None
    other_seed = data.femnist(folder=folder, num_clients=20, seed=4)
    assert set(writers.client_ids) != set(other_seed.client_ids)
    with pytest.raises(InputError, match="at most the 272 users"):
        data.femnist(folder=folder, num_clients=1000)


def test_every_second_writer_is_transposed(real_data: Callable[[str], Path]) -> None:
    folder = real_data("femnist")
    plain = data.femnist(folder=folder, num_clients=6, seed=3)
    turned = data.transposed_femnist(folder=folder, num_clients=6, seed=3)
    assert turned.client_ids == plain.client_ids
    assert turned.test is not None
    assert plain.test is not None
    assert turned.truth is not None
    assert turned.truth.labels.tolist() == [0, 1, 0, 1, 0, 1]
    for transposed, untouched in ((turned.train, plain.train), (turned.test, plain.test)):
        for client in range(6):
            x, y = transposed.of(client)
            expected, labels = untouched.of(client)
            expected = expected.transpose(1, 2) if client % 2 else expected
            assert torch.equal(x, expected)
            assert torch.equal(y, labels)
    with pytest.raises(InputError, match="num_clients must be at least 2"):
        data.transposed_femnist(folder=folder, num_clients=1)
