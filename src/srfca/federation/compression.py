"""Sparse ternary compression: what clients send of an update, and what they keep for later.

Sattler, Wiedemann, Mueller, Samek: Robust and Communication-Efficient Federated Learning from
Non-IID Data. IEEE TNNLS 2019. Of an update, the coordinates of largest absolute value are sent as
their signs and one magnitude. Their positions are Golomb coded. Everything else stays with the
client, and is added to its next update (error feedback).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log, log2, sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require
from srfca.federation.requests import Train

_WORD = 64
"""Codes are 64-bit words. The first is the number of coordinates and their magnitude."""


def sparse_ternary(change: Tensor, fraction: float) -> Tensor:
    """Return the largest coordinates of an update, all with their mean magnitude: ``[n]``.

    Args:
        change: ``[n]``
        fraction: How many of the coordinates are left, at least one.

    >>> sparse_ternary(torch.tensor([0.1, -3.0, 0.2, 1.0]), 0.5).tolist()
    [0.0, -2.0, 0.0, 2.0]
    """
    count = _num_sent(len(change), fraction)
    sizes, positions = change.abs().topk(count)
    positions, sizes = positions[sizes > 0], sizes[sizes > 0]
    ternary = torch.zeros_like(change)
    if len(sizes):
        magnitude = sizes.double().mean().float().to(change)  # is sent in single precision
        ternary[positions] = change[positions].sign() * magnitude
    return ternary


def num_words(length: int, fraction: float) -> int:
    """Return the length of every code of updates of n coordinates.

    >>> num_words(10_000, 0.01), 10_000 * 4 // 8  # words of a code, and of single precision
    (16, 5000)
    """
    count, low_bits = _num_sent(length, fraction), _low_bits(fraction)
    bits = count * (low_bits + 2) + (length >> low_bits)
    return 1 + -(-bits // _WORD)


def encode(ternary: Tensor, fraction: float) -> Tensor:
    """Return the code of an update: ``[w]`` of int64.

    Args:
        ternary: ``[n]`` of ``sparse_ternary``.
        fraction: As there.

    >>> update = torch.tensor([0.0, -2.0, 0.0, 2.0])
    >>> decode(encode(update, 0.5), 4, 0.5).tolist()
    [0.0, -2.0, 0.0, 2.0]
    """
    values = ternary.detach().cpu().numpy()
    positions, low_bits = np.flatnonzero(values), _low_bits(fraction)
    gaps = np.diff(positions, prepend=-1) - 1
    high, low = gaps >> low_bits, gaps & ((1 << low_bits) - 1)
    lengths = high + low_bits + 2
    starts = np.cumsum(lengths) - lengths
    words = num_words(len(values), fraction)
    bits = np.zeros((words - 1) * _WORD, dtype=np.uint8)
    steps = np.zeros(len(bits) + 1, dtype=np.int64)  # gaps in unary: ones, and a zero
    np.add.at(steps, starts, 1)
    np.add.at(steps, starts + high, -1)
    bits[:] = np.cumsum(steps[:-1])
    after = starts + high + 1
    for place in range(low_bits):
        bits[after + place] = (low >> (low_bits - 1 - place)) & 1
    bits[after + low_bits] = values[positions] > 0
    magnitude = abs(values[positions[0]]) if len(positions) else 0.0
    head = np.array([len(positions)], "<u4").tobytes() + np.array([magnitude], "<f4").tobytes()
    content = np.frombuffer(head + np.packbits(bits).tobytes(), dtype="<i8").astype(np.int64)
    return torch.from_numpy(content)


def decode(
    code: Tensor, length: int, fraction: float, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the update of a code: ``[n]``.

    Args:
        code: ``[w]`` of int64.
        length: n
        fraction: As in ``encode``.
        dtype: Data type of the result.

    Raises:
        InputError: If it is not the code of such an update.
    """
    words = num_words(length, fraction)
    require(code.numel() == words, f"the code of an update has {words} words, not {code.numel()}")
    content = code.cpu().numpy().astype("<i8").tobytes()
    count = int(np.frombuffer(content[:4], "<u4")[0])
    magnitude = float(np.frombuffer(content[4:8], "<f4")[0])
    valid = count <= _num_sent(length, fraction) and 0 <= magnitude < float("inf")
    require(valid, f"not the code of an update: {count} coordinates of magnitude {magnitude}")
    bits = np.unpackbits(np.frombuffer(content[8:], dtype=np.uint8))
    low_bits, zeros = _low_bits(fraction), np.flatnonzero(bits == 0)
    weights = 1 << np.arange(low_bits - 1, -1, -1)
    update, position, at, zero = torch.zeros(length, dtype=dtype), -1, 0, 0
    for _ in range(count):
        zero += int(np.searchsorted(zeros[zero:], at))
        end = int(zeros[zero]) if zero < len(zeros) else len(bits)
        last = end + 1 + low_bits
        require(last < len(bits), "the code of an update ends too soon")
        gap = ((end - at) << low_bits) + int(bits[end + 1 : last] @ weights)
        position += 1 + gap
        require(position < length, f"an update of {length} coordinates has none at {position}")
        update[position] = magnitude if bits[last] else -magnitude
        at = last + 1
    return update


class ResidualStore:
    """What clients have not sent yet of their updates, by training (seed and purpose).

    A client that trains several models in one request has one residual for each, in their order.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[int, str], dict[tuple[str, int], Tensor]] = {}

    def compress(self, request: Train, changes: Tensor, client_ids: Sequence[str]) -> Tensor:
        """Return what clients send of their updates, and keep the rest: ``[c, n]``.

        Nothing is left over from earlier trainings in round 0. An update that is infinite or NaN
        is returned unchanged.
        """
        fraction = request.local.compress
        assert fraction is not None
        training = (request.key.seed, request.key.purpose)
        if request.key.round == 0:
            self.values[training] = {}
        stored = self.values.setdefault(training, {})
        sent = changes.clone()
        for entry, place in enumerate(places_of(request.clients)):
            key = (client_ids[int(request.clients[entry])], place)
            change = changes[entry] + stored.get(key, torch.zeros_like(changes[entry]))
            if bool(change.isfinite().all()):
                sent[entry] = sparse_ternary(change, fraction)
                stored[key] = change - sent[entry]
        return sent


def places_of(clients: NDArray[np.int64]) -> list[int]:
    """Return which entry of its client each entry of a request is, from 0: ``[c]``.

    >>> places_of(np.array([3, 1, 3]))
    [0, 0, 1]
    """
    seen: dict[int, int] = {}
    places = []
    for client in clients.tolist():
        places.append(seen.get(client, 0))
        seen[client] = places[-1] + 1
    return places


def _num_sent(length: int, fraction: float) -> int:
    return min(length, max(1, round(fraction * length)))


def _low_bits(fraction: float) -> int:
    """Return how many bits of a gap are sent as they are: Golomb's best, as in the paper."""
    if fraction >= 0.5:
        return 0
    return max(0, 1 + floor(log2(log((sqrt(5) - 1) / 2) / log(1 - fraction))))
