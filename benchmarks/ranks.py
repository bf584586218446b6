"""Algorithms for a trimmed mean on a CPU: why srfca selects a few ranks, and sorts if more drop.

    python benchmarks/ranks.py                # 100 rows of a million
    python benchmarks/ranks.py --rows 25      # few ranks are dropped

All algorithms take turns. Those of this file run on equal blocks, in as many threads as torch uses.
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
from torch import Tensor

from srfca.aggregation import trim_count, trimmed_mean

BETA = 0.1
Block = NDArray[np.float32]
"""Some coordinates of all rows, ``[J, p]``."""
Algorithm = Callable[[Tensor], Tensor]
"""From rows ``[J, P]`` to their trimmed mean ``[P]``."""


def by_sort(block: Block, dropped: int) -> Block:
    """Sort every coordinate, with its values contiguous in the cache."""
    ranked = np.array(block.T, order="C")
    ranked.sort(axis=1)
    return ranked[:, dropped : len(block) - dropped].mean(axis=1)


def by_selection(block: Block, dropped: int) -> Block:
    """Select the two ranks at the ends."""
    ranked = np.array(block.T, order="C")
    ranked.partition((dropped, len(block) - dropped - 1), axis=1)
    return ranked[:, dropped : len(block) - dropped].mean(axis=1)


def by_network(block: Block, dropped: int) -> Block:
    """Sort by Batcher's network of odd-even merges, each comparison over whole rows."""
    rows = np.array(block)
    for low, high, offset in network(len(rows)):
        a, b = rows[low:high], rows[low + offset : high + offset]
        minimum = np.minimum(a, b)
        np.maximum(a, b, out=b)
        a[...] = minimum
    return rows[dropped : len(rows) - dropped].mean(axis=0)


def network(count: int) -> Iterator[tuple[int, int, int]]:
    """Yield the comparisons of a sorting network, in order.

    Each is ``(low, high, offset)``: rows ``low`` to ``high - 1`` are compared with the rows that
    are ``offset`` further down.
    """
    merged = 1
    while merged < count:
        offset = merged
        while offset >= 1:
            for start in range(offset % merged, count - offset, 2 * offset):
                inside = [
                    i
                    for i in range(start, min(start + offset, count - offset))
                    if i // (2 * merged) == (i + offset) // (2 * merged)
                ]
                if inside:
                    yield inside[0], inside[-1] + 1, offset
            offset //= 2
        merged *= 2


def in_blocks(algorithm: Callable[[Block, int], Block], size: int) -> Algorithm:
    """Apply an algorithm to blocks of ``size`` coordinates, in threads."""

    def run(rows: Tensor) -> Tensor:
        values, dropped = rows.numpy(), trim_count(len(rows), BETA)
        means = np.empty(rows.shape[1], dtype=np.float32)
        starts = iter(range(0, len(means), size))

        def work() -> None:
            for start in starts:
                means[start : start + size] = algorithm(values[:, start : start + size], dropped)

        threads = torch.get_num_threads()
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(work) for _ in range(threads)]:
                future.result()
        return torch.from_numpy(means)

    return run


def by_torch(rows: Tensor) -> Tensor:
    """Sort all rows at once with torch."""
    dropped = trim_count(len(rows), BETA)
    return rows.sort(0).values[dropped : len(rows) - dropped].mean(0)


def main() -> None:
    """Time all algorithms in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--length", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows = torch.randn(arguments.rows, arguments.length, generator=torch.Generator().manual_seed(0))
    algorithms: dict[str, Algorithm] = {
        "srfca": lambda rows: trimmed_mean(rows, BETA),
        "sort in the cache": in_blocks(by_sort, 655),
        "numpy.partition in the cache": in_blocks(by_selection, 655),
        "network, blocks of 4,096": in_blocks(by_network, 4096),
        "network, blocks of 16,384": in_blocks(by_network, 16384),
        "torch.sort of all rows": by_torch,
    }
    expected = trimmed_mean(rows, BETA)
    seconds: dict[str, list[float]] = {name: [] for name in algorithms}
    for _ in range(arguments.repeats):
        for name, algorithm in algorithms.items():
            start = perf_counter()
            means = algorithm(rows)
            seconds[name].append(perf_counter() - start)
            torch.testing.assert_close(means, expected, rtol=1e-4, atol=1e-5)
    print(table([Times(name, tuple(runs), None) for name, runs in seconds.items()], "srfca"))


if __name__ == "__main__":
    main()
