"""Differential privacy of what a client sends: a bound, and Gaussian noise.

Whatever a client sends lies in a ball whose center and radius do not depend on its data. So two
data sets of the client, however different, change it by at most the diameter. The client adds
Gaussian noise whose standard deviation is a multiple of the radius. What the server learns from it
is bounded, whatever the server does with it (Dwork et al., TCC 2006; docs/privacy.md).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import shake_256
from math import inf, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca.errors import InputError, describe
from srfca.federation.requests import Gradients, Losses, Request, Scores, Shares, Train
from srfca.parameters import check_parameters, constrained

UPDATES = (Train, Gradients)
"""Requests that clients answer with an update: a row for each entry."""
STATISTICS = (Losses, Scores, Shares)
"""Requests that clients answer with statistics: numbers in a range that is known beforehand."""
NOT_COMPRESSED = (
    "private clients change every coordinate, so compress saves nothing: set it to None"
)
NOT_ANSWERED = "private clients do not answer it: what it reveals has no bound"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """How much a client reveals of its data.

    Args:
        clip_update: The largest Euclidean norm of an update: the change of a model in a round, or a
            gradient. Longer ones are shortened to it.
        update_noise: Standard deviation of the noise on each coordinate of an update, in multiples
            of ``clip_update``. 0 is none, and no guarantee.
        clip_loss: The largest loss; larger ones are replaced by it, and negative ones by 0.
        loss_noise: Standard deviation of the noise on each of the n losses and accuracies of a
            reply, in multiples of sqrt(n) / 2 times their range.
        delta: Delta of the guarantee: the probability with which epsilon may be exceeded.

    Raises:
        InputError: If a value is not allowed.

    Examples:
        >>> privacy = Privacy(clip_update=0.5, update_noise=0)
        >>> privacy.update(torch.tensor([3.0, 4.0]), b"").tolist()
        [0.30000001192092896, 0.4000000059604645]
    """

    clip_update: float = constrained(1.0, more_than=0, less_than=inf)
    update_noise: float = constrained(1.0, at_least=0, less_than=inf)
    clip_loss: float = constrained(4.0, more_than=0, less_than=inf)
    loss_noise: float = constrained(1.0, at_least=0, less_than=inf)
    delta: float = constrained(1e-5, more_than=0, less_than=1)

    def __post_init__(self) -> None:
        check_parameters(self)

    def to_json(self) -> str:
        """Return all settings as a text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Privacy:
        """Return the settings of a text.

        Args:
            text: What ``to_json`` returned.

        Raises:
            InputError: If it is no such text, or a value is not allowed.
        """
        try:
            return cls(**json.loads(text))
        except InputError:
            raise
        except (ValueError, TypeError, RecursionError) as error:
            raise InputError(f"not the settings of private clients: {describe(error)}") from error

    def update(self, change: Tensor, source: bytes) -> Tensor:
        """Return what is sent of an update: shortened, with noise.

        Args:
            change: ``[n]``
            source: What the noise is drawn from (``normal``).
        """
        norm = torch.linalg.vector_norm(change.double())
        bounded = change.double() * (self.clip_update / norm.clamp(min=self.clip_update))
        noise = normal(source, change.numel()).to(change.device)
        sent: Tensor = bounded.nan_to_num(nan=0.0)  # a diverged model
        return (sent + self.update_noise * self.clip_update * noise).to(change.dtype)

    def statistics(self, fractions: Tensor, source: bytes) -> Tensor:
        """Return numbers between 0 and 1 as they are sent: with noise, and still in this range.

        Args:
            fractions: ``[n]`` all numbers that a client sends in one reply.
            source: What the noise is drawn from (``normal``).
        """
        bounded = fractions.double().nan_to_num(nan=1.0).clamp(0, 1)
        radius = sqrt(fractions.numel()) / 2
        noise = normal(source, fractions.numel()).to(fractions.device)
        return (bounded + self.loss_noise * radius * noise).clamp(0, 1).to(fractions.dtype)

    def as_fractions(self, losses: Tensor) -> Tensor:
        """Return losses as fractions of the largest one; ``statistics`` clips them.

        Args:
            losses: ``[n]``

        Returns:
            ``[n]``
        """
        return losses.nan_to_num(nan=self.clip_loss, posinf=self.clip_loss) / self.clip_loss


def normal(source: bytes, count: int) -> Tensor:
    """Draw from the standard normal distribution: the same source gives the same numbers.

    The bits are those of SHAKE-256, which nobody can predict without the source, and the transform
    is Box and Muller's.

    Args:
        source: What the numbers depend on.
        count: How many.

    Returns:
        ``[count]`` in double precision.

    >>> numbers = normal(b"example", 10_001)
    >>> len(numbers), abs(float(numbers.mean())) < 0.05, abs(float(numbers.std()) - 1) < 0.05
    (10001, True, True)
    """
    half = -(-count // 2)
    words = np.frombuffer(shake_256(source).digest(16 * half), dtype="<u8").reshape(2, half)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    length, angle = np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
    numbers = np.concatenate([length * np.cos(angle), length * np.sin(angle)])
    return torch.from_numpy(numbers[:count])


def noise_source(seed: int | str, purpose: str, client: str, round: int, question: str) -> bytes:
    """Return what the noise of a reply is drawn from.

    The same question is answered with the same noise, so that asking again reveals nothing more.
    Another question is answered with other noise, so that noise does not cancel.

    Args:
        seed: Seed of a simulation, or a client's secret.
        purpose: What is asked for.
        client: The client's id.
        round: Round of the training, else 0.
        question: A digest of everything that is asked.
    """
    return json.dumps([seed, purpose, client, round, question]).encode()


def is_private(request: Request[Any]) -> bool:
    """Return whether private clients answer a request."""
    return isinstance(request, UPDATES + STATISTICS)
