"""Work shared among threads."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest
import torch

from srfca.threads import over_threads


def test_operations_are_not_split_further() -> None:
    before = torch.get_num_threads()
    counts: list[int] = []

    def work(thread: int, item: int) -> None:
        torch.ones(100_000).add(1)
        counts.append(torch.get_num_threads())

    over_threads(work, range(8), 3)
    assert counts == [1] * 8
    assert torch.get_num_threads() == before


def test_threads_stay() -> None:
    def names() -> set[str]:
        found = set()
        barrier = threading.Barrier(2)

        def work(thread: int, item: int) -> None:
            barrier.wait(10)
            found.add(threading.current_thread().name)

        over_threads(work, range(2), 2)
        return found

    assert names() == names()


def test_every_thread_has_its_number_and_every_item_is_done_once() -> None:
    seen: list[tuple[int, str, int]] = []

    def work(thread: int, item: int) -> None:
        seen.append((thread, threading.current_thread().name, item))

    over_threads(work, range(50), 4)
    assert sorted(item for _, _, item in seen) == list(range(50))
    assert len({thread for thread, _, _ in seen}) == len({(t, name) for t, name, _ in seen})


def test_nothing_is_begun_after_an_error() -> None:
    begun: list[int] = []

    def work(thread: int, item: int) -> None:
        begun.append(item)
        if item == 0:
            raise ValueError("item 0")
        time.sleep(0.05)

    with pytest.raises(ValueError, match="item 0"):
        over_threads(work, range(100), 2)
    assert len(begun) < 10


def _in_child() -> None:
    over_threads(lambda thread, item: None, range(4), 2)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    over_threads(lambda thread, item: None, range(4), 2)
    child = multiprocessing.get_context("fork").Process(target=_in_child)
    child.start()
    child.join(30)
    exitcode = child.exitcode
    child.kill()
    assert exitcode == 0
