"""Dense networks compiled by numba against the loop, and against torch's operations."""

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

from srfca import Simulation, Work
from srfca.data import ClientData
from srfca.federation import lanes
from srfca.models import linear, mlp
from srfca.random import Key
from tests import examples
from tests.loop_federation import LoopFederation

pytest.importorskip("numba")

from threadpoolctl import threadpool_info, threadpool_limits

from srfca.federation import chain


def simulation(
    compiled: bool, data: ClientData, model: Callable[[], nn.Module], **options: object
) -> Simulation:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lanes, "_NUMBA", compiled)
        made = Simulation(data, model, device="cpu", **options)  # type: ignore[arg-type]
    assert made._training._lanes.compiles == compiled
    return made


def layers(widths: list[int], bias: bool, relu_last: bool) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        parts: list[nn.Module] = []
        for into, out in pairwise(widths):
            parts += [nn.Linear(into, out, bias=bias), nn.ReLU()]
        return nn.Sequential(*parts if relu_last else parts[:-1])

    return examples.doubled(make)


WORKS = st.builds(
    Work,
    steps=st.integers(2, 7),
    local_steps=st.integers(1, 4),
    batch_size=st.one_of(st.none(), st.integers(1, 20)),
    lr=st.floats(0.001, 0.2),
    weight_decay=st.sampled_from([0.0, 0.1]),
    prox=st.sampled_from([0.0, 0.5]),
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
    work=WORKS,
    optimizer=st.sampled_from([{}, {"momentum": 0.9}, {"optimizer": "adam"}]),
    sizes=st.lists(st.integers(2, 17), min_size=1, max_size=5),
    block_size=st.sampled_from([None, 1, 3]),
    at_once=st.sampled_from([1, 2**31]),
)
def test_compiled_or_not_it_is_the_loop(
    hidden: list[int],
    bias: bool,
    relu_last: bool,
    classes: bool,
    work: Work,
    optimizer: dict[str, object],
    sizes: list[int],
    block_size: int | None,
    at_once: int,
) -> None:
    work = Work(**{**vars(work), **optimizer})
    data = examples.classification(sizes) if classes else examples.regression(sizes, 6)
    model = layers([6, *hidden, 3 if classes else 1], bias, relu_last)
    loop = LoopFederation(data, model)
    noise = torch.randn(len(sizes), loop.layout.length, generator=torch.Generator().manual_seed(1))
    starts = loop.initial(0) + 0.1 * noise.double()
    expected = starts
    rows = dict.fromkeys((True, False), starts)
    federations = {c: simulation(c, data, model, block_size=block_size) for c in rows}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chain, "_AT_ONCE", at_once)
        for number in range(work.rounds):
            key = Key(3, "chain", number)
            expected = loop.fit(expected, range(len(sizes)), work, key, anchors=starts)
            for compiled, federation in federations.items():
                told: list[int] = []
                rows[compiled] = federation.fit(
                    rows[compiled], range(len(sizes)), work, key, told.append, anchors=starts
                )
                assert sum(told) == len(sizes) * len(work.span(number))
    for found in rows.values():
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9)


def test_several_targets_of_a_sample() -> None:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 6, generator=g), torch.randn(20, 3, generator=g)
    data, model = ClientData.from_arrays([(x, y), (-x, y)]), layers([6, 4, 3], True, False)
    work, loop = Work(steps=5, local_steps=5, batch_size=8), LoopFederation(data, model)
    starts = loop.initial(0).repeat(2, 1)
    expected = loop.fit(starts, range(2), work, Key(0, "x"))
    found = simulation(True, data, model).fit(starts, range(2), work, Key(0, "x"))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_in_single_precision_it_is_near() -> None:
    data = examples.classification([40] * 6, (50,), classes=10)
    work = Work(steps=20, local_steps=20, batch_size=16, optimizer="adam", lr=0.001)
    single, double = mlp(50, 40, 10), examples.doubled(mlp(50, 40, 10))
    exact = LoopFederation(data, double)
    starts = exact.initial(0).repeat(6, 1)
    expected = exact.fit(starts, range(6), work, Key(0, "x"))
    found = simulation(True, data, single).fit(starts.float(), range(6), work, Key(0, "x"))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blocks_change_nothing_at_all(size: int) -> None:
    data = examples.classification([20, 30, 9, 25, 12])
    work = Work(steps=6, local_steps=6, batch_size=8, optimizer="adam", lr=0.01)
    rows = [simulation(True, data, mlp(6, 5, 3), block_size=block) for block in (None, size)]
    starts = rows[0].initial(0).repeat(5, 1)
    one, other = (each.fit(starts, range(5), work, Key(0, "x")) for each in rows)
    assert torch.equal(one, other)


def test_what_diverges_is_not_hidden() -> None:
    data = examples.regression([20] * 3)
    federation = simulation(True, data, linear(4))
    starts = federation.initial(0).repeat(3, 1)
    rows = federation.fit(starts, range(3), Work(steps=80, local_steps=80, lr=1e6), Key(0, "x"))
    assert not rows.isfinite().any()


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def threads_of_blas() -> set[int]:
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


@pytest.mark.usefixtures("two_threads")
def test_products_have_one_thread_and_then_as_many_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[int]] = []
    monkeypatch.setattr(chain, "train", lambda *_: seen.append(threads_of_blas()))
    federation = simulation(True, examples.regression([20] * 6), linear(4), block_size=2)
    rows, before = federation.initial(0).repeat(6, 1), threads_of_blas()
    federation.fit(rows, range(6), Work(steps=3), Key(0, "x"))
    assert seen == [{1}] * 3
    assert threads_of_blas() == before


def test_who_trains_beside_another_has_one_thread_until_both_have_ended() -> None:
    with threadpool_limits(2, "blas"), ExitStack() as first:
        first.enter_context(chain.products_by_one_thread)
        with chain.products_by_one_thread:
            first.close()
            assert threads_of_blas() == {1}
        assert threads_of_blas() == {2}


@pytest.mark.usefixtures("two_threads")
def test_a_large_client_alone_has_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("not by numba")

    data = examples.classification([60], (200,))
    federation = simulation(True, data, mlp(200, 2000, 3))
    work = Work(steps=1, local_steps=1, batch_size=50)
    starts = federation.initial(0).unsqueeze(0)
    monkeypatch.setattr(chain, "train", refuse)
    federation.fit(starts, [0], work, Key(0, "x"))
    small = simulation(True, data, mlp(200, 5, 3))
    with pytest.raises(AssertionError, match="not by numba"):
        small.fit(small.initial(0).unsqueeze(0), [0], work, Key(0, "x"))


def test_a_numba_that_does_not_load_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = examples.classification([20] * 3)
    federation, other = simulation(True, data, mlp(6, 4, 3)), simulation(False, data, mlp(6, 4, 3))
    for module in ("srfca.federation.chain", "srfca.federation.dense_numba"):
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "numba", None)
    starts, work = federation.initial(0).repeat(3, 1), Work(steps=3, local_steps=3)
    with pytest.warns(UserWarning, match="training goes without numba, which does not load"):
        first = federation.fit(starts, range(3), work, Key(0, "x"))
    assert torch.equal(federation.fit(starts, range(3), work, Key(0, "x")), first)
    assert torch.equal(other.fit(starts, range(3), work, Key(0, "x")), first)


def same(x: Tensor, bits: Tensor) -> Tensor:
    return x


def test_what_is_not_compiled() -> None:
    data, images = (examples.classification([20] * 3, shape) for shape in ((6,), (1, 6, 6)))
    tanh = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    for federation in (
        Simulation(data, tanh, device="cpu"),
        Simulation(images, mlp(36, 4, 3), device="cpu", augment=same),
        Simulation(data, examples.Summed, device="cpu"),
    ):
        assert not federation._training._lanes.compiles
