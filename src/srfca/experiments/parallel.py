"""Runs in several processes of this machine, each with its share of the cores."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from srfca.experiments.executor import Executor, OnFinish, RunOutcome, RunSpec

RunAll = Callable[[Executor, Sequence[RunSpec], int, OnFinish, int | None], None]
"""Executes runs: the arguments are those of ``run_parallel``."""
_GRACE_SECONDS = 5.0
"""How long a worker process has to end before it is killed."""
_executors: list[Executor] = []
"""The executor of this worker process."""


def default_jobs(device: str, runs: int) -> int:
    """Return how many processes to use: one per core, but one on a GPU or for a single run."""
    return 1 if uses_gpu(device) else max(1, min(runs, num_cores()))


def uses_gpu(device: str) -> bool:
    """Return whether clients train on a GPU."""
    return torch.cuda.is_available() if device == "auto" else not device.startswith("cpu")


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_parallel(
    executor: Executor,
    specs: Sequence[RunSpec],
    jobs: int,
    on_finish: OnFinish,
    threads: int | None = None,
) -> None:
    """Execute runs in worker processes.

    Whatever interrupts this process also ends the workers.

    Args:
        executor: A copy of it goes to each worker.
        specs: What to run.
        jobs: Number of workers.
        on_finish: Called in this process with each run that has finished.
        threads: Threads of each worker; None is its share of the cores.
    """
    before = set(active_children())
    threads = threads or max(1, num_cores() // jobs)
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, (executor, threads))
    try:
        with _ignoring_interrupts():
            futures = {pool.submit(_execute, spec): spec for spec in specs}
        for future in as_completed(futures):
            on_finish(_outcome(future, futures[future]))
    except BaseException:
        _end_all(set(active_children()) - before)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Compute with this many threads of this process; None changes nothing."""
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):  # of numpy
            yield
    finally:
        torch.set_num_threads(before)


def _end_all(children: Iterable[BaseProcess]) -> None:
    """Terminate processes so that they can remove partial files, and kill those that do not end."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _GRACE_SECONDS
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        child.kill()


def _outcome(future: Future[RunOutcome], spec: RunSpec) -> RunOutcome:
    """Return the outcome of a run, also if its worker died."""
    try:
        return future.result()
    except BrokenProcessPool:
        error = "a worker process was killed; if memory ran out, use fewer --jobs"
        return RunOutcome(spec, error=error)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: only this process handles it, and ends them in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_worker(executor: Executor, threads: int) -> None:
    """Set up a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)  # of numpy
    _executors.append(executor)


def _execute(spec: RunSpec) -> RunOutcome:
    """Execute a run in a worker process."""
    try:
        return _executors[0].execute(spec)
    except SystemExit:  # from _exit_on_signal; partial files are removed, and no further run starts
        os._exit(1)


def _exit_on_signal(number: int, frame: Any) -> None:
    sys.exit(1)


def _end_with_parent() -> None:
    """End this process when its parent has ended, however that happened."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os._exit(1)
