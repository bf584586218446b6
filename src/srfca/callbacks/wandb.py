"""Track runs with Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srfca.callbacks.tracker import Tracker, needs_package


class WandB(Tracker):
    """Logs runs to Weights & Biases; ``WANDB_MODE=offline`` keeps them on this machine.

    Args:
        project: Its name.
        name: Name of the run; None is the method and the seed.
        options: Further arguments of ``wandb.init``, such as ``dir`` or ``mode``.

    Raises:
        InputError: If the package wandb is missing.

    Examples:
        With the package wandb (``srfca[wandb]``)::

            result = SRFCA().fit(federation, callbacks=WandB("hospitals", mode="offline"))
    """

    def __init__(self, project: str = "srfca", name: str | None = None, **options: Any) -> None:
        super().__init__(name)
        with needs_package("wandb"):
            import wandb
        self.project, self.options = project, options
        self._init = wandb.init
        self._run: Any = None

    def begin(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Begin a run in the project."""
        config = dict(parameters)
        self._run = self._init(project=self.project, name=name, config=config, **self.options)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers."""
        self._run.log(dict(values), step=step)

    def finish(self, succeeded: bool) -> None:
        """End the run."""
        self._run.finish(exit_code=0 if succeeded else 1)
