"""IFCA: Iterative Federated Clustering Algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import winsorize
from srfca.aggregation.rules import Aggregation, Mean
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.requests import Losses, Round, Subsample
from srfca.methods._common.base import Answer, Method
from srfca.methods._common.init import Start, check_start_steps, starting_models
from srfca.methods._common.result import models_of_clients
from srfca.methods._common.rounds import (
    Exchange,
    argmin_loss,
    num_participants,
    num_rounds,
    one_cluster,
    participants,
    require_replies,
    resolve_server_lr,
)
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Choices, SearchSpace
from srfca.methods._common.server_update import ServerUpdate
from srfca.methods.registry import register
from srfca.parameters import constrained


@register
@dataclass(frozen=True, kw_only=True)
class IFCA(Method):
    """In each round, clients train the one of k models that has the least loss on their data.

    Args:
        k: Number of clusters.
        exchange: What clients send: ``models`` after some local steps, or full ``gradients``, along
            which the server steps with the learning rate and schedule of ``local``.
        server_lr: The server's learning rate for gradients; None is that of ``local``.
        start: ``random``, k random models; ``clients``, the models of k clients drawn at random
            that train alone from w0; ``distant``, of k clients that do badly with each other's
            models; or the models themselves, ``[k, P]``.
        start_steps: How long those clients train; None is one round of ``local``.
        restarts: Number of runs with different starts; that of least training loss is kept.
        shared: How many of the lower layers all clusters share; a negative number counts from the
            outputs, so that -1 is all but the last.
        samples: Clients choose a model by their losses on at most this many training samples, drawn
            once; None is all of them. The last choice is always by all.
        weighted: Weight clients by their number of samples; otherwise all alike.
        participation: The fraction of the clients that take part in a round.

    >>> from srfca import LocalTraining, Simulation, data, models
    >>> fed = Simulation(data.rotated_digits(num_clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> IFCA(k=2, restarts=3, local=local).fit(fed, seed=0).partition == fed.data.truth
    True
    """

    key: ClassVar[str] = "ifca"
    name: ClassVar[str] = "IFCA"
    paper: ClassVar[str] = (
        "Ghosh, Chung, Yin, Ramchandran: An Efficient Framework for Clustered Federated Learning. "
        "NeurIPS 2020."
    )
    needs_k: ClassVar[bool] = True
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "start": Choices(("random", "clients", "distant"))
    }

    k: int = constrained(2, at_least=1)
    exchange: Exchange = "models"
    server_lr: float | None = constrained(None, more_than=0)
    start: Start | Tensor = "random"
    start_steps: int | None = None
    restarts: int = constrained(1, at_least=1)
    shared: int = 0
    samples: int | None = constrained(None, at_least=1)
    weighted: bool = True
    participation: float = constrained(1.0, more_than=0, at_most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.start, Tensor):
            require(
                self.start.ndim == 2 and len(self.start) == self.k,
                f"start must be {self.k} models (k), not of shape {tuple(self.start.shape)}",
            )
            require(
                self.restarts == 1,
                f"restarts={self.restarts} needs a start that is drawn, not given models",
            )
        check_start_steps(self.start_steps, self.local)

    @property
    def trainings(self) -> float:
        """One for each restart."""
        return self.restarts * self.participation

    def solve(self, run: Run) -> Answer:
        """Run IFCA from every start, and keep the best run."""
        outcomes = []
        for number in range(self.restarts):
            stage = "IFCA" if self.restarts == 1 else f"IFCA {number + 1}"
            outcome = self._from_start(run, stage, f"ifca {number}")
            run.record(stage, outcome.partition, outcome.client_models, notes=outcome.notes)
            outcomes.append(outcome)
        losses = [outcome.loss for outcome in outcomes]
        number = int(np.argmin(losses))
        best = outcomes[number]
        if self.restarts > 1:
            notes = {"kept": f"IFCA {number + 1}", "training_losses": losses} | best.notes
            run.record("RESTARTS", best.partition, best.client_models, notes=notes)
        return best.answer

    def _from_start(self, run: Run, stage: str, purpose: str) -> Alternation:
        models = self._starting_models(run, purpose)
        shared = shared_coordinates(run, self.shared)
        if shared is not None:
            drawn = isinstance(self.start, str) and self.start == "random"
            mask = shared.mask(models.shape[1], models.device)
            models = torch.where(mask, models[0] if drawn else models.mean(0), models)
        return alternate(
            run, stage, models, self.local, Mean(self.weighted), purpose=purpose,
            participation=self.participation, shared=shared,
            subsample=None if self.samples is None else Subsample(self.samples, run.seed),
            server_lr=resolve_server_lr(self.exchange, self.server_lr, self.local),
        )  # fmt: skip

    def _starting_models(self, run: Run, purpose: str) -> Tensor:
        """Return the models to start from: ``[k, P]``."""
        if isinstance(self.start, Tensor):
            w0 = run.initial_model()
            require(
                self.start.shape[1] == len(w0),
                f"start must be rows of length {len(w0)}, not {self.start.shape[1]}",
            )
            return self.start.to(w0)
        steps = self.start_steps or min(self.local.local_steps, self.local.steps)
        models, _ = starting_models(run, self.k, self.start, self.local, steps, f"{purpose} start")
        return models


@dataclass(frozen=True, eq=False)
class Alternation:
    """The outcome of ``alternate``.

    Args:
        models: ``[k, P]``
        labels: ``[m]`` the model that each client chose last.
        loss: Mean over the clients of their model's training loss.
        changed: How many clients chose another model than before, at each choice.
    """

    models: Tensor
    labels: NDArray[np.int64]
    loss: float
    changed: list[int]

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @property
    def client_models(self) -> Tensor:
        """``[m, P]`` the model of each client."""
        return models_of_clients(self.models, self.labels)

    @property
    def answer(self) -> Answer:
        """The same without models that no client chose."""
        return Answer.canonical(self.labels, self.models)

    @property
    def notes(self) -> dict[str, Any]:
        """Notes for the history."""
        empty = [cluster for cluster in range(len(self.models)) if cluster not in self.labels]
        return {"changed": self.changed, "empty": empty, "training_loss": self.loss}


def alternate(
    run: Run,
    stage: str,
    models: Tensor,
    local: LocalTraining,
    aggregation: Aggregation,
    *,
    purpose: str,
    participation: float = 1.0,
    server_lr: float | None = None,
    rounds_between: int = 1,
    shared: Coordinates | None = None,
    subsample: Subsample | None = None,
) -> Alternation:
    """Alternate between clients choosing the model of least loss and training it.

    After the last round all clients choose once more.

    Args:
        run: The run.
        stage: Its name, for progress.
        models: ``[k, P]`` to start from.
        local: How clients train.
        aggregation: How the rows of a cluster become one row.
        purpose: Purpose of the random draws.
        participation: The fraction of the clients that take part in a round.
        server_lr: If given, clients send gradients.
        rounds_between: Rounds of training between two choices.
        shared: Coordinates that are averaged over all clients of a round.
        subsample: The training samples by which clients choose before a round; None is all.
    """
    everyone, total = one_cluster(run), num_rounds(local, server_lr)
    server = ServerUpdate(run, local, total)
    state = server.state(models) | {
        "models": models,
        "labels": torch.full((run.num_clients,), -1),
        "changed": torch.zeros(0, dtype=torch.int64),
        "done": torch.tensor(0),
    }
    with run.stage(stage, sum(num_participants(everyone, participation)) * local.steps):
        if not local.stateful:
            state = run.latest(purpose, **state)
        models, labels = state["models"], state["labels"].numpy().copy()
        changed = state["changed"].tolist()
        server.restore(state)
        for number in range(int(state["done"]), total):
            key = run.key(purpose, number)
            if number % rounds_between == 0:
                drawn = participants(run.federation, everyone, participation, key)
                replies = run.ask(Losses(drawn, models, subsample=subsample))
                clients, chosen = replies.clients, argmin_loss(replies.values)
                _add_losses(run, stage, replies.values, chosen)
                changed.append(num_moved(labels[clients], chosen))
                labels[clients] = chosen
            request = Round(
                clients, models, labels[clients], local, key, aggregation, server_lr, shared
            )
            models = server.step(models, run.round(request))
            server.add(number, models)
            run.end_round(stage, number, total, models, labels)
            if (number + 1) % rounds_between == 0 and not local.stateful:
                run.checkpoint(
                    purpose, models=models, labels=torch.tensor(labels),
                    changed=torch.tensor(changed), done=torch.tensor(number + 1),
                    **server.state(models),
                )  # fmt: skip
        models = server.result(total - 1, models)
        replies = run.ask(Losses(run.everyone, models))
    losses, final = replies.values.cpu().double(), labels.copy()
    final[replies.clients] = argmin_loss(losses)
    _add_losses(run, stage, losses, final[replies.clients])
    run.curve.renumber(stage, final)
    require_replies(np.flatnonzero(final >= 0))
    changed.append(num_moved(labels, final))
    best = losses.nan_to_num(nan=torch.inf).min(1).values
    return Alternation(models, final, float(winsorize(best).mean()), changed)


def _add_losses(run: Run, stage: str, losses: Tensor, chosen: NDArray[np.int64]) -> None:
    """Add the training losses ``[c, k]`` with the chosen models to the learning curve."""
    least = losses.cpu().gather(1, torch.as_tensor(chosen).unsqueeze(1)).squeeze(1)
    run.add_training_losses(stage, least, chosen, losses.shape[1])


def num_moved(before: NDArray[np.int64], after: NDArray[np.int64]) -> int:
    """Return how many clients are in another cluster than before, without unclustered ones."""
    return int(((before >= 0) & (before != after)).sum())


def shared_coordinates(run: Run, shared: int) -> Coordinates | None:
    """Return the coordinates of the ``shared`` lower layers, and of buffers; None if no layer is.

    Raises:
        InputError: If the model has fewer layers.
    """
    layers = list(run.layers.values())
    minimum = 1 - len(layers)
    require(
        minimum <= shared < len(layers),
        f"shared must be from {minimum} to {len(layers) - 1} for a model of {len(layers)} layers, "
        f"not {shared}",
    )
    if shared == 0:
        return None
    upper = Coordinates(tuple((layer.start, layer.stop) for layer in layers[shared:]))
    return upper.complement(len(run.initial_model()))
