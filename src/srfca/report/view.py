"""What a report shows of a run: its result, and what else is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation import ClientScores, Federation
from srfca.methods import Result, Stage
from srfca.report.palette import cluster_colors

Numbers = NDArray[np.float64]
"""A number for each client, NaN if unknown: ``[m]``."""


@dataclass(frozen=True, eq=False)
class ClientColumns:
    """What is known of each client besides its cluster.

    Args:
        samples: ``[m]`` training samples.
        truth: ``[m]`` the true cluster, -1 for none.
        split: What the scores are on.
        loss: ``[m]`` of the client's model.
        accuracy: ``[m]``, if the targets are classes.
        tuned_loss: ``[m]`` after fine-tuning, if there was any.
        tuned_accuracy: ``[m]``
    """

    samples: NDArray[np.int64] | None = None
    truth: NDArray[np.int64] | None = None
    split: str = "test"
    loss: Numbers | None = None
    accuracy: Numbers | None = None
    tuned_loss: Numbers | None = None
    tuned_accuracy: Numbers | None = None

    def with_scores(self, scores: ClientScores, tuned: ClientScores | None) -> ClientColumns:
        """Return the columns with scores before and after fine-tuning."""
        return replace(
            self,
            loss=_numbers(scores.loss),
            accuracy=_numbers(scores.accuracy),
            tuned_loss=None if tuned is None else _numbers(tuned.loss),
            tuned_accuracy=None if tuned is None else _numbers(tuned.accuracy),
        )


def _numbers(values: Tensor | None) -> Numbers | None:
    return None if values is None else values.detach().cpu().double().numpy()


_TRIALS = ("TOGETHER", "TRY_FINE_TUNE")
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


def _majority(labels: NDArray[np.int64]) -> int:
    cluster, count = Counter(labels.tolist()).most_common(1)[0]
    return cluster if 2 * count >= len(labels) else -1


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, as far as it is known: also while it goes on.

    Args:
        method: Name of the method.
        seed: Of the run.
        client_ids: The clients.
        labels: ``[m]`` the cluster of each client, -1 for none.
        history: The stages.
        parameters: Of the method.
        clustered: Whether the method finds clusters.
        individual_models: ``[m, P]``, if the method gives each client a model.
        experiment: Its name, if there is one.
        key: Of the method on the command line, if it is known.
        clients: What is known of each client.
        metrics: The numbers of the run, as ``run.json`` has them.
        settings: Of the experiment, by section.
        versions: Of srfca and of the libraries that it ran with.
        decision: What was decided on held-out data.
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

    @classmethod
    def of(cls, result: Result, federation: Federation | None = None) -> RunView:
        """Return the view of a result.

        Args:
            result: The result.
            federation: Its clients, if they can be asked for their scores.
        """
        view = cls(
            method=result.method,
            seed=result.seed,
            client_ids=result.client_ids,
            labels=result.labels,
            history=result.history,
            parameters=result.parameters,
            clustered=result.clustered,
            individual_models=result.individual_models,
            decision=result.decision,
        )
        return view if federation is None else replace(view, clients=_ask(result, federation))

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
        return tuple(s for s in self.history if s.name not in {*_TRIALS, *restarts})

    @cached_property
    def distance_stage(self) -> Stage | None:
        """The last stage that computed distances between all clients."""
        stages = [stage for stage in self.history if stage.distances is not None]
        return stages[-1] if stages else None

    def note(self, name: str) -> Any:
        """Return a note of the last stage that has it, None if no stage does."""
        notes = (stage.notes for stage in reversed(self.history))
        return next((note[name] for note in notes if note.get(name) is not None), None)


def _ask(result: Result, federation: Federation) -> ClientColumns:
    """Ask clients how their models do on test data, or on validation data if there are none."""
    samples = np.asarray(federation.sizes.cpu().numpy(), dtype=np.int64)
    splits = [split for split in ("test", "validation") if split in federation.splits]
    truth = _truth(federation)
    if not splits:
        return ClientColumns(samples, truth)
    split: Any = splits[0]
    tuned = None
    if result.fine_tuned_models is not None:
        tuned = result.scores(federation, split, fine_tuned=True)
    columns = ClientColumns(samples, truth, split)
    return columns.with_scores(result.scores(federation, split), tuned)


def _truth(federation: Federation) -> NDArray[np.int64] | None:
    """Return the true clusters of simulated clients, if they are known."""
    truth = getattr(getattr(federation, "data", None), "truth", None)
    return None if truth is None else np.asarray(truth.labels)


def in_order(views: Sequence[RunView]) -> list[RunView]:
    """Return runs by seed, each seed's in the given order."""
    return sorted(views, key=lambda view: view.seed)
