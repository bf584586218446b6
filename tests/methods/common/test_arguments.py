"""What ``fit`` says if it is not given a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import srfca
from srfca import (
    SRFCA,
    ClientData,
    FedAvg,
    InputError,
    LocalTraining,
    Method,
    Result,
    Simulation,
    models,
)
from tests import examples

LOCAL = LocalTraining(steps=2)


@pytest.mark.parametrize(
    ("data", "model"),
    [
        (examples.classification([10] * 3), "models.mlp(6, 64, 3)"),
        (examples.classification([10] * 3, shape=(2, 3)), "models.mlp(6, 64, 3)"),
        (examples.regression([10] * 3), "models.mlp(4, 64, 1)"),
    ],
)
def test_client_data_without_a_model(data: Any, model: str) -> None:
    with pytest.raises(InputError) as error:
        SRFCA().fit(data)
    assert f"SRFCA().fit(Simulation(data, {model}))" in str(error.value)
    simulation = eval(
        f"Simulation(data, {model})", {"Simulation": Simulation, "models": models, "data": data}
    )
    assert FedAvg(local=LOCAL).fit(simulation).schema is None, "the line works"


@pytest.mark.parametrize("method", [SRFCA(), FedAvg()])
def test_arrays_and_tables(method: Method) -> None:
    x, y, clients = np.ones((4, 2)), np.array([0, 1] * 2), np.array([0, 0, 1, 1])
    fit: Any = method.fit
    for given, kind in ((x, "ndarray"), (pd.DataFrame(x), "DataFrame"), ([1], "list")):
        with pytest.raises(InputError, match=f"not a {kind}: arrays and tables go to srfca.fit"):
            fit(given, y, clients)
    assert srfca.fit(x, y, clients, method=FedAvg(local=LOCAL)).method == "Global"


@pytest.mark.parametrize("seed", [0.5, 3.0, True, -1, 2**63, None, float("inf"), torch.tensor(3)])
def test_seeds_are_integers(seed: object) -> None:
    federation = Simulation(examples.regression([20] * 4), models.linear(4))
    with pytest.raises(InputError, match="seed must be an integer from 0"):
        FedAvg().fit(federation, seed=seed)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="seed must be an integer from 0"):
        Simulation(federation.data, models.linear(4), seed=seed)  # type: ignore[arg-type]


def test_a_seed_of_numpy_is_saved(tmp_path: Path) -> None:
    federation = Simulation(examples.regression([20] * 4), models.linear(4))
    result = FedAvg(local=LocalTraining(steps=1)).fit(federation, seed=np.int64(3))  # type: ignore[arg-type]
    assert Result.load(result.save(tmp_path)).seed == 3


def test_one_output_is_not_enough_for_classes() -> None:
    data = ClientData.from_arrays([(torch.randn(4, 2), torch.zeros(4, dtype=torch.int64))] * 2)
    with pytest.raises(InputError, match="one output, but the targets are classes: give it an"):
        Simulation(data, models.linear(2))
