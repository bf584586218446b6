"""Checks that tell whether a federation is a good citizen, also of somebody else's package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca.aggregation.rules import Mean
from srfca.errors import InputError, unknown
from srfca.federation.algorithms import Descent, Phase, Posterior
from srfca.federation.classes import num_classes
from srfca.federation.local_training import LocalTraining
from srfca.federation.mixture import Mixture
from srfca.federation.replies import ClientScores
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Personal,
    Request,
    Round,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.federation.rounds import ask
from srfca.random import Key
from srfca.testing.case import CLASSES, FEATURES, Case, MakeFederation, make_case
from srfca.testing.errors import CheckError, require_check

_LOCAL = LocalTraining(steps=6, local_steps=3, batch_size=8, lr=0.1)


def check_description(case: Case) -> None:
    """Ids, sizes, splits and layers are consistent."""
    federation, reference = case.federation, case.reference
    ids = list(federation.client_ids)
    require_check(len(set(ids)) == len(ids), f"client ids must be unique: {ids}")
    require_check(
        ids == list(reference.client_ids),
        f"client ids must be those of the data, {list(reference.client_ids)}, not {ids}",
    )
    sizes = federation.sizes.tolist()
    require_check(
        sizes == reference.sizes.tolist(),
        f"sizes must be {reference.sizes.tolist()}, not {sizes}: a tenth of each client's training "
        "samples is held out (validation=)",
    )
    splits = list(federation.splits)
    require_check(
        set(splits) == set(reference.splits) and len(set(splits)) == len(splits),
        f"splits must be {list(reference.splits)}, not {splits}",
    )
    layers = {name: (layer.start, layer.stop) for name, layer in federation.layers.items()}
    expected = {name: (layer.start, layer.stop) for name, layer in reference.layers.items()}
    require_check(layers == expected, f"layers must lie at {expected} in a row, not at {layers}")
    _check_architecture(case)
    require_check(
        federation.fingerprint() == federation.fingerprint(),
        "fingerprint must return the same string every time",
    )


def _check_architecture(case: Case) -> None:
    """If the federation knows its model, the model is that of the reference."""
    architecture, expected = case.federation.architecture, case.reference.architecture
    if architecture is None:
        return
    shapes, expected_shapes = architecture.layout.shapes, expected.layout.shapes
    require_check(
        list(shapes.items()) == list(expected_shapes.items()),
        f"architecture must have the tensors {dict(expected_shapes)}, not {dict(shapes)}",
    )
    require_check(
        architecture.signature in (None, expected.signature),
        f"architecture must have the signature {expected.signature}, not {architecture.signature}",
    )


def check_initial_model(case: Case) -> None:
    """The initial model depends on the seed alone."""
    first, again, other = (case.federation.initial_model(seed) for seed in (1, 1, 2))
    require_check(torch.equal(first, again), "initial_model must be the same for the same seed")
    require_check(
        not torch.equal(first, other), "initial_model must depend on the seed if the module does"
    )
    case.require_same(first, case.reference.initial_model(1), "initial_model")


def check_training(case: Case) -> None:
    """``Train`` agrees with the reference, with every optimizer and option."""
    for name, local in _local_trainings().items():
        starts = case.models(len(case.clients))
        for number in range(local.rounds):
            request = Train(case.clients, starts, local, Key(3, "check training", number))
            starts = case.compare(request, f"Train with {name}, round {number},").cpu()


def check_descent(case: Case) -> None:
    """Anchors, corrections, phases and the weights of a posterior agree with the reference."""
    starts = case.models(len(case.clients))
    pulled = replace(_LOCAL, mu=0.5, clip=1.0)
    head = case.head
    body = head.complement(starts.shape[1])
    mixture = case.mixture()
    algorithms = {
        "anchors": Descent(anchors=case.models(len(starts), seed=7)),
        "corrections": Descent(corrections=0.1 * case.models(len(starts), seed=9)),
        "phases": Descent(phases=(Phase(head, 1), Phase(body))),
        "a posterior": Descent(posterior=Posterior(mixture, torch.tensor([0, 1, 1, 0]))),
        "a posterior with class shares": Descent(
            posterior=Posterior(case.mixture(class_shares=True), torch.tensor([0, 1, 1, 0]))
        ),
    }
    for name, algorithm in algorithms.items():
        for number in range(pulled.rounds):
            key = Key(3, "check descent", number)
            case.compare(Train(case.clients, starts, pulled, key, algorithm), f"Train with {name}")
    twice = np.array([1, 0, 1])
    posterior = Posterior(mixture.select(twice), torch.tensor([0, 1, 1]))
    request = Train(twice, starts[:3], _LOCAL, Key(3, "twice"), Descent(posterior=posterior))
    case.compare(request, "Train with a client that trains two models of its mixture")


def check_kept_state(case: Case) -> None:
    """``keep_state`` continues the optimizer of each client; round 0 restarts it."""
    local = replace(_LOCAL, steps=9, momentum=0.9, keep_state=True)
    for _ in range(2):
        starts = case.models(len(case.clients))
        for number, clients in enumerate([[0, 1, 2, 3], [2, 0], [3, 2, 1]]):
            request = Train(
                np.array(clients), starts[clients], local, Key(1, "check kept state", number)
            )
            rows = case.compare(request, f"Train with keep_state in round {number}")
            starts[clients] = rows.cpu()


def check_personal(case: Case) -> None:
    """Personal coordinates stay with the clients: they are neither sent nor reset."""
    head, length = case.head, len(case.reference.initial_model(0))
    key = Key(1, "check personal")
    personal = Personal(head, key.seed, key.purpose)
    starts = case.models(len(case.clients), seed=5)
    for number, clients in enumerate([[0, 1, 2, 3], [3, 1]]):
        request = Train(
            np.array(clients), starts[clients], _LOCAL, replace(key, round=number), personal=head
        )
        sent = case.compare(request, f"Train with personal coordinates in round {number}")
        require_check(
            sent.shape[1] == length - len(head),
            f"Train with personal coordinates must reply with the {length - len(head)} others",
        )
    for split in case.federation.splits:
        case.compare(
            Scores(case.clients, starts, split, personal), "Scores with personal coordinates"
        )
    collect = Collect(case.clients, personal)
    replies = case.federation.ask(collect)
    if len(replies.missing) < len(case.clients):
        case.require_same(replies.values, case.reference.ask(collect).values, "Collect")


def check_evaluation(case: Case) -> None:
    """Gradients, losses, moments, shares, scores and subspaces agree with the reference."""
    models, mixture = case.models(len(case.clients)), case.mixture()
    case.compare(Gradients(case.clients, models), "Gradients")
    for split in case.federation.splits:
        case.compare(Losses(case.clients, models[:2], split), f"Losses on {split} data")
        subsample = Losses(case.clients, models[:2], split, Subsample(4, seed=1))
        case.compare(subsample, f"Losses on a subsample of {split} data")
        case.compare(Scores(case.clients, models, split), f"Scores on {split} data")
        case.compare(Scores(case.clients, mixture, split), f"Scores of mixtures on {split} data")
    scales = torch.tensor([0.5, 2.0], dtype=torch.float64)
    held: tuple[Split, ...] = ("train", "validation")
    both = tuple(split for split in held if split in case.federation.splits)
    for chosen in (both[:1], both):
        request = LossMoments(case.clients, models[:2], scales, chosen)
        case.compare(request, f"LossMoments on {chosen} data")
        case.compare(OutputMoments(case.clients, models[:2], chosen), f"OutputMoments on {chosen}")
        case.compare(DataMoments(case.clients, chosen), f"DataMoments of {chosen} data")
        resampled = BootstrapLosses(case.clients, models[:2], chosen, 7, seed=1)
        case.compare(resampled, f"BootstrapLosses on {chosen} data")
    case.compare(Shares(case.clients, models[:3]), "Shares")
    case.compare(Shares(case.clients, mixture), "Shares of mixtures")
    case.compare(Shares(case.clients, models[:3], by_class=True), "Shares by class")
    balanced = Shares(case.clients, case.mixture(class_shares=True), by_class=True)
    case.compare(balanced, "Shares by class of mixtures with class shares")
    rank = 2
    values, expected = (
        federation.ask(Subspaces(case.clients, rank)).values.cpu().double()
        for federation in (case.federation, case.reference)
    )
    require_check(
        tuple(values.shape) == (len(case.clients), FEATURES, rank),
        f"Subspaces must have the shape {(len(case.clients), FEATURES, rank)}, "
        f"not {tuple(values.shape)}",
    )
    case.require_same(values @ values.mT, expected @ expected.mT, "the projection on Subspaces")
    values, expected = (
        federation.ask(Subspaces(case.clients, 1, CLASSES)).values.cpu().double()
        for federation in (case.federation, case.reference)
    )
    case.require_same(values.abs(), expected.abs(), "Subspaces of classes")


def check_shared_samples(case: Case) -> None:
    """Samples that clients share, and outputs on samples that they are sent.

    A federation whose clients do not share samples leaves this check out.
    """
    for size, targets in ((3, True), (10, False)):
        request = SharedSamples(case.clients, size, 5, targets)
        values, expected = (
            replies.values.cpu().masked_fill(replies.values.cpu().isinf(), torch.nan)
            for replies in (case.ask(request), case.reference.ask(request))
        )
        case.require_same(values, expected, "SharedSamples")
    shared = case.reference.ask(SharedSamples(case.clients, 3, 5, targets=False)).values
    inputs = shared.flatten(0, 1)
    case.compare(Outputs(case.clients, case.models(len(case.clients)), inputs), "Outputs")


def check_classes(case: Case) -> None:
    """Class counts and class-balanced losses agree with the reference."""
    case.compare(ClassCounts(case.clients), "ClassCounts")
    case.compare(ClassCounts(case.clients, presence=True), "ClassCounts of presence")
    require_check(
        num_classes(case.federation) == CLASSES,
        f"ClassCounts of no clients must have the shape {(0, CLASSES)}",
    )
    models, shares = case.models(3), case.class_shares(3)
    for subsample in (None, Subsample(9, seed=1)):
        request = BalancedLosses(case.clients, models, shares, subsample)
        part = "" if subsample is None else " on a subsample"
        case.compare(request, f"BalancedLosses{part}")


def check_repetition(case: Case) -> None:
    """The same request has the same reply, to the bit."""
    for request in _requests(case):
        first, again = (_tensors(case.ask(request).values) for _ in range(2))
        require_check(
            all(map(_are_identical, first, again)),
            f"the same {request.name!r} request must have the same reply, to the bit",
        )


def check_order(case: Case) -> None:
    """A client's reply depends neither on the order of the clients nor on the other clients."""
    for request in _requests(case):
        replies = _tensors(case.ask(request).values)
        for index in (np.array([2, 0, 3, 1]), np.array([3]), np.array([1, 2])):
            part = _tensors(case.ask(request.select(index)).values)
            for values, expected in zip(part, replies, strict=True):
                description = (
                    f"the reply to {request.name!r} of clients {index.tolist()} asked alone"
                )
                case.require_same(values, expected[torch.from_numpy(index)], description)


def check_rounds(case: Case) -> None:
    """A ``Round`` gives what ``Train`` and aggregation give; empty clusters keep their model."""
    models = case.models(3)
    labels = np.array([2, 0, 2, 0])
    for server_lr in (None, 0.1):
        request = Round(
            case.clients, models, labels, _LOCAL, Key(2, "check rounds"), Mean(), server_lr
        )
        rows = ask(case.federation, request).values
        expected = ask(case.reference, request).values
        case.require_same(rows, expected, "Round")
        require_check(
            torch.equal(rows[1].cpu(), models[1]),
            "the model of a cluster without participants must not change in a Round",
        )


def check_wrong_input(case: Case) -> None:
    """Wrong input raises ``InputError``."""
    models, clients = case.models(len(case.clients)), case.clients
    key, narrow = Key(0, "check wrong input"), case.models(len(case.clients))[:, :-1]
    absent = Personal(case.head, 0, "a training that never was")
    wrong: dict[str, Request[Any]] = {
        "a client that does not exist": Losses(np.array([0, len(clients)]), models),
        "a negative client": Train(np.array([-1]), models[:1], _LOCAL, key),
        "starts that are too short": Train(clients, narrow, _LOCAL, key),
        "more clients than starts": Train(clients, models[:-1], _LOCAL, key),
        "corrections that are too short": Train(
            clients, models, _LOCAL, key, Descent(corrections=narrow)
        ),
        "models that are too short": Losses(clients, narrow),
        "gradients at models that are too short": Gradients(clients, narrow),
        "a split that does not exist": Losses(clients, models, "nothing"),  # type: ignore[arg-type]
        "class shares of too few classes": BalancedLosses(
            clients, models, case.class_shares(len(models))[:, 1:]
        ),
        "class shares of too few models": BalancedLosses(clients, models, case.class_shares(1)),
        "moments of models that are too short": OutputMoments(clients, narrow),
        "resamples of models that are too short": BootstrapLosses(clients, narrow),
        "no resamples": BootstrapLosses(clients, models, replicates=0),
        "sums of no split": DataMoments(clients, ()),
        "scales that are not positive": LossMoments(clients, models, torch.zeros(len(models))),
        "a rank that is too large": Subspaces(clients, FEATURES + 1),
        "no shared samples": SharedSamples(clients, 0),
        "outputs on inputs that are too short": Outputs(
            clients, models, torch.zeros(2, FEATURES - 1)
        ),
        "a mixture without weights of its models": Scores(
            clients, Mixture(models, torch.ones(len(clients), 1))
        ),
        "personal coordinates that no client has": Scores(clients, models, "train", absent),
    }
    for name, request in wrong.items():
        try:
            case.federation.ask(request)
        except InputError:
            continue
        except Exception as error:
            raise CheckError(
                f"{name} must raise InputError, not {type(error).__name__}: {error}"
            ) from error
        raise CheckError(f"{name} must raise InputError")


def check_missing_replies(case: Case) -> None:
    """Replies that did not come are in ``missing`` with a reason, and nowhere else."""
    lost = 0
    for _ in range(4):
        for request in _requests(case):
            replies = case.federation.ask(request)
            expected = _tensors(case.reference.ask(request).values)
            lost += len(replies.missing)
            require_check(
                set(replies.missing) <= set(request.clients.tolist()),
                f"missing replies to {request.name!r} must be of clients that were asked",
            )
            require_check(
                all(isinstance(reason, str) and reason for reason in replies.missing.values()),
                f"every missing reply to {request.name!r} needs a reason",
            )
            answered = torch.from_numpy(~np.isin(request.clients, list(replies.missing)))
            for values, row in zip(_tensors(replies.values), expected, strict=True):
                case.require_same(values, row[answered], f"the replies to {request.name!r}")
    require_check(lost > 0, "the federation that should lose replies lost none")


FEDERATION_CHECKS: Mapping[str, Callable[[Case], None]] = {
    "description": check_description,
    "initial model": check_initial_model,
    "training": check_training,
    "descent": check_descent,
    "kept state": check_kept_state,
    "personal": check_personal,
    "evaluation": check_evaluation,
    "shared samples": check_shared_samples,
    "classes": check_classes,
    "repetition": check_repetition,
    "order": check_order,
    "rounds": check_rounds,
    "wrong input": check_wrong_input,
}
"""What ``check_federation`` checks, by name."""


def check_federation(
    make: MakeFederation,
    *,
    make_unreliable: MakeFederation | None = None,
    dtypes: Collection[torch.dtype] = (torch.float64, torch.float32),
    tolerance: float | None = None,
    validation: float = 0.1,
    skip: Iterable[str] = (),
) -> None:
    """Check that a federation does what methods expect of one.

    Args:
        make: Makes the federation of some clients. A module on another machine is made by calling
            ``model`` with torch's generator seeded (``srfca.models.rows.make_module``).
        make_unreliable: Makes one that loses some replies; None skips this check.
        dtypes: Data types of the models that are trained.
        tolerance: Largest difference from the reference, relative to 1 plus the largest number;
            None is 1e-8 in double and 1e-4 in single precision.
        validation: The fraction of each client's training samples that the federation holds out, by
            ``srfca.data.client_data.hold_out`` with seed 0.
        skip: Checks to leave out, of ``FEDERATION_CHECKS``.

    Raises:
        CheckError: For the first thing that is not as it should be.
        InputError: If there is no check of a name in ``skip``.

    >>> from srfca import Simulation
    >>> check_federation(Simulation, dtypes=[torch.float64])
    >>> class Forgetful(Simulation):
    ...     def initial_model(self, seed):
    ...         return super().initial_model(0)
    >>> check_federation(Forgetful)
    Traceback (most recent call last):
    srfca.testing.errors.CheckError: initial model: initial_model must depend on the seed if the \
module does
    """
    skipped = set(skip)
    for name in skipped:
        if name not in FEDERATION_CHECKS:
            raise unknown("check", name, FEDERATION_CHECKS)
    for dtype in dtypes:
        case = make_case(make, dtype, tolerance, validation)
        for name, check in FEDERATION_CHECKS.items():
            if name not in skipped:
                _run(name, check, case)
    if make_unreliable is not None:
        dtype = next(iter(dtypes))
        case = make_case(make_unreliable, dtype, tolerance, validation)
        _run("missing replies", check_missing_replies, case)


def _run(name: str, check: Callable[[Case], None], case: Case) -> None:
    try:
        check(case)
    except CheckError as error:
        raise CheckError(f"{name}: {error}") from error
    except Exception as error:
        raise CheckError(
            f"{name}: the federation raised {type(error).__name__}: {error}"
        ) from error


def _local_trainings() -> dict[str, LocalTraining]:
    """Return local trainings that use every option."""
    return {
        "SGD": _LOCAL,
        "full batches": replace(_LOCAL, batch_size=None),
        "momentum and weight decay": replace(_LOCAL, momentum=0.9, weight_decay=0.01),
        "Adam": replace(_LOCAL, optimizer="adam", lr=0.01),
        "a cosine schedule, mu and clip": replace(
            _LOCAL, steps=8, schedule="cosine", mu=0.5, clip=0.2
        ),
        "resampling": replace(_LOCAL, resample=True),
        "compression": replace(_LOCAL, steps=9, compress=0.1),
    }


def _requests(case: Case) -> list[Request[Any]]:
    """Return one request of each kind whose replies have a row for each client."""
    models, clients = case.models(len(case.clients)), case.clients
    return [
        Train(clients, models, _LOCAL, Key(5, "check requests")),
        Gradients(clients, models),
        Losses(clients, models[:3]),
        ClassCounts(clients),
        BalancedLosses(clients, models[:3], case.class_shares(3)),
        LossMoments(clients, models[:2], torch.ones(2, dtype=torch.float64)),
        OutputMoments(clients, models[:2]),
        BootstrapLosses(clients, models[:3], ("train",)),
        DataMoments(clients),
        Shares(clients, case.mixture()),
        Shares(clients, case.mixture(class_shares=True), by_class=True),
        Scores(clients, models),
        Scores(clients, case.mixture()),
    ]


def _are_identical(first: Tensor, second: Tensor) -> bool:
    """Tell whether two tensors are equal to the bit; NaN equals NaN."""
    unknown = first.isnan()
    same = torch.equal(unknown, second.isnan())
    return same and torch.equal(first[~unknown], second[~unknown])


def _tensors(values: Tensor | ClientScores) -> list[Tensor]:
    """Return the tensors of a reply, whose first dimension is that of the clients."""
    if isinstance(values, Tensor):
        return [values.detach().cpu()]
    accuracy = [] if values.accuracy is None else [values.accuracy.cpu()]
    return [values.loss.cpu(), values.num_samples.cpu(), *accuracy]
