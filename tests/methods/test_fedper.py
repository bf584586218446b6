"""FedPer: rounds by hand, and where it wins."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from srfca import FedAvg, InputError, Local, LocalTraining, Simulation
from srfca.methods import FedPer
from srfca.models import mlp
from tests.methods.helpers import DropByNumber
from tests.methods.test_fedrep import BODY, HEAD, LOCAL, SIZES, classes, permuted_digits, step


def test_rounds_by_hand() -> None:
    federation = classes()
    w = federation.initial_model(0)
    samples = [federation._samples["train"].of(c) for c in range(3)]
    heads = [w[HEAD].clone() for _ in range(3)]
    for _ in range(2):
        bodies = []
        for client, (x, y) in enumerate(samples):
            row = torch.cat([w[BODY], heads[client]])
            for _ in range(3):
                row = step(row, slice(0, 53), x, y, 0.2)
            heads[client] = row[HEAD]
            bodies.append(row[BODY])
        sizes = torch.tensor([len(y) for _, y in samples]).double()
        w = torch.cat([sizes @ torch.stack(bodies) / sizes.sum(), w[HEAD]])
    result = FedPer(local=LOCAL).fit(federation)
    expected = torch.stack([torch.cat([w[BODY], head]) for head in heads])
    torch.testing.assert_close(result.models[0], w, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(result.client_models, expected, rtol=1e-10, atol=1e-12)


def test_rounds_do_not_interrupt_the_optimizer() -> None:
    """The rounds of a single client are one training, momentum included."""
    local = replace(LOCAL, momentum=0.9)
    rounds, alone = FedPer(local=local).fit(classes([20])), Local(local=local).fit(classes([20]))
    torch.testing.assert_close(rounds.client_models, alone.client_models, rtol=1e-10, atol=1e-12)


def test_the_budget_counts_the_body_alone() -> None:
    spent = FedPer(local=LOCAL).fit(classes()).budget
    assert spent.local_steps == 3 * 6
    assert spent.bytes_up == spent.bytes_down == 2 * 3 * 35 * 8


def test_it_beats_one_model_and_local_models_on_permuted_labels() -> None:
    """The paper's claim: personal layers help where one model cannot serve all clients."""
    federation = Simulation(permuted_digits(), mlp(64, 32, 10))
    local = LocalTraining(steps=200, local_steps=5, batch_size=10, lr=0.5)
    accuracies = []
    for method in (FedPer(local=local), Local(local=local), FedAvg(local=local)):
        accuracy = method.fit(federation).scores(federation).accuracy
        assert accuracy is not None
        accuracies.append(float(accuracy.mean()))
    fedper, alone, one_model = accuracies
    assert fedper > alone + 0.02
    assert fedper > one_model + 0.3


def test_a_client_that_never_replies_has_the_initial_head() -> None:
    federation = classes(SIZES)
    lossy = DropByNumber(federation, {0: [1], 1: [1]})
    result = FedPer(local=LOCAL).fit(lossy)
    initial = federation.initial_model(0)[HEAD]
    assert torch.equal(result.client_models[1, HEAD], initial)
    assert not torch.equal(result.client_models[0, HEAD], initial)


def test_a_model_of_one_layer_is_refused() -> None:
    with pytest.raises(InputError, match="head_layers must be from 1 to 1"):
        FedPer(head_layers=2, local=LOCAL).fit(classes())
