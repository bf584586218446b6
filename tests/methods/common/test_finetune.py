"""Fine-tuning: each client keeps the model that does best on its held-out data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import FedAvg, InputError, LocalTraining, Partition, Result, Simulation
from srfca.federation import ClientScores, Middleware, Replies, Request, Scores, Train
from srfca.federation.replies import T
from srfca.methods import METHODS, Run
from srfca.methods._common.finetune import fine_tune
from srfca.models import linear, mlp
from tests import examples
from tests.methods.helpers import DropByNumber, NoTestData, scores

LOCAL = LocalTraining(steps=4, local_steps=2, batch_size=None, lr=0.05)


def classes() -> Simulation:
    made = replace(examples.classification([20] * 6), truth=Partition([0, 1] * 3))
    return Simulation(made, examples.doubled(mlp(6, 5, 3)))


def two_regressions() -> Simulation:
    return Simulation(examples.regression([20, 20], d=3), examples.doubled(linear(3, bias=False)))


@pytest.mark.parametrize("key", METHODS.keys())
def test_every_method_fine_tunes_without_test_data(key: str, tmp_path: Path) -> None:
    federation = classes()
    kind = METHODS[key]
    parameters: dict[str, Any] = {"truth": federation.data.truth} if kind.needs_truth else {}
    parameters |= {"k": 2} if kind.needs_k else {}
    parameters |= {"start": "clients"} if key == "ifca" else {}
    local = LocalTraining(steps=4, local_steps=2, batch_size=5, lr=0.05)
    method = kind(local=local, fine_tune_steps=20, **parameters)
    result = method.fit(NoTestData(federation), seed=1)
    plain = replace(method, fine_tune_steps=0).fit(NoTestData(federation), seed=1)
    torch.testing.assert_close(result.client_models, plain.client_models)
    tuned = result.fine_tuned_models
    assert tuned is not None
    before = scores(federation, result.client_models, "validation").loss
    after = scores(federation, tuned, "validation").loss
    assert bool((after <= before).all())
    stage = result.history[-1]
    assert stage.name == "FINE_TUNE"
    changed = (tuned != result.client_models).any(1).tolist()
    assert [steps > 0 for steps in stage.notes["steps"]] == changed
    assert stage.budget.local_steps == 6 * 20
    assert stage.budget.models_up == 0, "fine-tuned models stay with the clients"
    loaded = Result.load(result.save(tmp_path))
    assert torch.equal(loaded.client_models, result.client_models)
    assert loaded.fine_tuned_models is not None
    assert torch.equal(loaded.fine_tuned_models, tuned)


def test_a_client_that_fine_tuning_would_hurt_keeps_its_model() -> None:
    """Client 0 has its minimum on validation data, client 1 a bad model."""
    federation = two_regressions()
    x, y = federation._samples["validation"].of(0)
    best = torch.linalg.lstsq(x, y.unsqueeze(1)).solution[:, 0]
    models = torch.stack([best, torch.full((3,), 9.0).double()])
    run = Run(federation)
    tuned, _ = fine_tune(run, np.array([0, 0]), models, np.arange(2), LOCAL, steps=20)
    assert torch.equal(tuned[0], models[0])
    assert run.history[-1].notes["steps"][0] == 0
    assert run.history[-1].notes["steps"][1] > 0
    loss = scores(federation, tuned, "validation").loss
    assert float(loss[1]) < float(scores(federation, models, "validation").loss[1])


class Scripted(Middleware):
    """Training adds 1 to a row; what the validation data say of a row is in a table."""

    script: ClassVar = {0: [5.0, 5.0], 1: [4.0, 5.0], 2: [6.0, 5.0], 3: [4.0, 5.0], 4: [7.0, 4.9]}

    def ask(self, request: Request[T]) -> Replies[T]:
        values: Any
        if isinstance(request, Train):
            values = request.starts + 1
        else:
            assert isinstance(request, Scores)
            assert request.split == "validation"
            assert isinstance(request.models, Tensor)
            trained = [min(int(row[0]), 4) for row in request.models]
            loss = torch.tensor([self.script[steps][c] for c, steps in enumerate(trained)])
            values = ClientScores(loss, None, torch.ones(2))
        return Replies(request.clients, values)


def test_a_client_takes_the_fewest_of_the_best_steps() -> None:
    run = Run(Scripted(two_regressions()))
    models = torch.zeros(2, 3)
    tuned, steps = fine_tune(run, np.array([0, 0]), models, np.arange(2), LOCAL, steps=40)
    assert tuned[:, 0].tolist() == [1.0, 4.0]
    assert run.history[-1].notes["steps"] == steps.tolist() == [4, 16], "checks are 4 steps apart"
    assert run.history[-1].notes["losses"][:5] == pytest.approx([5.0, 4.5, 5.5, 4.5, 5.95])


def test_fine_tuning_that_diverges_costs_a_client_nothing() -> None:
    """Client 0 has inputs so large that its steps explode; client 1 gets better."""
    made = examples.regression([20, 20], d=3)
    large = torch.where(torch.arange(40) < 20, 1e9, 1.0).double().unsqueeze(1)
    inputs = replace(made.train, x=made.train.x * large)
    federation = Simulation(replace(made, train=inputs), examples.doubled(linear(3, bias=False)))
    models = torch.full((2, 3), 9.0).double()
    labels = np.array([0, 0])
    tuned, steps = fine_tune(Run(federation), labels, models, np.arange(2), LOCAL, steps=200)
    assert torch.equal(tuned[0], models[0])
    assert steps[0] == 0 < steps[1]
    assert bool(torch.isfinite(tuned).all())


def test_only_clients_with_a_model_fine_tune() -> None:
    run = Run(two_regressions())
    models = torch.tensor([[torch.nan] * 3, [9.0] * 3]).double()
    tuned, steps = fine_tune(run, np.array([-1, 0]), models, np.array([1]), LOCAL, steps=20)
    assert tuned[0].isnan().all()
    assert steps[0] == 0 < steps[1]
    assert run.federation.spent.local_steps == 20


def test_missing_replies_leave_a_client_with_its_model() -> None:
    """The first request is for scores; requests 1, 3, ... train, and 2, 4, ... score."""
    models = torch.full((2, 3), 9.0).double()
    labels, everyone = np.array([0, 0]), np.arange(2)
    expected, _ = fine_tune(Run(two_regressions()), labels, models, everyone, LOCAL, steps=20)
    never = DropByNumber(two_regressions(), {number: [0] for number in range(1, 99)})
    tuned, steps = fine_tune(Run(never), labels, models, everyone, LOCAL, steps=20)
    assert torch.equal(tuned[0], models[0])
    assert steps[0] == 0
    assert torch.equal(tuned[1], expected[1]), "the other client is unaffected"


def test_fine_tuning_has_a_learning_rate_of_its_own() -> None:
    federation = Simulation(examples.regression([20, 20], d=3), examples.doubled(linear(3)))
    method = FedAvg(local=LOCAL, fine_tune_steps=20, fine_tune_lr=0.003)
    slow, usual = method.fit(federation), replace(method, fine_tune_lr=None).fit(federation)
    expected, _ = fine_tune(
        Run(federation), slow.labels, slow.client_models, np.arange(2), replace(LOCAL, lr=0.003),
        steps=20,
    )  # fmt: skip
    assert slow.fine_tuned_models is not None
    assert usual.fine_tuned_models is not None
    assert torch.equal(slow.fine_tuned_models, expected)
    assert not torch.equal(slow.fine_tuned_models, usual.fine_tuned_models)


class NoTraining(Middleware):
    def ask(self, request: Request[T]) -> Replies[T]:
        raise AssertionError("refused before any client trains")


def test_fine_tuning_needs_validation_data() -> None:
    federation = Simulation(examples.regression([6, 9], d=3), linear(3), validation=0)
    with pytest.raises(InputError, match="fine_tune_steps needs held-out data"):
        FedAvg(local=LOCAL, fine_tune_steps=5).fit(NoTraining(federation))
