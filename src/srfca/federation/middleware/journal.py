"""A journal of replies, so that a run that was killed resumes where it stopped.

A run that is started again sends the same requests, because every draw depends only on what it is
for. The journal answers them as far as it goes, and the clients answer the rest.

Every entry has a checksum, over the run, the entry's place and all that it holds. A damaged entry
is refused, never replaced: real clients may give another reply than the one that the run went on
with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from srfca import progress
from srfca.errors import InputError, require
from srfca.federation.local_training import KEPT_TRAININGS
from srfca.federation.middleware.base import Middleware
from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores, Replies, T
from srfca.federation.requests import Collect, Personal, Request, Round, Scores, Train
from srfca.files import replace_file, writable_folder
from srfca.json_files import damaged, read_json, write_json

FORMAT = 4
JOURNAL_FILE = "journal.json"
_REMEDY = "delete the folder of the journal to start the run again"

Training = tuple[int, str]
"""Seed and purpose of a training."""


@dataclass(frozen=True)
class Entry:
    """A reply, or the checkpoint of a training."""

    digest: str
    """Identifies the request, or the training."""
    tensors: Mapping[str, Tensor]
    missing: Mapping[int, str] = field(default_factory=dict)
    requests: int = 0
    """Number of requests before a checkpoint."""


class Journal:
    """Entries in a folder, one file each, in the order of the requests.

    Args:
        folder: Where they are; created if it does not exist.
        identity: What the run is; the journal of another run is refused.

    Raises:
        InputError: If the folder cannot be written, or belongs to another run.

    Examples:
        >>> import tempfile
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import FedAvg
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> method = FedAvg(local=LocalTraining(steps=10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, resumed = (method.fit(fed, journal=f"{folder}/journal") for _ in range(2))
        >>> first.models.equal(resumed.models)
        True
    """

    def __init__(self, folder: str | Path, identity: Mapping[str, Any]) -> None:
        self.folder = writable_folder(Path(folder))
        self._position = 0
        self._start_of_training = 0
        plain = json.loads(json.dumps(dict(identity)))
        self._key = blake2b(json.dumps(plain, sort_keys=True).encode(), digest_size=16).digest()
        stored = read_identity(self.folder)
        if stored is None:
            write_json(self.folder / JOURNAL_FILE, plain, FORMAT)
        elif stored != plain:
            keys = sorted({*stored, *plain})
            key = next(key for key in keys if stored.get(key) != plain.get(key))
            raise InputError(
                f"{self.folder} is the journal of another run: {key} differs "
                f"(journal: {_shorten(stored.get(key))}, now: {_shorten(plain.get(key))}): "
                "choose another folder, or delete this one"
            )

    def next(self, digest: str) -> Entry | None:
        """Return the reply to the next request, None if it is not in the journal.

        Args:
            digest: Digest of the request.

        Raises:
            InputError: If the journal has the reply to another request there.
        """
        entry = self._read(self._path(self._position))
        if entry is None:
            return None
        require(
            entry.digest == digest,
            f"{self.folder} is the journal of another run: request {self._position} differs: "
            f"{_REMEDY}",
        )
        self._position += 1
        return entry

    def write(self, entry: Entry) -> None:
        """Write the reply to the next request.

        Args:
            entry: The reply, with the digest of its request.
        """
        self._write(self._path(self._position), entry)
        self._position += 1

    def latest(self, training: str) -> Mapping[str, Tensor] | None:
        """Return the checkpoint of a training that begins now, if there is one.

        Args:
            training: Its name.

        Returns:
            Its state by name; None if there is no checkpoint.
        """
        self._start_of_training = self._position
        entry = self._read(self._path(self._start_of_training, ".checkpoint"))
        if entry is None or entry.digest != training:
            return None
        self._position = entry.requests
        return entry.tensors

    def checkpoint(self, training: str, tensors: Mapping[str, Tensor]) -> None:
        """Write the state of a training, and delete the replies that led to it.

        Args:
            training: Its name.
            tensors: Its state by name.
        """
        path = self._path(self._start_of_training, ".checkpoint")
        self._write(path, Entry(training, tensors, requests=self._position))
        for number in range(self._start_of_training, self._position):
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int, kind: str = "") -> Path:
        return self.folder / f"{number:06d}{kind}.safetensors"

    def _write(self, path: Path, entry: Entry) -> None:
        metadata = {
            "digest": entry.digest,
            "requests": str(entry.requests),
            "missing": json.dumps(
                {str(client): reason for client, reason in entry.missing.items()}
            ),
        }
        tensors = {name: t.detach().cpu().contiguous() for name, t in entry.tensors.items()}
        metadata["checksum"] = self._checksum(path, metadata, tensors)
        replace_file(path, save(tensors, metadata))

    def _read(self, path: Path) -> Entry | None:
        if not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                metadata = dict(file.metadata() or {})
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, ValueError, SafetensorError) as error:
            raise damaged(path, str(error), _REMEDY) from error
        if metadata.pop("checksum", None) != self._checksum(path, metadata, tensors):
            raise damaged(path, "its checksum does not match", _REMEDY)
        missing = {int(c): reason for c, reason in json.loads(metadata["missing"]).items()}
        return Entry(metadata["digest"], tensors, missing, int(metadata["requests"]))

    def _checksum(
        self, path: Path, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]
    ) -> str:
        """Return the checksum of an entry of this run at this place."""
        digest = blake2b(digest_size=16, key=self._key)
        for part in _parts([path.name, sorted(metadata.items()), sorted(tensors.items())]):
            digest.update(part)
        return digest.hexdigest()


def read_identity(folder: Path) -> dict[str, Any] | None:
    """Return what the run of a journal is, None if there is no journal."""
    try:
        return read_json(folder / JOURNAL_FILE, FORMAT, _REMEDY)
    except FileNotFoundError:
        return None


class Journaling(Middleware):
    """Answer requests from a journal, and write the replies to new ones into it.

    Clients may keep state between the rounds of a training (``Train.stateful``). It is not written:
    before the first new request that needs this state, the rounds that led to it are trained again.

    Args:
        federation: Where new requests are passed on to.
        journal: What has been answered.

    Examples:
        >>> import tempfile
        >>> from srfca import Simulation, data, models
        >>> from srfca.federation import Gradients
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> request = Gradients(range(4), fed.initial_model(0).repeat(4, 1))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asked, resumed = (
        ...         Journaling(fed, Journal(folder, {"run": 1})).ask(request) for _ in range(2)
        ...     )
        >>> asked.values.equal(resumed.values)
        True
    """

    def __init__(self, federation: Federation, journal: Journal) -> None:
        super().__init__(federation)
        self.journal = journal
        self._replayed: dict[Training, list[Train | Round]] = {}

    @property
    def answers_rounds(self) -> bool:
        """As the federation inside."""
        return self.federation.answers_rounds

    def ask(self, request: Request[T]) -> Replies[T]:
        """Answer from the journal, or pass a request on and write the replies."""
        training = _state_of(request)
        if isinstance(request, Train | Round) and request.key.round == 0:
            self._replayed.pop((request.key.seed, request.key.purpose), None)
        digest = digest_of(request)
        entry = self.journal.next(digest)
        if entry is not None:
            return self._replay(request, entry)
        with progress.reporting_to(progress.ignore):
            for earlier in self._replayed.pop(training, ()) if training else ():
                self.federation.ask(earlier)
        replies = self.federation.ask(request)
        self.journal.write(Entry(digest, _tensors_of(replies.values), replies.missing))
        return replies

    def _replay(self, request: Request[T], entry: Entry) -> Replies[T]:
        if isinstance(request, Train | Round):
            progress.report(len(request.clients) * len(request.local.span(request.key.round)))
            if (training := _state_of(request)) is not None:
                self._remember(training, request)
        device = self.federation.sizes.device
        return Replies(request.clients, _values_of(entry.tensors, device), entry.missing)

    def _remember(self, training: Training, request: Train | Round) -> None:
        """Note a round that may have to be trained again.

        Optimizer states are kept for the last trainings, personal coordinates for all.
        """
        self._replayed[training] = [*self._replayed.pop(training, []), request]
        transient = [
            training for training, rounds in self._replayed.items() if not _is_personal(rounds[0])
        ]
        for oldest in transient[:-KEPT_TRAININGS]:
            del self._replayed[oldest]


def digest_of(request: Request[Any]) -> str:
    """Return a digest that identifies a request: its kind, its settings and its tensors."""
    digest = blake2b(digest_size=16)
    for part in _parts(request):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """Yield the content of a request or an entry, field by field."""
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous()
        yield f"{tuple(content.shape)} {content.dtype}".encode()
        yield content.flatten().view(torch.uint8).numpy().data if content.numel() else b""
    elif isinstance(value, np.ndarray):
        yield f"{value.shape} {value.dtype}".encode() + value.tobytes()
    elif is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        for entry in fields(value):
            yield entry.name.encode()
            yield from _parts(getattr(value, entry.name))
    elif isinstance(value, tuple | list):
        yield f"[{len(value)}]".encode()
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()


def _state_of(request: Request[Any]) -> Training | None:
    """Return the training whose state at the clients a request needs, None if it needs none."""
    match request:
        case Train(key=key) if request.stateful:
            return key.seed, key.purpose
        case Round(key=key) if request.local.stateful:
            return key.seed, key.purpose
        case Scores(personal=Personal(seed=seed, purpose=purpose)):
            return seed, purpose
        case Collect(personal=Personal(seed=seed, purpose=purpose)):
            return seed, purpose
    return None


def _is_personal(request: Train | Round) -> bool:
    return isinstance(request, Train) and request.personal is not None


def _tensors_of(values: Tensor | ClientScores) -> dict[str, Tensor]:
    if isinstance(values, Tensor):
        return {"values": values}
    tensors = {"loss": values.loss, "num_samples": values.num_samples}
    return tensors if values.accuracy is None else {**tensors, "accuracy": values.accuracy}


def _values_of(tensors: Mapping[str, Tensor], device: torch.device) -> Any:
    if "values" in tensors:
        return tensors["values"].to(device)
    return ClientScores(tensors["loss"], tensors.get("accuracy"), tensors["num_samples"])


def _shorten(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
