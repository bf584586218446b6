"""Models, and the clients whose data represent them: what a distance is computed between."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Losses, Request, Subsample
from srfca.random import Key, client_words, streams


class Asks(Protocol):
    """What answers requests: a federation, or a run."""

    def ask(self, request: Request[Tensor]) -> Replies[Tensor]:
        """Send a request to its clients."""
        ...


@dataclass(eq=False)
class _LossCache:
    """Losses that have been asked for: one column for each client."""

    values: Tensor
    columns: dict[int, int] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)


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
    """

    source: Asks
    models: Tensor
    clients: Clients
    represents: NDArray[np.int64]
    subsample: Subsample | None = None
    _losses: _LossCache | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self._losses is None:
            values = self.models.new_empty(len(self.models), 0).cpu()
            object.__setattr__(self, "_losses", _LossCache(values))

    @classmethod
    def of_clients(
        cls,
        source: Asks,
        models: Tensor,
        clients: Clients | None = None,
        subsample: Subsample | None = None,
    ) -> ModelSet:
        """Return local models, each represented by its client.

        Args:
            source: Where losses are asked for.
            models: ``[c, P]``
            clients: ``[c]`` whose models they are; None is all clients.
            subsample: Of the samples that losses are computed on.
        """
        everyone = np.arange(len(models))
        return cls(source, models, everyone if clients is None else clients, everyone, subsample)

    @classmethod
    def of_clusters(
        cls,
        source: Asks,
        client_ids: tuple[str, ...],
        models: Tensor,
        partition: Partition,
        limit: int | None = None,
        subsample: Subsample | None = None,
    ) -> ModelSet:
        """Return cluster models, each represented by its clients.

        Args:
            source: Where losses are asked for.
            client_ids: Of all clients.
            models: ``[k, P]``
            partition: The clusters.
            limit: If given, this many clients represent a cluster, always the same ones.
            subsample: Of the samples that losses are computed on.
        """
        clients = np.flatnonzero(partition.labels >= 0)
        if limit is not None:
            draws = streams(Key(0, "stand"), client_words(client_ids)).numpy()
            chosen = [members[np.argsort(draws[members])[:limit]] for members in partition]
            clients = np.sort(np.concatenate(chosen))
        return cls(source, models, clients, partition.labels[clients], subsample)

    def take(self, positions: NDArray[np.int64]) -> ModelSet:
        """Return some of the models of clients, each represented by its client."""
        return replace(
            self,
            models=self.models[positions],
            clients=self.clients[positions],
            represents=np.arange(len(positions)),
            _losses=None,
        )

    def losses_on(self, clients: Clients) -> Tensor:
        """Return the loss of each model on each client's training data: ``[k, c]``.

        NaN if a client did not reply; it is asked again the next time. Other losses are kept.
        """
        cache = self._losses
        assert cache is not None
        new = np.array([c for c in clients.tolist() if c not in cache.columns], dtype=np.int64)
        if len(new):
            replies = self.source.ask(Losses(new, self.models, subsample=self.subsample))
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

    def unanswered_pairs(self) -> NDArray[np.bool_]:
        """Return the pairs of clients of which one did not reply with losses: ``[n, n]``."""
        assert self._losses is not None
        missing = np.isin(self.clients, list(self._losses.unanswered))
        pairs: NDArray[np.bool_] = missing[:, None] | missing
        return pairs

    @property
    def has_unanswered(self) -> bool:
        """Whether a client did not reply with losses."""
        return self._losses is not None and bool(self._losses.unanswered)

    def loss_on(self, other: ModelSet) -> Tensor:
        """Return the loss of each model on the data of each other model: ``[k, l]``.

        It is the mean over the clients that represent the other model and replied, NaN if none did.
        """
        clients, position = np.unique(other.clients, return_inverse=True)
        represents, count = torch.tensor(other.represents), len(other.models)
        losses = self.losses_on(clients).double()[:, torch.tensor(position)]
        zeros = losses.new_zeros(len(losses), count)
        replies = zeros.index_add(1, represents, (~losses.isnan()).double())
        shares = (losses / replies[:, represents]).masked_fill(losses.isnan(), 0.0)
        return zeros.index_add(1, represents, shares).masked_fill(replies == 0, torch.nan)
