"""Checks of a method, also of another package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, astuple, fields
from itertools import product
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import nn

from srfca.clustering.partition import Partition
from srfca.data.client_data import ClientData
from srfca.docstrings import arguments
from srfca.engine.loss import loss_named
from srfca.errors import InputError, describe, unknown
from srfca.federation.middleware import DropReplies
from srfca.federation.middleware.counting import Budget
from srfca.federation.requests import Gradients, Train
from srfca.methods import Method, Result
from srfca.methods._common.base import FAMILIES
from srfca.parameters import choices, constraint_of
from srfca.testing.errors import CheckError, require_check
from srfca.testing.method_case import (
    LOCAL,
    KillAfter,
    Killed,
    MethodCase,
    StepMonitor,
    example_clients,
    example_model,
    require_close,
    require_same_bits,
)

_SEED = 3
_DROPS = ((0.1, 0), (0.2, 1), (0.3, 2))
"""Probabilities that a reply is lost, and seeds."""


def check_declaration(case: MethodCase) -> None:
    """The class says what it is: key, name, paper and family, and every parameter is documented."""
    kind = type(case.method)
    for attribute in ("key", "name", "paper"):
        value = getattr(kind, attribute, None)
        require_check(
            isinstance(value, str) and bool(value),
            f"{kind.__name__} must declare {attribute!r}, a string",
        )
    require_check(kind.family in FAMILIES, f"family must be one of {FAMILIES}, not {kind.family!r}")
    options = vars(kind).get("__dataclass_params__")
    require_check(
        options is not None and options.frozen,
        f"{kind.__name__} must be a dataclass itself: @dataclass(frozen=True, kw_only=True)",
    )
    names = {parameter.name for parameter in fields(kind)}
    for flag, name in (("needs_k", "k"), ("needs_truth", "truth")):
        require_check(
            not getattr(kind, flag) or name in names,
            f"a method with {flag} must have the parameter {name!r}",
        )
    documented = set(arguments(kind))
    inherited = {parameter.name for parameter in fields(Method)}
    for name in sorted(names - inherited - documented):
        raise CheckError(f"the docstring of {kind.__name__} must have {name!r} in its Args section")
    for name in sorted(documented - names):
        raise CheckError(f"the docstring of {kind.__name__} documents {name!r}, no parameter")


def check_parameters(case: MethodCase) -> None:
    """Values that are not allowed raise ``InputError`` when the method is made."""
    hints = get_type_hints(type(case.method))
    for parameter in fields(case.method):
        for value in _wrong_values(parameter, hints[parameter.name]):
            try:
                case.with_parameters(**{parameter.name: value})
            except InputError:
                continue
            except Exception as error:
                raise CheckError(
                    f"{parameter.name}={value!r} must raise InputError, not {describe(error)}"
                ) from error
            raise CheckError(f"{parameter.name}={value!r} must raise InputError")


def check_result(case: MethodCase) -> None:
    """Labels, models and history have consistent shapes and finite numbers."""
    federation = case.federation()
    result = case.method.fit(federation, _SEED)
    _require_consistent(case, result, len(federation.initial_model(_SEED)))
    require_check(bool((result.labels >= 0).all()), "every client must have a label if all reply")
    require_check(result.method == case.method.name, f"the result must be of {case.method.name!r}")
    require_check(len(result.history) > 0, "run.record must be called for at least one stage")
    for stage in result.history:
        require_check(
            stage.loss is not None and np.isfinite(stage.loss),
            f"stage {stage.name!r} must have a finite loss, not {stage.loss}",
        )
    scores = result.scores(federation)
    require_check(bool(scores.loss.isfinite().all()), "every client's model must have a test loss")


def check_repetition(case: MethodCase) -> None:
    """The same seed gives the same bits, also on a federation that was used; another seed runs."""
    federation = case.federation()
    result = case.method.fit(federation, _SEED)
    require_same_bits(case.method.fit(case.federation(), _SEED), result, "the same seed")
    other = case.method.fit(federation, _SEED + 1)
    require_check(bool(other.models.isfinite().all()), "another seed must give finite models")
    require_same_bits(
        case.method.fit(federation, _SEED), result, "the same seed on a federation that was used"
    )


def check_blocks(case: MethodCase) -> None:
    """Results do not depend on how many clients train together."""
    result = case.method.fit(case.federation(), _SEED)
    single = case.method.fit(case.federation(block_size=1), _SEED)
    require_close(single, result, "another block_size")


def check_test_data(case: MethodCase) -> None:
    """Test data is never used."""
    federation = KillAfter(case.federation())
    case.method.fit(federation, _SEED)
    for request in federation.requests:
        require_check(
            getattr(request, "split", "train") != "test",
            f"a method must not use test data, but it sent {request.name!r} for them",
        )


def check_resume(case: MethodCase) -> None:
    """A run that was killed resumes from its journal, and ends with the same bits."""
    complete, method = KillAfter(case.federation()), case.with_parameters(curves=1)
    expected = method.fit(complete, _SEED)
    count = len(complete.requests)
    moments = sorted({0, 1, count // 3, count // 2, 2 * count // 3, count - 1})
    with TemporaryDirectory() as folder:
        for moment in moments:
            journal = Path(folder, str(moment))
            try:
                method.fit(KillAfter(case.federation(), moment), _SEED, journal=journal)
            except Killed:
                pass
            else:
                raise CheckError("the same seed must send the same number of requests")
            condition = f"a run that was killed after {moment} of {count} requests and resumed"
            resumed = method.fit(case.federation(), _SEED, journal=journal)
            require_same_bits(resumed, expected, condition)
        finished = method.fit(KillAfter(case.federation(), 0), _SEED, journal=journal)
        require_same_bits(finished, expected, "a journal that is complete")


def check_missing_replies(case: MethodCase) -> None:
    """Missing replies do not stop a method, and every model that it gives is finite."""
    for probability, seed in _DROPS:
        federation = DropReplies(case.federation(), probability, seed)
        try:
            result = case.method.fit(federation, _SEED)
        except Exception as error:
            raise CheckError(
                f"a fraction of {probability:g} of the replies is missing, and fit raises "
                f"{describe(error)}"
            ) from error
        _require_consistent(case, result, len(federation.initial_model(_SEED)))


def check_budget(case: MethodCase) -> None:
    """The budget counts every local step, and no more of them than ``trainings`` says."""
    federation = KillAfter(case.federation())
    result = case.method.fit(federation, _SEED)
    total = Budget()
    for stage in result.history:
        require_check(
            min(astuple(stage.budget)) >= 0,
            f"the budget of stage {stage.name!r} must not be negative: {stage.budget}",
        )
        total += stage.budget
    require_check(total == result.budget, "the budgets of the stages must add up")
    steps = 0
    for request in federation.requests:
        if isinstance(request, Train):
            steps += len(request.clients) * request.steps
        elif isinstance(request, Gradients):
            steps += len(request.clients)
    require_check(
        result.budget.local_steps == steps,
        f"clients took {steps} local steps, but the stages count {result.budget.local_steps}: send "
        "requests through run.ask, and record a stage after the last one",
    )
    limit = _step_limit(case)
    require_check(
        steps <= limit,
        f"clients took {steps} local steps, more than trainings={case.method.trainings:g} allows "
        f"({limit:g})",
    )


def check_progress(case: MethodCase) -> None:
    """Every stage reports as many local steps as it announced."""
    monitor = StepMonitor()
    method = case.with_parameters(fine_tune_steps=5)
    result = method.fit(case.federation(), _SEED, callbacks=monitor)
    for name, announced, done in monitor.stages:
        require_check(
            announced in (0, done),
            f"stage {name!r} announced {announced} local steps, but {done} were done",
        )
    done = sum(steps for _, _, steps in monitor.stages)
    require_check(
        done == result.budget.local_steps,
        f"the stages report {done} local steps, but clients took {result.budget.local_steps}: "
        "train inside run.stage",
    )


def check_fine_tuning(case: MethodCase) -> None:
    """Fine-tuning changes no other model, and makes no client's held-out loss larger."""
    steps, federation = 10, case.federation()
    plain = case.with_parameters(fine_tune_steps=0).fit(federation, _SEED)
    result = case.with_parameters(fine_tune_steps=steps).fit(federation, _SEED)
    for name in ("models", "client_models"):
        require_check(
            torch.equal(getattr(result, name), getattr(plain, name)),
            f"fine-tuning must leave {name} as they are",
        )
    tuned, taken = result.fine_tuned_models, result.fine_tuned_steps
    if tuned is None or taken is None:
        raise CheckError("fine_tune_steps must give fine-tuned models")
    require_check(
        tuned.shape == result.client_models.shape and bool(tuned.isfinite().all()),
        "fine-tuned models must be finite, one for each client",
    )
    require_check(
        bool(((taken >= 0) & (taken <= steps)).all()),
        f"clients must take 0 to {steps} steps, not {taken.tolist()}",
    )
    before = result.scores(federation, "validation").loss
    after = result.scores(federation, "validation", fine_tuned=True).loss
    require_check(bool((after <= before + 1e-9).all()), "fine-tuning must not increase a loss")


def check_curves(case: MethodCase) -> None:
    """Learning curves change no model and no label, and what they cost is counted."""
    federation = case.federation()
    plain = case.method.fit(federation, _SEED)
    result = case.with_parameters(curves=1).fit(federation, _SEED)
    require_check(np.array_equal(result.labels, plain.labels), "curves must leave labels alone")
    for name in ("models", "client_models"):
        require_check(
            torch.equal(getattr(result, name), getattr(plain, name)),
            f"curves must leave {name} as they are",
        )
    added = _num_points(result) - _num_points(plain)
    evaluations = result.budget.evaluations - plain.budget.evaluations
    require_check(
        added <= evaluations,
        f"curves added {added} points, but only {evaluations} evaluations are counted: send "
        "requests through run.ask",
    )


def _num_points(result: Result) -> int:
    return sum(len(stage.curve) for stage in result.history)


def check_saving(case: MethodCase) -> None:
    """A result that was saved and loaded is the same."""
    result = case.with_parameters(fine_tune_steps=5).fit(case.federation(), _SEED)
    with TemporaryDirectory() as folder:
        loaded = Result.load(result.save(folder))
    require_same_bits(loaded, result, "saving and loading")
    for name in ("method", "seed", "client_ids", "clustered", "personal"):
        require_check(
            getattr(loaded, name) == getattr(result, name),
            f"saving and loading must give the same {name}",
        )


def check_models(case: MethodCase) -> None:
    """The modules of a result, also of one that was loaded, predict what its scores say."""
    federation, test = case.federation(), case.data.test
    if test is None:
        return
    loss_function = loss_named("auto", test.y)
    for steps in (0, 5):
        result = case.with_parameters(fine_tune_steps=steps).fit(federation, _SEED)
        scores = result.scores(federation, fine_tuned=steps > 0)
        with TemporaryDirectory() as folder:
            loaded = Result.load(result.save(folder), model=case.model)
        for outcome, client in product((result, loaded), range(case.num_clients)):
            x, y = test.of(client)
            with torch.no_grad():
                outputs = outcome.module(client)(x.to(result.models.dtype))
            loss, expected = float(loss_function(outputs, y).mean()), float(scores.loss[client])
            require_check(
                abs(loss - expected) <= 1e-4 * (1 + abs(expected)),
                f"the module of client {client} must have the loss of its scores, {expected:.6g}, "
                f"not {loss:.6g}",
            )
            if scores.accuracy is not None:
                accuracy = float((outcome.predict(x, client) == y).double().mean())
                expected = float(scores.accuracy[client])
                require_check(
                    abs(accuracy - expected) < 1e-6,
                    f"predictions for client {client} must have the accuracy of its scores, "
                    f"{expected:.1%}, not {accuracy:.1%}",
                )


METHOD_CHECKS: Mapping[str, Callable[[MethodCase], None]] = {
    "declaration": check_declaration,
    "parameters": check_parameters,
    "result": check_result,
    "repetition": check_repetition,
    "blocks": check_blocks,
    "test data": check_test_data,
    "resume": check_resume,
    "missing replies": check_missing_replies,
    "budget": check_budget,
    "progress": check_progress,
    "fine-tuning": check_fine_tuning,
    "curves": check_curves,
    "saving": check_saving,
    "models": check_models,
}
"""What ``check_method`` checks, by name."""


def check_method(
    method: type[Method] | Method,
    *,
    parameters: Mapping[str, Any] | None = None,
    data: ClientData | None = None,
    model: Callable[[], nn.Module] | None = None,
    skip: Iterable[str] = (),
) -> None:
    """Check that a method does what users, the command line and the journal expect of one.

    It takes a second or so.

    Args:
        method: A class, which is made with few local steps, or an instance.
        parameters: Parameters of a class other than ``local``; ``truth`` is that of the data.
        data: What the clients hold: few clients with little data. None is a small classification
            task of two clusters.
        model: Makes the module that is trained; None is a small network in double precision.
        skip: Checks to leave out, of ``METHOD_CHECKS``.

    Raises:
        CheckError: For the first thing that is not as it should be.
        InputError: If there is no check of a name in ``skip``.

    >>> from dataclasses import dataclass
    >>> from srfca import Local
    >>> check_method(Local)
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Lazy(Local):
    ...     key = "lazy"
    ...     patience: int = 3
    >>> check_method(Lazy)
    Traceback (most recent call last):
    srfca.testing.errors.CheckError: declaration: the docstring of Lazy must have 'patience' in \
its Args section
    """
    skipped = set(skip)
    for name in skipped:
        if name not in METHOD_CHECKS:
            raise unknown("check", name, METHOD_CHECKS)
    data = example_clients() if data is None else data
    if isinstance(method, type):
        truth = {"truth": data.truth} if method.needs_truth else {}
        made = method(**{"local": LOCAL, **truth, **(parameters or {})})
    else:
        made = method
    case = MethodCase(made, data, model or example_model)
    for name, check in METHOD_CHECKS.items():
        if name not in skipped:
            _run(name, check, case)


def _run(name: str, check: Callable[[MethodCase], None], case: MethodCase) -> None:
    try:
        check(case)
    except CheckError as error:
        raise CheckError(f"{name}: {error}") from error
    except Exception as error:
        raise CheckError(f"{name}: the method raised {describe(error)}") from error


def _wrong_values(parameter: Field[Any], annotation: Any) -> list[Any]:
    """Return values that a parameter must not have, as far as its declaration tells."""
    kinds = getattr(annotation, "__args__", (annotation,)) if not choices(annotation) else ()
    wrong: list[Any] = []
    constraint = constraint_of(parameter)
    if constraint is not None:
        wrong.append(float("nan"))
        wrong += [value - 1 for value in (constraint.at_least,) if value is not None]
        wrong += [value + 1 for value in (constraint.at_most,) if value is not None]
        wrong += [v for v in (constraint.more_than, constraint.less_than) if v is not None]
    if choices(annotation):
        wrong.append("no such choice")
    if kinds and set(kinds) <= {int, float, NoneType}:
        wrong.append("no number")
        wrong += [] if NoneType in kinds else [None]
    return wrong


def _require_consistent(case: MethodCase, result: Result, length: int) -> None:
    """Require that labels and models fit together, and are finite."""
    m, k = case.num_clients, len(result.models)
    require_check(result.labels.shape == (m,), f"labels must be [{m}], not {result.labels.shape}")
    require_check(
        bool(((result.labels >= -1) & (result.labels < k)).all()),
        f"labels must be from -1 to {k - 1} (the models), not {result.labels.tolist()}",
    )
    require_check(
        not case.method.clustered or np.array_equal(Partition(result.labels).labels, result.labels),
        f"clusters must be numbered in the order of their first client, not as in "
        f"{result.labels.tolist()} (Answer.canonical does it)",
    )
    shapes = {
        "models": (k, length), "individual_models": (m, length), "mixture_weights": (m, k),
    }  # fmt: skip
    for name, shape in shapes.items():
        tensor = getattr(result, name)
        if tensor is None:
            continue
        require_check(
            tuple(tensor.shape) == shape, f"{name} must be {list(shape)}, not {tuple(tensor.shape)}"
        )
        require_check(bool(tensor.isfinite().all()), f"{name} must be finite")
    weights = result.mixture_weights
    if weights is not None:
        sums = bool((weights.sum(1) - 1).abs().max() < 1e-6)
        require_check(
            bool((weights >= 0).all()) and sums, "mixture weights must be shares with sum 1"
        )
    for stage in result.history:
        require_check(
            len(stage.labels) == m, f"stage {stage.name!r} must have labels of all {m} clients"
        )


def _step_limit(case: MethodCase) -> float:
    """Return the largest number of local steps that ``trainings`` allows.

    In addition, the starts of k clusters may train once each, and the participants of a round are
    rounded up in each cluster.
    """
    method, trainings = case.method, case.method.trainings
    starts = getattr(method, "k", None) or 0
    rounding = case.num_clients if getattr(method, "participation", 1.0) < 1 else 0
    clients = trainings * case.num_clients + ceil(trainings) * starts + rounding
    return float(clients * method.local.steps)
