"""Experiments: sections of settings, checked against the parameters of what they configure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, get_type_hints

from srfca.data import DATASETS
from srfca.engine import Simulation
from srfca.errors import InputError, require, unknown
from srfca.experiments.parsing import parse
from srfca.experiments.synonyms import SYNONYMS, hint
from srfca.experiments.user_model import import_model
from srfca.federation import LocalTraining, Privacy
from srfca.methods import METHODS, Method
from srfca.methods.registry import method_key, method_of, split_variant
from srfca.models import MODELS

SHARED_SECTIONS = ("data", "model", "federation", "local_training")
"""Sections that all methods share. Each method also has a section, named by its key."""
DEFAULT_K = (2, 3, 4)
"""Numbers of clusters for the methods that need one, unless the experiment has others."""
_OF_VARIANT = re.compile(r"([^=]+:.*=.*)\.(\w+)\s*=([^=]*)")
"""An assignment in the section of a variant: its key has an equals sign itself."""
_SET_BY_THE_RUN = ("seed", "local", "folder", "device", "truth")
"""Parameters that are no settings of an experiment."""
WARM_START = {"warm_start": int, "warm_lr": float}
PRIVACY = get_type_hints(Privacy)
"""Settings of the section ``federation`` that are no parameters of ``Simulation``."""


@dataclass(frozen=True)
class Experiment:
    """Data, a model and the parameters of every method.

    Args:
        name: Its name.
        description: What it is, in one line.
        clusters: The true number of clusters, to be read by people; "unknown" if it is not known.
        sections: The settings by section: ``SHARED_SECTIONS``, and methods by key.
        needs: The data set that must be on disk, if any.
        settings: Settings for every section that has them, as ``--set`` takes them; ``sections``
            already has them.
        quick: Settings for a run of a few seconds.
        k: Numbers of clusters to try with methods that need one.
        user_data: Makes the client data, if they are a user's and not a registered data set.
        fingerprint: Tells a user's data and model from others of the same name.
        reload: Makes an experiment on a user's data again, in another process.
    """

    name: str
    description: str
    clusters: str
    sections: Mapping[str, Mapping[str, Any]]
    needs: str | None = None
    settings: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    k: tuple[int, ...] = DEFAULT_K
    user_data: Callable[..., Any] | None = None
    fingerprint: str = ""
    reload: Callable[[], Experiment] | None = None

    def __reduce__(self) -> tuple[Callable[..., Experiment], tuple[Any, ...]]:
        """Pickle it; a user's data are loaded again when it is unpickled."""
        if self.reload is not None:
            return _reload, (self.reload, self.sections)
        return Experiment, tuple(getattr(self, parameter.name) for parameter in fields(self))

    def with_methods(self, keys: Iterable[str]) -> Experiment:
        """Return this experiment with a section for each of these methods.

        Registered methods have one already; this is for variants (``split_variant``) and for
        methods by ``MODULE:CLASS``.

        Raises:
            InputError: If there is no such method, or a variant has a setting that it has not.
        """
        keys = [name for key in keys for name in (split_variant(key)[0], key)]
        new = [key for key in dict.fromkeys(keys) if key not in self.sections]
        if not new:
            return self
        for key in new:
            method_class(key)
        sections: dict[str, Mapping[str, Any]] = {**self.sections, **{key: {} for key in new}}
        experiment = replace(self, sections=sections)._apply(self.settings, new)
        for key in new:
            experiment.values(key)
        return experiment

    def set(self, assignments: Iterable[str]) -> Experiment:
        """Return this experiment with each ``key=value`` applied in turn.

        ``section.key`` changes that section. A bare key changes every section that has it. A
        method's section may also hold settings of ``local_training`` (``oracle.lr``), for that
        method alone; a bare key changes these where they are present.

        Raises:
            InputError: If a key is unknown, or a value is not allowed.
        """
        assignments = list(assignments)
        sections = [split_assignment(assignment)[0] for assignment in assignments]
        return self.with_methods(key for key in sections if ":" in key)._apply(assignments)

    def require_used(self, assignments: Iterable[str], methods: Sequence[str]) -> None:
        """Raise an error if nothing in a run of these methods has one of these settings.

        Args:
            assignments: ``key=value``, as ``set`` takes them.
            methods: Keys of the methods that run.

        Raises:
            InputError: If a setting is unknown, or only methods that do not run have it.
        """
        bases = [split_variant(key)[0] for key in methods]
        used = {part: self.parameters(part) for part in (*SHARED_SECTIONS, *bases, *methods)}
        for assignment in assignments:
            section, name, _ = split_assignment(assignment)
            if section:
                is_method = section in METHODS or ":" in section  # others are refused by set
                require(
                    section in used or not is_method,
                    f"the setting '{section}.{name}' would have no effect, because {section} does "
                    f"not run (but {', '.join(methods)}): leave it out",
                )
            elif not any(name in part for part in used.values()):
                raise self._unused_setting(name, used, methods)

    def _unused_setting(
        self, name: str, used: Mapping[str, Mapping[str, Any]], methods: Sequence[str]
    ) -> InputError:
        """Return an error for a setting that no method which runs has."""
        meant = SYNONYMS.get(name, name)
        having = [key for key in METHODS.items() if meant in self.parameters(key)]
        if not having or any(meant in part for part in used.values()):
            return unknown_setting("", name, used)
        names = [method_class(key).name for key in methods]
        subject = f"{names[0]} has" if len(names) == 1 else f"{', '.join(names)} have"
        listed = ", ".join(having[:6]) + ", ..." * (len(having) > 6)
        return InputError(
            f"{subject} no setting {name!r}, so it would have no effect; methods with a setting "
            f"{meant!r} are {listed}"
        )

    def _apply(self, assignments: Iterable[str], only: Sequence[str] | None = None) -> Experiment:
        """Apply assignments to all sections, or to these only, which may then lack the key."""
        sections = {name: dict(section) for name, section in self.sections.items()}
        for assignment in assignments:
            section, name, text = split_assignment(assignment)
            types = {part: self.parameters(part) for part in sections}
            if section and section not in types:
                raise unknown("section", section, types)
            targets = [
                part
                for part in types
                if name in types[part]
                and (section == part if section else _has(name, part, sections[part]))
            ]
            if not targets and only is None:
                raise unknown_setting(section, name, types)
            called = f"{section}.{name}" if section else name
            chosen = {part: types[part] for part in targets if only is None or part in only}
            for part, value in _parsed(text, name, called, chosen).items():
                sections[part][name] = value
        return replace(self, sections=sections)

    def component(self, section: str) -> Callable[..., Any]:
        """Return what a section configures: a data set, a model, a class."""
        match section:
            case "data":
                return self.user_data or DATASETS[self._name_in("data")]
            case "model":
                return _model(self._name_in("model"))
            case "federation":
                return Simulation
            case "local_training":
                return LocalTraining
            case _:
                return method_class(section)

    def values(self, section: str) -> dict[str, Any]:
        """Return the settings of a section; a variant has those of its method, and its own.

        Raises:
            InputError: If a setting of a variant is unknown, or its value not allowed.
        """
        base, settings = split_variant(section)
        if base == section:
            return dict(self.sections.get(section, {}))
        overrides, types = {}, self.parameters(section)
        for setting in settings:
            _, name, text = split_assignment(setting)
            if name not in types:
                raise unknown_setting(section, name, {section: types})
            overrides[name] = parse(text, types[name], f"{name} of {section}")
        return {**self.sections.get(base, {}), **overrides, **self.sections.get(section, {})}

    def arguments(self, section: str) -> dict[str, Any]:
        """Return the arguments of what a section configures."""
        values = self.values(section)
        if section in SHARED_SECTIONS:
            return {key: value for key, value in values.items() if key != "name"}
        return {key: value for key, value in values.items() if key in _method_parameters(section)}

    def local_training(self, method: str) -> dict[str, Any]:
        """Return the arguments of a method's ``LocalTraining``."""
        values = self.values(method).items()
        parameters = _method_parameters(method)
        return self.arguments("local_training") | {k: v for k, v in values if k not in parameters}

    def parameters(self, section: str) -> Mapping[str, Any]:
        """Return the keys of a section with their types."""
        if section not in SHARED_SECTIONS:
            return {**_parameters(LocalTraining), **_method_parameters(section)}
        parameters = _parameters(self.component(section))
        if section == "federation":
            fixed, added = ("data", "model"), WARM_START | PRIVACY
            return {key: kind for key, kind in parameters.items() if key not in fixed} | added
        return parameters

    def _name_in(self, section: str) -> str:
        name = self.sections.get(section, {}).get("name")
        require(isinstance(name, str), f"section [{section}] must have a name, a string")
        return str(name)


def method_class(key: str) -> type[Method]:
    """Return a method by its key, that of a variant, or ``MODULE:CLASS``.

    Raises:
        InputError: If there is none, or it cannot be run.
    """
    method = method_of(key)
    require(
        isinstance(getattr(method, "name", None), str),
        f"method {key!r} must declare 'name', a string: its name in tables",
    )
    require(is_dataclass(method), f"method {key!r} must be a frozen dataclass")
    return method


def split_assignment(assignment: str) -> tuple[str, str, str]:
    """Split ``section.key=value`` into section, key and value; the section may be empty.

    Raises:
        InputError: If it is not of this form.

    >>> split_assignment("lr=0.1"), split_assignment("ifca:restarts=5.lr=0.1")
    (('', 'lr', '0.1'), ('ifca:restarts=5', 'lr', '0.1'))
    """
    match = _OF_VARIANT.fullmatch(assignment)
    if match is not None:
        return method_key(match[1].strip()), match[2], match[3].strip()
    key, equals, value = assignment.partition("=")
    require(bool(equals), f"--set takes key=value, not {assignment!r}")
    section, _, name = key.strip().rpartition(".")
    return method_key(section), name, value.strip()


def _reload(
    reload: Callable[[], Experiment], sections: Mapping[str, Mapping[str, Any]]
) -> Experiment:
    """Load a user's data again, with the settings that the experiment had."""
    return replace(reload(), sections=sections)


def _model(name: str) -> Callable[..., Any]:
    """Return a model by its name, or a function that returns the factory of ``MODULE:FACTORY``."""
    if ":" in name:
        factory = import_model(name)
        return lambda: factory
    if name not in MODELS:
        raise unknown("model", name, [*MODELS, "MODULE:FACTORY"])
    return MODELS[name]


def _has(key: str, section: str, values: Mapping[str, Any]) -> bool:
    """Tell whether a bare key concerns a section; a variant gets it from its method's."""
    if split_variant(section)[1]:
        return False
    return section in SHARED_SECTIONS or key in _method_parameters(section) or key in values


@cache
def _parameters(component: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the parameters of a callable with their types, without those that a run sets."""
    plain_class = isinstance(component, type) and not is_dataclass(component)
    hints = get_type_hints(component.__init__ if plain_class else component)
    variadic = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    types = {
        name: hints.get(name, Any)
        for name, parameter in signature(component).parameters.items()
        if name not in _SET_BY_THE_RUN and parameter.kind not in variadic
    }
    return MappingProxyType(types)


@cache
def _method_parameters(key: str) -> Mapping[str, Any]:
    return _parameters(method_class(key))


def unknown_setting(section: str, name: str, types: Mapping[str, Mapping[str, Any]]) -> InputError:
    """Return an error for a setting that does not exist, with the one that may be meant."""
    prefix = f"{section}." if section else ""
    parts = [types[section]] if section else types.values()
    choices = {key for part in parts for key in part}
    return InputError(f"unknown setting {prefix + name!r}: {hint(name, choices, prefix)}")


def _parsed(
    text: str, name: str, called: str, types: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the value of a setting by section.

    A value that only some methods allow, such as a quantile as threshold, stays a text in the
    sections of the others, which refuse it if they run.

    Raises:
        InputError: If no method allows it, or a shared section does not.
    """
    values: dict[str, Any] = {}
    errors: list[InputError] = []
    for part, parameters in types.items():
        try:
            values[part] = parse(text, parameters[name], called)
        except InputError as error:
            if part in SHARED_SECTIONS:
                raise
            errors.append(error)
            values[part] = text
    if errors and len(errors) == len(types):
        raise errors[0]
    return values
