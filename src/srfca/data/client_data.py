"""The samples of all clients, and how validation samples are held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.data.schema import Schema, TargetKind
from srfca.data.sources import Source, as_arrays
from srfca.errors import InputError, is_number, require
from srfca.random import Key, bits, client_words, streams


@dataclass(frozen=True)
class Samples:
    """Samples of all clients, concatenated client by client.

    Args:
        x: Inputs, ``[n, ...]``.
        y: Targets, ``[n, ...]``.
        sizes: Number of samples of each client, ``[m]``.

    Examples:
        >>> samples = Samples(torch.arange(5.0), torch.arange(5), torch.tensor([2, 3]))
        >>> samples.of(1)
        (tensor([2., 3., 4.]), tensor([2, 3, 4]))
    """

    x: Tensor
    y: Tensor
    sizes: Tensor
    offsets: Tensor = field(init=False)
    """Index of each client's first sample, ``[m]``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", self.sizes.cumsum(0) - self.sizes)

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """Return ``x`` and ``y`` of one client, as views.

        Args:
            client: The client's index.

        Returns:
            Inputs ``[n, ...]`` and targets ``[n, ...]``.
        """
        span = slice(int(self.offsets[client]), int(self.offsets[client] + self.sizes[client]))
        return self.x[span], self.y[span]

    def take(self, index: Tensor, sizes: Tensor) -> Samples:
        """Return the samples at some indices.

        Args:
            index: Indices of samples, client by client.
            sizes: How many of the indices belong to each client, ``[m]``.

        Returns:
            The samples, copied.
        """
        return Samples(self.x[index], self.y[index], sizes)

    def to(self, device: torch.device, dtype: torch.dtype) -> Samples:
        """Return the same samples on a device, with floating-point entries in ``dtype``.

        Args:
            device: Where the samples are to be.
            dtype: Data type of floating-point entries.
        """
        x, y = (t.to(device, dtype if t.is_floating_point() else t.dtype) for t in (self.x, self.y))
        return Samples(x, y, self.sizes.to(device))


@dataclass(frozen=True)
class ClientData:
    """Training and test samples of every client.

    ``ClientData.from_frame`` makes it from a table with a client column, ``ClientData.from_arrays``
    from arrays, tensors, Datasets or DataLoaders. Both check what they are given.

    Args:
        client_ids: The clients' names, all different.
        train: Training samples.
        test: Test samples of the same clients, or None.
        truth: The true partition, where it is known.
        optima: The best model of each true cluster, ``[k*, P]``, where it is known.
        schema: How the samples were made from a table, if they were.

    Examples:
        >>> x, y = torch.randn(8, 3), torch.randn(8)
        >>> ClientData.from_arrays({"ann": (x, y), "bob": (x[:5], y[:5])})
        ClientData(2 clients, 5 to 8 training samples of shape (3,), no test data)
    """

    client_ids: tuple[str, ...]
    train: Samples
    test: Samples | None = None
    truth: Partition | None = None
    optima: Tensor | None = None
    schema: Schema | None = None

    @classmethod
    def from_arrays(
        cls,
        train: Mapping[str, Source] | Sequence[Source],
        test: Mapping[str, Source] | Sequence[Source] | None = None,
        truth: Partition | ArrayLike | None = None,
        optima: ArrayLike | Tensor | None = None,
    ) -> ClientData:
        """Return client data made from ``(x, y)`` of each client, checked.

        Args:
            train: Each client's arrays or tensors ``(x, y)`` by client id, or in order (the ids are
                then "0", "1", ...). Anything that yields pairs can stand for a tuple: a Dataset, a
                DataLoader, a generator.
            test: Test data of the same clients, in the same form.
            truth: The true cluster of each client, ``[m]``, where it is known.
            optima: The best model of each true cluster, ``[k*, P]``, where it is known.

        Returns:
            The clients, in the order that was given.

        Raises:
            InputError: If a client has no samples, samples of another shape or type than the first
                client's, or a NaN or an infinity; if ``train`` and ``test`` have different clients;
                if ``truth`` has a different length. The message names the client.

        Examples:
            >>> x, y = torch.randn(8, 3), torch.tensor([0, 1] * 4)
            >>> ClientData.from_arrays([(x, y), (-x, y)], truth=[0, 1])
            ClientData(2 clients, 8 training samples of shape (3,), no test data, 2 true clusters)
        """
        train = _by_id(train)
        require(len(train) > 0, "a federation needs at least one client")
        client_ids = tuple(train)
        train_samples = _concatenate(train, "training")
        test_samples = None
        if test is not None:
            test = _by_id(test)
            if set(test) != set(train):
                unmatched = sorted(set(test) ^ set(train))[0]
                raise InputError(f"client {unmatched!r} has training or test data, but not both")
            ordered = {client_id: test[client_id] for client_id in client_ids}
            test_samples = _concatenate(ordered, "test", train_samples)
        if truth is not None and not isinstance(truth, Partition):
            truth = Partition(np.asarray(truth))
        if truth is not None:
            require(
                len(truth) == len(client_ids),
                f"the true partition has {len(truth)} labels for {len(client_ids)} clients",
            )
        rows = None if optima is None else torch.as_tensor(optima)
        return cls(client_ids, train_samples, test_samples, truth, rows)

    @classmethod
    def from_frame(
        cls,
        table: Any,
        *,
        client: str,
        target: str,
        features: Sequence[str] | None = None,
        test: str | float | None = None,
        cluster: str | None = None,
        target_kind: TargetKind | None = None,
        standardize: bool | None = None,
        missing: Literal["error", "drop"] = "error",
        seed: int = 0,
    ) -> ClientData:
        """Return the rows of a table as client data, checked.

        Numbers and truth values are inputs; strings and categories become an input for each
        different one. Labels can be strings: ``schema.classes`` has them in order.

        Args:
            table: A data frame of pandas or polars, a pyarrow table, a Hugging Face ``Dataset``, or
                a dict of arrays.
            client: The column that names the client of each row: strings or whole numbers.
            target: The column to predict.
            features: The feature columns; None is all columns without another purpose. A column of
                arrays, such as images or embeddings, must be the only feature.
            test: A column that says which rows are for testing ("train" and "test", or 0 and 1), or
                the fraction of each client's rows to draw for testing. None is no test data.
            cluster: The column of the true cluster of each row's client, if it is known.
            target_kind: ``"classes"`` or ``"values"``. It can be left out unless both make sense,
                as for 0.0 and 1.0.
            standardize: Whether numbers, and targets that are values, get mean 0 and standard
                deviation 1 over all training rows; None does so for everything but arrays.
            missing: ``"drop"`` leaves out rows with a missing value in a column that is used.
            seed: Decides which rows are drawn for testing.

        Returns:
            The clients, in the order of their first rows. ``schema`` says how the columns became
            tensors.

        Raises:
            InputError: If a column is not there, has missing values, or is neither numbers nor
                strings; if it is unclear what the target is; if a client has no training samples.
                The message names the column or the client, and says what to do.

        Examples:
            >>> table = {"shop": ["a", "b"] * 4, "age": range(8), "buys": ["no", "yes"] * 4}
            >>> data = ClientData.from_frame(table, client="shop", target="buys", test=0.25)
            >>> data
            ClientData(2 clients, 3 training samples of shape (1,), 2 test samples)
            >>> data.schema.classes
            ('no', 'yes')
        """
        from srfca.data.frames import from_frame

        return from_frame(
            table, client=client, target=target, features=features, test=test, cluster=cluster,
            target_kind=target_kind, standardize=standardize, missing=missing, seed=seed,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.client_ids)

    def select(self, client: int) -> ClientData:
        """Return the data of one client, under the same id.

        Args:
            client: The client's index.

        Raises:
            InputError: If there is no client with this index.

        Examples:
            >>> data = ClientData.from_arrays([(torch.ones(3, 2), torch.ones(3))] * 4)
            >>> data.select(2).client_ids
            ('2',)
        """
        require(0 <= client < len(self), f"clients are numbered 0 to {len(self) - 1}, not {client}")
        client_id = self.client_ids[client]
        test = None if self.test is None else {client_id: self.test.of(client)}
        selected = ClientData.from_arrays({client_id: self.train.of(client)}, test)
        return replace(selected, schema=self.schema)

    def fingerprint(self) -> str:
        """Return a digest of the client ids, all samples and the true partition."""
        digest = sha256(repr(self.client_ids).encode())
        for samples in [self.train, *([] if self.test is None else [self.test])]:
            for tensor in (samples.x, samples.y, samples.sizes):
                digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        if self.truth is not None:
            digest.update(self.truth.labels.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        low, high = int(self.train.sizes.min()), int(self.train.sizes.max())
        sizes = str(low) if low == high else f"{low} to {high}"
        test = "no test data" if self.test is None else f"{len(self.test.x)} test samples"
        truth = "" if self.truth is None else f", {self.truth.num_clusters} true clusters"
        shape = tuple(self.train.x.shape[1:])
        count = f"{len(self)} client{'s' * (len(self) != 1)}"
        return f"ClientData({count}, {sizes} training samples of shape {shape}, {test}{truth})"


def hold_out(data: ClientData, fraction: float, seed: int) -> tuple[Samples, Samples]:
    """Split each client's training samples into training and validation samples.

    ``floor(fraction * n)`` of a client's n samples are held out, and at least one. Which ones
    depends only on the seed and the client's id.

    Args:
        data: The client data.
        fraction: The fraction to hold out, in [0, 1); 0 holds out nothing.
        seed: Decides which samples are held out.

    Returns:
        The training samples and the validation samples, each in their original order.

    Raises:
        InputError: If the fraction is out of range, or a client has only one sample to split.

    Examples:
        >>> data = ClientData.from_arrays([(torch.ones(20, 2), torch.ones(20))] * 3)
        >>> train, validation = hold_out(data, 0.25, seed=0)
        >>> train.sizes.tolist(), validation.sizes.tolist()
        ([15, 15, 15], [5, 5, 5])
    """
    require(
        is_number(fraction) and 0 <= fraction < 1,
        f"validation must be in [0, 1), not {fraction}",
    )
    sizes = data.train.sizes
    counts = (sizes * fraction + 1e-9).floor().long()
    if fraction > 0:
        if bool((sizes < 2).any()):
            small = [data.client_ids[client] for client in (sizes < 2).nonzero().flatten().tolist()]
            raise InputError(
                f"{few_rows(small)} one training sample, so that none can be held out for "
                "validation: leave out clients with one, or set validation=0, which needs test data"
            )
        counts = counts.clamp(min=1)
    client_streams = streams(Key(seed, "validation"), client_words(data.client_ids))
    train, validation = [], []
    for client, (start, size) in enumerate(zip(data.train.offsets, sizes, strict=True)):
        order = bits(client_streams[client], int(size)).argsort()
        held_out, remaining = order[: counts[client]], order[counts[client] :]
        train.append(start + remaining.sort().values)
        validation.append(start + held_out.sort().values)
    return (
        data.train.take(torch.cat(train), sizes - counts),
        data.train.take(torch.cat(validation), counts),
    )


def few_rows(client_ids: Sequence[str]) -> str:
    """Return the beginning of a sentence about clients that have too few rows.

    >>> few_rows(["ulm"]), few_rows(["ulm", "bonn"])
    ("client 'ulm' has", "2 clients, such as 'ulm', have")
    """
    if len(client_ids) == 1:
        return f"client {client_ids[0]!r} has"
    return f"{len(client_ids)} clients, such as {client_ids[0]!r}, have"


def _by_id(sources: Mapping[str, Source] | Sequence[Source]) -> dict[str, Source]:
    """Return sources by client id, all ids strings."""
    if isinstance(sources, Mapping):
        by_id = {str(client_id): source for client_id, source in sources.items()}
        require(len(by_id) == len(sources), "two clients have the same name")
        return by_id
    return {str(client): source for client, source in enumerate(sources)}


def _concatenate(sources: dict[str, Source], kind: str, like: Samples | None = None) -> Samples:
    """Check every client's samples and concatenate them.

    Args:
        sources: Each client's samples.
        kind: "training" or "test", for error messages.
        like: Samples whose shapes and types must match; the first client's if None.
    """
    xs: list[Tensor] = []
    ys: list[Tensor] = []
    reference = None if like is None else (like.x, like.y)
    reference_name = "the training data"
    for client_id, source in sources.items():
        context = f"client {client_id!r}, {kind} data"
        x, y = as_arrays(source, context)
        _check_lengths(x, y, context)
        _check_finite("x", x, context)
        _check_finite("y", y, context)
        y = y if y.is_floating_point() else y.long()
        if reference is None:
            reference, reference_name = (x, y), f"client {client_id!r}"
        _check_alike("x", x, reference[0], context, reference_name)
        _check_alike("y", y, reference[1], context, reference_name)
        xs.append(x)
        ys.append(y)
    sizes = torch.tensor([len(x) for x in xs])
    return Samples(torch.cat(xs), torch.cat(ys), sizes)


def _check_lengths(x: Tensor, y: Tensor, context: str) -> None:
    """Require at least one sample, and a target for each input."""
    require(x.ndim >= 1 and len(x) > 0, f"{context}: there are no samples")
    require(
        y.ndim >= 1 and len(x) == len(y),
        f"{context}: {len(x)} inputs but {len(y) if y.ndim else 'one'} targets",
    )


def _check_finite(name: str, values: Tensor, context: str) -> None:
    """Require that floating-point values are finite."""
    if not values.is_floating_point() or bool(values.isfinite().all()):
        return
    sample = int((~values.isfinite()).nonzero()[0, 0])
    raise InputError(f"{context}: {name} has a NaN or an infinity in sample {sample}")


def _check_alike(
    name: str, values: Tensor, reference: Tensor, context: str, reference_name: str
) -> None:
    """Require samples of the reference's shape, floating-point where the reference is."""
    require(
        values.shape[1:] == reference.shape[1:],
        f"{context}: {name} has samples of shape {tuple(values.shape[1:])}, "
        f"but {reference_name} has {tuple(reference.shape[1:])}",
    )
    require(
        values.is_floating_point() == reference.is_floating_point(),
        f"{context}: {name} is of type {values.dtype}, "
        f"but in {reference_name} of {reference.dtype}",
    )
