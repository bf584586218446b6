"""Which rows a client still has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srfca.flower.row_cache import RowCache


@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=4), max_size=8), st.integers(2, 5))
def test_a_cache_holds_the_newest_rows(additions: list[list[str]], max_rows: int) -> None:
    cache = RowCache(4, max_rows=max_rows)
    added: list[str] = []
    for names in additions:
        cache.add(names)
        added += names
    newest = list(dict.fromkeys(reversed(added)))[:max_rows]
    assert cache.names == newest[::-1]
    assert RowCache(2**30).names == []


def test_few_large_rows_fit() -> None:
    cache = RowCache(row_bytes=2**30)
    cache.add("abc")
    assert cache.names == ["b", "c"]
