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
    """One question to some clients, given by their positions ``[c]``.

    A subclass is a frozen dataclass; ``srfca.federation`` has all kinds.

    Args:
        clients: ``[c]`` positions in ``client_ids``; any sequence of integers is made an array.

    Examples:
        >>> request = ClassCounts([2, 0])
        >>> request.name, request.clients, request.select(np.array([1])).clients
        ('classcounts', array([2, 0]), array([0]))
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", as_clients(self.clients))

    clients: Clients

    @property
    def name(self) -> str:
        """The kind of request, in lower case."""
        return type(self).__name__.lower()

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries.

        Args:
            index: ``[n]`` positions of entries.
        """
        return replace(self, clients=self.clients[index])


@dataclass(frozen=True)
class Subsample:
    """At most ``size`` samples of each client, drawn by the seed: always the same ones.

    Args:
        size: How many samples, at most.
        seed: Decides which ones.

    Raises:
        InputError: If the size is less than 1.

    Examples:
        >>> Losses([0, 1], torch.zeros(1, 4), subsample=Subsample(100)).subsample
        Subsample(size=100, seed=0)
    """

    size: int = constrained(at_least=1)
    seed: int = 0

    def __post_init__(self) -> None:
        check_parameters(self, "subsample ")


@dataclass(frozen=True)
class Personal:
    """Coordinates that clients keep to themselves from the training with this seed and purpose.

    Args:
        coordinates: Which ones.
        seed: Seed of the training.
        purpose: Purpose of the training.

    Examples:
        >>> head = Coordinates(((6, 9),))
        >>> Scores([0], torch.zeros(1, 9), personal=Personal(head, 0, "fedrep")).personal.purpose
        'fedrep'
    """

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
        private: The method works without the models at the server, so the budget does not count
            them. A reply has them all the same; on Flower they are sent (docs/flower.md, Limits).

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> starts = fed.initial_model(0).repeat(4, 1)
        >>> fed.ask(Train(range(4), starts, LocalTraining(), Key(0, "demo"))).values.shape
        torch.Size([4, 4])
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
        return self.local.keep_state or self.compressed or self.personal is not None

    @property
    def compressed(self) -> bool:
        """Whether clients compress their updates; those of private models are not compressed."""
        return self.local.compress is not None and not self.private

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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(Gradients([0, 3], fed.initial_model(0).repeat(2, 1))).values.shape
        torch.Size([2, 4])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(Losses(range(4), torch.zeros(2, 4), split="test")).values.shape
        torch.Size([4, 2])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> fed.ask(ClassCounts([0])).values.sum() == fed.sizes[0]
        tensor(True)
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> guess, shares = torch.zeros(1, 650), torch.full((1, 10), 0.1)
        >>> fed.ask(BalancedLosses([0], guess, shares)).values.round(decimals=3)
        tensor([[1.]])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> fed.ask(LossMoments(range(4), torch.zeros(2, 650), torch.ones(2))).values.shape
        torch.Size([4, 2, 23])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(OutputMoments(range(4), torch.zeros(2, 4))).values.shape
        torch.Size([4, 2, 3])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(BootstrapLosses(range(4), torch.zeros(2, 4), replicates=10)).values.shape
        torch.Size([4, 2, 5])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(DataMoments(range(4))).values.shape  # of three inputs and a target
        torch.Size([4, 1, 9])
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(Shares([0], torch.tensor([[0.0] * 4, [99.0] * 4]))).values
        tensor([[1., 0.]])
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

    The reply is a ``ClientScores``.

    Args:
        clients: ``[c]``
        models: ``[c, P]``, or the clients' mixtures.
        split: Which samples.
        personal: Coordinates that each client fills in with its own.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> scores = fed.ask(Scores(range(4), fed.initial_model(0).repeat(4, 1))).values
        >>> scores.loss.shape, scores.accuracy.shape
        (torch.Size([4]), torch.Size([4]))
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

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> fed.ask(Subspaces(range(4), rank=3)).values.shape
        torch.Size([4, 64, 3])
    """

    rank: int
    num_classes: int = 0

    @property
    def num_vectors(self) -> int:
        """How many vectors a client sends."""
        return self.rank * max(1, self.num_classes)


@dataclass(frozen=True, eq=False)
class SharedSamples(Request[Tensor]):
    """Ask each client for some of its training samples, to show them to other clients.

    The reply is ``[c, size, w]`` in double precision: the numbers of an input, then those of its
    target (``srfca.federation.flat_samples``). A client of fewer samples fills up with infinity.
    The clients reveal these samples: real ones reply only if their app says how many they may share
    (``srfca.flower.client_app``), and private ones never do.

    Args:
        clients: ``[c]``
        size: How many samples of each client, drawn by the seed: always the same ones.
        seed: Decides which.
        targets: Send their targets too.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(SharedSamples(range(4), size=2)).values.shape  # three inputs and a target
        torch.Size([4, 2, 4])
    """

    size: int
    seed: int = 0
    targets: bool = True


@dataclass(frozen=True, eq=False)
class Outputs(Request[Tensor]):
    """Compute the outputs of each client's model on inputs that the clients are sent.

    The reply is ``[c, n, d]``, for d numbers that the network outputs for an input.

    Args:
        clients: ``[c]``
        models: ``[c, P]``
        inputs: ``[n, f]`` as ``SharedSamples`` without targets.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> fed.ask(Outputs(range(4), torch.zeros(4, 4), torch.zeros(5, 3))).values.shape
        torch.Size([4, 5, 1])
    """

    models: Tensor
    inputs: Tensor

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same request for some of its entries."""
        return replace(
            self, clients=self.clients[index], models=self.models[_at(index, self.models)]
        )


@dataclass(frozen=True, eq=False)
class Collect(Request[Tensor]):
    """Collect what clients keep to themselves, for the record of a simulation.

    The reply is ``[c, n]``. A real client does not reply to it.

    Args:
        clients: ``[c]``
        personal: What to collect.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.random import Key
        >>> from srfca.federation import Coordinates
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> starts, bias = fed.initial_model(0).repeat(4, 1), Coordinates(((3, 4),))
        >>> request = Train(range(4), starts, LocalTraining(), Key(0, "demo"), personal=bias)
        >>> fed.ask(request).values.shape
        torch.Size([4, 3])
        >>> personal = Personal(bias, seed=0, purpose="demo")
        >>> fed.ask(Collect(range(4), personal)).values.shape
        torch.Size([4, 1])
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

    Raises:
        InputError: If there are not as many labels as participants.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, federation, models
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> starts, labels = fed.initial_model(0).repeat(2, 1), np.array([0, 1, 0, 1])
        >>> request = Round(range(4), starts, labels, LocalTraining(), Key(0, "demo"))
        >>> federation.ask(fed, request).values.shape
        torch.Size([2, 4])
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
