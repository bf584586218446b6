"""A simulation: what it makes of data, model and options, and what it rejects."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from srfca import InputError, Simulation
from srfca.data import ClientData
from srfca.federation import Coordinates, Descent, LocalTraining, Mixture, Phase, Round
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.asking import gradients, losses, positions, scores, shares, train
from tests.engine.cases import TRAININGS, UNEQUAL, pair


def test_the_reason_why_a_module_is_not_batched() -> None:
    assert pair("mlp")[0].traits.batchable
    assert "lstm" in pair("lstm")[0].traits.not_batchable_reason
    assert pair("stepped lstm")[0].traits.together
    assert "random" in pair("dropout")[0].traits.not_batchable_reason
    assert "one by one" in repr(pair("dropout")[0])


def test_batch_norm_is_detected() -> None:
    traits = pair("batch norm")[0].traits
    assert traits.mixes_samples
    assert traits.updates_buffers
    assert not pair("cnn")[0].traits.mixes_samples


class ZeroHead(nn.Module):
    """Dropout that does not show in the outputs of the initial model."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.last(functional.dropout(self.first(x), 0.5, self.training)))


def test_dropout_is_detected_where_it_does_not_show() -> None:
    simulation = Simulation(examples.classification(UNEQUAL), ZeroHead)
    assert simulation.traits.random
    starts = simulation.initial_model(0).repeat(6, 1)
    first, second = (
        train(simulation, range(6), starts, TRAININGS["sgd"], Key(0, "x")) for _ in range(2)
    )
    assert torch.equal(first, second)
    with pytest.raises(InputError, match="draws random numbers"):
        gradients(simulation, range(6), starts)


def test_a_module_that_mixes_samples_in_evaluation_is_rejected() -> None:
    normed = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(InputError, match="must keep running statistics"):
        Simulation(examples.classification(UNEQUAL), normed)


def test_a_factory_may_return_the_same_module_every_time() -> None:
    net = nn.Linear(6, 3)
    before = net.weight.detach().clone()
    simulation = Simulation(examples.classification(UNEQUAL), lambda: net)
    simulation.module(torch.zeros_like(simulation.initial_model(0)))
    assert torch.equal(net.weight, before)


def test_a_callable_loss_and_a_module_as_start() -> None:
    def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.squeeze(1) - targets).abs()

    torch.manual_seed(5)
    start = nn.Linear(4, 1)
    data = examples.regression(UNEQUAL)
    simulation = Simulation(data, start, loss=absolute)
    assert torch.equal(simulation.initial_model(0), simulation.initial_model(7))
    row = simulation.initial_model(0)
    assert data.test is not None
    x, y = data.test.of(2)
    expected = absolute(start(x), y).mean().item()
    loss = scores(simulation, [2], row.unsqueeze(0)).loss.item()
    assert loss == pytest.approx(expected, rel=1e-5)
    assert torch.equal(simulation.module(row)(x), start(x))


def test_the_seed_decides_the_initial_model() -> None:
    simulation = pair("mlp")[0]
    assert torch.equal(simulation.initial_model(1), simulation.initial_model(1))
    assert not torch.equal(simulation.initial_model(1), simulation.initial_model(2))


def test_a_tenth_of_the_samples_is_held_out() -> None:
    data = examples.classification([30, 10, 2])
    simulation = Simulation(data, mlp(6, 4, 3))
    assert simulation.sizes.tolist() == [27, 9, 1]
    assert simulation.sizes_of("validation").tolist() == [3, 1, 1]
    samples = simulation._samples
    for client in range(3):
        x, _ = data.train.of(client)
        parts = [samples[split].of(client)[0] for split in ("train", "validation")]
        assert sorted(map(tuple, torch.cat(parts).tolist())) == sorted(map(tuple, x.tolist()))
    other_seed = Simulation(data, mlp(6, 4, 3), seed=1)
    assert not torch.equal(other_seed._samples["validation"].x, samples["validation"].x)
    nothing_held_out = Simulation(data, mlp(6, 4, 3), validation=0)
    assert nothing_held_out.sizes.tolist() == [30, 10, 2]
    assert "validation" not in nothing_held_out.splits


def test_wrong_options_are_named() -> None:
    data = examples.classification([5, 6])
    with pytest.raises(InputError, match="does not take samples of shape"):
        Simulation(data, mlp(7, 3))
    with pytest.raises(InputError, match=r"client '0' has the label 2.*classes 0 to 1"):
        Simulation(data, mlp(6, 2))
    with pytest.raises(InputError, match=r"loss 'cross_entrophy'.*'cross_entropy'"):
        Simulation(data, mlp(6, 3), loss="cross_entrophy")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="integer labels"):
        Simulation(examples.regression([5]), linear(4), loss="cross_entropy")
    with pytest.raises(InputError, match="device 'gpu'"):
        Simulation(data, mlp(6, 3), device="gpu")
    with pytest.raises(InputError, match="block_size"):
        Simulation(data, mlp(6, 3), block_size=0)
    with pytest.raises(InputError, match="validation must be in"):
        Simulation(data, mlp(6, 3), validation=1.0)
    with pytest.raises(InputError, match="one value for each"):
        Simulation(data, mlp(6, 3), loss=lambda outputs, targets: outputs.mean())
    with pytest.raises(InputError, match=r"'1' has one training sample"):
        Simulation(examples.classification([5, 1]), mlp(6, 3))
    with pytest.raises(InputError, match=r"2 clients, such as '1', have one training sample"):
        Simulation(examples.classification([5, 1, 1]), mlp(6, 3))
    with pytest.raises(InputError, match="precision"):
        Simulation(data, mlp(6, 3), precision="fp8")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="compile is for a GPU"):
        Simulation(data, mlp(6, 3), compile=True, device="cpu")


def test_modules_that_do_not_fit_are_named() -> None:
    data = examples.classification([5, 6])

    class TwoInputs(nn.Linear):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x * mask)

    with pytest.raises(InputError, match=r"does not take samples.*TypeError"):
        Simulation(data, TwoInputs(6, 3))
    with pytest.raises(InputError, match="no parameters"):
        Simulation(data, nn.Flatten())


def test_wrong_requests_are_named() -> None:
    data = examples.classification([5, 6])
    simulation = Simulation(data, mlp(6, 3))
    w0, key = simulation.initial_model(0).unsqueeze(0), Key(0, "x")
    with pytest.raises(InputError, match="rows of shape"):
        train(simulation, [0], torch.zeros(1, 3), LocalTraining(), key)
    corrections = Descent(corrections=torch.zeros(1, 3))
    with pytest.raises(InputError, match="rows of shape"):
        train(simulation, [0], w0, LocalTraining(), key, corrections)
    with pytest.raises(InputError, match="numbered 0 to 1"):
        losses(simulation, [2], w0)
    with pytest.raises(InputError, match=r"models must have the shape \(k, 21\), not \(1, 20\)"):
        losses(simulation, [0], w0[:, 1:])
    with pytest.raises(InputError, match=r"models must have the shape \(k, 21\), not \(1, 20\)"):
        shares(simulation, [0], Mixture(w0[:, 1:], torch.ones(1, 1)))
    with pytest.raises(InputError, match="personal coordinates end at 22, but rows have 21"):
        train(simulation, [0], w0, LocalTraining(), key, personal=Coordinates(((20, 22),)))
    too_long, whole_row = (Descent(phases=(Phase(Coordinates(((0, n),))),)) for n in (22, 21))
    with pytest.raises(InputError, match="coordinates of a phase end at 22, but rows have 21"):
        train(simulation, [0], w0, LocalTraining(), key, too_long)
    with pytest.raises(InputError, match="keep_state and phases"):
        train(simulation, [0], w0, LocalTraining(keep_state=True), key, whole_row)
    with pytest.raises(InputError, match="a simulation does not answer 'round'"):
        simulation.ask(Round(positions([0]), w0, positions([0]), LocalTraining(), key))
    bare = Simulation(ClientData.from_arrays([data.train.of(0)]), mlp(6, 3))
    with pytest.raises(InputError, match="no test data"):
        scores(bare, [0], bare.initial_model(0).unsqueeze(0))


@pytest.mark.parametrize("shape", [(3,), (1, 5), (0,)])
def test_a_row_of_a_wrong_length_is_no_module(shape: tuple[int, ...]) -> None:
    federation = Simulation(examples.regression([20] * 2), linear(4))
    with pytest.raises(InputError, match=r"a row of this model has the shape \(5,\), not"):
        federation.module(torch.zeros(shape))
