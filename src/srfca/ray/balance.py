"""Which workers are slow, and which shard should move to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low

from torch import Tensor

SLOW = 1.5
"""A worker is slow if a sample takes it more than this many times the median of all workers."""
REQUESTS = 5
"""So many requests in a row, before a shard moves."""
MIN_SECONDS = 0.05
"""Shorter requests say nothing."""


@dataclass(frozen=True)
class Timing:
    """What a call took.

    Args:
        seconds: That the worker computed.
        samples: That it computed with; a sample counts in every step.
    """

    seconds: float
    samples: float


@dataclass(frozen=True)
class Move:
    """A shard, and the worker that it should move to."""

    shard: int
    host: int


class Balance:
    """Follows how fast workers are.

    >>> balance = Balance()
    >>> host_of = [0, 1, 0, 1]
    >>> for _ in range(REQUESTS):
    ...     seconds = {0: 3.0, 1: 1.0, 2: 3.0, 3: 1.0}
    ...     balance.note(host_of, {shard: Timing(s, 100) for shard, s in seconds.items()})
    >>> balance.suggest(host_of)
    Move(shard=0, host=1)
    """

    def __init__(self) -> None:
        self._last: Mapping[int, Timing] = {}
        self._rates: dict[int, float] = {}
        self._slow: dict[int, int] = {}

    def note(self, host_of: Sequence[int], timings: Mapping[int, Timing]) -> None:
        """Note the calls of one request.

        Args:
            host_of: The worker of each shard.
            timings: Of calls, by shard.
        """
        by_host: dict[int, list[Timing]] = {}
        for shard, timing in timings.items():
            by_host.setdefault(host_of[shard], []).append(timing)
        seconds = {host: sum(t.seconds for t in calls) for host, calls in by_host.items()}
        samples = {host: sum(t.samples for t in calls) for host, calls in by_host.items()}
        busy = [host for host in by_host if samples[host] > 0]
        if len(busy) < 2 or max(seconds[host] for host in busy) < MIN_SECONDS:
            return
        self._last = timings
        self._rates = {host: seconds[host] / samples[host] for host in busy}
        middle = median_low(self._rates.values())
        self._slow = {
            host: self._slow.get(host, 0) + 1
            for host, rate in self._rates.items()
            if rate > SLOW * middle
        }

    def suggest(self, host_of: Sequence[int]) -> Move | None:
        """Return a move that makes requests faster, None if there is none.

        Args:
            host_of: The worker of each shard.
        """
        loads: dict[int, float] = {}
        for shard, timing in self._last.items():
            loads[host_of[shard]] = loads.get(host_of[shard], 0.0) + timing.samples
        for host, requests in self._slow.items():
            shards = [s for s in self._last if host_of[s] == host and self._last[s].samples > 0]
            if requests < REQUESTS or len(shards) < 2:
                continue
            fastest = min(self._rates, key=self._rates.__getitem__)
            shard = min(shards, key=lambda s: self._last[s].samples)
            load = loads.get(fastest, 0.0) + self._last[shard].samples
            if self._rates[fastest] * load < self._rates[host] * loads[host]:
                self._slow = {}
                return Move(shard, fastest)
        return None


def samples_in(sizes: Tensor, steps: int, batch_size: int | None) -> float:
    """Return how many samples some clients compute with in some steps.

    Args:
        sizes: ``[c]`` samples of each client.
        steps: Of each client.
        batch_size: Samples of each step; None is all.

    >>> import torch
    >>> samples_in(torch.tensor([5, 30]), 2, 10)
    30.0
    """
    used = sizes if batch_size is None else sizes.clamp(max=batch_size)
    return float(steps * used.sum())
