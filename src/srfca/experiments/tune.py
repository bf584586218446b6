"""Search for parameters of a method on validation data.

The learning rate, and the parameters that the method declares (``Method.searched``), are searched
with Optuna's TPE sampler. Every method gets the same budget: as many trials, on the same seeds.
Test data are never used, and the seeds differ from those of reported results. The search is kept in
a journal file: a search that was stopped resumes and ends with the same trials, because each
suggestion depends on the finished trials alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from statistics import fmean
from time import perf_counter
from types import ModuleType
from typing import Any

from srfca._version import __version__
from srfca.errors import InputError, require
from srfca.experiments import runner
from srfca.experiments.experiment import Experiment
from srfca.experiments.runner import SimulatedClients
from srfca.experiments.saved import run_settings
from srfca.files import replace_file, writable_folder
from srfca.methods import Method, Monitor
from srfca.methods._common.search_space import Choices, Layers, Percentages, Range, SearchSpace
from srfca.methods.registry import method_key

FIRST_SEED = 1000
"""The first seed of a trial."""
LR_FACTOR = 10.0
"""The learning rate is searched from a tenth to ten times that of the experiment."""
JOURNAL, BEST = "journal.log", "best.json"


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, with their scores on validation data.

    Args:
        number: From 0.
        settings: As ``--set`` takes them.
        accuracy: Mean over the clients and the seeds; None if the targets are not classes.
        loss: The same for the loss; None if the trial failed.
        error: The error message, if it failed.
        seconds: How long it took.
    """

    number: int
    settings: tuple[str, ...]
    accuracy: float | None
    loss: float | None
    error: str | None
    seconds: float

    @property
    def score(self) -> float:
        """What is maximized: the accuracy, or minus the loss if the targets are not classes."""
        if self.loss is None:
            return float("-inf")
        return -self.loss if self.accuracy is None else self.accuracy


def tune(
    experiment: Experiment,
    method: str = "sr-fca",
    *,
    trials: int = 20,
    seeds: int = 1,
    device: str = "auto",
    folder: str | Path | None = None,
    out: Path | None = None,
    monitor: Monitor | None = None,
    on_finish: Callable[[Trial], None] = lambda trial: None,
) -> list[Trial]:
    """Try settings of a method. The first trial is the experiment without changes.

    A trial that fails (for example because it diverges) counts as a trial, with its error.

    Args:
        experiment: What to tune it on.
        method: Key of the method, or a variant. A method that needs the number of clusters is given
            the true one, if it is known, and one that needs the truth the truth.
        trials: How many in all, including those of earlier calls with the same ``out``.
        seeds: Number of seeds that a trial is averaged over, from 1000 on.
        device: Where clients train.
        folder: The data folder.
        out: A folder that keeps the search, so that a later call resumes it.
        monitor: Follows the stages of each run.
        on_finish: Called with each new trial.

    Returns:
        All trials, the best first.

    Raises:
        InputError: If optuna is not installed, there are no validation data, or all trials failed.
    """
    for name, value in (("trials", trials), ("seeds", seeds)):
        require(value >= 1, f"{name} must be at least 1, not {value}")
    optuna = _import_optuna()
    key = method_key(method)
    experiment = experiment.with_methods([key])
    study = _open_study(optuna, experiment, key, seeds, out)
    if len(study.trials) < trials:
        federations = _make_federations(experiment, seeds, device, folder)
        truth = federations[FIRST_SEED].data.truth
        made: Method = runner.make_method(experiment, key, truth)
        spaces = _search_spaces(made, len(federations[FIRST_SEED].layers))
    for number in range(len(study.trials), trials):
        suggestion = _suggest(optuna, study.trials, made, spaces)
        settings = _as_settings(key, spaces, suggestion.params)
        trial = _run_trial(number, key, settings, experiment, federations, monitor)
        study.add_trial(_to_optuna(optuna, suggestion, trial))
        on_finish(trial)
    finished = [_from_optuna(stored) for stored in study.trials]
    ranked = sorted(finished, key=lambda trial: (-trial.score, trial.number))
    if ranked[0].loss is None:
        raise InputError(f"none of {len(ranked)} trials succeeded; the first: {ranked[0].error}")
    if out is not None:
        content = json.dumps(summarize(experiment, ranked, key), indent=1) + "\n"
        replace_file(out / BEST, content.encode())
    return ranked


def summarize(
    experiment: Experiment, ranked: Sequence[Trial], method: str = "sr-fca"
) -> dict[str, Any]:
    """Return the best trial and all others, ready for JSON."""
    return {
        "experiment": experiment.name,
        "method": method,
        "scored_on": "validation",
        "best": asdict(ranked[0]),
        "trials": [asdict(trial) for trial in ranked],
    }


def _make_federations(
    experiment: Experiment, seeds: int, device: str, folder: str | Path | None
) -> dict[int, SimulatedClients]:
    """Make the clients of each seed."""
    federations = {
        seed: runner.make_federation(experiment, seed, device, folder)
        for seed in range(FIRST_SEED, FIRST_SEED + seeds)
    }
    for federation in federations.values():
        require(
            "validation" in federation.splits, "tuning needs validation data, but validation is 0"
        )
    return federations


def _suggest(
    optuna: ModuleType, previous: Sequence[Any], method: Method, spaces: Mapping[str, SearchSpace]
) -> Any:
    """Return an Optuna trial with the next parameters to try.

    Each suggestion has a new sampler, so that it depends on nothing but the previous trials.
    """
    if previous:
        sampler = optuna.samplers.TPESampler(seed=len(previous), constant_liar=False)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(previous)
        trial = study.ask()
    else:
        unchanged = [_unchanged(name, s, _current(method, name, s)) for name, s in spaces.items()]
        trial = optuna.trial.FixedTrial({k: v for values in unchanged for k, v in values.items()})
    for name, space in spaces.items():
        match space:
            case Range(integer=True):
                trial.suggest_int(name, int(space.low), int(space.high), log=space.log)
            case Range():
                trial.suggest_float(_tried(name, space), space.low, space.high, log=space.log)
            case Layers():
                trial.suggest_int(name, 1, space.most)
            case Choices():
                trial.suggest_categorical(name, space.values)
            case Percentages(word=None):
                trial.suggest_int(f"{name} quantile", space.low, space.high)
            case Percentages():
                if trial.suggest_categorical(name, [space.word, "quantile"]) == "quantile":
                    trial.suggest_int(f"{name} quantile", space.low, space.high)
    return trial


def _search_spaces(method: Method, num_layers: int) -> dict[str, SearchSpace]:
    """Return what is searched: the learning rate, and what the method declares.

    A range is widened to the method's own value, so that the first trial is inside. A number of
    layers is only searched where the model leaves a choice.
    """
    lr = method.local.lr
    spaces: dict[str, SearchSpace] = {"lr": Range(lr / LR_FACTOR, lr * LR_FACTOR, log=True)}
    for name, space in method.searched.items():
        if isinstance(space, Range):
            value = _current(method, name, space)
            space = replace(space, low=min(space.low, value), high=max(space.high, value))
        elif isinstance(space, Layers):
            most = max(min(space.most, num_layers - 1), getattr(method, name))
            if most == 1:
                continue
            space = replace(space, most=most)
        spaces[name] = space
    return spaces


def _current(method: Method, name: str, space: SearchSpace) -> Any:
    """Return a method's own value, as the search counts it."""
    value = method.local.lr if name == "lr" else getattr(method, name)
    value = method.resolved.get(name) if value is None else value
    if isinstance(space, Range) and space.divided_by is not None:
        value *= getattr(method, space.divided_by)
    return value


def _tried(name: str, space: SearchSpace) -> str:
    """Return the name of what the search varies for a parameter."""
    divisor = space.divided_by if isinstance(space, Range) else None
    return name if divisor is None else f"{name} * {divisor}"


def _unchanged(name: str, space: SearchSpace, value: Any) -> dict[str, Any]:
    """Return the search parameters that correspond to a method's own value."""
    if not isinstance(space, Percentages) or value == space.word:
        return {_tried(name, space): value}
    percentage = str(value).removesuffix("%")
    tried = "" if space.word is None else f"{name}={space.word} and "
    require(
        str(value).endswith("%")
        and percentage.isdigit()
        and space.low <= int(percentage) <= space.high,
        f"tuning tries {tried}whole percentages from {space.low}% to {space.high}%, not {value}: "
        "leave it out",
    )
    choice = {} if space.word is None else {name: "quantile"}
    return {**choice, f"{name} quantile": int(percentage)}


def _as_settings(
    key: str, spaces: Mapping[str, SearchSpace], parameters: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return search parameters as ``--set`` takes them, numbers rounded to three digits."""
    settings = []
    for name, space in spaces.items():
        value = parameters.get(_tried(name, space))
        if f"{name} quantile" in parameters:
            value = f"{parameters[f'{name} quantile']}%"
        elif isinstance(space, Range) and space.divided_by is not None:
            value = parameters[_tried(name, space)] / parameters[space.divided_by]
        settings.append(f"{key}.{name}={f'{value:.3g}' if isinstance(value, float) else value}")
    return tuple(settings)


def _run_trial(
    number: int,
    key: str,
    settings: tuple[str, ...],
    experiment: Experiment,
    federations: Mapping[int, SimulatedClients],
    monitor: Monitor | None,
) -> Trial:
    """Run the method with these settings on each seed, and score it on validation data."""
    start = perf_counter()
    scores, error = [], None
    try:
        changed = experiment.set(settings)
        for seed, federation in federations.items():
            method: Method = runner.make_method(changed, key, federation.truth)
            result = method.fit(federation, seed=seed, callbacks=monitor)
            scores.append(result.scores(federation, "validation"))
            require(bool(scores[-1].loss.isfinite().all()), "the validation loss is not finite")
    except InputError as raised:
        scores, error = [], str(raised)
    losses = [float(score.loss.mean()) for score in scores]
    accuracies = [float(s.accuracy.mean()) for s in scores if s.accuracy is not None]
    return Trial(
        number=number,
        settings=settings,
        accuracy=fmean(accuracies) if accuracies else None,
        loss=fmean(losses) if losses else None,
        error=error,
        seconds=round(perf_counter() - start, 3),
    )


def _to_optuna(optuna: ModuleType, suggestion: Any, trial: Trial) -> Any:
    """Return a trial as Optuna stores it; a failed one is pruned, so that its like is avoided."""
    states = optuna.trial.TrialState
    return optuna.trial.create_trial(
        state=states.PRUNED if trial.loss is None else states.COMPLETE,
        value=None if trial.loss is None else trial.score,
        params=suggestion.params,
        distributions=suggestion.distributions,
        user_attrs=asdict(trial),
    )


def _from_optuna(stored: Any) -> Trial:
    """Return a stored trial."""
    return Trial(**{**stored.user_attrs, "settings": tuple(stored.user_attrs["settings"])})


def _open_study(
    optuna: ModuleType, experiment: Experiment, key: str, seeds: int, out: Path | None
) -> Any:
    """Return the trials so far: those of the folder, which must be of the same search."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if out is None:
        return optuna.create_study(direction="maximize")
    path = writable_folder(out) / JOURNAL
    identity = json.dumps(
        {
            "settings": run_settings(experiment, key),
            "fingerprint": experiment.fingerprint,
            "seeds": seeds,
            "srfca": __version__,
        },
        sort_keys=True,
    )
    try:
        _drop_partial_line(path)
        backend = import_module("optuna.storages.journal").JournalFileBackend(str(path))
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(
            study_name="srfca", storage=storage, direction="maximize", load_if_exists=True
        )
        if not study.trials:
            study.set_user_attr("identity", identity)
        stored_identity = study.user_attrs["identity"]
        for stored in study.trials:
            _from_optuna(stored)
    except Exception as error:  # a damaged file can fail in many ways
        raise InputError(f"{path} is not the journal of a search: {error}") from error
    require(
        stored_identity == identity,
        f"{out} holds the search of another experiment or of other settings: choose another --out",
    )
    return study


def _drop_partial_line(path: Path) -> None:
    """Remove a last line that was only partly written when the search was killed."""
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            replace_file(path, content[: content.rfind(b"\n") + 1])


def _import_optuna() -> ModuleType:
    try:
        return import_module("optuna")
    except ImportError as error:
        raise InputError(
            "tuning needs optuna: install it with pip install 'srfca[tune]'"
        ) from error
