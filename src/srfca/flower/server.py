"""The server's side: a ``ServerApp`` that runs a method on the clients that are connected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from logging import INFO, getLogger
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from srfca.errors import InputError
from srfca.federation.base import Tick, silent
from srfca.files import replace_file, writable_folder
from srfca.flower.federation import FlowerFederation
from srfca.flower.post import Member
from srfca.flower.serve import place, servable, serve
from srfca.flower.settings import Settings, configured
from srfca.methods import SRFCA, Method, Result

_log = getLogger("flwr").log
CLIENTS = "clients.json"

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
    With ``settings.out`` a run that was killed goes on with the clients that it had.
    """
    folder = None if settings.out is None else writable_folder(Path(settings.out))
    before = [] if folder is None else read_members(folder)
    federation = FlowerFederation(
        grid,
        model,
        clients=before or settings.clients,
        min_clients=settings.min_clients,
        timeout=settings.timeout,
    )
    journal = None
    if folder is not None:
        journal = folder / "journal"
        write_members(folder, federation.members)
    _log(INFO, "%s with %s clients", method.name, len(federation.clients))
    result = method.fit(federation, settings.seed, Logged(), journal)
    if servable(result) and (newcomers := federation.newcomers()):
        result = place(federation, result, newcomers)
    if folder is not None:
        result.save(folder)
    for line in (*result.summary().splitlines(), *costs(result, federation)):
        _log(INFO, "%s", line)
    federation.keep(result.client_models if result.tuned is None else result.tuned)
    if done is not None:
        done(result, federation)
    if settings.serve:
        serve(method, settings, federation, result)
    return result


def write_members(folder: Path, members: list[Member]) -> None:
    """Write down who the clients are, for a run that goes on with them."""
    text = json.dumps([asdict(member) for member in members], indent=1) + "\n"
    replace_file(folder / CLIENTS, text.encode())


def read_members(folder: Path) -> list[Member]:
    """What ``write_members`` wrote, nobody if it did not."""
    try:
        return [Member(**each) for each in json.loads((folder / CLIENTS).read_bytes())]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{folder / CLIENTS} is damaged: {error}") from error


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
