"""``analysis.json``: an analysis on disk, to be read without the clients.

The file has the fields of ``Analysis`` by name; numbers by client are lists, null where they do not
apply. ``format`` changes when the layout does. For reading in other languages it also holds
``verdict`` and ``sentence``, which follow from the rest. A checksum shows damage, and
``tensors_sha256`` the result that the folder held when the analysis was written.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from srfca._version import __version__
from srfca.analysis.analysis import Analysis, DecisionNotes
from srfca.analysis.client_scores import from_list, scores_from_json, scores_to_json, to_list
from srfca.analysis.confidence import Confidence
from srfca.analysis.differences import (
    ClusterDifference,
    Differences,
    FeatureDifference,
    SampleInput,
)
from srfca.analysis.layers import LayerDifference
from srfca.analysis.reference import Reference
from srfca.analysis.structure import Structure
from srfca.errors import InputError, require
from srfca.files import writable_folder
from srfca.json_files import damaged, read_json, write_json
from srfca.methods._common.result_checks import check_labels
from srfca.methods._common.result_files import RESULT_FILE, stored_digest

FORMAT = 2
ANALYSIS_FILE = "analysis.json"
_RESULT = "tensors_sha256"
_REMEDY = "analyze the run again"
_INTEGERS = ("clusters", "next_cluster")
"""Fields of ``Confidence`` that are integers."""
_DIGITS = 5
"""Digits of memberships after the point."""


def write_analysis(analysis: Analysis, folder: Path) -> Path:
    """Write ``analysis.json`` into a folder, and return its path.

    Raises:
        InputError: If the folder cannot be written to.
    """
    path = writable_folder(folder) / ANALYSIS_FILE
    write_json(path, to_json(analysis) | {_RESULT: _result_digest(folder)}, FORMAT)
    return path


def read_analysis(folder: Path) -> Analysis:
    """Return the analysis in a folder.

    Raises:
        InputError: If there is none, it is damaged, of another format, or of another result than
            that of the folder.
    """
    path = folder / ANALYSIS_FILE
    try:
        content = read_json(path, FORMAT, _REMEDY)
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no analysis: {error}") from error
    digest = content.pop(_RESULT, None)
    require(
        digest is None or digest == _result_digest(folder),
        f"{path} is of another result than {folder / RESULT_FILE}: {_REMEDY}",
    )
    try:
        analysis = from_json(content)
        _check(analysis)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise damaged(path, repr(error), _REMEDY) from error
    return analysis


def _result_digest(folder: Path) -> str | None:
    """Return the digest of the result in a folder, None if it holds none."""
    return stored_digest(folder) if (folder / RESULT_FILE).exists() else None


def _check(analysis: Analysis) -> None:
    """Check that the parts of an analysis are of the same clients."""
    m = len(analysis.client_ids)
    check_labels("labels", analysis.labels.tolist(), m)
    scores = (analysis.scores.loss, analysis.scores.accuracy, analysis.scores.num_samples)
    require(
        all(part is None or tuple(part.shape) == (m,) for part in scores),
        f"scores must be of {m} clients",
    )


def to_json(analysis: Analysis) -> dict[str, Any]:
    """Return an analysis as plain values, ready for JSON."""
    reference, decision, differences = (
        analysis.reference, analysis.decision, analysis.differences,
    )  # fmt: skip
    return {
        "srfca": __version__,
        "method": analysis.method,
        "seed": analysis.seed,
        "verdict": analysis.verdict,
        "sentence": analysis.sentence(),
        "client_ids": list(analysis.client_ids),
        "labels": analysis.labels.tolist(),
        "clustered": analysis.clustered,
        "split": analysis.split,
        "scores": scores_to_json(analysis.scores),
        "confidence": None if analysis.confidence is None else _arrays(analysis.confidence),
        "structure": None if analysis.structure is None else _arrays(analysis.structure),
        "reference": None if reference is None else _reference(reference),
        "decision": None if decision is None else asdict(decision),
        "differences": None if differences is None else asdict(differences),
    }


def from_json(content: dict[str, Any]) -> Analysis:
    """Return what ``to_json`` returned."""
    reference, decision, differences = (
        content[name] for name in ("reference", "decision", "differences")
    )
    confidence, structure = content["confidence"], content["structure"]
    return Analysis(
        method=content["method"],
        seed=content["seed"],
        client_ids=tuple(content["client_ids"]),
        labels=np.asarray(content["labels"], dtype=np.int64),
        clustered=content["clustered"],
        split=content["split"],
        scores=scores_from_json(content["scores"]),
        confidence=None if confidence is None else Confidence(**_restored(confidence)),
        structure=None if structure is None else Structure(**_restored(structure)),
        reference=None if reference is None else _restore_reference(reference),
        decision=None
        if decision is None
        else DecisionNotes(**{**decision, "considered": tuple(decision["considered"])}),
        differences=None if differences is None else _restore_differences(differences),
    )


def _arrays(part: Confidence | Structure) -> dict[str, Any]:
    """Return the fields of a part of an analysis, arrays as lists."""
    return {field.name: _listed(getattr(part, field.name)) for field in fields(part)}


def _listed(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value  # a text, a number, or nothing
    if value.ndim > 1:
        return [to_list(row) for row in value.round(_DIGITS)]
    return value.tolist() if np.issubdtype(value.dtype, np.integer) else to_list(value)


def _restored(content: dict[str, Any]) -> dict[str, Any]:
    return {name: _array(name, value) for name, value in content.items()}


def _array(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if name in _INTEGERS:
        return np.asarray(value, dtype=np.int64)
    if value and isinstance(value[0], list):
        return np.stack([from_list(row).numpy() for row in value])
    return np.asarray(from_list(value).numpy())


def _reference(reference: Reference) -> dict[str, Any]:
    scores = {
        name: None if (part := getattr(reference, name)) is None else scores_to_json(part)
        for name in ("answer", "together", "alone")
    }
    return {"split": reference.split, "source": reference.source, **scores}


def _restore_reference(content: dict[str, Any]) -> Reference:
    together, alone = (
        None if content[name] is None else scores_from_json(content[name])
        for name in ("together", "alone")
    )
    answer = scores_from_json(content["answer"])
    return Reference(content["split"], answer, together, alone, content["source"])


def _restore_differences(content: dict[str, Any]) -> Differences:
    by_cluster = []
    for part in content["by_cluster"]:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in part.items()
        }
        samples = part.get("sample_inputs", ())
        values["sample_inputs"] = tuple(
            SampleInput(**{**sample, "values": tuple(sample["values"])}) for sample in samples
        )
        values["features"] = tuple(FeatureDifference(**feature) for feature in part["features"])
        by_cluster.append(ClusterDifference(**values))
    layers = tuple(LayerDifference(**layer) for layer in content["layers"])
    shape = content["input_shape"]
    return Differences(tuple(by_cluster), layers, None if shape is None else tuple(shape))
