"""SCAFFOLD: against a reference of its own, and its paper's claim in a small form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srfca import ClientData, FedAvg, InputError, LocalTraining, Simulation
from srfca.methods import Run, Scaffold
from srfca.methods._common.rounds import one_cluster, participants
from srfca.models import linear
from srfca.random import Key
from tests import examples
from tests.methods.helpers import Array, DropByNumber

SIZES = (6, 18, 11)
LOCAL = LocalTraining(steps=12, local_steps=3, batch_size=None, lr=0.05)


def three_clients(sizes: Sequence[int] = SIZES) -> Simulation:
    data = examples.regression(list(sizes), d=3, clusters=3)
    return Simulation(data, examples.doubled(linear(3, bias=False)), validation=0)


def gradient(federation: Simulation, client: int, w: Array) -> Array:
    x, y = (part.numpy() for part in federation._samples["train"].of(client))
    return np.asarray(2 / len(y) * x.T @ (x @ w - y))


def scaffold_by_hand(
    federation: Simulation,
    rounds: Sequence[Sequence[int]],
    option: str,
    server_lr: float = 1.0,
    local_steps: int = 3,
    lr: float = 0.05,
) -> Array:
    """Run Algorithm 1 of the paper: variables as there, and all clients of equal weight."""
    n = len(federation.client_ids)
    x, c, c_i = np.zeros(3), np.zeros(3), np.zeros((n, 3))
    for sampled in rounds:
        delta_y, delta_c = np.zeros(3), np.zeros(3)
        for i in sampled:
            y = x.copy()
            for _ in range(local_steps):
                y = y - lr * (gradient(federation, i, y) - c_i[i] + c)
            if option == "I":
                c_plus = gradient(federation, i, x)
            else:
                c_plus = c_i[i] - c + (x - y) / (local_steps * lr)
            delta_y += (y - x) / len(sampled)
            delta_c += (c_plus - c_i[i]) / len(sampled)
            c_i[i] = c_plus
        x = x + server_lr * delta_y
        c = c + len(sampled) / n * delta_c
    return x


@pytest.mark.parametrize("option", ["I", "II"])
@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_it_is_the_algorithm_of_the_paper(option: Any, participation: float) -> None:
    federation = three_clients()
    method = Scaffold(
        local=LOCAL, option=option, weighted=False, server_lr=0.8, participation=participation
    )
    everyone = one_cluster(Run(federation))
    rounds = [
        participants(federation, everyone, participation, Key(5, "scaffold", number)).tolist()
        for number in range(4)
    ]
    expected = scaffold_by_hand(federation, rounds, option, server_lr=0.8)
    result = method.fit(federation, seed=5)
    np.testing.assert_allclose(result.models[0].numpy(), expected, rtol=1e-9)
    assert result.labels.tolist() == [0, 0, 0]
    assert not result.clustered


def test_one_round_in_numbers() -> None:
    """Minima 0 and 4 of x^2 and (x - 4)^2: two rounds of two steps at rate 1/4 from 0."""
    pairs = [(np.ones((1, 1)), np.array([target])) for target in (0.0, 4.0)]
    federation = Simulation(
        ClientData.from_arrays(pairs), examples.doubled(linear(1, bias=False)), validation=0
    )
    local = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.25)
    first = Scaffold(local=replace(local, steps=2), option="II").fit(federation)
    start = float(federation.initial_model(0)[0])
    assert start == 0
    # Client 2 steps to 2 and 3, client 1 stays: x = 1.5. The mean gradients are 0 and -6.
    assert float(first.models[0, 0]) == pytest.approx(1.5)
    # c = -3. Client 1: 1.5 -> 1.5 - (3 - 3)/4 = 1.5, and again; client 2: 1.5 - (-5 + 3)/4 = 2,
    # then 2 - (-4 + 3)/4 = 2.25. Their mean is 1.875; without corrections it would be 1.875 too.
    both = Scaffold(local=local, option="II").fit(federation)
    assert float(both.models[0, 0]) == pytest.approx(1.875)


def test_weights_are_the_numbers_of_samples() -> None:
    federation = three_clients()
    sizes = np.array(SIZES)
    local = replace(LOCAL, steps=600)
    result = Scaffold(local=local, weighted=True).fit(federation)
    gradients = [gradient(federation, c, result.models[0].numpy()) for c in range(3)]
    np.testing.assert_allclose(sizes @ np.array(gradients) / sizes.sum(), 0, atol=1e-6)


@pytest.mark.parametrize("option", ["I", "II"])
def test_many_local_steps_do_not_move_its_fixed_point(option: Any) -> None:
    """The paper's claim: client drift moves FedAvg away from the optimum, but not SCAFFOLD."""
    federation = three_clients()
    local = LocalTraining(steps=2000, local_steps=20, batch_size=None, lr=0.05)

    def slope(w: torch.Tensor) -> float:
        gradients = [gradient(federation, c, w[0].numpy()) for c in range(3)]
        return float(np.linalg.norm(np.mean(gradients, axis=0)))

    fedavg = FedAvg(local=local, weighted=False).fit(federation)
    scaffold = Scaffold(local=local, weighted=False, option=option).fit(federation)
    assert slope(fedavg.models) > 0.1
    assert slope(scaffold.models) < 1e-4


def test_auto_is_the_option_that_fits_the_optimizer() -> None:
    federation = three_clients()
    plain = Scaffold(local=LOCAL).fit(federation)
    assert torch.equal(plain.models, Scaffold(local=LOCAL, option="II").fit(federation).models)
    for local in (replace(LOCAL, optimizer="adam"), replace(LOCAL, momentum=0.9)):
        auto = Scaffold(local=local).fit(federation)
        assert torch.equal(auto.models, Scaffold(local=local, option="I").fit(federation).models)
        with pytest.raises(InputError, match="use option='I'"):
            Scaffold(local=local, option="II")


def test_rates_of_a_schedule_are_summed() -> None:
    """With one client c is c_1, so that nothing is corrected: SCAFFOLD is FedAvg."""
    federation = three_clients([12])
    local = replace(LOCAL, schedule="linear")
    result = Scaffold(local=local).fit(federation)
    torch.testing.assert_close(result.models, FedAvg(local=local).fit(federation).models)


def test_the_budget_counts_models_and_control_variates() -> None:
    second, first = (Scaffold(local=LOCAL, option=o).fit(three_clients()) for o in ("II", "I"))
    down = 3 * (2 * 4 - 1)  # the first model and the first correction are the same row, of zeros
    assert second.budget.local_steps == 3 * 12
    assert (second.budget.models_down, second.budget.models_up) == (down, 3 * 4)
    assert first.budget.local_steps == 3 * (12 + 4)
    assert (first.budget.models_down, first.budget.models_up) == (down, 2 * 3 * 4)
    assert Scaffold(local=LOCAL, option="I").trainings == pytest.approx(16 / 12)


@pytest.mark.parametrize("option", ["I", "II"])
def test_a_client_that_does_not_reply_keeps_its_control_variate(option: Any) -> None:
    federation = three_clients()
    per_round = 2 if option == "I" else 1
    lossy = DropByNumber(federation, {per_round: [1]})  # the training of the second round
    result = Scaffold(local=LOCAL, option=option, weighted=False).fit(lossy)
    rounds = [[0, 1, 2], [0, 2], [0, 1, 2], [0, 1, 2]]
    expected = scaffold_by_hand(federation, rounds, option)
    np.testing.assert_allclose(result.models[0].numpy(), expected, rtol=1e-9)


def test_divergence_names_the_client() -> None:
    with pytest.raises(InputError, match="local training diverged for client"):
        Scaffold(local=replace(LOCAL, steps=3000, lr=1e6)).fit(three_clients())
