"""A federation of real clients, each with its data on its own machine, over Flower."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, cast

import numpy as np
import torch
from flwr.serverapp import Grid
from torch import Tensor, nn

from srfca import progress
from srfca.errors import InputError, require
from srfca.federation.middleware.counting import MissingReply
from srfca.federation.middleware.privacy import not_answered
from srfca.federation.mixture import Mixture
from srfca.federation.privacy import NOT_COMPRESSED, Privacy, is_private
from srfca.federation.replies import (
    Clients,
    ClientScores,
    Replies,
    T,
    Traffic,
    as_clients,
)
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Personal,
    Request,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subspaces,
    Train,
)
from srfca.flower.balanced import BalancedEvaluator
from srfca.flower.channel import Channel
from srfca.flower.client_info import ClientInfo
from srfca.flower.delivery import Delivery
from srfca.flower.evaluator import Evaluator
from srfca.flower.messages import (
    bootstrap_messages,
    data_moment_messages,
    gradient_messages,
    output_messages,
    share_messages,
    shared_sample_messages,
    subspace_messages,
    train_messages,
)
from srfca.flower.moments import MomentsEvaluator, MomentsRequest, common
from srfca.flower.names import ClientNames
from srfca.flower.replies import ClientReplies, decompressed, gather
from srfca.models.architecture import Architecture
from srfca.models.rows import Layout, frozen_digest, make_module


class FlowerFederation:
    """A federation whose clients are Flower nodes.

    A request becomes one message to each of its clients. Rows are referred to by their names: a
    client is not sent a row that it has, and is not asked twice for the loss of the same model. A
    client that does not reply, or whose reply is not valid, is in ``Replies.missing``.

    Args:
        grid: Flower's grid, as a ``ServerApp`` receives it.
        model: As for ``Simulation``; the same model as the clients'.
        num_clients: Wait for this many clients, and take those.
        previous: Instead, the clients of an earlier run (``infos``). The federation waits a minute
            for all of them, and then for ``min_clients``.
        min_clients: With fewer clients connected, requests wait; None is half of the clients.
        timeout: Seconds that a client has for a reply.
        max_clients: The most clients that may be in it, newcomers included; None is no limit.
        names: Whose each client's name is; None takes in every name, from any node.
        negative_losses: Whether the clients' loss may be negative. If not, a reply with a negative
            loss is refused.

    Raises:
        InputError: If a value is not allowed.

    Examples:
        In a ``ServerApp`` of your own::

            app = ServerApp()


            @app.main()
            def main(grid, context):
                federation = FlowerFederation(grid, models.mlp(64, 32, 10), num_clients=10)
                result = SRFCA().fit(federation)
                federation.keep(result.models[result.labels])
    """

    answers_rounds = False

    def __init__(
        self,
        grid: Grid,
        model: nn.Module | Callable[[], nn.Module],
        *,
        num_clients: int | None = None,
        previous: Sequence[ClientInfo] = (),
        min_clients: int | None = None,
        timeout: float = 3600.0,
        max_clients: int | None = None,
        names: ClientNames | None = None,
        negative_losses: bool = False,
    ) -> None:
        self.negative_losses = negative_losses
        count = len(previous) if num_clients is None else num_clients
        require(count >= 1, f"num_clients must be at least 1, not {count}")
        require(
            num_clients is None or not previous, "give num_clients or previous clients, not both"
        )
        minimum = -(-count // 2) if min_clients is None else min_clients
        require(
            1 <= minimum <= count,
            f"min_clients must be from 1 to {count} (num_clients), not {minimum}",
        )
        require(timeout > 0, f"timeout must be positive, not {timeout}")
        self._model = model
        module = make_module(model, seed=0)
        self._architecture = Architecture.of(model, module)
        self._layout, self._frozen_digest = Layout.of(module), frozen_digest(module)
        row = self.initial_model(0)
        self._channel = Channel(
            grid, row, self._frozen_digest, timeout, minimum, names, max_clients
        )
        self._evaluator = Evaluator(self._layout.length, self._channel)
        self._balanced = BalancedEvaluator(self._layout.length, self._channel, self._evaluator)
        self._moments = MomentsEvaluator(self._layout.length, self._channel)
        self._delivery = Delivery(self._layout.length, self._channel)
        self._reported = Traffic()
        self._personal_trainings: set[tuple[int, str]] = set()
        if previous:
            self._channel.wait_for_previous(previous)
        else:
            self._channel.wait_for_count(count)
        self._answers: dict[type[Request[Any]], Callable[[Any], Replies[Any]]] = {
            Train: self._train,
            Gradients: self._gradients,
            Losses: self._losses,
            ClassCounts: self._balanced.class_counts,
            BalancedLosses: self._balanced.balanced_losses,
            LossMoments: self._answer_moments,
            OutputMoments: self._answer_moments,
            BootstrapLosses: self._bootstrap_losses,
            DataMoments: self._data_moments,
            Scores: self._scores,
            Shares: self._shares,
            Subspaces: self._subspaces,
            SharedSamples: self._shared_samples,
            Outputs: self._outputs,
            Collect: self._collect,
        }

    def __repr__(self) -> str:
        return f"FlowerFederation({len(self.client_ids)} clients, P = {self._layout.length})"

    @property
    def client_ids(self) -> tuple[str, ...]:
        """Stable ids of the clients, in order."""
        return self._channel.client_ids

    @property
    def infos(self) -> list[ClientInfo]:
        """What the clients have said about themselves, in order."""
        return self._channel.infos

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client, without validation samples."""
        return torch.tensor([info.sizes["train"] for info in self.infos])

    @property
    def splits(self) -> Sequence[Split]:
        """What all clients hold."""
        return self._channel.splits

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        return self._layout.layers

    @property
    def architecture(self) -> Architecture:
        """What a row needs to become a module: the server's model, and what clients say of it."""
        return replace(self._architecture, signature=self.infos[0].signature)

    @property
    def privacy(self) -> Privacy | None:
        """How much clients reveal of their data; None if they are not private.

        Raises:
            InputError: If they do not agree.
        """
        privacies = {info.privacy for info in self.infos}
        require(
            len(privacies) <= 1,
            "the clients do not agree on their privacy: give all client apps the same settings",
        )
        return next(iter(privacies), None)

    @property
    def traffic(self) -> Traffic:
        """Everything that went over the network so far."""
        return self._channel.traffic

    @property
    def missing(self) -> Sequence[MissingReply]:
        """All replies that did not come, so far."""
        return self._channel.missing

    def fingerprint(self) -> str:
        """Return a digest of the model's frozen part: nothing is known of the clients' data."""
        return self._frozen_digest

    def initial_model(self, seed: int) -> Tensor:
        """Return w0: ``[P]``.

        Args:
            seed: Decides it.
        """
        return self._layout.row(make_module(self._model, seed))

    def ask(self, request: Request[T]) -> Replies[T]:
        """Send a request to its clients, and wait for their replies.

        Args:
            request: Any request but ``Round``. ``Collect`` is not sent: no client replies to it.

        Returns:
            The replies. Their traffic is everything that went over the network since the last
            call, introductions and final models included.

        Raises:
            InputError: If the request does not fit the federation, or no client at all replies to
                ``Train`` or ``Gradients``.
        """
        answer = self._answers.get(type(request))
        require(answer is not None, f"a Flower federation does not answer {request.name!r}")
        count = len(self.client_ids)
        require(
            bool(((request.clients >= 0) & (request.clients < count)).all()),
            f"clients are numbered 0 to {count - 1}",
        )
        if len(request.clients) and self.privacy is not None and not is_private(request):
            return not_answered(self, request)
        assert answer is not None
        replies = cast(Replies[T], answer(request))
        traffic, self._reported = self.traffic - self._reported, self.traffic
        return replace(replies, traffic=traffic)

    def keep(
        self,
        models: Tensor,
        clients: Iterable[int] | None = None,
        personal: Personal | None = None,
    ) -> None:
        """Send clients their final models, if they want them.

        A client that has been sent its model is not sent it again, unless it has restarted.

        Args:
            models: ``[c, P]``; rows that are NaN are not sent.
            clients: ``[c]``; None is all clients.
            personal: Coordinates that each client fills in with its own.
        """
        positions = range(len(self.client_ids)) if clients is None else clients
        self._delivery.deliver(models, as_clients(positions).tolist(), personal)

    def newcomers(self) -> list[str]:
        """Return the ids of clients that have connected since the federation was made."""
        return self._channel.newcomers()

    def admit(self, newcomers: Sequence[str]) -> None:
        """Add clients to the federation, after those that are in it.

        Args:
            newcomers: Their ids.

        Raises:
            InputError: If one has never connected, or is in the federation already.
        """
        self._channel.admit(newcomers)

    def ready(self) -> list[int]:
        """Return the clients that are connected and not busy."""
        return self._channel.ready()

    def forget_losses(self) -> None:
        """Ask for losses again: clients may have other data than before."""
        self._evaluator.forget()
        self._balanced.forget()
        self._moments.forget()

    def _train(self, request: Train) -> Replies[Tensor]:
        require(not request.compressed or self.privacy is None, NOT_COMPRESSED)
        messages = train_messages(request, self._layout.length)
        replies = self._channel.exchange("train", messages)
        progress.report(len(request.clients) * request.steps)
        self._require_replies("train", replies)
        if request.personal is not None:
            self._personal_trainings.add((request.key.seed, request.key.purpose))
        width = self._layout.length if request.sent is None else len(request.sent)
        if request.compressed:
            return decompressed(request, replies, width, self._layout.dtype)
        rows = gather(request.clients, replies, "rows", (width,), self._layout.dtype)
        return Replies(request.clients, rows, replies.missing)

    def _gradients(self, request: Gradients) -> Replies[Tensor]:
        replies = self._channel.exchange(
            "gradients", gradient_messages(request, self._layout.length)
        )
        self._require_replies("gradients", replies)
        shape = (self._layout.length,)
        rows = gather(request.clients, replies, "rows", shape, self._layout.dtype)
        return Replies(request.clients, rows, replies.missing)

    def _losses(self, request: Losses) -> Replies[Tensor]:
        self._require_split(request.split)
        return self._evaluator.losses(request)

    def _answer_moments(self, request: MomentsRequest) -> Replies[Tensor]:
        self._require_splits(request.splits)
        return self._moments.answer(request)

    def _bootstrap_losses(self, request: BootstrapLosses) -> Replies[Tensor]:
        self._require_splits(request.splits)
        require(request.replicates >= 1, f"replicates must be at least 1, not {request.replicates}")
        messages = bootstrap_messages(request, self._layout.length)
        replies = self._channel.exchange("bootstrap_losses", messages)
        shape = (len(request.models), 3 + len(request.models))
        compared = gather(request.clients, replies, "compared", shape, torch.float64)
        return Replies(request.clients, compared, replies.missing)

    def _data_moments(self, request: DataMoments) -> Replies[Tensor]:
        self._require_splits(request.splits)
        infos = self._infos_of(request.clients)
        shape = (
            common([info.num_label_groups for info in infos], "groups of labels"),
            1 + 2 * common([info.num_columns for info in infos], "numbers in a sample"),
        )
        messages = data_moment_messages(request, shape)
        replies = self._channel.exchange("data_moments", messages)
        moments = gather(request.clients, replies, "moments", shape, torch.float64)
        return Replies(request.clients, moments, replies.missing)

    def _scores(self, request: Scores) -> Replies[ClientScores]:
        self._require_split(request.split)
        if request.personal is not None:
            seed, purpose = request.personal.seed, request.personal.purpose
            require(
                (seed, purpose) in self._personal_trainings,
                f"no client has personal coordinates of the training {purpose!r} with seed {seed}: "
                "there was no such training",
            )
        return self._evaluator.scores(request)

    def _shares(self, request: Shares) -> Replies[Tensor]:
        models = request.models
        rows = models.models if isinstance(models, Mixture) else models
        groups = 0
        if request.by_class:
            infos = self._infos_of(request.clients)
            groups = common([info.num_label_groups for info in infos], "groups of labels")
        messages = share_messages(request, self._layout.length, groups)
        replies = self._channel.exchange("shares", messages)
        shape = (len(rows), groups) if request.by_class else (len(rows),)
        shares = gather(request.clients, replies, "shares", shape, rows.dtype)
        return Replies(request.clients, shares, replies.missing)

    def _subspaces(self, request: Subspaces) -> Replies[Tensor]:
        infos = self._infos_of(request.clients)
        features = {info.num_features for info in infos}
        require(len(features) == 1, f"the clients' inputs have {sorted(features)} features")
        [num_features] = features
        limit, few, clients = num_features, {}, request.clients
        if not request.num_classes and len(clients):
            sizes = np.array([info.sizes["train"] for info in infos])
            if 2 * (sizes < request.rank).sum() < len(sizes):  # single clients do not end a run
                reason = f"fewer training samples than the {request.rank} directions"
                few = dict.fromkeys(clients[sizes < request.rank].tolist(), reason)
                clients, sizes = clients[sizes >= request.rank], sizes[sizes >= request.rank]
            limit = min(num_features, *sizes.tolist())
        require(
            1 <= request.rank <= limit,
            f"rank must be from 1 to {limit}, not {request.rank}: inputs have {num_features} "
            "features, and a client cannot have more directions than training samples",
        )
        messages = subspace_messages(replace(request, clients=clients), num_features)
        replies = self._channel.exchange("subspaces", messages)
        shape = (num_features, request.num_vectors)
        bases = gather(clients, replies, "subspaces", shape, self._layout.dtype)
        return Replies(request.clients, bases, {**replies.missing, **few})

    def _shared_samples(self, request: SharedSamples) -> Replies[Tensor]:
        require(request.size >= 1, f"size must be at least 1, not {request.size}")
        infos = self._infos_of(request.clients)
        width = common([info.num_features for info in infos], "features")
        if request.targets:
            signature = self.architecture.signature
            if signature is None:
                raise InputError("clients do not say what their targets are: update srfca there")
            width += prod(signature.target_shape)
        replies = self._channel.exchange("shared_samples", shared_sample_messages(request, width))
        shape = (request.size, width)
        samples = gather(request.clients, replies, "samples", shape, torch.float64)
        return Replies(request.clients, samples, replies.missing)

    def _outputs(self, request: Outputs) -> Replies[Tensor]:
        infos = self._infos_of(request.clients)
        width = common([info.num_features for info in infos], "features")
        require(
            request.inputs.ndim == 2 and request.inputs.shape[1] == width,
            f"inputs must be rows of {width} numbers, not {tuple(request.inputs.shape)}",
        )
        num_outputs = common([info.num_outputs for info in infos], "outputs")
        messages = output_messages(request, self._layout.length, num_outputs)
        replies = self._channel.exchange("outputs", messages)
        shape = (len(request.inputs), num_outputs)
        outputs = gather(request.clients, replies, "outputs", shape, self._layout.dtype)
        return Replies(request.clients, outputs, replies.missing)

    def _infos_of(self, clients: Clients) -> list[ClientInfo]:
        """Return what clients have said of themselves; of all clients if there are none."""
        positions = clients.tolist() or range(len(self.client_ids))
        return [self._channel.info(client) for client in positions]

    def _collect(self, request: Collect) -> Replies[Tensor]:
        values = torch.empty((0, len(request.personal.coordinates)), dtype=self._layout.dtype)
        missing = dict.fromkeys(request.clients.tolist(), "stays with the client")
        return Replies(request.clients, values, missing)

    def _require_replies(self, task: str, replies: ClientReplies) -> None:
        """Raise an error if ``min_clients`` or more were asked to train and none replied."""
        missing = replies.missing
        if replies.arrays or len(missing) < self._channel.min_clients:
            return
        [(reason, _)] = Counter(missing.values()).most_common(1)
        raise InputError(
            f"none of {len(missing)} clients replied to {task}: {reason} "
            "(if training has diverged, lower lr, or set clip)"
        )

    def _require_splits(self, splits: Sequence[Split]) -> None:
        require(len(splits) > 0, "a request for moments or resamples needs at least one split")
        for split in splits:
            self._require_split(split)

    def _require_split(self, split: Split) -> None:
        held = ", ".join(self.splits)
        require(
            split in self.splits,
            f"the clients of this federation have no {split} data: only {held}",
        )
