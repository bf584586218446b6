"""Corrections, phases and anchors against the reference, on random input, with every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import Simulation, progress
from srfca.data import ClientData
from srfca.engine import executor
from srfca.errors import InputError
from srfca.federation import Coordinates, Descent, Federation, LocalTraining, Phase, Posterior
from srfca.models import linear
from srfca.models.rows import Layout, make_module
from srfca.random import Key
from srfca.registry import is_installed
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import train
from tests.engine.cases import CASES, assert_same, different_models, mixture_of, pair

BACKENDS = ("numba", "dense", "autograd") if is_installed("numba") else ("dense", "autograd")

TRAININGS = st.builds(
    LocalTraining,
    steps=st.integers(2, 9),
    local_steps=st.integers(1, 5),
    batch_size=st.one_of(st.none(), st.integers(1, 12)),
    lr=st.floats(0.001, 0.2),
    weight_decay=st.sampled_from([0.0, 0.1]),
    mu=st.sampled_from([0.0, 0.5]),
    label_smoothing=st.sampled_from([0.0, 0.2]),
    clip=st.sampled_from([None, 0.2, 100.0]),
    schedule=st.sampled_from(["constant", "cosine"]),
    resample=st.booleans(),
)
OPTIMIZERS = st.sampled_from([{}, {"momentum": 0.9}, {"optimizer": "adam"}])


def layers(widths: Sequence[int], backend: str) -> Callable[[], nn.Module]:
    """A dense network in double precision; ReLU6 is not in the dense backend."""
    activation = nn.ReLU6 if backend == "autograd" else nn.ReLU

    def make() -> nn.Module:
        parts: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            parts += [nn.Linear(inputs, outputs), activation()]
        return nn.Sequential(*parts[:-1])

    return examples.doubled(make)


def simulation(
    backend: str, data: ClientData, model: Callable[[], nn.Module], block_size: int | None
) -> Simulation:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(executor, "_NUMBA", backend == "numba")
        federation = Simulation(data, model, device="cpu", block_size=block_size)
    assert federation._trainer._executor.uses_numba == (backend == "numba")
    assert (type(federation._network).__name__ == "Network") == (backend == "autograd")
    return federation


@st.composite
def phases_of(
    draw: st.DrawFn, names: Sequence[str], steps: int
) -> list[tuple[set[str], int | None]]:
    """Names of parameters that train, and steps; the last phase has the rest of the round."""
    count = draw(st.integers(0, 3))
    some_names = st.sets(st.sampled_from(names), min_size=1)
    lengths = [draw(st.integers(1, steps)) for _ in range(count - 1)]
    return [(draw(some_names), length) for length in [*lengths, None][:count]]


def coordinates_of(layout: Layout, names: set[str]) -> Coordinates:
    ranges, start = [], 0
    for name, shape in layout.shapes.items():
        stop = start + shape.numel()
        if name in names:
            ranges.append((start, stop))
        start = stop
    return Coordinates(tuple(ranges))


@settings(deadline=None, max_examples=100)
@given(
    data=st.data(),
    backend=st.sampled_from(BACKENDS),
    hidden=st.lists(st.integers(1, 5), max_size=2),
    local=TRAININGS,
    optimizer=OPTIMIZERS,
    keep_state=st.booleans(),
    sizes=st.lists(st.integers(2, 17), min_size=1, max_size=5),
    block_size=st.sampled_from([None, 1, 3]),
    corrected=st.booleans(),
    anchored=st.booleans(),
)
def test_descent_agrees_with_the_reference(
    data: st.DataObject,
    backend: str,
    hidden: list[int],
    local: LocalTraining,
    optimizer: dict[str, object],
    keep_state: bool,
    sizes: list[int],
    block_size: int | None,
    corrected: bool,
    anchored: bool,
) -> None:
    widths = [6, *hidden, 3] if hidden or backend != "autograd" else [6, 4, 3]
    clients_data, model = examples.classification(sizes), layers(widths, backend)
    reference = ReferenceFederation(clients_data, model)
    federation = simulation(backend, clients_data, model, block_size)
    names = data.draw(phases_of(reference.layout.parameters, local.local_steps))
    phases = tuple(
        Phase(coordinates_of(reference.layout, chosen), steps) for chosen, steps in names
    )
    local = LocalTraining(**{**vars(local), **optimizer, "keep_state": keep_state and not phases})
    rows = expected = random_rows(reference, len(sizes), seed=1)
    algorithm = Descent(
        anchors=random_rows(reference, len(sizes), seed=2) if anchored else None,
        corrections=0.3 * random_rows(reference, len(sizes), seed=3) if corrected else None,
        phases=phases,
    )
    for number in range(local.rounds):
        key, reported = Key(3, "descent", number), list[int]()
        expected = train(reference, range(len(sizes)), expected, local, key, algorithm)
        with progress.reporting_to(reported.append):
            rows = train(federation, range(len(sizes)), rows, local, key, algorithm)
        assert sum(reported) == len(sizes) * len(local.span(number))
        torch.testing.assert_close(rows, expected, rtol=1e-8, atol=1e-9)


def random_rows(reference: ReferenceFederation, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, reference.layout.length, generator=generator).double()
    return reference.initial_model(0) + 0.1 * noise


OTHER_OPTIMIZERS: list[dict[str, object]] = [
    {},
    {"momentum": 0.9},
    {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.1},
]
"""Without weight decay Adam would amplify rounding: a bias before a BatchNorm has no gradient."""
MODULES = [case for case in CASES if case not in ("linear", "mlp", "summed", "stepped lstm")]


@pytest.mark.parametrize("block_size", [None, 1, 4])
@pytest.mark.parametrize("optimizer", OTHER_OPTIMIZERS)
@pytest.mark.parametrize("case", MODULES)
def test_other_modules_agree_with_the_reference(
    case: str, optimizer: dict[str, object], block_size: int | None
) -> None:
    federation, reference = pair(case, block_size)
    local = LocalTraining(
        **{"steps": 7, "local_steps": 4, "batch_size": 8, "mu": 0.3, "clip": 0.5, **optimizer}  # type: ignore[arg-type]
    )
    clients = [4, 0, 1, 3, 5, 2]
    first, *rest = reference.layers
    phases = (
        Phase(Coordinates.of_layers(reference.layers, rest), 1),
        Phase(Coordinates.of_layers(reference.layers, [first]), 2),
        Phase(Coordinates.of_layers(reference.layers, reference.layers)),
    )
    starts = different_models(reference, 6)
    corrections = 0.1 * different_models(reference, 6)
    for algorithm in (
        Descent(phases=phases),
        Descent(corrections=corrections),
        Descent(phases=phases, corrections=corrections, anchors=starts.flip(0)),
    ):
        for number in range(local.rounds):
            key = Key(3, "descent", number)
            rows = train(federation, clients, starts, local, key, algorithm)
            assert_same(rows, train(reference, clients, starts, local, key, algorithm))


@pytest.mark.parametrize("case", ["mlp", "frozen", "cnn"])
def test_phases_and_corrections_go_with_a_posterior(case: str) -> None:
    federation, reference = pair(case)
    local = LocalTraining(steps=4, local_steps=4, batch_size=8, lr=0.1)
    component = torch.tensor([0, 2, 1])
    mixture = mixture_of(reference, 3)
    last = list(reference.layers)[-1]
    algorithm = Descent(
        posterior=Posterior(mixture, component),
        phases=(Phase(Coordinates.of_layers(reference.layers, [last])),),
        corrections=0.1 * different_models(reference, 3),
    )
    rows, expected = (
        train(f, [1, 1, 4], mixture.models[component], local, Key(0, "x"), algorithm)
        for f in (federation, reference)
    )
    assert_same(rows, expected)


@pytest.mark.parametrize("case", ["mlp", "batch norm"])
def test_coordinates_out_of_the_phase_do_not_change(case: str) -> None:
    federation, reference = pair(case)
    local = LocalTraining(steps=3, local_steps=3, momentum=0.9, weight_decay=0.1, mu=0.1)
    head = Coordinates.of_layers(reference.layers, [list(reference.layers)[-1]])
    starts = different_models(reference, 6)
    algorithm = Descent(phases=(Phase(head),), corrections=starts)
    rows = train(federation, range(6), starts, local, Key(0, "x"), algorithm)
    changed = (rows != starts).any(0)
    parameters = torch.cat(
        [
            torch.full((shape.numel(),), name in reference.layout.parameters)
            for name, shape in reference.layout.shapes.items()
        ]
    )
    assert torch.equal(changed & parameters, head.mask(len(changed)))
    assert bool((changed & ~parameters).any()) == (case == "batch norm"), "statistics always train"


def test_corrections_are_a_linear_term_of_the_loss() -> None:
    """SGD with a correction c moves by an additional ``-lr * c`` in a step."""
    federation, reference = pair("mlp")
    local = LocalTraining(steps=1, local_steps=1, batch_size=None, lr=0.1)
    starts = different_models(reference, 6)
    corrections = torch.randn(starts.shape, generator=torch.Generator().manual_seed(0)).double()
    plain, corrected = (
        train(federation, range(6), starts, local, Key(0, "x"), algorithm)
        for algorithm in (Descent(), Descent(corrections=corrections))
    )
    torch.testing.assert_close(corrected, plain - 0.1 * corrections)


def test_a_phase_of_everything_is_plain_descent() -> None:
    federation, reference = pair("mlp")
    local = LocalTraining(steps=4, local_steps=4, batch_size=8, optimizer="adam")
    starts = different_models(reference, 6)
    everything = Coordinates(((0, starts.shape[1]),))
    plain, phased = (
        train(federation, range(6), starts, local, Key(0, "x"), Descent(phases=phases))
        for phases in ((), (Phase(everything),))
    )
    assert torch.equal(plain, phased)


def test_the_optimizer_restarts_in_each_phase() -> None:
    federation, reference = pair("mlp")
    local = LocalTraining(steps=4, local_steps=4, batch_size=None, optimizer="adam", lr=0.01)
    starts = different_models(reference, 6)
    everything = Coordinates(((0, starts.shape[1]),))
    twice = Descent(phases=(Phase(everything, 2), Phase(everything)))
    rows = train(federation, range(6), starts, local, Key(0, "x"), twice)
    half = replace(local, steps=2, local_steps=2)
    expected = starts
    for purpose in ("a", "b"):
        expected = train(federation, range(6), expected, half, Key(0, purpose))
    assert_same(rows, expected)


def test_dropout_differs_from_phase_to_phase() -> None:
    """Full batches and equal rates: only dropout's draws can make two phases differ."""
    data = examples.classification([8, 8])
    model = examples.doubled(examples.dropped_out)
    federation = Simulation(data, model)
    everything = Coordinates(((0, len(federation.initial_model(0))),))
    local = LocalTraining(steps=2, local_steps=2, batch_size=None, lr=1e-6)
    starts = federation.initial_model(0).repeat(2, 1)
    descent = Descent(phases=(Phase(everything, 1), Phase(everything)))
    both = train(federation, range(2), starts, local, Key(0, "x"), descent) - starts
    one = replace(local, steps=1, local_steps=1)
    first = train(federation, range(2), starts, one, Key(0, "x")) - starts
    assert not torch.allclose(both, 2 * first, rtol=1e-3, atol=0)


def test_buffers_of_different_phases_are_not_mixed_up() -> None:
    """Each kind of block has its buffers: the same federation alternates between kinds."""
    data, model = examples.classification([9, 9, 9]), examples.doubled(examples.Frozen)
    federation: Federation = Simulation(data, model)
    reference = ReferenceFederation(data, model)
    starts = different_models(reference, 3)
    local = LocalTraining(steps=4, local_steps=4, batch_size=4, momentum=0.9)
    head = Coordinates.of_layers(reference.layers, ["last"])
    first = Coordinates.of_layers(reference.layers, ["first"])
    algorithms = [
        Descent(),
        Descent(phases=(Phase(head, 2), Phase(first))),
        Descent(corrections=starts),
        Descent(phases=(Phase(first, 2), Phase(head))),
    ]
    for algorithm in [*algorithms, *algorithms]:
        rows, expected = (
            train(f, range(3), starts, local, Key(0, "x"), algorithm)
            for f in (federation, reference)
        )
        assert_same(rows, expected)


def test_the_row_of_a_frozen_module_holds_what_is_trained() -> None:
    module = make_module(examples.Frozen, seed=0)
    assert Layout.of(module).parameters == ("unused", "first.bias", "last.weight", "last.bias")


def test_labels_are_smoothed_for_cross_entropy_alone() -> None:
    federation = Simulation(examples.regression([9, 12]), linear(4))
    starts = federation.initial_model(0).repeat(2, 1)
    local = LocalTraining(steps=2, label_smoothing=0.1)
    with pytest.raises(InputError, match="needs the loss cross_entropy"):
        train(federation, range(2), starts, local, Key(0, "smoothed"))
