"""The benchmarks of the field: which federations there are, and what is run on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from srfca.data.loaders.cache import data_folder
from srfca.data.loaders.publication import PUBLICATIONS
from srfca.errors import InputError, require, unknown
from srfca.experiments import config, runner
from srfca.experiments.executor import RunSpec
from srfca.experiments.experiment import Experiment, method_class

METHODS = ("sr-fca", "oracle", "global", "local", "ifca", "fedem")
"""The methods that are compared by default."""
FINE_TUNE_STEPS = 50
"""Steps of fine-tuning of all methods but SR-FCA, by default."""
FEDEM_COMPONENTS = 3
"""Components of FedEM, as in the experiments of its paper: they are no clusters."""
_SKEW = (
    "fashion-dirichlet-1", "fashion-dirichlet-03", "fashion-permutations", "fashion-rotations",
    "fashion-outliers", "fashion-groups-outliers", "fashion-noise-20", "fashion-noise-60",
    "transposed-femnist",
)  # fmt: skip
_FLUX = ("flux-mnist", "flux-fashion-mnist", "flux-cifar10")
_FLUX_SHIFTS = ("features", "labels", "labels-given-features", "features-given-labels")
_FLUX_LEVELS = range(1, 9)
_FEDRC = ("fedrc-fashion-mnist", "fedrc-cifar10")


@dataclass(frozen=True)
class FieldFederation:
    """One federation of a benchmark.

    Args:
        name: Its name. Parts are separated by slashes: data set, kind of shift, level.
        preset: The experiment that it is made of, or the path of a TOML file.
        settings: Changes of the experiment, as ``--set`` takes them.
    """

    name: str
    preset: str
    settings: tuple[str, ...] = ()


def _plain(presets: Iterable[str]) -> tuple[FieldFederation, ...]:
    return tuple(FieldFederation(preset, preset) for preset in presets)


def _flux() -> tuple[FieldFederation, ...]:
    return tuple(
        FieldFederation(f"{preset}/{shift}/{level}", preset, (f"shift={shift}", f"level={level}"))
        for preset, shift, level in product(_FLUX, _FLUX_SHIFTS, _FLUX_LEVELS)
    )


SUITES: Mapping[str, tuple[FieldFederation, ...]] = {
    "skew": _plain(_SKEW),
    "flux": _flux(),
    "fedrc": _plain(_FEDRC),
}
"""Groups of federations by name."""


def default_methods(federations: Sequence[FieldFederation]) -> tuple[str, ...]:
    """Return the methods that are compared by default: in FedRC's setting also FedRC.

    >>> default_methods(select(["fedrc"]))[-1], default_methods(select())[-1]
    ('fedrc', 'fedem')
    """
    in_fedrc = all(federation in SUITES["fedrc"] for federation in federations)
    return (*METHODS, "fedrc") if in_fedrc else METHODS


def select(suites: Sequence[str] = (), only: Sequence[str] = ()) -> list[FieldFederation]:
    """Return the federations of suites, or some of them.

    Args:
        suites: Names of suites. None is "skew", or with ``only`` all of them.
        only: Names of federations; the first parts of a name select all that begin with them. An
            experiment that is in no suite may be named too, or the path of a TOML file.

    Raises:
        InputError: If there is no such suite, federation or experiment, or two have one name.

    Examples:
        >>> [federation.name for federation in select(["fedrc"])]
        ['fedrc-fashion-mnist', 'fedrc-cifar10']
        >>> len(select(only=["flux-mnist/labels"])), len(select(["flux"]))
        (8, 96)
    """
    for suite in suites:
        if suite not in SUITES:
            raise unknown("suite", suite, SUITES)
    suites = suites or (list(SUITES) if only else ["skew"])
    present = [federation for suite in dict.fromkeys(suites) for federation in SUITES[suite]]
    if not only:
        return present
    selected = [federation for name in only for federation in _named(name, present)]
    selected = list(dict.fromkeys(selected))
    names = [federation.name for federation in selected]
    for name in names:
        require(names.count(name) == 1, f"two federations have the name {name!r}: rename one file")
    return selected


def _named(name: str, present: Sequence[FieldFederation]) -> list[FieldFederation]:
    """Return the federations that a name selects."""
    matching = [f for f in present if f.name == name or f.name.startswith(f"{name}/")]
    if matching:
        return matching
    if name not in config.names() and not name.endswith(".toml"):
        choices = {federation.name.partition("/")[0]: None for federation in present}
        raise unknown("federation", name, [*choices, "an experiment of 'srfca list'", "FILE.toml"])
    return [FieldFederation(Path(name).name.removesuffix(".toml"), name)]


def load(federation: FieldFederation, quick: bool = False) -> Experiment:
    """Load the experiment of a federation, under the federation's name.

    Args:
        federation: The federation.
        quick: Make it small, for a run of a few seconds.

    Raises:
        InputError: If one of its settings is wrong.
    """
    experiment = config.load(federation.preset)
    settings = [*(experiment.quick if quick else ()), *federation.settings]
    return replace(experiment.set(settings), name=federation.name)


def missing_data(experiment: Experiment, folder: str | Path | None = None) -> str | None:
    """Return why the data set of an experiment cannot be loaded; None if its files are there.

    Args:
        experiment: The experiment.
        folder: The data folder.
    """
    names = list(PUBLICATIONS.keys())
    if experiment.needs is None or experiment.needs not in names:
        return None
    place = data_folder(folder)
    publication = PUBLICATIONS[experiment.needs]
    try:
        files = [path for path, _ in publication.expected_files(place)]
    except InputError as error:
        return str(error)
    missing = [path.name for path in files if not path.is_file()]
    return str(publication.missing_files_error(missing, place)) if missing else None


def run_specs(
    experiment: Experiment, methods: Sequence[str], seeds: Sequence[int], fine_tune: int
) -> list[RunSpec]:
    """Return the runs on a federation, seed by seed.

    Methods that need the number of clusters are given the true one, FedEM ``FEDEM_COMPONENTS``.
    SR-FCA decides on fine-tuning itself; the other methods fine-tune.

    Args:
        experiment: The federation's experiment.
        methods: Keys of methods, or ``MODULE:CLASS``.
        seeds: One run each.
        fine_tune: Steps of fine-tuning, 0 for none.

    Raises:
        InputError: If a method does not exist, or a parameter is not allowed.
    """
    variants = []
    for key in dict.fromkeys(methods):
        settings = _settings(experiment, key, fine_tune)
        runner.make_method(experiment.set(settings), key)
        variants.append(RunSpec(key, 0, settings=settings, experiment=experiment.name))
    return [replace(variant, seed=seed) for seed, variant in product(seeds, variants)]


def notes(methods: Sequence[str]) -> list[str]:
    """Return notes about what methods are given.

    >>> notes(["sr-fca", "ifca", "fedem"])
    ['IFCA is given the true number of clusters; FedEM has 3 components.']
    """
    with_k = [key for key in methods if key != "fedem" and method_class(key).needs_k]
    parts = []
    if with_k:
        names = " and ".join(method_class(key).name for key in with_k)
        verb = "is" if len(with_k) == 1 else "are"
        parts.append(f"{names} {verb} given the true number of clusters")
    if "fedem" in methods:
        parts.append(f"FedEM has {FEDEM_COMPONENTS} components")
    return [f"{'; '.join(parts)}."] if parts else []


def _settings(experiment: Experiment, key: str, fine_tune: int) -> tuple[str, ...]:
    """Return the settings of a method's runs."""
    settings: tuple[str, ...] = ()
    if fine_tune and key != "sr-fca":
        settings += (f"{key}.fine_tune_steps={fine_tune}",)
    if key == "fedem" and "k" not in experiment.sections.get(key, {}):
        settings += (f"{key}.k={FEDEM_COMPONENTS}",)
    return settings
