"""What ``fit`` says if it is not given a federation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import srfca
from srfca import SRFCA, FedAvg, InputError, LocalTraining, Method, Simulation, models
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
