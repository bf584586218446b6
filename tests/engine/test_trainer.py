"""Batched training against the reference, in double precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from srfca import InputError, Simulation
from srfca.engine.trainer import trainable_parameters
from srfca.federation import Coordinates, Descent, LocalTraining, Posterior
from srfca.models import linear, mlp
from srfca.models.rows import Layout
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import train
from tests.engine.cases import (
    CASES,
    TRAININGS,
    assert_same,
    different_models,
    mixture_of,
    pair,
)


@pytest.mark.parametrize("block_size", [None, 1, 4])
@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("case", CASES)
def test_training_agrees_with_the_reference(
    case: str, training: str, block_size: int | None
) -> None:
    simulation, reference = pair(case, block_size)
    clients, local = [4, 0, 1, 3, 5, 2], TRAININGS[training]
    starts = different_models(reference, 6)
    for number in range(local.rounds):
        key = Key(3, "test", number)
        rows = train(simulation, clients, starts, local, key)
        assert_same(rows, train(reference, clients, starts, local, key))
        assert not torch.equal(rows, starts)


@pytest.mark.parametrize("optimizer", [{"optimizer": "adam"}, {"momentum": 0.9}])
def test_kept_state_agrees_with_the_reference_when_clients_skip_rounds(
    optimizer: dict[str, object],
) -> None:
    simulation, reference = pair("mlp")
    local = replace(
        LocalTraining(steps=9, local_steps=3, batch_size=8, lr=0.05, keep_state=True),
        **optimizer,  # type: ignore[arg-type]
    )
    rows = reference.initial_model(0).repeat(6, 1)
    for number, clients in enumerate([[0, 1, 2, 3], [1, 4, 2], [0, 1, 4, 5]]):
        key = Key(0, "kept", number)
        expected = train(reference, clients, rows[clients], local, key)
        assert_same(train(simulation, clients, rows[clients], local, key), expected)
        rows[clients] = expected
    first = train(simulation, range(6), rows, local, Key(0, "another", 0))
    train(simulation, range(6), rows, local, Key(0, "kept", 0))
    again = train(simulation, range(6), rows, local, Key(0, "another", 0))
    assert torch.equal(first, again), "round 0 begins with no state"


def test_kept_state_survives_trainings_without_state() -> None:
    simulation, reference = pair("mlp")
    local = LocalTraining(steps=6, local_steps=3, batch_size=8, momentum=0.9, keep_state=True)
    rows = reference.initial_model(0).repeat(6, 1)
    expected = train(reference, range(6), rows, local, Key(0, "kept", 0))
    assert_same(train(simulation, range(6), rows, local, Key(0, "kept", 0)), expected)
    for purpose in ("a", "b", "c"):
        train(simulation, range(6), rows, TRAININGS["sgd"], Key(0, purpose))
    assert_same(
        train(simulation, range(6), expected, local, Key(0, "kept", 1)),
        train(reference, range(6), expected, local, Key(0, "kept", 1)),
    )


def test_optimizer_states_of_the_last_trainings_are_kept() -> None:
    simulation, reference = pair("mlp")
    local = LocalTraining(steps=6, local_steps=3, momentum=0.9, keep_state=True)
    rows = reference.initial_model(0).repeat(6, 1)
    for purpose in "abcdef":
        train(simulation, range(6), rows, local, Key(0, purpose))
    assert list(simulation.optimizer_states) == [(0, purpose) for purpose in "cdef"]


@pytest.mark.parametrize("block_size", [None, 1, 4])
@pytest.mark.parametrize("training", ["sgd", "adam", "resampled", "kept"])
@pytest.mark.parametrize("case", CASES)
def test_training_with_a_posterior_agrees_with_the_reference(
    case: str, training: str, block_size: int | None
) -> None:
    simulation, reference = pair(case, block_size)
    with_state = LocalTraining(
        steps=6, local_steps=3, batch_size=8, lr=0.1, momentum=0.9, keep_state=True
    )
    local = TRAININGS.get(training, with_state)
    clients = [4, 4, 0, 1, 1, 5]
    component = torch.tensor([0, 2, 1, 0, 1, 2])
    posterior = Posterior(mixture_of(reference, 6), component)
    algorithm = Descent(posterior=posterior)
    rows = expected = posterior.mixture.models[component]
    for number in range(local.rounds):
        key = Key(3, "test", number)
        expected = train(reference, clients, expected, local, key, algorithm)
        rows = train(simulation, clients, rows, local, key, algorithm)
        assert_same(rows, expected)
    unweighted = train(
        simulation,
        clients,
        posterior.mixture.models[component],
        replace(local, keep_state=False),
        Key(3, "test"),
    )
    assert not torch.allclose(rows, unweighted)


def test_a_component_that_does_not_exist_is_rejected() -> None:
    simulation, reference = pair("mlp")
    mixture = mixture_of(reference, 3)
    algorithm = Descent(posterior=Posterior(mixture, torch.tensor([0, 1, 3])))
    with pytest.raises(InputError, match="component must name one of 3 models"):
        train(simulation, range(3), mixture.models, LocalTraining(), Key(0, "x"), algorithm)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 17), min_size=1, max_size=7),
    batch=st.integers(1, 20),
    steps=st.integers(1, 5),
    block=st.integers(1, 8),
    seed=st.integers(0, 2**31),
)
def test_any_sizes_and_any_block_size(
    sizes: list[int], batch: int, steps: int, block: int, seed: int
) -> None:
    data = examples.classification(sizes)
    model = examples.doubled(mlp(6, 4, 3))
    simulation = Simulation(data, model, block_size=block)
    reference = ReferenceFederation(data, model)
    local = LocalTraining(steps=steps, local_steps=steps, batch_size=batch, lr=0.2)
    starts = different_models(reference, len(sizes))
    rows, expected = (
        train(federation, range(len(sizes)), starts, local, Key(seed, "sizes"))
        for federation in (simulation, reference)
    )
    assert_same(rows, expected)


def test_a_client_draws_the_same_whichever_clients_take_part() -> None:
    simulation, reference = pair("mlp")
    starts, local = different_models(reference, 6), TRAININGS["sgd"]
    together = train(simulation, range(6), starts, local, Key(0, "x", 0))
    alone = train(simulation, [3], starts[3:4], local, Key(0, "x", 0))
    torch.testing.assert_close(together[3:4], alone, rtol=1e-12, atol=1e-12)
    other_purpose = train(simulation, [3], starts[3:4], local, Key(0, "y", 0))
    assert not torch.allclose(alone, other_purpose)


def test_a_block_shrinks_with_the_batch() -> None:
    """On a CPU activations should fit into the cache; convolutional networks train one by one."""
    small = Simulation(examples.classification([3, 3]), mlp(6, 500, 3), device="cpu")
    limit = small._trainer.block_limit
    assert limit(10**6, batch_size=6) > limit(10**6, batch_size=600) >= 1
    assert pair("cnn")[0]._trainer.block_limit(100, batch_size=20) == 1


def test_the_parameters_of_a_phase_are_whole() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)))
    assert trainable_parameters(layout, None) is None
    assert trainable_parameters(layout, Coordinates(((0, 6),))) == frozenset({"0.weight"})
    last = trainable_parameters(layout, Coordinates(((6, 8), (12, 15))))
    assert last == frozenset({"0.bias", "2.weight", "2.bias"})
    with pytest.raises(InputError, match=r"whole parameters.*cut through '0.weight'"):
        trainable_parameters(layout, Coordinates(((0, 5),)))
    buffers = Coordinates(((15, 19),))
    with pytest.raises(InputError, match="at least one parameter"):
        trainable_parameters(layout, buffers)


def test_a_round_past_the_end_is_rejected() -> None:
    simulation = Simulation(examples.regression([5, 6]), linear(4))
    local = LocalTraining(steps=6, local_steps=3)
    with pytest.raises(InputError, match="round 2 is past the end: the training has 2 rounds"):
        train(simulation, [0], simulation.initial_model(0).unsqueeze(0), local, Key(0, "x", 2))
