"""Ways to a trimmed mean on a CPU: why srfca selects a few ranks, and sorts where they are more.

    python benchmarks/ranks.py                # 100 rows of a million
    python benchmarks/ranks.py --rows 25      # few ranks are left out

Every way has the same blocks and threads; they take turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import torch
from harness import Times, table
from numpy.typing import NDArray

from srfca.aggregation import trim_count, trimmed_mean

BETA = 0.1
Block = NDArray[np.float32]
"""``[J, p]``"""


def by_sort(block: Block, drop: int) -> Block:
    """A full sort of every coordinate, side by side in the cache."""
    ranked = np.array(block.T, order="C")
    ranked.sort(axis=1)
    return ranked[:, drop : len(block) - drop].mean(axis=1)


def by_selection(block: Block, drop: int) -> Block:
    """A selection of the two ranks at the ends."""
    ranked = np.array(block.T, order="C")
    ranked.partition((drop, len(block) - drop - 1), axis=1)
    return ranked[:, drop : len(block) - drop].mean(axis=1)


def by_network(block: Block, drop: int) -> Block:
    """Batcher's network of odd-even merges, each comparison over whole rows."""
    rows = np.array(block)
    for low, high, apart in network(len(rows)):
        a, b = rows[low:high], rows[low + apart : high + apart]
        least = np.minimum(a, b)
        np.maximum(a, b, out=b)
        a[...] = least
    return rows[drop : len(rows) - drop].mean(axis=0)


def network(count: int) -> Iterator[tuple[int, int, int]]:
    """Comparisons of rows ``low`` to ``high`` with those so far apart, in order."""
    merged = 1
    while merged < count:
        apart = merged
        while apart >= 1:
            for start in range(apart % merged, count - apart, 2 * apart):
                inside = [
                    i
                    for i in range(start, min(start + apart, count - apart))
                    if i // (2 * merged) == (i + apart) // (2 * merged)
                ]
                if inside:
                    yield inside[0], inside[-1] + 1, apart
            apart //= 2
        merged *= 2


def in_blocks(way: Callable[[Block, int], Block], block: int) -> Callable[[torch.Tensor], object]:
    """A way over blocks of so many coordinates, on all cores."""

    def run(rows: torch.Tensor) -> torch.Tensor:
        values, drop = rows.numpy(), trim_count(len(rows), BETA)
        means = np.empty(rows.shape[1], dtype=np.float32)
        starts = iter(range(0, len(means), block))

        def work() -> None:
            for start in starts:
                means[start : start + block] = way(values[:, start : start + block], drop)

        threads = torch.get_num_threads()
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work) for _ in range(threads)]:
                done.result()
        return torch.from_numpy(means)

    return run


def by_torch(rows: torch.Tensor) -> torch.Tensor:
    """All rows sorted by torch at once."""
    drop = trim_count(len(rows), BETA)
    return rows.sort(0).values[drop : len(rows) - drop].mean(0)


def main() -> None:
    """Take turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--length", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = torch.randn(arguments.rows, arguments.length, generator=torch.Generator().manual_seed(0))
    ways: dict[str, Callable[[torch.Tensor], object]] = {
        "srfca": lambda rows: trimmed_mean(rows, BETA),
        "sort in the cache": in_blocks(by_sort, 655),
        "numpy.partition in the cache": in_blocks(by_selection, 655),
        "network, blocks of 4,096": in_blocks(by_network, 4096),
        "network, blocks of 16,384": in_blocks(by_network, 16384),
        "torch.sort of all": by_torch,
    }
    expected = trimmed_mean(rows, BETA)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(arguments.repeats):
        for name, way in ways.items():
            start = perf_counter()
            found = way(rows)
            taken[name].append(perf_counter() - start)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    print(table([Times(name, tuple(s), None) for name, s in taken.items()], "srfca"))


if __name__ == "__main__":
    main()
