"""Settings from Flower's run config."""

from __future__ import annotations

from typing import Any

import pytest

from srfca import InputError
from srfca.flower.settings import Settings, configure
from srfca.methods import IFCA, FedProx
from tests.flower.setup import LOCAL, SR_FCA


def test_settings_come_from_the_run_config() -> None:
    method, settings = configure(
        SR_FCA,
        {
            "srfca.num-clients": 5, "srfca.method": "ifca", "srfca.k": 3, "srfca.trim": 0.2,
            "srfca.lr": 1, "srfca.batch-size": "none", "srfca.min-clients": "none", "other": 1,
            "srfca.start": "clients",
        },
    )  # fmt: skip
    assert isinstance(method, IFCA)
    assert (method.k, method.local.lr, method.local.batch_size) == (3, 1.0, None)
    assert method.start == "clients"
    assert method.local.steps == LOCAL.steps
    assert settings == Settings(num_clients=5)


def test_a_run_can_have_a_folder_of_its_own() -> None:
    config = {"srfca.num-clients": 5, "srfca.out": "results/{run}"}
    assert configure(SR_FCA, config, run_id=12)[1].out == "results/12"
    assert configure(SR_FCA, config | {"srfca.out": "none"}, run_id=12)[1].out is None


def test_a_parameter_of_the_method_comes_before_one_of_its_local_training() -> None:
    config = {"srfca.num-clients": 5, "srfca.mu": 0.3}
    method, _ = configure(SR_FCA, config | {"srfca.method": "fedprox"})
    assert isinstance(method, FedProx)
    assert (method.mu, method.local.mu) == (0.3, 0.0)
    method, _ = configure(SR_FCA, config)
    assert method.local.mu == 0.3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "srfca.num-clients is missing"),
        ({"srfca.num-clients": "many"}, "srfca.num-clients must be a whole number"),
        ({"srfca.num-clients": 2, "srfca.tirm": 0.1}, "unknown setting 'srfca.tirm'"),
        ({"srfca.num-clients": 2, "srfca.tirm": 0.1}, "did you mean 'srfca.trim'"),
        ({"srfca.num-clients": 2, "srfca.method": "x"}, "unknown method"),
        ({"srfca.num-clients": 2, "srfca.method": "oracle"}, "needs the true clusters"),
        ({"srfca.num-clients": 2, "srfca.trim": 0.9}, "0.9"),
        ({"srfca.num-clients": 2, "srfca.poll": 0}, "srfca.poll must be positive"),
        ({"srfca.num-clients": 2, "srfca.refresh": -1}, "srfca.refresh must be at least 0"),
        ({"srfca.num-clients": 2, "srfca.refresh-rounds": 0}, "srfca.refresh-rounds must be at"),
        ({"srfca.num-clients": 2, "srfca.seed": -1}, "srfca.seed"),
    ],
)
def test_wrong_settings_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configure(SR_FCA, config)
