"""A run that was killed goes on where it was, and ends with the same bits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from srfca import SRFCA, InputError, Simulation, Work
from srfca.federation.base import Absence, Wire
from srfca.federation.journal import Entry, Journal
from srfca.methods import (
    CFL,
    IFCA,
    MOCHA,
    PACFL,
    Ditto,
    FedEM,
    FedSoft,
    Global,
    HypCluster,
    Method,
    Result,
)
from srfca.models import linear
from tests import examples

WORK = Work(steps=6, local_steps=2, batch_size=5, lr=0.05)
DATA = examples.regression([20] * 6, clusters=2)
ASKED = ("fit", "gradients", "losses", "shares", "scores", "subspaces")


class Killed(BaseException):
    """The process ends here."""


class Mortal(Simulation):
    """Answers so many questions, then the process is killed."""

    def __init__(self, lives: int) -> None:
        super().__init__(DATA, linear(4))
        self.asked = 0
        self.lives = lives

    def __getattribute__(self, name: str) -> Any:
        if name in ASKED:
            if self.asked >= self.lives:
                raise Killed
            self.asked += 1
        return super().__getattribute__(name)


def same(a: Result, b: Result) -> None:
    assert np.array_equal(a.labels, b.labels)
    for name in ("models", "own", "mixture", "tuned", "tuned_steps", "reach"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None and other is None) or torch.equal(one, other), name
    assert [stage.labels for stage in a.history] == [stage.labels for stage in b.history]
    assert [stage.loss for stage in a.history] == [stage.loss for stage in b.history]
    assert [stage.notes for stage in a.history] == [stage.notes for stage in b.history]
    assert [stage.budget for stage in a.history] == [stage.budget for stage in b.history]


METHODS: list[Method] = [
    SRFCA(work=WORK, threshold="40%", merge_threshold="auto", refine_steps=2, personal_steps=5),
    SRFCA(work=WORK, threshold="40%", aggregate="gradients", all_pairs=0, final_steps=2),
    SRFCA(work=Work(steps=6, local_steps=2, optimizer="adam", keep_state=True), threshold="40%"),
    IFCA(k=2, start="clients", restarts=2, work=WORK),
    HypCluster(k=2, work=WORK),
    Global(work=WORK, participation=0.5),
    CFL(work=WORK),
    FedSoft(k=2, start="clients", work=WORK),
    FedEM(k=2, start="clients", work=WORK),
    Ditto(work=WORK),
    MOCHA(work=WORK),
    PACFL(work=WORK, rank=2, threshold=30.0),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_a_killed_run_ends_the_same_whenever_it_was_killed(method: Method, tmp_path: Path) -> None:
    whole = Mortal(10**9)
    expected = method.fit(whole, seed=3)
    moments = sorted({*range(0, whole.asked, max(1, whole.asked // 4)), whole.asked - 1})
    for lives in moments:
        folder = tmp_path / str(lives)
        with pytest.raises(Killed):
            method.fit(Mortal(lives), seed=3, journal=folder)
        again = Mortal(10**9)
        same(method.fit(again, seed=3, journal=folder), expected)
        if not method.work.keep_state and not method.personal_steps:
            assert again.asked <= whole.asked - lives + 1
    for _ in range(2):
        finished = Mortal(0)
        same(method.fit(finished, seed=3, journal=folder), expected)


def test_a_training_leaves_one_file_whatever_its_rounds(tmp_path: Path) -> None:
    for steps in (6, 20):
        work = Work(steps=steps, local_steps=1)
        Global(work=work).fit(Mortal(10**9), seed=0, journal=tmp_path / str(steps))
    counts = [len(list((tmp_path / str(steps)).glob("*.safetensors"))) for steps in (6, 20)]
    assert counts[0] == counts[1]


def test_the_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    Global(work=WORK).fit(Mortal(10**9), seed=0, journal=tmp_path)
    with pytest.raises(InputError, match="another run: its seed"):
        Global(work=WORK).fit(Mortal(10**9), seed=1, journal=tmp_path)
    with pytest.raises(InputError, match="another run: its parameters"):
        Global(work=WORK, weighted=False).fit(Mortal(10**9), seed=0, journal=tmp_path)
    for data in (examples.regression([20] * 6, clusters=2, seed=1), replace(DATA, truth=None)):
        with pytest.raises(InputError, match="another run: its data"):
            Global(work=WORK).fit(Simulation(data, linear(4)), seed=0, journal=tmp_path)
    with pytest.raises(InputError, match="another run: its data"):
        Global(work=WORK).fit(Simulation(DATA, linear(4), validation=0.2), 0, journal=tmp_path)
    about = json.loads((tmp_path / "journal.json").read_text())
    journal = Journal(tmp_path / "new", {k: v for k, v in about.items() if k != "format"})
    journal.write(Entry("something else", {}))
    with pytest.raises(InputError, match="question 0 is not the same"):
        Global(work=WORK).fit(Mortal(10**9), seed=0, journal=tmp_path / "new")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    IFCA(k=2, start="clients", work=WORK).fit(Mortal(10**9), seed=0, journal=tmp_path)
    file = sorted(tmp_path.glob("*.safetensors"))[0]
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"000000.*\.safetensors is damaged"):
        IFCA(k=2, start="clients", work=WORK).fit(Mortal(10**9), seed=0, journal=tmp_path)
    (tmp_path / "journal.json").write_text("{")
    with pytest.raises(InputError, match=r"journal\.json is damaged"):
        IFCA(k=2, start="clients", work=WORK).fit(Mortal(10**9), seed=0, journal=tmp_path)


def test_absences_are_remembered(tmp_path: Path) -> None:
    class Forgetful(Simulation):
        """Client 2 never answers to fit."""

        def fit(self, starts: Tensor, clients: Any, *args: Any, **more: Any) -> Tensor:
            rows = super().fit(starts, clients, *args, **more)
            rows[[place for place, client in enumerate(clients) if client == 2]] = torch.nan
            self.wire = Wire(absences=(*self.wire.absences, Absence("2", "fit", "asleep")))
            return rows

    first = SRFCA(work=WORK, threshold="40%").fit(Forgetful(DATA, linear(4)), journal=tmp_path)
    again = SRFCA(work=WORK, threshold="40%").fit(Mortal(0), journal=tmp_path)
    assert first.history[0].notes["absent"] == [{"client": "2", "asked": "fit", "why": "asleep"}]
    same(first, again)
