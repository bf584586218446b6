"""Threads and precision must not change what is computed; every step is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from srfca import Simulation, progress
from srfca.federation import LocalTraining
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.asking import train


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch use two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


LOCAL = LocalTraining(
    steps=6, local_steps=3, batch_size=8, optimizer="adam", lr=0.01, keep_state=True
)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("model", [mlp(6, 5, 3), examples.Frozen])
def test_the_number_of_threads_changes_nothing(model: Callable[[], nn.Module]) -> None:
    data = examples.classification([20, 30, 9, 25, 12])

    def trained(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        federation = Simulation(data, model, block_size=2)
        rows = federation.initial_model(0).repeat(5, 1)
        for number in range(2):
            rows = train(federation, range(5), rows, LOCAL, Key(0, "threads", number))
        return rows

    assert torch.equal(trained(1), trained(2))


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_thread_is_raised_and_the_number_of_threads_restored() -> None:
    def fails_in_threads(outputs: Tensor, targets: Tensor) -> Tensor:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("not in a thread")
        return (outputs - targets.unsqueeze(1)).square().mean(1)

    federation = Simulation(
        examples.regression([20] * 6), linear(4), loss=fails_in_threads, block_size=2
    )
    with pytest.raises(RuntimeError, match="not in a thread"):
        train(federation, range(6), federation.initial_model(0).repeat(6, 1), LOCAL, Key(0, "x"))
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_every_step_is_reported() -> None:
    federation = Simulation(examples.regression([20] * 6), linear(4), block_size=2)
    reported: list[int] = []
    rows = federation.initial_model(0).repeat(6, 1)
    with progress.reporting_to(reported.append):
        train(federation, range(6), rows, LOCAL, Key(0, "x"))
    assert sum(reported) == 18


def test_bf16_is_close_to_float32() -> None:
    data = examples.classification([40] * 4)
    exact, coarse = (Simulation(data, mlp(6, 5, 3), precision=p) for p in ("float32", "bf16"))
    rows = exact.initial_model(0).repeat(4, 1)
    local = LocalTraining(steps=5, local_steps=5, batch_size=8, lr=0.1)
    float32, bf16 = (train(f, range(4), rows, local, Key(0, "x")) for f in (exact, coarse))
    assert bf16.dtype is torch.float32
    assert not torch.equal(float32, bf16)
    torch.testing.assert_close(float32, bf16, rtol=0.05, atol=0.02)
