"""What the driver knows of the clients: what each shard says, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from hashlib import sha256
from operator import add

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.data.schema import Schema
from srfca.errors import require
from srfca.federation.requests import Split
from srfca.models.signature import Signature


@dataclass(frozen=True)
class Moments:
    """Count, means and squared deviations of the targets of some samples, if these are values."""

    count: int
    mean: Tensor
    deviations: Tensor

    @classmethod
    def of(cls, targets: Tensor) -> Moments:
        """Return those of targets ``[n, ...]``."""
        values = targets.double().cpu()
        mean = values.mean(0)
        return cls(len(values), mean, (values - mean).square().sum(0))

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        change = other.mean - self.mean
        deviations = self.deviations + other.deviations
        deviations = deviations + change.square() * (self.count * other.count / count)
        return Moments(count, self.mean + change * (other.count / count), deviations)

    @property
    def variance(self) -> float:
        """The mean of all squared deviations from the means."""
        return float((self.deviations / self.count).mean())


@dataclass(frozen=True)
class Description:
    """What the driver knows of a shard."""

    client_ids: tuple[str, ...]
    sizes: Mapping[Split, Tensor]
    signature: Signature
    fingerprint: str
    settings_fingerprint: str
    constant_loss: float | None
    targets: Moments | None
    """Moments of the training targets, if the loss is the squared error."""
    num_classes: int | None
    schema: Schema | None
    truth: NDArray[np.int64] | None
    device: str


class Everyone:
    """The clients of all shards.

    Args:
        shards: The shards.

    Raises:
        InputError: If shards hold different kinds of samples, or the same client.
    """

    def __init__(self, shards: Sequence[Description]) -> None:
        first = shards[0]
        _check_alike(shards)
        self.shards = shards
        self.client_ids = tuple(name for shard in shards for name in shard.client_ids)
        _check_unique(self.client_ids)
        self.bounds = np.cumsum([0, *(len(shard.client_ids) for shard in shards)])
        self.sizes: dict[Split, Tensor] = {
            split: torch.cat([shard.sizes[split] for shard in shards]) for split in first.sizes
        }
        self.signature, self.schema, self.device = first.signature, first.schema, first.device
        self.num_classes = first.num_classes
        self.settings_fingerprint = first.settings_fingerprint

    @cached_property
    def constant_loss(self) -> float | None:
        """The loss of predicting a constant: all classes alike, or the mean. None if unknown."""
        moments = [shard.targets for shard in self.shards if shard.targets is not None]
        return reduce(add, moments).variance if moments else self.shards[0].constant_loss

    @property
    def fingerprint(self) -> str:
        """A digest of what the shards hold."""
        return sha256(" ".join(shard.fingerprint for shard in self.shards).encode()).hexdigest()

    @property
    def truth(self) -> Partition | None:
        """The true clusters, None unless every shard has them."""
        labels = [shard.truth for shard in self.shards if shard.truth is not None]
        return Partition(np.concatenate(labels)) if len(labels) == len(self.shards) else None


def _check_alike(shards: Sequence[Description]) -> None:
    """Raise an error unless all shards hold the same kind of samples."""
    first = shards[0]
    for number, shard in enumerate(shards):
        require(
            shard.signature == first.signature,
            f"shard {number} has {shard.signature}, but shard 0 {first.signature}: all shards must "
            "hold the same kind of inputs and targets",
        )
        require(
            shard.schema == first.schema,
            f"shard {number} has another table than shard 0: features, categories and classes must "
            f"be the same in all files ({shard.schema}; {first.schema})",
        )
        require(
            list(shard.sizes) == list(first.sizes),
            f"shard {number} has {', '.join(shard.sizes)} data, but shard 0 "
            f"{', '.join(first.sizes)}: give all shards test data, or none",
        )


def _check_unique(client_ids: Sequence[str]) -> None:
    """Raise an error if two clients have the same id."""
    if len(set(client_ids)) < len(client_ids):
        seen: set[str] = set()
        for client_id in client_ids:
            require(client_id not in seen, f"two shards have a client {client_id!r}")
            seen.add(client_id)
