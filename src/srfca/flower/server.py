"""The server's side: a ``ServerApp`` that runs a method on the clients that are connected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging import INFO, getLogger
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from srfca.errors import require
from srfca.federation.base import Tick, silent
from srfca.files import writable_folder
from srfca.flower.federation import FlowerFederation
from srfca.flower.members import read_members, write_members
from srfca.flower.post import Member
from srfca.flower.serve import place, servable, serve, write
from srfca.flower.settings import Settings, configured
from srfca.methods import SRFCA, Method, Result

_log = getLogger("flwr").log

Done = Callable[[Result, FlowerFederation], None]
"""Is given the result, and the federation while it is still there."""


def server_app(
    *,
    model: nn.Module | Callable[[], nn.Module],
    method: Method | None = None,
    done: Done | None = None,
) -> ServerApp:
    """A complete ``ServerApp`` that runs a method, and gives each client its model.

    Args:
        model: As of ``Simulation``, the same as the clients'.
        method: What is run, SR-FCA if it is not given. The run config may change its parameters,
            or choose another (``srfca.method``); ``Settings`` has the rest of what it may hold.
        done: Called with the result.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        chosen, settings = configured(method or SRFCA(), context.run_config)
        run(chosen, settings, grid, model, done)

    return app


def run(
    method: Method,
    settings: Settings,
    grid: Grid,
    model: nn.Module | Callable[[], nn.Module],
    done: Done | None = None,
) -> Result:
    """Wait for the clients, run the method, and give each client its model.

    Clients that came too late to take part are placed at the end.
    With ``settings.out`` a run that was killed goes on with the clients that it had, and one that
    had ended, or was serving, with its newest result.
    """
    require(not settings.serve or method.clustered, f"{method.name} has no cluster models to serve")
    folder = None if settings.out is None else writable_folder(Path(settings.out))
    before = [] if folder is None else read_members(folder)
    result = None if folder is None else finished(folder, method, settings.seed, before)
    if result is not None:
        before = [member for member in before if member.client in result.clients]
    elif before:
        require(
            len(before) == settings.clients,
            f"{folder} holds a run of {len(before)} clients, not of {settings.clients}: "
            "set srfca.clients, or choose another srfca.out",
        )
    federation = FlowerFederation(
        grid,
        model,
        clients=before or settings.clients,
        min_clients=settings.min_clients,
        timeout=settings.timeout,
    )
    _log(INFO, "%s with %s clients", method.name, len(federation.clients))
    if result is None:
        journal = None
        if folder is not None:
            journal = folder / "journal"
            write_members(folder, federation.members)
        result = method.fit(federation, settings.seed, Logged(), journal)
        if servable(result) and (newcomers := federation.newcomers()):
            result = place(federation, result, newcomers)
        if folder is not None:
            write(folder, federation, result)
    for line in (*result.summary().splitlines(), *costs(result, federation)):
        _log(INFO, "%s", line)
    federation.keep(result.final_models)
    if done is not None:
        done(result, federation)
    if settings.serve:
        serve(method, settings, federation, result)
    return result


def finished(folder: Path, method: Method, seed: int, members: Sequence[Member]) -> Result | None:
    """The newest result of the same run, if it had ended, and its clients are known."""
    if not (folder / "result.json").exists():
        return None
    found = Result.load(folder)
    asked = json.loads(json.dumps([method.name, seed, method.parameters()]))
    known = [member.client for member in members if member.client in found.clients]
    same = [found.method, found.seed, dict(found.parameters)] == asked
    return found if same and tuple(known) == found.clients else None


class Logged:
    """A monitor that tells of stages in Flower's log."""

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[Tick]:
        """Enter a stage."""
        _log(INFO, "%s: %s local steps", name, steps)
        yield silent


def costs(result: Result, federation: FlowerFederation) -> list[str]:
    """Lines to read: messages and bytes of each stage, beside those of the models it counts."""
    lines = []
    for stage in result.history:
        if wire := stage.notes.get("wire"):
            counted = f"models of {stage.budget.bytes_down} down, {stage.budget.bytes_up} up"
            sent = f"{wire['bytes_down']} bytes down, {wire['bytes_up']} up"
            lines.append(f"  {stage.name}: {wire['messages']} messages, {sent} ({counted})")
    wire = federation.wire
    whole = f"{wire.messages} messages, {wire.bytes_down} bytes down, {wire.bytes_up} up"
    return [*lines, f"all: {whole}, {len(wire.absences)} not answered"]
