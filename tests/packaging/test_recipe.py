"""The conda recipe asks for what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

import srfca
from tests.docs.markdown import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
CONDA_NAMES = {"torch": "pytorch"}


def test_dependencies_equal_those_of_the_package() -> None:
    python, *run = RECIPE["requirements"]["run"]
    expected = []
    for requirement in PROJECT["dependencies"]:
        match = re.fullmatch(r"([\w-]+)(.*)", requirement)
        assert match
        expected.append(f"{CONDA_NAMES.get(match[1], match[1])} {match[2]}")
    assert run == expected
    minimum = RECIPE["context"]["python_min"]
    assert python.replace("${{ python_min }}", minimum) == f"python {PROJECT['requires-python']}"


def test_name_version_license_and_command_equal_those_of_the_package() -> None:
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["context"]["version"] == srfca.__version__
    assert RECIPE["about"]["license"] == PROJECT["license"]
    assert [RECIPE["about"]["license_file"]] == PROJECT["license-files"]
    commands = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == commands


def test_the_build_backend_is_installed() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(build) <= set(RECIPE["requirements"]["host"])
