from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize
from torch import Tensor

from srfca.aggregation import geometric_median, krum, mean, median, trim_count, trimmed_mean
from srfca.errors import InputError

rows_of = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
    elements=st.floats(-100, 100),
).map(torch.from_numpy)


@given(rows_of, st.floats(0, 0.499))
def test_trimmed_mean_is_its_definition(rows: Tensor, beta: float) -> None:
    count = len(rows)
    drop = int(np.floor(beta * count + 1e-9))
    expected = [
        sum(sorted(column)[drop : count - drop]) / (count - 2 * drop) for column in rows.T.tolist()
    ]
    torch.testing.assert_close(trimmed_mean(rows, beta), torch.tensor(expected).double())


@given(rows_of)
def test_trimmed_mean_without_trimming_is_the_mean(rows: Tensor) -> None:
    torch.testing.assert_close(trimmed_mean(rows, 0.0), mean(rows))


@pytest.mark.parametrize("beta", [0.5, 0.7, 1.0, -0.1])
def test_beta_of_one_half_or_more_is_refused(beta: float) -> None:
    with pytest.raises(InputError, match=r"must be in \[0, 1/2\).*leave nothing"):
        trimmed_mean(torch.ones(4, 2), beta)


def test_trim_count_is_exact_for_decimal_fractions() -> None:
    assert trim_count(100, 0.29) == 29, "0.29 * 100 is 28.999999999999996"
    assert [trim_count(10, 0.15), trim_count(10, 0.2), trim_count(3, 0.33)] == [1, 2, 0]
    assert [trim_count(count, 0.05, at_least=1) for count in (1, 2, 3, 39, 40)] == [0, 0, 1, 1, 2]
    assert trim_count(10, 0.0, at_least=1) == 0
    assert [trim_count(count, 0.4999999999) for count in (1, 2, 3, 10)] == [0, 0, 1, 4]


@given(rows_of, st.integers(0, 3), st.floats(1e3, 1e9))
def test_trimming_bounds_the_influence_of_attackers(
    rows: Tensor, attackers: int, size: float
) -> None:
    attack = torch.full((attackers, rows.shape[1]), size, dtype=torch.float64)
    all_rows = torch.cat([rows, attack])
    beta = (attackers + 0.5) / len(all_rows)
    if beta < 0.5:
        robust = trimmed_mean(all_rows, beta)
        assert bool((robust <= rows.max(0).values + 1e-9).all())
        assert bool((robust >= rows.min(0).values - 1e-9).all())


@given(rows_of)
def test_median_equals_that_of_numpy(rows: Tensor) -> None:
    torch.testing.assert_close(median(rows), torch.from_numpy(np.median(rows.numpy(), axis=0)))


@given(rows_of, st.data())
def test_weighted_mean_is_the_mean_of_repeated_rows(rows: Tensor, data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 4), min_size=len(rows), max_size=len(rows)))
    if sum(weights) == 0:
        with pytest.raises(InputError, match="all zero"):
            mean(rows, torch.tensor(weights))
        return
    repeated = rows.repeat_interleave(torch.tensor(weights), dim=0)
    torch.testing.assert_close(mean(rows, torch.tensor(weights)), repeated.mean(0))


@settings(max_examples=30)
@given(rows_of.filter(lambda rows: rows.shape[1] <= 3))
@example(torch.tensor([[1.1125e-308], [0.0]], dtype=torch.float64))
def test_geometric_median_minimizes_the_sum_of_distances(rows: Tensor) -> None:
    def cost(point: np.ndarray) -> float:
        return float(np.linalg.norm(rows.numpy() - point, axis=1).sum())

    reached = cost(geometric_median(rows).numpy())
    starts = [rows.mean(0).numpy(), *rows.numpy()]
    best = min(minimize(cost, start, method="Nelder-Mead").fun for start in starts)
    assert reached <= best + 1e-3 * max(best, 1e-3)


def test_geometric_median_is_at_a_majority_of_equal_rows() -> None:
    rows = torch.tensor([[0.0, 0.0]] * 4 + [[9.0, 1.0], [5.0, -7.0], [100.0, 100.0]])
    torch.testing.assert_close(geometric_median(rows), torch.zeros(2), atol=1e-4, rtol=0)


def test_krum_returns_an_honest_row() -> None:
    g = torch.Generator().manual_seed(0)
    honest = torch.randn(7, 5, generator=g)
    rows = torch.cat([honest, 50 + torch.randn(2, 5, generator=g)])
    chosen = krum(rows, byzantine=2)
    assert any(torch.equal(chosen, row) for row in honest)
    distances = torch.cdist(rows, rows).square()
    by_hand = [distances[i].sort().values[1 : 9 - 2 - 1].sum() for i in range(9)]
    assert torch.equal(chosen, rows[int(torch.stack(by_hand).argmin())])
    multi = krum(rows, byzantine=2, keep=3)
    assert float(multi.abs().max()) < 10
    with pytest.raises(InputError, match="2 byzantine"):
        krum(rows, byzantine=4)
    with pytest.raises(InputError, match="keep"):
        krum(rows, byzantine=2, keep=8)


def test_invalid_rows_and_weights_are_refused() -> None:
    for aggregate in (mean, median, geometric_median):
        with pytest.raises(InputError, match="rows"):
            aggregate(torch.ones(3))
        with pytest.raises(InputError, match="rows"):
            aggregate(torch.ones(0, 3))
    with pytest.raises(InputError, match="as many weights"):
        mean(torch.ones(3, 2), torch.ones(2))
    for weight in (-1.0, torch.inf, torch.nan):
        with pytest.raises(
            InputError, match="weights must be finite numbers that are not negative"
        ):
            mean(torch.ones(2, 2), torch.tensor([1.0, weight]))
    with pytest.raises(InputError, match="weights must be a tensor, not list"):
        mean(torch.ones(2, 2), [1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rows must be a tensor"):
        mean([[1.0], [2.0]])  # type: ignore[arg-type]


def test_integer_rows_are_refused() -> None:
    rows = torch.tensor([[1], [2], [4], [8]])
    for aggregate in (mean, median, geometric_median):
        with pytest.raises(InputError, match=r"must be floating-point numbers, not torch\.int64"):
            aggregate(rows)
    with pytest.raises(InputError, match="must be floating-point numbers"):
        trimmed_mean(rows, 0.25)
