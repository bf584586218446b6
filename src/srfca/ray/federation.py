"""A federation of simulated clients on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from srfca import progress
from srfca.clustering.partition import Partition
from srfca.data.client_data import ClientData
from srfca.data.schema import Schema
from srfca.errors import InputError, is_integer, is_number, require
from srfca.federation.replies import Replies, Traffic
from srfca.federation.replies import T as Value
from srfca.federation.requests import Request, Round, Split, Train
from srfca.models.architecture import Architecture
from srfca.models.rows import Layout, make_module
from srfca.models.signature import Signature
from srfca.ray.balance import samples_in
from srfca.ray.cluster import connect, find_room, nodes
from srfca.ray.description import Everyone
from srfca.ray.pool import Call, Pool
from srfca.ray.rounds import RoundAnswers
from srfca.ray.sources import Data, sources_of
from srfca.ray.splitting import join, split, take_models, tiles
from srfca.ray.worker import Settings, Usage

READING = (
    "client", "target", "features", "test", "cluster", "target_kind", "standardize", "missing",
)  # fmt: skip
"""Arguments of ``srfca.data.load`` that a ``RayFederation`` takes for a folder or a Dataset."""


class RayFederation:
    """Simulated clients on a Ray cluster: each worker has a ``Simulation`` of some of them.

    It answers every request as a ``Simulation`` of all clients does, up to rounding. Rounds are
    reduced on the workers, so that what the driver gets grows with the clusters, not with the
    clients. A worker that is lost, with its process or its machine, is replaced, and its shard does
    what it was doing again. A shard of a slow worker moves to a faster one.

    Args:
        data: What the clients hold. Or what the workers read themselves, so that no data pass
            through this process: a folder with files for ``files_in``, a Ray Dataset with a client
            column, or a function for each shard that returns its ``ClientData``.
        model: As for ``Simulation``. The workers must be able to import what it needs.
        address: Address of the cluster, as for ``connect``; unused if this process is connected.
        actors: Number of workers; None is one for each GPU, or one for each machine without GPUs.
        num_cpus: CPUs of each worker; None is as many as there are for it.
        num_gpus: GPUs of each worker; None is one if there are enough, else none.
        actor_options: More options of Ray's actors, such as ``runtime_env`` or ``resources``.
        retries: How often workers may be lost during one request.
        patience: Seconds to wait for a worker that replaces one that was lost; if none starts in
            time, the others share its clients.
        **arguments: Arguments of ``Simulation``: ``loss``, ``augment``, ``device``, ``precision``,
            ``compile``, ``block_size``, ``validation``, ``seed`` and ``negative_losses``; for a
            folder or a Dataset also those of ``srfca.data.load``: ``client``, ``target``,
            ``features``, ``test``, ``cluster``, ``target_kind`` and ``missing``.

    Attributes:
        truth: The true partition, where it is known.
        signature: What the module takes, and what its outputs mean.
        num_classes: The number of classes, None unless the clients classify.

    Raises:
        InputError: If there is no cluster, it has no room for the workers, or model, loss and data
            do not fit together.

    Examples:
        On a cluster whose first machine is 10.0.0.1::

            with RayFederation(data, MyNet, address="10.0.0.1:6379") as federation:
                result = SRFCA(local=LocalTraining(steps=200, lr=0.1)).fit(federation, seed=0)
    """

    answers_rounds = True

    def __init__(
        self,
        data: Data,
        model: nn.Module | Callable[[], nn.Module],
        *,
        address: str | None = None,
        actors: int | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        actor_options: Mapping[str, Any] | None = None,
        retries: int = 3,
        patience: float = 60.0,
        **arguments: Any,
    ) -> None:
        require(
            is_integer(retries) and retries >= 0,
            f"retries must be an integer of at least 0, not {retries!r}",
        )
        require(
            is_number(patience) and patience > 0, f"patience must be positive, not {patience!r}"
        )
        connect(address)
        if str(arguments.get("device", "auto")).startswith("cpu") and num_gpus is None:
            num_gpus = 0.0
        room = find_room(nodes(), actors, num_cpus, num_gpus, actor_options)
        reading = {name: arguments.pop(name) for name in READING if name in arguments}
        self._data, sources = sources_of(data, room.workers, reading)
        self._model = model
        self._architecture = Architecture.of(model)
        self._layout = Layout.of(make_module(model, seed=0))
        self._pool = Pool(sources, Settings(model, arguments), room, retries, patience)
        try:
            self._everyone = Everyone(self._pool.descriptions)
        except InputError:
            self.close()
            raise
        self._rounds = RoundAnswers(self._pool, self._everyone.bounds, self.sizes)
        self._reported = Traffic()
        self.client_ids: Sequence[str] = self._everyone.client_ids
        self.signature: Signature = self._everyone.signature
        self.num_classes: int | None = self._everyone.num_classes
        self.negative_losses = bool(arguments.get("negative_losses", False))
        self.device = torch.device(self._everyone.device)
        self.truth: Partition | None = (
            self._everyone.truth if self._data is None else self._data.truth
        )

    def __repr__(self) -> str:
        return (
            f"RayFederation({len(self.client_ids)} clients in {len(self._pool)} shards on "
            f"{self._pool.num_workers} workers, P = {self._layout.length}, {self.device})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. Requests are no longer answered."""
        self._pool.close()

    @property
    def data(self) -> ClientData:
        """What the clients hold.

        Raises:
            InputError: If it was made on the workers.
        """
        if self._data is None:
            raise InputError("the clients' data was made on the workers, and is not here")
        return self._data

    @property
    def optima(self) -> Tensor | None:
        """The best model of each true cluster ``[k*, P]``, if ``data`` was given and has them."""
        return None if self._data is None else self._data.optima

    @property
    def sizes(self) -> Tensor:
        """``[m]`` number of training samples of each client, without validation samples."""
        return self._everyone.sizes["train"]

    @property
    def splits(self) -> Sequence[Split]:
        """What the clients hold."""
        return tuple(self._everyone.sizes)

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        return self._layout.layers

    @property
    def architecture(self) -> Architecture:
        """What a row needs to become a module."""
        return replace(self._architecture, signature=self.signature)

    @property
    def schema(self) -> Schema | None:
        """How the samples were made from a table, if they were."""
        return self._everyone.schema

    @property
    def constant_loss(self) -> float | None:
        """The loss of predicting a constant: all classes alike, or the mean. None if unknown."""
        return self._everyone.constant_loss

    @property
    def traffic(self) -> Traffic:
        """What went between this process and the workers so far, data included."""
        return self._pool.traffic

    @property
    def num_losses(self) -> int:
        """How many workers were lost so far."""
        return self._pool.losses

    @property
    def num_moves(self) -> int:
        """How many shards have moved from a slow worker to a faster one."""
        return self._pool.moves

    def usage(self) -> list[Usage]:
        """Return the CPU time, the memory and the messages of each worker so far."""
        return self._pool.usage()

    def sizes_of(self, split: Split) -> Tensor:
        """Return the number of samples of each client in a split: ``[m]``.

        Args:
            split: ``train``, ``validation`` or ``test``.

        Raises:
            InputError: If the clients do not hold it.
        """
        sizes = self._everyone.sizes
        if split not in sizes:
            held = ", ".join(sizes)
            raise InputError(f"the clients of this federation have no {split} data: only {held}")
        return sizes[split]

    def fingerprint(self) -> str:
        """Return a digest of data and settings: that of a ``Simulation``, if ``data`` was given."""
        data = self._everyone.fingerprint if self._data is None else self._data.fingerprint()
        return f"{data} {self._everyone.settings_fingerprint}"

    def initial_model(self, seed: int) -> Tensor:
        """Return w0: ``[P]``.

        Args:
            seed: Decides it, unless the weights are given.
        """
        return self._layout.row(make_module(self._model, seed))

    def module(self, row: Tensor) -> nn.Module:
        """Return a row ``[P]`` as a module, with the frozen part of the model.

        Args:
            row: ``[P]``

        Raises:
            InputError: If the row does not have P coordinates.
        """
        length = self._layout.length
        require(
            tuple(row.shape) == (length,),
            f"a row of this model has the shape ({length},), not {tuple(row.shape)}",
        )
        return self._layout.load(row, make_module(self._model, seed=0)).eval()

    def ask(self, request: Request[Value]) -> Replies[Value]:
        """Answer a request for its clients.

        Args:
            request: Any request.

        Returns:
            The replies. Their traffic is what went between this process and the workers since the
            last call.

        Raises:
            InputError: If the request does not fit the federation, or workers are lost again and
                again.
        """
        count = len(self.client_ids)
        require(
            bool(((request.clients >= 0) & (request.clients < count)).all()),
            f"clients are numbered 0 to {count - 1}",
        )
        self._pool.rebalance()
        if isinstance(request, Round):
            replies = self._rounds.answer(request)
        else:
            answers = [self._ask_shards(tile) for tile in tiles(request)]
            values = answers[0] if len(answers) == 1 else torch.cat(answers, dim=1)
            replies = Replies(request.clients, cast(Value, values))
        traffic, self._reported = self.traffic - self._reported, self.traffic
        return replace(replies, traffic=traffic)

    def _ask_shards(self, request: Request[Any]) -> Any:
        keeps_state = isinstance(request, Train) and request.stateful
        request, models = take_models(request)
        extra = None if models is None else self._pool.share(models)
        parts = split(
            request, self._everyone.bounds, range(len(self._pool)) if keeps_state else None
        )
        if keeps_state:
            self._pool.shorten_histories()
        steps, batch_size = 0, None
        if isinstance(request, Train):
            steps, batch_size = request.steps, request.local.batch_size
        sizes = self.sizes[torch.from_numpy(request.clients)]
        calls = {
            shard: Call.of(
                "ask", part.request, extra=extra, steps=steps * len(part.entries),
                samples=samples_in(sizes[torch.from_numpy(part.entries)], steps, batch_size),
            )
            for shard, part in parts.items()
        }  # fmt: skip
        answers = self._pool.call(
            lambda shards: {shard: calls[shard] for shard in shards}, list(calls), progress.report
        )
        if isinstance(request, Train) and keeps_state:
            for shard, call in calls.items():
                self._pool.remember(shard, request.key, request.personal is not None, call)
        return join(parts, answers)
