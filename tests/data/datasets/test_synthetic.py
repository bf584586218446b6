from __future__ import annotations

import pytest
import torch

from srfca import data
from srfca.errors import InputError


def test_synthetic_has_the_distribution_of_the_paper() -> None:
    generated = data.synthetic(num_clients=10, samples=400, dimension=50, seed=3)
    assert generated.optima is not None
    assert generated.test is not None
    assert set(generated.optima.flatten().tolist()) == {0.0, 1.0}
    assert generated.truth is not None
    assert generated.truth.sizes.tolist() == [5, 5]
    for client in range(10):
        w = generated.optima[generated.truth.labels[client]].double()
        for x, y in (generated.train.of(client), generated.test.of(client)):
            residual = y.double() - x.double() @ w
            assert residual.std().item() == pytest.approx(0.001, rel=0.2)
            assert x.mean().item() == pytest.approx(0, abs=0.05)
            assert x.std().item() == pytest.approx(1, abs=0.05)


def test_same_seed_gives_same_data() -> None:
    a, b = (data.synthetic(num_clients=4, dimension=5, seed=1) for _ in range(2))
    assert torch.equal(a.train.x, b.train.x)
    assert not torch.equal(a.train.x, data.synthetic(num_clients=4, dimension=5, seed=2).train.x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_clients": 0}, "num_clients must be"), ({"samples": 0}, "samples must be"),
        ({"clusters": 5, "num_clients": 4}, "clusters must be"), ({"noise": -1.0}, "noise must"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.synthetic(**settings)
