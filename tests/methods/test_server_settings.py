"""Momentum and the mean of the last rounds work with every method, or are refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from srfca import InputError, LocalTraining, Result, Simulation, data
from srfca.methods import METHODS
from srfca.models import mlp

LOCAL = LocalTraining(steps=10, local_steps=2, batch_size=10, lr=0.2)
VALUES: dict[str, Any] = {"server_momentum": 0.5, "average_last": 0.6}
NO_SERVER = ["local"]
"""Nothing to ignore: there is no server, and no round."""
OPTIONS: dict[str, dict[str, Any]] = {"sr-fca": {"threshold": "90%"}, "feddrift": {"time_steps": 2}}


@cache
def digits() -> Simulation:
    return Simulation(data.rotated_digits(num_clients=8, rotations=2), mlp(64, 4, 10))


def fit(key: str, local: LocalTraining) -> Result:
    federation, method = digits(), METHODS[key]
    options: dict[str, Any] = {"k": 2} if method.needs_k else {}
    if method.needs_truth:
        options["truth"] = federation.data.truth
    options |= OPTIONS.get(key, {})
    return method(local=local, **options).fit(federation)


@pytest.mark.parametrize("key", [key for key in METHODS.items() if key not in NO_SERVER])
@pytest.mark.filterwarnings("ignore")
def test_no_setting_of_the_server_is_ignored(key: str) -> None:
    followed = METHODS[key].server_settings
    plain = fit(key, LOCAL) if followed else None
    for setting, value in VALUES.items():
        local = replace(LOCAL, **{setting: value})
        if setting not in followed:
            with pytest.raises(InputError, match=f"does nothing with {setting}, so it must be 0"):
                METHODS[key](local=local)
            continue
        changed = fit(key, local)
        assert plain is not None
        same = plain.models.shape == changed.models.shape
        assert not (same and torch.equal(plain.models, changed.models)), (key, setting)
