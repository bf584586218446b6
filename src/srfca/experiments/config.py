"""Experiments in TOML files: the presets of this package, and files of your own.

A file has ``description``, ``clusters`` (the true number), ``needs``, ``k``, ``set`` and ``quick``,
all optional, a section for each of ``SHARED_SECTIONS``, and one for any method, by its key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from srfca.errors import InputError, require, unknown
from srfca.experiments.experiment import (
    DEFAULT_K,
    SHARED_SECTIONS,
    Experiment,
    method_class,
    unknown_setting,
)
from srfca.experiments.parsing import parse
from srfca.methods import METHODS

_KEYS = ("description", "clusters", "needs", "k", "set", "quick")
"""What a file may hold outside of its sections."""


def names() -> list[str]:
    """Return the names of all presets."""
    presets = files("srfca.experiments") / "presets"
    return sorted(p.name.removesuffix(".toml") for p in presets.iterdir() if p.name[-5:] == ".toml")


def read(name: str) -> Experiment:
    """Read an experiment without checking its settings.

    Args:
        name: A preset, or the path of a TOML file.

    Raises:
        InputError: If there is no such experiment, or the file is damaged.
    """
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the experiment {name}: {error}") from error
    elif name in names():
        text = (files("srfca.experiments") / "presets" / f"{name}.toml").read_text("utf-8")
    else:
        raise unknown("experiment", name, [*names(), "FILE.toml"])
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name} is not a TOML file: {error}") from error
    return _experiment(name, content)


def load(name: str) -> Experiment:
    """Read an experiment and check its settings.

    Args:
        name: A preset, or the path of a TOML file.

    Raises:
        InputError: If there is no such experiment, or one of its settings is wrong.

    Examples:
        >>> load("rotated-digits").set(["lr=0.1", "sr-fca.trim=0.2"]).local_training("sr-fca")["lr"]
        0.1
    """
    experiment = read(name)
    sections = {part: dict(section) for part, section in experiment.sections.items()}
    for part, section in sections.items():
        types = experiment.parameters(part)
        for key, value in section.items():
            if key == "name" and part in ("data", "model"):
                continue
            if key not in types:
                raise unknown_setting(part, key, {part: types})
            section[key] = parse(value, types[key], f"{part}.{key}")
    return replace(experiment, sections=sections).set(experiment.settings)


def _experiment(name: str, content: Mapping[str, Any]) -> Experiment:
    """Return the experiment that a file describes."""
    present = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    for key in content:
        if key not in present and key not in _KEYS:
            raise unknown(f"key of {name}", key, _KEYS)
    for key in present:
        if key not in SHARED_SECTIONS and key not in METHODS and ":" not in key:
            raise unknown(f"section of {name}", key, [*SHARED_SECTIONS, *METHODS.items()])
        if ":" in key:
            method_class(key)
    sections: dict[str, Mapping[str, Any]] = {key: {} for key in SHARED_SECTIONS}
    sections |= {key: {} for key in METHODS.items()}
    return Experiment(
        name=Path(name).name.removesuffix(".toml"),
        description=str(content.get("description", "")),
        clusters=str(content.get("clusters", "unknown")),
        sections=sections | present,
        needs=content.get("needs"),
        settings=_strings(name, content, "set"),
        quick=_strings(name, content, "quick"),
        k=parse(content.get("k", DEFAULT_K), tuple[int, ...], f"k of {name}"),
    )


def _strings(name: str, content: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = content.get(key, [])
    require(
        isinstance(values, list) and all(isinstance(value, str) for value in values),
        f"{key} of {name} must be a list of strings such as 'lr=0.1'",
    )
    return tuple(values)
