"""Callbacks of ``fit``: progress bars, files for ``srfca watch``, and experiment trackers.

>>> from srfca import SRFCA, LocalTraining, Simulation, data, models
>>> federation = Simulation(data.rotated_digits(num_clients=4, rotations=2), models.mlp(64, 8, 10))
>>> method = SRFCA(local=LocalTraining(steps=10, batch_size=10, lr=0.5))
>>> result = method.fit(federation, callbacks=[ProgressBars()])
"""

from __future__ import annotations

from srfca.callbacks.bars import ProgressBars
from srfca.callbacks.choose import make_trackers
from srfca.callbacks.mlflow import MLflow
from srfca.callbacks.progress_folder import ProgressFolder
from srfca.callbacks.tensorboard import TensorBoard
from srfca.callbacks.tracker import Tracker
from srfca.callbacks.wandb import WandB
from srfca.methods import Monitor

__all__ = [
    "MLflow",
    "Monitor",
    "ProgressBars",
    "ProgressFolder",
    "TensorBoard",
    "Tracker",
    "WandB",
    "make_trackers",
]
