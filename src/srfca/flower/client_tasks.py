"""What a client does for each task that the server sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Context
from torch import Tensor, nn

from srfca._version import __version__
from srfca.engine.simulation import Simulation
from srfca.errors import InputError, require
from srfca.federation.algorithms import ALGORITHMS, Descent, LocalAlgorithm, Posterior
from srfca.federation.compression import encode
from srfca.federation.local_training import LocalTraining
from srfca.federation.mixture import Mixture
from srfca.federation.privacy import NOT_COMPRESSED, Privacy
from srfca.federation.protocol import Federation
from srfca.federation.replies import Clients, Replies, T
from srfca.federation.requests import (
    BalancedLosses,
    BootstrapLosses,
    ClassCounts,
    DataMoments,
    Gradients,
    Losses,
    LossMoments,
    OutputMoments,
    Outputs,
    Personal,
    Request,
    Scores,
    SharedSamples,
    Shares,
    Split,
    Subsample,
    Subspaces,
    Train,
)
from srfca.flower.client_state import (
    restore_optimizer_states,
    restore_personal,
    restore_residuals,
    store_final_model,
    store_optimizer_states,
    store_personal,
    store_residuals,
)
from srfca.flower.messages import ALGORITHM, INPUTS, personal_from_json
from srfca.flower.records import Value
from srfca.models.rows import frozen_digest
from srfca.random import Key

Receive = Callable[[nn.Module, Context], None]
"""Called with the client's final model."""


@dataclass(frozen=True)
class TaskInput:
    """A message of the server, decoded.

    Args:
        values: Its plain values.
        rows: Its rows ``[k, ...]`` by role.
        context: Flower's context.
        receive: What is called with the final model.
        federation: Where the client asks itself: its simulation, with clipping and noise around it
            if it is private.
        privacy: How much it reveals; None if it is not private.
        share: How many samples the client may reveal.
    """

    values: Mapping[str, Any]
    rows: Mapping[str, Tensor]
    context: Context
    receive: Receive | None
    federation: Federation
    privacy: Privacy | None
    share: int

    def ask(self, request: Request[T]) -> Replies[T]:
        """Return what the client replies to a request."""
        return self.federation.ask(request)

    @property
    def mixture(self) -> Mixture | None:
        """The mixtures of the entries, if the message has any."""
        if "mixture" not in self.rows:
            return None
        models = self.rows["mixture"]
        weights = torch.tensor(self.values["weights"], dtype=torch.float64)
        weights = weights.view(-1, len(models)).to(models)
        if "class_shares" not in self.values:
            return Mixture(models, weights)
        shares = torch.tensor(self.values["class_shares"], dtype=torch.float64)
        return Mixture(models, weights, shares.view(len(models), -1).to(models.device))

    @property
    def subsample(self) -> Subsample | None:
        """The subsample that losses are computed on; None is all samples."""
        if "samples" not in self.values:
            return None
        return Subsample(self.values["samples"], self.values["seed"])

    @property
    def personal(self) -> Personal | None:
        """The coordinates that the client keeps to itself, if there are any."""
        text = self.values.get("personal")
        return None if text is None else personal_from_json(text)


@dataclass(frozen=True)
class TaskOutput:
    """What a client replies."""

    arrays: Mapping[str, Tensor] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)


Task = Callable[[Simulation, TaskInput], TaskOutput]


def hello(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Introduce the client: its data and its model."""
    w0 = simulation.initial_model(0)
    sizes: dict[str, Value] = {
        split: int(simulation.sizes_of(split)[0]) for split in simulation.splits
    }
    return TaskOutput(
        values={
            **sizes,
            "version": __version__,
            "length": w0.numel(),
            "dtype": str(w0.dtype).removeprefix("torch."),
            "frozen": frozen_digest(simulation.module(w0)),
            "features": simulation.data.train.x[0].numel(),
            "outputs": simulation.traits.num_outputs,
            "groups": simulation.num_label_groups,
            "columns": simulation.num_columns,
            "classes": not simulation.data.train.y.is_floating_point(),
            "num_classes": simulation.num_classes or 0,
            "receives": task.receive is not None,
            "signature": json.dumps(simulation.signature.to_json()),
            "privacy": "" if task.privacy is None else task.privacy.to_json(),
        }
    )


def train(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Train from each start; personal coordinates stay in Flower's context."""
    local = LocalTraining(**json.loads(task.values["local"]))
    state, personal = task.context.state, task.personal
    starts = task.rows["starts"]
    if personal is not None:
        restore_personal(state, simulation)
        starts = _complete(starts, personal)
    if local.keep_state:
        restore_optimizer_states(state, simulation)
    request = Train(
        _itself(len(starts)),
        starts,
        local,
        Key(*json.loads(task.values["key"])),
        _algorithm(task),
        None if personal is None else personal.coordinates,
    )
    require(task.privacy is None or local.compress is None, NOT_COMPRESSED)
    rows = task.ask(replace(request, local=replace(local, compress=None))).values
    if local.keep_state:
        store_optimizer_states(state, simulation)
    if personal is not None:
        store_personal(state, simulation)
    if local.compress is None:
        return TaskOutput({"rows": rows})
    changes = rows - task.rows["starts"].to(rows)
    require(bool(changes.isfinite().all()), "the trained model is infinite or NaN")
    restore_residuals(state, simulation)
    sent = simulation.residuals.compress(request, changes, simulation.client_ids)
    store_residuals(state, simulation)
    codes = [encode(update, local.compress) for update in sent]
    return TaskOutput({"compressed": torch.stack(codes)})


def gradients(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute the gradient at each model."""
    models = task.rows["models"]
    return TaskOutput({"rows": task.ask(Gradients(_itself(len(models)), models)).values})


def losses(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute training losses ``[k]``, and held-out losses and accuracies ``[k, 2]``.

    Methods that ask for one of them usually ask for the other next. If the message names a split,
    only the losses on this split are computed. Private clients answer for one split alone, so that
    a message is one release.
    """
    models, values = task.rows["models"], task.values
    require(
        task.privacy is None or "split" in values,
        "private clients do not tell losses on training and on held-out data together",
    )
    request = Losses(_itself(), models, values.get("split", "train"), task.subsample)
    arrays = {"losses": _nan_to_inf(task.ask(request).values[0])}
    if "split" not in values and "validation" in simulation.splits:
        arrays["validation"] = _scores(task, models, "validation")
    return TaskOutput(arrays)


def class_counts(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Count the training samples of each class: ``[1, C]``."""
    request = ClassCounts(_itself(), task.values["presence"])
    return TaskOutput({"counts": task.ask(request).values})


def balanced_losses(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute class-balanced losses ``[k]``, and held-out losses and accuracies ``[k, 2]``."""
    models = task.rows["models"]
    shares = torch.tensor(task.values["class_shares"], dtype=torch.float64)
    request = BalancedLosses(_itself(), models, shares.view(len(models), -1), task.subsample)
    arrays = {"balanced": task.ask(request).values[0].double()}
    if "validation" in simulation.splits:
        arrays["validation"] = _scores(task, models, "validation")
    return TaskOutput(arrays)


def loss_moments(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute moments of the losses of all models: ``[1, k, w]``."""
    scales = torch.tensor(task.values["scales"], dtype=torch.float64)
    request = LossMoments(_itself(), task.rows["models"], scales, _splits(task))
    return TaskOutput({"moments": task.ask(request).values})


def output_moments(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute moments of the outputs of all models: ``[1, k, w]``."""
    request = OutputMoments(_itself(), task.rows["models"], _splits(task))
    return TaskOutput({"moments": task.ask(request).values})


def bootstrap_losses(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compare the losses of all models, with resampling: ``[1, k, 3 + k]``."""
    values = task.values
    request = BootstrapLosses(
        _itself(), task.rows["models"], _splits(task), values["replicates"], values["seed"]
    )
    return TaskOutput({"compared": task.ask(request).values})


def data_moments(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Sum up inputs and targets by class: ``[1, g, 1 + 2 w]``."""
    request = DataMoments(_itself(), _splits(task))
    return TaskOutput({"moments": task.ask(request).values})


def scores(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute losses and accuracies of models, or of mixtures: ``[k, 2]``."""
    predictors: Tensor | Mixture = task.mixture or task.rows["models"]
    personal = task.personal
    if personal is not None and isinstance(predictors, Tensor):
        restore_personal(task.context.state, simulation)
        predictors = _complete(predictors, personal)
    scored = _scores(task, predictors, task.values["split"], personal)
    return TaskOutput({"scores": scored})


def shares(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute the share of the samples that each model accounts for: ``[e, k]``, or by class."""
    mixture, by_class = task.mixture, bool(task.values["by_class"])
    request = (
        Shares(_itself(), task.rows["models"], by_class)
        if mixture is None
        else Shares(_itself(len(mixture)), mixture, by_class)
    )
    return TaskOutput({"shares": task.ask(request).values.double()})


def subspaces(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute the leading singular vectors of the training inputs."""
    values = task.values
    bases = task.ask(Subspaces(_itself(), values["rank"], values["num_classes"])).values
    return TaskOutput({"subspaces": bases.double()})


def shared_samples(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Reveal some training samples, if the client may: ``[1, size, w]``.

    Raises:
        InputError: If they are more than it may reveal.
    """
    values = task.values
    size = int(values["size"])
    require(
        size <= task.share,
        f"this client shares {task.share} samples, not {size}: client_app(share=...) says how many",
    )
    request = SharedSamples(_itself(), size, values["seed"], values["targets"])
    return TaskOutput({"samples": task.ask(request).values})


def outputs(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Compute the outputs of each model on inputs of the message: ``[e, n, d]``."""
    models, [inputs] = task.rows["models"], task.rows[INPUTS]
    return TaskOutput({"outputs": task.ask(Outputs(_itself(len(models)), models, inputs)).values})


def keep(simulation: Simulation, task: TaskInput) -> TaskOutput:
    """Pass the final model on to ``receive``, with the client's personal coordinates in it."""
    rows, personal = task.rows["models"], task.personal
    if personal is not None:
        restore_personal(task.context.state, simulation)
        values = simulation.personal.get(personal, _itself(), simulation.client_ids)
        rows = personal.coordinates.put(_complete(rows, personal), values.to(rows))
    store_final_model(task.context.state, rows[0])
    if task.receive is not None:
        task.receive(simulation.module(rows[0]).cpu(), task.context)
    return TaskOutput()


TASKS: dict[str, Task] = {
    "hello": hello,
    "train": train,
    "gradients": gradients,
    "losses": losses,
    "class_counts": class_counts,
    "balanced_losses": balanced_losses,
    "loss_moments": loss_moments,
    "output_moments": output_moments,
    "bootstrap_losses": bootstrap_losses,
    "data_moments": data_moments,
    "scores": scores,
    "shares": shares,
    "subspaces": subspaces,
    "shared_samples": shared_samples,
    "outputs": outputs,
    "keep": keep,
}
"""The tasks of a client by name."""
PRIVATE_TASKS = ("hello", "train", "gradients", "losses", "scores", "shares", "keep")
"""Those that private clients do: what they reply has a bound, or does not depend on samples."""


def _itself(entries: int = 1) -> Clients:
    """Return the client's position in its simulation, for each entry of a request: ``[e]``."""
    return np.zeros(entries, dtype=np.int64)


def _splits(task: TaskInput) -> tuple[Split, ...]:
    return tuple(task.values["splits"])


def _algorithm(task: TaskInput) -> LocalAlgorithm:
    """Return the local algorithm of a training.

    Raises:
        InputError: If it is not registered here.
    """
    key = str(task.values["algorithm"])
    if key not in ALGORITHMS:  # also refuses MODULE:NAME, which would import a module by name
        raise InputError(
            f"the local algorithm {key!r} is not registered at this client (registered: "
            f"{', '.join(ALGORITHMS.keys())}): import the module that registers it in the client "
            "app, or install its package here"
        )
    tensors = {
        role.removeprefix(ALGORITHM): rows
        for role, rows in task.rows.items()
        if role.startswith(ALGORITHM)
    }
    algorithm = ALGORITHMS[key].restore(json.loads(task.values["settings"]), tensors)
    mixture = task.mixture
    if mixture is None or not isinstance(algorithm, Descent):
        return algorithm
    component = torch.tensor(task.values["component"], device=mixture.models.device)
    return replace(algorithm, posterior=Posterior(mixture, component))


def _complete(rows: Tensor, personal: Personal) -> Tensor:
    """Return rows ``[k, P]`` from those that were sent; personal coordinates are 0."""
    length = rows.shape[1] + len(personal.coordinates)
    complete = rows.new_zeros(len(rows), length)
    return personal.coordinates.complement(length).put(complete, rows)


def _scores(
    task: TaskInput,
    predictors: Tensor | Mixture,
    split: Split,
    personal: Personal | None = None,
) -> Tensor:
    """Return losses and accuracies of the client's predictors: ``[k, 2]``."""
    request = Scores(_itself(len(predictors)), predictors, split, personal)
    replies = task.ask(request).values
    accuracy = replies.accuracy
    if accuracy is None:
        accuracy = torch.zeros_like(replies.loss)
    return torch.stack([_nan_to_inf(replies.loss), accuracy.double()], dim=1)


def _nan_to_inf(losses: Tensor) -> Tensor:
    """Return losses in double precision; one that overflowed to NaN is infinite."""
    return losses.double().masked_fill(losses.isnan(), torch.inf)
