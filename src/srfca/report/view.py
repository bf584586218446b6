"""What a report shows of a run: its result, and what else is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.analysis import Analysis, analyze
from srfca.clustering.partition import Partition
from srfca.federation import ClientScores, Federation, Split
from srfca.methods import Result, RunStart, Stage
from srfca.report.palette import cluster_colors

Numbers = NDArray[np.float64]
"""A number for each client, NaN if unknown: ``[m]``."""


@dataclass(frozen=True, eq=False)
class ClientColumns:
    """What is known of each client beyond its cluster.

    Args:
        samples: ``[m]`` training samples.
        truth: ``[m]`` the true cluster, -1 for none.
        split: What the scores are on.
        loss: ``[m]`` of the client's final model.
        accuracy: ``[m]``, if the targets are classes.
    """

    samples: NDArray[np.int64] | None = None
    truth: NDArray[np.int64] | None = None
    split: Split = "test"
    loss: Numbers | None = None
    accuracy: Numbers | None = None

    @property
    def score(self) -> Numbers | None:
        """``[m]`` accuracy, or loss if the targets are not classes."""
        return self.loss if self.accuracy is None else self.accuracy

    @property
    def score_name(self) -> str:
        """What the score is, for a person."""
        data = {"validation": "held-out", "train": "training"}.get(self.split, self.split)
        return f"{data} {'loss' if self.accuracy is None else 'accuracy'}"

    def with_scores(self, scores: ClientScores, split: Split) -> ClientColumns:
        """Return the columns with scores on a split."""
        accuracy = None if scores.accuracy is None else _numbers(scores.accuracy)
        return replace(self, split=split, loss=_numbers(scores.loss), accuracy=accuracy)


def _numbers(values: Tensor) -> Numbers:
    return values.detach().cpu().double().numpy()


TRIALS = ("TOGETHER", "TRY_FINE_TUNE")
"""Stages of SR-FCA that try another answer."""


def final_clusters(stage: Stage, final: NDArray[np.int64]) -> dict[int, int]:
    """Return what became of each cluster of a stage.

    Args:
        stage: The stage.
        final: ``[m]`` the final cluster of each client.

    Returns:
        For each cluster of the stage the final cluster of at least half of its clients, -1 if
        there is none.
    """
    if len(stage.labels) != len(final):
        return {}
    return {cluster: _majority(final[members]) for cluster, members in enumerate(stage.partition)}


def moved_clients(before: Stage, after: Stage) -> NDArray[np.int64]:
    """Return the clients that are not where at least half of their former cluster is: ``[c]``.

    Clusters that merge move nobody. Clients that had no cluster, and joined one, have moved.
    """
    labels = np.asarray(after.labels, dtype=np.int64)
    if len(before.labels) != len(labels):
        return np.zeros(0, dtype=np.int64)
    targets = final_clusters(before, labels)
    expected = np.array([targets.get(label, -1) for label in before.partition.labels.tolist()])
    return np.flatnonzero((labels != expected) | (labels < 0) & (before.partition.labels >= 0))


def _majority(labels: NDArray[np.int64]) -> int:
    cluster, count = Counter(labels.tolist()).most_common(1)[0]
    return cluster if 2 * count >= len(labels) else -1


@dataclass(frozen=True, eq=False)
class RunView:
    """A run: finished, or what is there of a running one.

    Args:
        method: Name of the method.
        seed: Seed of the run.
        client_ids: The clients.
        labels: ``[m]`` the cluster of each client, -1 for none.
        history: The stages.
        parameters: Parameters of the method.
        clustered: Whether the method finds clusters.
        individual_models: ``[m, P]``, if the method gives each client a model.
        experiment: Its name, if there is one.
        key: Key of the method on the command line, if it is known.
        clients: What is known of each client.
        metrics: The numbers of the run, as ``run.json`` has them.
        settings: Settings of the experiment, by section.
        versions: Versions of srfca and of the libraries that it ran with.
        decision: What was decided on held-out data.
        analysis: How sure the clusters are, what they gain and what differs, if that is known.
    """

    method: str
    seed: int
    client_ids: tuple[str, ...]
    labels: NDArray[np.int64]
    history: tuple[Stage, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    clustered: bool = True
    individual_models: Tensor | None = None
    experiment: str = ""
    key: str = ""
    clients: ClientColumns = field(default_factory=ClientColumns)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    decision: str | None = None
    analysis: Analysis | None = None

    @classmethod
    def of(
        cls,
        result: Result,
        analysis: Analysis | None = None,
        samples: NDArray[np.int64] | None = None,
        truth: NDArray[np.int64] | None = None,
    ) -> RunView:
        """Return the view of a result.

        Args:
            result: The result.
            analysis: Analysis of the same result, if there is one. Without it, scores are those on
                held-out data that the history has.
            samples: ``[m]`` training samples of the clients, if they are known.
            truth: ``[m]`` their true clusters, if they are known.
        """
        return cls(
            method=result.method,
            seed=result.seed,
            client_ids=result.client_ids,
            labels=result.labels,
            history=result.history,
            parameters=result.parameters,
            clustered=result.clustered,
            individual_models=result.individual_models,
            decision=result.decision,
            clients=_columns(result, analysis, samples, truth),
            analysis=analysis,
        )

    @classmethod
    def running(cls, start: RunStart, history: tuple[Stage, ...], experiment: str = "") -> RunView:
        """Return the view of a run that is running.

        Args:
            start: What it is.
            history: The stages that are done, at least one.
            experiment: Its name, if there is one.
        """
        last = next((s for s in reversed(history) if s.name not in TRIALS), history[-1])
        return cls(
            method=start.method,
            seed=start.seed,
            client_ids=start.client_ids,
            labels=np.asarray(last.labels, dtype=np.int64),
            history=history,
            parameters=start.parameters,
            clustered=start.clustered,
            experiment=experiment,
            clients=_held_out(ClientColumns(), last, len(start.client_ids)),
        )

    @classmethod
    def asking(cls, result: Result, federation: Federation, sample_inputs: int = 0) -> RunView:
        """Return the view of a result whose clients can be asked, with their analysis.

        Args:
            result: The result.
            federation: The clients that it was found in.
            sample_inputs: Samples of each cluster to show.

        Raises:
            InputError: If the clients are others.
        """
        truth = getattr(federation, "truth", None)  # of a simulation
        signature = getattr(federation, "signature", None)
        shape = None if signature is None else signature.input_shape
        return cls.of(
            result,
            analyze(result, federation, input_shape=shape, sample_inputs=sample_inputs),
            np.asarray(federation.sizes.cpu().numpy(), dtype=np.int64),
            None if truth is None else np.asarray(truth.labels),
        )

    @property
    def title(self) -> str:
        """What the run is, in a few words."""
        parts = (self.experiment, self.name, f"seed {self.seed}")
        return ", ".join(part for part in parts if part)

    @property
    def name(self) -> str:
        """The method, with the number of clusters if it was given one."""
        k = self.parameters.get("k")
        return self.method if k is None else f"{self.method}, K={k}"

    @property
    def num_clients(self) -> int:
        """The number of clients, m."""
        return len(self.client_ids)

    @cached_property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @cached_property
    def colors(self) -> dict[int, str]:
        """The color of each cluster, and of -1."""
        return cluster_colors(self.partition)

    @cached_property
    def truth(self) -> Partition | None:
        """The true clusters, if they are known."""
        return None if self.clients.truth is None else Partition(self.clients.truth)

    @cached_property
    def main_stages(self) -> tuple[Stage, ...]:
        """The stages on the way to the answer: without trials, and without restarts not kept."""
        kept = self.note("kept")
        others = {stage.name for stage in self.history if kept and stage.name != kept}
        restarts = {name for name in others if kept and name.split()[0] == kept.split()[0]}
        return tuple(s for s in self.history if s.name not in {*TRIALS, *restarts})

    @cached_property
    def distance_stage(self) -> Stage | None:
        """The last stage that computed distances between all clients."""
        stages = [stage for stage in self.history if stage.distances is not None]
        return stages[-1] if stages else None

    def note(self, name: str) -> Any:
        """Return a note of the last stage that has it, None if no stage does."""
        notes = (stage.notes for stage in reversed(self.history))
        return next((note[name] for note in notes if note.get(name) is not None), None)


def _columns(
    result: Result,
    analysis: Analysis | None,
    samples: NDArray[np.int64] | None,
    truth: NDArray[np.int64] | None,
) -> ClientColumns:
    columns = ClientColumns(samples, truth)
    if analysis is not None:
        return columns.with_scores(analysis.scores, analysis.split)
    if not result.history:
        return columns
    return _held_out(columns, result.history[-1], len(result.client_ids))


def _held_out(columns: ClientColumns, stage: Stage, num_clients: int) -> ClientColumns:
    """Return columns with the scores on held-out data of a stage, if it has them."""
    if stage.scores is None or len(stage.scores) != num_clients:
        return columns
    return columns.with_scores(stage.scores, "validation")
