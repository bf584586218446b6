"""Experiments as they are written down: TOML presets, checked against what they configure."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from inspect import signature
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from srfca.errors import InputError, require, unknown

if TYPE_CHECKING:
    from srfca.methods import Method

METHODS = {
    "sr-fca": "SRFCA",
    "oracle": "Oracle",
    "local": "Local",
    "global": "Global",
    "fedprox": "FedProx",
    "robust-global": "RobustGlobal",
    "ifca": "IFCA",
    "hypcluster": "HypCluster",
    "fesem": "FeSEM",
    "one-shot-kmeans": "OneShotKMeans",
    "one-shot-ifca": "OneShotIFCA",
    "cfl": "CFL",
    "hierarchical": "Hierarchical",
    "fedgroup": "FedGroup",
    "pacfl": "PACFL",
    "fedsoft": "FedSoft",
    "fedem": "FedEM",
    "ditto": "Ditto",
    "mocha": "MOCHA",
}
"""Methods by the names of the command line: the class in ``srfca.methods`` says the rest."""
SHARED = ("data", "model", "federation", "work")
"""The sections that all methods have in common; each method has one of its own besides."""
NUMBERS_OF_CLUSTERS = (2, 3, 4)
_OF_THE_RUN = ("seed", "work", "folder", "device", "truth")
"""Parameters that an experiment does not set: they are each run's own."""


@dataclass(frozen=True)
class Experiment:
    """Data, a model and the parameters of every method."""

    name: str
    description: str
    clusters: str
    """The true number of clusters, for people to read."""
    sections: Mapping[str, Mapping[str, Any]]
    needs: str | None = None
    """The data set that must be there."""
    everywhere: tuple[str, ...] = ()
    """Settings for every section that knows them."""
    quick: tuple[str, ...] = ()
    """Settings for a run of a few seconds, to see that everything works."""
    k: tuple[int, ...] = NUMBERS_OF_CLUSTERS
    """The numbers of clusters to tell those methods that must be told one."""
    made: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """What a section configures, where that has no name of ours: a user's own data or model."""
    fingerprint: str = ""
    """Tells a user's own data and model from others of the same name."""
    again: Callable[[], Experiment] | None = None
    """Makes what was ``made`` again, in another process."""

    def __reduce__(self) -> tuple[Callable[..., Experiment], tuple[Any, ...]]:
        """Pickle it; a user's own data and model are loaded again where it arrives."""
        if self.again is not None:
            return _made_again, (self.again, self.sections)
        return Experiment, tuple(getattr(self, each.name) for each in fields(self))

    def set(self, assignments: Iterable[str]) -> Experiment:
        """The same with each ``key=value`` applied in turn.

        A bare key is set in every section that knows it, ``section.key`` in that one alone. A
        method's section may also say how it trains (``oracle.lr``), in the place of ``work``; a
        bare key changes that where it has been said.
        """
        sections = {name: dict(section) for name, section in self.sections.items()}
        for assignment in assignments:
            key, equals, text = assignment.partition("=")
            require(bool(equals), f"--set takes key=value, not {assignment!r}")
            section, _, name = key.strip().rpartition(".")
            known = {part: self.annotations(part) for part in (*SHARED, *METHODS)}
            homes = [
                part
                for part in known
                if name in known[part]
                and (section == part if section else _at_home(name, part, sections[part]))
            ]
            if not homes:
                raise _unknown_key(key.strip(), known)
            for home in homes:
                sections[home][name] = parse(text.strip(), known[home][name], key.strip())
        return replace(self, sections=sections)

    def callable(self, section: str) -> Callable[..., Any]:
        """What a section configures."""
        return self.made.get(section) or _callable(section, self.sections)

    def arguments(self, section: str) -> dict[str, Any]:
        """The arguments of a section, without the name of what it configures."""
        known = _of_method(section) if section in METHODS else None
        return {
            key: value
            for key, value in self.sections[section].items()
            if key != "name" and (known is None or key in known)
        }

    def work(self, method: str) -> dict[str, Any]:
        """How a method trains: the arguments of ``work``, and what its own section says of it."""
        own = self.sections[method].items()
        return self.arguments("work") | {k: v for k, v in own if k not in _of_method(method)}

    def annotations(self, section: str) -> Mapping[str, Any]:
        """The keys of a section with their types: the parameters of what it configures."""
        if section in METHODS:
            return {**_annotations(self.callable("work")), **_of_method(section)}
        known = _annotations(self.callable(section))
        if section == "federation":
            known = {key: kind for key, kind in known.items() if key not in ("data", "model")}
            known |= {"warm_start": int, "warm_lr": float}
        return known


def _at_home(key: str, section: str, said: Mapping[str, Any]) -> bool:
    """Whether a key is a section's own, or has been said there in the place of ``work``."""
    return section not in METHODS or key in _of_method(section) or key in said


def _annotations(configured: Callable[..., Any]) -> dict[str, Any]:
    plain_class = isinstance(configured, type) and not is_dataclass(configured)
    hints = get_type_hints(configured.__init__ if plain_class else configured)
    return {key: hints[key] for key in signature(configured).parameters if key not in _OF_THE_RUN}


@cache
def _of_method(name: str) -> Mapping[str, Any]:
    return MappingProxyType(_annotations(method_class(name)))


def _made_again(
    again: Callable[[], Experiment], sections: Mapping[str, Mapping[str, Any]]
) -> Experiment:
    return replace(again(), sections=sections)


def method_class(name: str) -> type[Method]:
    """The class of a method by its name on the command line."""
    from srfca import methods

    if name not in METHODS:
        raise unknown("method", name, METHODS)
    found: type[Method] = getattr(methods, METHODS[name])
    return found


def takes_k(name: str) -> bool:
    """Whether a method must be told the number of clusters."""
    return any(each.name == "k" and each.default is not None for each in fields(method_class(name)))


def names() -> list[str]:
    """All presets."""
    presets = files("srfca.experiments") / "presets"
    return sorted(p.name.removesuffix(".toml") for p in presets.iterdir() if p.name[-5:] == ".toml")


def read(name: str) -> Experiment:
    """A preset by its name, as it is written."""
    if name not in names():
        raise unknown("experiment", name, names())
    text = (files("srfca.experiments") / "presets" / f"{name}.toml").read_text("utf-8")
    content = tomllib.loads(text)
    sections = {part: content.get(part, {}) for part in (*SHARED, *METHODS)}
    return Experiment(
        name=name,
        description=content["description"],
        clusters=content["clusters"],
        sections=sections,
        needs=content.get("needs"),
        everywhere=tuple(content.get("everywhere", ())),
        quick=tuple(content.get("quick", ())),
        k=tuple(content.get("k", NUMBERS_OF_CLUSTERS)),
    )


def load(name: str) -> Experiment:
    """A preset by its name, checked."""
    experiment = read(name)
    sections = {part: dict(section) for part, section in experiment.sections.items()}
    for part, section in sections.items():
        known = experiment.annotations(part)
        for key, value in section.items():
            if key == "name" and part in ("data", "model"):
                continue
            if key not in known:
                raise _unknown_key(f"{part}.{key}", {part: known})
            section[key] = parse(value, known[key], f"{part}.{key}")
    return replace(experiment, sections=sections).set(experiment.everywhere)


def parse(value: Any, annotation: Any, name: str) -> Any:
    """A value from TOML or from the command line as what an annotation asks for.

    >>> parse("0.5", float | str, "threshold"), parse("auto", float | str, "threshold")
    (0.5, 'auto')
    >>> parse("64,32", tuple[int, ...], "hidden"), parse("none", int | None, "batch_size")
    ((64, 32), None)
    """
    for kind in _kinds(annotation):
        try:
            return _as(value, kind)
        except (ValueError, TypeError):
            continue
    wanted = " or ".join(dict.fromkeys(_KIND_NAMES[kind] for kind in _kinds(annotation)))
    raise InputError(f"{name} must be {wanted}, not {value!r}")


_KIND_NAMES = {
    NoneType: "'none'",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list of whole numbers",
}


def _kinds(annotation: Any) -> list[type]:
    """The plain types of an annotation, the strictest first."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]
    kinds = {str if get_origin(part) is Literal else get_origin(part) or part for part in parts}
    return [kind for kind in _KIND_NAMES if kind in kinds]


def _as(value: Any, kind: type) -> Any:
    text = value.strip().lower() if isinstance(value, str) else None
    if kind is NoneType:
        if text != "none":
            raise ValueError
        return None
    if kind is bool:
        if isinstance(value, bool):
            return value
        return {"true": True, "false": False}[text] if text in ("true", "false") else _refuse()
    if isinstance(value, bool):
        return _refuse()
    if kind is tuple:
        items = text.strip("[]()").split(",") if text is not None else value
        return tuple(int(item) for item in items if str(item).strip())
    if kind is int:
        return int(text) if text is not None else value if isinstance(value, int) else _refuse()
    if kind is float:
        return float(value)
    return str(value)


def _refuse() -> Any:
    raise ValueError


def _callable(section: str, sections: Mapping[str, Mapping[str, Any]]) -> Callable[..., Any]:
    from srfca import data, federation, models

    found: Callable[..., Any]
    match section:
        case "data":
            found = data.DATASETS[sections["data"]["name"]]
        case "model":
            found = models.MODELS[sections["model"]["name"]]
        case "federation":
            found = federation.Simulation
        case "work":
            found = federation.Work
        case _:
            found = method_class(section)
    return found


def _unknown_key(key: str, known: Mapping[str, Mapping[str, Any]]) -> InputError:
    bare = [name for section in known.values() for name in section]
    dotted = [f"{part}.{name}" for part, section in known.items() for name in section]
    choices = dotted if "." in key else bare
    near = get_close_matches(key, choices, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(set(bare)))}"
    return InputError(f"unknown setting {key!r}: {hint}")
