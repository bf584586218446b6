"""Replies of clients by position, joined into one tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from srfca.errors import InputError
from srfca.federation.compression import decode
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Train
from srfca.flower.messages import entries_of
from srfca.flower.records import Shape


@dataclass(frozen=True)
class ClientReplies:
    """What clients replied to the messages of one request.

    Args:
        arrays: The arrays that each client sent, by position.
        missing: The reason for each client that did not reply, by position.
    """

    arrays: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    missing: dict[int, str] = field(default_factory=dict)


def gather(
    clients: Clients, replies: ClientReplies, name: str, shape: Shape, dtype: torch.dtype
) -> Tensor:
    """Join one array of all replies, in the order of the request.

    Args:
        clients: The clients of the request.
        replies: What they sent: arrays ``[e, *shape]`` with e the client's entries in the request,
            or 1 if it is the same for all of them.
        name: The array.
        shape: Shape of one entry.
        dtype: Data type of the result.

    Returns:
        ``[n, *shape]`` of the n entries that were answered.
    """
    counts = {client: len(entries) for client, entries in entries_of(clients).items()}
    parts: dict[int, Iterator[Tensor]] = {
        client: iter(arrays[name].expand(counts[client], *shape))
        for client, arrays in replies.arrays.items()
    }
    rows = [next(parts[client]) for client in clients.tolist() if client in parts]
    return torch.stack(rows).to(dtype) if rows else torch.empty((0, *shape), dtype=dtype)


def decompressed(
    request: Train, replies: ClientReplies, width: int, dtype: torch.dtype
) -> Replies[Tensor]:
    """Return the rows ``[n, width]`` of clients that sent compressed updates.

    A client whose code is not valid counts as one that did not reply.
    """
    fraction, starts = request.local.compress, request.starts
    assert fraction is not None
    starts = starts if request.sent is None else request.sent.take(starts)
    entries, missing = entries_of(request.clients), dict(replies.missing)
    rows: dict[int, Tensor] = {}
    for client, arrays in replies.arrays.items():
        try:
            updates = [decode(code, width, fraction, dtype) for code in arrays["compressed"]]
        except InputError as error:
            missing[client] = str(error)
            continue
        for entry, update in zip(entries[client], updates, strict=True):
            rows[entry] = starts[entry].cpu() + update
    values = torch.stack([rows[entry] for entry in sorted(rows)]) if rows else starts[:0].cpu()
    return Replies(request.clients, values, missing)
