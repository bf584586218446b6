"""What the clients of a federation hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.data.sources import Source, as_arrays
from srfca.errors import InputError, require
from srfca.random import Key, bits, client_words, streams


@dataclass(frozen=True)
class Samples:
    """The samples of all clients, one client after another; client i has ``sizes[i]`` of them."""

    x: Tensor
    y: Tensor
    sizes: Tensor
    offsets: Tensor = field(init=False)
    """Where each client's samples begin: ``[m]``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", self.sizes.cumsum(0) - self.sizes)

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's ``x`` and ``y``."""
        span = slice(int(self.offsets[client]), int(self.offsets[client] + self.sizes[client]))
        return self.x[span], self.y[span]

    def take(self, index: Tensor, sizes: Tensor) -> Samples:
        """The samples at ``index``, which lists them client after client."""
        return Samples(self.x[index], self.y[index], sizes)

    def to(self, device: torch.device, dtype: torch.dtype) -> Samples:
        """The same on a device, floating-point entries in ``dtype``."""
        x, y = (t.to(device, dtype if t.is_floating_point() else t.dtype) for t in (self.x, self.y))
        return Samples(x, y, self.sizes.to(device))


@dataclass(frozen=True)
class ClientData:
    """Training and test data of every client, and the true partition where it is known.

    >>> x, y = torch.randn(8, 3), torch.randn(8)
    >>> ClientData.of({"ann": (x, y), "bob": (x[:5], y[:5])})
    ClientData(2 clients, 5 to 8 training samples of shape (3,), no test data)
    """

    clients: tuple[str, ...]
    train: Samples
    test: Samples | None = None
    truth: Partition | None = None
    optima: Tensor | None = None
    """The best model of each true cluster, as rows ``[k*, P]``, where it is known."""

    @classmethod
    def of(
        cls,
        train: Mapping[str, Source] | Sequence[Source],
        test: Mapping[str, Source] | Sequence[Source] | None = None,
        truth: Partition | ArrayLike | None = None,
        optima: ArrayLike | Tensor | None = None,
    ) -> ClientData:
        """Client data from ``(x, y)`` of each client, checked.

        Args:
            train: Each client's arrays or tensors by its id, or in order (ids "0", "1", ...);
                instead of a tuple, anything that yields pairs will do (a Dataset, a DataLoader).
            test: The same for test data, by the same clients.
            truth: The true cluster of each client, where it is known.
            optima: The best model of each true cluster, as rows ``[k*, P]``, where it is known.
        """
        train = _named(train)
        require(len(train) > 0, "a federation needs at least one client")
        clients = tuple(train)
        samples = _collect(train, "training")
        held = None
        if test is not None:
            test = _named(test)
            if set(test) != set(train):
                odd = sorted(set(test) ^ set(train))[0]
                raise InputError(f"client {odd!r} has training or test data, but not both")
            held = _collect({client: test[client] for client in clients}, "test", samples)
        if truth is not None and not isinstance(truth, Partition):
            truth = Partition(np.asarray(truth))
        if truth is not None:
            require(
                len(truth) == len(clients),
                f"the true partition has {len(truth)} labels for {len(clients)} clients",
            )
        rows = None if optima is None else torch.as_tensor(optima)
        return cls(clients, samples, held, truth, rows)

    def __len__(self) -> int:
        return len(self.clients)

    def only(self, client: int) -> ClientData:
        """One client's data alone, under its own id.

        >>> ClientData.of([(torch.ones(3, 2), torch.ones(3))] * 4).only(2).clients
        ('2',)
        """
        require(0 <= client < len(self), f"clients are numbered 0 to {len(self) - 1}, not {client}")
        of = {split: getattr(self, split) for split in ("train", "test")}
        name = self.clients[client]
        train, test = (None if part is None else {name: part.of(client)} for part in of.values())
        assert train is not None
        return ClientData.of(train, test)

    def fingerprint(self) -> str:
        """A digest of all that the clients hold."""
        digest = sha256(repr(self.clients).encode())
        for part in [self.train, *([] if self.test is None else [self.test])]:
            for tensor in (part.x, part.y, part.sizes):
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        if self.truth is not None:
            digest.update(self.truth.labels.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        low, high = int(self.train.sizes.min()), int(self.train.sizes.max())
        sizes = str(low) if low == high else f"{low} to {high}"
        held = "no test data" if self.test is None else f"{len(self.test.x)} test samples"
        known = "" if self.truth is None else f", {self.truth.num_clusters} true clusters"
        shape = tuple(self.train.x.shape[1:])
        count = f"{len(self)} client{'s' * (len(self) != 1)}"
        return f"ClientData({count}, {sizes} training samples of shape {shape}, {held}{known})"


def hold_out(data: ClientData, fraction: float, seed: int) -> tuple[Samples, Samples]:
    """Each client's training samples in two: what it trains on, and what it validates with.

    ``floor(fraction * n)`` samples are held out, and at least one. Which
    ones depends on the seed and the client's id alone.
    """
    require(0 <= fraction < 1, f"validation must be in [0, 1), not {fraction}")
    sizes = data.train.sizes
    held = (sizes * fraction + 1e-9).floor().long()
    if fraction > 0:
        if bool((sizes < 2).any()):
            alone = data.clients[int((sizes < 2).nonzero()[0])]
            raise InputError(
                f"client {alone!r} has one training sample, so that none can be held out for "
                "validation: give it more, or set validation=0"
            )
        held = held.clamp(min=1)
    rank = streams(Key(seed, "validation"), client_words(data.clients))
    train, validation = [], []
    for client, (start, size) in enumerate(zip(data.train.offsets, sizes, strict=True)):
        order = bits(rank[client], int(size)).argsort()
        out, kept = order[: held[client]], order[held[client] :]
        train.append(start + kept.sort().values)
        validation.append(start + out.sort().values)
    return (
        data.train.take(torch.cat(train), sizes - held),
        data.train.take(torch.cat(validation), held),
    )


def _named(sources: Mapping[str, Source] | Sequence[Source]) -> dict[str, Source]:
    if isinstance(sources, Mapping):
        named = {str(name): source for name, source in sources.items()}
        require(len(named) == len(sources), "two clients have the same name")
        return named
    return {str(i): source for i, source in enumerate(sources)}


def _collect(sources: dict[str, Source], kind: str, like: Samples | None = None) -> Samples:
    """Check each client's samples and put them one after another."""
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    first = "" if like is None else "the training data"
    for client, source in sources.items():
        where = f"client {client!r}, {kind} data"
        x, y = as_arrays(source, where)
        require(x.ndim >= 1 and len(x) > 0, f"{where}: there are no samples")
        require(
            y.ndim >= 1 and len(x) == len(y),
            f"{where}: {len(x)} inputs but {len(y) if y.ndim else 'one'} targets",
        )
        for name, part in (("x", x), ("y", y)):
            if part.is_floating_point() and not bool(part.isfinite().all()):
                bad = (
                    int((~part.isfinite()).flatten(1).any(1).nonzero()[0])
                    if part.ndim > 1
                    else (int((~part.isfinite()).nonzero()[0]))
                )
                raise InputError(f"{where}: {name} has a NaN or an infinity in sample {bad}")
        y = y if y.is_floating_point() else y.long()
        for name, part, seen in (("x", x, xs), ("y", y, ys)):
            model = seen[0] if seen else None if like is None else getattr(like, name)
            if model is None:
                continue
            require(
                part.shape[1:] == model.shape[1:],
                f"{where}: {name} has samples of shape {tuple(part.shape[1:])}, "
                f"but {first} has {tuple(model.shape[1:])}",
            )
            require(
                part.is_floating_point() == model.is_floating_point(),
                f"{where}: {name} is of type {part.dtype}, but in {first} of {model.dtype}",
            )
        first = first or f"client {client!r}"
        xs.append(x)
        ys.append(y)
    sizes = torch.tensor([len(x) for x in xs])
    return Samples(torch.cat(xs), torch.cat(ys), sizes)
