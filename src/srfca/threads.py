"""Threads: a pool that shares work, and how long OpenMP's threads spin.

torch is imported only where it is used: ``limit_spinning`` must run before torch is imported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import TypeVar

_T = TypeVar("_T")

SPIN_COUNT = 2000
"""Iterations that a waiting OpenMP thread spins before it sleeps: some microseconds."""


def limit_spinning() -> None:
    """Let OpenMP's idle threads go to sleep after microseconds instead of milliseconds.

    The threads of one torch operation wait for each other. By default they spin for milliseconds,
    which is slightly faster on an idle machine, but keeps the cores from other processes: with two
    processes per core, training can take twice as long (``benchmarks/busy.py``).

    Sets the environment variable ``GOMP_SPINCOUNT``, also for child processes, unless it or
    ``OMP_WAIT_POLICY`` is already set. The OpenMP runtime reads it when it is loaded, so this only
    has an effect if it is called before torch is imported. Importing srfca never calls it.

    Examples:
        Before anything else is imported::

            from srfca.threads import limit_spinning
            limit_spinning()
            import torch
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))


def run_in_threads(work: Callable[[int, _T], None], items: Iterable[_T], threads: int) -> None:
    """Call ``work(thread, item)`` for all items, each thread taking the next one when it is free.

    Inside ``work``, torch does not split an operation among further threads. After an exception or
    Ctrl-C no further item is started. The threads stay alive for the next call, since starting one
    takes as long as a small job.

    Args:
        work: Called with the number of the thread, from 0, and an item.
        items: The items.
        threads: Number of threads.

    Raises:
        Exception: The first exception that ``work`` raised, once all running items have finished.

    Examples:
        >>> squares = []
        >>> run_in_threads(lambda thread, item: squares.append(item**2), range(4), threads=2)
        >>> sorted(squares)
        [0, 1, 4, 9]
    """
    queue, lock = iter(items), threading.Lock()

    def take() -> list[_T]:
        with lock:
            return list(islice(queue, 1))

    def run(thread: int) -> None:
        while taken := take():
            work(thread, taken[0])

    futures = [_pool(threads).submit(run, thread) for thread in range(threads)]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        while take():
            pass
        wait(futures)
    for future in futures:
        future.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Start a pool whose threads all run, and leave torch's number of threads as it was."""
    import torch

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, "srfca", _use_one_torch_thread)
    barrier = threading.Barrier(threads)
    wait([pool.submit(barrier.wait) for _ in range(threads)])
    torch.set_num_threads(before)
    return pool


def _use_one_torch_thread() -> None:
    """Keep torch from splitting operations in this thread."""
    import torch

    torch.get_num_threads()  # the first call in a thread initializes the number, so call it first
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
