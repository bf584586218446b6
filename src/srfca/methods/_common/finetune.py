"""Personalise: each client fine-tunes the model it was given, as long as its own data says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.base import Mixture, Work
from srfca.methods.run import Run
from srfca.random import Key

CHECKS = 10
"""How often a client looks at its validation data while it fine-tunes."""


def personalise(
    run: Run,
    labels: np.ndarray,
    given: Tensor,
    work: Work,
    steps: int,
    mixture: Mixture | None = None,
) -> tuple[Tensor, Tensor]:
    """The clients' models, fine-tuned from ``given`` ``[m, P]``: ``[m, P]``, and steps ``[m]``.

    Each client keeps the model with the least loss on its validation data among those after 0,
    steps/10, 2 steps/10, ... steps; the fewest steps if there are several. One that has become
    infinite or NaN is none of them. With a ``mixture`` a client of 0 steps keeps that, and not the
    row that it would have fine-tuned.
    """
    federation = run.federation
    every = range(len(federation.clients))
    tuning = replace(
        work, steps=steps, local_steps=-(-steps // CHECKS), schedule="constant", prox=0.0,
        keep_state=True, resample=False,
    )  # fmt: skip
    best, rows, taken = given, given, torch.zeros(len(given), dtype=torch.int64)
    scores = federation.scores(given if mixture is None else mixture, every, "validation")
    losses = [float(scores.loss.nanmean())]
    with run.stage("PERSONALISE", len(every) * steps) as tick, federation.private():
        for number in range(tuning.rounds):
            key = Key(run.seed, "personalise", number)
            tuned = federation.fit(rows, every, tuning, key, tick)
            rows = torch.where(torch.isfinite(tuned).all(1, keepdim=True), tuned, rows)
            now = federation.scores(rows, every, "validation")
            losses.append(float(now.loss.nanmean()))
            better = now.loss < scores.loss
            scores = now.where(better, scores)
            taken[better] = tuning.span(number).stop
            best = torch.where(better.to(rows.device).unsqueeze(1), rows, best)
    notes = {"steps": taken.tolist(), "losses": losses}
    run.record("PERSONALISE", Partition(labels), scores, notes=notes)
    return best, taken
