"""Track runs with TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from srfca.callbacks.tracker import Tracker, needs_package
from srfca.files import writable_folder


class TensorBoard(Tracker):
    """Writes events for ``tensorboard --logdir FOLDER``.

    Args:
        folder: Each run has a folder in it.
        name: Name of the run's folder; None is the method and the seed. If it exists, a number is
            added.

    Raises:
        InputError: If the package tensorboard is missing, or the folder cannot be written to.

    Examples:
        With the package tensorboard (``srfca[tensorboard]``)::

            result = SRFCA().fit(federation, callbacks=TensorBoard("runs"))
    """

    def __init__(self, folder: str | Path = "tensorboard", name: str | None = None) -> None:
        super().__init__(name)
        with needs_package("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter
        self._make_writer = SummaryWriter
        self.folder = writable_folder(Path(folder))
        self._writer: Any = None

    def begin(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Begin a run in a folder of its own."""
        names = (name if number == 1 else f"{name}-{number}" for number in count(1))
        folder = next(self.folder / name for name in names if not (self.folder / name).exists())
        self._writer = self._make_writer(str(folder))
        lines = "\n".join(f"    {key} = {value}" for key, value in parameters.items())
        self._writer.add_text("parameters", lines)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write scalars."""
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def finish(self, succeeded: bool) -> None:
        """Close the file."""
        self._writer.close()
