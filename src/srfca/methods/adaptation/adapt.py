"""Adapt clusters to data that has changed: move clients, form new clusters, train on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import NORM_LIMIT
from srfca.aggregation.rules import Aggregation, Mean, robust_aggregation
from srfca.clustering.partition import Labels, Partition
from srfca.errors import is_integer, require
from srfca.federation.accountant import PrivacySpent
from srfca.federation.local_training import LocalTraining
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients
from srfca.methods._common.base import Answer
from srfca.methods._common.held_out import held_out_scores
from srfca.methods._common.loss_limits import loss_limits
from srfca.methods._common.monitor import Monitor, as_monitor
from srfca.methods._common.result import Result
from srfca.methods._common.rounds import federated_training
from srfca.methods._common.run import Run
from srfca.methods.adaptation.alarms import beyond_reach
from srfca.methods.adaptation.checks import check_clusters
from srfca.methods.adaptation.evidence import (
    Evidence,
    Usual,
    collect,
    drifted,
    measured_losses,
    recorded_losses,
)
from srfca.methods.adaptation.identity import CLUSTER_IDS, cluster_ids, identity_notes
from srfca.methods.adaptation.misfits import new_clusters
from srfca.methods.sr_fca import SRFCA
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.trials import fine_tuned

KEEP = 5
"""Adaptations that a cluster without clients is kept for."""
EMPTY_FOR = "empty_for"
"""Note of a stage: for how many adaptations each model has been without clients."""


def adapt(
    result: Result,
    federation: Federation,
    local: LocalTraining,
    rounds: int,
    *,
    keep: int = KEEP,
    aggregation: Aggregation | None = None,
    stage: str | None = None,
    callbacks: Monitor | Sequence[Monitor] | None = None,
) -> Result:
    """Adapt the clusters of a result to what the clients' data is now.

    Clients that do clearly better with another cluster's model move there. Clients that fit no
    cluster form new ones, by SR-FCA among them alone, or stay alone with a model of their own, if
    that does better on their held-out data. Then every cluster trains on from its model. Where
    nothing has changed nobody moves (docs/drift.md).

    Args:
        result: Clusters and their models.
        federation: The same clients, whose data may have changed.
        local: How clients train: ``local_steps`` in each round, and ``steps`` where a new cluster
            is trained.
        rounds: Rounds that every cluster trains on for.
        keep: For how many adaptations the model of a cluster without clients is kept: concepts come
            back. They follow the other models in ``Result.models``.
        aggregation: How the rows of a cluster become one row; None is as in the run that found the
            clusters, so with SR-FCA a trimmed mean, and without trimming the weighted mean.
            Changes much longer than the cluster's median are shortened before.
        stage: Name of the stage in the history; None is ADAPT and its number. It decides the draws.
        callbacks: Follow the stages and rounds, as in ``fit``.

    Returns:
        The new clusters. The stage has these notes: ``moved``, the number of clients in another
        cluster than before; ``moves``, for each of them the ``client``, the id of the cluster it
        was in (``from``, -1 for none) and of the one it is in (``to``), its loss in the one
        (``loss``) and the other (``loss_there``), and ``why``: it "fits another cluster", a "new
        cluster" was formed, it "fits no cluster" and is alone, or "joins";
        ``misfits``, clients that were suspected to fit no cluster; ``beyond_reach``, clients that
        still do not fit their clusters, as in ``drift_alarms``; ``cluster_ids``, the id of each
        model's cluster (``Result.cluster_ids``). If the result had individual models,
        clients fine-tune again where that helps; ``fine_tuned_models`` are dropped.

    Raises:
        InputError: If the result has no clusters or other clients, a number is out of range, no
            client replies, or training diverges.

    >>> from srfca import SRFCA, LocalTraining, Simulation, data, models
    >>> phases = data.drifting_image_phases(groups=2, new_groups=0, drifting=0.2, shift="rotation")
    >>> before, after = (Simulation(phase, models.mlp(64, 32, 10)) for phase in phases)
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> result = SRFCA(local=local, refine_steps=1).fit(before, seed=0)
    >>> adapted = adapt(result, after, local, rounds=4)
    >>> adapted.history[-1].notes["moved"], adapted.partition == after.data.truth
    (4, True)
    """
    check_clusters(result, federation)
    for name, number in (("rounds", rounds), ("keep", keep)):
        require(is_integer(number), f"{name} must be an integer, not {number!r}")
        require(number >= 0, f"{name} must not be negative, but is {number}")
    require(isinstance(local, LocalTraining), f"local must be a LocalTraining, not {local!r}")
    require(
        aggregation is None or isinstance(aggregation, Aggregation),
        f"aggregation must be one of srfca.aggregation, such as Median(), not {aggregation!r}",
    )
    run = Run(federation, result.seed, as_monitor(callbacks))
    name = stage or f"ADAPT {1 + sum(s.name.startswith('ADAPT') for s in result.history)}"
    evidence = collect(run, result.models, recorded_losses(result), result.labels)
    require(bool(evidence.replied.any()), "no client replied, so that the clusters stay the same")
    labels, misfits = drifted(evidence, result.labels)
    models = result.models
    if misfits.any():
        clients = np.flatnonzero(misfits)
        labels, models = _form_clusters(run, name, labels, clients, models, evidence, local)
    clusters = _Kept.of(labels, models, _ages(result), keep, result.labels)
    active = clusters.partition.num_clusters
    trained = _train(
        run, name, clusters.models[:active], clusters.partition, local, rounds,
        aggregation or usual_aggregation(result),
    )  # fmt: skip
    answer = Answer(clusters.partition.labels, torch.cat([trained, clusters.models[active:]]))
    usual = measured_losses(run, trained, clusters.partition, _reordered(evidence, clusters.order))
    identity = identity_notes(result, clusters.order)
    ids = dict(zip(clusters.order, identity[CLUSTER_IDS], strict=True))
    moves = _moves(run, result, labels, evidence, ids)
    limits = loss_limits(run.uncounted, trained, clusters.partition)
    beyond = np.zeros(run.num_clients, dtype=bool)
    if limits is not None:
        _, beyond = beyond_reach(run.uncounted, trained, answer.labels, limits)
    notes = {
        "moved": len(moves),
        "moves": moves,
        "misfits": _names(run, misfits),
        "beyond_reach": _names(run, beyond),
        "decision": _sentence(moves, _names(run, beyond), clusters),
        EMPTY_FOR: clusters.empty_for,
        **identity,
        **usual.notes(),
    }
    run.record(name, clusters.partition, answer.client_models, notes=notes)
    individual_models = None
    if result.individual_models is not None:
        individual_models = _fine_tune(run, Clusters(clusters.partition, trained), local)
    return replace(
        result,
        labels=answer.labels,
        models=answer.models,
        individual_models=individual_models,
        fine_tuned_models=None,
        fine_tuned_steps=None,
        history=(*result.history, *run.history),
        loss_limits=limits,
        input_statistics=None,
        architecture=federation.architecture or result.architecture,
        privacy=_privacy(result.privacy, run.privacy_spent),
    )


def usual_aggregation(result: Result) -> Aggregation:
    """Return how the run that found clusters aggregated rows: a robust rule, or the weighted mean.

    >>> from srfca import SRFCA, LocalTraining, Simulation, data, models
    >>> federation = Simulation(data.rotated_digits(num_clients=8), models.linear(64, 10))
    >>> local = LocalTraining(steps=5, lr=0.1)
    >>> usual_aggregation(SRFCA(local=local, threshold="50%", trim=0.2).fit(federation))
    TrimmedMean(beta=0.2, at_least=1)
    """
    parameters = result.parameters
    names = ("aggregation", "trim", "trim_at_least")
    if any(name not in parameters for name in names):
        return Mean()
    key, trim, at_least = (parameters[name] for name in names)
    if key == "trimmed_mean" and not trim:
        return Mean()
    return robust_aggregation(key, trim, at_least)


@dataclass(frozen=True, eq=False)
class _Kept:
    """Clusters in the order of their first client, and then models without clients.

    Args:
        partition: The clusters.
        models: ``[k + e, P]``, those without clients last.
        order: ``[k + e]`` the position of each model before.
        empty_for: ``[k + e]`` for how many adaptations each has been without clients.
    """

    partition: Partition
    models: Tensor
    order: list[int]
    empty_for: list[int]

    @property
    def num_empty(self) -> int:
        """How many models have no clients."""
        return len(self.models) - self.partition.num_clusters

    @classmethod
    def of(
        cls, labels: Labels, models: Tensor, ages: list[int], keep: int, before: Labels
    ) -> _Kept:
        """Sort models, and drop those that have been without clients for too long.

        New models without clients (no age) are dropped at once, and so are those that a single
        client had before: they are what this client has trained, and not for others.
        """
        partition = Partition(labels)
        order = [int(labels[members[0]]) for members in partition]
        personal = np.flatnonzero(np.bincount(before[before >= 0], minlength=1) == 1)
        empty = [
            c
            for c in range(len(ages))
            if c not in order and c not in personal and ages[c] + 1 <= keep
        ]
        empty_for = [0] * len(order) + [ages[c] + 1 for c in empty]
        order += empty
        return cls(partition, models[order], order, empty_for)


def _form_clusters(
    run: Run,
    name: str,
    labels: Labels,
    misfits: Clients,
    models: Tensor,
    evidence: Evidence,
    local: LocalTraining,
) -> tuple[Labels, Tensor]:
    """Form new clusters of clients that fit none; others may move there too.

    Returns:
        The labels and models with the new clusters, which follow the others.
    """
    formed = new_clusters(run, name, misfits, models, labels, evidence, local)
    members = formed.labels >= 0
    if not members.any():
        return labels, models
    models = torch.cat([models, formed.models.to(models)])
    new_labels = labels.copy()
    new_labels[misfits[members]] = evidence.num_models + formed.labels[members]
    shared = [c for c in range(evidence.num_models, len(models)) if (new_labels == c).sum() > 1]
    if shared:
        unknown = Usual(np.full(len(shared), np.nan))
        second = collect(run, models[shared], unknown, np.full(len(labels), -1))
        moved, _ = drifted(evidence.extended(second), labels)
        chosen = np.append(np.arange(evidence.num_models), shared)[moved]
        undecided = new_labels < evidence.num_models
        new_labels = np.where(undecided & (labels >= 0), chosen, new_labels)
    return new_labels, models


def _train(
    run: Run,
    name: str,
    models: Tensor,
    partition: Partition,
    local: LocalTraining,
    rounds: int,
    aggregation: Aggregation,
) -> Tensor:
    """Train each cluster on from its model, at a constant rate: ``[k, P]``."""
    if not rounds:
        return models
    training = replace(
        local, steps=rounds * local.local_steps, schedule="constant", keep_state=False
    )
    return federated_training(
        run, name, models, partition, training, aggregation, purpose=name.lower(),
        max_change=NORM_LIMIT,
    )  # fmt: skip


def _fine_tune(run: Run, clusters: Clusters, local: LocalTraining) -> Tensor | None:
    """Fine-tune all clients' models if that helps on held-out data: ``[m, P]``, or None.

    Clients in no cluster have no model: NaN.
    """
    if "validation" not in run.federation.splits:
        return None
    before = held_out_scores(run, clusters.models, clusters.partition.labels)
    nobody = np.zeros(run.num_clients, dtype=bool)
    tuned = fine_tuned(run, SRFCA(local=local), clusters, before, alone=nobody)
    if tuned is None or not tuned.helps:
        return None
    in_cluster = torch.as_tensor(clusters.partition.labels >= 0, device=tuned.models.device)
    return torch.where(in_cluster.unsqueeze(1), tuned.models, torch.nan)


def _ages(result: Result) -> list[int]:
    """Return for how many adaptations each model has been without clients: ``[k]``."""
    for stage in reversed(result.history):
        if EMPTY_FOR in stage.notes and len(stage.notes[EMPTY_FOR]) == len(result.models):
            return [int(age) for age in stage.notes[EMPTY_FOR]]
    return [0] * len(result.models)


def _reordered(evidence: Evidence, order: list[int]) -> Usual:
    """Return the losses that were usual with each model, in another order; NaN for new models."""
    before = evidence.usual.means
    means = [before[model] if model < len(before) else np.nan for model in order]
    return Usual(np.array(means), evidence.usual.spread)


def _moves(
    run: Run,
    result: Result,
    labels: Labels,
    evidence: Evidence,
    ids: dict[int, int],
) -> list[dict[str, Any]]:
    """Return each client's move, ready for JSON.

    Args:
        run: The run.
        result: The clusters before.
        labels: ``[m]`` the clusters after, before they are sorted.
        evidence: The losses.
        ids: The id of each cluster after, by its number in ``labels``.
    """
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    ids_before = cluster_ids(result)
    moves = []
    for client in np.flatnonzero(labels != result.labels).tolist():
        before, after = int(result.labels[client]), int(labels[client])
        is_new = after >= len(ids_before)
        if is_new:
            why = "fits no cluster" if sizes[after] == 1 else "new cluster"
        else:
            why = "joins" if before < 0 else "fits another cluster"
        losses = evidence.losses[client]
        moves.append(
            {
                "client": run.client_ids[client],
                "from": ids_before[before] if before >= 0 else -1,
                "to": ids[after],
                "why": why,
                "loss": _number(losses[before]) if before >= 0 else None,
                "loss_there": _number(losses[after]) if not is_new else None,
            }
        )
    return moves


def _privacy(before: PrivacySpent | None, now: PrivacySpent | None) -> PrivacySpent | None:
    """Return what a result and its adaptation reveal together."""
    if before is None or now is None:
        return None
    return PrivacySpent.of(
        now.privacy, before.updates + now.updates, before.statistics + now.statistics
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _names(run: Run, chosen: NDArray[np.bool_]) -> list[str]:
    """Return the ids of some clients ``[m]``."""
    return [run.client_ids[client] for client in np.flatnonzero(chosen).tolist()]


def _sentence(moves: list[dict[str, Any]], beyond: list[str], clusters: _Kept) -> str:
    """Say what changed, and which clients are in a cluster that does not fit them."""
    text = _what_moved(moves, clusters)
    if beyond:
        text += f" No cluster fits {', '.join(map(repr, beyond))}."
    return text


def _what_moved(moves: list[dict[str, Any]], clusters: _Kept) -> str:
    """Say which clients moved."""
    if not moves:
        return "No client moved."
    reasons = [move["why"] for move in moves]
    counts = ", ".join(f"{reasons.count(why)} ({why})" for why in dict.fromkeys(reasons))
    text = f"{len(moves)} client{'s' * (len(moves) != 1)} moved: {counts}"
    text += f"; now {clusters.partition.describe()}"
    if clusters.num_empty:
        text += f", and {clusters.num_empty} kept without clients"
    return f"{text}."
