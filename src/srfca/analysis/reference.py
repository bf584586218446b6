"""What clients are compared with: one model for all, and training alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from srfca.analysis.client_scores import best_split
from srfca.federation.local_training import LocalTraining
from srfca.federation.protocol import Federation
from srfca.federation.replies import ClientScores
from srfca.federation.requests import Split
from srfca.methods import Monitor, Result
from srfca.methods._common.stage import Stage
from srfca.methods.fedavg import FedAvg
from srfca.methods.local import Local

Source = Literal["history", "runs"]


@dataclass(frozen=True, eq=False)
class Reference:
    """Scores of all clients ``[m]`` on the same samples: with the answer, and without clusters.

    Args:
        split: The samples. Scores on ``validation`` are of samples that helped to decide.
        answer: With the models of the result.
        together: With one model for all clients, None if unknown.
        alone: With models that clients trained alone, None if unknown.
        source: ``history`` for trials of the run itself, which cost nothing more; ``runs`` for runs
            of FedAvg and Local.
    """

    split: Split
    answer: ClientScores
    together: ClientScores | None
    alone: ClientScores | None
    source: Source = "runs"


def train_reference(
    result: Result,
    federation: Federation,
    local: LocalTraining,
    monitor: Monitor | None = None,
) -> Reference:
    """Train one global model (FedAvg) and every client alone, and score them beside a result.

    Args:
        result: What it is compared with.
        federation: The clients of the result.
        local: How clients train.
        monitor: Follows the stages.

    Returns:
        Scores of the result, of the global model and of the clients' own models.

    Raises:
        InputError: If training diverges.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.methods import OneShotKMeans
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=20)
        >>> result = OneShotKMeans(k=2, local=local).fit(federation)
        >>> reference = train_reference(result, federation, local)
        >>> reference.split, bool(reference.answer.loss.mean() < reference.together.loss.mean())
        ('test', True)
    """
    split = best_split(federation)
    together = FedAvg(local=local).fit(federation, result.seed, monitor)
    alone = Local(local=local).fit(federation, result.seed, monitor)
    return Reference(
        split,
        result.scores(federation, split, fine_tuned=result.fine_tuned_models is not None),
        together.scores(federation, split),
        alone.scores(federation, split),
    )


def history_reference(result: Result) -> Reference | None:
    """Return what the trials of a run of SR-FCA tell: scores on held-out data.

    ONE_SHOT trains every client alone, and TOGETHER one model for all. A trial that was given up,
    or trained for fewer steps, is no reference.

    Returns:
        None if the run had no such trials.
    """
    answer = result.history[-1].scores if result.history else None
    if answer is None:
        return None
    together = _last(result, "TOGETHER")
    if together is not None and together.notes.get("given_up"):
        together = None
    alone = _last(result, "ALONE")
    if alone is None and result.parameters.get("one_shot_steps") is None:
        alone = _last(result, "ONE_SHOT")
    if together is None and alone is None:
        return None
    return Reference(
        "validation",
        answer,
        None if together is None else together.scores,
        None if alone is None else alone.scores,
        "history",
    )


def _last(result: Result, name: str) -> Stage | None:
    """Return the last stage of a name, None if the run had none."""
    return next((stage for stage in reversed(result.history) if stage.name == name), None)
