"""One run of a method: its clients, its seed, progress, history and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from srfca import progress
from srfca.clustering.partition import Partition
from srfca.errors import InputError
from srfca.federation.middleware.counting import Budget, Counting
from srfca.federation.middleware.journal import Journal, Journaling
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, Replies, T
from srfca.federation.requests import Personal, Request, Round, Scores, Train
from srfca.federation.rounds import ask
from srfca.methods._common.stage import Stage
from srfca.random import Key


class Monitor(Protocol):
    """Follows the stages of a run, to draw progress bars or to write a log."""

    def stage(self, name: str, steps: int) -> AbstractContextManager[progress.Callback]:
        """Enter a stage of this many local steps; the callback is called as they are done."""
        ...


class SilentMonitor:
    """A monitor that shows nothing."""

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Enter a stage."""
        yield progress.ignore


class Run:
    """One run of a method.

    Requests that are sent through ``ask`` and ``train`` are counted. The scores of the history, and
    the losses that newcomers are placed by later, are not.

    Args:
        federation: The clients.
        seed: Decides every draw.
        monitor: Follows the stages.
        journal: Where replies are kept, so that the run can resume.

    Attributes:
        federation: The federation, with counting around it.
        history: The stages so far.
    """

    def __init__(
        self,
        federation: Federation,
        seed: int = 0,
        monitor: Monitor | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.journal = journal
        self.uncounted = federation if journal is None else Journaling(federation, journal)
        self.federation = Counting(self.uncounted)
        self.seed = seed
        self.monitor = monitor or SilentMonitor()
        self.history: list[Stage] = []
        self._stage_start = perf_counter()
        self._recorded = (Budget(), self.federation.traffic, 0)

    @property
    def client_ids(self) -> Sequence[str]:
        """Stable ids of the clients, in order."""
        return self.federation.client_ids

    @property
    def num_clients(self) -> int:
        """The number of clients, m."""
        return len(self.federation.client_ids)

    @property
    def everyone(self) -> Clients:
        """All clients: ``[m]``."""
        return np.arange(self.num_clients)

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client."""
        return self.federation.sizes

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        return self.federation.layers

    def initial_model(self) -> Tensor:
        """Return w0 of this run's seed: ``[P]``."""
        return self.federation.initial_model(self.seed)

    def key(self, purpose: str, round: int = 0) -> Key:
        """Return the random key of a purpose and a round."""
        return Key(self.seed, purpose, round)

    def ask(self, request: Request[T]) -> Replies[T]:
        """Send a request to its clients."""
        return ask(self.federation, request)

    def train(self, request: Train, activity: str = "local training") -> Replies[Tensor]:
        """Train clients, and raise an error if the model of one has diverged.

        Args:
            request: What to train.
            activity: What it is, for the error message.

        Raises:
            InputError: If a trained model is infinite or NaN.
        """
        replies = self.federation.ask(request)
        finite = torch.isfinite(replies.values).all(1)
        if not bool(finite.all()):
            bad = (~finite).nonzero().flatten().tolist()
            first = self.client_ids[int(replies.clients[bad[0]])]
            raise diverged(activity, f"client {first!r}", len(bad) - 1)
        return replies

    def round(self, request: Round) -> Tensor:
        """Do a round, and return the clusters' new models: ``[k, P]``.

        Raises:
            InputError: If a model is infinite or NaN.
        """
        models = self.ask(request).values
        for cluster in (~torch.isfinite(models).all(1)).nonzero().flatten().tolist():
            raise diverged("federated training", f"cluster {cluster}")
        return models

    @contextmanager
    def stage(self, name: str, steps: int = 0) -> Iterator[None]:
        """Show a stage of this many local steps, and its progress."""
        with self.monitor.stage(name, steps) as callback, progress.reporting_to(callback):
            yield

    def latest(self, training: str, **initial: Tensor) -> dict[str, Tensor]:
        """Return the state of a training at its last checkpoint, or its initial state."""
        state = None if self.journal is None else self.journal.latest(training)
        if state is None:
            return initial
        self.federation.restore(
            {name: state[f"counted {name}"] for name in self.federation.state()}
        )
        return {name: state[name].to(tensor.device) for name, tensor in initial.items()}

    def checkpoint(self, training: str, **state: Tensor) -> None:
        """Write the state of a training to the journal, if there is one."""
        if self.journal is not None:
            counted = {f"counted {name}": t for name, t in self.federation.state().items()}
            self.journal.checkpoint(training, state | counted)

    def record(
        self,
        name: str,
        partition: Partition,
        predictors: Tensor | Mixture | ClientScores,
        distances: np.ndarray | None = None,
        notes: Mapping[str, Any] | None = None,
        *,
        clients: Clients | None = None,
        personal: Personal | None = None,
    ) -> None:
        """Add a stage to the history, with its score on held-out data if there is any.

        Args:
            name: Of the stage.
            partition: The clusters after it.
            predictors: Models ``[c, P]`` or mixtures of the clients, or their scores on held-out
                data if these are known.
            distances: ``[m, m]`` between local models, if the stage computed them.
            notes: What the stage decided and why, ready for JSON.
            clients: Whose predictors they are; None is all clients, or those in a cluster if the
                predictors are fewer.
            personal: Coordinates that each client fills in with its own.
        """
        now = perf_counter()
        loss = accuracy = None
        if "validation" in self.federation.splits:
            scores = (
                predictors
                if isinstance(predictors, ClientScores)
                else self._score(partition, predictors, clients, personal)
            )
            loss = float(scores.loss.nanmean())
            accuracy = None if scores.accuracy is None else float(scores.accuracy.nanmean())
        counting = self.federation
        budget, _, _ = self._recorded
        self.history.append(
            Stage(
                name=name,
                labels=tuple(int(label) for label in partition.labels),
                seconds=now - self._stage_start,
                loss=loss,
                accuracy=accuracy,
                budget=counting.spent - budget,
                notes={**(notes or {}), **self._network_notes()},
                distances=distances,
            )
        )
        self._stage_start = perf_counter()
        self._recorded = (counting.spent, counting.traffic, len(counting.missing))

    def _network_notes(self) -> dict[str, Any]:
        """Return traffic and missing replies since the last stage, if there were any."""
        _, traffic, missing = self._recorded
        counting = self.federation
        notes: dict[str, Any] = {}
        if counting.traffic.messages > traffic.messages:
            notes["traffic"] = asdict(counting.traffic - traffic)
        if len(counting.missing) > missing:
            notes["missing"] = [asdict(reply) for reply in counting.missing[missing:]]
        return notes

    def _score(
        self,
        partition: Partition,
        predictors: Tensor | Mixture,
        clients: Clients | None,
        personal: Personal | None,
    ) -> ClientScores:
        if clients is None:
            clustered = np.flatnonzero(partition.labels >= 0)
            of_everyone = len(predictors) == len(partition)
            clients = np.arange(len(partition)) if of_everyone else clustered
        request = Scores(clients, predictors, "validation", personal)
        replies = self.uncounted.ask(request)
        self.federation.note_missing(request, replies)
        return replies.values


def diverged(activity: str, name: str, num_others: int = 0) -> InputError:
    """Return an error for a model that is infinite or NaN."""
    more = f" and {num_others} more" if num_others else ""
    return InputError(
        f"{activity} diverged for {name}{more}: "
        "the model, or its loss, is infinite or NaN; lower lr, or set clip "
        "(if clients send gradients, lower server_lr)"
    )
