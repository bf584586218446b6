from __future__ import annotations

from hashlib import blake2b

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srfca import random
from srfca.random import Key, batches, bits, client_words, integers, streams


def stream(seed: int = 0, purpose: str = "p", number: int = 0, client: str = "a") -> torch.Tensor:
    return streams(Key(seed, purpose, number), client_words([client]))


def test_all_parts_of_the_key_matter() -> None:
    different = {
        int(s)
        for s in (stream(), stream(1), stream(0, "q"), stream(0, "p", 1), stream(0, "p", 0, "b"))
    }
    assert len(different) == 5


def test_keys_have_fixed_hashes() -> None:
    assert Key(3, "fit", 2).word() == 3433026632230963568
    assert client_words(["ann", "0"]).tolist() == [-6488803333072012659, 8493733112532773764]
    stream = streams(Key(0, "refine 1", 7), client_words(["ann"]))
    assert bits(stream, 2)[0].tolist() == [-7769645020441525625, 2183043974498743765]


def plain_mix(z: int) -> int:
    """SplitMix64's finalizer in Python integers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def test_draws_equal_plain_arithmetic() -> None:
    def word(text: str) -> int:
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")

    state = plain_mix(word("ann") ^ plain_mix(word("3/fit/2")))
    expected = [plain_mix((state + i * 0x9E3779B97F4A7C15) % 2**64) for i in (1, 2, 3)]
    drawn = bits(stream(3, "fit", 2, "ann"), 3)[0].tolist()
    assert [number % 2**64 for number in drawn] == expected


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    batch=st.integers(1, 12),
    steps=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_batches_are_epochs_without_repetition(
    sizes: list[int], batch: int, steps: int, seed: int
) -> None:
    names = [str(i) for i in range(len(sizes))]
    key = Key(seed, "batches")
    drawn = batches(streams(key, client_words(names)), torch.tensor(sizes), batch, steps)
    assert drawn.shape == (len(sizes), steps, batch)
    for client, (name, n) in enumerate(zip(names, sizes, strict=True)):
        taken = drawn[client, :, : min(batch, n)]
        alone = batches(streams(key, client_words([name])), torch.tensor([n]), min(batch, n), steps)
        assert torch.equal(taken, alone[0]), "the same as drawn alone"
        assert int(drawn[client].max()) < n
        per_epoch = max(1, n // batch)
        for start in range(0, steps, per_epoch):
            epoch = taken[start : start + per_epoch].flatten()
            assert len(epoch.unique()) == len(epoch)


def test_a_large_client_does_not_multiply_the_memory_of_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = torch.tensor([20000, *[60] * 9, 50, 7])
    key, words = Key(0, "x"), client_words([str(c) for c in range(len(sizes))])
    allocated, shuffles = [], random._shuffles

    def measured(streams: Tensor, sizes: Tensor, epochs: int, longest: int) -> Tensor:
        orders = shuffles(streams, sizes, epochs, longest)
        allocated.append(orders.numel())
        return orders

    monkeypatch.setattr(random, "_shuffles", measured)
    together = batches(streams(key, words), sizes, 50, 250)
    assert sum(allocated) <= 4 * together.numel()
    for c in range(len(sizes)):
        alone = batches(streams(key, words[c : c + 1]), sizes[c : c + 1], 50, 250)
        assert torch.equal(together[c], alone[0])


def test_shuffles_look_uniform() -> None:
    names = [str(i) for i in range(4000)]
    sizes = torch.full((4000,), 5)
    drawn = batches(streams(Key(0, "u"), client_words(names)), sizes, 1, 5)[:, :, 0]
    counts = torch.stack([(drawn == value).sum(0) for value in range(5)]).double()
    assert float(((counts - 800) ** 2 / 800).sum()) < 60, "chi squared of 25 cells"


def test_integers_are_uniform_and_below_the_bound() -> None:
    drawn = integers(stream(), 6000, torch.tensor([6]))[0]
    counts = torch.bincount(drawn, minlength=6)
    assert len(counts) == 6
    assert int((counts - 1000).abs().max()) < 130
