"""Clients whose losses do not count."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from srfca import SRFCA, LocalTraining, Simulation, data
from srfca.federation import Losses, Scores, Train
from srfca.federation.middleware import Distrusting
from srfca.federation.middleware.attacks import Attacked, LyingLosses
from srfca.models import mlp
from srfca.random import Key
from tests.asking import positions
from tests.federation.stub import Stub

EVERYONE = positions(range(3))
ROWS = torch.zeros(3, 2)


def test_reports_of_distrusted_clients_are_missing_and_they_still_train() -> None:
    federation = Distrusting(Stub())
    assert not federation.ask(Losses(EVERYONE, ROWS)).missing
    federation.distrust([1])
    assert list(federation.ask(Losses(EVERYONE, ROWS)).missing) == [1]
    assert list(federation.ask(Scores(EVERYONE, ROWS, "validation")).missing) == [1]
    training = Train(EVERYONE, ROWS, LocalTraining(steps=2, local_steps=2), Key(0, "test"))
    assert not federation.ask(training).missing


@pytest.mark.filterwarnings("ignore::srfca.errors.SrfcaWarning")
def test_a_run_with_liars_resumes_to_the_same_models(tmp_path: Path) -> None:
    digits = Simulation(data.rotated_digits(num_clients=12, rotations=2), mlp(64, 16, 10))
    attacked = Attacked(digits, LyingLosses("high"), [0, 7])
    method = SRFCA(local=LocalTraining(steps=20, local_steps=5, lr=0.5))
    first = method.fit(attacked, journal=tmp_path / "journal")
    again = method.fit(attacked, journal=tmp_path / "journal")
    assert torch.equal(first.models, again.models)
    assert first.labels.tolist() == again.labels.tolist()
    assert first.budget == again.budget
