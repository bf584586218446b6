"""The GitHub workflow and .ci/run call the same targets, and the Makefile has them."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.docs.markdown import ROOT
from tests.packaging.test_metadata import PYTHONS

WORKFLOW: dict[str, Any] = yaml.load(
    (ROOT / ".github" / "workflows" / "ci.yml").read_text(), Loader=yaml.BaseLoader
)
JOBS: dict[str, Any] = WORKFLOW["jobs"]


def commands(job: str) -> list[str]:
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def targets(lines: list[str]) -> list[str]:
    calls = [line.strip() for line in lines if line.strip().startswith("make ")]
    words = [word for call in calls for word in call.split()[1:]]
    return [word for word in words if "=" not in word]


def test_targets_exist() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in JOBS:
        if "uses" in JOBS[job]:
            continue
        assert set(targets(commands(job))) <= known, job


def test_the_tests_are_those_of_ci() -> None:
    local = targets((ROOT / ".ci" / "run").read_text().splitlines())
    everywhere = targets([line for job in JOBS for line in commands(job)])
    assert set(local) <= set(everywhere)
    assert set(targets(commands("test"))) <= set(local)


def test_the_coverage_floor_is_enforced() -> None:
    assert "make test COVERAGE=--cov" in commands("coverage")


def test_every_supported_python_is_tested() -> None:
    assert JOBS["test"]["strategy"]["matrix"]["python"] == PYTHONS


def test_the_workflow_may_only_write_where_it_publishes() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [job for job in JOBS if "permissions" in JOBS[job]] == ["publish-docs"]
    assert "refs/heads/main" in JOBS["publish-docs"]["if"]
    assert all("timeout-minutes" in job for job in JOBS.values())
