"""Runs on disk: a result, and ``run.json`` with its metrics and settings.

``run.json`` has a checksum, and the digest of the result that it belongs to. A digest of
everything that determines a run identifies it, so that a saved run is not repeated.
"""

from __future__ import annotations

import json
import platform
import shutil
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from srfca._version import __version__
from srfca.analysis import Analysis
from srfca.analysis.files import ANALYSIS_FILE
from srfca.errors import InputError, require
from srfca.experiments.answer import CLUSTERS_FILE, save_answer
from srfca.experiments.experiment import SHARED_SECTIONS, Experiment
from srfca.experiments.metrics import Metrics
from srfca.experiments.runner import ScoredRun
from srfca.experiments.source_code import code_digest, files_digest
from srfca.experiments.user_model import model_files
from srfca.json_files import read_json, write_json
from srfca.methods._common.result_files import RESULT_FILE, TENSORS_FILE, stored_digest

RUN_FILE = "run.json"
JOURNAL_FOLDER = "journal"
_OTHER_FILES = (CLUSTERS_FILE, "command.json")
FORMAT = 1
_REMEDY = "run it again"
_MAX_LISTED = 10
"""Runs that an error lists."""
_EXTRA = (
    "settings", "srfca", "versions", "client_samples", "run_digest", "tensors_sha256",
)  # fmt: skip
"""What ``run.json`` holds in addition to the metrics."""


def run_settings(experiment: Experiment, method: str) -> dict[str, dict[str, Any]]:
    """Return those sections of an experiment that concern a method."""
    names = (*SHARED_SECTIONS, method)
    return {name: experiment.values(name) for name in names}


def run_digest(experiment: Experiment, method: str, seed: int) -> str:
    """Return the digest that identifies a run.

    It covers settings, seed and version, a user's data and model, and the code of a method, a data
    set or a model that is not part of srfca.
    """
    return _digest({
        "settings": run_settings(experiment, method),
        "fingerprint": experiment.fingerprint,
        "code": _code_digests(experiment, method),
        "seed": seed,
        "srfca": __version__,
    })  # fmt: skip


def save(
    run: ScoredRun, experiment: Experiment, folder: Path, analysis: Analysis | None = None
) -> None:
    """Write a result, its analysis if there is one, and its metrics.

    ``run.json`` comes last, so a folder that has it is whole.
    """
    run.result.save(folder)
    if analysis is not None:
        save_answer(analysis, folder)
    metrics = run.metrics
    extra = (
        run_settings(experiment, run.method),
        __version__,
        library_versions(),
        run.federation.sizes.tolist(),
        run_digest(experiment, run.method, run.result.seed),
        stored_digest(folder),
    )
    write_json(folder / RUN_FILE, metrics | dict(zip(_EXTRA, extra, strict=True)), FORMAT)


def read(folder: Path, digest: str) -> Metrics | None:
    """Return the metrics of the run with this digest, None if it is missing or damaged."""
    try:
        metrics, extra = read_run(folder)
    except (FileNotFoundError, InputError):
        return None
    return metrics if extra["run_digest"] == digest else None


def read_run(folder: Path) -> tuple[Metrics, dict[str, Any]]:
    """Return the metrics of the run in a folder, and what else ``run.json`` holds.

    Raises:
        FileNotFoundError: If there is no ``run.json``.
        InputError: If it is damaged, or belongs to another result than that of the folder.
    """
    path = folder / RUN_FILE
    content = read_json(path, FORMAT, _REMEDY)
    missing = [name for name in _EXTRA if name not in content]
    require(not missing, f"{path} is damaged: it lacks {', '.join(missing)}: {_REMEDY}")
    require(
        content["tensors_sha256"] == stored_digest(folder),
        f"{path} belongs to another result than {folder / RESULT_FILE}: {_REMEDY}",
    )
    metrics = {name: value for name, value in content.items() if name not in _EXTRA}
    return metrics, {name: content[name] for name in _EXTRA}


def claim(folder: Path, digest: str, *, resumes: bool, overwrite: bool) -> None:
    """Make sure that a run may be saved in a folder, and remove what it may replace.

    Args:
        folder: The folder.
        digest: Identifies the run.
        resumes: Whether the run continues the journal in the folder.
        overwrite: Remove another run, or a damaged one.

    Raises:
        InputError: If the folder holds another run that is not to be overwritten.
    """
    if overwrite:
        for name in (RUN_FILE, RESULT_FILE, TENSORS_FILE, ANALYSIS_FILE, *_OTHER_FILES):
            (folder / name).unlink(missing_ok=True)
        shutil.rmtree(folder / JOURNAL_FOLDER, ignore_errors=True)
        return
    advice = "choose another --out, or replace it with --overwrite"
    if (folder / JOURNAL_FOLDER).exists():
        require(
            resumes,
            f"{folder} holds a run with a journal: continue it with 'srfca resume {folder}', "
            f"{advice}",
        )
        return  # the journal checks that it is the same run, and yields the same result
    if (folder / RESULT_FILE).exists() or (folder / RUN_FILE).exists():
        require(
            read(folder, digest) is not None,
            f"{folder} holds another result, or a damaged one: {advice}",
        )


def find(path: Path) -> Path:
    """Return the folder of a run.

    Args:
        path: The ``--out`` of ``srfca run``; or a run in that of ``srfca compare``, by the
            beginning of its name, such as ``runs/sr-fca`` for ``runs/sr-fca-seed0-1a2b3c``.

    Raises:
        InputError: If there is no such run, or more than one.
    """
    if (path / RESULT_FILE).is_file():
        return path
    if path.is_dir():
        runs = _runs_in(path, "")
        require(bool(runs), f"{path} holds no run: it has no {RESULT_FILE}")
    else:
        runs = _runs_in(path.parent, path.name)
        require(bool(runs), f"there is no run {path}")
    names = ", ".join(str(run) for run in runs[:_MAX_LISTED])
    more = f" and {len(runs) - _MAX_LISTED} more" if len(runs) > _MAX_LISTED else ""
    require(len(runs) == 1, f"{path} could be any of {len(runs)} runs: name one of {names}{more}")
    return runs[0]


def _runs_in(folder: Path, prefix: str) -> list[Path]:
    """Return the runs in a folder whose names begin with a prefix."""
    if not folder.is_dir():
        return []
    named = (path for path in sorted(folder.iterdir()) if path.name.startswith(prefix))
    return [path for path in named if (path / RESULT_FILE).is_file()]


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that decide the numbers of a run."""
    versions = {"python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "scikit-learn", "numba"):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _code_digests(experiment: Experiment, method: str) -> list[str]:
    """Return digests of the code of an experiment's components that are not part of srfca."""
    digests = [code_digest(experiment.component(method))]
    if experiment.user_data is None:  # otherwise the fingerprint covers both
        digests.append(code_digest(experiment.component("data")))
        model = str(experiment.sections["model"].get("name", ""))
        if ":" in model:
            digests.append(files_digest(model_files(model)))
    return [digest for digest in digests if digest]


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
