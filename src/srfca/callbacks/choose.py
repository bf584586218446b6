"""Trackers by name, for the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from srfca.callbacks.mlflow import MLflow
from srfca.callbacks.tensorboard import TensorBoard
from srfca.callbacks.tracker import Tracker
from srfca.callbacks.wandb import WandB
from srfca.errors import require, unknown

TRACKERS: dict[str, Callable[..., Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def make_trackers(texts: Iterable[str], name: str) -> list[Tracker]:
    """Return the trackers of ``--track``.

    Args:
        texts: Each is ``KIND`` or ``KIND:PLACE``: TensorBoard's folder, MLflow's experiment, W&B's
            project.
        name: Name of the run.

    Returns:
        A tracker for each text.

    Raises:
        InputError: If a kind is unknown, a place is empty, or a package is missing.

    Examples:
        >>> [type(tracker).__name__ for tracker in make_trackers(["tensorboard"], "demo")]
        ['TensorBoard']
    """
    made = []
    for text in texts:
        kind, colon, place = text.partition(":")
        if kind not in TRACKERS:
            raise unknown("tracker", kind, TRACKERS)
        require(not colon or bool(place), f"--track {text} names no place: {kind}:PLACE, or {kind}")
        made.append(TRACKERS[kind](*[place] * bool(place), name=name))
    return made
