"""Agreement of partitions, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from srfca import InputError, Partition

pairs = st.integers(1, 30).flatmap(
    lambda m: st.tuples(*[st.lists(st.integers(-1, 4), min_size=m, max_size=m)] * 2)
)


def singletons(labels: list[int]) -> list[int]:
    """Give every unclustered client a label of its own."""
    return [100 + client if label < 0 else label for client, label in enumerate(labels)]


@given(pairs)
def test_it_is_that_of_scikit_learn(labels: tuple[list[int], list[int]]) -> None:
    first, second = (Partition(values) for values in labels)
    expected = [singletons(values) for values in labels]
    assert first.ari(second) == pytest.approx(adjusted_rand_score(*expected), abs=1e-9)
    assert first.nmi(second) == pytest.approx(normalized_mutual_info_score(*expected), abs=1e-7)


def test_many_clients_do_not_overflow() -> None:
    labels = np.arange(2_000_000) % 3
    assert Partition(labels).ari(Partition(labels // 2)) == pytest.approx(4 / 7, abs=1e-5)
    assert Partition(labels).ari(Partition(labels)) == 1.0


def test_empty_partitions_are_equal() -> None:
    empty = Partition(np.empty(0, dtype=np.int64))
    assert (empty.ari(empty), empty.nmi(empty)) == (1.0, 1.0)


@pytest.mark.parametrize("score", ["ari", "nmi"])
def test_different_numbers_of_clients_are_refused(score: str) -> None:
    with pytest.raises(InputError, match="2 and 3 clients"):
        getattr(Partition([0, 1]), score)(Partition([0, 1, 1]))
