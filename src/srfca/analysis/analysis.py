"""The answer of a run, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from srfca.analysis.confidence import Confidence
from srfca.analysis.differences import Differences
from srfca.analysis.evidence import shared_clusters
from srfca.analysis.reference import Reference
from srfca.analysis.structure import Structure
from srfca.clustering.partition import Partition
from srfca.federation.replies import ClientScores
from srfca.federation.requests import Split

Verdict = Literal["clusters", "together", "alone", "none"]
Columns = dict[str, list[Any]]
"""A table: lists of equal length by the name of the column; None where a value does not apply."""


@dataclass(frozen=True)
class DecisionNotes:
    """What a run decided on held-out data.

    Args:
        chosen: Name of the answer.
        variant: How its models were changed after training, if they were: fine-tuning.
        sentence: What was considered, what won, by how much.
        warning: Which answer may do as well, None if none does.
        standard_errors: How far the best other answer is behind, None if there is none.
        considered: Name, variant, accuracy and loss of each answer that was considered.
    """

    chosen: str
    variant: str
    sentence: str
    warning: str | None
    standard_errors: float | None
    considered: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Analysis:
    """What a run found, how sure it is, what it gains, and what differs (``srfca.analysis``).

    Args:
        method: Name of the method.
        seed: Seed of the run.
        client_ids: The m clients.
        labels: ``[m]`` their clusters, -1 for none.
        clustered: Whether the method finds clusters.
        split: The samples that ``scores`` are on.
        scores: ``[m]`` of the model that the result gives each client.
        confidence: How sure clusters are; None unless there are two of them, and held-out data.
        structure: Silhouettes and outliers; None without clusters of two clients.
        reference: Scores without clusters, None if unknown.
        decision: What the run decided on held-out data, None if nothing.
        differences: What differs between the clusters, None if it was not asked for.

    >>> from srfca import SRFCA, LocalTraining, Simulation, data, models
    >>> from srfca.analysis import analyze
    >>> fed = Simulation(data.rotated_digits(num_clients=20, rotations=2), models.mlp(64, 32, 10))
    >>> local = LocalTraining(steps=60, batch_size=10, lr=0.5)
    >>> answer = analyze(SRFCA(local=local).fit(fed), fed)
    >>> answer.verdict, answer.clusters()["clients"], min(answer.table()["confidence"]) > 0.9
    ('clusters', [10, 10], True)
    """

    method: str
    seed: int
    client_ids: tuple[str, ...]
    labels: NDArray[np.int64]
    clustered: bool
    split: Split
    scores: ClientScores
    confidence: Confidence | None = None
    structure: Structure | None = None
    reference: Reference | None = None
    decision: DecisionNotes | None = None
    differences: Differences | None = None

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @property
    def verdict(self) -> Verdict:
        """What was found: clusters, one cluster of all, every client alone, or no clustering."""
        if not self.clustered:
            return "none"
        count = len(shared_clusters(self.labels))
        return "clusters" if count > 1 else "together" if count else "alone"

    def __repr__(self) -> str:
        count = len(self.client_ids)
        return f"Analysis({self.method}, seed {self.seed}, {count} clients: {self.verdict})"

    def with_reference(self, reference: Reference | None) -> Analysis:
        """Return the same analysis, compared with other runs.

        Args:
            reference: Scores of the answer, of one model for all, and of training alone; None for
                none.
        """
        return replace(self, reference=reference)

    def table(self) -> Columns:
        """Return a line for each client, as columns; ``pandas.DataFrame`` takes them."""
        from srfca.analysis.tables import client_columns

        return client_columns(self)

    def clusters(self) -> Columns:
        """Return a line for each cluster, and one for all clients alone, as columns."""
        from srfca.analysis.tables import cluster_columns

        return cluster_columns(self)

    def sentence(self) -> str:
        """Return the answer in a few sentences."""
        from srfca.analysis.sentences import answer

        return answer(self)

    def to_csv(self, path: str | Path) -> Path:
        """Write ``table()`` as CSV, atomically.

        Args:
            path: The file.

        Returns:
            The path.

        Raises:
            InputError: If the file cannot be written.
        """
        from srfca.analysis.tables import write_csv

        return write_csv(self.table(), Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write ``analysis.json`` into a folder, atomically, and return its path.

        Args:
            folder: It is made if it does not exist.

        Returns:
            The path of the file.

        Raises:
            InputError: If the folder cannot be written to.
        """
        from srfca.analysis.files import write_analysis

        return write_analysis(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Analysis:
        """Read what ``save`` wrote.

        Args:
            folder: Where ``analysis.json`` is.

        Returns:
            An equal analysis.

        Raises:
            InputError: If the folder holds no analysis, or a damaged one.
        """
        from srfca.analysis.files import read_analysis

        return read_analysis(Path(folder))
