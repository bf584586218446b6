"""What all methods share: parameters, ``fit``, a ``Result``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca._version import __version__
from srfca.clustering.partition import Partition
from srfca.errors import require, require_seed
from srfca.federation.local_training import LocalTraining
from srfca.federation.middleware.journal import Journal
from srfca.federation.mixture import Mixture
from srfca.federation.moments import ClientLosses
from srfca.federation.protocol import Federation
from srfca.federation.requests import Collect, Personal
from srfca.locks import locked
from srfca.methods._common.arguments import (
    SERVER_SETTINGS,
    check_compression,
    check_number_of_clusters,
    check_server_settings,
    require_federation,
)
from srfca.methods._common.failure import warn_of_failure
from srfca.methods._common.finetune import fine_tune
from srfca.methods._common.loss_limits import LossLimits, loss_limits
from srfca.methods._common.monitor import Monitor, RunStart, as_monitor
from srfca.methods._common.placement import place_by_losses, placement_request
from srfca.methods._common.result import Result, models_of_clients
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import SearchSpace
from srfca.parameters import check_parameters, constrained

Family = Literal["SR-FCA", "baseline", "clustering", "personalization"]
FAMILIES: tuple[Family, ...] = ("SR-FCA", "baseline", "clustering", "personalization")


FINE_TUNE_RATE = 0.25
"""Learning rate of fine-tuning, as a fraction of that of the training before it."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method computes: a cluster's model, an individual model or a mixture for each client.

    Args:
        labels: ``[m]`` the cluster of each client.
        models: ``[k, P]`` the clusters' models.
        individual_models: ``[m, P]``, if each client has a model.
        mixture_weights: ``[m, k]``, if each client predicts with a mixture of the models.
        personal: Coordinates that each client keeps to itself, if any. Without individual models
            they are unknown to the server, and the models have those of the initial model.

    Examples:
        >>> answer = Answer.canonical(np.array([2, 0, 2]), torch.tensor([[0.0], [1.0], [2.0]]))
        >>> answer.labels.tolist(), answer.models.tolist(), answer.client_models.tolist()
        ([0, 1, 0], [[2.0], [0.0]], [[2.0], [0.0], [2.0]])
    """

    labels: NDArray[np.int64]
    models: Tensor
    individual_models: Tensor | None = None
    mixture_weights: Tensor | None = None
    personal: Personal | None = None

    @classmethod
    def canonical(
        cls,
        labels: NDArray[np.int64],
        models: Tensor,
        individual_models: Tensor | None = None,
    ) -> Answer:
        """Return an answer with clusters in the order of their first client, without empty ones.

        Args:
            labels: ``[m]`` positions of models.
            models: ``[k, P]``
            individual_models: ``[m, P]``, if each client has a model.
        """
        partition = Partition(labels)
        return cls(partition.labels, models[_first_labels(labels, partition)], individual_models)

    @classmethod
    def mixed(cls, mixture: Mixture) -> Answer:
        """Return an answer of mixtures; a client's label is its model of largest weight.

        Models are in the order of the first client that has this label; models that are no label
        come last.

        Args:
            mixture: Mixture of all clients.
        """
        labels = mixture.weights.argmax(1).cpu().numpy()
        partition = Partition(labels)
        order = _first_labels(labels, partition)
        order += sorted(set(range(len(mixture.models))) - set(order))
        weights = mixture.weights[:, order]
        return cls(partition.labels, mixture.models[order], mixture_weights=weights)

    @property
    def client_models(self) -> Tensor:
        """``[m, P]`` the model of each client: of a mixture, that of largest weight."""
        if self.individual_models is not None:
            return self.individual_models
        return models_of_clients(self.models, self.labels)

    @property
    def mixture(self) -> Mixture | None:
        """The clients' mixtures, if they predict with mixtures."""
        if self.mixture_weights is None:
            return None
        return Mixture(self.models, self.mixture_weights)

    @property
    def predictors(self) -> Tensor | Mixture:
        """What clients predict with: their models, or their mixtures."""
        return self.mixture or self.client_models


def _first_labels(labels: NDArray[np.int64], partition: Partition) -> list[int]:
    """Return the labels in the order of their first client."""
    return [int(labels[members[0]]) for members in partition]


@dataclass(frozen=True)
class Variant:
    """Settings of a method that have a name, to be a line of a comparison of their own.

    Args:
        name: What tables add to the method's name: ``the paper's rule``.
        settings: As ``--set`` takes them, without the method's key.
    """

    name: str
    settings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method: parameters, and ``solve``, which says what the server does.

    Subclasses are frozen dataclasses. They declare ``key``, ``name`` and ``paper``, and the range
    of each parameter with ``constrained``; parameters whose type is a ``Literal`` are checked too.

    Args:
        fine_tune_steps: If not 0, each client fine-tunes its model at the end by at most this many
            steps; its held-out data decide how many, or none.
        fine_tune_lr: Learning rate of fine-tuning; None is a quarter of that of ``local``: small
            steps keep more of what the clients have learned together (docs/decisions.md).
        curves: If not 0, the clients' models are scored on held-out data after every this many
            rounds, for learning curves (``Stage.curve``). No model changes, but the clients
            evaluate more, and the budget counts that.
        local: How clients train.

    Raises:
        InputError: If the value of a parameter is not allowed.

    Examples:
        >>> from srfca.methods import Run
        >>> from srfca.methods.toolbox import one_cluster
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Untrained(Method):
        ...     key, name, paper = "untrained", "Untrained", "None."
        ...     def solve(self, run: Run) -> Answer:
        ...         return Answer(one_cluster(run).labels, run.initial_model().unsqueeze(0))
        >>> from srfca import Simulation, data, models
        >>> federation = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> Untrained().fit(federation).labels_.tolist()
        [0, 0, 0, 0]
    """

    key: ClassVar[str]
    """Its name on the command line."""
    name: ClassVar[str]
    """Its name in tables."""
    paper: ClassVar[str]
    """The paper that it implements."""
    family: ClassVar[Family] = "clustering"
    clustered: ClassVar[bool] = True
    """Whether it finds clusters."""
    needs_k: ClassVar[bool] = False
    """Whether it must be given the number of clusters."""
    needs_truth: ClassVar[bool] = False
    """Whether it must be given the true clusters."""
    variants: ClassVar[Mapping[str, Variant]] = {}
    """Settings by name: ``KEY:NAME`` is a line of its own in a comparison."""
    server_settings: ClassVar[tuple[str, ...]] = SERVER_SETTINGS
    """Settings of ``local`` for the server that it follows; others are refused."""
    searched: ClassVar[Mapping[str, SearchSpace]] = {}
    """Parameters that ``srfca tune`` searches in addition to the learning rate."""

    fine_tune_steps: int = constrained(0, at_least=0)
    fine_tune_lr: float | None = constrained(None, more_than=0)
    curves: int = constrained(0, at_least=0)
    local: LocalTraining = field(default_factory=LocalTraining)

    def __post_init__(self) -> None:
        check_parameters(self)
        check_server_settings(self.name, self.local, self.server_settings)

    @property
    def trainings(self) -> float:
        """How many whole trainings (``local.steps``) a client does on average.

        What a few clients do to initialize models is not included; the budget counts it.
        """
        return float(getattr(self, "participation", 1.0))

    @property
    def resolved(self) -> Mapping[str, float]:
        """What parameters that are None stand for; ``srfca tune`` starts its search there."""
        return {}

    @property
    def fine_tuning(self) -> LocalTraining:
        """How clients fine-tune."""
        lr = self.local.lr * FINE_TUNE_RATE if self.fine_tune_lr is None else self.fine_tune_lr
        return replace(self.local, lr=lr)

    @abstractmethod
    def solve(self, run: Run) -> Answer:
        """Find a model for every client.

        Args:
            run: The federation, its random keys, and the history.

        Returns:
            The clusters, and a model for every client.
        """

    def fit(
        self,
        federation: Federation,
        seed: int = 0,
        callbacks: Monitor | Sequence[Monitor] | None = None,
        journal: str | Path | None = None,
    ) -> Result:
        """Find a model for every client of a federation.

        Args:
            federation: The clients.
            seed: Decides every draw.
            callbacks: What follows the run (docs/tracking.md): one or several of
                ``srfca.callbacks``, or monitors of your own.
            journal: A folder. A run that was killed resumes when it is started again with the same
                folder, and ends with the same models.

        Returns:
            Labels, models and history.

        Raises:
            InputError: If the parameters do not fit the federation, or training diverges.
        """
        require_federation(federation, type(self).__name__)
        require_seed(seed)
        seed = int(seed)  # of numpy, say
        check_number_of_clusters(getattr(self, "k", None), len(federation.client_ids))
        require(
            not self.fine_tune_steps or "validation" in federation.splits,
            "fine_tune_steps needs held-out data, but this federation has no validation split",
        )
        require(
            not self.curves or "validation" in federation.splits,
            "curves needs held-out data, but this federation has no validation split",
        )
        check_compression(self.local, federation)
        monitor = as_monitor(callbacks)
        start = RunStart(
            self.name, self.parameters(), seed, tuple(federation.client_ids), self.clustered
        )
        with self._journal(journal, federation, seed) as opened:
            run = Run(federation, seed, monitor, opened, self.curves)
            try:
                monitor.run_start(start)
                result = self._result(run, federation)
            except BaseException as error:
                monitor.run_failed(error)
                raise
        monitor.run_end(result)
        return result

    def _result(self, run: Run, federation: Federation) -> Result:
        """Solve, place clients that did not reply, fine-tune, and return the result."""
        answer = self.solve(run)
        limits = None
        if self.clustered:
            limits = loss_limits(run.uncounted, answer.models, Partition(answer.labels))
            answer, limits = place_missing(run, answer, limits)
        fine_tuned = fine_tuned_steps = None
        if self.fine_tune_steps:
            require(
                answer.personal is None or answer.individual_models is not None,
                "fine_tune_steps needs the clients' models at the server, but these clients keep "
                "parts of their models to themselves",
            )
            everyone = answer.individual_models is not None or answer.mixture is not None
            clients = run.everyone if everyone else np.flatnonzero(answer.labels >= 0)
            fine_tuned, fine_tuned_steps = fine_tune(
                run, answer.labels, answer.client_models, clients, self.fine_tuning,
                self.fine_tune_steps, answer.mixture,
            )  # fmt: skip
        if run.history:
            warn_of_failure(self.name, run.history[-1].loss, federation)
        return Result(
            method=self.name,
            parameters=self.parameters(),
            seed=run.seed,
            client_ids=tuple(federation.client_ids),
            labels=answer.labels,
            models=answer.models,
            individual_models=answer.individual_models,
            mixture_weights=answer.mixture_weights,
            fine_tuned_models=fine_tuned,
            fine_tuned_steps=fine_tuned_steps,
            personal=answer.personal,
            history=tuple(run.history),
            clustered=self.clustered,
            loss_limits=limits,
            architecture=federation.architecture,
            schema=getattr(federation, "schema", None),
            privacy=run.privacy_spent,
        )

    def parameters(self) -> dict[str, Any]:
        """Return all parameters, as they are saved with a result."""
        plain = (str, int, float, tuple, list, type(None))
        values = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        values["local"] = asdict(self.local)
        return {
            name: value if name == "local" or isinstance(value, plain) else str(value)
            for name, value in values.items()
        }

    @contextmanager
    def _journal(
        self, folder: str | Path | None, federation: Federation, seed: int
    ) -> Iterator[Journal | None]:
        """Open the journal of a run, for this process alone."""
        if folder is None:
            yield None
            return
        identity = {
            "srfca": __version__,
            "method": self.name,
            "parameters": self.parameters(),
            "seed": seed,
            "client_ids": list(federation.client_ids),
            "data": federation.fingerprint(),
        }
        with locked(Path(folder)) as own_folder:
            yield Journal(own_folder, identity)


def record_personal(
    run: Run, stage: str, model: Tensor, personal: Personal, has_personal: NDArray[np.bool_]
) -> Answer:
    """Record a stage of one model whose personal coordinates are with the clients, and return it.

    A simulation collects them, so that each client's model is in the answer. Real clients do not
    send them: then the answer has no individual models, and clients fill in their coordinates
    when they are scored.

    Args:
        run: The run.
        stage: Its name.
        model: ``[1, P]`` the common model, with the initial model's personal coordinates.
        personal: What the clients keep.
        has_personal: ``[m]`` which clients have personal coordinates; the others use those of the
            model, and do not count in the scores of the stage.
    """
    clients, m = np.flatnonzero(has_personal), run.num_clients
    partition = Partition(np.zeros(m, dtype=np.int64))
    if not len(clients):
        run.record(stage, partition, model.expand(m, -1))
        return Answer(partition.labels, model, model.repeat(m, 1), personal=personal)
    rows = model.expand(len(clients), -1)
    run.record(stage, partition, rows, clients=clients, personal=personal)
    replies = run.uncounted.ask(Collect(clients, personal))
    individual_models = None
    if not replies.missing:
        index = torch.as_tensor(clients, device=model.device)
        complete = personal.coordinates.put(rows, replies.values.to(model))
        individual_models = model.repeat(m, 1).index_copy(0, index, complete)
    return Answer(partition.labels, model, individual_models, personal=personal)


def place_missing(
    run: Run, answer: Answer, limits: LossLimits | None
) -> tuple[Answer, LossLimits | None]:
    """Place clients that did not reply when clusters were formed, as if they were newcomers.

    They are not sent the models of clusters with a single client.

    Args:
        run: The run.
        answer: Labels and models.
        limits: The clusters' limits of the loss, if there are any.

    Returns:
        Answer and limits; clusters are in the order of their first client.
    """
    unplaced = np.flatnonzero(answer.labels < 0)
    shared = np.flatnonzero(np.bincount(answer.labels[answer.labels >= 0], minlength=1) > 1)
    if len(unplaced) == 0 or not run.federation.missing or len(shared) == 0:
        return answer, limits
    labels = answer.labels.copy()
    models = answer.models[torch.as_tensor(shared, device=answer.models.device)]
    reach = None if limits is None else limits.select(shared.tolist())
    replies = run.ask(placement_request(unplaced, models, run.federation.splits, reach))
    placed_in, _ = place_by_losses(ClientLosses.unpack(replies.values.cpu()), reach)
    labels[replies.clients] = np.where(placed_in >= 0, shared[placed_in], -1)
    individual_models = answer.individual_models
    if individual_models is not None:
        placed = unplaced[labels[unplaced] >= 0]
        individual_models = individual_models.clone()
        individual_models[placed] = answer.models[labels[placed]]
    order = _first_labels(labels, Partition(labels))
    answer = Answer.canonical(labels, answer.models, individual_models)
    run.record("PLACE", Partition(labels), answer.client_models)
    return answer, None if limits is None else limits.select(order)
