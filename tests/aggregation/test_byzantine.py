"""Bulyan, centered clipping, and the rules of Krum, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from srfca import InputError
from srfca.aggregation import (
    Bulyan,
    CenteredClipping,
    Krum,
    MultiKrum,
    aggregation_named,
    bulyan,
    centered_clipping,
    krum,
    mean,
    median,
)
from srfca.aggregation.rules import robust_aggregation

ONES = torch.ones(20)


def random_rows(seed: int, count: int, width: int = 3) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, width)))


def slow_krum_order(rows: list[list[float]], byzantine: int) -> list[int]:
    """Return the rows by the sum of squared distances to their nearest others."""
    scores = []
    for i, row in enumerate(rows):
        others = [
            sum((a - b) ** 2 for a, b in zip(row, other, strict=True))
            for j, other in enumerate(rows)
            if j != i
        ]
        scores.append(sum(sorted(others)[: max(len(rows) - byzantine - 2, 1)]))
    return sorted(range(len(rows)), key=lambda i: scores[i])


def slow_bulyan(rows: list[list[float]], byzantine: int) -> list[float]:
    left, chosen = list(range(len(rows))), list[int]()
    while len(chosen) < len(rows) - 2 * byzantine:
        best = slow_krum_order([rows[i] for i in left], byzantine)[0]
        chosen.append(left.pop(best))
    result = []
    for column in range(len(rows[0])):
        values = [rows[i][column] for i in chosen]
        middle = float(np.median(values))
        nearest = sorted(values, key=lambda value: abs(value - middle))
        kept = nearest[: len(rows) - 4 * byzantine]
        result.append(sum(kept) / len(kept))
    return result


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(0, 2), st.integers(0, 6))
def test_bulyan_is_its_definition(seed: int, byzantine: int, more: int) -> None:
    rows = random_rows(seed, 4 * byzantine + 3 + more)
    expected = torch.tensor(slow_bulyan(rows.tolist(), byzantine), dtype=torch.float64)
    torch.testing.assert_close(bulyan(rows, byzantine), expected)


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(3, 12))
def test_krum_rules_are_their_definition(seed: int, count: int) -> None:
    rows = random_rows(seed, count)
    corrupt = min(count // 4, (count - 3) // 2)
    order = slow_krum_order(rows.tolist(), corrupt)
    torch.testing.assert_close(Krum(0.25)(rows, ONES[:count]), rows[order[0]])
    kept = rows[order[: count - corrupt]].mean(0)
    torch.testing.assert_close(MultiKrum(0.25)(rows, ONES[:count]), kept)


def test_by_hand() -> None:
    rows = torch.tensor([[0.0], [1.0], [2.5], [4.5], [100.0]])
    assert krum(rows, 1).item() == 1.0, "1 + 2.25 for 1; 2.25 + 4 for 2.5; 1 + 6.25 for 0"
    assert MultiKrum(0.2)(rows, ONES[:5]).item() == pytest.approx(2.0), "without 100"
    seven = torch.tensor([[0.0], [1.0], [2.1], [3.3], [4.6], [6.0], [99.0]])
    assert Bulyan(0.15)(seven, ONES[:7]).item() == pytest.approx(6.4 / 3), (
        "Krum chooses 2.1, 3.3, 1, 4.6, 0; 2.1, 1 and 3.3 are nearest to their median"
    )
    assert centered_clipping(torch.tensor([[0.0], [1.0], [2.0]]), 1.0, 1).item() == 1.0
    assert centered_clipping(torch.tensor([[0.0], [1.0], [3.0]]), 1.0, 1).item() == 1.0, (
        "3 is moved to 2"
    )


@pytest.mark.parametrize("rule", [Krum(0.25), MultiKrum(0.25), Bulyan(0.25), CenteredClipping()])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**31), size=st.floats(10, 1e6))
def test_two_of_eleven_far_rows_move_the_result_little(
    rule: Krum | MultiKrum | Bulyan | CenteredClipping, seed: int, size: float
) -> None:
    honest = random_rows(seed, 9)
    far = size * torch.ones(2, 3, dtype=torch.float64)
    result = rule(torch.cat([honest, far]), ONES[:11])
    assert float((result - honest.mean(0)).norm()) < 4 * float(honest.norm(dim=1).max())


@pytest.mark.parametrize("rule", [Krum(0.25), MultiKrum(0.25), Bulyan(0.25), CenteredClipping()])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_rows(rule: Krum | MultiKrum | Bulyan | CenteredClipping, count: int) -> None:
    rows = random_rows(count, count)
    result = rule(rows, ONES[:count])
    assert result.shape == (3,)
    if count < 3:
        torch.testing.assert_close(result, mean(rows))
        torch.testing.assert_close(result, median(rows))


@pytest.mark.parametrize("key", ["krum", "multi_krum", "bulyan"])
def test_rules_are_choices_with_trim(key: str) -> None:
    rule = robust_aggregation(key, 0.2, 1)  # type: ignore[arg-type]
    assert rule == aggregation_named(key, beta=0.2, at_least=1)
    assert robust_aggregation("centered_clipping", 0.2) == CenteredClipping()


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="4 byzantine \\+ 3 rows: byzantine=2, but 10 rows"):
        bulyan(random_rows(0, 10), 2)
