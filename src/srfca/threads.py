"""Threads that share work, and stay: to start one takes as long as a small job."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cache
from itertools import islice
from typing import TypeVar

import torch

_T = TypeVar("_T")


def over_threads(work: Callable[[int, _T], None], items: Iterable[_T], threads: int) -> None:
    """Call ``work(thread, item)`` for all items; every thread takes the next one.

    torch does not split an operation among further threads there. After an error, or Ctrl-C, no
    item is begun any more.

    >>> found = []
    >>> over_threads(lambda thread, item: found.append(item**2), range(4), threads=2)
    >>> sorted(found)
    [0, 1, 4, 9]
    """
    waiting, lock = iter(items), threading.Lock()

    def take() -> list[_T]:
        with lock:
            return list(islice(waiting, 1))

    def run(thread: int) -> None:
        while taken := take():
            work(thread, taken[0])

    running = [_pool(threads).submit(run, thread) for thread in range(threads)]
    try:
        wait(running, return_when=FIRST_EXCEPTION)
    finally:
        while take():
            pass
        wait(running)
    for done in running:
        done.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, "srfca", _split_no_further)
    barrier = threading.Barrier(threads)
    wait([pool.submit(barrier.wait) for _ in range(threads)])
    torch.set_num_threads(before)
    return pool


def _split_no_further() -> None:
    torch.get_num_threads()  # a thread takes torch's own number when it first asks for it
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
