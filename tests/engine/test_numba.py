"""Dense networks compiled by numba against the reference, and against torch's operations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from srfca import Simulation, progress
from srfca.data import ClientData
from srfca.engine import executor
from srfca.federation import Descent, LocalTraining
from srfca.models import linear, mlp
from srfca.random import Key
from srfca.testing import ReferenceFederation
from tests import examples
from tests.asking import train

pytest.importorskip("numba")

from threadpoolctl import threadpool_info, threadpool_limits

from srfca.engine.backends import numba_dense


def simulation(
    numba: bool, data: ClientData, model: Callable[[], nn.Module], **options: object
) -> Simulation:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(executor, "_NUMBA", numba)
        federation = Simulation(data, model, device="cpu", **options)  # type: ignore[arg-type]
    assert federation._trainer._executor.uses_numba == numba
    return federation


def layers(widths: list[int], bias: bool, relu_last: bool) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        parts: list[nn.Module] = []
        for into, out in pairwise(widths):
            parts += [nn.Linear(into, out, bias=bias), nn.ReLU()]
        return nn.Sequential(*parts if relu_last else parts[:-1])

    return examples.doubled(make)


TRAININGS = st.builds(
    LocalTraining,
    steps=st.integers(2, 7),
    local_steps=st.integers(1, 4),
    batch_size=st.one_of(st.none(), st.integers(1, 20)),
    lr=st.floats(0.001, 0.2),
    weight_decay=st.sampled_from([0.0, 0.1]),
    mu=st.sampled_from([0.0, 0.5]),
    clip=st.sampled_from([None, 0.2, 100.0]),
    schedule=st.sampled_from(["constant", "cosine"]),
    keep_state=st.booleans(),
    resample=st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(
    hidden=st.lists(st.integers(1, 9), max_size=3),
    bias=st.booleans(),
    relu_last=st.booleans(),
    classes=st.booleans(),
    local=TRAININGS,
    optimizer=st.sampled_from([{}, {"momentum": 0.9}, {"optimizer": "adam"}]),
    sizes=st.lists(st.integers(2, 17), min_size=1, max_size=5),
    block_size=st.sampled_from([None, 1, 3]),
    per_call=st.sampled_from([1, 2**31]),
)
def test_training_with_and_without_numba_agrees_with_the_reference(
    hidden: list[int],
    bias: bool,
    relu_last: bool,
    classes: bool,
    local: LocalTraining,
    optimizer: dict[str, object],
    sizes: list[int],
    block_size: int | None,
    per_call: int,
) -> None:
    local = LocalTraining(**{**vars(local), **optimizer})
    data = examples.classification(sizes) if classes else examples.regression(sizes, 6)
    model = layers([6, *hidden, 3 if classes else 1], bias, relu_last)
    reference = ReferenceFederation(data, model)
    length, generator = reference.layout.length, torch.Generator().manual_seed(1)
    noise = torch.randn(len(sizes), length, generator=generator).double()
    starts = reference.initial_model(0) + 0.1 * noise
    expected = starts
    rows = dict.fromkeys((True, False), starts)
    federations = {numba: simulation(numba, data, model, block_size=block_size) for numba in rows}
    clients, algorithm = range(len(sizes)), Descent(anchors=starts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(numba_dense, "_PER_CALL", per_call)
        for number in range(local.rounds):
            key = Key(3, "chain", number)
            expected = train(reference, clients, expected, local, key, algorithm)
            for numba, federation in federations.items():
                reported: list[int] = []
                with progress.reporting_to(reported.append):
                    rows[numba] = train(federation, clients, rows[numba], local, key, algorithm)
                assert sum(reported) == len(sizes) * len(local.span(number))
    for values in rows.values():
        torch.testing.assert_close(values, expected, rtol=1e-8, atol=1e-9)


def test_several_targets_of_a_sample() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 6, generator=g), torch.randn(20, 3, generator=g)
    data, model = ClientData.from_arrays([(x, y), (-x, y)]), layers([6, 4, 3], True, False)
    local = LocalTraining(steps=5, local_steps=5, batch_size=8)
    reference = ReferenceFederation(data, model)
    starts = reference.initial_model(0).repeat(2, 1)
    expected = train(reference, range(2), starts, local, Key(0, "x"))
    rows = train(simulation(True, data, model), range(2), starts, local, Key(0, "x"))
    torch.testing.assert_close(rows, expected, rtol=1e-9, atol=1e-10)


def test_single_precision_is_close_to_double() -> None:
    data = examples.classification([40] * 6, (50,), classes=10)
    local = LocalTraining(steps=20, local_steps=20, batch_size=16, optimizer="adam", lr=0.001)
    single, double = mlp(50, 40, 10), examples.doubled(mlp(50, 40, 10))
    reference = ReferenceFederation(data, double)
    starts = reference.initial_model(0).repeat(6, 1)
    expected = train(reference, range(6), starts, local, Key(0, "x"))
    rows = train(simulation(True, data, single), range(6), starts.float(), local, Key(0, "x"))
    assert rows.dtype == torch.float32
    errors = (rows.double() - expected).abs()  # a ReLU at zero may fall on either side
    assert errors.quantile(0.99) < 1e-4
    assert errors.max() < local.steps * local.lr


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_block_size_does_not_change_a_bit(size: int) -> None:
    data = examples.classification([20, 30, 9, 25, 12])
    local = LocalTraining(steps=6, local_steps=6, batch_size=8, optimizer="adam", lr=0.01)
    federations = [simulation(True, data, mlp(6, 5, 3), block_size=block) for block in (None, size)]
    starts = federations[0].initial_model(0).repeat(5, 1)
    automatic, fixed = (train(f, range(5), starts, local, Key(0, "x")) for f in federations)
    assert torch.equal(automatic, fixed)


def test_a_diverged_model_is_not_finite() -> None:
    data = examples.regression([20] * 3)
    federation = simulation(True, data, linear(4))
    starts = federation.initial_model(0).repeat(3, 1)
    local = LocalTraining(steps=80, local_steps=80, lr=1e6)
    rows = train(federation, range(3), starts, local, Key(0, "x"))
    assert not rows.isfinite().any()


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> set[int]:
    pools = threadpool_info()
    return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}


@pytest.mark.usefixtures("two_threads")
def test_blas_has_one_thread_during_training_and_as_many_as_before_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[int]] = []
    monkeypatch.setattr(numba_dense, "train", lambda *_: seen.append(blas_threads()))
    federation = simulation(True, examples.regression([20] * 6), linear(4), block_size=2)
    rows, before = federation.initial_model(0).repeat(6, 1), blas_threads()
    train(federation, range(6), rows, LocalTraining(steps=3), Key(0, "x"))
    assert seen == [{1}] * 3
    assert blas_threads() == before


def test_two_trainings_at_once_have_one_blas_thread_until_both_have_ended() -> None:
    with threadpool_limits(2, "blas"), ExitStack() as first:
        first.enter_context(numba_dense.single_threaded_blas)
        with numba_dense.single_threaded_blas:
            first.close()
            assert blas_threads() == {1}
        assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_a_single_large_client_uses_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("trained by numba")

    data = examples.classification([60], (200,))
    federation = simulation(True, data, mlp(200, 2000, 3))
    local = LocalTraining(steps=1, local_steps=1, batch_size=50)
    starts = federation.initial_model(0).unsqueeze(0)
    monkeypatch.setattr(numba_dense, "train", refuse)
    train(federation, [0], starts, local, Key(0, "x"))
    small = simulation(True, data, mlp(200, 5, 3))
    with pytest.raises(AssertionError, match="trained by numba"):
        train(small, [0], small.initial_model(0).unsqueeze(0), local, Key(0, "x"))


def test_warn_once_and_fall_back_to_torch_when_numba_fails_to_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = examples.classification([20] * 3)
    with_numba, without = (simulation(numba, data, mlp(6, 4, 3)) for numba in (True, False))
    for module in ("numba_dense", "numba_kernels"):
        monkeypatch.delitem(sys.modules, f"srfca.engine.backends.{module}")
    monkeypatch.setitem(sys.modules, "numba", None)
    starts = with_numba.initial_model(0).repeat(3, 1)
    local, key = LocalTraining(steps=3, local_steps=3), Key(0, "x")
    with pytest.warns(UserWarning, match="training without numba, which fails to import"):
        first = train(with_numba, range(3), starts, local, key)
    assert torch.equal(train(with_numba, range(3), starts, local, key), first)
    assert torch.equal(train(without, range(3), starts, local, key), first)


def unchanged(x: Tensor, streams: Tensor) -> Tensor:
    return x


def test_what_numba_does_not_train() -> None:
    data, images = (examples.classification([20] * 3, shape) for shape in ((6,), (1, 6, 6)))
    tanh = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    for federation in (
        Simulation(data, tanh, device="cpu"),
        Simulation(images, mlp(36, 4, 3), device="cpu", augment=unchanged),
        Simulation(data, examples.Summed, device="cpu"),
    ):
        assert not federation._trainer._executor.uses_numba
