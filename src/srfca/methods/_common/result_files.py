"""Results on disk: ``result.json`` and ``tensors.safetensors``. Nothing is pickled.

``result.json`` holds its own checksum and the digest of the tensors, so that a result is whole or
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from srfca._version import __version__
from srfca.data.schema import Schema
from srfca.errors import InputError, require
from srfca.federation.accountant import PrivacySpent
from srfca.federation.coordinates import Coordinates
from srfca.federation.requests import Personal
from srfca.files import replace_file, writable_folder
from srfca.json_files import damaged, read_json, write_json
from srfca.methods._common.input_statistics import InputStatistics
from srfca.methods._common.loss_limits import LossLimits
from srfca.methods._common.result_checks import check_fields
from srfca.methods._common.stage_files import pack_stage, pack_tensors, unpack_history
from srfca.models.architecture import Architecture

if TYPE_CHECKING:
    from srfca.methods._common.result import Result

FORMAT = 5
RESULT_FILE, TENSORS_FILE = "result.json", "tensors.safetensors"
_REMEDY = "run it again, or restore the folder from a copy"

_OPTIONAL = ("individual_models", "mixture_weights", "fine_tuned_models", "fine_tuned_steps")
"""Tensors that a result may lack."""
_FROZEN = "frozen"
"""Prefix of the tensors of the architecture."""
_STATISTICS: dict[str, type[LossLimits] | type[InputStatistics]] = {
    "loss_limits": LossLimits,
    "input_statistics": InputStatistics,
}
"""Statistics that a result may lack."""


def write_result(result: Result, folder: Path) -> Path:
    """Write a result into a folder, each file atomically.

    Args:
        result: The result.
        folder: The folder, which is created if it is missing.

    Returns:
        The folder.

    Raises:
        InputError: If the folder cannot be written to.
    """
    folder = writable_folder(folder)
    packed, architecture = save(_tensors(result)), result.architecture
    content = {
        "tensors_sha256": sha256(packed).hexdigest(),
        "srfca": __version__,
        "method": result.method,
        "parameters": dict(result.parameters),
        "seed": result.seed,
        "clustered": result.clustered,
        "client_ids": list(result.client_ids),
        "labels": result.labels.tolist(),
        "personal": None if result.personal is None else asdict(result.personal),
        "privacy": None if result.privacy is None else result.privacy.to_json(),
        "schema": None if result.schema is None else result.schema.to_json(),
        "architecture": None if architecture is None else architecture.to_json(),
        "history": [pack_stage(stage) for stage in result.history],
    }
    replace_file(folder / TENSORS_FILE, packed)
    write_json(folder / RESULT_FILE, content, FORMAT)
    return folder


def read_result(folder: Path) -> dict[str, Any]:
    """Return the fields of the result in a folder, by name.

    Raises:
        InputError: If the folder holds no result, or a damaged one.
    """
    path = folder / RESULT_FILE
    content, packed = _read_whole(folder)
    try:
        fields = _fields(content, load(packed))
        check_fields(fields)
    except InputError as error:
        raise damaged(path, str(error), _REMEDY) from error
    except (LookupError, TypeError, AttributeError, ValueError, SafetensorError) as error:
        raise damaged(path, repr(error), _REMEDY) from error
    return fields


def stored_digest(folder: Path) -> str:
    """Return the digest of the tensors of the result in a folder, after checking all of it.

    Raises:
        InputError: If the folder holds no result, or a damaged one.
    """
    content, _ = _read_whole(folder)
    return str(content["tensors_sha256"])


def _read_whole(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Return ``result.json`` and the packed tensors, whose checksums match."""
    try:
        content = read_json(folder / RESULT_FILE, FORMAT, _REMEDY)
        packed = (folder / TENSORS_FILE).read_bytes()
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        raise InputError(f"{folder} holds no result: there is no {missing} in it") from error
    except OSError as error:
        raise InputError(f"{folder} holds no result: {error}") from error
    require(
        sha256(packed).hexdigest() == content.get("tensors_sha256"),
        f"{folder / TENSORS_FILE} is damaged, or of another run than {RESULT_FILE}: {_REMEDY}",
    )
    return content, packed


def _tensors(result: Result) -> dict[str, Tensor]:
    """Return all tensors of a result by name, none of them sharing memory."""
    tensors = {
        name: rows.detach().cpu().contiguous()
        for name in ("models", *_OPTIONAL)
        if (rows := getattr(result, name)) is not None
    }
    if result.individual_models is result.models:
        tensors["individual_models"] = tensors["individual_models"].clone()
    for name in _STATISTICS:
        if (statistics := getattr(result, name)) is not None:
            parts = statistics.tensors()
            tensors |= {f"{name}/{part}": parts[part].contiguous() for part in parts}
    if result.architecture is not None:
        for name, tensor in result.architecture.frozen.items():
            tensors[f"{_FROZEN}/{name}"] = tensor.detach().cpu().contiguous().clone()
    return tensors | pack_tensors(result.history)


def _fields(content: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the fields of a result by name."""
    return {
        "method": content["method"],
        "parameters": content["parameters"],
        "seed": content["seed"],
        "client_ids": tuple(content["client_ids"]),
        "labels": np.asarray(content["labels"]),
        "models": tensors["models"],
        "personal": _personal(content["personal"]),
        "history": unpack_history(content["history"], tensors),
        "clustered": content["clustered"],
        "architecture": _architecture(content, tensors),
        "privacy": None
        if (privacy := content.get("privacy")) is None
        else PrivacySpent.from_json(privacy),
        "schema": None if (schema := content.get("schema")) is None else Schema.from_json(schema),
        **{name: tensors.get(name) for name in _OPTIONAL},
        **{name: _statistics(name, tensors) for name in _STATISTICS},
    }


def _architecture(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Architecture | None:
    """Return the architecture, None if the result was saved without one."""
    described = content.get("architecture")
    if described is None:
        return None
    return Architecture.from_json(described, _parts(_FROZEN, tensors))


def _statistics(name: str, tensors: Mapping[str, Tensor]) -> LossLimits | InputStatistics | None:
    """Return one of the statistics that a result may lack."""
    parts = _parts(name, tensors)
    return _STATISTICS[name].from_tensors(parts) if parts else None


def _parts(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors ``name/part`` by their parts."""
    prefix = f"{name}/"
    return {key.removeprefix(prefix): tensors[key] for key in tensors if key.startswith(prefix)}


def _personal(content: dict[str, Any] | None) -> Personal | None:
    if content is None:
        return None
    ranges = tuple((start, stop) for start, stop in content["coordinates"]["ranges"])
    return Personal(Coordinates(ranges), content["seed"], content["purpose"])
