"""Losses and scores of models on the clients' data; what clients have sent is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from srfca.federation.mixture import Mixture
from srfca.federation.replies import ClientScores, Replies
from srfca.federation.requests import Losses, Scores, Split, Subsample
from srfca.flower.channel import Channel
from srfca.flower.messages import (
    Messages,
    RowTable,
    check_rows,
    entries_of,
    mixture_messages,
    personal_json,
)
from srfca.flower.records import Value
from srfca.flower.replies import gather
from srfca.flower.transport import ClientRequest

FEW_MODELS = 16
"""A client that is scored on one of at most this many models is asked about all that several
clients share: methods ask for them next. A model of one client alone goes to no other client."""
REMEMBERED = 2**20
"""Pairs of model and client whose losses are remembered."""

LossAndAccuracy = tuple[float, float]
_UNKNOWN = (torch.nan, torch.nan)
"""Loss and accuracy of a model that is infinite or NaN."""


class Evaluator:
    """Answers ``Losses`` and ``Scores``.

    Training losses, on the subsample that was last asked for, and held-out scores are remembered by
    model and client. Clients send both when they are asked for one of them. Private clients are
    asked for exactly what is requested.

    Args:
        length: P.
        channel: The clients.
    """

    def __init__(self, length: int, channel: Channel) -> None:
        self._length, self._channel = length, channel
        self._remembered: OrderedDict[tuple[str, int], dict[str, LossAndAccuracy]] = OrderedDict()
        self._subsample: Subsample | None = None

    @property
    def _private(self) -> bool:
        """Whether clients are private: then every question is a release, and none is added."""
        return any(info.privacy is not None for info in self._channel.infos)

    def forget(self) -> None:
        """Forget all losses: clients may have other data than before."""
        self._remembered.clear()

    def losses(self, request: Losses) -> Replies[Tensor]:
        """Return the loss of every model on every client's samples: ``[c, k]``."""
        table = RowTable()
        names = table.add(check_rows(request.models, self._length))
        wanted = dict.fromkeys(request.clients.tolist(), _distinct(names))
        if request.split == "train":
            self._subsample = request.subsample
        remembers = request.split == "train" or (
            request.split == "validation" and not request.subsample
        )
        if remembers and not self._private:
            scores, missing = self._remembered_scores(wanted, table, request.split)
        else:
            scores, missing = self._fresh_losses(wanted, table, request)
        values = [
            [_score(scores, name, client)[0] for name in names]
            for client in request.clients.tolist()
            if client not in missing
        ]
        losses = torch.tensor(values, dtype=torch.float64).view(len(values), len(names))
        return Replies(request.clients, losses.to(request.models.dtype), missing)

    def scores(self, request: Scores) -> Replies[ClientScores]:
        """Return loss and accuracy of each client's model, or mixture."""
        clients, split = request.clients, request.split
        if isinstance(request.models, Mixture):
            replies = self._channel.exchange(
                "scores",
                mixture_messages(
                    clients, request.models, self._length, "scores", (2,), {"split": split}
                ),
            )
            pairs = gather(clients, replies, "scores", (2,), torch.float64)
            return self._as_scores(request, pairs, replies.missing)
        models = check_rows(request.models, self._length, len(clients))
        table, values = RowTable(), {}
        if request.personal is not None:
            models = request.personal.coordinates.complement(self._length).take(models)
            values = {"personal": personal_json(request.personal)}
        names = table.add(models)
        if request.personal is None and split == "validation" and not self._private:
            wanted = _validation_models(names, clients.tolist())
            scores, missing = self._remembered_scores(wanted, table, split)
        else:
            wanted = {
                client: _distinct([names[entry] for entry in entries])
                for client, entries in entries_of(clients).items()
            }
            scores, missing = self._fresh_scores(wanted, table, {"split": split, **values})
        pairs = torch.tensor(
            [
                _score(scores, name, client)
                for name, client in zip(names, clients.tolist(), strict=True)
                if client not in missing
            ],
            dtype=torch.float64,
        ).view(-1, 2)
        return self._as_scores(request, pairs, missing)

    def _as_scores(
        self, request: Scores, pairs: Tensor, missing: Mapping[int, str]
    ) -> Replies[ClientScores]:
        """Return losses and accuracies ``[c, 2]`` of the clients that replied as their scores."""
        infos = [self._channel.info(client) for client in request.clients.tolist()]
        accuracy = pairs[:, 1] if all(info.has_classes for info in infos) else None
        sizes = [
            info.sizes.get(request.split, 0)
            for client, info in zip(request.clients.tolist(), infos, strict=True)
            if client not in missing
        ]
        num_samples = torch.tensor(sizes, dtype=torch.int64)
        return Replies(request.clients, ClientScores(pairs[:, 0], accuracy, num_samples), missing)

    def _remembered_scores(
        self, wanted: Mapping[int, list[str]], table: RowTable, split: Split
    ) -> tuple[dict[tuple[str, int], LossAndAccuracy], dict[int, str]]:
        """Return training losses or held-out scores by model and client; ask for new ones.

        Args:
            wanted: The models to score, for each client.
            table: Their rows.
            split: ``train``, where accuracies are unknown, or ``validation``.

        Returns:
            The scores, and the reason for each client that did not reply.
        """
        kinds = {client: self._kind(client) if split == "train" else split for client in wanted}
        requests = {}
        for client, names in wanted.items():
            new = [
                name
                for name in names
                if kinds[client] not in self._remembered.get((name, client), {})
            ]
            if new:
                requests[client] = self._loss_request(client, new)
        replies = self._channel.exchange("losses", Messages(requests, table))
        for client, arrays in replies.arrays.items():
            self._remember(client, requests[client].row_names, arrays)
        scores = {
            (name, client): self._remembered[name, client][kinds[client]]
            for client, names in wanted.items()
            if client not in replies.missing
            for name in names
        }
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        return scores, replies.missing

    def _loss_request(self, client: int, names: list[str]) -> ClientRequest:
        expects: dict[str, tuple[tuple[int, ...], torch.dtype]]
        expects = {"losses": ((len(names),), torch.float64)}
        if "validation" in self._channel.info(client).sizes:
            expects["validation"] = ((len(names), 2), torch.float64)
        values = subsample_values(self.effective(client, self._subsample))
        return ClientRequest(expects, values, {"models": names})

    def _remember(self, client: int, names: list[str], arrays: Mapping[str, Tensor]) -> None:
        for name, loss in zip(names, arrays["losses"].tolist(), strict=True):
            scores = self._remembered.setdefault((name, client), {})
            scores[self._kind(client)] = (loss, torch.nan)
        if "validation" in arrays:
            self.remember_held_out(client, names, arrays["validation"])

    def remember_held_out(self, client: int, names: Sequence[str], scores: Tensor) -> None:
        """Remember held-out losses and accuracies ``[k, 2]`` of models on a client's data."""
        for name, (loss, accuracy) in zip(names, scores.tolist(), strict=True):
            self._remembered.setdefault((name, client), {})["validation"] = (loss, accuracy)

    def effective(self, client: int, subsample: Subsample | None) -> Subsample | None:
        """Return the subsample that a client's training losses are on; None is all samples."""
        is_all = subsample is None or self._channel.info(client).sizes["train"] <= subsample.size
        return None if is_all else subsample

    def _fresh_losses(
        self, wanted: Mapping[int, list[str]], table: RowTable, request: Losses
    ) -> tuple[dict[tuple[str, int], LossAndAccuracy], dict[int, str]]:
        """Ask for losses by model and client, without regard to what is remembered."""
        values = {"split": request.split, **subsample_values(request.subsample)}
        requests = {
            client: ClientRequest(
                {"losses": ((len(names),), torch.float64)}, values, {"models": names}
            )
            for client, names in wanted.items()
            if names
        }
        replies = self._channel.exchange("losses", Messages(requests, table))
        scores = {
            (name, client): (loss, torch.nan)
            for client, arrays in replies.arrays.items()
            for name, loss in zip(
                requests[client].row_names, arrays["losses"].tolist(), strict=True
            )
        }
        return scores, replies.missing

    def _fresh_scores(
        self, wanted: Mapping[int, list[str]], table: RowTable, values: Mapping[str, Value]
    ) -> tuple[dict[tuple[str, int], LossAndAccuracy], dict[int, str]]:
        """Ask for scores by model and client, without regard to what is remembered."""
        requests = {
            client: ClientRequest(
                {"scores": ((len(names), 2), torch.float64)}, values, {"models": names}
            )
            for client, names in wanted.items()
            if names
        }
        replies = self._channel.exchange("scores", Messages(requests, table))
        scores = {
            (name, client): (loss, accuracy)
            for client, arrays in replies.arrays.items()
            for name, (loss, accuracy) in zip(
                requests[client].row_names, arrays["scores"].tolist(), strict=True
            )
        }
        return scores, replies.missing

    def _kind(self, client: int) -> str:
        """Return what training losses are remembered as: they differ between subsamples."""
        values = subsample_values(self.effective(client, self._subsample))
        return "/".join(["train", *map(str, values.values())])


def subsample_values(subsample: Subsample | None) -> dict[str, Value]:
    """Return a subsample as values of a message; empty for all samples."""
    return {} if subsample is None else {"samples": subsample.size, "seed": subsample.seed}


def _validation_models(names: Sequence[str | None], clients: Sequence[int]) -> dict[int, list[str]]:
    """Return the models that each client scores: its own, and the shared ones if they are few."""
    scored_by: dict[str, set[int]] = {name: set() for name in _distinct(names)}
    wanted: dict[int, list[str]] = {client: [] for client in clients}
    for name, client in zip(names, clients, strict=True):
        if name is not None and client not in scored_by[name]:
            scored_by[name].add(client)
            wanted[client].append(name)
    if len(scored_by) > FEW_MODELS:
        return wanted
    shared = [name for name, scorers in scored_by.items() if len(scorers) > 1]
    return {client: _distinct([*names, *shared]) for client, names in wanted.items()}


def _score(
    scores: Mapping[tuple[str, int], LossAndAccuracy], name: str | None, client: int
) -> LossAndAccuracy:
    return _UNKNOWN if name is None else scores[name, client]


def _distinct(names: Sequence[str | None]) -> list[str]:
    """Return the names without repetitions, and without those of rows that are not finite."""
    return list(dict.fromkeys(name for name in names if name is not None))
