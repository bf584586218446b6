"""Fine-tuning: each client trains its final model on, as long as its held-out data improve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.local_training import LocalTraining
from srfca.federation.mixture import Mixture
from srfca.federation.replies import Clients
from srfca.federation.requests import Scores, Train
from srfca.methods._common.run import Run

CHECKS = 10
"""How often a client scores its model on held-out data while it fine-tunes."""


def fine_tune(
    run: Run,
    labels: NDArray[np.int64],
    models: Tensor,
    clients: Clients,
    local: LocalTraining,
    steps: int,
    mixture: Mixture | None = None,
) -> tuple[Tensor, Tensor]:
    """Fine-tune the clients' models.

    Each client keeps the model with the least loss on its held-out data among those after 0,
    steps/10, 2 steps/10, ... steps; the fewest steps on a tie. A model that is infinite or NaN is
    not a candidate.

    Args:
        run: The run.
        labels: ``[m]`` the clients' clusters, for the history.
        models: ``[m, P]`` to start from.
        clients: ``[c]`` those that have a model.
        local: How clients train.
        steps: Largest number of steps.
        mixture: What the clients predict with, if that is not their model; a client of 0 steps
            keeps it.

    Returns:
        The models ``[m, P]`` and the steps ``[m]`` of the clients.
    """
    tuning = replace(
        local, steps=steps, local_steps=-(-steps // CHECKS), schedule="constant", mu=0.0,
        keep_state=True, resample=False,
    )  # fmt: skip
    index = torch.as_tensor(clients)
    rows = models if len(clients) == len(models) else models[index.to(models.device)]
    predictors = rows if mixture is None else mixture.select(clients)
    scores = run.ask(Scores(clients, predictors, "validation")).fill(torch.nan)
    best, best_steps = rows, torch.zeros(len(clients), dtype=torch.int64)
    losses = [float(scores.loss.nanmean())]
    partition = Partition(labels)
    with run.stage("FINE_TUNE", len(clients) * steps):
        for number in range(tuning.rounds):
            key = run.key("personalise", number)
            trained = run.ask(Train(clients, rows, tuning, key, private=True)).fill(rows)
            rows = torch.where(torch.isfinite(trained).all(1, keepdim=True), trained, rows)
            current = run.ask(Scores(clients, rows, "validation")).fill(torch.nan)
            losses.append(float(current.loss.nanmean()))
            better = current.loss < scores.loss
            scores = current.where(better, scores)
            run.curve.end_round("FINE_TUNE", number + 1)
            run.add_scores("FINE_TUNE", scores, partition.labels[clients], partition.num_clusters)
            best_steps[better] = tuning.span(number).stop
            best = torch.where(better.to(rows.device).unsqueeze(1), rows, best)
    all_steps = torch.zeros(len(models), dtype=torch.int64)
    all_steps[index] = best_steps
    if len(clients) < len(models):
        best = models.index_copy(0, index.to(models.device), best)
    notes = {"steps": all_steps.tolist(), "losses": losses}
    run.record("FINE_TUNE", partition, scores, notes=notes, clients=clients)
    return best, all_steps
