"""What is known of each client, in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from srfca.federation.privacy import Privacy
from srfca.json_files import damaged, read_json, write_json
from srfca.models.signature import Signature

CLIENTS_FILE = "clients.json"
FORMAT = 1
_REMEDY = "choose another srfca.out, or delete the folder"


@dataclass(frozen=True)
class ClientInfo:
    """A client as it has introduced itself.

    Args:
        client_id: Its stable id.
        sizes: Number of samples by split.
        num_features: Numbers in one sample's input.
        has_classes: Whether its targets are classes.
        wants_model: Whether it wants its final model.
        num_outputs: Numbers that its model outputs for one sample.
        num_label_groups: Groups that its samples are divided into by their label.
        node_id: Flower's id of its node, which changes when the node restarts; 0 if it has none.
        num_classes: The number of classes if it has one label for each sample, else 0.
        signature: What its model takes, and what the outputs mean; None if it did not say.
        num_columns: Numbers of a sample that ``DataMoments`` sums up.
        key: Fingerprint of its node's public key; the node's id if Flower's grid has no keys, and
            empty in files of older versions.
        privacy: How much it reveals of its data; None if it is not private.
    """

    client_id: str
    sizes: Mapping[str, int]
    num_features: int
    has_classes: bool
    wants_model: bool
    num_outputs: int = 1
    num_label_groups: int = 1
    node_id: int = 0
    num_classes: int = 0
    signature: Signature | None = None
    num_columns: int = 0
    key: str = ""
    privacy: Privacy | None = None


def write_clients(folder: Path, clients: list[ClientInfo]) -> None:
    """Write the clients of a run, so that a restarted server continues with them."""
    content = {"clients": [asdict(client) for client in clients]}
    write_json(folder / CLIENTS_FILE, content, FORMAT)


def read_clients(folder: Path) -> list[ClientInfo]:
    """Return what ``write_clients`` wrote, an empty list if there is no file.

    Raises:
        InputError: If the file is damaged.
    """
    path = folder / CLIENTS_FILE
    try:
        return [_client(content) for content in read_json(path, FORMAT, _REMEDY)["clients"]]
    except FileNotFoundError:
        return []
    except (LookupError, TypeError) as error:
        raise damaged(path, repr(error), _REMEDY) from error


def _client(content: dict[str, Any]) -> ClientInfo:
    signature = content.get("signature")
    parsed = None if signature is None else Signature.from_json(signature)
    settings = content.get("privacy")
    privacy = None if settings is None else Privacy(**settings)
    return ClientInfo(**content | {"signature": parsed, "privacy": privacy})
