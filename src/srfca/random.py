"""Randomness per (seed, purpose, client, round).

Every draw is a hash of its purpose, so it depends neither on the order of the clients, nor on how
many of them train together, nor on the device. The hash is the finalizer of SplitMix64 (Steele,
Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) in integer tensor arithmetic, so
the numbers of many clients are drawn at once, on any device.
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
    """What a draw is for. A key and a client id identify one stream of random numbers.

    Args:
        seed: The seed of the run.
        purpose: What is drawn, in a word or two; different purposes have independent streams.
        round: The round.
    """

    seed: int
    purpose: str
    round: int = 0

    def word(self) -> int:
        """Return the key's hash, a signed 64-bit integer."""
        return _digest(f"{self.seed}/{self.purpose}/{self.round}")


def client_words(clients: Sequence[str]) -> Tensor:
    """Return the hashes of client ids, signed 64-bit integers.

    Args:
        clients: ``c`` client ids.

    Returns:
        ``[c]``, int64.
    """
    return torch.tensor([_digest(client) for client in clients], dtype=torch.int64)


def streams(key: Key, words: Tensor) -> Tensor:
    """Return one stream of random numbers per client.

    Args:
        key: What the draws are for.
        words: ``[c]``, the ``client_words`` of the clients.

    Returns:
        The states of the streams ``[c]``, int64, on the device of ``words``.

    Examples:
        >>> streams(Key(0, "example"), client_words(["ann", "bob"])).shape
        torch.Size([2])
    """
    return _mix(words ^ _mix(torch.tensor(key.word(), dtype=torch.int64)).to(words.device))


def bits(streams: Tensor, count: int, start: int = 0) -> Tensor:
    """Return random 64-bit integers of every stream.

    Args:
        streams: Streams of any shape.
        count: How many numbers of each stream.
        start: How many numbers to skip.

    Returns:
        ``[*streams.shape, count]``, int64.
    """
    counter = torch.arange(start + 1, start + count + 1, device=streams.device)
    return _mix(streams.unsqueeze(-1) + counter * _GOLDEN)


def integers(streams: Tensor, count: int, below: Tensor) -> Tensor:
    """Return random integers in ``[0, below)`` of every stream, with replacement.

    Args:
        streams: ``[c]``.
        count: How many integers of each stream.
        below: ``[c]``, the exclusive upper bound for each stream.

    Returns:
        ``[c, count]``, int64.
    """
    return (bits(streams, count) & _LAST) % below.unsqueeze(-1)


def uniform(streams: Tensor, count: int = 1) -> Tensor:
    """Draw numbers in ``[0, 1)`` from every stream.

    Args:
        streams: Streams of shape ``[*s]``.
        count: How many numbers to draw from each.

    Returns:
        ``[*s]`` if count is 1, else ``[*s, count]``, in double precision.
    """
    numbers = (bits(streams, count) >> 11 & (2**53 - 1)).double() / 2**53
    return numbers.squeeze(-1) if count == 1 else numbers


def batches(streams: Tensor, sizes: Tensor, batch: int, steps: int) -> Tensor:
    """Return the samples of each client's batches.

    A client visits its samples in random order, epoch after epoch, ``batch`` at a time; an
    incomplete batch at the end of an epoch is skipped. A client with at most ``batch`` samples
    takes all of them, in order, in every step; entries beyond its size repeat the last sample.

    Args:
        streams: ``[c]``.
        sizes: ``[c]``, the number of samples of each client.
        batch: The batch size.
        steps: The number of steps.

    Returns:
        Indices of samples ``[c, steps, batch]``, int64.
    """
    position = torch.arange(batch, device=sizes.device)
    full = torch.minimum(position, sizes.unsqueeze(-1) - 1).unsqueeze(1)  # [c, 1, batch]
    on_host = sizes.cpu()  # the only wait for a GPU
    octaves = torch.where(on_host > batch, on_host.double().log2().floor(), 0)
    distinct = octaves.unique().tolist()
    if distinct == [0]:
        return full.expand(-1, steps, -1)
    if len(distinct) == 1:
        return _shuffled_batches(streams, sizes, on_host, batch, steps)
    indices = full.repeat(1, steps, 1)
    for octave in distinct:
        if octave > 0:
            clients = (octaves == octave).nonzero().squeeze(1)
            at = clients.to(sizes.device)
            indices[at] = _shuffled_batches(streams[at], sizes[at], on_host[clients], batch, steps)
    return indices


def _shuffled_batches(
    streams: Tensor, sizes: Tensor, on_host: Tensor, batch: int, steps: int
) -> Tensor:
    """Return batches of clients with more than ``batch`` samples: ``[c, steps, batch]``.

    The memory is that of the largest client's epoch times the smallest client's number of epochs,
    so clients should be of similar sizes.
    """
    step = torch.arange(steps, device=sizes.device)
    per_epoch = (sizes // batch).unsqueeze(-1)
    epoch = step // per_epoch  # [c, steps]
    epochs = (steps - 1) // (int(on_host.min()) // batch) + 1
    order = _shuffles(streams, sizes, epochs, int(on_host.max()))  # [c, epochs, n]
    position = torch.arange(batch, device=sizes.device)
    index = (step % per_epoch).unsqueeze(-1) * batch + position  # [c, steps, batch]
    index = index + epoch.unsqueeze(-1) * order.shape[-1]
    return order.flatten(1).gather(1, index.flatten(1)).view(index.shape)


def _shuffles(streams: Tensor, sizes: Tensor, epochs: int, longest: int) -> Tensor:
    """Return random orders of each client's samples, padded: ``[c, epochs, longest]``."""
    epoch_streams = bits(streams, epochs)  # [c, epochs]
    ranks = bits(epoch_streams, longest)
    is_padding = torch.arange(longest, device=sizes.device) >= sizes.unsqueeze(-1)
    return ranks.masked_fill(is_padding.unsqueeze(1), _LAST).argsort(dim=-1, stable=True)


def _digest(text: str) -> int:
    """Return a signed 64-bit hash of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _mix(z: Tensor) -> Tensor:
    """Apply SplitMix64's finalizer."""
    z = z ^ _shift(z, 30)
    z *= _MIX1
    z ^= _shift(z, 27)
    z *= _MIX2
    z ^= _shift(z, 31)
    return z


def _shift(z: Tensor, places: int) -> Tensor:
    """Shift signed 64-bit integers right, filling with zeros."""
    shifted = z >> places
    shifted &= (1 << (64 - places)) - 1
    return shifted
