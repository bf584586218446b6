"""One run of one method on one experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from inspect import signature
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from srfca.clustering import Partition
from srfca.engine import Simulation
from srfca.errors import require
from srfca.experiments.config import Experiment, method_class, takes_k
from srfca.federation import ClientScores, LocalTraining, Split
from srfca.methods import Result
from srfca.methods._common.run import Monitor, diverged
from srfca.methods.fedavg import FedAvg

Row = dict[str, Any]
"""The figures of a run."""


@dataclass(frozen=True)
class Outcome:
    """A result with its scores."""

    experiment: str
    method: str
    result: Result
    federation: Simulation
    scores: ClientScores
    """Of each client's model on its own data."""
    tuned: ClientScores | None
    """The same after fine-tuning, if there was any."""
    scored_on: Split
    """``test``, or ``validation`` where the clients have no test data."""
    seconds: float | None
    """None of a run that went on after it was killed."""

    def row(self) -> Row:
        """The figures of the run, ready for JSON; None where one does not apply."""
        last = self.result.history[-1]
        tuned = dict.fromkeys(FIGURES) if self.tuned is None else figures(self.tuned)
        return {
            "experiment": self.experiment,
            "method": self.method,
            "name": self.result.method,
            "k": self.result.parameters.get("k"),
            "seed": self.result.seed,
            "clients": len(self.result.client_ids),
            **self._clustering(),
            "scored_on": self.scored_on,
            **figures(self.scores),
            **{f"tuned_{name}": value for name, value in tuned.items()},
            **asdict(self.result.budget),
            "validation_loss": last.loss,
            "validation_accuracy": last.accuracy,
            "distance_to_optimum": self.distance_to_optimum(),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "device": str(self.federation.device),
            "labels": [int(label) for label in self.result.labels],
        }

    def _clustering(self) -> dict[str, float | None]:
        found, truth = self.result.partition, self.federation.data.truth
        measures = ("misclustering", "ari", "nmi", "purity")
        scores: dict[str, float | None] = dict.fromkeys(measures)
        if self.result.clustered and truth is not None:
            scores = {name: getattr(found, name)(truth) for name in measures}
        return {
            "true_clusters": None if truth is None else truth.num_clusters,
            "num_clusters": found.num_clusters if self.result.clustered else None,
            **scores,
        }

    def distance_to_optimum(self) -> float | None:
        """Mean over the clients of the l2 distance of their model to the best one, if known."""
        data = self.federation.data
        models = self.result.client_models.cpu().double()
        if data.optima is None or data.truth is None or data.optima.shape[1] != models.shape[1]:
            return None
        best = data.optima.double()[torch.tensor(np.asarray(data.truth.labels))]
        return float((models - best).norm(dim=1).mean())


FIGURES = (
    "accuracy", "worst_accuracy", "worst_tenth_accuracy",
    "loss", "worst_loss", "worst_tenth_loss",
)  # fmt: skip
TENTH = 0.1


def figures(scores: ClientScores) -> dict[str, float | None]:
    """Means over the clients, the worst client, and the mean over the worst tenth of them."""
    count = ceil(TENTH * len(scores.loss))
    accuracy = scores.accuracy
    found = (
        None if accuracy is None else float(accuracy.mean()),
        None if accuracy is None else float(accuracy.min()),
        None if accuracy is None else float(accuracy.sort().values[:count].mean()),
        float(scores.loss.mean()),
        float(scores.loss.max()),
        float(scores.loss.sort(descending=True).values[:count].mean()),
    )
    return dict(zip(FIGURES, found, strict=True))


def federation(
    experiment: Experiment,
    seed: int,
    device: str = "auto",
    folder: str | Path | None = None,
    monitor: Monitor | None = None,
) -> Simulation:
    """The clients of an experiment; the seed decides their data.

    With ``warm_start`` their common start is a model that FedAvg has trained for so many steps, at
    the rate ``warm_lr`` if there is one, and otherwise as ``work`` says.
    """
    make = experiment.callable("data")
    where = {"folder": folder} if "folder" in signature(make).parameters else {}
    data = make(**experiment.arguments("data"), **where, seed=seed)
    model = experiment.callable("model")(**experiment.arguments("model"))
    arguments = experiment.arguments("federation") | {"device": device, "seed": seed}
    steps = arguments.pop("warm_start", 0)
    rate = arguments.pop("warm_lr", None)
    clients = Simulation(data, model, **arguments)
    if not steps:
        return clients
    work = LocalTraining(**experiment.arguments("local_training"))
    pretraining = FedAvg(local=replace(work, steps=steps, lr=work.lr if rate is None else rate))
    start = pretraining.fit(clients, seed=seed, monitor=monitor).models[0]
    return Simulation(data, clients.module(start), **arguments)


def method(experiment: Experiment, name: str, truth: Partition | None = None) -> Any:
    """A method with the experiment's parameters, and the true clusters if it is to know them.

    One that must be told the number of clusters, and is not, gets the true one where that is known.
    """
    make: Callable[..., Any] = method_class(name)
    told: dict[str, Any] = {"truth": truth} if "truth" in signature(make).parameters else {}
    if takes_k(name) and experiment.clusters.isdigit():
        told["k"] = int(experiment.clusters)
    work = LocalTraining(**experiment.work(name))
    return make(**told | experiment.arguments(name), local=work)


def run(
    experiment: Experiment,
    name: str,
    clients: Simulation,
    seed: int,
    monitor: Monitor | None = None,
    journal: Path | None = None,
) -> Outcome:
    """Run a method, and score it on test data, or on validation data if there are none."""
    learner = method(experiment, name, clients.data.truth)
    split: Split = "test" if "test" in clients.splits else "validation"
    require(
        split in clients.splits,
        "there is nothing to score on: the data have no test samples, and validation is 0",
    )
    goes_on = journal is not None and journal.exists()
    start = perf_counter()
    result: Result = learner.fit(clients, seed=seed, monitor=monitor, journal=journal)
    seconds = None if goes_on else perf_counter() - start
    scores = result.scores(clients, split)
    tuned = None if result.fine_tuned_models is None else result.scores(clients, split, fine_tuned=True)
    for loss in (scores.loss, *([] if tuned is None else [tuned.loss])):
        endless = (~loss.isfinite()).nonzero().flatten().tolist()
        if endless:
            who = clients.client_ids[endless[0]]
            raise diverged(learner.name, f"client {who!r} ({split} loss)", len(endless) - 1)
    return Outcome(experiment.name, name, result, clients, scores, tuned, split, seconds)
