from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
