"""An experiment from a user's data, with one of our models or with the user's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from srfca import data, models
from srfca.data import ClientData
from srfca.errors import unknown
from srfca.experiments.experiment import SHARED_SECTIONS, Experiment
from srfca.experiments.source_code import files_digest
from srfca.experiments.user_model import import_model, model_files
from srfca.fitting.defaults import DEFAULT_LOCAL
from srfca.fitting.sizes import as_model_takes, model_sizes
from srfca.methods import METHODS

_TRAINING = ("steps", "local_steps", "batch_size", "optimizer", "lr")
"""Settings of local training that differ from those of ``LocalTraining()``."""


def experiment_from_data(path: str | Path, model: str = "mlp", **options: Any) -> Experiment:
    """Return an experiment on the data of a file or folder.

    Args:
        path: A ``.csv``, ``.parquet`` or ``.npz`` file, or a folder of these.
        model: The name of a model, whose sizes then follow from the data, or ``MODULE:FACTORY``.
        options: Those of ``srfca.data.load``: the names of columns and what is done with them.

    Raises:
        InputError: If the data cannot be read, or the model does not exist or does not fit.
    """
    path = Path(path)
    clients = data.load(path, **options)
    sections: dict[str, dict[str, Any]] = {key: {} for key in (*SHARED_SECTIONS, *METHODS.items())}
    sections |= {"data": {"name": str(path)}, "model": {"name": model}}
    sections |= {"local_training": {name: getattr(DEFAULT_LOCAL, name) for name in _TRAINING}}
    if ":" in model:
        import_model(model)
    elif model in models.MODELS:
        sizes = model_sizes(models.MODELS[model], model, clients)
        sections["model"] |= sizes
        clients = as_model_takes(clients, sizes)
    else:
        raise unknown("model", model, [*models.MODELS, "MODULE:FACTORY"])
    return Experiment(
        name=path.resolve().name,
        description=str(clients),
        clusters="unknown" if clients.truth is None else str(clients.truth.num_clusters),
        sections=sections,
        user_data=_returning(clients),
        fingerprint=fingerprint(clients, model),
        reload=partial(experiment_from_data, path, model, **options),
    )


def fingerprint(clients: ClientData, model: str) -> str:
    """Return a digest of the clients' data, and of the code of ``MODULE:FACTORY``."""
    digest = sha256(clients.fingerprint().encode())
    if ":" in model:
        digest.update(files_digest(model_files(model)).encode())
    return digest.hexdigest()


def _returning(clients: ClientData) -> Callable[..., ClientData]:
    """Return a data set function that returns these clients."""

    def user_data(*, seed: int = 0) -> ClientData:
        return clients

    return user_data
