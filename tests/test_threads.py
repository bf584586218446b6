"""Work that threads share, and the spinning of OpenMP's threads."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from srfca.threads import limit_spinning, run_in_threads


def test_operations_are_not_split_further() -> None:
    before = torch.get_num_threads()
    counts: list[int] = []

    def work(thread: int, item: int) -> None:
        torch.ones(100_000).add(1)
        counts.append(torch.get_num_threads())

    run_in_threads(work, range(8), 3)
    assert counts == [1] * 8
    assert torch.get_num_threads() == before


def test_threads_are_reused() -> None:
    def thread_names() -> set[str]:
        names = set()
        barrier = threading.Barrier(2)

        def work(thread: int, item: int) -> None:
            barrier.wait(10)
            names.add(threading.current_thread().name)

        run_in_threads(work, range(2), 2)
        return names

    assert thread_names() == thread_names()


def test_threads_are_numbered_and_items_are_processed_once() -> None:
    calls: list[tuple[int, str, int]] = []

    def work(thread: int, item: int) -> None:
        calls.append((thread, threading.current_thread().name, item))

    run_in_threads(work, range(50), 4)
    assert sorted(item for _, _, item in calls) == list(range(50))
    assert len({thread for thread, _, _ in calls}) == len({(t, name) for t, name, _ in calls})


def test_no_item_starts_after_an_error() -> None:
    started: list[int] = []

    def work(thread: int, item: int) -> None:
        started.append(item)
        if item == 0:
            raise ValueError("item 0")
        time.sleep(0.05)

    with pytest.raises(ValueError, match="item 0"):
        run_in_threads(work, range(100), 2)
    assert len(started) < 10


def _in_child() -> None:
    run_in_threads(lambda thread, item: None, range(4), 2)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    run_in_threads(lambda thread, item: None, range(4), 2)
    child = multiprocessing.get_context("fork").Process(target=_in_child)
    child.start()
    child.join(30)
    exitcode = child.exitcode
    child.kill()
    assert exitcode == 0


def test_limit_spinning_keeps_what_the_user_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "2000"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    limit_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_imports_set_no_environment_variable_and_limit_spinning_can_run_before_torch() -> None:
    code = (
        "import os, sys; before = dict(os.environ)\n"
        "import srfca, srfca.threads\n"
        "assert os.environ == before, set(os.environ) ^ set(before)\n"
        "srfca.threads.limit_spinning()\n"
        "assert 'torch' not in sys.modules\n"
        "print(os.environ['GOMP_SPINCOUNT'])\n"
    )
    unset = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "2000\n", done.stderr
