"""Track runs with MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any

from srfca.callbacks.tracker import Tracker, needs_package

MAX_LENGTH = 500
"""Longest parameter that every version of MLflow takes."""


class MLflow(Tracker):
    """Logs runs to an MLflow server, or to a database on this machine.

    Args:
        experiment: Name of MLflow's experiment; it is created if it is missing.
        tracking_uri: The server, or ``sqlite:///`` and a file; None is ``MLFLOW_TRACKING_URI``, or
            MLflow's default: ``mlflow.db`` in the current folder.
        name: Name of the run; None is the method and the seed.

    Raises:
        InputError: If the package mlflow is missing.

    Examples:
        With the package mlflow (``srfca[mlflow]``)::

            result = SRFCA().fit(federation, callbacks=MLflow("hospitals"))
    """

    def __init__(
        self, experiment: str = "srfca", tracking_uri: str | None = None, name: str | None = None
    ) -> None:
        super().__init__(name)
        with needs_package("mlflow"):
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        self.experiment = experiment
        self._client = MlflowClient(tracking_uri)
        self._metric, self._param = Metric, Param
        self._run = ""

    def begin(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Begin a run in the experiment."""
        self._run = self._client.create_run(self._experiment_id(), run_name=name).info.run_id
        params = [self._param(key, str(value)[:MAX_LENGTH]) for key, value in parameters.items()]
        self._client.log_batch(self._run, params=params)

    def _experiment_id(self) -> str:
        """Return the id of the experiment; create it unless another process just did."""
        if existing := self._client.get_experiment_by_name(self.experiment):
            return str(existing.experiment_id)
        try:
            return str(self._client.create_experiment(self.experiment))
        except Exception:
            if existing := self._client.get_experiment_by_name(self.experiment):
                return str(existing.experiment_id)
            raise

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log metrics in one batch."""
        now = int(1000 * time())
        metrics = [self._metric(key, value, now, step) for key, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def finish(self, succeeded: bool) -> None:
        """End the run."""
        self._client.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")
