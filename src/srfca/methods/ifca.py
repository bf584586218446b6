"""IFCA: Iterative Federated Clustering Algorithm.

Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning.
NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.errors import require, require_positive, unknown
from srfca.federation.base import Federation, Work
from srfca.methods.base import Answer, Method, require_share
from srfca.methods.result import models_of_clients
from srfca.methods.rounds import (
    Aggregate,
    cluster_round,
    counts,
    everybody,
    least,
    nearest,
    participants,
    plain_mean,
    schedule,
    weighted_mean,
)
from srfca.methods.run import Run
from srfca.methods.starts import check_start, check_start_steps, starting_models
from srfca.random import Key


@dataclass(frozen=True, kw_only=True)
class IFCA(Method):
    """Clients train the one of k models that has the least loss on their data, anew each round.

    Args:
        k: Number of clusters.
        average: What clients send: ``models`` after some local steps, or whole ``gradients``, of
            which the server takes plain steps by the rate and the schedule of ``work``.
        server_lr: The server's rate when gradients are sent; None is the rate of ``work``.
        start: ``random``, k random models; ``clients``, the models of k clients drawn at random
            that train from w0 alone; ``distant``, of k clients that do badly with each other's
            models; or the models themselves, ``[k, P]``.
        start_steps: How long those clients train; None is one round of ``work``.
        restarts: Runs from starts of their own; the one of the least training loss is kept.
        shared: How many of the lower layers all clusters share; a negative number counts from the
            outputs, so that -1 is all but the last.
        weighted: Weigh clients by their samples, else all alike.
        participation: The fraction of the clients that take part in a round.
        personal_steps: As of every method (``Method``).
        personal_lr: As of every method.
        work: How clients train.

    >>> from srfca import Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> work = Work(steps=60, batch_size=10, lr=0.5)
    >>> IFCA(k=2, restarts=3, work=work).fit(fed, seed=0).partition == fed.data.truth
    True
    """

    name: ClassVar[str] = "IFCA"

    k: int = 2
    average: str = "models"
    server_lr: float | None = None
    start: str | Tensor = "random"
    start_steps: int | None = None
    restarts: int = 1
    shared: int = 0
    weighted: bool = True
    participation: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(k=self.k, restarts=self.restarts)
        check_average(self.average, self.server_lr)
        if isinstance(self.start, str):
            check_start(self.start)
        else:
            require(
                self.start.ndim == 2 and len(self.start) == self.k,
                f"start must be {self.k} models (k), not of shape {tuple(self.start.shape)}",
            )
            require(
                self.restarts == 1,
                f"restarts={self.restarts} needs a start that is drawn, not given models",
            )
        check_start_steps(self.start_steps, self.work)
        require_share(self.participation)

    @property
    def trainings(self) -> float:
        """One for each restart."""
        return self.restarts * self.participation

    @property
    def _alone(self) -> int:
        """How many steps a client trains alone, if its model is to be a start."""
        return self.start_steps or min(self.work.local_steps, self.work.steps)

    def solve(self, run: Run) -> Answer:
        """Run IFCA from every start, and keep the best run."""
        runs = []
        for number in range(self.restarts):
            stage = "IFCA" if self.restarts == 1 else f"IFCA {number + 1}"
            runs.append(self._from_start(run, stage, f"ifca {number}"))
            run.record(stage, runs[-1].partition, runs[-1].client_models, notes=runs[-1].notes)
        losses = [each.loss for each in runs]
        best = int(np.argmin(losses))
        if self.restarts > 1:
            notes = {"kept": f"IFCA {best + 1}", "training_losses": losses} | runs[best].notes
            run.record("RESTARTS", runs[best].partition, runs[best].client_models, notes=notes)
        return runs[best].answer

    def _from_start(self, run: Run, stage: str, purpose: str) -> Clustered:
        federation = run.federation
        models = self._start(run, purpose)
        common = shared_coordinates(federation, self.shared)
        if common is not None:
            random = isinstance(self.start, str) and self.start == "random"
            models = torch.where(common, models[0] if random else models.mean(0), models)
        return alternate(
            run, stage, models, self.work, weighted_mean if self.weighted else plain_mean,
            purpose=purpose, participation=self.participation, common=common,
            server_lr=server_rate(self.average, self.server_lr, self.work),
        )  # fmt: skip

    def _start(self, run: Run, purpose: str) -> Tensor:
        """The models to start from: ``[k, P]``."""
        if not isinstance(self.start, str):
            w0 = run.federation.initial(run.seed)
            require(
                self.start.shape[1] == len(w0),
                f"start must be rows of length {len(w0)}, not {self.start.shape[1]}",
            )
            return self.start.to(w0)
        purpose = f"{purpose} start"
        return starting_models(run, self.k, self.start, self.work, self._alone, purpose)[0]


@dataclass(frozen=True)
class Clustered:
    """Models, and who took which in the end."""

    models: Tensor
    """``[k, P]``"""
    labels: NDArray[np.int64]
    """``[m]``"""
    loss: float
    """Mean over the clients of their model's loss on their training data."""
    changed: list[int]
    """How many clients took another model than before, at each of their choices."""

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @property
    def client_models(self) -> Tensor:
        """The model of each client: ``[m, P]``."""
        return models_of_clients(self.models, self.labels)

    @property
    def answer(self) -> Answer:
        """Without the models that nobody took."""
        return Answer.of(self.labels, self.models)

    @property
    def notes(self) -> dict[str, Any]:
        """For the history."""
        empty = [c for c in range(len(self.models)) if c not in self.labels]
        return {"changed": self.changed, "empty": empty, "training_loss": self.loss}


def alternate(
    run: Run,
    stage: str,
    models: Tensor,
    work: Work,
    aggregate: Aggregate,
    *,
    purpose: str,
    participation: float = 1.0,
    server_lr: float | None = None,
    rounds_between: int = 1,
    common: Tensor | None = None,
) -> Clustered:
    """Clients choose the model of least loss and train it, by turns, from ``models`` ``[k, P]``.

    The clients that are drawn choose, and train for ``rounds_between`` rounds. After the last round
    everybody chooses once more. The coordinates ``common`` ``[P]`` are averaged over all clients of
    a round, whatever they chose.
    """
    federation = run.federation
    everyone = everybody(federation)
    rounds, exchange = schedule(federation, work, server_lr)
    stands = {
        "models": models,
        "labels": torch.full((len(everyone),), -1),
        "changed": torch.zeros(0, dtype=torch.int64),
        "done": torch.tensor(0),
    }
    with run.stage(stage, sum(counts(everyone, participation)) * work.steps) as tick:
        if not work.keep_state:
            stands = run.latest(purpose, **stands)
        models, labels = stands["models"], stands["labels"].numpy().copy()
        changed = stands["changed"].tolist()
        for number in range(int(stands["done"]), rounds):
            key = Key(run.seed, purpose, number)
            if number % rounds_between == 0:
                who = participants(federation, everyone, participation, key)
                chosen = nearest(federation, models, who)
                who, chosen = who[chosen >= 0], chosen[chosen >= 0]
                changed.append(moved(labels[who], chosen))
                labels[who] = chosen
            models = cluster_round(
                federation, models, who, labels[who], exchange, aggregate, key, tick, common
            )
            if (number + 1) % rounds_between == 0 and not work.keep_state:
                run.checkpoint(
                    purpose, models=models, labels=torch.tensor(labels),
                    changed=torch.tensor(changed), done=torch.tensor(number + 1),
                )  # fmt: skip
        losses = federation.losses(models, range(len(everyone))).cpu().double()
    last = least(losses)
    answered = last >= 0
    last = np.where(answered, last, labels)
    changed.append(moved(labels, last))
    best = losses[:, torch.tensor(answered)].nan_to_num(nan=torch.inf).min(0).values
    return Clustered(models, last, float(best.mean()), changed)


def moved(before: NDArray[np.int64], after: NDArray[np.int64]) -> int:
    """How many clients are in another cluster than before; not those that were in none."""
    return int(((before >= 0) & (before != after)).sum())


def shared_coordinates(federation: Federation, shared: int) -> Tensor | None:
    """``[P]`` whether a coordinate is of the ``shared`` lower layers, or of none (a buffer).

    None if no layer is shared.
    """
    layers = list(federation.layers.values())
    least = 1 - len(layers)
    require(
        least <= shared < len(layers),
        f"shared must be from {least} to {len(layers) - 1} for a model of {len(layers)} layers, "
        f"not {shared}",
    )
    if shared == 0:
        return None
    w0 = federation.initial(0)
    common = torch.ones(len(w0), dtype=torch.bool, device=w0.device)
    for layer in layers[shared:]:
        common[layer] = False
    return common


def server_rate(average: str, server_lr: float | None, work: Work) -> float | None:
    """The server's rate when gradients are averaged; None when models are."""
    return (server_lr or work.lr) if average == "gradients" else None


def check_average(average: str, server_lr: float | None) -> None:
    """Refuse what clients cannot send, and a rate that is no rate."""
    if average not in ("models", "gradients"):
        raise unknown("average", average, ["models", "gradients"])
    require(server_lr is None or server_lr > 0, f"server_lr must be positive, not {server_lr}")
