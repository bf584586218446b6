"""From a request of a method to the message for each of its clients.

A row is sent once: messages refer to it by its name, a hash of its content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from flwr.app import Array
from torch import Tensor

from srfca.errors import InputError, require
from srfca.federation.algorithms import Descent, LocalAlgorithm
from srfca.federation.compression import num_words
from srfca.federation.coordinates import Coordinates
from srfca.federation.mixture import Mixture
from srfca.federation.replies import Clients
from srfca.federation.requests import (
    BootstrapLosses,
    DataMoments,
    Gradients,
    LossMoments,
    OutputMoments,
    Outputs,
    Personal,
    SharedSamples,
    Shares,
    Subspaces,
    Train,
)
from srfca.flower.records import Value, pack, row_name
from srfca.flower.transport import ClientRequest

ALGORITHM = "algorithm."
"""Prefix of the roles of a local algorithm's tensors."""
INPUTS = "inputs"
"""Role of inputs that clients are sent."""


class RowTable:
    """Rows by name, as they are sent."""

    def __init__(self) -> None:
        self.rows: dict[str, Array] = {}

    def add(self, rows: Tensor) -> list[str | None]:
        """Add rows ``[k, ...]``, and return their names; None for one that is infinite or NaN."""
        are_equal = len(rows) > 1 and rows.stride(0) == 0
        names: list[str | None] = []
        for row in rows[:1] if are_equal else rows:
            if not bool(row.isfinite().all()):
                names.append(None)
                continue
            packed = pack(row)
            name = row_name(packed)
            names.append(name)
            self.rows.setdefault(name, packed)
        return names * len(rows) if are_equal else names


@dataclass(frozen=True)
class Messages:
    """The messages of one request.

    Args:
        requests: What each client is asked, by position.
        table: The rows that they refer to.
        unsendable: The reason for each client that cannot be asked, by position.
    """

    requests: Mapping[int, ClientRequest]
    table: RowTable
    unsendable: Mapping[int, str] = field(default_factory=dict)


def entries_of(clients: Clients) -> dict[int, list[int]]:
    """Return the entries of each client in a request, by position.

    >>> import numpy as np
    >>> entries_of(np.array([3, 1, 3]))
    {3: [0, 2], 1: [1]}
    """
    entries: dict[int, list[int]] = {}
    for entry, client in enumerate(clients.tolist()):
        entries.setdefault(client, []).append(entry)
    return entries


def train_messages(request: Train, length: int) -> Messages:
    """Return the messages that let clients train; each sends the coordinates that travel."""
    starts = check_rows(request.starts, length, len(request.clients))
    table, sent, algorithm = RowTable(), request.sent, request.algorithm
    names = {"starts": table.add(starts if sent is None else sent.take(starts))}
    for name, tensor in algorithm.tensors().items():
        require(
            len(tensor) == len(request.clients),
            f"{name!r} of the local algorithm {algorithm.key!r} must have a row for each of the "
            f"{len(request.clients)} entries, not {len(tensor)}",
        )
        names[f"{ALGORITHM}{name}"] = table.add(tensor)
    key, local = request.key, request.local
    if not request.compressed:
        local = replace(local, compress=None)
    values: dict[str, Value] = {
        "local": json.dumps(asdict(local)),
        "key": json.dumps([key.seed, key.purpose, key.round]),
        "algorithm": algorithm.key,
        "settings": _settings_json(algorithm),
    }
    if request.personal is not None:
        values["personal"] = personal_json(Personal(request.personal, key.seed, key.purpose))
    width = length if sent is None else len(sent)
    messages = _row_messages(request.clients, names, table, values, width, starts.dtype)
    if local.compress is not None:
        messages = _compressed(messages, request.clients, num_words(width, local.compress))
    if isinstance(algorithm, Descent) and algorithm.posterior is not None:
        posterior = algorithm.posterior
        components = {"component": posterior.component}
        return _with_mixture(messages, request.clients, posterior.mixture, length, components)
    return messages


def gradient_messages(request: Gradients, length: int) -> Messages:
    """Return the messages that ask for gradients."""
    models = check_rows(request.models, length, len(request.clients))
    table = RowTable()
    names = {"models": table.add(models)}
    return _row_messages(request.clients, names, table, {}, length, models.dtype)


def share_messages(request: Shares, length: int, num_groups: int) -> Messages:
    """Return the messages that ask for the shares of models, or of a mixture's components.

    Args:
        request: The request.
        length: P
        num_groups: Classes that shares are given by; 0 for none.
    """
    groups = (num_groups,) if request.by_class else ()
    values: dict[str, Value] = {"by_class": request.by_class}
    if isinstance(request.models, Mixture):
        shape = (len(request.models.models), *groups)
        return mixture_messages(request.clients, request.models, length, "shares", shape, values)
    table = RowTable()
    models = check_rows(request.models, length)
    names = table.add(models)
    rows = _all_names(names)
    if rows is None:
        return _unsendable(request.clients, table)
    expects = {"shares": ((1, len(models), *groups), torch.float64)}
    ask = ClientRequest(expects, values, {"models": rows})
    return Messages(dict.fromkeys(request.clients.tolist(), ask), table)


def moment_messages(request: LossMoments | OutputMoments, length: int, width: int) -> Messages:
    """Return the messages that ask for moments, of which there are ``width`` for each model."""
    table = RowTable()
    models = check_rows(request.models, length)
    rows = _all_names(table.add(models))
    if rows is None:
        return _unsendable(request.clients, table)
    values: dict[str, Value] = {"splits": [str(split) for split in request.splits]}
    if isinstance(request, LossMoments):
        require(
            request.scales.shape == (len(models),) and bool((request.scales > 0).all()),
            f"scales must be {len(models)} positive numbers, one for each model",
        )
        values["scales"] = request.scales.double().tolist()
    expects = {"moments": ((1, len(models), width), torch.float64)}
    ask = ClientRequest(expects, values, {"models": rows})
    return Messages(dict.fromkeys(request.clients.tolist(), ask), table)


def bootstrap_messages(request: BootstrapLosses, length: int) -> Messages:
    """Return the messages that ask clients to compare models on their samples and on resamples."""
    table = RowTable()
    models = check_rows(request.models, length)
    rows = _all_names(table.add(models))
    if rows is None:
        return _unsendable(request.clients, table)
    values: dict[str, Value] = {
        "splits": [str(split) for split in request.splits],
        "replicates": request.replicates,
        "seed": request.seed,
    }
    expects = {"compared": ((1, len(models), 3 + len(models)), torch.float64)}
    ask = ClientRequest(expects, values, {"models": rows})
    return Messages(dict.fromkeys(request.clients.tolist(), ask), table)


def data_moment_messages(request: DataMoments, shape: tuple[int, int]) -> Messages:
    """Return the messages that ask for sums of data; a reply has this shape."""
    values: dict[str, Value] = {"splits": [str(split) for split in request.splits]}
    ask = ClientRequest({"moments": ((1, *shape), torch.float64)}, values)
    return Messages(dict.fromkeys(request.clients.tolist(), ask), RowTable())


def mixture_messages(
    clients: Clients,
    mixture: Mixture,
    length: int,
    reply: str,
    shape: tuple[int, ...],
    values: Mapping[str, Value],
) -> Messages:
    """Return the messages that ask about the clients' mixtures, for shares or scores.

    Args:
        clients: The clients of the request.
        mixture: The mixture of each entry.
        length: P
        reply: The name of what clients reply with.
        shape: Its shape, for each entry.
        values: What else the messages say.
    """
    requests = {
        client: ClientRequest({reply: ((len(entries), *shape), torch.float64)}, dict(values))
        for client, entries in entries_of(clients).items()
    }
    return _with_mixture(Messages(requests, RowTable()), clients, mixture, length, {})


def subspace_messages(request: Subspaces, num_features: int) -> Messages:
    """Return the messages that ask for subspaces."""
    shape = (1, num_features, request.num_vectors)
    values = {"rank": request.rank, "num_classes": request.num_classes}
    ask = ClientRequest({"subspaces": (shape, torch.float64)}, values)
    return Messages(dict.fromkeys(request.clients.tolist(), ask), RowTable())


def shared_sample_messages(request: SharedSamples, width: int) -> Messages:
    """Return the messages that ask for samples, each of which has this many numbers."""
    values: dict[str, Value] = {
        "size": request.size, "seed": request.seed, "targets": request.targets,
    }  # fmt: skip
    ask = ClientRequest({"samples": ((1, request.size, width), torch.float64)}, values)
    return Messages(dict.fromkeys(request.clients.tolist(), ask), RowTable())


def output_messages(request: Outputs, length: int, num_outputs: int) -> Messages:
    """Return the messages that ask for outputs on inputs that are sent along."""
    models = check_rows(request.models, length, len(request.clients))
    table = RowTable()
    of_models, of_inputs = table.add(models), table.add(request.inputs.unsqueeze(0))
    if of_inputs == [None]:
        return _unsendable(request.clients, table)
    inputs = [name for name in of_inputs if name is not None]
    shape = (len(request.inputs), num_outputs)
    requests: dict[int, ClientRequest] = {}
    unsendable: dict[int, str] = {}
    for client, entries in entries_of(request.clients).items():
        names = _all_names([of_models[entry] for entry in entries])
        if names is None:
            unsendable[client] = "not sent: models are infinite or NaN"
            continue
        expects = {"outputs": ((len(entries), *shape), models.dtype)}
        requests[client] = ClientRequest(expects, {}, {"models": names, INPUTS: inputs})
    return Messages(requests, table, unsendable)


def check_rows(rows: Tensor, length: int, count: int | None = None) -> Tensor:
    """Return rows after a check of their shape.

    Raises:
        InputError: If they do not have this length, or are not this many.
    """
    is_valid = rows.ndim == 2 and rows.shape[1] == length and count in (None, len(rows))
    number = "" if count is None else f"{count} "
    require(is_valid, f"models must be {number}rows of length {length}, not {tuple(rows.shape)}")
    return rows


def personal_json(personal: Personal) -> str:
    """Return what ``personal_from_json`` reads."""
    ranges = personal.coordinates.ranges
    return json.dumps({"ranges": ranges, "seed": personal.seed, "purpose": personal.purpose})


def personal_from_json(text: str) -> Personal:
    """Return the coordinates that a client keeps to itself, and the training that they are from.

    >>> personal = Personal(Coordinates(((2, 4),)), 0, "demo")
    >>> personal_from_json(personal_json(personal)) == personal
    True
    """
    content = json.loads(text)
    ranges = tuple((int(start), int(stop)) for start, stop in content["ranges"])
    return Personal(Coordinates(ranges), int(content["seed"]), str(content["purpose"]))


def _row_messages(
    clients: Clients,
    names: Mapping[str, Sequence[str | None]],
    table: RowTable,
    values: Mapping[str, Value],
    width: int,
    dtype: torch.dtype,
) -> Messages:
    """Return messages to which each client replies with a row for each of its entries."""
    requests: dict[int, ClientRequest] = {}
    unsendable: dict[int, str] = {}
    for client, entries in entries_of(clients).items():
        by_role = {role: _all_names([rows[e] for e in entries]) for role, rows in names.items()}
        bad = [role for role, rows in by_role.items() if rows is None]
        if bad:
            unsendable[client] = f"not sent: {bad[0].removeprefix(ALGORITHM)} are infinite or NaN"
            continue
        rows = {role: rows for role, rows in by_role.items() if rows is not None}
        requests[client] = ClientRequest({"rows": ((len(entries), width), dtype)}, values, rows)
    return Messages(requests, table, unsendable)


def _compressed(messages: Messages, clients: Clients, words: int) -> Messages:
    """Return messages whose replies are codes of this many words for each entry."""
    entries = entries_of(clients)
    requests = {
        client: replace(
            request, expects={"compressed": ((len(entries[client]), words), torch.int64)}
        )
        for client, request in messages.requests.items()
    }
    return replace(messages, requests=requests)


def _with_mixture(
    messages: Messages,
    clients: Clients,
    mixture: Mixture,
    length: int,
    columns: Mapping[str, Tensor],
) -> Messages:
    """Return messages with the models of a mixture, and the weights of each client's entries.

    Args:
        messages: The messages.
        clients: The clients of the request.
        mixture: The mixture of each entry.
        length: P.
        columns: More integers for each entry, ``[c]``.
    """
    expected = (len(clients), len(mixture.models))
    require(
        tuple(mixture.weights.shape) == expected,
        f"the weights of a mixture must have the shape {expected}, not "
        f"{tuple(mixture.weights.shape)}",
    )
    rows = _all_names(messages.table.add(check_rows(mixture.models, length)))
    if rows is None:
        return _unsendable(clients, messages.table)
    entries = entries_of(clients)
    requests = {}
    for client, request in messages.requests.items():
        weights: list[float] = mixture.weights[entries[client]].double().flatten().tolist()
        values: dict[str, Value] = {**request.values, "weights": weights}
        values |= {name: column[entries[client]].tolist() for name, column in columns.items()}
        if mixture.class_shares is not None:
            values["class_shares"] = mixture.class_shares.double().flatten().tolist()
        requests[client] = ClientRequest(request.expects, values, {**request.rows, "mixture": rows})
    return Messages(requests, messages.table, messages.unsendable)


def _unsendable(clients: Clients, table: RowTable) -> Messages:
    reason = "not sent: models are infinite or NaN"
    return Messages({}, table, dict.fromkeys(clients.tolist(), reason))


def _all_names(names: Sequence[str | None]) -> list[str] | None:
    """Return the names, None if one of the rows is infinite or NaN."""
    present = [name for name in names if name is not None]
    return present if len(present) == len(names) else None


def _settings_json(algorithm: LocalAlgorithm) -> str:
    try:
        return json.dumps(algorithm.settings())
    except TypeError as error:
        raise InputError(
            f"the settings of the local algorithm {algorithm.key!r} cannot be sent as JSON: {error}"
        ) from error
