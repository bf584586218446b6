"""The models of a result as files for other programs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srfca._version import __version__
from srfca.errors import require
from srfca.files import replace_file, writable_folder
from srfca.methods._common.predictor import client_position
from srfca.models.export import SUFFIXES, ExportFormat, check_format, onnx_bytes, state_bytes

if TYPE_CHECKING:
    from srfca.methods._common.result_models import ResultModels

INDEX_FILE = "models.json"


def export_models(
    result: ResultModels,
    folder: Path,
    format: ExportFormat,
    clusters: Sequence[int],
    clients: Sequence[str | int],
) -> list[Path]:
    """Write models of a result, one file each, and ``models.json``, which lists them.

    Args:
        result: The result.
        folder: The folder, which is created if it is missing.
        format: Format of the files.
        clusters: Which clusters' models.
        clients: Which clients' final models.

    Returns:
        The files, ``models.json`` last.

    Raises:
        InputError: If a client or cluster does not exist or has no model, the format is unknown, or
            a model cannot be written in it.
    """
    check_format(format)
    folder = writable_folder(folder)
    entries: list[dict[str, Any]] = []
    for cluster in clusters:
        members = np.flatnonzero(result.labels == cluster)
        names = [result.client_ids[client] for client in members]
        content = _content(result, format, cluster=cluster)
        entry = {"file": f"cluster-{cluster}{SUFFIXES[format]}", "cluster": cluster}
        entries.append(entry | {"clients": names})
        replace_file(folder / str(entry["file"]), content)
    for client in clients:
        position = client_position(result, client)
        name = result.client_ids[position]
        content = _content(result, format, client=position)
        file = f"client-{_file_name(name, position)}{SUFFIXES[format]}"
        entries.append({"file": file, "client": name})
        replace_file(folder / file, content)
    replace_file(folder / INDEX_FILE, _index(result, format, entries))
    return [folder / str(entry["file"]) for entry in entries] + [folder / INDEX_FILE]


def _content(
    result: ResultModels,
    format: ExportFormat,
    client: int | None = None,
    cluster: int | None = None,
) -> bytes:
    """Return one model as a file."""
    if format != "onnx":
        return state_bytes(result.state_dict(cluster, client=client), format)
    module, architecture = result.module(client, cluster=cluster), result.architecture
    signature = None if architecture is None else architecture.signature
    require(
        signature is not None,
        "the result does not say what inputs its models take, which ONNX needs: export them as "
        "safetensors or torch",
    )
    assert signature is not None
    return onnx_bytes(module, signature)


def _index(result: ResultModels, format: str, entries: list[dict[str, Any]]) -> bytes:
    """Return what is in the folder, as JSON."""
    signature = None if result.architecture is None else result.architecture.signature
    content = {
        "srfca": __version__,
        "method": result.method,
        "format": format,
        "signature": None if signature is None else signature.to_json(),
        "schema": None if result.schema is None else result.schema.to_json(),
        "models": entries,
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _file_name(client: str, position: int) -> str:
    """Return a client's name as a part of a file's name, with its position if it had to change."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", client)
    return plain if plain == client and len(plain) <= 100 else f"{plain[:100]}-{position}"
