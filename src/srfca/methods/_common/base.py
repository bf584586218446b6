"""What all methods share: parameters, ``fit``, a ``Result``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from srfca._version import __version__
from srfca.clustering.partition import Partition
from srfca.errors import require
from srfca.federation.base import Federation, Mixture, Work
from srfca.federation.journal import Journal
from srfca.methods.personalise import personalise
from srfca.methods.result import Result, in_reach, models_of_clients, reach
from srfca.methods.run import Monitor, Run


@dataclass(frozen=True)
class Answer:
    """What a method found: client i has ``models[labels[i]]``, one of its own, or a mixture."""

    labels: np.ndarray
    """``[m]``"""
    models: Tensor
    """``[k, P]``"""
    own: Tensor | None = None
    """``[m, P]`` the clients' own models, where a method gives each client one."""
    mixture: Tensor | None = None
    """``[m, k]`` how much of each model is in a client's mixture, where clients have mixtures."""

    @classmethod
    def of(cls, labels: np.ndarray, models: Tensor, own: Tensor | None = None) -> Answer:
        """The same with clusters in the order of their first client, and without empty ones."""
        partition = Partition(labels)
        return cls(partition.labels, models[_used(labels, partition)], own)

    @classmethod
    def mixed(cls, mixture: Mixture) -> Answer:
        """Every client with its mixture, labelled by the model that it has most of.

        Models are in the order of the first client that has most of them; those that nobody has
        most of come last.
        """
        labels = mixture.weights.argmax(1).cpu().numpy()
        partition = Partition(labels)
        order = _used(labels, partition)
        order += sorted(set(range(len(mixture.models))) - set(order))
        return cls(partition.labels, mixture.models[order], mixture=mixture.weights[:, order])

    @property
    def client_models(self) -> Tensor:
        """``[m, P]`` the model of each client: of a mixture, the one that it has most of."""
        if self.own is not None:
            return self.own
        return models_of_clients(self.models, self.labels)

    @property
    def predictors(self) -> Tensor | Mixture:
        """What clients predict with: their models, or their mixtures."""
        return self.client_models if self.mixture is None else Mixture(self.models, self.mixture)


def _used(labels: np.ndarray, partition: Partition) -> list[int]:
    """The labels in the order of their first client."""
    return [int(labels[members[0]]) for members in partition]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A method: parameters, and ``solve``, which says what the server does.

    Args:
        personal_steps: If not 0, each client fine-tunes its model at the end, by at most so many
            steps; its validation data decide how many, or none.
        personal_lr: The rate of that; None is the one of ``work``.
        work: How clients train.
    """

    name: ClassVar[str]
    """For people to read."""
    clustered: ClassVar[bool] = True
    """Whether the labels are an answer, rather than a premise."""

    personal_steps: int = 0
    personal_lr: float | None = None
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        require(
            self.personal_steps >= 0,
            f"personal_steps must not be negative, but is {self.personal_steps}",
        )
        require(
            self.personal_lr is None or self.personal_lr > 0,
            f"personal_lr must be positive, not {self.personal_lr}",
        )

    @property
    def trainings(self) -> float:
        """How many times the steps of ``work`` a client trains for, over the whole method.

        It is a mean, where not all take part in every round. Not what a few clients do besides, to
        make a start, say: the budget counts that too.
        """
        return float(getattr(self, "participation", 1.0))

    @property
    def personal(self) -> Work:
        """How clients train models of their own."""
        return self.work if self.personal_lr is None else replace(self.work, lr=self.personal_lr)

    @abstractmethod
    def solve(self, run: Run) -> Answer:
        """Find a model for every client."""

    def fit(
        self,
        federation: Federation,
        seed: int = 0,
        monitor: Monitor | None = None,
        journal: str | Path | None = None,
    ) -> Result:
        """Find a model for every client of a federation; the seed decides every draw.

        With a ``journal``, a folder, a run that was killed goes on where it was when it is started
        again, and ends with the same models.
        """
        require(
            not self.personal_steps or "validation" in federation.splits,
            "personal_steps needs held-out data, but this federation has no validation split",
        )
        run = Run(federation, seed, monitor, self._journal(journal, federation, seed))
        answer = self.solve(run)
        limits = None
        if self.clustered:
            limits = reach(run.federation.federation, answer.models, Partition(answer.labels))
            answer = place_silent(run, answer, limits)
        tuned = tuned_steps = None
        if self.personal_steps:
            tuned, tuned_steps = personalise(
                run, answer.labels, answer.client_models, self.personal, self.personal_steps,
                None if answer.mixture is None else Mixture(answer.models, answer.mixture),
            )  # fmt: skip
        return Result(
            method=self.name,
            parameters=self.parameters(),
            seed=seed,
            clients=tuple(federation.clients),
            labels=answer.labels,
            models=answer.models,
            own=answer.own,
            mixture=answer.mixture,
            tuned=tuned,
            tuned_steps=tuned_steps,
            history=tuple(run.history),
            clustered=self.clustered,
            reach=limits,
        )

    def _journal(
        self, folder: str | Path | None, federation: Federation, seed: int
    ) -> Journal | None:
        if folder is None:
            return None
        about = {"srfca": __version__, "method": self.name, "parameters": self.parameters()}
        of_run = {"seed": seed, "clients": list(federation.clients)}
        return Journal(folder, {**about, **of_run, "data": federation.fingerprint()})

    def parameters(self) -> dict[str, Any]:
        """All parameters, as they are saved with a result."""
        plain = (str, int, float, tuple, list, type(None))
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["work"] = asdict(self.work)
        return {
            name: value if name == "work" or isinstance(value, plain) else str(value)
            for name, value in values.items()
        }


def require_share(participation: float) -> None:
    """Refuse a participation that is no fraction of the clients."""
    require(0 < participation <= 1, f"participation must be in (0, 1], not {participation}")


def place_silent(run: Run, answer: Answer, limits: Tensor | None) -> Answer:
    """Who did not answer when clusters were made is placed as a newcomer would be."""
    lost = np.flatnonzero(answer.labels < 0)
    if len(lost) == 0 or not run.federation.wire.absences:
        return answer
    labels = answer.labels.copy()
    losses = run.federation.losses(answer.models, lost.tolist()).cpu()
    labels[lost] = in_reach(losses, limits)
    own = answer.own
    if own is not None:
        found, own = lost[labels[lost] >= 0], own.clone()
        own[found] = answer.models[labels[found]]
    placed = replace(answer, labels=labels, own=own)
    run.record("PLACE", Partition(labels), placed.client_models)
    return placed
