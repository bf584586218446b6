"""A run that was killed resumes where it stopped, and ends with the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import SRFCA, FedAvg, InputError, Simulation
from srfca.federation import LocalTraining, Middleware, Replies, Request, Train
from srfca.federation.middleware.journal import Entry, Journal, read_identity
from srfca.locks import locked
from srfca.methods import (
    CFL,
    IFCA,
    MOCHA,
    PACFL,
    Ditto,
    FedEM,
    FedSoft,
    HypCluster,
    Method,
    Result,
)
from srfca.models import linear
from srfca.testing.method_case import tensors_of
from tests import examples

LOCAL = LocalTraining(steps=6, local_steps=2, batch_size=5, lr=0.05)
KEPT = replace(LOCAL, momentum=0.9, keep_state=True)
DATA = examples.regression([20] * 6, clusters=2)


class Killed(BaseException):
    """The process ends here."""


class KilledAfter(Middleware):
    """A simulation that answers some requests, then the process is killed."""

    def __init__(self, requests: int = 10**9) -> None:
        super().__init__(Simulation(DATA, linear(4)))
        self.answered = 0
        self.limit = requests

    def ask(self, request: Request[Any]) -> Replies[Any]:
        if self.answered >= self.limit:
            raise Killed
        self.answered += 1
        return super().ask(request)


def assert_same(a: Result, b: Result) -> None:
    assert np.array_equal(a.labels, b.labels)
    first, second = tensors_of(a), tensors_of(b)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert [stage.labels for stage in a.history] == [stage.labels for stage in b.history]
    assert [stage.loss for stage in a.history] == [stage.loss for stage in b.history]
    assert [stage.notes for stage in a.history] == [stage.notes for stage in b.history]
    assert [stage.budget for stage in a.history] == [stage.budget for stage in b.history]


METHODS: dict[str, Method] = {
    "SR-FCA": SRFCA(
        local=LOCAL, threshold="40%", merge_threshold="auto", refine_steps=2, fine_tune_steps=5
    ),
    "SR-FCA with gradients": SRFCA(
        local=LOCAL, threshold="40%", exchange="gradients", all_pairs=0, final_steps=2
    ),
    "SR-FCA with kept state": SRFCA(
        local=LocalTraining(steps=6, local_steps=2, optimizer="adam", keep_state=True),
        threshold="40%",
    ),
    "IFCA": IFCA(k=2, start="clients", restarts=2, local=LOCAL),
    "HypCluster": HypCluster(k=2, local=LOCAL),
    "FedAvg": FedAvg(local=LOCAL, participation=0.5),
    "FedAvg with kept state": FedAvg(local=KEPT, participation=0.5, fine_tune_steps=5),
    "CFL": CFL(local=LOCAL),
    "FedSoft": FedSoft(k=2, start="clients", local=LOCAL),
    "FedEM": FedEM(k=2, start="clients", local=LOCAL),
    "FedEM with kept state": FedEM(k=2, start="clients", local=KEPT),
    "Ditto": Ditto(local=LOCAL),
    "Ditto with kept state": Ditto(local=KEPT),
    "MOCHA": MOCHA(local=LOCAL),
    "PACFL": PACFL(local=LOCAL, rank=2, threshold=30.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_killed_run_ends_the_same_whenever_it_was_killed(name: str, tmp_path: Path) -> None:
    method, uninterrupted = METHODS[name], KilledAfter()
    expected = method.fit(uninterrupted, seed=3)
    total = uninterrupted.answered
    for requests in sorted({*range(0, total, max(1, total // 4)), total - 1}):
        folder = tmp_path / str(requests)
        with pytest.raises(Killed):
            method.fit(KilledAfter(requests), seed=3, journal=folder)
        again = KilledAfter()
        assert_same(method.fit(again, seed=3, journal=folder), expected)
        if not method.local.keep_state and not method.fine_tune_steps:
            assert again.answered <= total - requests + 1
    for _ in range(2):
        assert_same(method.fit(KilledAfter(0), seed=3, journal=folder), expected)


def test_a_training_leaves_one_file_however_many_rounds_it_has(tmp_path: Path) -> None:
    counts = []
    for steps in (6, 20):
        folder = tmp_path / str(steps)
        local = LocalTraining(steps=steps, local_steps=1)
        FedAvg(local=local).fit(KilledAfter(), seed=0, journal=folder)
        counts.append(len(list(folder.glob("*.safetensors"))))
    assert counts[0] == counts[1]


def test_the_journal_of_another_run_is_rejected(tmp_path: Path) -> None:
    FedAvg(local=LOCAL).fit(KilledAfter(), seed=0, journal=tmp_path)
    with pytest.raises(InputError, match=r"another run: seed differs \(journal: 0, now: 1\)"):
        FedAvg(local=LOCAL).fit(KilledAfter(), seed=1, journal=tmp_path)
    with pytest.raises(InputError, match="another run: parameters differs"):
        FedAvg(local=LOCAL, weighted=False).fit(KilledAfter(), seed=0, journal=tmp_path)
    for data in (examples.regression([20] * 6, clusters=2, seed=1), replace(DATA, truth=None)):
        with pytest.raises(InputError, match="another run: data differs"):
            FedAvg(local=LOCAL).fit(Simulation(data, linear(4)), seed=0, journal=tmp_path)
    with pytest.raises(InputError, match="another run: data differs"):
        FedAvg(local=LOCAL).fit(Simulation(DATA, linear(4), validation=0.2), 0, journal=tmp_path)
    identity = read_identity(tmp_path)
    assert identity is not None
    journal = Journal(tmp_path / "new", identity)
    journal.write(Entry("something else", {}))
    with pytest.raises(InputError, match="another run: request 0 differs"):
        FedAvg(local=LOCAL).fit(KilledAfter(), seed=0, journal=tmp_path / "new")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    method = IFCA(k=2, start="clients", local=LOCAL)
    method.fit(KilledAfter(), seed=0, journal=tmp_path)
    file = sorted(tmp_path.glob("*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"000000.*\.safetensors is damaged"):
        method.fit(KilledAfter(), seed=0, journal=tmp_path)
    (tmp_path / "journal.json").write_text("{")
    with pytest.raises(InputError, match=r"journal\.json is damaged"):
        method.fit(KilledAfter(), seed=0, journal=tmp_path)


class Client2NeverTrains(Middleware):
    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies = super().ask(request)
        return replies.without([2], "asleep") if isinstance(request, Train) else replies


def test_missing_replies_are_written(tmp_path: Path) -> None:
    method = SRFCA(local=LOCAL, threshold="40%")
    first = method.fit(Client2NeverTrains(Simulation(DATA, linear(4))), journal=tmp_path)
    again = method.fit(KilledAfter(0), journal=tmp_path)
    assert first.history[0].notes["missing"] == [
        {"client": "2", "request": "train", "reason": "asleep"}
    ]
    assert_same(first, again)


def test_flipped_bits_of_an_entry_are_noticed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {"seed": 0})
    journal.write(Entry("request", {"values": torch.tensor([[0.5, 1.5]])}, {3: "asleep"}))
    path = tmp_path / "000000.safetensors"
    intact = path.read_bytes()
    for bit in range(0, 8 * len(intact), 5):
        content = bytearray(intact)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            entry = Journal(tmp_path, {"seed": 0}).next("request")
        except InputError:
            continue
        assert entry is not None  # the bit was in the layout of the header
        assert entry.tensors["values"].tolist() == [[0.5, 1.5]]
        assert entry.missing == {3: "asleep"}


def test_entries_of_other_places_and_other_runs_are_refused(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / str(seed), {"seed": seed}) for seed in (0, 1)]
    for journal in journals:
        for number in range(2):
            journal.write(Entry("request", {"values": torch.full((1, 2), float(number))}))
    first, second = (tmp_path / "0" / f"00000{number}.safetensors" for number in range(2))
    kept = first.read_bytes()
    for other in (second, tmp_path / "1" / first.name):
        first.write_bytes(other.read_bytes())
        with pytest.raises(InputError, match="its checksum does not match: delete the folder"):
            Journal(tmp_path / "0", {"seed": 0}).next("request")
    first.write_bytes(kept)
    assert Journal(tmp_path / "0", {"seed": 0}).next("request") is not None


def test_two_processes_do_not_share_a_journal(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(InputError, match="is in use by process"):
        FedAvg(local=LOCAL).fit(KilledAfter(), journal=tmp_path)
