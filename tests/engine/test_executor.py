"""What the engine chooses must not change what is computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import Simulation, Work
from srfca.errors import InputError
from srfca.federation import Sample
from srfca.federation.dense import Dense, network_of
from srfca.federation.loss import Loss, cross_entropy, squared_error
from srfca.federation.network import Network
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

X = torch.randn(4, 6)
CLASSES = torch.tensor([0, 2, 1, 0])


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(self.layer(x)))


def hooked() -> nn.Module:
    layer = nn.Linear(6, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    return module


def repeated() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


def tied() -> nn.Module:
    first, last = nn.Linear(6, 6), nn.Linear(6, 6)
    last.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), last)


CHAINS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 3),
    "no bias": lambda: nn.Linear(6, 3, bias=False),
    "mlp": mlp(6, 5, 3),
    "one activation for all": lambda: _with_one(nn.Tanh()),
    "nested": lambda: nn.Sequential(
        nn.Identity(), nn.Sequential(nn.Linear(6, 4), nn.Sigmoid()), nn.Linear(4, 3), nn.ReLU()
    ),
    "two linear layers": lambda: nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)),
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "a module of its own": Shared,
    "a layer twice": repeated,
    "a weight twice": tied,
    "a frozen layer": frozen,
    "a hook": hooked,
    "an activation first": lambda: nn.Sequential(nn.ReLU(), nn.Linear(6, 3)),
    "two activations": lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Tanh()),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 3), nn.Dropout()),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)),
    "another activation": lambda: nn.Sequential(nn.Linear(6, 3), nn.GELU()),
}


def _with_one(activation: nn.Module) -> nn.Module:
    layers = [nn.Linear(6, 5), activation, nn.Linear(5, 4), activation, nn.Linear(4, 3)]
    return nn.Sequential(nn.Flatten(), *layers)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_layers_is_dense(chain: str) -> None:
    assert type(network_of(CHAINS[chain](), cross_entropy, X, CLASSES, "float32", False)) is Dense


@pytest.mark.parametrize("other", OTHERS)
def test_anything_else_is_not(other: str) -> None:
    found = network_of(OTHERS[other](), cross_entropy, X, CLASSES, "float32", False)
    assert type(found) is Network


def test_a_chain_is_not_dense_for_other_losses_or_shapes() -> None:
    module = nn.Linear(6, 3)

    def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).abs().mean(1)

    given: list[tuple[Loss, Tensor, Tensor, str]] = [
        (absolute, X, torch.randn(4, 3), "float32"),
        (cross_entropy, torch.randn(4, 2, 6), CLASSES, "float32"),
        (cross_entropy, X, CLASSES, "bf16"),
    ]
    for loss, x, y, precision in given:
        assert type(network_of(module, loss, x, y, precision, False)) is Network


@settings(deadline=None, max_examples=40)
@given(
    chain=st.sampled_from(list(CHAINS)),
    count=st.integers(1, 4),
    samples=st.integers(1, 7),
    classes=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_dense_agrees_with_autograd(
    chain: str, count: int, samples: int, classes: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    module = CHAINS[chain]().double()
    loss = cross_entropy if classes else squared_error
    plain, dense = Network(module, loss), Dense(module, loss)
    x = torch.randn(count, samples, 6, dtype=torch.float64)
    shape = (count, samples) if classes else (count, samples, 3)
    y = torch.randint(3, shape) if classes else torch.randn(shape, dtype=torch.float64)
    weights = torch.rand(count, samples, dtype=torch.float64)
    rows = torch.randn(count, plain.layout.length, dtype=torch.float64)
    states = []
    for network in (plain, dense):
        state = network.leaves(count, torch.device("cpu"))
        with torch.no_grad():
            for name, part in network.layout.unstack(rows).items():
                state[name].copy_(part)
            network.passes(state).gradient(x, y, weights)
        states.append(state)
    for name in plain.layout.parameters:
        torch.testing.assert_close(states[1][name].grad, states[0][name].grad)
    with torch.no_grad():
        torch.testing.assert_close(dense.outputs(states[1], x), plain.outputs(states[0], x))
        torch.testing.assert_close(
            dense.losses_of_all(states[1], x[0], y[0]), plain.losses_of_all(states[0], x[0], y[0])
        )


def test_equal_models_have_equal_losses() -> None:
    federation = Simulation(examples.classification([70] * 3, (40,)), mlp(40, 33, 3))
    rows = federation.initial(0).repeat(7, 1)
    losses = federation.losses(rows, range(3))
    assert all(torch.equal(row, losses[0]) for row in losses)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(0, 100), st.sampled_from(["train", "validation", "test"]))
def test_losses_on_a_sample_agree_with_the_loop(size: int, seed: int, split: str) -> None:
    data = examples.classification([7, 30, 12, 45])
    model = examples.doubled(mlp(6, 5, 3))
    federation, loop = Simulation(data, model), LoopFederation(data, model)
    rows = loop.initial(0) + torch.randn(3, loop.layout.length).double()
    sample = Sample(size, seed)
    torch.testing.assert_close(
        federation.losses(rows, [3, 0, 2], split, sample),  # type: ignore[arg-type]
        loop.losses(rows, [3, 0, 2], split, sample),  # type: ignore[arg-type]
    )


def test_a_sample_is_always_the_same_and_its_error_shrinks() -> None:
    federation = Simulation(examples.regression([2000] * 4), linear(4))
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    whole = federation.losses(rows, range(4))
    first, again = (federation.losses(rows, range(4), sample=Sample(50, 1)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, federation.losses(rows, range(4), sample=Sample(50, 2)))

    def error(size: int) -> float:
        found = [federation.losses(rows, range(4), sample=Sample(size, s)) for s in range(20)]
        return float(torch.stack([(f / whole - 1).square().mean() for f in found]).mean().sqrt())

    assert error(800) < error(50) / 2
    with pytest.raises(InputError, match="at least one"):
        Sample(0, 1)


WORK = Work(steps=6, local_steps=3, batch_size=8, optimizer="adam", lr=0.01, keep_state=True)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("model", [mlp(6, 5, 3), examples.Frozen])
def test_threads_change_nothing(model: Callable[[], nn.Module]) -> None:
    data = examples.classification([20, 30, 9, 25, 12])

    def trained(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        federation = Simulation(data, model, block_size=2)
        rows = federation.initial(0).repeat(5, 1)
        for number in range(2):
            rows = federation.fit(rows, range(5), WORK, Key(0, "threads", number))
        return rows

    assert torch.equal(trained(1), trained(2))


@pytest.mark.usefixtures("two_threads")
def test_a_failure_in_a_thread_is_raised_and_threads_are_given_back() -> None:
    def moody(outputs: Tensor, targets: Tensor) -> Tensor:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("not here")
        return (outputs - targets.unsqueeze(1)).square().mean(1)

    federation = Simulation(examples.regression([20] * 6), linear(4), loss=moody, block_size=2)
    with pytest.raises(RuntimeError, match="not here"):
        federation.fit(federation.initial(0).repeat(6, 1), range(6), WORK, Key(0, "x"))
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_every_step_is_reported() -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4), block_size=2)
    told: list[int] = []
    rows = federation.initial(0).repeat(6, 1)
    federation.fit(rows, range(6), WORK, Key(0, "x"), told.append)
    assert sum(told) == 18


def test_smaller_blocks_when_the_memory_does_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4))
    rows = torch.randn(5, 5)
    expected = federation.losses(rows, range(6))
    whole, asked = federation._evaluation._outputs, []
    evaluate = federation._network.losses_of_all

    def greedy(state: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        asked.append(federation._evaluation._outputs)
        if asked[-1] > whole // 8:
            raise torch.OutOfMemoryError("too much")
        return evaluate(state, x, y)

    monkeypatch.setattr(federation._network, "losses_of_all", greedy)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    torch.testing.assert_close(federation.losses(rows, range(6)), expected)
    assert asked[:4] == [whole, whole // 2, whole // 4, whole // 8]

    def hopeless(*_: object) -> Tensor:
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr(federation._network, "losses_of_all", hopeless)
    with pytest.raises(torch.OutOfMemoryError):
        federation.losses(rows, range(6))


def test_bf16_is_near() -> None:
    data = examples.classification([40] * 4)
    exact, coarse = (Simulation(data, mlp(6, 5, 3), precision=p) for p in ("float32", "bf16"))
    rows = exact.initial(0).repeat(4, 1)
    work = Work(steps=5, local_steps=5, batch_size=8, lr=0.1)
    found = [f.fit(rows, range(4), work, Key(0, "x")) for f in (exact, coarse)]
    assert found[1].dtype is torch.float32
    assert not torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], found[1], rtol=0.05, atol=0.02)


def test_bad_options_are_named() -> None:
    data = examples.regression([20] * 3)
    with pytest.raises(InputError, match="precision"):
        Simulation(data, linear(4), precision="fp8")
    with pytest.raises(InputError, match="compile is for a GPU"):
        Simulation(data, linear(4), compile=True, device="cpu")
