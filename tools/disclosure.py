"""What each method and each distance reveals: to the server, and to the other clients.

    python -m tools.disclosure            # write the tables of docs/privacy.md
    python -m tools.disclosure --check    # exit code 1 if one is out of date

Every method runs on twelve small clients in two groups, SR-FCA also on twelve clients with label
skew. What clients reply is noted by the kind of request. So is every row that a client is sent: if
it is exactly what another client has trained, that client's model has been revealed.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srfca import ClientData, LocalTraining, Partition, Simulation, data, models
from srfca.distances import DISTANCES
from srfca.federation import Federation, Middleware, Replies, Request
from srfca.federation.mixture import Mixture
from srfca.federation.replies import T
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    Collect,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Scores,
    SharedSamples,
    Shares,
    Subspaces,
    Train,
)
from srfca.methods import SRFCA, Method, all_methods
from srfca.report.markdown import replace_generated, table_line

PAGE = Path(__file__).resolve().parents[1] / "docs" / "privacy.md"
LOCAL = LocalTraining(steps=60, local_steps=10, batch_size=10, lr=0.5)
"""How clients train: long enough for SR-FCA to find the groups."""
REVEALED: dict[type[Request[Any]], str] = {
    Train: "models",
    Gradients: "gradients",
    Losses: "losses",
    Scores: "losses",
    BalancedLosses: "class-balanced losses",
    ClassCounts: "class counts",
    LossMoments: "moments of losses by class",
    OutputMoments: "moments of outputs",
    BootstrapLosses: "losses of resamples",
    DataMoments: "moments of samples",
    Shares: "shares of samples by model",
    Subspaces: "directions of inputs",
    Outputs: "outputs on shared inputs",
    SharedSamples: "**samples**, which all clients are sent",
}
"""What replies reveal to the server; ``Collect`` is answered in a simulation alone."""
UNCLEAR = "if distances show no clear groups"
"""When SR-FCA asks for more: with label skew, for example."""
_HEAD = ("the server learns", "another client is sent its model")


class Recorder(Middleware):
    """Note what clients reply, and who is sent a row that another client has trained.

    Attributes:
        revealed: What the server learns.
        shown: Whether a client was sent another one's model.
        personal: Whether clients keep a part of their models.
    """

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self.revealed: dict[str, None] = {}
        self.shown = self.personal = False
        self._owners: dict[bytes, set[int]] = {}

    def ask(self, request: Request[T]) -> Replies[T]:
        """Pass a request on, and note what it reveals."""
        for client, row in _rows_sent(request):
            self.note_sent(client, row)
        replies = self.federation.ask(request)
        if len(request.clients) and not isinstance(request, Collect):
            self.revealed[_name_of(request)] = None
        if isinstance(request, Train):
            self.personal |= request.personal is not None
            assert isinstance(replies.values, Tensor)
            starts = request.starts[torch.as_tensor(replies.answered)]
            starts = starts if request.sent is None else request.sent.take(starts)
            for client, row, start in zip(
                replies.clients.tolist(), replies.values, starts, strict=True
            ):
                if not torch.equal(row, start):
                    self._owners.setdefault(_name(row), set()).add(client)
        return replies

    def note_sent(self, client: int, row: Tensor) -> None:
        """Note that a client is sent a row."""
        owners = self._owners.get(_name(row))
        self.shown |= owners is not None and client not in owners


def _name_of(request: Request[Any]) -> str:
    """Return what replies to a request reveal."""
    if isinstance(request, Shares) and request.by_class:
        return "shares of samples by model and class"
    if isinstance(request, ClassCounts) and request.presence:
        return "which classes it has"
    return REVEALED[type(request)]


def _rows_sent(request: Request[Any]) -> Iterator[tuple[int, Tensor]]:
    """Yield the rows that clients are sent with a request, and the client of each."""
    clients = request.clients.tolist()
    if isinstance(request, Train):
        starts = request.starts if request.sent is None else request.sent.take(request.starts)
        yield from zip(clients, starts, strict=True)
        for tensor in vars(request.algorithm).values():
            if isinstance(tensor, Tensor) and tensor.ndim == 2 and len(tensor) == len(clients):
                yield from zip(clients, tensor, strict=True)
        return
    rows = getattr(request, "models", None)
    if isinstance(rows, Mixture):
        rows, shared = rows.models, True
    else:
        shared = not isinstance(request, Scores | Gradients | Outputs)
    if not isinstance(rows, Tensor):
        return
    if shared:
        yield from ((client, row) for client in clients for row in rows)
    else:
        yield from zip(clients, rows, strict=True)


def _name(row: Tensor) -> bytes:
    return row.detach().cpu().contiguous().numpy().tobytes()


def groups() -> ClientData:
    """Return twelve clients in two groups that distances show clearly."""
    return data.rotated_digits(num_clients=12, rotations=2)


def skewed() -> ClientData:
    """Return twelve clients with label skew, without groups."""
    return data.drifting_image_phases(drift="none", num_clients=12, alpha=0.3)[0]


def record(method: Method, clients: ClientData) -> Recorder:
    """Run a method, and return what it has revealed; clients get their final models too."""
    recorder = Recorder(Simulation(clients, models.mlp(64, 16, 10), device="cpu", validation=0.2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = method.fit(recorder)
    if not result.personal:
        for client, row in enumerate(result.final_models):
            recorder.note_sent(client, row)
    return recorder


def make(kind: type[Method]) -> Method:
    """Return a method with its default parameters, and two clusters where it needs a number."""
    given: dict[str, Any] = {"local": LOCAL}
    if any(field.name == "k" and field.default is MISSING for field in fields(kind)):
        given["k"] = 2
    if kind.needs_truth:
        given["truth"] = Partition(np.arange(12) % 2)
    return kind(**given)


def method_line(kind: type[Method]) -> str:
    """Return the line of a method in the table."""
    return _line(kind.key, make(kind))


def distance_line(name: str) -> str:
    """Return the line of a distance of SR-FCA in the table."""
    return _line(name, SRFCA(local=LOCAL, distance=name))


def _line(name: str, method: Method) -> str:
    recorder = record(method, groups())
    server = _words(recorder, list(recorder.revealed))
    if getattr(method, "threshold", None) == "auto":
        again = record(method, skewed())
        more = [name for name in again.revealed if name not in recorder.revealed]
        server += f"; {UNCLEAR}: {_words(again, more)}" if more else ""
        recorder.shown |= again.shown
    return table_line([f"`{name}`", server, "**yes**" if recorder.shown else "no"])


def _words(recorder: Recorder, revealed: Sequence[str]) -> str:
    """Return what the server learns, the usual first."""
    order = list(REVEALED.values())
    names = sorted(revealed, key=lambda name: _place(order, name))
    if recorder.personal:
        names = ["shared parts of models" if name == "models" else name for name in names]
    return ", ".join(names)


def _place(order: Sequence[str], name: str) -> int:
    return next((place for place, known in enumerate(order) if name.startswith(known)), len(order))


def tables() -> dict[str, str]:
    """Return the tables of the page by name."""
    return {
        "distances": _table("distance", [distance_line(name) for name in DISTANCES]),
        "methods": _table("method", [method_line(kind) for kind in all_methods()]),
    }


def _table(first: str, lines: Sequence[str]) -> str:
    return table_line([first, *_HEAD]) + table_line(["---"] * 3) + "".join(lines)


def main() -> int:
    """Update or check the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only tell whether they are current")
    check = parser.parse_args().check
    text = updated = PAGE.read_text("utf-8")
    for name, table in tables().items():
        updated = replace_generated(updated, name, table)
    if check and updated != text:
        print(f"{PAGE} is out of date: run python -m tools.disclosure", file=sys.stderr)
        return 1
    PAGE.write_text(updated, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
