from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from srfca import data


def test_samples_of_a_role_are_limited(real_data: Callable[[str], Path]) -> None:
    folder = real_data("shakespeare")
    roles = data.shakespeare(folder=folder, num_clients=5, max_samples=100)
    assert set(roles.train.sizes.tolist()) == {100}
    assert roles.train.x.shape[1:] == (80,)
    assert int(roles.train.x.max()) < 80
