"""Models, and the clients whose data represent them: what a distance is computed between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.aggregation.outliers import winsorize
from srfca.clustering.partition import Partition
from srfca.federation.classes import Asks, class_shares
from srfca.federation.coordinates import Coordinates
from srfca.federation.replies import Clients
from srfca.federation.requests import BalancedLosses, ClassCounts, Losses, Request, Subsample
from srfca.models.architecture import Architecture
from srfca.random import Key, client_words, streams

LossKind = Literal["plain", "balanced", "presence"]
"""Mean losses, class-balanced losses, or class-balanced losses by the presence of classes alone."""


class Source(Asks, Protocol):
    """Where losses are asked for, and what is known of the models' rows: a federation, or a run."""

    @property
    def layers(self) -> Mapping[str, slice]:
        """Where each trained layer lies in a row."""
        ...

    @property
    def architecture(self) -> Architecture | None:
        """What a row needs to become a module; None if that is not known here."""
        ...


@dataclass(eq=False)
class _LossCache:
    """Losses that have been asked for: one column for each client."""

    values: Tensor
    columns: dict[int, int] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)


@dataclass(eq=False)
class _ClassCache:
    """Class counts that have been asked for, by client: of all samples, and of presence."""

    counts: dict[bool, dict[int, Tensor]] = field(default_factory=lambda: {False: {}, True: {}})
    num_classes: int = 0

    def of(self, source: Asks, clients: Clients, presence: bool) -> Tensor:
        """Return class counts ``[n, C]``, 0 for clients that did not reply."""
        counts = self.counts[presence]
        new = [client for client in np.unique(clients).tolist() if client not in counts]
        if new or not counts:
            replies = source.ask(ClassCounts(np.array(new, dtype=np.int64), presence))
            counts.update(zip(replies.clients.tolist(), replies.values.cpu(), strict=True))
            self.num_classes = replies.values.shape[1]
        nothing = torch.zeros(self.num_classes, dtype=torch.int64)
        rows = [counts.get(client, nothing) for client in clients.tolist()]
        return torch.stack(rows) if rows else nothing.new_empty(0, self.num_classes)


@dataclass(frozen=True, eq=False)
class ModelSet:
    """Models, and the clients whose data represent each of them.

    A client's model is represented by the client's data, a cluster's by the data of its clients.

    Args:
        source: Where losses are asked for.
        models: ``[k, P]``
        clients: ``[n]`` the clients.
        represents: ``[n]`` the model that each of them represents.
        subsample: Losses are computed on some of each client's samples; None is all.
        trained_by: Clients ``[t]`` whose data the models were trained on, and the model of each
            ``[t]``; None is the clients that represent them.
        winsorized: Whether outliers among the losses on one model's clients are winsorized.
        outlying: ``[k]`` models that are too far from all others to be compared; None is none.

    Examples:
        >>> from srfca import Simulation, data, models
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> clients = ModelSet.of_clients(fed, fed.initial_model(0).repeat(4, 1))
        >>> clients.loss_on(clients).shape, clients.class_shares().shape
        (torch.Size([4, 4]), torch.Size([4, 10]))
    """

    source: Source
    models: Tensor
    clients: Clients
    represents: NDArray[np.int64]
    subsample: Subsample | None = None
    trained_by: tuple[Clients, NDArray[np.int64]] | None = None
    winsorized: bool = True
    outlying: NDArray[np.bool_] | None = None
    _losses: dict[LossKind, _LossCache] | None = field(default=None, repr=False)
    _shares: dict[bool, Tensor] | None = field(default=None, repr=False)
    _classes: _ClassCache = field(default_factory=_ClassCache, repr=False)

    def __post_init__(self) -> None:
        if self._losses is None:
            object.__setattr__(self, "_losses", {})
        if self._shares is None:
            object.__setattr__(self, "_shares", {})

    @classmethod
    def of_clients(
        cls,
        source: Source,
        models: Tensor,
        clients: Clients | None = None,
        subsample: Subsample | None = None,
    ) -> ModelSet:
        """Return local models, each represented by its client.

        Args:
            source: Where losses are asked for.
            models: ``[c, P]``
            clients: ``[c]`` whose models they are; None is all clients.
            subsample: Subsample of the samples that losses are computed on.
        """
        everyone = np.arange(len(models))
        return cls(source, models, everyone if clients is None else clients, everyone, subsample)

    @classmethod
    def of_clusters(
        cls,
        source: Source,
        client_ids: tuple[str, ...],
        models: Tensor,
        partition: Partition,
        limit: int | None = None,
        subsample: Subsample | None = None,
    ) -> ModelSet:
        """Return cluster models, each represented by its clients.

        Args:
            source: Where losses are asked for.
            client_ids: Ids of all clients.
            models: ``[k, P]``
            partition: The clusters.
            limit: If given, this many clients represent a cluster, always the same ones.
            subsample: Subsample of the samples that losses are computed on.
        """
        clients = clustered = np.flatnonzero(partition.labels >= 0)
        if limit is not None:
            draws = streams(Key(0, "stand"), client_words(client_ids)).numpy()
            chosen = [members[np.argsort(draws[members])[:limit]] for members in partition]
            clients = np.sort(np.concatenate(chosen))
        trained_by = (clustered, partition.labels[clustered])
        return cls(source, models, clients, partition.labels[clients], subsample, trained_by)

    @property
    def trained(self) -> Tensor:
        """The trained coordinates of the models, without buffers like BatchNorm's: ``[k, n]``."""
        return Coordinates.trained(self.source.layers).take(self.models)

    def take(self, positions: NDArray[np.int64]) -> ModelSet:
        """Return some of the models of clients, each represented by its client.

        Args:
            positions: ``[n]`` of the models.
        """
        return replace(
            self,
            models=self.models[positions],
            clients=self.clients[positions],
            represents=np.arange(len(positions)),
            trained_by=None,
            outlying=None if self.outlying is None else self.outlying[positions],
            _losses=None,
            _shares=None,
        )

    def forget(self, clients: Clients) -> None:
        """Forget the losses that these clients reported; they are asked again.

        Args:
            clients: ``[c]``
        """
        assert self._losses is not None
        for cache in self._losses.values():
            for client in clients.tolist():
                cache.columns.pop(client, None)

    def class_shares(self, presence: bool = False) -> Tensor:
        """Return the class shares of each model, by the data that it was trained on: ``[k, C]``.

        Clients are asked for their class counts once. Those of a cluster are the sums over its
        clients; a client that did not reply counts as one without samples.

        Args:
            presence: Ask clients which classes they have, instead of how many samples of each.

        Raises:
            InputError: If the clients have no classes.
        """
        assert self._shares is not None
        if presence not in self._shares:
            clients, models = self.trained_by or (self.clients, self.represents)
            counts = self._classes.of(self.source, clients, presence)
            total = counts.new_zeros(len(self.models), counts.shape[1])
            self._shares[presence] = class_shares(total.index_add(0, torch.tensor(models), counts))
        return self._shares[presence]

    def losses_on(self, clients: Clients, kind: LossKind = "plain") -> Tensor:
        """Return the loss of each model on each client's training data: ``[k, c]``.

        NaN if a client did not reply; it is asked again the next time. Other losses are kept.

        Args:
            clients: ``[c]``
            kind: ``plain``, ``balanced`` (as if classes were equally common) or ``presence`` (the
                same, by which classes there are).
        """
        if kind == "plain":
            return self._kept(
                kind, clients, lambda new: Losses(new, self.models, subsample=self.subsample)
            )
        shares = self.class_shares(presence=kind == "presence")
        return self._kept(
            kind, clients, lambda new: BalancedLosses(new, self.models, shares, self.subsample)
        )

    def _kept(
        self, kind: LossKind, clients: Clients, request: Callable[[Clients], Request[Tensor]]
    ) -> Tensor:
        """Return losses ``[k, c]``; those that are not kept yet are asked for."""
        cache = self._cache(kind)
        new = np.array([c for c in clients.tolist() if c not in cache.columns], dtype=np.int64)
        if len(new):
            replies = self.source.ask(request(new))
            cache.unanswered.difference_update(new.tolist())
            cache.unanswered.update(replies.missing)
            for number, client in enumerate(replies.clients.tolist()):
                cache.columns[client] = cache.values.shape[1] + number
            cache.values = torch.cat([cache.values, replies.values.cpu().T], dim=1)
        if all(client in cache.columns for client in clients.tolist()):
            return cache.values[:, [cache.columns[client] for client in clients.tolist()]]
        losses = cache.values.new_full((len(self.models), len(clients)), torch.nan)
        for position, client in enumerate(clients.tolist()):
            if client in cache.columns:
                losses[:, position] = cache.values[:, cache.columns[client]]
        return losses

    def _cache(self, kind: LossKind) -> _LossCache:
        assert self._losses is not None
        if kind not in self._losses:
            self._losses[kind] = _LossCache(self.models.new_empty(len(self.models), 0).cpu())
        return self._losses[kind]

    def unanswered_pairs(self) -> NDArray[np.bool_]:
        """Return the pairs of clients of which one did not reply with losses: ``[n, n]``."""
        missing = np.isin(self.clients, list(self._unanswered))
        pairs: NDArray[np.bool_] = missing[:, None] | missing
        return pairs

    @property
    def has_unanswered(self) -> bool:
        """Whether a client did not reply with losses."""
        return bool(self._unanswered)

    @property
    def _unanswered(self) -> set[int]:
        caches = (self._losses or {}).values()
        return {client for cache in caches for client in cache.unanswered}

    def loss_on(self, other: ModelSet, kind: LossKind = "plain") -> Tensor:
        """Return the loss of each model on the data of each other model: ``[k, l]``.

        It is the mean over the clients that represent the other model and for which it is known,
        NaN if there are none. Outliers among a model's clients are winsorized, unless the other
        models say otherwise.

        Args:
            other: l models.
            kind: ``plain``, ``balanced`` or ``presence``.
        """
        clients, position = np.unique(other.clients, return_inverse=True)
        represents, count = torch.tensor(other.represents), len(other.models)
        losses = self.losses_on(clients, kind).double()[:, torch.tensor(position)]
        if other.winsorized:
            losses = _without_outliers(losses, other.represents)
        zeros = losses.new_zeros(len(losses), count)
        replies = zeros.index_add(1, represents, (~losses.isnan()).double())
        shares = (losses / replies[:, represents]).masked_fill(losses.isnan(), 0.0)
        return zeros.index_add(1, represents, shares).masked_fill(replies == 0, torch.nan)


def _without_outliers(losses: Tensor, represents: NDArray[np.int64]) -> Tensor:
    """Winsorize losses ``[k, n]`` among the clients that represent the same model.

    Args:
        losses: ``[k, n]``, NaN if unknown: a client that is unknown for one model is not changed.
        represents: ``[n]`` the model of each client.
    """
    counts = np.bincount(represents)
    if not len(counts) or counts.max() < 3:
        return losses
    answered = ~losses.isnan().any(0).numpy()
    bounded = losses.clone()
    for model in np.flatnonzero(counts >= 3).tolist():
        members = np.flatnonzero((represents == model) & answered)
        bounded[:, members] = winsorize(losses[:, members])
    return bounded
