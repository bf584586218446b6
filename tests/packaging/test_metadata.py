"""The package's metadata, and the files at the root that speak about it."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from importlib.metadata import metadata, version
from pathlib import Path

import pytest
import yaml

import srfca
from tests.docs.markdown import ROOT
from tools import package

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ["3.11", "3.12", "3.13"]


def test_pythons_agree() -> None:
    """What is required, what is classified, and what the Makefile accepts."""
    prefix = "Programming Language :: Python :: 3."
    assert [c.rsplit(" ")[-1] for c in PROJECT["classifiers"] if c.startswith(prefix)] == PYTHONS
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= sys.version_info < (3, 14)" in (ROOT / "Makefile").read_text()


def test_types_are_part_of_the_package() -> None:
    assert (Path(srfca.__file__).parent / "py.typed").is_file()


def test_installed_metadata_are_complete() -> None:
    installed = metadata("srfca")
    assert installed["Name"] == "srfca"
    assert installed["License-Expression"] == "Apache-2.0"
    assert installed["Summary"] == PROJECT["description"]
    assert version("srfca").startswith("0.")
    assert "Project-URL" not in installed, "there is no public address yet"


def test_every_extra_is_documented() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    names = {name for row in rows for name in re.findall(r"`([a-z]+)`", row)}
    assert set(PROJECT["optional-dependencies"]) <= names


def test_the_changelog_has_a_date_for_each_version() -> None:
    top, *released = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert top.startswith("Unreleased")
    versions = []
    for heading in released:
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d\d-\d\d)\)", heading)
        assert match, heading
        versions.append((tuple(map(int, match.groups()[:3])), date.fromisoformat(match[4])))
    assert versions == sorted(versions, reverse=True)


def test_the_citation_names_the_last_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heading = f"## {citation['version']} ({citation['date-released']})"
    released = re.findall(r"^## \d.*$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == heading
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"]
    assert {"message", "title", "authors"} <= citation.keys()
    assert {"title", "authors", "journal", "year"} <= citation["preferred-citation"].keys()


@pytest.mark.parametrize(
    "name", ["SECURITY.md", "SUPPORT.md", "ROADMAP.md", "CODE_OF_CONDUCT.md", "README.md"]
)
def test_links_between_files_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target


def test_the_demo_of_the_package_is_that_of_make() -> None:
    assert package.demo_methods().split(",")[0] == "sr-fca"


def test_missing_files_of_a_package_are_named() -> None:
    tracked = ["README.md", "src/srfca/__init__.py", "src/srfca/presets/a.toml"]
    good = {"srfca/__init__.py", "srfca/presets/a.toml", "srfca-0.1.dist-info/METADATA"}
    assert package.missing(tracked, good, set(tracked)) == []
    assert package.missing(tracked, good - {"srfca/presets/a.toml"}, set(tracked)) == [
        "not in the wheel: srfca/presets/a.toml"
    ]
    assert package.missing(tracked, good, {*tracked} - {"README.md"}) == [
        "not in the sdist: README.md"
    ]
