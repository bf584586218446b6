"""Trials of other answers: one model for all clients, and fine-tuning. Each stops when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.replies import Clients, ClientScores
from srfca.federation.requests import Scores, Train
from srfca.methods._common.held_out import held_out_scores
from srfca.methods._common.rounds import one_cluster
from srfca.methods._common.run import Run
from srfca.methods.sr_fca.algorithm import trimmed_mean_rounds
from srfca.methods.sr_fca.clusters import Clusters
from srfca.methods.sr_fca.decision import Comparison, Tolerance, compare, helps, out_of_reach

if TYPE_CHECKING:
    from srfca.methods.sr_fca.options import SRFCA

CHECKS = 5
"""How often fine-tuning is scored."""
WEIGHTS = (0.25, 0.5, 0.75, 1.0)
"""Weights of fine-tuned models beside their cluster's."""
ENOUGH = 0.5
"""Standard errors that more steps of fine-tuning must bring for the trial to continue."""


def first_part(run: Run, options: SRFCA, partition: Partition, name: str) -> Clusters:
    """Train clusters for the first part of TrimmedMeanGD, and score them on held-out data.

    Args:
        run: The run.
        options: The parameters.
        partition: The clusters.
        name: Name of the trial: it decides the draws.

    Returns:
        The clusters, with ``midway`` scores.
    """
    stage, clusters = f"TRY {name}", Clusters.untrained(partition, run.initial_model())
    clusters = trimmed_mean_rounds(run, options, clusters, options.segments[0], stage, name)
    scores = held_out_scores(run, clusters.models, partition.labels)
    run.add_scores(stage, scores, partition.labels, partition.num_clusters)
    return replace(clusters, midway=scores)


def lead_midway(options: SRFCA, first: Clusters, second: Clusters) -> float:
    """Return by how many standard errors the first led after the first part of a training."""
    assert first.midway is not None
    assert second.midway is not None
    tolerance = options.tolerance(first.partition, second.partition)
    return compare(first.midway, second.midway, tolerance).t


def together(
    run: Run,
    options: SRFCA,
    rival: Clusters,
    clearly: float,
    started: Clusters | None = None,
    useless: Clients | None = None,
) -> Clusters:
    """Train one model for all clients, as TrimmedMeanGD trains a cluster.

    Args:
        run: The run.
        options: The parameters.
        rival: Clusters, with their scores after the first part of the training.
        clearly: Standard errors by which the rival must lead after that part to end the trial.
        started: The one cluster after the first part of its training, if that was done.
        useless: Clients that do not train; they get the model, too.

    Returns:
        One cluster; with ``midway`` scores if the trial ended there.
    """
    everyone = one_cluster(run)
    partition = everyone if useless is None else everyone.without(useless)
    clusters = Clusters.untrained(partition, run.initial_model())
    if started is not None:
        clusters = replace(started, midway=None)
    for rounds in options.segments[bool(clusters.rounds_done) :]:
        if rounds.start and rival.midway is not None:
            scores = held_out_scores(run, clusters.models, everyone.labels)
            run.add_scores("TOGETHER", scores, everyone.labels, 1)
            if out_of_reach(rival.midway, scores, clearly, options.tolerance(rival.partition)):
                clusters = replace(clusters, midway=scores)
                break
        clusters = trimmed_mean_rounds(run, options, clusters, rounds, "TOGETHER", "together")
    clusters = replace(clusters, partition=everyone)
    notes = {"given_up": clusters.midway is not None}
    run.record("TOGETHER", clusters.partition, clusters.client_models, notes=notes)
    return clusters


@dataclass(frozen=True, eq=False)
class FineTuned:
    """Models of all clients, between their cluster's model and what they fine-tuned it to.

    Args:
        models: ``[m, P]``
        scores: ``[m]`` on held-out data.
        steps: Steps of each client.
        weight: Weight of the fine-tuned model; the rest is the cluster's.
        helps: Whether they are clearly better than the clusters' models.
    """

    models: Tensor
    scores: ClientScores
    steps: int
    weight: float
    helps: bool

    def describe(self) -> str:
        """Return how the models were made, for a person."""
        text = f"fine-tuned by {self.steps} step{'s' * (self.steps != 1)}"
        return text if self.weight == 1 else f"{text} (weight {self.weight:g})"


def fine_tuned(
    run: Run,
    options: SRFCA,
    clusters: Clusters,
    before: ClientScores,
    alone: NDArray[np.bool_],
) -> FineTuned | None:
    """Let every client fine-tune its cluster's model, and go a part of the way to the outcome.

    Steps and weight are those that are best for all clients together: held-out data of one client
    are too few to choose by. Interpolated weights keep what the cluster's model knows of rare
    samples (Wortsman et al.: Robust fine-tuning of zero-shot models. CVPR 2022). The best of many
    can be better by chance: the smallest weight helps only if going further, with the next weight,
    does no harm. The trial ends when more steps bring nothing more.

    Args:
        run: The run.
        options: The parameters.
        clusters: The clusters.
        before: Scores of their models.
        alone: ``[m]`` clients that keep their excluded model, so that their scores do not count.

    Returns:
        None if fine-tuning is not to be tried.
    """
    steps = min(options.local.steps // 3, options.trial_budget)
    if steps < 1 or options.fine_tune_steps:
        return None
    tuning = replace(
        options.fine_tuning, steps=steps, local_steps=-(-steps // CHECKS), schedule="constant",
        mu=0.0, keep_state=True, resample=False,
    )  # fmt: skip
    labels = clusters.partition.labels
    clients = np.flatnonzero(labels >= 0)
    w0 = run.initial_model()
    index = torch.as_tensor(clients, device=w0.device)
    starts = clusters.models[torch.as_tensor(labels[clients], device=w0.device)]
    rows, best = starts, None
    excluded, tolerance = torch.as_tensor(alone), options.tolerance(clusters.partition)

    def counted(scores: ClientScores) -> ClientScores:
        return before.where(excluded, scores)

    def gain(tuned: FineTuned, reference: ClientScores = before) -> Comparison:
        return compare(counted(tuned.scores), counted(reference), tolerance)

    with run.stage("TRY_FINE_TUNE", len(clients) * steps):
        for number in range(tuning.rounds):
            key = run.key("try fine-tuning", number)
            trained = run.ask(Train(clients, rows, tuning, key, private=True)).fill(rows)
            rows = torch.where(torch.isfinite(trained).all(1, keepdim=True), trained, rows)
            mixed = [torch.lerp(starts, rows, weight) for weight in WEIGHTS]
            done = tuning.span(number).stop
            scores_of_all = _scores_of_all(run, clients, mixed)
            counted_of_all = [counted(scores) for scores in scores_of_all]
            helpful = helpful_weights(counted_of_all, before, tolerance)
            tried = [
                FineTuned(
                    w0.repeat(run.num_clients, 1).index_copy(0, index, mix), scores, done, w, good
                )
                for w, mix, scores, good in zip(WEIGHTS, mixed, scores_of_all, helpful, strict=True)
            ]
            useful = [tuned for tuned in tried if tuned.helps]
            check = max(useful or tried, key=lambda tuned: gain(tuned).gain)
            if best is not None and gain(check, best.scores).t < ENOUGH:
                break
            best = check
            run.curve.end_round("TRY_FINE_TUNE", number + 1)
            run.add_scores("TRY_FINE_TUNE", best.scores, labels, clusters.partition.num_clusters)
            if gain(best).t < 0:
                break
    assert best is not None
    run.record("TRY_FINE_TUNE", clusters.partition, best.scores)
    return best


def helpful_weights(
    tried: Sequence[ClientScores], before: ClientScores, tolerance: Tolerance | None = None
) -> list[bool]:
    """Return which weights of fine-tuned models help.

    A small weight changes little, so that few samples can make it look better by chance: where
    labels are noisy, for example. Then more of it is worse than none.

    Args:
        tried: Scores ``[m]`` with each weight, the smallest first.
        before: Scores ``[m]`` with the clusters' models.
        tolerance: How many clients may lie.
    """
    helpful = [helps(scores, before, tolerance) for scores in tried]
    helpful[0] &= compare(tried[1], before, tolerance).gain >= 0
    return helpful


def _scores_of_all(run: Run, clients: Clients, models: Sequence[Tensor]) -> list[ClientScores]:
    """Score several models of each client ``[c, P]`` on held-out data, in one request.

    Returns:
        Scores of all clients ``[m]`` for each of the models.
    """
    everyone = np.tile(clients, len(models))
    replies = run.ask(Scores(everyone, torch.cat(list(models)), "validation")).fill(torch.nan)
    parts = torch.arange(len(everyone)).split(len(clients))
    return [replies[part].spread(clients, run.num_clients) for part in parts]
