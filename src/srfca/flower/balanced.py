"""Class counts of clients, and class-balanced losses; what clients have sent is remembered."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from srfca.errors import require
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import BalancedLosses, ClassCounts, Subsample
from srfca.flower.channel import Channel
from srfca.flower.evaluator import REMEMBERED, Evaluator, subsample_values
from srfca.flower.messages import Messages, RowTable, check_rows
from srfca.flower.records import Value, pack, row_name
from srfca.flower.transport import ClientRequest

Predictor = tuple[str, str]
"""The names of a model and of its class shares."""


class BalancedEvaluator:
    """Answers ``ClassCounts`` and ``BalancedLosses``.

    Clients are sent the class shares of models, not counts. With balanced losses they send held-out
    scores, which methods ask for next.

    Args:
        length: P.
        channel: The clients.
        evaluator: Remembers the held-out scores.
    """

    def __init__(self, length: int, channel: Channel, evaluator: Evaluator) -> None:
        self._length, self._channel, self._evaluator = length, channel, evaluator
        self._counts: dict[tuple[int, bool], Tensor] = {}
        self._losses: OrderedDict[tuple[Predictor, int, str], float] = OrderedDict()

    def forget(self) -> None:
        """Forget everything: clients may have other data than before."""
        self._counts.clear()
        self._losses.clear()

    def class_counts(self, request: ClassCounts) -> Replies[Tensor]:
        """Return the number of training samples of each class: ``[c, C]``."""
        num_classes, presence = self._num_classes(request.clients), request.presence
        new = {c for c in request.clients.tolist() if (c, presence) not in self._counts}
        message = ClientRequest({"counts": ((1, num_classes), torch.int64)}, {"presence": presence})
        messages = Messages(dict.fromkeys(sorted(new), message), RowTable())
        replies = self._channel.exchange("class_counts", messages)
        for client, arrays in replies.arrays.items():
            self._counts[client, presence] = arrays["counts"][0]
        rows = [
            self._counts[client, presence]
            for client in request.clients.tolist()
            if client not in replies.missing
        ]
        empty = torch.empty(0, num_classes, dtype=torch.int64)
        return Replies(request.clients, torch.stack(rows) if rows else empty, replies.missing)

    def balanced_losses(self, request: BalancedLosses) -> Replies[Tensor]:
        """Return the class-balanced loss of every model on every client's samples: ``[c, k]``."""
        expected = (len(request.models), self._num_classes(request.clients))
        shares = request.class_shares.double().cpu()
        require(
            tuple(shares.shape) == expected,
            f"{expected[0]} models of {expected[1]} classes need class shares of shape {expected}, "
            f"not {tuple(shares.shape)}",
        )
        table = RowTable()
        names = table.add(check_rows(request.models, self._length))
        predictors = [
            None if name is None else (name, row_name(pack(row)))
            for name, row in zip(names, shares, strict=True)
        ]
        by_predictor = zip(predictors, shares, strict=True)
        finite = {predictor: row for predictor, row in by_predictor if predictor is not None}
        missing = self._ask(request, finite, table)
        values = [
            [
                torch.inf
                if predictor is None
                else self._losses[predictor, client, self._kind(client, request.subsample)]
                for predictor in predictors
            ]
            for client in request.clients.tolist()
            if client not in missing
        ]
        while len(self._losses) > REMEMBERED:
            self._losses.popitem(last=False)
        losses = torch.tensor(values, dtype=torch.float64).view(len(values), len(names))
        return Replies(request.clients, losses.to(request.models.dtype), missing)

    def _ask(
        self, request: BalancedLosses, shares: dict[Predictor, Tensor], table: RowTable
    ) -> dict[int, str]:
        """Ask for losses that are not remembered, and return why clients did not reply."""
        new: dict[int, list[Predictor]] = {}
        for client in dict.fromkeys(request.clients.tolist()):
            kind = self._kind(client, request.subsample)
            lacking = [p for p in shares if (p, client, kind) not in self._losses]
            if lacking:
                new[client] = lacking
        requests = {
            client: self._message(client, request.subsample, {p: shares[p] for p in predictors})
            for client, predictors in new.items()
        }
        replies = self._channel.exchange("balanced_losses", Messages(requests, table))
        for client, arrays in replies.arrays.items():
            kind = self._kind(client, request.subsample)
            losses = arrays["balanced"].tolist()
            for predictor, loss in zip(new[client], losses, strict=True):
                self._losses[predictor, client, kind] = loss
            if "validation" in arrays:
                names = [name for name, _ in new[client]]
                self._evaluator.remember_held_out(client, names, arrays["validation"])
        return replies.missing

    def _message(
        self, client: int, subsample: Subsample | None, shares: dict[Predictor, Tensor]
    ) -> ClientRequest:
        count = len(shares)
        expects: dict[str, tuple[tuple[int, ...], torch.dtype]]
        expects = {"balanced": ((count,), torch.float64)}
        if "validation" in self._channel.info(client).sizes:
            expects["validation"] = ((count, 2), torch.float64)
        flat: list[float] = torch.stack(list(shares.values())).flatten().tolist()
        values: dict[str, Value] = {"class_shares": flat}
        values |= subsample_values(self._evaluator.effective(client, subsample))
        return ClientRequest(expects, values, {"models": [name for name, _ in shares]})

    def _kind(self, client: int, subsample: Subsample | None) -> str:
        """Return the samples that losses are on, by which they are remembered."""
        values = subsample_values(self._evaluator.effective(client, subsample))
        return "/".join(map(str, values.values()))

    def _num_classes(self, clients: Clients) -> int:
        """Return the number of classes of some clients, or of all if there are none.

        Raises:
            InputError: If they have no classes, or not the same number.
        """
        chosen = clients.tolist() or range(len(self._channel.client_ids))
        numbers = {self._channel.info(client).num_classes for client in chosen}
        require(
            len(numbers) == 1 and 0 not in numbers,
            "class counts need clients that classify into the same classes, with one label for "
            f"each sample and the loss cross_entropy, but they have {sorted(numbers)} classes: "
            "use another distance, such as cross_loss",
        )
        return numbers.pop()
