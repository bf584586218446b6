"""What all experiment trackers share: which numbers are logged, and when."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from srfca.errors import InputError, SrfcaWarning, describe
from srfca.federation.middleware.counting import Budget
from srfca.methods import CurvePoint, Monitor, Result, RoundEnd, RunStart, Stage

MAX_CLUSTERS = 20
"""Most clusters whose scores are logged beside the mean."""


class Tracker(Monitor):
    """A callback that logs numbers of every round and stage, and final ones.

    Steps count the rounds and stages that are done. A subclass says where the numbers go. A run
    does not start if its tracker cannot; if logging fails later, a warning says so once, and the
    run continues.

    Args:
        name: Name of the run; None is the method and the seed.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import FedAvg
        >>> class Printer(Tracker):
        ...     def begin(self, name, parameters):
        ...         print(name)
        ...     def log(self, values, step):
        ...         print(step, sorted(values)[0].split("/")[0])
        ...     def finish(self, succeeded):
        ...         print("done" if succeeded else "failed")
        >>> federation = Simulation(data.rotated_digits(num_clients=4), models.linear(64, 10))
        >>> method = FedAvg(local=LocalTraining(steps=5))
        >>> result = method.fit(federation, callbacks=Printer())
        global-seed0
        1 round
        2 stage
        3 final
        done
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._step = 0
        self._open = False

    @abstractmethod
    def begin(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Begin a run with these parameters.

        Args:
            name: Name of the run.
            parameters: What tables of runs show.
        """

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers.

        Args:
            values: Numbers by name, such as ``round/accuracy``.
            step: How many rounds and stages are done.
        """

    @abstractmethod
    def finish(self, succeeded: bool) -> None:
        """End the run.

        Args:
            succeeded: Whether the run has ended without an error.
        """

    def run_start(self, start: RunStart) -> None:
        """Begin a run.

        Raises:
            InputError: If the tracker cannot begin, for example because no server answers.
        """
        parameters = {"method": start.method, "seed": start.seed}
        self._step, self._open = 0, True
        name = self.name or f"{start.method}-seed{start.seed}".lower().replace(" ", "-")
        clients = {"num_clients": len(start.client_ids)}
        try:
            self.begin(name, parameters | clients | _flat(start.parameters))
        except Exception as error:  # of any kind: packages have their own
            self._open = False
            raise InputError(f"{type(self).__name__} cannot track: {describe(error)}") from error

    def round_end(self, end: RoundEnd) -> None:
        """Log a round."""
        values = {"round/missing": float(len(end.missing)), **_cost("round", end.spent)}
        if end.point is not None:
            values |= _scores(end.point)
        self._log(values)

    def stage_end(self, stage: Stage) -> None:
        """Log a stage."""
        self._log(_stage_values("stage", stage) | {"stage/seconds": stage.seconds})

    def run_end(self, result: Result) -> None:
        """Log the final numbers, and end the run."""
        spent = sum((stage.budget for stage in result.history), Budget())
        values = _cost("final", spent)
        if result.history:
            values |= _stage_values("final", result.history[-1])
        values["final/clusters"] = float(result.partition.num_clusters)
        self._log(values)
        self._finish(True)

    def run_failed(self, error: BaseException) -> None:
        """End the run as a failed one."""
        self._finish(False)

    def _log(self, values: Mapping[str, float]) -> None:
        if self._open:
            self._step += 1
            with self._surviving():
                self.log(values, self._step)

    def _finish(self, succeeded: bool) -> None:
        if self._open:
            with self._surviving():
                self.finish(succeeded)
            self._open = False

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Turn an error inside the ``with`` block into a warning, and stop tracking."""
        try:
            yield
        except Exception as error:  # of any kind: packages have their own
            self._open = False
            text = f"{type(self).__name__} no longer tracks this run: {describe(error)}"
            warnings.warn(text, SrfcaWarning, stacklevel=2)


@contextmanager
def needs_package(name: str) -> Iterator[None]:
    """Raise an ``InputError`` that names the extra to install if a tracker's package is missing."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"tracking with {name} needs more packages: pip install 'srfca[{name}]' ({error})"
        ) from error


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return parameters in one level: ``local.lr``."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _cost(prefix: str, spent: Budget) -> dict[str, float]:
    megabytes = (spent.bytes_down + spent.bytes_up) / 1e6
    return {f"{prefix}/local_steps": float(spent.local_steps), f"{prefix}/megabytes": megabytes}


def _stage_values(prefix: str, stage: Stage) -> dict[str, float]:
    values = {f"{prefix}/clusters": float(stage.partition.num_clusters)}
    if stage.loss is not None:
        values[f"{prefix}/loss"] = stage.loss
    if stage.accuracy is not None:
        values[f"{prefix}/accuracy"] = stage.accuracy
    return values


def _scores(point: CurvePoint) -> dict[str, float]:
    """Return the scores of a round: means over clusters, and of each cluster."""
    values = {}
    for name, means in (("loss", point.loss), ("accuracy", point.accuracy or ())):
        finite = [mean for mean in means if mean is not None]
        if finite:
            values[f"{point.split}/{name}"] = sum(finite) / len(finite)
        if 1 < len(means) <= MAX_CLUSTERS:
            of_clusters = {f"{point.split}/{name}/cluster-{k}": x for k, x in enumerate(means)}
            values |= {key: mean for key, mean in of_clusters.items() if mean is not None}
    return values
