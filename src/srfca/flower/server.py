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

from srfca import progress
from srfca.callbacks.progress_folder import ProgressFolder
from srfca.errors import require
from srfca.flower.client_info import ClientInfo, read_clients, write_clients
from srfca.flower.federation import FlowerFederation
from srfca.flower.names import ClientNames, read_allow_list
from srfca.flower.serving import (
    deliver_final_models,
    has_cluster_models,
    place_newcomers,
    serve,
    write_result,
)
from srfca.flower.settings import Settings, configure
from srfca.locks import locked
from srfca.methods import Method, Monitor, Result, RoundEnd, RunStart
from srfca.methods.sr_fca import SRFCA

OnResult = Callable[[Result, FlowerFederation], None]
"""Called with the result, and with the federation while its clients are connected."""
_log = getLogger("flwr").log


def server_app(
    *,
    model: nn.Module | Callable[[], nn.Module],
    method: Method | None = None,
    on_result: OnResult | None = None,
) -> ServerApp:
    """Return a complete ``ServerApp`` that runs a method and sends each client its model.

    Args:
        model: As for ``Simulation``; the same model as the clients'.
        method: The method; None is SR-FCA. The run config may change its parameters, or choose
            another one (``srfca.method``); ``Settings`` lists what else it may hold.
        on_result: Called with the result.

    Returns:
        The app: what ``serverapp`` in ``pyproject.toml`` refers to.

    Examples:
        In the module that ``serverapp`` in ``pyproject.toml`` names::

            from srfca import SRFCA, flower, models
            app = flower.server_app(model=models.mlp(64, 32, 10), method=SRFCA())
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        configured, settings = configure(method or SRFCA(), context.run_config, context.run_id)
        run(configured, settings, grid, model, on_result)

    return app


def run(
    method: Method,
    settings: Settings,
    grid: Grid,
    model: nn.Module | Callable[[], nn.Module],
    on_result: OnResult | None = None,
) -> Result:
    """Wait for the clients, run the method, and send each client its model.

    Clients that connect too late to take part are placed at the end. With ``settings.out``, a run
    that was killed resumes with the clients that it had. If it had finished, its newest result is
    used and the method does not run again.

    Args:
        method: The method.
        settings: How to run it.
        grid: Flower's grid.
        model: As for ``Simulation``.
        on_result: Called with the result.

    Returns:
        The result of the method.

    Raises:
        InputError: If the settings do not fit the method, or the folder holds another run.
    """
    require(not settings.serve or method.clustered, f"{method.name} has no cluster models to serve")
    if settings.out is None:
        return _run_in(None, method, settings, grid, model, on_result)
    with locked(Path(settings.out)) as folder:
        return _run_in(folder, method, settings, grid, model, on_result)


def _run_in(
    folder: Path | None,
    method: Method,
    settings: Settings,
    grid: Grid,
    model: nn.Module | Callable[[], nn.Module],
    on_result: OnResult | None,
) -> Result:
    """Run the method with the folder, if there is one, locked."""
    previous = [] if folder is None else read_clients(folder)
    result = None if folder is None else load_finished(folder, method, settings.seed, previous)
    if result is not None:
        previous = [info for info in previous if info.client_id in result.client_ids]
    elif previous:
        fewest = settings.min_clients or -(-settings.num_clients // 2)
        require(
            fewest <= len(previous) <= settings.num_clients,
            f"{folder} holds a run of {len(previous)} clients, not of {settings.num_clients}: "
            "set srfca.num-clients, or choose another srfca.out",
        )
    with _noting_progress(folder) as watched:
        return _run(method, settings, grid, model, on_result, folder, previous, result, watched)


@contextmanager
def _noting_progress(folder: Path | None) -> Iterator[ProgressFolder | None]:
    """Write the progress and the log to files for ``srfca watch``, until the server ends."""
    if folder is None:
        yield None
        return
    watched = ProgressFolder(folder)
    with watched.noting_failure(), watched.noting_log(getLogger("flwr"), "flower"):
        yield watched
    watched.remove()


def _run(
    method: Method,
    settings: Settings,
    grid: Grid,
    model: nn.Module | Callable[[], nn.Module],
    on_result: OnResult | None,
    folder: Path | None,
    previous: Sequence[ClientInfo],
    result: Result | None,
    watched: ProgressFolder | None,
) -> Result:
    """Do what ``run`` does after its checks."""
    federation = FlowerFederation(
        grid,
        model,
        num_clients=None if previous else settings.num_clients,
        previous=previous,
        min_clients=settings.min_clients,
        timeout=settings.timeout,
        max_clients=settings.max_clients or 2 * settings.num_clients,
        names=_client_names(settings, grid),
        negative_losses=settings.negative_losses,
    )
    _log(INFO, "%s with %s clients", method.name, len(federation.client_ids))
    if result is None:
        result = _fit(method, settings.seed, federation, folder, watched)
    elif watched is not None:
        parameters = dict(result.parameters)
        watched.run_start(
            RunStart(method.name, parameters, result.seed, result.client_ids, result.clustered)
        )
    for line in (*result.summary().splitlines(), *traffic_lines(result, federation)):
        _log(INFO, "%s", line)
    deliver_final_models(federation, result)
    if on_result is not None:
        on_result(result, federation)
    if settings.serve:
        serve(method, settings, federation, result, watched)
    return result


def _client_names(settings: Settings, grid: Grid) -> ClientNames:
    """Return whose each name is, by the settings."""
    allowed = None if settings.allow_list is None else read_allow_list(Path(settings.allow_list))
    bind_keys = settings.bind_keys
    if bind_keys is None:  # a private attribute; other grids are simulations, with keys of one run
        bind_keys = getattr(grid, "_insecure", True) is False
    return ClientNames(bind_keys, allowed)


def _fit(
    method: Method,
    seed: int,
    federation: FlowerFederation,
    folder: Path | None,
    watched: ProgressFolder | None,
) -> Result:
    """Run the method, place clients that came late, and write the result."""
    journal = None
    if folder is not None:
        journal = folder / "journal"
        write_clients(folder, federation.infos)
    callbacks = [LogMonitor()] if watched is None else [LogMonitor(), watched]
    result = method.fit(federation, seed, callbacks, journal)
    if has_cluster_models(result) and (newcomers := federation.newcomers()):
        result = place_newcomers(federation, result, newcomers)
    if folder is not None:
        write_result(folder, federation, result)
        _log(INFO, "result and models are in %s", folder.resolve())
    return result


def load_finished(
    folder: Path, method: Method, seed: int, clients: Sequence[ClientInfo]
) -> Result | None:
    """Return the result in a folder, if it is of this method and seed and all clients are known.

    Args:
        folder: Where it may be.
        method: The method, with the same parameters.
        seed: The seed.
        clients: The clients that are written in the folder.
    """
    if not (folder / "result.json").exists():
        return None
    result = Result.load(folder)
    identity = json.loads(json.dumps([method.name, seed, method.parameters()]))
    listed = [info.client_id for info in clients if info.client_id in result.client_ids]
    is_same_run = [result.method, result.seed, dict(result.parameters)] == identity
    return result if is_same_run and tuple(listed) == result.client_ids else None


class LogMonitor(Monitor):
    """A monitor that writes stages and rounds to Flower's log."""

    @contextmanager
    def stage(self, name: str, steps: int) -> Iterator[progress.Callback]:
        """Enter a stage."""
        _log(INFO, "%s: %s local steps", name, steps)
        yield progress.ignore

    def round_end(self, end: RoundEnd) -> None:
        """Log a round that is done."""
        missing = f", {len(end.missing)} missing replies" if end.missing else ""
        _log(INFO, "%s: round %s of %s%s", end.training, end.number, end.total, missing)


def traffic_lines(result: Result, federation: FlowerFederation) -> list[str]:
    """Return lines to read: messages and bytes of each stage, and what the budget counts."""
    lines = []
    for stage in result.history:
        if traffic := stage.notes.get("traffic"):
            budget = f"models of {stage.budget.bytes_down} down, {stage.budget.bytes_up} up"
            sent = f"{traffic['bytes_down']} bytes down, {traffic['bytes_up']} up"
            lines.append(f"  {stage.name}: {traffic['messages']} messages, {sent} ({budget})")
    total = federation.traffic
    sent = f"{total.messages} messages, {total.bytes_down} bytes down, {total.bytes_up} up"
    return [*lines, f"total: {sent}, {len(federation.missing)} missing replies"]
