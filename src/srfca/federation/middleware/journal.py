"""A journal of what clients have answered, so that a run that was killed goes on where it was.

The run is started again, and its questions are answered from the journal as far as that goes. Every
draw depends on what it is for alone, so the rest is what it would have been.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from srfca.errors import InputError, require
from srfca.federation.base import (
    Absence,
    Federation,
    Focus,
    Mixture,
    Sample,
    Scores,
    Split,
    Tick,
    Wire,
    Work,
    silent,
)
from srfca.federation.wrapped import Wrapped
from srfca.files import replace_file, writable_folder
from srfca.random import Key

FORMAT = 2


@dataclass(frozen=True)
class Entry:
    """An answer, or where a training stands."""

    what: str
    """Tells it from others."""
    tensors: Mapping[str, Tensor]
    absences: tuple[Absence, ...] = ()
    after: int = 0
    """Of a checkpoint: how many questions had been asked."""


class Journal:
    """Entries in a folder, one file each, in the order of the questions.

    Args:
        folder: Where they are; it is made if need be.
        about: What the run is: a journal of another run is refused.
    """

    def __init__(self, folder: str | Path, about: Mapping[str, Any]) -> None:
        self.folder = writable_folder(Path(folder))
        self.absences: tuple[Absence, ...] = ()
        """Of the entries that have been read."""
        self._at = 0
        self._mark = 0
        self._since_mark: tuple[Absence, ...] = ()
        plain = json.loads(json.dumps({"format": FORMAT, **about}))
        known = read_about(self.folder)
        if known is None:
            text = json.dumps(plain, indent=1) + "\n"
            replace_file(self.folder / "journal.json", text.encode())
        elif known != plain:
            odd = sorted(key for key in {*known, *plain} if known.get(key) != plain.get(key))
            raise InputError(f"{self.folder} is the journal of another run: its {odd[0]} is not so")

    def next(self, what: str) -> Entry | None:
        """The answer to the next question, if it was given before."""
        entry = self._read(self._path(self._at))
        if entry is None:
            return None
        require(
            entry.what == what,
            f"{self.folder} is the journal of another run: question {self._at} is not the same",
        )
        self._at += 1
        self.absences += entry.absences
        self._since_mark += entry.absences
        return entry

    def write(self, entry: Entry) -> None:
        """Write down the answer to the next question."""
        self._write(self._path(self._at), entry)
        self._at += 1
        self._since_mark += entry.absences

    def latest(self, what: str) -> Mapping[str, Tensor] | None:
        """How far a training had come that begins now."""
        self._mark, self._since_mark = self._at, ()
        entry = self._read(self._path(self._mark, ".checkpoint"))
        if entry is None or entry.what != what:
            return None
        self._at = entry.after
        self.absences += entry.absences
        self._since_mark = entry.absences
        return entry.tensors

    def checkpoint(self, what: str, tensors: Mapping[str, Tensor]) -> None:
        """Write down how far a training has come; the answers that led there are dropped."""
        path = self._path(self._mark, ".checkpoint")
        self._write(path, Entry(what, tensors, self._since_mark, self._at))
        for number in range(self._mark, self._at):
            self._path(number).unlink(missing_ok=True)

    def _path(self, number: int, kind: str = "") -> Path:
        return self.folder / f"{number:06d}{kind}.safetensors"

    def _write(self, path: Path, entry: Entry) -> None:
        about = {
            "what": entry.what,
            "after": str(entry.after),
            "absences": json.dumps([asdict(absence) for absence in entry.absences]),
        }
        tensors = {name: t.detach().cpu().contiguous() for name, t in entry.tensors.items()}
        replace_file(path, save(tensors, about))

    def _read(self, path: Path) -> Entry | None:
        if not path.exists():
            return None
        try:
            with safe_open(path, "pt") as file:
                about = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path} is damaged: {error}") from error
        absences = tuple(Absence(**each) for each in json.loads(about["absences"]))
        return Entry(about["what"], tensors, absences, int(about["after"]))


def read_about(folder: Path) -> dict[str, Any] | None:
    """What the run of a journal is, None if there is no journal."""
    try:
        found: dict[str, Any] = json.loads((folder / "journal.json").read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder / 'journal.json'} is damaged: {error}") from error
    return found


class Journaled(Wrapped):
    """A federation whose answers are written down, and read where they are known."""

    def __init__(self, federation: Federation, journal: Journal) -> None:
        super().__init__(federation)
        self.journal = journal
        self._replayed: list[Callable[[], Tensor]] = []

    @property
    def wire(self) -> Wire:
        """What has gone over the wire now; absences also of the time before."""
        now = self.federation.wire
        absences = self.journal.absences + now.absences
        return Wire(now.messages, now.bytes_down, now.bytes_up, absences)

    def fit(
        self,
        starts: Tensor,
        clients: Sequence[int],
        work: Work,
        key: Key,
        tick: Tick = silent,
        anchors: Tensor | None = None,
        focus: Focus | None = None,
    ) -> Tensor:
        """``[c, P]`` each client trains from its row.

        What optimisers keep between rounds is not written down: the rounds before are done again.
        """

        def trained(tick: Tick = silent) -> Tensor:
            return self.federation.fit(starts, clients, work, key, tick, anchors, focus)

        def live() -> dict[str, Tensor]:
            for earlier in self._replayed:
                earlier()
            self._replayed.clear()
            return {"rows": trained(tick)}

        if key.round == 0 or not work.keep_state:
            self._replayed.clear()
        parts = (*_of_focus(focus), anchors)
        about = ("fit", asdict(work), asdict(key), list(clients))
        found, known = self._once(about, (starts, *parts), live)
        if known:
            tick(len(clients) * len(work.span(key.round)))
            if work.keep_state:
                self._replayed.append(trained)
        return found["rows"]

    def gradients(self, at: Tensor, clients: Sequence[int]) -> Tensor:
        """``[c, P]`` each client's gradient at its row."""
        about = ("gradients", list(clients))
        return self._once(about, (at,), lambda: {"rows": self.federation.gradients(at, clients)})[
            0
        ]["rows"]

    def losses(
        self,
        models: Tensor,
        clients: Sequence[int],
        split: Split = "train",
        sample: Sample | None = None,
    ) -> Tensor:
        """``[k, c]`` mean loss of every model on every client's samples, or on some of them."""
        about = ("losses", list(clients), split, None if sample is None else asdict(sample))

        def live() -> dict[str, Tensor]:
            return {"losses": self.federation.losses(models, clients, split, sample)}

        return self._once(about, (models,), live)[0]["losses"]

    def shares(self, models: Tensor | Mixture, clients: Sequence[int]) -> Tensor:
        """``[c, k]`` the share of each client's training samples that each model accounts for."""
        about = ("shares", list(clients))
        return self._once(
            about, _of_models(models), lambda: {"shares": self.federation.shares(models, clients)}
        )[0]["shares"]

    def scores(
        self, models: Tensor | Mixture, clients: Sequence[int], split: Split = "test"
    ) -> Scores:
        """Loss and accuracy of each client's own row, or mixture, on its own data."""

        def live() -> dict[str, Tensor]:
            scores = self.federation.scores(models, clients, split)
            found = {"loss": scores.loss, "n": scores.n}
            return found if scores.accuracy is None else {**found, "accuracy": scores.accuracy}

        found, _ = self._once(("scores", list(clients), split), _of_models(models), live)
        accuracy = found["accuracy"].cpu() if "accuracy" in found else None
        return Scores(found["loss"].cpu(), accuracy, found["n"].cpu())

    def subspaces(self, clients: Sequence[int], rank: int) -> Tensor:
        """``[c, features, rank]`` leading left singular vectors of each client's inputs."""
        about = ("subspaces", list(clients), rank)
        return self._once(about, (), lambda: {"bases": self.federation.subspaces(clients, rank)})[
            0
        ]["bases"]

    def _once(
        self,
        about: tuple[Any, ...],
        tensors: Sequence[Tensor | None],
        live: Callable[[], dict[str, Tensor]],
    ) -> tuple[Mapping[str, Tensor], bool]:
        """An answer, and whether it was in the journal."""
        what = _digest(about, tensors)
        entry = self.journal.next(what)
        if entry is not None:
            device = self.federation.sizes.device
            return {name: tensor.to(device) for name, tensor in entry.tensors.items()}, True
        before = len(self.federation.wire.absences)
        found = live()
        absences = self.federation.wire.absences[before:]
        self.journal.write(Entry(what, found, absences))
        return found, False


def _of_models(models: Tensor | Mixture) -> tuple[Tensor, ...]:
    return (models.models, models.weights) if isinstance(models, Mixture) else (models,)


def _of_focus(focus: Focus | None) -> tuple[Tensor | None, ...]:
    return (None,) if focus is None else (*_of_models(focus.mixture), focus.component)


def _digest(about: tuple[Any, ...], tensors: Sequence[Tensor | None]) -> str:
    """Tells questions apart."""
    found = blake2b(json.dumps(about).encode(), digest_size=16)
    for tensor in tensors:
        found.update(str(None if tensor is None else (tuple(tensor.shape), tensor.dtype)).encode())
        if tensor is not None:
            whole = tensor.detach().cpu().contiguous()
            found.update(whole.view(torch.uint8).numpy().data if whole.numel() else b"")
    return found.hexdigest()
