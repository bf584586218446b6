"""``check_method`` accepts good methods, and names what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from srfca import FedAvg, InputError, Local, LocalTraining, Method, Partition
from srfca.aggregation import Mean
from srfca.federation import Round, Scores, Train
from srfca.methods import IFCA, Answer, Run
from srfca.models import linear
from srfca.parameters import constrained
from srfca.testing import METHOD_CHECKS, CheckError, check_method
from srfca.testing.method_case import LOCAL
from tests import examples


@dataclass(frozen=True, kw_only=True)
class Good(Method):
    """Train one model for all clients.

    Args:
        weighted: Weight clients by their number of samples.
    """

    key: ClassVar[str] = "good"
    name: ClassVar[str] = "Good"
    paper: ClassVar[str] = "None."
    clustered: ClassVar[bool] = False

    weighted: bool = True

    def solve(self, run: Run) -> Answer:
        labels = np.zeros(run.num_clients, dtype=np.int64)
        models = self.start(run)
        with run.stage("TRAIN", run.num_clients * self.local.steps):
            for number in range(self.local.rounds):
                models = self.round(run, models, labels, number)
        return self.finish(run, Answer(labels, models))

    def start(self, run: Run) -> torch.Tensor:
        return run.initial_model().unsqueeze(0)

    def round(
        self, run: Run, models: torch.Tensor, labels: np.ndarray, number: int
    ) -> torch.Tensor:
        key = run.key("good", number)
        return run.round(Round(run.everyone, models, labels, self.local, key, Mean(self.weighted)))

    def finish(self, run: Run, answer: Answer) -> Answer:
        run.record("TRAIN", Partition(answer.labels), answer.client_models)
        return answer


def test_a_good_method_passes() -> None:
    check_method(Good)
    check_method(Good(weighted=False, local=LOCAL))
    check_method(Good, parameters={"weighted": False})


def test_other_data_and_models_are_used() -> None:
    data = examples.regression([12, 15, 9], clusters=1)
    check_method(FedAvg, data=data, model=examples.doubled(linear(4)))


def test_checks_can_be_skipped() -> None:
    check_method(Undocumented, skip=["declaration"])
    with pytest.raises(InputError, match="unknown check 'declarations': did you mean"):
        check_method(Good, skip=["declarations"])
    assert set(METHOD_CHECKS) >= {"declaration", "parameters", "resume", "missing replies"}


@dataclass(frozen=True, kw_only=True)
class Undocumented(Good):
    """Train one model for all clients."""


@dataclass(frozen=True, kw_only=True)
class Misdocumented(Good):
    """Train one model for all clients.

    Args:
        weighted: Weight clients by their number of samples.
        patience: It was removed.
    """


class NoDataclass(Good):
    """Train one model for all clients.

    Args:
        weighted: Weight clients by their number of samples.
    """


@dataclass(frozen=True, kw_only=True)
class WithoutPaper(Good):
    """Train one model for all clients.

    Args:
        weighted: Weight clients by their number of samples.
    """

    paper: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class WithoutK(Good):
    """Train one model for all clients.

    Args:
        weighted: Weight clients by their number of samples.
    """

    needs_k: ClassVar[bool] = True


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Undocumented, "declaration: the docstring of Undocumented must have 'weighted'"),
        (Misdocumented, "declaration: the docstring of Misdocumented documents 'patience'"),
        (NoDataclass, "declaration: NoDataclass must be a dataclass itself"),
        (WithoutPaper, "declaration: WithoutPaper must declare 'paper'"),
        (WithoutK, "declaration: a method with needs_k must have the parameter 'k'"),
    ],
)
def test_incomplete_declarations_are_named(method: type[Method], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_method(method)


class Unchecked(Good):
    """Does not check its parameters."""

    k: int

    def __post_init__(self) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class UncheckedK(Unchecked):
    k: int = constrained(2, at_least=1)


class Unseeded(Good):
    def start(self, run: Run) -> torch.Tensor:
        return torch.randn(1, len(run.initial_model())).double()


class Remembering(Good):
    calls: ClassVar[list[int]] = []

    def start(self, run: Run) -> torch.Tensor:
        self.calls.append(1)
        return run.initial_model().unsqueeze(0) + len(self.calls)


class UsesTestData(Good):
    def finish(self, run: Run, answer: Answer) -> Answer:
        run.ask(Scores(run.everyone, answer.client_models, "test"))
        return super().finish(run, answer)


class NeedsAllReplies(Good):
    def round(
        self, run: Run, models: torch.Tensor, labels: np.ndarray, number: int
    ) -> torch.Tensor:
        starts = models.expand(run.num_clients, -1)
        request = Train(run.everyone, starts, self.local, run.key("all", number))
        rows = run.train(request).values
        return (rows * run.sizes.unsqueeze(1)).sum(0, keepdim=True) / run.sizes.sum()


class Uncounted(Good):
    def round(
        self, run: Run, models: torch.Tensor, labels: np.ndarray, number: int
    ) -> torch.Tensor:
        starts = models.expand(run.num_clients, -1)
        request = Train(run.everyone, starts, self.local, run.key("uncounted", number))
        replies = run.uncounted.ask(request)
        return replies.values.mean(0, keepdim=True) if len(replies.clients) else models


class TooManySteps(Good):
    @property
    def trainings(self) -> float:
        return 0.5


class WrongProgress(Good):
    def solve(self, run: Run) -> Answer:
        with run.stage("TOO MUCH", 999):
            return super().solve(run)


class OutsideStage(Good):
    def start(self, run: Run) -> torch.Tensor:
        starts = run.initial_model().expand(run.num_clients, -1)
        one_round = replace(self.local, steps=1)
        run.train(Train(run.everyone, starts, one_round, run.key("outside")))
        return super().start(run)

    @property
    def trainings(self) -> float:
        return 2.0


class WithoutHistory(Good):
    def finish(self, run: Run, answer: Answer) -> Answer:
        return answer


class WrongShape(Good):
    def finish(self, run: Run, answer: Answer) -> Answer:
        super().finish(run, answer)
        return replace(answer, individual_models=answer.client_models[:2])


class NotFinite(Good):
    def finish(self, run: Run, answer: Answer) -> Answer:
        super().finish(run, answer)
        return replace(answer, models=answer.models * torch.nan)


class Crashing(Good):
    def start(self, run: Run) -> torch.Tensor:
        raise RuntimeError("out of luck")


class Renumbered(Good):
    clustered: ClassVar[bool] = True

    def finish(self, run: Run, answer: Answer) -> Answer:
        super().finish(run, answer)
        labels = answer.labels + 1
        labels[-1] = 0
        return Answer(labels, answer.models.repeat(2, 1))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (UncheckedK, "parameters: .* must raise InputError"),
        (Unseeded, "repetition: the same seed must give the same models, to the bit"),
        (Remembering, "repetition: the same seed must give the same models"),
        (UsesTestData, "test data: a method must not use test data, but it sent 'scores'"),
        (NeedsAllReplies, "missing replies: a fraction of 0.1 .* is missing, and fit raises"),
        (Uncounted, "budget: clients took 36 local steps, but the stages count 0"),
        (TooManySteps, "budget: clients took 36 local steps, more than trainings=0.5 allows"),
        (WrongProgress, "progress: stage 'TOO MUCH' announced 999 local steps, but"),
        (OutsideStage, "progress: the stages report 66 local steps, but clients took 72"),
        (WithoutHistory, "result: run.record must be called"),
        (WrongShape, r"result: individual_models must be \[6, 53\], not \(2, 53\)"),
        (NotFinite, "result: models must be finite"),
        (Crashing, "result: the method raised RuntimeError: out of luck"),
        (Renumbered, "result: clusters must be numbered in the order of their first client"),
    ],
)
def test_misbehavior_is_named(method: type[Method], message: str) -> None:
    with pytest.raises(CheckError, match=message):
        check_method(method, skip=["declaration"])


def test_a_method_that_is_not_deterministic_does_not_resume() -> None:
    skip = set(METHOD_CHECKS) - {"resume"}
    with pytest.raises(CheckError, match="resume: "):
        check_method(Unseeded, skip=skip)


def test_an_instance_is_checked_as_it_is() -> None:
    local = LocalTraining(steps=4, local_steps=4, batch_size=None, lr=0.1)
    check_method(IFCA(k=3, start="clients", restarts=2, local=local))
    check_method(Local(local=local))
