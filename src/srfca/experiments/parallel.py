"""Runs in several processes of this machine, each with its share of the cores."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from srfca.experiments.bench import Bench, Done, Finished, Task

_GRACE = 5.0
"""Seconds that a worker has to end in."""
_benches: list[Bench] = []
"""The bench of a worker process."""


def default_jobs(device: str, tasks: int) -> int:
    """As many processes as there are cores; one on a GPU, or for a single task."""
    gpu = torch.cuda.is_available() if device == "auto" else not device.startswith("cpu")
    return 1 if gpu else max(1, min(tasks, cores()))


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_parallel(bench: Bench, tasks: Sequence[Task], jobs: int, finished: Finished) -> None:
    """Do the tasks in so many processes; whatever interrupts this one ends them too."""
    before = set(active_children())
    threads = max(1, cores() // jobs)
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (bench, threads))
    try:
        with _deaf():
            futures = {pool.submit(_work, task): task for task in tasks}
        for future in as_completed(futures):
            finished(_done(future, futures[future]))
    except BaseException:
        _end_all(set(active_children()) - before)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_all(children: Iterable[BaseProcess]) -> None:
    """Let children drop what they have half written; what does not end then is killed."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _GRACE
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()


def _done(future: Future[Done], task: Task) -> Done:
    try:
        return future.result()
    except BrokenProcessPool:
        why = "its process, or one beside it, was ended; if memory ran out, take fewer --jobs"
        return Done(task, why=why)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started here do not hear Ctrl-C: it is for this one, which ends them in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(bench: Bench, threads: int) -> None:
    """Make a worker of this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # numpy's
    _benches.append(bench)


def _work(task: Task) -> Done:
    try:
        return _benches[0](task)
    except SystemExit:  # what was half written is gone by now; take no other task
        os._exit(1)


def _end(number: int, frame: Any) -> None:
    sys.exit(1)


def _end_with_parent() -> None:
    """Do not outlive the process that started this one, however it ended."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os._exit(1)
