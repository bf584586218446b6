"""One run of a method: its clients, its seed, progress, history and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca import progress
from srfca.clustering.partition import Labels, Partition
from srfca.errors import InputError
from srfca.federation.accountant import PrivacySpent
from srfca.federation.middleware.accounting import Accounting
from srfca.federation.middleware.counting import Budget, Counting
from srfca.federation.middleware.distrust import Distrusting
from srfca.federation.middleware.journal import Journal, Journaling
from srfca.federation.middleware.validation import Validating
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, ClientScores, Replies, T
from srfca.federation.requests import Personal, Request, Round, Scores, Train
from srfca.federation.rounds import ask
from srfca.methods._common.curve import LearningCurve
from srfca.methods._common.monitor import Monitor, RoundEnd
from srfca.methods._common.stage import Stage
from srfca.models.architecture import Architecture
from srfca.random import Key


class Run:
    """One run of a method.

    Impossible replies of single clients are refused (``Validating``).
    Requests that are sent through ``ask`` and ``train`` are counted. The scores of the history, and
    the losses that newcomers are placed by later, are not.

    Args:
        federation: The clients.
        seed: Decides every draw.
        monitor: Follows the stages.
        journal: Where replies are kept, so that the run can resume.
        curves: Score the models on held-out data after every this many rounds; 0 is never.

    Attributes:
        federation: The federation, with validation and counting around it.
        history: The stages so far.
        curve: The learning curve since the last stage.

    Examples:
        >>> from srfca import LocalTraining, Partition, Simulation, data, models
        >>> run = Run(Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3)))
        >>> starts = run.initial_model().repeat(run.num_clients, 1)
        >>> request = Train(run.everyone, starts, LocalTraining(), run.key("demo"))
        >>> with run.stage("DEMO"):
        ...     rows = run.train(request).values
        >>> run.record("DEMO", Partition([0, 1, 2, 3]), rows)
        >>> run.history[0].name, run.history[0].budget.local_steps
        ('DEMO', 20)
    """

    def __init__(
        self,
        federation: Federation,
        seed: int = 0,
        monitor: Monitor | None = None,
        journal: Journal | None = None,
        curves: int = 0,
    ) -> None:
        self.journal = journal
        valid = Validating(federation)
        self._accounting = Accounting(valid if journal is None else Journaling(valid, journal))
        self.uncounted = Distrusting(self._accounting)
        self.federation = Counting(self.uncounted)
        self.seed = seed
        self.monitor = monitor or Monitor()
        self.curves = curves
        self.history: list[Stage] = []
        self.curve = LearningCurve()
        self._next_notes: dict[str, Any] = {}
        self._told_missing = 0
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

    @property
    def architecture(self) -> Architecture | None:
        """What a row needs to become a module; None if that is not known here."""
        return self.federation.architecture

    @property
    def privacy_spent(self) -> PrivacySpent | None:
        """What was revealed of a client so far, at most; None if clients are not private."""
        return self._accounting.spent

    def initial_model(self) -> Tensor:
        """Return w0 of this run's seed: ``[P]``."""
        return self.federation.initial_model(self.seed)

    def key(self, purpose: str, round: int = 0) -> Key:
        """Return the random key of a purpose and a round.

        Args:
            purpose: What is drawn; its text decides the draws.
            round: The round.
        """
        return Key(self.seed, purpose, round)

    def distrust(self, clients: Clients) -> None:
        """Treat losses and scores that these clients ``[c]`` report as missing from now on.

        Args:
            clients: ``[c]``
        """
        self.uncounted.distrust(clients.tolist())

    def ask(self, request: Request[T]) -> Replies[T]:
        """Send a request to its clients.

        Args:
            request: Any request.

        Returns:
            The replies; impossible ones are missing.
        """
        return ask(self.federation, request)

    def train(self, request: Train, activity: str = "local training") -> Replies[Tensor]:
        """Train clients, and raise an error if the model of one has diverged.

        Args:
            request: What to train.
            activity: What it is, for the error message.

        Returns:
            ``[c, P]``, or ``[c, n]`` with the n coordinates that are sent.

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

        Args:
            request: The round.

        Returns:
            ``[k, P]``

        Raises:
            InputError: If a model is infinite or NaN.
        """
        models = self.ask(request).values
        for cluster in (~torch.isfinite(models).all(1)).nonzero().flatten().tolist():
            raise diverged("federated training", f"cluster {cluster}")
        return models

    @contextmanager
    def stage(self, name: str, steps: int = 0) -> Iterator[None]:
        """Show a stage of this many local steps, and its progress.

        Args:
            name: Name of the stage.
            steps: Local steps of all clients together, 0 if unknown.

        Yields:
            Nothing.
        """
        with self.monitor.stage(name, steps) as callback, progress.reporting_to(callback):
            yield

    def latest(self, training: str, **initial: Tensor) -> dict[str, Tensor]:
        """Return the state of a training at its last checkpoint, or its initial state.

        Args:
            training: Its name, the same in ``checkpoint``.
            **initial: The state at its start.

        Returns:
            The state by name.
        """
        state = None if self.journal is None else self.journal.latest(training)
        if state is None:
            return initial
        self.federation.restore(
            {name: state[f"counted {name}"] for name in self.federation.state()}
        )
        self._accounting.restore(
            {name: state[f"released {name}"] for name in self._accounting.state()}
        )
        self.curve.restore(state["curve"])
        self._told_missing = len(self.federation.missing)
        return {name: state[name].to(tensor.device) for name, tensor in initial.items()}

    def checkpoint(self, training: str, **state: Tensor) -> None:
        """Write the state of a training to the journal, if there is one.

        Args:
            training: Its name.
            **state: What ``latest`` will return.
        """
        if self.journal is not None:
            counted = {f"counted {name}": t for name, t in self.federation.state().items()}
            counted |= {f"released {name}": t for name, t in self._accounting.state().items()}
            self.journal.checkpoint(training, state | counted | {"curve": self.curve.state()})

    def end_round(
        self,
        training: str,
        number: int,
        total: int,
        models: Tensor | Mixture,
        labels: Labels | None = None,
        personal: Personal | None = None,
    ) -> None:
        """Tell the monitor that a round is done, and score the models if a curve is asked for.

        A score costs the clients an evaluation, and the models that they lack; the budget counts
        both. The last round is not scored, because the stage is when it is recorded.

        Args:
            training: What is trained.
            number: Number of the round, from 0.
            total: Number of rounds.
            models: ``[k, P]`` of the clusters; without labels, what each client predicts with:
                ``[m, P]``, or mixtures.
            labels: ``[m]`` the cluster of each client, -1 for none.
            personal: Coordinates that each client fills in with its own.
        """
        done = number + 1
        self.curve.end_round(training, done)
        if self.curves and done % self.curves == 0 and done < total and self._has_held_out:
            clients, num_clusters = self.everyone, 1
            if labels is not None and isinstance(models, Tensor):
                clients, num_clusters = np.flatnonzero(labels >= 0), len(models)
                models = models[torch.as_tensor(labels[clients], device=models.device)]
            replies = self.ask(Scores(clients, models, "validation", personal))
            of_cluster = 0 * replies.clients if labels is None else labels[replies.clients]
            self.add_scores(training, replies.values, of_cluster, num_clusters)
        points = [p for p in self.curve.points if (p.training, p.round) == (training, done)]
        missing = tuple(self.federation.missing[self._told_missing :])
        self._told_missing = len(self.federation.missing)
        spent, point = self.federation.spent, points[-1] if points else None
        self.monitor.round_end(RoundEnd(training, done, total, spent, missing, point))

    def add_scores(
        self, training: str, scores: ClientScores, labels: Labels, num_clusters: int
    ) -> None:
        """Add scores ``[c]`` on held-out data to the learning curve (``LearningCurve``).

        Args:
            training: What was trained.
            scores: ``[c]``, NaN if unknown.
            labels: ``[c]`` the cluster of each client, -1 for none.
            num_clusters: k
        """
        steps = self.federation.spent.local_steps
        self.curve.add_scores(training, steps, scores, labels, num_clusters)

    def add_training_losses(
        self, training: str, losses: Tensor, labels: Labels, num_clusters: int
    ) -> None:
        """Add losses ``[c]`` on training data to the learning curve (``LearningCurve``).

        Args:
            training: What was trained.
            losses: ``[c]``, NaN if unknown.
            labels: ``[c]`` the cluster of each client, -1 for none.
            num_clusters: k
        """
        steps = self.federation.spent.local_steps
        self.curve.add_training_losses(training, steps, losses, labels, num_clusters)

    @property
    def _has_held_out(self) -> bool:
        return "validation" in self.federation.splits

    def describe(self, **notes: Any) -> None:
        """Add notes to the stage that is recorded next.

        Args:
            notes: By name, ready for JSON.
        """
        self._next_notes |= notes

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
            name: Name of the stage.
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
        loss = accuracy = every_score = None
        if self._has_held_out:
            chosen = _clients_of(partition, len(predictors)) if clients is None else clients
            scores = predictors
            if not isinstance(scores, ClientScores):
                scores, chosen = self._score(name, scores, chosen, personal)
            loss = float(scores.loss.nanmean())
            accuracy = None if scores.accuracy is None else float(scores.accuracy.nanmean())
            every_score = scores.spread(chosen, len(partition))
            alone = partition.num_clusters == len(partition)  # one curve is enough
            labels = 0 * chosen if alone else partition.labels[chosen]
            self.add_scores(name, scores, labels, 1 if alone else partition.num_clusters)
        counting = self.federation
        budget, _, _ = self._recorded
        stage = Stage(
            name=name,
            labels=tuple(int(label) for label in partition.labels),
            seconds=now - self._stage_start,
            loss=loss,
            accuracy=accuracy,
            budget=counting.spent - budget,
            notes={**self._next_notes, **(notes or {}), **self._network_notes()},
            distances=distances,
            curve=tuple(self.curve.points),
            scores=every_score,
        )
        self.history.append(stage)
        self._next_notes.clear()
        self.curve.points.clear()
        self.monitor.stage_end(stage)
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
        self, stage: str, predictors: Tensor | Mixture, clients: Clients, personal: Personal | None
    ) -> tuple[ClientScores, Clients]:
        """Return scores on held-out data, and the clients that replied."""
        request = Scores(clients, predictors, "validation", personal)
        self.monitor.stage_predictors(stage, request)
        replies = self.uncounted.ask(request)
        self.federation.note_missing(request, replies)
        return replies.values, replies.clients


def _clients_of(partition: Partition, count: int) -> Clients:
    """Return the clients of ``count`` predictors: all, or those in a cluster if they are fewer."""
    of_everyone = count == len(partition)
    return np.arange(len(partition)) if of_everyone else np.flatnonzero(partition.labels >= 0)


def diverged(activity: str, name: str, num_others: int = 0) -> InputError:
    """Return an error for a model that is infinite or NaN."""
    more = f" and {num_others} more" if num_others else ""
    return InputError(
        f"{activity} diverged for {name}{more}: "
        "the model, or its loss, is infinite or NaN; lower lr, or set clip "
        "(if clients send gradients, lower server_lr)"
    )
