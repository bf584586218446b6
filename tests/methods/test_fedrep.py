"""FedRep: rounds by hand, what stays with the clients, and where it wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from srfca import ClientData, FedAvg, InputError, Local, LocalTraining, Result, Simulation, data
from srfca.data.client_data import Samples
from srfca.federation import Collect, Middleware, Replies, Request, Scores, Train
from srfca.federation.replies import T
from srfca.methods import FedRep
from srfca.models import linear, mlp
from srfca.testing import ReferenceFederation
from tests import examples
from tests.methods.helpers import DropByNumber, scores

SIZES = [20, 30, 12]
LOCAL = LocalTraining(steps=6, local_steps=3, batch_size=None, lr=0.2)
BODY, HEAD = slice(0, 35), slice(35, 53)
"""The two layers of ``mlp(6, 5, 3)``: 6 x 5 + 5 and 5 x 3 + 3 coordinates."""


def classes(sizes: Sequence[int] = SIZES, **options: Any) -> Simulation:
    made = examples.classification(list(sizes))
    return Simulation(made, examples.doubled(mlp(6, 5, 3)), **options)


def step(row: Tensor, part: slice, x: Tensor, y: Tensor, lr: float) -> Tensor:
    """Take a full-batch step along the gradient of some coordinates of a 6-5-3 network."""
    leaf = row.clone().requires_grad_()
    hidden = torch.relu(x @ leaf[:30].view(5, 6).T + leaf[30:35])
    outputs = hidden @ leaf[35:50].view(3, 5).T + leaf[50:]
    nn.functional.cross_entropy(outputs, y).backward()
    assert leaf.grad is not None
    row = row.clone()
    row[part] -= lr * leaf.grad[part]
    return row


def test_rounds_by_hand() -> None:
    federation = classes()
    w = federation.initial_model(0)
    samples = [federation._samples["train"].of(c) for c in range(3)]
    heads = [w[HEAD].clone() for _ in range(3)]
    for _ in range(2):
        bodies = []
        for client, (x, y) in enumerate(samples):
            row = torch.cat([w[BODY], heads[client]])
            for _ in range(2):
                row = step(row, HEAD, x, y, 0.2)
            row = step(row, BODY, x, y, 0.2)
            heads[client] = row[HEAD]
            bodies.append(row[BODY])
        sizes = [len(y) for _, y in samples]
        total = sum(n * body for n, body in zip(sizes, bodies, strict=True)) / sum(sizes)
        w = torch.cat([torch.as_tensor(total), w[HEAD]])
    result = FedRep(local=LOCAL, head_steps=2).fit(federation)
    expected = torch.stack([torch.cat([w[BODY], head]) for head in heads])
    torch.testing.assert_close(result.models[0], w, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(result.client_models, expected, rtol=1e-10, atol=1e-12)
    assert result.labels.tolist() == [0, 0, 0]
    assert not result.clustered


def test_the_body_is_shared_and_heads_differ() -> None:
    result = FedRep(local=LOCAL).fit(classes())
    rows = result.individual_models
    assert rows is not None
    assert torch.equal(rows[:, BODY], rows[:1, BODY].expand(3, -1))
    assert len(torch.unique(rows[:, HEAD], dim=0)) == 3
    plain = FedRep(local=LOCAL, weighted=False).fit(classes())
    assert not torch.allclose(plain.models, result.models)


def test_no_head_steps_leave_the_initial_head() -> None:
    federation = classes()
    result = FedRep(local=LOCAL, head_steps=0).fit(federation)
    initial = federation.initial_model(0)[HEAD]
    assert torch.equal(result.client_models[:, HEAD], initial.expand(3, -1))


def test_the_budget_counts_the_body_alone() -> None:
    method = FedRep(local=LOCAL)
    spent = method.fit(classes()).budget
    assert method.trainings == 1
    assert spent.local_steps == 3 * 6
    assert (spent.models_down, spent.models_up) == (2 * 3, 2 * 3)
    assert spent.bytes_up == spent.bytes_down == 2 * 3 * 35 * 8


def test_the_history_has_the_scores_with_the_clients_heads() -> None:
    federation = classes()
    result = FedRep(local=LOCAL).fit(federation)
    validation = scores(federation, result.client_models, "validation")
    assert result.history[-1].loss == pytest.approx(float(validation.loss.mean()))
    assert result.scores(federation).loss.tolist() == pytest.approx(
        scores(federation, result.client_models).loss.tolist()
    )


def permuted_digits(num_clients: int = 24, groups: int = 4) -> ClientData:
    """Return digits whose labels are permuted, by another permutation in each group."""
    made = data.rotated_digits(num_clients=num_clients, rotations=1)
    g = torch.Generator().manual_seed(0)
    permutations = [torch.randperm(10, generator=g) for _ in range(groups)]

    def permuted(samples: Samples) -> list[tuple[Tensor, Tensor]]:
        pairs = enumerate(samples.of(client) for client in range(num_clients))
        return [(x, permutations[client % groups][y]) for client, (x, y) in pairs]

    assert made.test is not None
    truth = np.arange(num_clients) % groups
    return ClientData.from_arrays(permuted(made.train), permuted(made.test), truth)


def test_it_beats_one_model_and_local_models_on_permuted_labels() -> None:
    """The paper's claim: clients share a representation, and differ in what they make of it."""
    federation = Simulation(permuted_digits(), mlp(64, 32, 10))
    local = LocalTraining(steps=200, local_steps=5, batch_size=10, lr=0.5)
    accuracies = []
    for method in (FedRep(local=local), Local(local=local), FedAvg(local=local)):
        accuracy = method.fit(federation).scores(federation).accuracy
        assert accuracy is not None
        accuracies.append(float(accuracy.mean()))
    fedrep, alone, one_model = accuracies
    assert fedrep > alone + 0.02
    assert fedrep > one_model + 0.3


def test_a_client_that_never_takes_part_has_the_initial_head() -> None:
    federation = classes([20] * 8)
    one_round = replace(LOCAL, steps=3)
    result = FedRep(local=one_round, participation=0.5).fit(federation)
    initial = federation.initial_model(0)[HEAD]
    same = (result.client_models[:, HEAD] == initial).all(1)
    assert int(same.sum()) == 4
    assert result.budget.local_steps == 4 * 3
    assert result.history[-1].loss is not None


def test_missing_replies_do_not_stop_it() -> None:
    """Client 1 never replies: the body is the mean of the others, and it has the initial head."""
    federation = DropByNumber(classes(), {number: [1] for number in range(9)})
    result = FedRep(local=LOCAL).fit(federation)
    rows = result.individual_models
    assert rows is not None
    assert rows.isfinite().all()
    assert torch.equal(rows[1], result.models[0])
    assert torch.equal(rows[1, HEAD], federation.initial_model(0)[HEAD])
    no_replies = DropByNumber(classes(), {number: range(3) for number in range(2)})
    untrained = FedRep(local=LOCAL).fit(no_replies)
    assert torch.equal(untrained.models[0], no_replies.initial_model(0))


class RealClients(Middleware):
    """Do not reply to ``Collect``, as real clients do not."""

    def ask(self, request: Request[T]) -> Replies[T]:
        replies = self.federation.ask(request)
        if isinstance(request, Collect):
            return replies.without(request.clients, "personal coordinates stay with the client")
        return replies


def test_real_clients_keep_their_heads_and_score_with_them(tmp_path: Path) -> None:
    simulation = classes()
    expected = FedRep(local=LOCAL).fit(simulation)
    federation = RealClients(classes())
    result = FedRep(local=LOCAL).fit(federation)
    assert result.individual_models is None
    assert result.personal is not None
    assert torch.equal(result.models, expected.models)
    assert result.history[-1].loss == expected.history[-1].loss
    loaded = Result.load(result.save(tmp_path))
    for outcome in (result, loaded):
        computed = outcome.scores(federation)
        torch.testing.assert_close(computed.loss, expected.scores(simulation).loss)
    with pytest.raises(InputError, match="fine_tune_steps needs the clients' models"):
        FedRep(local=LOCAL, fine_tune_steps=5).fit(federation)


class Killed(BaseException):
    """The process ends here."""


class KilledAfter(Middleware):
    """Answer a number of requests, then end the process."""

    def __init__(self, federation: Simulation, count: int) -> None:
        super().__init__(federation)
        self.count = count

    def ask(self, request: Request[T]) -> Replies[T]:
        if self.count == 0:
            raise Killed
        self.count -= 1
        return self.federation.ask(request)


def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """Heads are not in the journal: before the first new request, earlier rounds train again."""
    local = LocalTraining(steps=9, local_steps=3, batch_size=5, lr=0.2)
    method = FedRep(local=local, participation=0.7, fine_tune_steps=5)
    complete = DropByNumber(classes())
    expected = method.fit(complete, seed=3)
    kinds = [type(request) for request in complete.requests[:5]]
    assert kinds == [Train, Train, Train, Scores, Collect]
    for count in range(len(complete.requests)):
        folder = tmp_path / str(count)
        with pytest.raises(Killed):
            method.fit(KilledAfter(classes(), count), seed=3, journal=folder)
        result = method.fit(classes(), seed=3, journal=folder)
        assert torch.equal(result.models, expected.models)
        assert torch.equal(result.client_models, expected.client_models)
        assert torch.equal(result.final_models, expected.final_models)
        assert [s.budget for s in result.history] == [s.budget for s in expected.history]
        assert [s.loss for s in result.history] == [s.loss for s in expected.history]


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_same_seed_same_result_as_the_reference(participation: float) -> None:
    made = examples.classification([20 + i % 3 for i in range(6)])
    model = examples.doubled(mlp(6, 5, 4, 3))
    local = LocalTraining(steps=12, local_steps=4, batch_size=8, lr=0.2, momentum=0.5)
    method = FedRep(head_layers=2, head_steps=3, participation=participation, local=local)
    expected = method.fit(ReferenceFederation(made, model), seed=2)
    for block_size in (1, 4):
        result = method.fit(Simulation(made, model, block_size=block_size), seed=2)
        torch.testing.assert_close(result.models, expected.models, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            result.client_models, expected.client_models, rtol=1e-9, atol=1e-9
        )
    other = method.fit(Simulation(made, model), seed=3)
    assert not torch.allclose(result.client_models, other.client_models)


def test_buffers_belong_to_the_body() -> None:
    made = examples.classification([20] * 4, (1, 6, 6))
    federation = Simulation(made, examples.batch_normed)
    result = FedRep(local=replace(LOCAL, batch_size=5)).fit(federation)
    head = list(federation.layers.values())[-1]
    rows = result.client_models
    buffers = slice(head.stop, None)
    assert torch.equal(rows[:, buffers], rows[:1, buffers].expand(4, -1))
    assert not torch.equal(rows[0, buffers], federation.initial_model(0)[buffers])
    assert len(torch.unique(rows[:, head], dim=0)) == 4


def test_a_round_may_have_more_steps_than_the_local_ones() -> None:
    """Two rounds of 7 + 2 steps are those of a training of 18 steps, 9 in a round."""
    long = FedRep(local=LOCAL, head_steps=7, body_steps=2)
    inside = FedRep(local=replace(LOCAL, steps=18, local_steps=9), head_steps=7)
    result, expected = long.fit(classes()), inside.fit(classes())
    assert torch.equal(result.client_models, expected.client_models)
    assert result.budget.local_steps == 3 * 18
    assert long.trainings == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("head_layers", 0), ("head_steps", -1), ("head_steps", 5), ("participation", 0.0),
        ("fine_tune_steps", -1),
    ],
)  # fmt: skip
def test_wrong_values_are_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=name):
        FedRep(**{name: value})


def test_values_that_do_not_fit_the_federation_are_refused() -> None:
    with pytest.raises(InputError, match="head_layers must be from 1 to 1 for a model of 2 layers"):
        FedRep(head_layers=2, local=LOCAL).fit(classes())
    flat = Simulation(examples.classification(SIZES), linear(6, 3))
    with pytest.raises(InputError, match=r"head_layers must be .* a model of 1 layer"):
        FedRep(local=LOCAL).fit(flat)
    with pytest.raises(InputError, match="keep_state and phases do not go together"):
        FedRep(local=replace(LOCAL, keep_state=True)).fit(classes())


def test_divergence_names_the_client() -> None:
    with pytest.raises(InputError, match="local training diverged for client"):
        FedRep(local=replace(LOCAL, steps=300, lr=1e30)).fit(classes())
