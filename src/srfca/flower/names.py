"""Names of clients: a name belongs to the key of the node that used it first.

A client chooses its name itself. Flower knows the public key of each node, and with node
authentication checks that the node has the private one, so that the key identifies a node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from logging import WARNING, getLogger
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from srfca.errors import InputError, require
from srfca.flower.records import InvalidMessageError

_log = getLogger("flwr").log


class ClientNames:
    """The key that each client's name belongs to.

    Args:
        bind_keys: Refuse a node that gives the name of a client that had another key, or that has
            the key of another client. Otherwise another key is logged.
        allowed: The names that are taken in, with the key of each, which may be another one than
            before, or None for the key that uses the name first. None takes in every name.

    Attributes:
        keys: The key of each name so far.
    """

    def __init__(
        self, bind_keys: bool = False, allowed: Mapping[str, str | None] | None = None
    ) -> None:
        self.keys: dict[str, str] = {}
        self._bind_keys, self._allowed = bind_keys, allowed

    def check(self, client_id: str, key: str) -> None:
        """Check that a node with this key may be this client.

        Raises:
            InvalidMessageError: If the name is not allowed, or belongs to another key.
        """
        if self._allowed is not None:
            if client_id not in self._allowed:
                raise InvalidMessageError(f"client {client_id!r} is not in srfca.allow-list")
            listed = self._allowed[client_id]
            if listed is not None and listed != key:
                raise InvalidMessageError(
                    f"client {client_id!r} has another key in srfca.allow-list than this node "
                    f"({key[:12]})"
                )
            if listed is not None:
                return
        first_key = self.keys.get(client_id, key)
        if first_key != key and not self._bind_keys:
            text = "client %r has another key than before (%s, now %s): see srfca.bind-keys"
            _log(WARNING, text, client_id, first_key[:12], key[:12])
        elif first_key != key:
            raise InvalidMessageError(
                f"client {client_id!r} belongs to another key ({first_key[:12]}) than this node's "
                f"({key[:12]}); if its key was replaced, put it into srfca.allow-list"
            )
        owner = next((name for name, k in self.keys.items() if k == key), client_id)
        if self._bind_keys and owner != client_id:
            raise InvalidMessageError(
                f"it calls itself {client_id!r}, but its key ({key[:12]}) belongs to client "
                f"{owner!r}"
            )


def fingerprint(public_key: bytes) -> str:
    """Return a digest of a public key, as Flower has it.

    >>> fingerprint(b"key")[:12]
    '2c70e12b7a06'
    """
    return sha256(public_key).hexdigest()


def read_allow_list(path: Path) -> dict[str, str | None]:
    """Return the clients that are allowed, with the fingerprint of each one's key, if it has one.

    Args:
        path: A JSON file: an object of names, with a public key in SSH's format, the content of
            ``node0.pub``, or null.

    Raises:
        InputError: If there is no such file, or its content is not allowed.
    """
    try:
        content: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"srfca.allow-list cannot be read: {error}") from error
    require(
        isinstance(content, dict) and len(content) > 0,
        f'srfca.allow-list must be an object such as {{"name": "ecdsa-sha2-nistp384 ..."}}: {path}',
    )
    return {name: None if key is None else _ssh_key(name, key) for name, key in content.items()}


def _ssh_key(name: str, text: object) -> str:
    try:
        key = serialization.load_ssh_public_key(str(text).encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(
            f"the key of {name!r} in srfca.allow-list is no public key in SSH's format: {error}"
        ) from error
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    return fingerprint(key.public_bytes(serialization.Encoding.PEM, kind))
