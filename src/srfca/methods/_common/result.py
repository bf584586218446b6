"""What a method returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.data.schema import Schema
from srfca.errors import require
from srfca.federation.accountant import PrivacySpent
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware.counting import Budget
from srfca.federation.mixture import Mixture
from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores, as_clients
from srfca.federation.requests import Personal, Scores, Split
from srfca.methods._common.assignment import Assignment, assign_by_inputs, assign_by_losses
from srfca.methods._common.input_statistics import InputStatistics, input_statistics
from srfca.methods._common.loss_limits import LossLimits
from srfca.methods._common.monitor import Monitor
from srfca.methods._common.result_files import read_result, write_result
from srfca.methods._common.result_models import ResultModels
from srfca.methods._common.stage import Stage
from srfca.models.architecture import Architecture
from srfca.models.factory import Model

if TYPE_CHECKING:
    from srfca.aggregation.rules import Aggregation
    from srfca.methods.adaptation import DriftAlarm
    from srfca.report.charts.names import ChartName


def models_of_clients(models: Tensor, labels: NDArray[np.int64]) -> Tensor:
    """Return the model of each client, NaN for one in no cluster: ``[m, P]`` from ``[k, P]``."""
    rows = models[torch.tensor(labels, device=models.device)]
    if (labels < 0).any():
        rows[torch.tensor(labels < 0, device=models.device)] = torch.nan
    return rows


@dataclass(frozen=True, eq=False)
class Result(ResultModels):
    """A model for every client: that of its cluster, an individual one, or a mixture.

    Args:
        method: Name of the method.
        parameters: Its parameters.
        seed: Seed of the run.
        client_ids: The clients.
        labels: ``[m]`` the cluster of each client, -1 for none.
        models: ``[k, P]`` the clusters' models.
        individual_models: ``[m, P]``, if the method gives each client a model.
        mixture_weights: ``[m, k]``, if clients predict with mixtures.
        fine_tuned_models: ``[m, P]``, if clients fine-tuned (``fine_tune_steps``).
        fine_tuned_steps: ``[m]`` steps of that; a client of 0 steps keeps what it had.
        personal: Coordinates that each client kept to itself, if any. Without individual models
            the server does not know them: ``scores`` asks the clients to fill them in.
        history: The stages of the run.
        clustered: Whether the method finds clusters.
        loss_limits: What the losses of each cluster's clients are like on held-out data, to
            reject newcomers that belong to none.
        input_statistics: What their inputs look like, to place newcomers without labels
            (``with_input_statistics``).
        architecture: What a model needs to become a module, for ``module`` and ``predict``.
        schema: How the clients' tables became tensors, if the federation knows.
        privacy: What the run has revealed of a client at most, if clients are private.

    Examples:
        >>> import tempfile
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import OneShotKMeans
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> result = OneShotKMeans(k=2, local=local).fit(federation)
        >>> result.labels_.tolist(), result.models.shape, result.scores(federation).loss.shape
        ([0, 1, 0, 1, 0, 1, 0, 1], torch.Size([2, 6]), torch.Size([8]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     loaded = Result.load(result.save(folder))
        >>> loaded.partition == result.partition
        True
    """

    method: str
    parameters: Mapping[str, Any]
    seed: int
    client_ids: tuple[str, ...]
    labels: NDArray[np.int64]
    models: Tensor
    individual_models: Tensor | None = None
    mixture_weights: Tensor | None = None
    fine_tuned_models: Tensor | None = None
    fine_tuned_steps: Tensor | None = None
    personal: Personal | None = None
    history: tuple[Stage, ...] = ()
    clustered: bool = True
    loss_limits: LossLimits | None = None
    input_statistics: InputStatistics | None = None
    architecture: Architecture | None = None
    schema: Schema | None = None
    privacy: PrivacySpent | None = None

    @property
    def labels_(self) -> NDArray[np.int64]:
        """``[m]`` the cluster of each client, under scikit-learn's name."""
        return self.labels

    @property
    def partition(self) -> Partition:
        """The labels as a partition."""
        return Partition(self.labels)

    @property
    def client_models(self) -> Tensor:
        """``[m, P]`` the model of each client before fine-tuning; of a mixture, the largest part.

        NaN for a client that is in no cluster. Personal coordinates that the server does not know
        are those of the initial model.
        """
        if self.individual_models is not None:
            return self.individual_models
        return models_of_clients(self.models, self.labels)

    @property
    def final_models(self) -> Tensor:
        """``[m, P]`` the final model of each client: fine-tuned, if there was fine-tuning."""
        return self.client_models if self.fine_tuned_models is None else self.fine_tuned_models

    @property
    def predictors(self) -> Tensor | Mixture:
        """What clients predict with before fine-tuning: their models, or their mixtures."""
        if self.mixture_weights is None:
            return self.client_models
        return Mixture(self.models, self.mixture_weights)

    @property
    def budget(self) -> Budget:
        """What the run cost the clients, fine-tuning included."""
        return sum((stage.budget for stage in self.history), Budget())

    def scores(
        self, federation: Federation, split: Split = "test", fine_tuned: bool = False
    ) -> ClientScores:
        """Score each client's model on the client's data.

        Args:
            federation: The clients of this result.
            split: Which of their data.
            fine_tuned: Score the models after fine-tuning.

        Returns:
            Loss and accuracy ``[m]``; NaN for clients that did not reply, or have no model.

        Raises:
            InputError: If the clients are others, do not hold the split, or have not fine-tuned.
        """
        require(
            not fine_tuned or self.fine_tuned_models is not None,
            "there are no fine-tuned models: set fine_tune_steps",
        )
        if not fine_tuned or self.fine_tuned_models is None:
            return self._scores(federation, self.predictors, split)
        after = self._scores(federation, self.fine_tuned_models, split)
        if self.mixture_weights is None or self.fine_tuned_steps is None:
            return after
        before = self._scores(federation, self.predictors, split)
        return after.where(self.fine_tuned_steps > 0, before)

    def _scores(
        self, federation: Federation, predictors: Tensor | Mixture, split: Split
    ) -> ClientScores:
        everyone = np.arange(len(federation.client_ids))
        personal = self.personal if self.individual_models is None else None
        return federation.ask(Scores(everyone, predictors, split, personal)).fill(torch.nan)

    def __repr__(self) -> str:
        return (
            f"Result({self.method}, {len(self.client_ids)} clients, {len(self.models)} models, "
            f"seed {self.seed})"
        )

    def summary(self) -> str:
        """Return a few lines to read: the clusters, and how each stage left them."""
        lines = [f"{self.method}, seed {self.seed}: {len(self.client_ids)} clients"]
        if self.clustered:
            lines[0] += f": {self.partition.describe()}"
        width = max((len(stage.name) for stage in self.history), default=0)
        for stage in self.history:
            partition = stage.partition
            unclustered = len(partition.unclustered)
            text = f"  {stage.name:<{width}}  {partition.num_clusters:>4} clusters"
            text += f", {unclustered} unclustered" if unclustered else ""
            text += f", validation loss {stage.loss:.4g}" if stage.loss is not None else ""
            text += f", accuracy {stage.accuracy:.1%}" if stage.accuracy is not None else ""
            lines.append(f"{text}, {stage.seconds:.1f} s")
        for name, why in self.screened.items():
            lines.append(f"Screened client {name!r}: {why}.")
        if self.decision is not None:
            lines.append(self.decision)
        if self.privacy is not None:
            lines.append(str(self.privacy))
        return "\n".join(lines)

    @property
    def screened(self) -> Mapping[str, str]:
        """Why a client's local model or losses were not used, by client (docs/robustness.md)."""
        return dict(self.history[0].notes.get("screened", {})) if self.history else {}

    @property
    def decision(self) -> str | None:
        """What was decided on held-out data, by how much and how surely; None if nothing was."""
        notes = (stage.notes for stage in reversed(self.history))
        return next((str(note["decision"]) for note in notes if "decision" in note), None)

    @property
    def warning(self) -> str | None:
        """Why the clusters are doubtful; None if they are not, or if nothing was decided."""
        notes = (stage.notes for stage in reversed(self.history))
        return next((note["warning"] for note in notes if "decision" in note), None)

    def assign(
        self, newcomers: Federation, clients: Iterable[int] | None = None, *, labels: bool = True
    ) -> Assignment:
        """Assign clients of any federation with the same model to clusters.

        With labels: each client to the cluster whose model has the least loss on its data. It gets
        the label -1 if its losses exceed those of the cluster's clients by more than their number
        of samples, and the differences between clients, explain.

        Without labels: by what the clients' inputs look like to the clusters' models. It needs
        ``with_input_statistics``. Where clusters differ by their labels alone, their inputs look
        alike, and the label is -1. docs/newcomers.md says how well both work.

        Args:
            newcomers: A federation. Without labels its targets are not read, so that they may be
                anything, such as zeros.
            clients: Which of its clients; None is all.
            labels: Whether the newcomers have labels.

        Returns:
            The cluster of each newcomer, and how sure that is.

        Raises:
            InputError: If the method finds no clusters, the models have another length, or
                statistics of inputs are missing.

        >>> from srfca import SRFCA, LocalTraining, Simulation, data, models
        >>> local = LocalTraining(steps=100, batch_size=10, lr=0.5)
        >>> network, digits = models.mlp(64, 32, 10), data.rotated_digits
        >>> fed = Simulation(digits(num_clients=16), network, validation=0.3)
        >>> result = SRFCA(local=local).fit(fed)
        >>> new = Simulation(digits(num_clients=4, seed=1), network)
        >>> result.assign(new).labels.tolist()
        [0, 1, 2, 3]
        >>> result.with_input_statistics(fed).assign(new, labels=False).labels.tolist()
        [0, 1, 2, 3]
        """
        require(self.clustered, f"{self.method} has no clusters to assign clients to")
        models = self.models[: self.partition.num_clusters]
        length = len(newcomers.initial_model(self.seed))
        require(
            models.shape[1] == length,
            f"the result has models of length {models.shape[1]}, but the clients' have {length}",
        )
        everyone = range(len(newcomers.client_ids))
        chosen = as_clients(everyone if clients is None else clients)
        if labels:
            return assign_by_losses(newcomers, chosen, models, self.loss_limits)
        return assign_by_inputs(newcomers, chosen, models, self.input_statistics)

    def with_input_statistics(self, federation: Federation) -> Result:
        """Return the result with what is needed to place newcomers without labels.

        Every client of a cluster reports how often each cluster's model predicts each class on its
        held-out inputs, and mean and covariance of the outputs: no input and no label.

        Args:
            federation: The clients of this result.

        Returns:
            The same result, with ``input_statistics``.

        Raises:
            InputError: If the method finds no clusters, the clients are others, none replies, or
                the model has more than 256 outputs.
        """
        require(self.clustered, f"{self.method} has no clusters to describe")
        require(
            tuple(federation.client_ids) == self.client_ids,
            f"the federation has {len(federation.client_ids)} clients that are not the "
            f"{len(self.client_ids)} of the result: pass the federation that it was found in",
        )
        statistics = input_statistics(federation, self.models, self.partition)
        return replace(self, input_statistics=statistics)

    def adapt(
        self,
        federation: Federation,
        local: LocalTraining,
        rounds: int,
        callbacks: Monitor | Sequence[Monitor] | None = None,
        aggregation: Aggregation | None = None,
    ) -> Result:
        """Adapt the clusters to the data that clients have now (``srfca.methods.adaptation``).

        Args:
            federation: The same clients, whose data may have changed.
            local: How clients train.
            rounds: Rounds that every cluster trains on for.
            callbacks: Follow the stages and rounds, as in ``fit``.
            aggregation: How the rows of a cluster become one row; None is as in the run that found
                the clusters, so with SR-FCA a trimmed mean.

        Returns:
            A result with the adapted clusters.

        Raises:
            InputError: If the method finds no clusters, or the clients are others.
        """
        from srfca.methods.adaptation import adapt

        return adapt(self, federation, local, rounds, aggregation=aggregation, callbacks=callbacks)

    def drift_alarms(self, federation: Federation) -> tuple[DriftAlarm, ...]:
        """Return the clients that have left the reach of their cluster; nothing is trained.

        Args:
            federation: The same clients, whose data may have changed.

        Returns:
            An alarm for each such client.

        Raises:
            InputError: If the method finds no clusters, or the clients are others, or private.
        """
        from srfca.methods.adaptation import drift_alarms

        return drift_alarms(self, federation)

    @property
    def cluster_ids(self) -> tuple[int, ...]:
        """``[k]`` the id of each model's cluster, which stays the same when clusters are adapted.

        ``labels`` are positions in ``models``, and may change. Ids are never used again.
        """
        from srfca.methods.adaptation.identity import cluster_ids

        return cluster_ids(self)

    def table(self, federation: Federation) -> dict[str, list[Any]]:
        """Return a line for each client, as columns: ``pandas.DataFrame`` takes them.

        The columns are those of ``clusters.csv`` (docs/answer.md): cluster, confidence, scores with
        its model, with one model for all, and alone, as far as the run knows them.

        Args:
            federation: The clients of this result; they are asked.

        Returns:
            Lists of m values by the name of the column; None where a value does not apply.

        Raises:
            InputError: If the clients are others.
        """
        from srfca.report.notebook import result_table

        return result_table(self, federation)

    def report(
        self, path: str | Path, federation: Federation | None = None, sample_inputs: int = 0
    ) -> Path:
        """Write a page about what was found: one HTML file that opens without a network.

        It needs the extra ``srfca[report]`` (docs/report.md).

        Args:
            path: The file, whose name ends with .html.
            federation: The clients of this result; they are asked for scores on test data, gains,
                confidence and what differs. Without it, the page has what the history knows.
            sample_inputs: Training samples of each cluster to show, if inputs are images and
                ``federation`` is a ``Simulation``.

        Returns:
            The file.

        Raises:
            InputError: If the file cannot be written, or the clients are others.
        """
        from srfca.report.notebook import view_of
        from srfca.report.page.report import write_report

        return write_report([view_of(self, federation, sample_inputs)], Path(path))

    def plot(self, name: ChartName | None = None, federation: Federation | None = None) -> Any:
        """Return a chart of the result, as a chart of Altair, which notebooks draw.

        It needs the extra ``srfca[report]``.

        Args:
            name: Name of the chart (docs/report.md): ``answers``, ``scores``, ``gains``,
                ``gains_alone``, ``confidence``, ``map``, ``distances``, ``histogram``,
                ``profiles``, ``recluster``, ``merge``, ``classes``, ``layers``, ``moves``,
                ``accuracy``, ``loss`` or ``cost``. None is the map of the clients, or another chart
                if this run has none.
            federation: The clients of this result, for charts that have to ask them.

        Returns:
            An ``altair.Chart``, or layers of charts.

        Raises:
            InputError: If there is no such chart, or nothing to draw in it.
        """
        from srfca.report.charts.names import figure
        from srfca.report.notebook import view_of

        return figure(view_of(self, federation), name).sized()

    def _repr_html_(self) -> str:
        from srfca.report.notebook import result_html

        return result_html(self)

    def save(self, folder: str | Path) -> Path:
        """Write ``result.json`` and ``tensors.safetensors``, each atomically.

        Args:
            folder: It is made if it does not exist.

        Returns:
            The folder.

        Raises:
            InputError: If the folder cannot be written to.
        """
        return write_result(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, model: Model | None = None) -> Result:
        """Read what ``save`` wrote. Nothing is unpickled.

        ``module`` makes one of our networks by its name, and imports a class or function of
        yours. Pass ``model`` where that is not possible, or where the import is not to be
        trusted.

        Args:
            folder: The folder.
            model: What makes the module, as for ``Simulation``.

        Returns:
            An equal result.

        Raises:
            InputError: If the folder holds no result, or a damaged one; or if the tensors of the
                model have other names or shapes than the result's.
        """
        result = cls(**read_result(Path(folder)))
        if model is None:
            return result
        if result.architecture is not None:
            return replace(result, architecture=result.architecture.with_model(model))
        architecture, length = Architecture.of(model), result.models.shape[1]
        require(
            architecture.layout.length == length,
            f"the result has models of {length} trained values, but model makes a module of "
            f"{architecture.layout.length}",
        )
        return replace(result, architecture=architecture)
