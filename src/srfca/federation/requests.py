"""Requests: all that a method can ask of the clients.

A request is a frozen dataclass, typed by its reply: ``ask(Train(...))`` replies with rows. ``c`` is
the number of entries of a request, P the length of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.rules import Aggregation, Mean
from srfca.errors import require
from srfca.federation.algorithms import Descent, LocalAlgorithm
from srfca.federation.coordinates import Coordinates
from srfca.federation.local_training import LocalTraining
from srfca.federation.mixture import Mixture
from srfca.federation.replies import Clients, ClientScores, T, as_clients
from srfca.parameters import check_parameters, constrained
from srfca.random import Key

Split = Literal["train", "validation", "test"]

MIN_CLASS_SAMPLES = 4
"""Classes of fewer samples do not count in ``BalancedLosses`` and ``DataMoments``."""


@dataclass(frozen=True, eq=False)
class Request(Generic[T]):
    """One question to some clients, given by their positions ``[c]``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", as_clients(self.clients))

    clients: Clients

    @property
    def name(self) -> str:
        """The kind of request, in lower case."""
        return type(self).__name__.lower()

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries."""
        return replace(self, clients=self.clients[index])


@dataclass(frozen=True)
class Subsample:
    """At most ``size`` samples of each client, drawn by the seed: always the same ones."""

    size: int = constrained(at_least=1)
    seed: int = 0

    def __post_init__(self) -> None:
        check_parameters(self, "subsample ")


@dataclass(frozen=True)
class Personal:
    """Coordinates that clients keep to themselves from the training with this seed and purpose."""

    coordinates: Coordinates
    seed: int
    purpose: str


@dataclass(frozen=True, eq=False)
class Train(Request[Tensor]):
    """Train each client from its start, through the steps of round ``key.round``.

    The reply is ``[c, P]``, or ``[c, n]`` with the n coordinates that are sent.

    Args:
        clients: ``[c]``; one client may train several models.
        starts: ``[c, P]`` the models to start from.
        local: How the clients train.
        key: The training (seed and purpose) and its round.
        algorithm: What the clients do in their steps.
        personal: Coordinates that stay with the clients. A client starts there from what it had
            after the round before, and from the initial model in round 0; it sends the others.
        private: The clients need not send the models for the method to work: the budget does not
            count them, and the reply serves the record alone.
    """

    starts: Tensor
    local: LocalTraining
    key: Key
    algorithm: LocalAlgorithm = field(default_factory=Descent)
    personal: Coordinates | None = None
    private: bool = False

    @property
    def steps(self) -> int:
        """Local steps of each entry."""
        return len(self.local.span(self.key.round))

    @property
    def sent(self) -> Coordinates | None:
        """The coordinates that travel; None is all of them."""
        return None if self.personal is None else self.personal.complement(self.starts.shape[1])

    @property
    def stateful(self) -> bool:
        """Whether clients keep something from round to round of this training."""
        return self.local.keep_state or self.personal is not None

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries."""
        return replace(
            self,
            clients=self.clients[index],
            starts=self.starts[_at(index, self.starts)],
            algorithm=self.algorithm.select(index),
        )


@dataclass(frozen=True, eq=False)
class Gradients(Request[Tensor]):
    """Compute each client's gradient at its model, over all of its training samples.

    The reply is ``[c, P]``.

    Args:
        clients: ``[c]``
        models: ``[c, P]``
    """

    models: Tensor

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries."""
        return replace(
            self, clients=self.clients[index], models=self.models[_at(index, self.models)]
        )


@dataclass(frozen=True, eq=False)
class Losses(Request[Tensor]):
    """Compute the mean loss of every model on every client's samples.

    The reply is ``[c, k]``.

    Args:
        clients: ``[c]``
        models: ``[k, P]``
        split: Which samples.
        subsample: Take only some of them.
    """

    models: Tensor
    split: Split = "train"
    subsample: Subsample | None = None


@dataclass(frozen=True, eq=False)
class ClassCounts(Request[Tensor]):
    """Count each client's training samples of each class.

    The reply is ``[c, C]`` of integers, with C the number of the network's outputs. It needs
    classification: cross entropy, and one label for each sample. For other clients it is an
    ``InputError``, also if no client is asked (``srfca.federation.num_classes``).

    Args:
        clients: ``[c]``
        presence: Clients do not reveal their counts: a class of at least ``MIN_CLASS_SAMPLES``
            samples counts as that many, any other as none.
    """

    presence: bool = False


@dataclass(frozen=True, eq=False)
class BalancedLosses(Request[Tensor]):
    """Compute losses of models on clients' training samples as if all classes were equally common.

    The cross entropy of a client's samples, with three changes:

    - Only those classes count that the model has a share of and of which the client has at least
      ``MIN_CLASS_SAMPLES`` samples, among those that are used. Other samples and other logits are
      left out.
    - The logarithm of the model's class shares is subtracted from its logits: a model learns how
      common the classes are where it is trained (logit adjustment; Menon et al., ICLR 2021). Only
      the ratios of the shares that are left matter, since a common factor cancels in the softmax.
    - It is the mean over classes of the mean over samples, divided by the logarithm of the number
      of classes: 1 is the loss of guessing, however many classes are shared.

    The reply is ``[c, k]``. It is NaN, which is an answer, where fewer than two classes are left,
    and infinite where the model's outputs are not numbers.

    Args:
        clients: ``[c]``
        models: ``[k, P]``
        class_shares: ``[k, C]`` the shares of the classes in each model's training samples, 0 for
            those to leave out (``srfca.federation.class_shares``).
        subsample: Take only some of the training samples.
    """

    models: Tensor
    class_shares: Tensor
    subsample: Subsample | None = None


@dataclass(frozen=True, eq=False)
class LossMoments(Request[Tensor]):
    """Compute moments of every model's losses over every client's samples.

    The reply is ``[c, k, 3 + 2 g]`` in double precision, to be read by
    ``srfca.federation.moments.ClientLosses.unpack``: the mean loss, how much it differs from sample
    to sample from that of the client's best model, and mean and variance of compressed losses
    (``compress``) by group. The group of a sample is its label, modulo the number of outputs;
    targets that are not classes are in one group. Clients reveal by it how many samples of each
    class they have, and how well the models do on each class.

    Args:
        clients: ``[c]``
        models: ``[k, P]``
        scales: ``[k]`` a typical loss of each model.
        splits: Which samples: those of these splits together.
    """

    models: Tensor
    scales: Tensor
    splits: tuple[Split, ...] = ("train",)


@dataclass(frozen=True, eq=False)
class OutputMoments(Request[Tensor]):
    """Compute moments of every model's outputs on every client's inputs; targets are not read.

    The reply is ``[c, k, d + 2 d d]`` in double precision, for d outputs, to be read by
    ``srfca.federation.moments.unpack_outputs``: the number of samples, the mean and the scatter of
    outputs by group. With cross entropy the outputs are logarithms of probabilities, and the group
    of a sample is the class that the model predicts; otherwise there is one group. Clients reveal
    by it how often each model predicts each class on their inputs, and how confidently.

    Args:
        clients: ``[c]``
        models: ``[k, P]``
        splits: Which inputs: those of these splits together.
    """

    models: Tensor
    splits: tuple[Split, ...] = ("train",)


@dataclass(frozen=True, eq=False)
class BootstrapLosses(Request[Tensor]):
    """Compare the losses of models on every client's samples, and on samples drawn from them again.

    The reply is ``[c, k, 3 + k]`` in double precision, to be read by
    ``srfca.federation.bootstrap.ComparedLosses.unpack``: the mean loss of each model, how often it
    has the least mean loss among the resamples, the number of samples, and the covariance of the
    models' losses over the samples. Clients resample themselves. They do not send the means of
    resamples: whoever knows the draws could compute the losses of single samples from these.

    Args:
        clients: ``[c]``
        models: ``[k, P]``
        splits: Which samples: those of these splits together.
        replicates: How many resamples, each of as many samples as the client has.
        seed: Decides the draws, with the client.
    """

    models: Tensor
    splits: tuple[Split, ...] = ("validation",)
    replicates: int = 100
    seed: int = 0


@dataclass(frozen=True, eq=False)
class DataMoments(Request[Tensor]):
    """Sum up each client's inputs, and targets that are values, by class.

    The reply is ``[c, g, 1 + 2 w]`` in double precision, to be read by
    ``srfca.federation.data_moments.ColumnMoments.unpack``: the number of samples, and sums and sums
    of squares of w columns, for each of g classes. Columns are the numbers of an input, if inputs
    are floating-point, and then those of a target, if targets are. Targets that are not classes are
    in one group. Samples of a class with fewer than ``MIN_CLASS_SAMPLES`` are left out, so that no
    sum is that of a single sample. Clients reveal by it how many samples of each class they have,
    and what these look like on average.

    Args:
        clients: ``[c]``
        splits: Which samples: those of these splits together.
    """

    splits: tuple[Split, ...] = ("train",)


@dataclass(frozen=True, eq=False)
class Shares(Request[Tensor]):
    """Compute the share of each client's training samples that each model accounts for.

    With models ``[k, P]``: the samples on which a model has the smallest loss, the first on a tie.
    With a mixture: the mean of the model's posterior over the samples. The reply is ``[c, k]``. By
    class it is ``[c, k, g]``: the share of the samples that are of a class and that the model
    accounts for. Clients then reveal how many samples of each class they have. The class of a
    sample is its label, modulo the number of outputs; targets that are not classes are one class.

    Args:
        clients: ``[c]``
        models: ``[k, P]``, or the clients' mixtures.
        by_class: Tell the shares of each class.
    """

    models: Tensor | Mixture
    by_class: bool = False

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries."""
        models = self.models.select(index) if isinstance(self.models, Mixture) else self.models
        return replace(self, clients=self.clients[index], models=models)


@dataclass(frozen=True, eq=False)
class Scores(Request[ClientScores]):
    """Compute loss and accuracy of each client's model, or mixture, on the client's data.

    Args:
        clients: ``[c]``
        models: ``[c, P]``, or the clients' mixtures.
        split: Which samples.
        personal: Coordinates that each client fills in with its own.
    """

    models: Tensor | Mixture
    split: Split = "test"
    personal: Personal | None = None

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries."""
        models = (
            self.models.select(index)
            if isinstance(self.models, Mixture)
            else self.models[_at(index, self.models)]
        )
        return replace(self, clients=self.clients[index], models=models)


@dataclass(frozen=True, eq=False)
class Subspaces(Request[Tensor]):
    """Compute the leading left singular vectors of each client's training inputs.

    They are those of the matrix ``[features, samples]``. The reply is ``[c, features, rank]``; for
    classes ``[c, features, num_classes * rank]``, class after class, with zeros for what a class of
    fewer samples lacks.

    Args:
        clients: ``[c]``
        rank: How many vectors.
        num_classes: If not 0, vectors of the inputs of each of this many classes.
    """

    rank: int
    num_classes: int = 0

    @property
    def num_vectors(self) -> int:
        """How many vectors a client sends."""
        return self.rank * max(1, self.num_classes)


@dataclass(frozen=True, eq=False)
class Collect(Request[Tensor]):
    """Collect what clients keep to themselves, for the record of a simulation.

    The reply is ``[c, n]``. A real client does not reply to it.

    Args:
        clients: ``[c]``
        personal: What to collect.
    """

    personal: Personal


@dataclass(frozen=True, eq=False)
class Round(Request[Tensor]):
    """One round: clients train from the model of their cluster, and their rows are aggregated.

    The reply is ``[k, P]``: one model for each cluster; a cluster without replies keeps its model.
    By default it is ``Train`` followed by the aggregation (``srfca.federation.rounds``). A
    federation with ``answers_rounds`` may do better: reduce where the clients are, or aggregate
    securely.

    Args:
        clients: ``[c]`` the participants.
        models: ``[k, P]`` the clusters' models.
        labels: ``[c]`` the cluster of each participant.
        local: How the clients train.
        key: The training (seed and purpose) and its round.
        aggregation: How a cluster's rows become one row.
        server_lr: If given, clients send gradients instead of trained models, and the server takes
            a step at this learning rate, times the schedule of ``local``.
        shared: Coordinates that are aggregated over all participants, for all clusters.
        max_change: If given, changes of a cluster's model that are longer than this many times the
            median of the cluster's participants are shortened to that before they are aggregated.
        sizes: ``[c]`` how many training samples each participant counts as; None is what the
            federation says.
    """

    models: Tensor
    labels: NDArray[np.int64]
    local: LocalTraining
    key: Key
    aggregation: Aggregation = field(default_factory=Mean)
    server_lr: float | None = None
    shared: Coordinates | None = None
    max_change: float | None = None
    sizes: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "labels", as_clients(self.labels))
        require(
            len(self.labels) == len(self.clients),
            f"{len(self.clients)} participants need as many labels, not {len(self.labels)}",
        )

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its participants."""
        sizes = None if self.sizes is None else self.sizes[_at(index, self.sizes)]
        return replace(self, clients=self.clients[index], labels=self.labels[index], sizes=sizes)


def _at(index: NDArray[np.int64], rows: Tensor) -> Tensor:
    return torch.as_tensor(index, device=rows.device)
