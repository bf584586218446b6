"""Search for the settings of SR-FCA that do best on validation data.

The rate, the trim (beta) and the threshold are searched with Optuna's TPE. Test data are never
looked at, and the seeds are none that figures are reported for. The search is a journal file: one
that was stopped goes on, and ends with the same trials as one that was not, since what is tried
next depends on the finished trials alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean
from time import perf_counter
from types import ModuleType
from typing import Any

from srfca._version import __version__
from srfca.engine import Simulation
from srfca.errors import InputError, require
from srfca.experiments import runner
from srfca.experiments.config import Experiment
from srfca.files import replace_file, writable_folder
from srfca.methods._common.run import Monitor
from srfca.methods.sr_fca import SRFCA

FIRST_SEED = 1000
"""The first of the seeds that trials are run with."""
REACH = 10.0
"""How far from the experiment's rate it is searched, as a factor either way."""
MOST_TRIM = 0.4
QUANTILES = (5, 95)
"""Of the distances, in per cent."""
JOURNAL, BEST = "journal.log", "best.json"


@dataclass(frozen=True)
class Trial:
    """Settings that were tried."""

    number: int
    settings: tuple[str, ...]
    """As ``--set`` takes them."""
    accuracy: float | None
    """Mean over the clients, on validation data, of their final models; and over the seeds."""
    loss: float | None
    why: str | None
    """Why it failed, if it did."""
    seconds: float

    @property
    def score(self) -> float:
        """What is maximised: the accuracy, or minus the loss where the targets are no classes."""
        if self.loss is None:
            return float("-inf")
        return -self.loss if self.accuracy is None else self.accuracy


def tune(
    experiment: Experiment,
    *,
    trials: int = 20,
    seeds: int = 1,
    device: str = "auto",
    folder: str | Path | None = None,
    out: Path | None = None,
    monitor: Monitor | None = None,
    finished: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Try settings until there are so many trials, and return them, the best first.

    The first trial is the experiment as it is. A trial that fails (it diverges, say) is one of
    them, with its reason.

    Args:
        experiment: What is tuned.
        trials: How many in all, those of earlier calls with the same ``out`` included.
        seeds: Over how many seeds a trial is averaged, from 1000 on.
        device: Where it is run.
        folder: Where data sets are looked for.
        out: A folder that keeps the search, so that another call goes on with it.
        monitor: Is shown the stages of each run.
        finished: Is called with each trial that is done.
    """
    for name, value in (("trials", trials), ("seeds", seeds)):
        require(value >= 1, f"{name} must be at least 1, not {value}")
    optuna = _optuna()
    learner = runner.method(experiment, "sr-fca")
    study = _study(optuna, experiment, seeds, out)
    if len(study.trials) < trials:
        federations = _federations(experiment, seeds, device, folder)
    for number in range(len(study.trials), trials):
        suggested = _suggested(optuna, study.trials, learner)
        trial = _tried(number, _settings(suggested.params), experiment, federations, monitor)
        study.add_trial(_record(optuna, suggested, trial))
        finished(trial)
    ranked = sorted(map(_trial, study.trials), key=lambda trial: (-trial.score, trial.number))
    if ranked[0].loss is None:
        raise InputError(f"none of {len(ranked)} trials succeeded; the first: {ranked[0].why}")
    if out is not None:
        content = json.dumps(summary(experiment, ranked), indent=1) + "\n"
        replace_file(out / BEST, content.encode())
    return ranked


def summary(experiment: Experiment, ranked: Sequence[Trial]) -> dict[str, Any]:
    """The best trial, and all of them, ready for JSON."""
    return {
        "experiment": experiment.name,
        "scored_on": "validation",
        "best": asdict(ranked[0]),
        "trials": [asdict(trial) for trial in ranked],
    }


def _federations(
    experiment: Experiment, seeds: int, device: str, folder: str | Path | None
) -> dict[int, Simulation]:
    """The clients of each seed."""
    numbers = range(FIRST_SEED, FIRST_SEED + seeds)
    federations = {seed: runner.federation(experiment, seed, device, folder) for seed in numbers}
    for clients in federations.values():
        require("validation" in clients.splits, "tuning needs validation data, but validation is 0")
    return federations


def _suggested(optuna: ModuleType, before: Sequence[Any], learner: SRFCA) -> Any:
    """What to try after the trials ``before``: an Optuna trial that was asked for its parameters.

    A sampler of its own for each trial makes it depend on nothing but these.
    """
    if before:
        sampler = optuna.samplers.TPESampler(seed=len(before), constant_liar=False)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(before)
        trial = study.ask()
    else:
        as_it_is = {"lr": learner.local.lr, "trim": learner.trim, **_threshold(learner)}
        trial = optuna.trial.FixedTrial(as_it_is)
    rate = learner.local.lr
    trial.suggest_float("lr", rate / REACH, rate * REACH, log=True)
    trial.suggest_float("trim", 0.0, max(MOST_TRIM, learner.trim))
    if trial.suggest_categorical("threshold", ["auto", "quantile"]) == "quantile":
        trial.suggest_int("quantile", *QUANTILES)
    return trial


def _threshold(learner: SRFCA) -> dict[str, Any]:
    """The parameters that stand for its threshold."""
    threshold = str(learner.threshold)
    if threshold == "auto":
        return {"threshold": "auto"}
    quantile = threshold.removesuffix("%")
    low, high = QUANTILES
    require(
        threshold.endswith("%") and quantile.isdigit() and low <= int(quantile) <= high,
        f"tuning tries threshold=auto and whole quantiles from {low}% to {high}%, not {threshold}: "
        "leave it out",
    )
    return {"threshold": "quantile", "quantile": int(quantile)}


def _settings(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Parameters as ``--set`` takes them, the numbers rounded to what is worth writing down."""
    threshold = f"{params['quantile']}%" if params["threshold"] == "quantile" else "auto"
    found = (f"lr={params['lr']:.3g}", f"trim={params['trim']:.3g}", f"threshold={threshold}")
    return tuple(f"sr-fca.{setting}" for setting in found)


def _tried(
    number: int,
    settings: tuple[str, ...],
    experiment: Experiment,
    federations: Mapping[int, Simulation],
    monitor: Monitor | None,
) -> Trial:
    """Run SR-FCA with these settings, and score it on validation data."""
    start = perf_counter()
    scores, why = [], None
    try:
        learner = runner.method(experiment.set(settings), "sr-fca")
        for seed, clients in federations.items():
            result = learner.fit(clients, seed=seed, monitor=monitor)
            scores.append(result.scores(clients, "validation"))
            require(bool(scores[-1].loss.isfinite().all()), "the validation loss is not finite")
    except InputError as error:
        scores, why = [], str(error)
    losses = [float(score.loss.mean()) for score in scores]
    right = [float(s.accuracy.mean()) for s in scores if s.accuracy is not None]
    return Trial(
        number=number,
        settings=settings,
        accuracy=fmean(right) if right else None,
        loss=fmean(losses) if losses else None,
        why=why,
        seconds=round(perf_counter() - start, 3),
    )


def _record(optuna: ModuleType, suggested: Any, trial: Trial) -> Any:
    """A trial as Optuna keeps it; one that failed is pruned, so that its like is avoided."""
    states = optuna.trial.TrialState
    return optuna.trial.create_trial(
        state=states.PRUNED if trial.loss is None else states.COMPLETE,
        value=None if trial.loss is None else trial.score,
        params=suggested.params,
        distributions=suggested.distributions,
        user_attrs=asdict(trial),
    )


def _trial(kept: Any) -> Trial:
    return Trial(**{**kept.user_attrs, "settings": tuple(kept.user_attrs["settings"])})


def _study(optuna: ModuleType, experiment: Experiment, seeds: int, out: Path | None) -> Any:
    """The trials so far: those of the folder, if they are of the same search."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if out is None:
        return optuna.create_study(direction="maximize")
    path = writable_folder(out) / JOURNAL
    about = {"sections": experiment.sections, "own": experiment.fingerprint, "seeds": seeds}
    identity = json.dumps({**about, "srfca": __version__}, sort_keys=True)
    try:
        _mend(path)
        backend = import_module("optuna.storages.journal").JournalFileBackend(str(path))
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(
            study_name="srfca", storage=storage, direction="maximize", load_if_exists=True
        )
        if not study.trials:
            study.set_user_attr("identity", identity)
        kept = study.user_attrs["identity"]
        list(map(_trial, study.trials))
    except Exception as error:  # a damaged file can fail in many ways
        raise InputError(f"{path}: is not the journal of a search: {error}") from error
    require(
        kept == identity,
        f"{out}: holds the search of another experiment or of other settings: choose another --out",
    )
    return study


def _mend(path: Path) -> None:
    """Cut off a last line that was only half written when the search was killed."""
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            replace_file(path, content[: content.rfind(b"\n") + 1])


def _optuna() -> ModuleType:
    try:
        return import_module("optuna")
    except ImportError as error:
        raise InputError(
            "tuning needs optuna: install it with pip install 'srfca[tune]'"
        ) from error
