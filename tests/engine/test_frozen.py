"""Frozen parts of a model: held once, never sent, never changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from srfca import FedAvg, Simulation
from srfca.federation import Counting, LocalTraining, Train
from srfca.models.rows import frozen_names, frozen_tensors
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import gradients, losses, positions, scores, train
from tests.engine.cases import assert_same

DATA = examples.classification([12, 9, 14, 10])
LOCAL = LocalTraining(steps=6, local_steps=3, batch_size=5, lr=0.1, momentum=0.9)


def backbone(*, frozen: bool = True) -> nn.Sequential:
    """A body with BatchNorm, frozen or not, and a head."""
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    body.requires_grad_(not frozen)
    return nn.Sequential(body, nn.ReLU(), nn.Linear(4, 3))


def with_dropout() -> nn.Module:
    """A frozen BatchNorm, and dropout before the head."""
    return nn.Sequential(backbone()[0], nn.Dropout(0.5), nn.Linear(4, 3))


def half_frozen() -> nn.Module:
    """The weights of a BatchNorm are frozen, its bias is trained: its statistics are trained."""
    module = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    module[0].requires_grad_(False)
    module[1].weight.requires_grad_(False)
    return module


MODELS: dict[str, Callable[[], nn.Module]] = {
    "backbone": backbone,
    "with dropout": with_dropout,
    "half frozen": half_frozen,
    "frozen": examples.Frozen,
}


@pytest.mark.parametrize("block_size", [None, 1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_training_agrees_with_the_reference(name: str, block_size: int | None) -> None:
    model = examples.doubled(MODELS[name])
    simulation = Simulation(DATA, model, block_size=block_size)
    reference = ReferenceFederation(DATA, model)
    rows = torch.stack([reference.initial_model(seed) for seed in range(4)])
    for number in range(LOCAL.rounds):
        expected = train(reference, range(4), rows, LOCAL, Key(0, "x", number))
        assert_same(train(simulation, range(4), rows, LOCAL, Key(0, "x", number)), expected)
        rows = expected
    assert_same(*(losses(f, range(4), rows) for f in (simulation, reference)))
    assert_same(*(scores(f, range(4), rows).loss for f in (simulation, reference)))
    if name in ("backbone", "frozen"):
        assert_same(*(gradients(f, range(4), rows) for f in (simulation, reference)))


def test_the_length_of_a_row_and_the_bytes_are_those_of_the_head() -> None:
    simulation = Counting(Simulation(DATA, backbone))
    head = 4 * 3 + 3
    assert len(simulation.initial_model(0)) == head
    assert dict(simulation.layers) == {"2": slice(0, head)}
    starts = simulation.initial_model(0).repeat(4, 1)
    simulation.ask(Train(positions(range(4)), starts, LOCAL, Key(0, "x")))
    assert simulation.spent.bytes_down == simulation.spent.bytes_up == 4 * head * 4
    complete = Simulation(DATA, lambda: backbone(frozen=False))
    assert len(complete.initial_model(0)) == head + (6 * 8 + 8) + 2 * 8 + (8 * 4 + 4) + 2 * 8


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("name", MODELS)
def test_frozen_tensors_never_change(name: str) -> None:
    """Not by training, by gradients or by evaluation; a frozen BatchNorm has no new statistics."""
    simulation = Simulation(DATA, MODELS[name], block_size=2)
    module = simulation._network.module
    before = {key: tensor.clone() for key, tensor in frozen_tensors(module).items()}
    starts = simulation.initial_model(0).repeat(4, 1)
    rows = train(simulation, range(4), starts, LOCAL, Key(0, "x"))
    if not simulation.traits.updates_buffers and not simulation.traits.random:
        gradients(simulation, range(4), rows)
    losses(simulation, range(4), rows)
    scores(simulation, range(4), rows)
    copies = [worker._network.module for worker in simulation._trainer._executor._workers]
    for used in (module, *copies):
        after = frozen_tensors(used)
        assert list(after) == list(before)
        assert all(torch.equal(after[key], before[key]) for key in before)


def test_a_copy_of_the_network_shares_frozen_tensors_alone() -> None:
    network = Simulation(DATA, backbone)._network
    copied = network.copy()
    frozen = frozen_names(network.module)
    assert set(frozen) == set(frozen_names(copied.module))
    assert len(frozen) == 2 + 4 + 2
    original, other = (
        dict(module.named_parameters()) | dict(module.named_buffers())
        for module in (network.module, copied.module)
    )
    for name in frozen:
        assert other[name] is original[name] or other[name].data_ptr() == original[name].data_ptr()
    for name in ("2.weight", "2.bias"):
        assert other[name].data_ptr() != original[name].data_ptr()


def test_a_frozen_batch_norm_does_not_mix_samples() -> None:
    assert not Simulation(DATA, backbone).traits.mixes_samples
    assert not Simulation(DATA, backbone).traits.updates_buffers
    assert Simulation(DATA, backbone).traits.together
    assert Simulation(DATA, lambda: backbone(frozen=False)).traits.mixes_samples
    assert Simulation(DATA, half_frozen).traits.mixes_samples


def test_a_module_of_a_row_has_the_frozen_part() -> None:
    simulation = Simulation(DATA, backbone)
    row = simulation.initial_model(3)
    module = simulation.module(row)
    before = snapshot(simulation._network.module)
    for name in frozen_names(module):
        assert torch.equal(module.state_dict()[name], before[name])
    assert torch.equal(simulation._layout.row(module), row)


def test_the_fingerprint_depends_on_the_frozen_part() -> None:
    torch.manual_seed(0)
    first, second = backbone(), backbone()
    second.load_state_dict(first.state_dict())
    assert Simulation(DATA, first).fingerprint() == Simulation(DATA, second).fingerprint()
    second.get_parameter("2.weight").data += 1
    assert Simulation(DATA, first).fingerprint() == Simulation(DATA, second).fingerprint()
    second.get_parameter("0.0.weight").data += 1
    assert Simulation(DATA, first).fingerprint() != Simulation(DATA, second).fingerprint()


def test_a_method_trains_the_head_of_a_frozen_backbone() -> None:
    result = FedAvg(local=LOCAL).fit(Simulation(DATA, backbone))
    assert result.models.shape == (1, 15)
