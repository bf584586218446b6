"""Moments of losses and outputs on the clients' data; what clients have sent is remembered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from srfca.engine.evaluation import MAX_OUTPUTS
from srfca.errors import require
from srfca.federation.replies import Replies
from srfca.federation.requests import LossMoments, OutputMoments
from srfca.flower.channel import Channel
from srfca.flower.messages import Messages, moment_messages
from srfca.flower.replies import ClientReplies, gather

REMEMBERED = 2**12
"""Replies that are remembered."""

MomentsRequest = LossMoments | OutputMoments


class MomentsEvaluator:
    """Answers ``LossMoments`` and ``OutputMoments``.

    A server that serves asks clients that fit no cluster again and again. As long as the models are
    the same, they are not sent a message.

    Args:
        length: P.
        channel: The clients.
    """

    def __init__(self, length: int, channel: Channel) -> None:
        self._length, self._channel = length, channel
        self._remembered: OrderedDict[tuple[int, str], Tensor] = OrderedDict()

    def forget(self) -> None:
        """Forget all moments: clients may have other data than before."""
        self._remembered.clear()

    def answer(self, request: MomentsRequest) -> Replies[Tensor]:
        """Return the moments of every model on every client's samples: ``[c, k, w]``."""
        width = self._width(request)
        task = "loss_moments" if isinstance(request, LossMoments) else "output_moments"
        messages = moment_messages(request, self._length, width)
        keys = {
            client: (client, repr((task, ask.values, ask.rows)))
            for client, ask in messages.requests.items()
        }
        kept = {c: self._remembered[key] for c, key in keys.items() if key in self._remembered}
        new = {c: ask for c, ask in messages.requests.items() if c not in kept}
        replies = self._channel.exchange(task, Messages(new, messages.table, messages.unsendable))
        for client, arrays in replies.arrays.items():
            kept[client] = self._remembered[keys[client]] = arrays["moments"]
        while len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)
        everything = ClientReplies(
            {client: {"moments": moments} for client, moments in kept.items()},
            replies.missing,
        )
        shape = (len(request.models), width)
        values = gather(request.clients, everything, "moments", shape, torch.float64)
        return Replies(request.clients, values, replies.missing)

    def _width(self, request: MomentsRequest) -> int:
        """Return how many numbers clients send for each model."""
        clients = request.clients.tolist() or range(len(self._channel.client_ids))
        infos = [self._channel.info(client) for client in clients]
        if isinstance(request, LossMoments):
            return 3 + 2 * common([info.num_label_groups for info in infos], "groups of labels")
        outputs = common([info.num_outputs for info in infos], "outputs")
        require(
            outputs <= MAX_OUTPUTS,
            f"moments of outputs are for at most {MAX_OUTPUTS} outputs, not {outputs}",
        )
        return outputs + 2 * outputs**2


def common(values: Sequence[int], name: str) -> int:
    """Return what all clients have the same number of.

    Raises:
        InputError: If their numbers differ.
    """
    different = sorted(set(values))
    require(len(different) == 1, f"the clients have {different} {name}: they must agree")
    return different[0]
