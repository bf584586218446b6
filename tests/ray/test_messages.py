"""Messages hold any object, and repeated rows once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

pytest.importorskip("ray")

from srfca import ClientData, LocalTraining
from srfca.federation.requests import Train
from srfca.random import Key
from srfca.ray.messages import pack, repeated_rows, unpack
from srfca.ray.shards import client_range, cut, cut_by_cost
from srfca.ray.splitting import join, split


def test_tensors_of_every_type_and_shape_come_back() -> None:
    tensors = [
        torch.tensor(3.0), torch.empty(0, 5), torch.randn(4, 6).T, torch.randn(6, 4)[:, 1:3],
        torch.tensor([True, False]), torch.arange(5, dtype=torch.int16),
        torch.randn(3, 2).bfloat16(), torch.full((2, 2), torch.nan, dtype=torch.float64),
        torch.randn(2, 1100).expand(2, -1)[:1].expand(7, -1),
    ]  # fmt: skip
    copies = unpack(pack({"tensors": tensors, "words": ["a"]}))["tensors"]
    for tensor, copy in zip(tensors, copies, strict=True):
        assert copy.dtype == tensor.dtype
        assert copy.shape == tensor.shape
        assert torch.equal(copy.nan_to_num(7), tensor.nan_to_num(7))


def test_modules_keep_their_parameters() -> None:
    module = nn.Linear(3, 2).requires_grad_(True)
    copy = unpack(pack(module))
    assert isinstance(copy.weight, nn.Parameter)
    assert torch.equal(copy.weight, module.weight)


def test_a_view_does_not_carry_the_tensor_that_it_is_of() -> None:
    assert pack(torch.randn(1000, 100)[7]).num_bytes < 1000


def test_the_output_can_be_changed() -> None:
    array = unpack(pack(np.arange(3)))
    array[0] = 7
    assert array.tolist() == [7, 1, 2]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 3))
def test_repeated_rows_are_those_that_are_equal(length: int, different: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(different, 30 * length, generator=g)
    index = torch.randint(different, (60,), generator=g)
    found = repeated_rows(rows[index])
    if found is None:
        assert rows[index].numel() < 1024
    else:
        assert len(found[0]) == len(index.unique())
        assert torch.equal(found[0][torch.from_numpy(found[1]).long()], rows[index])


def test_rows_that_differ_a_little_are_not_joined() -> None:
    rows = torch.zeros(100, 200)
    rows[7, 1] = 1e-30
    assert torch.equal(unpack(pack(rows)), rows)
    rows[8, 0] = -0.0
    assert unpack(pack(rows))[8, 0].signbit()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_shards_are_cut_by_cost(sizes: list[int], count: int) -> None:
    bounds = cut_by_cost(torch.tensor(sizes), count)
    assert bounds[0] == 0
    assert bounds[-1] == len(sizes)
    assert (np.diff(bounds) >= 1).all()
    assert len(bounds) - 1 == min(count, len(sizes))
    costs = [sum(sizes[start:stop]) for start, stop in pairwise(bounds)]
    if len(sizes) >= 4 * count:
        assert max(costs) <= sum(sizes) / count + 2 * max(sizes) + count * max(sizes)


def test_a_cut_has_the_samples_of_its_clients() -> None:
    data = ClientData.from_arrays(
        [(torch.full((n, 2), float(n)), torch.full((n,), float(n))) for n in (3, 1, 4, 2)]
    )
    part = cut(data, 1, 3)
    assert part.client_ids == ("1", "2")
    assert part.train.x[:, 0].tolist() == [1, 4, 4, 4, 4]


@given(st.lists(st.integers(0, 9), max_size=12))
def test_requests_are_split_and_answers_joined(clients: list[int]) -> None:
    bounds = np.array([0, 3, 4, 10])
    starts = torch.arange(len(clients) * 2.0).view(-1, 2)
    request = Train(clients, starts, LocalTraining(steps=1), Key(0, "x"))  # type: ignore[arg-type]
    parts = split(request, bounds)
    answers = {}
    for shard, part in parts.items():
        assert (client_range(bounds, part.request.clients + bounds[shard]) == shard).all()
        answers[shard] = part.request.starts + 1  # type: ignore[attr-defined]
    assert torch.equal(join(parts, answers), starts + 1)
