"""The checks accept good federations, and say what is wrong with bad ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from srfca import InputError, Simulation
from srfca.federation import (
    BalancedLosses,
    ClassCounts,
    ClientScores,
    DropReplies,
    Federation,
    Gradients,
    Losses,
    Middleware,
    Replies,
    Request,
    Round,
    Scores,
    Shares,
    Subspaces,
    Train,
    train_and_aggregate,
)
from srfca.federation.algorithms import Descent
from srfca.testing import (
    FEDERATION_CHECKS,
    CheckError,
    ReferenceFederation,
    check_federation,
    make_case,
)


class AnswersRounds(Middleware):
    answers_rounds = True

    def ask(self, request: Request[Any]) -> Replies[Any]:
        if isinstance(request, Round):
            return train_and_aggregate(self.federation, request)
        return super().ask(request)


class KeepsPersonalData(Middleware):
    """As a real client does, replies to no ``Collect``."""

    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies = super().ask(request)
        return replies.without(request.clients, "private") if request.name == "collect" else replies


GOOD: dict[str, Callable[..., Federation]] = {
    "simulation": Simulation,
    "one by one": lambda data, model: Simulation(data, model, block_size=1),
    "reference": ReferenceFederation,
    "answers rounds": lambda data, model: AnswersRounds(Simulation(data, model)),
    "keeps personal data": lambda data, model: KeepsPersonalData(Simulation(data, model)),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_federations_pass(name: str) -> None:
    check_federation(
        GOOD[name],
        make_unreliable=lambda data, model: DropReplies(GOOD[name](data, model), 0.4),
    )


def test_another_fraction_is_held_out() -> None:
    check_federation(
        lambda data, model: Simulation(data, model, validation=0.3),
        validation=0.3,
        dtypes=[torch.float64],
    )
    check_federation(
        lambda data, model: Simulation(data, model, validation=0),
        validation=0,
        dtypes=[torch.float64],
    )
    with pytest.raises(CheckError, match="description: sizes must be"):
        check_federation(lambda data, model: Simulation(data, model, validation=0.3))


class Wrong(Middleware):
    """A simulation whose replies to some requests are changed."""

    def __init__(
        self, data: Any, model: Any, kind: type, change: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(Simulation(data, model))
        self.kind, self.change = kind, change

    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies = super().ask(request)
        if not isinstance(request, self.kind):
            return replies
        return replace(replies, values=self.change(request, replies.values))


def first_is_nan(request: Any, values: torch.Tensor) -> torch.Tensor:
    values = values.clone()
    values[0] = torch.nan
    return values


def noisy(request: Any, values: torch.Tensor) -> torch.Tensor:
    return values + 1e-9 * torch.rand(values.shape)


def by_position(request: Any, values: torch.Tensor) -> torch.Tensor:
    return values + torch.arange(len(values)).view(-1, *[1] * (values.ndim - 1))


def of_everyone(request: Any, values: torch.Tensor) -> torch.Tensor:
    return values - values.mean(0)


CHANGES: dict[str, tuple[type, Callable[[Any, Any], Any], str]] = {
    "training is off": (Train, lambda r, v: v + 1e-3, "training: Train with SGD.*differs by"),
    "a NaN": (Train, first_is_nan, "training: Train with SGD, round 0, must be finite"),
    "another shape": (
        Gradients,
        lambda r, v: v[:, 1:],
        "evaluation: Gradients must have the shape",
    ),
    "losses transposed": (Losses, lambda r, v: v.T, "evaluation: Losses on train data must have"),
    "class counts off": (ClassCounts, lambda r, v: v + 1, "classes: ClassCounts differs"),
    "balanced losses off": (
        BalancedLosses,
        lambda r, v: 2 * v,
        "classes: BalancedLosses differs",
    ),
    "unknown balanced losses are numbers": (
        BalancedLosses,
        lambda r, v: v.nan_to_num(),
        "classes: BalancedLosses must be NaN where the answer is not defined",
    ),
    "known balanced losses are unknown": (
        BalancedLosses,
        lambda r, v: v * torch.nan,
        "classes: BalancedLosses must be finite",
    ),
    "not the same twice": (Train, noisy, "repetition: the same 'train' request"),
    "shares off": (Shares, lambda r, v: v / 2, "evaluation: Shares differs"),
    "subspaces off": (
        Subspaces,
        lambda r, v: v[..., :1],
        "evaluation: Subspaces must have the shape",
    ),
    "scores off": (
        Scores,
        lambda r, v: ClientScores(v.loss, None, v.num_samples),
        "personal: the accuracy of Scores with personal coordinates must be given",
    ),
    "depends on the position": (Train, by_position, "training: Train with SGD"),
    "depends on the others": (Gradients, of_everyone, "evaluation: Gradients differs"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_wrong_replies_are_detected(name: str) -> None:
    kind, change, message = CHANGES[name]
    with pytest.raises(CheckError, match=message):
        check_federation(
            lambda data, model: Wrong(data, model, kind, change), dtypes=[torch.float64]
        )


@pytest.mark.parametrize("change", [by_position, of_everyone])
def test_dependence_on_other_clients_is_detected_by_the_order_alone(
    change: Callable[[Any, Any], Any],
) -> None:
    case = make_case(lambda data, model: Wrong(data, model, Gradients, change))
    with pytest.raises(
        CheckError, match=r"'gradients' of clients \[2, 0, 3, 1\] asked alone|\[3\]"
    ):
        FEDERATION_CHECKS["order"](case)


class Ignores(Middleware):
    """A simulation that ignores part of a training."""

    def __init__(self, data: Any, model: Any, part: Callable[[Train], Train]) -> None:
        super().__init__(Simulation(data, model))
        self.part = part

    def ask(self, request: Request[Any]) -> Replies[Any]:
        return super().ask(self.part(request) if isinstance(request, Train) else request)


def without(name: str) -> Callable[[Train], Train]:
    def change(request: Train) -> Train:
        if not isinstance(request.algorithm, Descent):
            return request
        empty: Any = () if name == "phases" else None
        return replace(request, algorithm=replace(request.algorithm, **{name: empty}))

    return change


IGNORED: dict[str, tuple[Callable[[Train], Train], str]] = {
    "anchors": (without("anchors"), "descent: Train with anchors"),
    "corrections": (without("corrections"), "descent: Train with corrections"),
    "phases": (without("phases"), "descent: Train with phases"),
    "posterior": (without("posterior"), "descent: Train with a posterior"),
    "personal": (lambda r: replace(r, personal=None), "personal: Train with personal coordinates"),
    "keep_state": (
        lambda r: replace(r, local=replace(r.local, keep_state=False)),
        "kept state: Train with keep_state in round 1",
    ),
    "resample": (
        lambda r: replace(r, local=replace(r.local, resample=False)),
        "training: Train with resampling",
    ),
}


@pytest.mark.parametrize("name", IGNORED)
def test_ignored_parts_of_a_training_are_detected(name: str) -> None:
    part, message = IGNORED[name]
    with pytest.raises(CheckError, match=message):
        check_federation(lambda data, model: Ignores(data, model, part), dtypes=[torch.float64])


class WrongIds(Simulation):
    @property
    def client_ids(self) -> list[str]:
        return ["a"] * 4


class WrongLayers(Middleware):
    @property
    def layers(self) -> dict[str, slice]:
        return {"1": slice(0, 35)}


class WrongError(Middleware):
    def ask(self, request: Request[Any]) -> Replies[Any]:
        try:
            return super().ask(request)
        except InputError as error:
            raise RuntimeError("oops") from error


class RaisesNothing(Middleware):
    def ask(self, request: Request[Any]) -> Replies[Any]:
        if isinstance(request, Subspaces):
            return super().ask(replace(request, rank=min(2, request.rank)))
        return super().ask(request)


OTHERS: dict[str, tuple[Callable[..., Federation], str]] = {
    "ids": (WrongIds, "description: client ids must be unique"),
    "layers": (
        lambda data, model: WrongLayers(Simulation(data, model)),
        "description: layers must lie at",
    ),
    "another error": (
        lambda data, model: WrongError(Simulation(data, model)),
        "wrong input: a client that does not exist must raise InputError, not RuntimeError: oops",
    ),
    "no error": (
        lambda data, model: RaisesNothing(Simulation(data, model)),
        "wrong input: a rank that is too large must raise InputError",
    ),
    "missing replies": (
        lambda data, model: DropReplies(Simulation(data, model), 0.5),
        "clients did not reply to 'train'",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_faults_are_detected(name: str) -> None:
    make, message = OTHERS[name]
    with pytest.raises(CheckError, match=message):
        check_federation(make, dtypes=[torch.float64])


class NaNForMissing(DropReplies):
    """The old way: a row of NaN for a client that did not reply."""

    def ask(self, request: Request[Any]) -> Replies[Any]:
        replies = super().ask(request)
        if not isinstance(replies.values, torch.Tensor):
            return replies
        shape = len(request.clients), *replies.values.shape[1:]
        return Replies(request.clients, replies.fill(torch.full(shape, torch.nan)))


def test_missing_replies_must_not_be_rows_of_nan() -> None:
    with pytest.raises(CheckError, match="missing replies: the replies to 'train' must be finite"):
        check_federation(
            Simulation,
            make_unreliable=lambda data, model: NaNForMissing(Simulation(data, model), 0.5),
            dtypes=[torch.float64],
        )
    with pytest.raises(CheckError, match="missing replies: the federation that should lose"):
        check_federation(Simulation, make_unreliable=Simulation, dtypes=[torch.float64])


def test_checks_may_be_skipped() -> None:
    def no_subspaces(data: Any, model: Any) -> Federation:
        return Wrong(data, model, Subspaces, lambda request, values: values + 1)

    check_federation(no_subspaces, skip=["evaluation"], dtypes=[torch.float64])
    with pytest.raises(InputError, match="unknown check 'evalution': did you mean 'evaluation'"):
        check_federation(Simulation, skip=["evalution"])


def test_an_unexpected_error_names_the_check() -> None:
    def fails(request: Any, values: Any) -> Any:
        raise KeyError("lost")

    with pytest.raises(CheckError, match="training: the federation raised KeyError: 'lost'"):
        check_federation(lambda data, model: Wrong(data, model, Train, fails))
