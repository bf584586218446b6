"""What a run is, from Flower's run config: the keys that begin with ``srfca.``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

from srfca.errors import require, unknown
from srfca.experiments.config import METHODS, method_class, parse
from srfca.federation.base import Work
from srfca.methods import Method

PREFIX = "srfca."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a method is run on Flower.

    Args:
        clients: How many clients make the federation; the run waits for them.
        min_clients: With fewer of them connected the run pauses; None is half of them.
        timeout: Seconds that a client has for an answer.
        seed: Decides every draw.
        out: A folder for the journal and the result, so that a killed run can go on; None is none.
        serve: Go on when the method is done: place newcomers, and refresh the clusters.
        look: Seconds between two looks for newcomers.
        refresh: Seconds between two refreshes; 0 is never.
        refresh_rounds: Rounds of training of a refresh.
        serve_for: Seconds after which serving ends; None is never.
    """

    clients: int
    min_clients: int | None = None
    timeout: float = 3600.0
    seed: int = 0
    out: str | None = None
    serve: bool = False
    look: float = 10.0
    refresh: float = 0.0
    refresh_rounds: int = 1
    serve_for: float | None = None

    def __post_init__(self) -> None:
        require(self.seed >= 0, f"srfca.seed must not be negative, but is {self.seed}")
        require(self.look > 0, f"srfca.look must be positive, not {self.look}")
        require(self.refresh >= 0, f"srfca.refresh must not be negative, but is {self.refresh}")
        require(
            self.refresh_rounds >= 1,
            f"srfca.refresh-rounds must be at least 1, not {self.refresh_rounds}",
        )


def configured(method: Method, config: Mapping[str, Any]) -> tuple[Method, Settings]:
    """A method and the settings of its run, as the run config has them.

    ``srfca.method`` chooses another method; any other key is a setting, or a parameter of the
    method or of its ``work``. Parameters of other methods are for these.

    >>> from srfca import SRFCA
    >>> ours = {"srfca.clients": 4, "srfca.trim": 0.2, "srfca.local-steps": 10, "theirs": "x"}
    >>> method, settings = configured(SRFCA(), ours)
    >>> method.trim, method.work.local_steps, settings.clients
    (0.2, 10, 4)
    """
    given = {
        key.removeprefix(PREFIX).replace("-", "_"): value
        for key, value in config.items()
        if key.startswith(PREFIX)
    }
    require("clients" in given, "srfca.clients must say how many clients make the federation")
    if "method" in given:
        chosen = method_class(str(given.pop("method")))
        method = method if isinstance(method, chosen) else chosen(work=method.work)
    homes: dict[str, Any] = {"settings": Settings, "work": Work, "method": type(method)}
    values: dict[str, dict[str, Any]] = {home: {} for home in homes}
    kinds = {home: get_type_hints(found) for home, found in homes.items()}
    names = {home: {each.name for each in fields(found)} for home, found in homes.items()}
    names["method"].discard("work")
    for key, value in given.items():
        home = next((home for home in homes if key in names[home]), None)
        if home is None:
            known = {name for some in names.values() for name in some} | _of_any_method()
            if key not in known:
                dashed = sorted(name.replace("_", "-") for name in known)
                raise unknown("setting", f"{PREFIX}{key.replace('_', '-')}", dashed)
            continue
        values[home][key] = parse(value, kinds[home][key], f"{PREFIX}{key.replace('_', '-')}")
    work = replace(method.work, **values["work"])
    return replace(method, work=work, **values["method"]), Settings(**values["settings"])


def _of_any_method() -> set[str]:
    return {each.name for name in METHODS for each in fields(method_class(name))} - {"work"}
