"""A round on the cluster: clients' rows are reduced by the workers, and never reach the driver.

Means are sums of each shard in double precision. Trimmed means and medians are computed by blocks
of coordinates, and other rules cluster by cluster, each by one worker that gets the rows from the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca import progress
from srfca.aggregation.rules import Mean, Median, TrimmedMean
from srfca.federation.middleware.validation import NOT_FINITE, REFUSED, refuses_not_finite
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Round
from srfca.ray.balance import samples_in
from srfca.ray.pool import Call, Pool, Shared
from srfca.ray.reductions import Block, Participants, ShardSums, ShardTraining
from srfca.ray.shards import client_range
from srfca.ray.splitting import is_large

_BY_COORDINATE = (TrimmedMean, Median)
"""Rules that treat every coordinate by itself."""
_REMEMBERED = 4
"""Sets of participants of each shard that are not sent again."""


@dataclass(frozen=True)
class ShardRound:
    """What one shard has to do in a round.

    Args:
        participants: Its clients that take part, cluster by cluster.
        clients: The positions of the same clients in the federation: ``[c]``.
        name: A digest of the participants.
    """

    participants: Participants
    clients: Clients
    name: str


@dataclass(frozen=True, eq=False)
class Training:
    """The training of a round.

    Args:
        how: How the shards train.
        models: Models of the clusters, if they come apart.
    """

    how: ShardTraining
    models: Shared | None = None


class RoundAnswers:
    """Answers rounds with the workers of a pool.

    Args:
        pool: The workers.
        bounds: Bounds of the shards.
        sizes: ``[m]`` training samples of all clients.
    """

    def __init__(self, pool: Pool, bounds: NDArray[np.int64], sizes: Tensor) -> None:
        self._pool, self._bounds, self._sizes = pool, bounds, sizes
        self._remembered: dict[int, tuple[int, list[str]]] = {}

    def answer(self, request: Round) -> Replies[Tensor]:
        """Answer a round."""
        keeps_state = _keeps_state(request)
        shards = self._split(request, everywhere=keeps_state)
        if not shards:
            return Replies(request.clients, request.models.cpu())
        training = self._training(request)
        if keeps_state:
            self._pool.shorten_histories()
        if isinstance(request.aggregation, Mean) and request.max_change is None:
            models, missing = self._mean(request, request.aggregation, training, shards)
        else:
            models, missing = self._exchange(request, training, shards)
        return Replies(request.clients, models, missing)

    def _training(self, request: Round) -> Training:
        """Return how the shards train. Large models go to each machine once."""
        how = ShardTraining(request.models, request.local, request.key, request.server_lr)
        if not is_large(request.models):
            return Training(how)
        return Training(replace(how, models=request.models[:0]), self._pool.share(request.models))

    def _split(self, request: Round, everywhere: bool) -> dict[int, ShardRound]:
        """Return the participants of each shard, cluster by cluster."""
        sizes = self._sizes[torch.from_numpy(request.clients)]
        sizes = sizes if request.sizes is None else request.sizes.cpu()
        order = np.argsort(request.labels, kind="stable")
        clients, labels = request.clients[order], request.labels[order]
        sizes, count = sizes[torch.from_numpy(order)], len(request.models)
        shard_of = client_range(self._bounds, clients)
        chosen = range(len(self._pool)) if everywhere else np.unique(shard_of).tolist()
        shards = {}
        for shard in chosen:
            index = np.flatnonzero(shard_of == shard)
            participants = Participants(
                clients[index] - self._bounds[shard],
                np.bincount(labels[index], minlength=count),
                sizes[torch.from_numpy(index)],
            )
            shards[shard] = ShardRound(participants, clients[index], _name(participants))
        return shards

    def _mean(
        self, request: Round, rule: Mean, training: Training, shards: dict[int, ShardRound]
    ) -> tuple[Tensor, dict[int, str]]:
        """Return the means of all clusters, and the clients that are refused."""
        answers = self._train("train_and_sum", request, training, shards, rule.weighted)
        bad = {shard: answer[0] for shard, answer in answers.items()}
        sums: ShardSums = reduce(add, (answers[shard][1] for shard in sorted(answers)))
        missing = _refused(bad, shards, len(request.clients))
        models = sums.means(request.models)
        if request.shared is not None:
            common = sums.together.means(request.models[:1])
            models = _with_shared(request, models, common)
        return _diverged(models, bad, missing, shards), missing

    def _exchange(
        self, request: Round, training: Training, shards: dict[int, ShardRound]
    ) -> tuple[Tensor, dict[int, str]]:
        """Return the aggregates of all clusters, with rows that go from worker to worker."""
        bad = self._train("train", request, training, shards)
        missing = _refused(bad, shards, len(request.clients))
        without = bad if missing else {shard: np.empty(0, dtype=np.int64) for shard in shards}
        if not _keeps_state(request):
            self._pool.hold({s: self._call("train", training, r) for s, r in shards.items()})
        try:
            models = self._pool.chain(lambda: self._aggregate(request, without))
        finally:
            self._pool.release()
        for shard in shards:
            self._pool.refer(shard, Call.of("forget_rows"))  # not waited for
        return models, missing

    def _aggregate(self, request: Round, bad: dict[int, NDArray[np.int64]]) -> Tensor:
        """Let the workers aggregate the rows that they keep."""
        pool, models, rule = self._pool, request.models.cpu(), request.aggregation
        bounds = None
        if request.max_change is not None:
            lengths = [pool.refer(shard, Call.of("lengths", bad[shard])) for shard in bad]
            bounds = pool.refer_any(0, "bounds", request.max_change, lengths)
        if isinstance(rule, Mean):
            calls = {s: Call.of("sums", bad[s], rule.weighted, extra=bounds) for s in bad}
            sums = reduce(add, pool.get([pool.refer(s, call) for s, call in calls.items()]))
            means: Tensor = sums.means(models)
            if request.shared is not None:
                means = _with_shared(request, means, sums.together.means(models[:1]))
            return means
        by_coordinate = isinstance(rule, _BY_COORDINATE)
        everything = list(range(len(models)))
        jobs = _blocks(models, pool.num_workers) if by_coordinate else _clusters(models)
        shared = by_coordinate and request.shared is not None
        aggregated = []
        for number, parts in enumerate(self._parts(bad, jobs, bounds)):
            clusters, start, stop = jobs[number]
            job = (models[clusters, start:stop], rule, shared)
            aggregated.append(pool.refer_any(number, "aggregate", job, parts))
        answers = pool.get(aggregated)
        rows = [rows for rows, _ in answers]
        result = torch.cat(rows, dim=1) if by_coordinate else torch.cat(rows)
        if request.shared is None:
            return result
        if by_coordinate:
            common = torch.cat([common for _, common in answers])
        else:
            [parts] = self._parts(bad, [(everything, 0, models.shape[1])], bounds)
            [(_, common)] = pool.get([pool.refer_any(0, "aggregate", (models, rule, True), parts)])
        return _with_shared(request, result, common)

    def _parts(
        self, bad: dict[int, NDArray[np.int64]], blocks: Sequence[Block], bounds: Any
    ) -> list[list[Any]]:
        """Return references to the parts of all shards, for each block."""
        count = len(blocks)
        of_shards = [
            self._pool.refer_apart(s, Call.of("parts", bad[s], blocks, extra=bounds), count)
            for s in bad
        ]
        return [list(parts) for parts in zip(*of_shards, strict=True)]

    def _train(
        self,
        method: str,
        request: Round,
        training: Training,
        shards: dict[int, ShardRound],
        *arguments: Any,
    ) -> dict[int, Any]:
        """Let the shards train, and return their answers."""
        steps, batch_size = 1, None
        if request.server_lr is None:
            steps, batch_size = len(request.local.span(request.key.round)), request.local.batch_size
        keeps_state = _keeps_state(request)
        sent: dict[int, Call] = {}

        def make_calls(chosen: Sequence[int]) -> dict[int, Call]:
            for shard in chosen:
                clients = shards[shard].clients
                sizes = self._sizes[torch.from_numpy(clients)]
                call = self._call(
                    method, training, shards[shard], *arguments, steps=steps * len(clients),
                    samples=samples_in(sizes, steps, batch_size),
                    remembered=not keeps_state and self._remembers(shard, shards[shard].name),
                )  # fmt: skip
                sent[shard] = call
            return {shard: sent[shard] for shard in chosen}

        answers = self._pool.call(make_calls, list(shards), progress.report)
        if keeps_state:
            for shard, call in sent.items():
                self._pool.remember(shard, request.key, False, call)
        return answers

    def _call(
        self,
        method: str,
        training: Training,
        shard: ShardRound,
        *arguments: Any,
        steps: int = 0,
        samples: float = 0.0,
        remembered: bool = False,
    ) -> Call:
        participants = None if remembered else shard.participants
        return Call.of(
            method, training.how, shard.name, participants, *arguments,
            extra=training.models, steps=steps, samples=samples,
        )  # fmt: skip

    def _remembers(self, shard: int, name: str) -> bool:
        """Return whether a shard remembers participants; it does from now on."""
        starts, names = self._remembered.get(shard, (0, []))
        if starts != self._pool.starts_of(shard):
            names = []
        is_remembered = name in names
        names = [*(other for other in names if other != name), name][-_REMEMBERED:]
        self._remembered[shard] = self._pool.starts_of(shard), names
        return is_remembered


def _keeps_state(request: Round) -> bool:
    """Return whether clients keep something from round to round."""
    return request.local.stateful and request.server_lr is None


def _name(participants: Participants) -> str:
    """Return a digest of participants, their clusters and their sizes."""
    digest = blake2b(digest_size=16)
    for column in (participants.clients, participants.counts, participants.sizes.numpy()):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _refused(
    bad: dict[int, NDArray[np.int64]], shards: dict[int, ShardRound], replied: int
) -> dict[int, str]:
    """Return the clients that are refused, with the reason: few whose rows are not finite."""
    clients = [int(c) for shard in sorted(bad) for c in shards[shard].clients[bad[shard]]]
    if not clients or not refuses_not_finite(len(clients), replied):
        return {}
    return dict.fromkeys(clients, f"{REFUSED}{NOT_FINITE}")


def _diverged(
    models: Tensor,
    bad: dict[int, NDArray[np.int64]],
    missing: dict[int, str],
    shards: dict[int, ShardRound],
) -> Tensor:
    """Return the models, NaN for clusters with rows that are not finite, and are not refused."""
    if missing:
        return models
    for shard, positions in bad.items():
        models[shards[shard].participants.labels[positions]] = torch.nan
    return models


def _with_shared(request: Round, models: Tensor, common: Tensor) -> Tensor:
    assert request.shared is not None
    return torch.where(request.shared.mask(models.shape[1]), common, models)


def _blocks(models: Tensor, count: int) -> list[Block]:
    """Return blocks of coordinates, all clusters each."""
    ends = np.linspace(0, models.shape[1], min(count, models.shape[1]) + 1).astype(int).tolist()
    clusters = list(range(len(models)))
    return [(clusters, start, stop) for start, stop in pairwise(ends)]


def _clusters(models: Tensor) -> list[Block]:
    """Return the clusters one by one, all coordinates each."""
    return [([cluster], 0, models.shape[1]) for cluster in range(len(models))]
