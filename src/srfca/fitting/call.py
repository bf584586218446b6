"""``srfca.fit``: a model for every client from arrays or a table, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from srfca.data import ClientData
from srfca.data.schema import TargetKind
from srfca.data.table import Table
from srfca.engine import Simulation
from srfca.errors import InputError, require
from srfca.federation import LocalTraining
from srfca.fitting.defaults import DEFAULT_LOCAL
from srfca.fitting.sizes import fitting_model
from srfca.methods import METHODS, Method, Monitor, Result
from srfca.methods.registry import method_key


def fit(
    X: Any,
    y: Any,
    clients: Any,
    *,
    model: str | nn.Module | Callable[[], nn.Module] = "mlp",
    method: str | Method = "sr-fca",
    local: LocalTraining | None = None,
    target_kind: TargetKind | None = None,
    standardize: bool | None = None,
    validation: float = 0.1,
    seed: int = 0,
    device: str = "auto",
    callbacks: Monitor | Sequence[Monitor] | None = None,
) -> Result:
    """Find a model for every client, from the inputs, targets and clients of n rows.

    It makes client data, a simulation and a method, which you can also do yourself for more
    control (docs/own_data.md).

    Args:
        X: ``[n, ...]`` inputs, an array or a table; or a table with all columns.
        y: ``[n]`` targets, or the name of their column.
        clients: ``[n]`` the client of each row, or the name of the column: strings or whole
            numbers.
        model: ``mlp``, ``linear`` or another name of ``srfca.models.MODELS``, whose sizes follow
            from the data; or your module, or a function that returns one.
        method: A key of ``srfca list``, or a method.
        local: How clients train; None is that of the method, or for a key ``DEFAULT_LOCAL``: 200
            steps of Adam.
        target_kind: ``"classes"`` or ``"values"``, if both make sense.
        standardize: Whether inputs, and targets that are values, get mean 0 and standard deviation
            1; None does so unless inputs are images or other arrays of more than one axis.
        validation: The fraction of each client's rows that is held out, to decide by.
        seed: Decides every draw.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ...
        callbacks: What follows the run, such as ``srfca.callbacks.ProgressBars()``.

    Returns:
        Labels, models and history. ``schema`` says how rows become inputs.

    Raises:
        InputError: If the data cannot be used, or do not fit the model or the method.

    >>> rng = np.random.default_rng(0)
    >>> X, shop = rng.normal(size=(600, 2)), np.arange(600) % 12
    >>> y = X[:, 0] * np.where(shop % 2, 1, -1)
    >>> fit(X, y, shop, model="linear").labels_.tolist()
    [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
    """
    simulation = make_simulation(
        X, y, clients, model=model, target_kind=target_kind, standardize=standardize,
        validation=validation, seed=seed, device=device,
    )  # fmt: skip
    return make_method(method, local).fit(simulation, seed=seed, callbacks=callbacks)


def make_simulation(
    X: Any,
    y: Any,
    clients: Any,
    *,
    model: str | nn.Module | Callable[[], nn.Module] = "mlp",
    target_kind: TargetKind | None = None,
    standardize: bool | None = None,
    validation: float = 0.1,
    seed: int = 0,
    device: str = "auto",
    **sizes: Any,
) -> Simulation:
    """Return the simulation that ``fit`` trains in; the arguments are the same.

    Args:
        X: Inputs.
        y: Targets.
        clients: The client of each row.
        model: The model.
        target_kind: What the targets are.
        standardize: Whether inputs and values are standardized.
        validation: The fraction that is held out.
        seed: Decides what is held out.
        device: Where clients train.
        **sizes: Sizes of the model that do not follow from the data, such as ``hidden``.

    Returns:
        The simulation.

    Raises:
        InputError: If the data cannot be used, or do not fit the model.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> make_simulation(X, X[:, 0], np.arange(60) % 3, model="linear")
        Simulation(3 clients, 18 training samples each, P = 3, cpu, batched)
    """
    table, client, target = _as_table(X, y, clients)
    if standardize is None and isinstance(table, dict):
        standardize = "x" not in table or table["x"].ndim <= 2
    data = ClientData.from_frame(
        table, client=client, target=target, target_kind=target_kind, standardize=standardize
    )
    made, data = fitting_model(model, data, **sizes)
    return Simulation(data, made, validation=validation, seed=seed, device=device)


def make_method(method: str | Method, local: LocalTraining | None = None) -> Method:
    """Return a method by its key, or the given one, with another local training if that is given.

    Raises:
        InputError: If there is no such method, or it needs to be given more than its key.
    """
    if isinstance(method, Method):
        return method if local is None else replace(method, local=local)
    require(
        isinstance(method, str),
        f"method must be a key of 'srfca list' or a Method, not of type {type(method).__name__}",
    )
    kind: Any = METHODS[method_key(method)]
    require(
        not kind.needs_truth,
        f"{kind.name} must be given the true clusters: pass "
        f"method={kind.__name__}(truth=...) instead of its key",
    )
    made: Method = kind(local=local or DEFAULT_LOCAL)
    return made


def _as_table(X: Any, y: Any, clients: Any) -> tuple[Any, str, str]:
    """Return inputs, targets and clients as one table, and the names of its last two columns."""
    if isinstance(y, str) or isinstance(clients, str):
        require(
            isinstance(y, str) and isinstance(clients, str),
            "y and clients must both be columns of X by name, or both be arrays",
        )
        return X, clients, y
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    if isinstance(X, list | tuple | np.ndarray):
        columns = {"x": np.asarray(X)}
        require(
            columns["x"].ndim >= 2,
            f"X must have a row of inputs for each sample, but is of shape {columns['x'].shape}",
        )
    else:
        table = Table(X)
        columns = {name: table.raw(name) for name in table.names}
    require(bool(columns), "X has no columns")
    client, target = _free_name(clients, "client", columns), _free_name(y, "y", columns)
    if client == target:
        client = f"{client}_"
    try:
        return {**columns, client: _column(clients), target: _column(y)}, client, target
    except (TypeError, ValueError) as error:
        raise InputError(f"y and clients must have an entry for each row of X: {error}") from error


def _column(values: Any) -> Any:
    """Return targets or clients as a column of a table."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    if hasattr(values, "to_frame"):  # a series of pandas or polars
        return Table(values.rename("values").to_frame()).raw("values")
    return values if isinstance(values, np.ndarray) else list(values)


def _free_name(values: Any, default: str, columns: dict[str, Any]) -> str:
    """Return the name of a series, or a default, that no column has."""
    name = getattr(values, "name", None)
    name = name if isinstance(name, str) and name else default
    while name in columns:
        name += "_"
    return name
