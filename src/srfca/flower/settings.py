"""The settings of a run, from Flower's run config: the keys that begin with ``srfca.``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from srfca.errors import require, unknown
from srfca.experiments.parsing import parse
from srfca.federation.local_training import LocalTraining
from srfca.methods import METHODS, Method, all_methods
from srfca.parameters import check_parameters, constrained

PREFIX = "srfca."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a method is run on Flower.

    Args:
        num_clients: Number of clients in the federation; the run waits for them.
        min_clients: With fewer of them connected, the run pauses; None is half of them.
        timeout: Seconds that a client has for a reply.
        max_clients: With this many clients, no newcomer is taken in; None is twice num_clients.
        bind_keys: A client's name belongs to the key of the node that used it first: a node with
            another key is refused, and so is another name with the same key. Nodes keep their key
            only if it is registered. None binds if the SuperLink uses TLS.
        allow_list: A JSON file of the clients' names, each with the public key of its node, or
            null; others are refused. None takes in every name.
        negative_losses: The clients' loss may be negative; otherwise such a reply is refused.
        seed: Decides every random draw.
        out: A folder for the result with its models, and for the journal, so that a killed run can
            resume; None for neither. Flower's id of the run stands for ``{run}`` in it.
        serve: Keep running after the method: place new clients, and refresh the clusters.
        poll: Seconds between two checks for new clients.
        refresh: Seconds between two refreshes; 0 for none.
        refresh_rounds: Rounds of training in a refresh.
        drift_check: Seconds between two checks for drift; 0 for none. All clients tell their
            losses, and the clusters are refreshed at once if one has left the reach of its cluster.
        serve_for: Seconds after which serving ends; None for never.

    Raises:
        InputError: If a value is not allowed.
    """

    num_clients: int
    min_clients: int | None = None
    timeout: float = 3600.0
    max_clients: int | None = constrained(None, at_least=1)
    bind_keys: bool | None = None
    allow_list: str | None = None
    negative_losses: bool = False
    seed: int = constrained(0, at_least=0)
    out: str | None = None
    serve: bool = False
    poll: float = constrained(10.0, more_than=0)
    refresh: float = constrained(0.0, at_least=0)
    refresh_rounds: int = 1
    drift_check: float = constrained(0.0, at_least=0)
    serve_for: float | None = None

    def __post_init__(self) -> None:
        check_parameters(self, PREFIX)
        require(
            self.refresh_rounds >= 1,
            f"srfca.refresh-rounds must be at least 1, not {self.refresh_rounds}",
        )


def configure(
    method: Method, config: Mapping[str, Any], run_id: int = 0
) -> tuple[Method, Settings]:
    """Return the method and the settings that a run config describes.

    Args:
        method: The method to start from.
        config: Flower's run config. ``srfca.method`` chooses another method by its key; any other
            key that begins with ``srfca.`` is a setting, or a parameter of the method or of its
            local training, with dashes for underscores. Parameters that only other methods have
            are ignored.
        run_id: Flower's id of the run, for ``{run}`` in ``srfca.out``.

    Raises:
        InputError: If a key is unknown, or a value is not allowed.

    >>> from srfca import SRFCA
    >>> config = {"srfca.num-clients": 4, "srfca.trim": 0.2, "srfca.local-steps": 10, "other": "x"}
    >>> method, settings = configure(SRFCA(), config)
    >>> method.trim, method.local.local_steps, settings.num_clients
    (0.2, 10, 4)
    """
    entries = {
        key.removeprefix(PREFIX).replace("-", "_"): value
        for key, value in config.items()
        if key.startswith(PREFIX)
    }
    require(
        "num_clients" in entries,
        "srfca.num-clients is missing: set it to the number of clients in the federation",
    )
    if "method" in entries:
        method = _choose(str(entries.pop("method")), method)
    owners: list[type[Any]] = [Settings, type(method), LocalTraining]
    names = {owner: {field.name for field in fields(owner)} - {"local"} for owner in owners}
    values: dict[type[Any], dict[str, Any]] = {owner: {} for owner in owners}
    for key, value in entries.items():
        owner = next((owner for owner in owners if key in names[owner]), None)
        if owner is not None:
            values[owner][key] = parse(value, get_type_hints(owner)[key], _config_key(key))
        elif key not in _parameters_of_all_methods():
            choices = _parameters_of_all_methods().union(*names.values())
            raise unknown("setting", _config_key(key), sorted(map(_config_key, choices)))
    if values[Settings].get("out") is not None:
        values[Settings]["out"] = values[Settings]["out"].replace("{run}", str(run_id))
    local = replace(method.local, **values[LocalTraining])
    return replace(method, local=local, **values[type(method)]), Settings(**values[Settings])


def _choose(key: str, method: Method) -> Method:
    """Return the method of a key, with the local training of the one to start from."""
    chosen = METHODS[key]
    if isinstance(method, chosen):
        return method
    require(
        not chosen.needs_truth,
        f"srfca.method={key!r} needs the true clusters, which a run config cannot hold: give "
        "server_app a method that has them",
    )
    return chosen(local=method.local)


def _config_key(name: str) -> str:
    return f"{PREFIX}{name.replace('_', '-')}"


def _parameters_of_all_methods() -> set[str]:
    return {field.name for method in all_methods() for field in fields(method)} - {"local"}
