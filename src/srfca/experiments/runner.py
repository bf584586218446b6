"""One run of one method on one experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from srfca.clustering import Partition
from srfca.data import ClientData
from srfca.engine import Simulation
from srfca.errors import require
from srfca.experiments.experiment import PRIVACY, WARM_START, Experiment, method_class
from srfca.experiments.metrics import Metrics, run_metrics
from srfca.experiments.stopwatch import Elapsed, Stopwatch
from srfca.federation import (
    ClientScores,
    Federation,
    LocalTraining,
    Privacy,
    Private,
    Split,
)
from srfca.methods import Method, Monitor, Result
from srfca.methods._common.failure import warn_of_failure
from srfca.methods._common.run import diverged
from srfca.methods.fedavg import FedAvg
from srfca.models import WarmStart

if TYPE_CHECKING:
    from srfca.ray import RayFederation

SimulatedClients: TypeAlias = "Simulation | RayFederation"
"""Simulated clients, on this machine or on a cluster."""
MakeFederation = Callable[..., "SimulatedClients"]
"""Makes them of data, a model and the arguments of ``Simulation``."""


@dataclass(frozen=True)
class ScoredRun:
    """The result of a run, with its scores.

    Args:
        experiment: Name of the experiment.
        method: Key of the method.
        result: The result.
        federation: The clients.
        scores: Scores of each client's model on the client's data.
        fine_tuned_scores: The same after fine-tuning, if there was any.
        cluster_scores: Scores of the model of each client's cluster, if clients also have
            individual models.
        split: What it was scored on: ``test``, or ``validation`` if there are no test data.
        elapsed: The time that it took; None if it was resumed.
    """

    experiment: str
    method: str
    result: Result
    federation: SimulatedClients
    scores: ClientScores
    fine_tuned_scores: ClientScores | None
    split: Split
    elapsed: Elapsed | None
    cluster_scores: ClientScores | None = None

    @property
    def metrics(self) -> Metrics:
        """The metrics of the run, ready for JSON."""
        return run_metrics(self)


def make_federation(
    experiment: Experiment,
    seed: int,
    device: str = "auto",
    folder: str | Path | None = None,
    monitor: Monitor | None = None,
    change_data: Callable[[ClientData], ClientData] = lambda data: data,
    make: MakeFederation = Simulation,
) -> SimulatedClients:
    """Make the clients of an experiment.

    With the setting ``warm_start`` their initial model is one that FedAvg has trained for that many
    steps, at the learning rate ``warm_lr`` if it is set, and otherwise as ``local_training`` says.

    Args:
        experiment: The experiment.
        seed: Decides their data.
        device: Where they train.
        folder: The data folder.
        monitor: Follows the training of a warm start.
        change_data: Applied to what the clients hold.
        make: Makes the clients of their data.

    Raises:
        InputError: If the data are missing, or data and model do not fit together.
    """
    parameters = signature(experiment.component("data")).parameters
    require("seed" in parameters, "the function of a data set must have a parameter 'seed'")
    location = {"folder": folder} if "folder" in parameters else {}
    data = change_data(_make(experiment, "data", **location, seed=seed))
    model = _make(experiment, "model")
    settings = experiment.arguments("federation")
    steps, lr = settings.get("warm_start", 0), settings.get("warm_lr")
    require(
        not steps or privacy_of(experiment) is None,
        "warm_start trains on the clients' data without privacy: leave it out",
    )
    arguments = {
        name: value for name, value in settings.items() if name not in WARM_START | PRIVACY
    } | {"device": device, "seed": seed}
    federation = make(data, model, **arguments)
    if not steps:
        return federation
    local = LocalTraining(**experiment.arguments("local_training"))
    pretraining = FedAvg(local=replace(local, steps=steps, lr=local.lr if lr is None else lr))
    start = pretraining.fit(federation, seed=seed, callbacks=monitor).models[0]
    close(federation)
    return make(data, WarmStart(model, start), **arguments)


def close(federation: SimulatedClients) -> None:
    """End the workers of clients on a cluster."""
    if not isinstance(federation, Simulation):
        federation.close()


def privacy_of(experiment: Experiment) -> Privacy | None:
    """Return how private the clients of an experiment are; None if no setting says so.

    Raises:
        InputError: If a value is not allowed.
    """
    settings = experiment.arguments("federation")
    chosen = {name: value for name, value in settings.items() if name in PRIVACY}
    return Privacy(**chosen) if chosen else None


def private(experiment: Experiment, federation: Federation, seed: int) -> Federation:
    """Return the clients as a method meets them: private, if the experiment says so."""
    privacy = privacy_of(experiment)
    return federation if privacy is None else Private(federation, privacy, seed)


def make_method(experiment: Experiment, key: str, truth: Partition | None = None) -> Any:
    """Make a method with the experiment's parameters.

    A method that needs the number of clusters, and has no ``k`` in its section, gets the true
    number if that is known: of the data, else as the experiment says.

    Args:
        experiment: The experiment.
        key: Key of the method.
        truth: The true clusters, for methods that need them or their number.

    Raises:
        InputError: If there is no such method, or a parameter is not allowed.
    """
    method = method_class(key)
    arguments: dict[str, Any] = {"truth": truth} if method.needs_truth else {}
    if method.needs_k and truth is not None:
        arguments["k"] = truth.num_clusters
    elif method.needs_k and experiment.clusters.isdigit():
        arguments["k"] = int(experiment.clusters)
    local = LocalTraining(**experiment.local_training(key))
    arguments |= experiment.arguments(key)
    return method(**arguments, local=local)


def guesses_k(experiment: Experiment, key: str, truth: Partition | None) -> bool:
    """Tell whether a method needs the number of clusters, and takes its default for it.

    Args:
        experiment: The experiment.
        key: Key of the method.
        truth: The true clusters, if they are known.
    """
    is_known = truth is not None or experiment.clusters.isdigit()
    return method_class(key).needs_k and not is_known and "k" not in experiment.arguments(key)


def run_method(
    experiment: Experiment,
    key: str,
    federation: SimulatedClients,
    seed: int,
    monitor: Monitor | None = None,
    journal: Path | None = None,
) -> ScoredRun:
    """Run a method, and score it on test data, or on validation data if there are none.

    Args:
        experiment: The experiment.
        key: Key of the method.
        federation: The clients.
        seed: Decides every draw.
        monitor: Follows the stages.
        journal: A folder from which a killed run resumes.

    Raises:
        InputError: If there is nothing to score on, or the run diverges.
    """
    method: Method = make_method(experiment, key, federation.truth)
    split: Split = "test" if "test" in federation.splits else "validation"
    require(
        split in federation.splits,
        "there is nothing to score on: the data have no test samples, and validation is 0",
    )
    resumed = journal is not None and journal.exists()
    watch = Stopwatch()
    trained_on = private(experiment, federation, seed)
    result = method.fit(trained_on, seed=seed, callbacks=monitor, journal=journal)
    elapsed = None if resumed else watch.read(federation.device)
    scores = result.scores(federation, split)
    if result.history[-1].loss is None:  # otherwise fit has checked it
        warn_of_failure(method.name, float(scores.loss.mean()), federation)
    fine_tuned = None
    if result.fine_tuned_models is not None:
        fine_tuned = result.scores(federation, split, fine_tuned=True)
    for checked in (scores, fine_tuned):
        if checked is not None:
            _check_finite(checked, method.name, federation, split)
    has_both = result.individual_models is not None and result.personal is None
    shared = replace(result, individual_models=None)
    clusters = shared.scores(federation, split) if has_both and (result.labels >= 0).all() else None
    return ScoredRun(
        experiment.name, key, result, federation, scores, fine_tuned, split, elapsed, clusters
    )


def _make(experiment: Experiment, section: str, **arguments: Any) -> Any:
    """Call what a section configures.

    Raises:
        InputError: If the section lacks a parameter that has no default.
    """
    component = experiment.component(section)
    arguments = experiment.arguments(section) | arguments
    variadic = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    missing = [
        name
        for name, parameter in signature(component).parameters.items()
        if parameter.default is Parameter.empty
        and parameter.kind not in variadic
        and name not in arguments
    ]
    require(not missing, f"section [{section}] of the experiment must set {', '.join(missing)}")
    return component(**arguments)


def _check_finite(scores: ClientScores, name: str, federation: Federation, split: Split) -> None:
    """Raise an error if the loss of a client is infinite or NaN."""
    infinite = (~scores.loss.isfinite()).nonzero().flatten().tolist()
    if infinite:
        first = federation.client_ids[infinite[0]]
        raise diverged(name, f"client {first!r} ({split} loss)", len(infinite) - 1)
