"""Randomness per (seed, purpose, client, round).

Every draw is a hash of what it is for, so that it depends neither on the order in which clients are
visited, nor on how many of them are trained together, nor on the device. The hash is the finaliser
of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) in integer
tensor arithmetic, so a whole block of clients is drawn at once wherever its data lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX2 = 0x94D049BB133111EB - 2**64
_LAST = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Key:
    """What a draw is for. With a client's id it names one stream of random numbers."""

    seed: int
    purpose: str
    round: int = 0

    def word(self) -> int:
        """This key as a 64-bit integer."""
        return _digest(f"{self.seed}/{self.purpose}/{self.round}")


def client_words(clients: Sequence[str]) -> Tensor:
    """Each client's id as a 64-bit integer: ``[c]``."""
    return torch.tensor([_digest(client) for client in clients], dtype=torch.int64)


def streams(key: Key, words: Tensor) -> Tensor:
    """One stream for each client: ``[c]`` from ``client_words``."""
    return _mix(words ^ _mix(torch.tensor(key.word(), dtype=torch.int64)).to(words.device))


def bits(streams: Tensor, count: int, start: int = 0) -> Tensor:
    """The 64-bit numbers ``start`` to ``start + count`` of every stream: ``[*streams, count]``."""
    counter = torch.arange(start + 1, start + count + 1, device=streams.device)
    return _mix(streams.unsqueeze(-1) + counter * _GOLDEN)


def integers(streams: Tensor, count: int, below: Tensor) -> Tensor:
    """Integers in ``[0, below)`` of every stream, with replacement: ``[c, count]``."""
    return (bits(streams, count) & _LAST) % below.unsqueeze(-1)


def batches(streams: Tensor, sizes: Tensor, batch: int, steps: int) -> Tensor:
    """Which samples each client takes in each of its steps: ``[c, steps, batch]``.

    A client goes through its own samples in random order, epoch after epoch, ``batch`` at a time;
    what is left at the end of an epoch is skipped. A client with no more than ``batch`` samples
    takes all of them, in order, in every step; its places beyond ``sizes`` repeat the last one.
    """
    place = torch.arange(batch, device=sizes.device)
    whole = torch.minimum(place, sizes.unsqueeze(-1) - 1).unsqueeze(1)  # [c, 1, batch]
    octaves = torch.where(sizes > batch, sizes.double().log2().floor(), 0)
    kinds = octaves.unique().tolist()
    if kinds == [0]:
        return whole.expand(-1, steps, -1)
    if len(kinds) == 1:
        return _drawn(streams, sizes, batch, steps)
    found = whole.repeat(1, steps, 1)
    for kind in kinds:
        if kind > 0:
            some = (octaves == kind).nonzero().squeeze(1)
            found[some] = _drawn(streams[some], sizes[some], batch, steps)
    return found


def _drawn(streams: Tensor, sizes: Tensor, batch: int, steps: int) -> Tensor:
    """Batches of clients that all have more samples: ``[c, steps, batch]``.

    It takes the room of the largest client's epoch for as many epochs as the smallest one has.
    """
    step = torch.arange(steps, device=sizes.device)
    per_epoch = (sizes // batch).unsqueeze(-1)
    epoch = step // per_epoch  # [c, steps]
    order = _shuffles(streams, sizes, epochs=int(epoch.max()) + 1)  # [c, epochs, n]
    place = torch.arange(batch, device=sizes.device)
    at = (step % per_epoch).unsqueeze(-1) * batch + place  # [c, steps, batch]
    at = at + epoch.unsqueeze(-1) * order.shape[-1]
    return order.flatten(1).gather(1, at.flatten(1)).view(at.shape)


def _shuffles(streams: Tensor, sizes: Tensor, epochs: int) -> Tensor:
    """Random orders of each client's samples, padded at the end: ``[c, epochs, max(sizes)]``."""
    longest = int(sizes.max())
    of_epoch = bits(streams, epochs)  # [c, epochs]
    ranks = bits(of_epoch, longest)
    beyond = torch.arange(longest, device=sizes.device) >= sizes.unsqueeze(-1)
    return ranks.masked_fill(beyond.unsqueeze(1), _LAST).argsort(dim=-1, stable=True)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX1
    z = (z ^ _shift(z, 27)) * _MIX2
    return z ^ _shift(z, 31)


def _shift(z: Tensor, places: int) -> Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (z >> places) & ((1 << (64 - places)) - 1)
