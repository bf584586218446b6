"""Whose each name is: keys, allow-lists, and a limit on newcomers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from srfca import InputError
from srfca.flower.client_info import read_clients, write_clients
from srfca.flower.names import ClientNames, fingerprint, read_allow_list
from srfca.flower.server import _client_names
from srfca.flower.settings import Settings
from tests.flower.grid import LocalGrid
from tests.flower.keys import Keys
from tests.flower.setup import M, make_app, make_federation, make_grid, train_request


def keyed_grid(partitions: Any = range(M)) -> LocalGrid:
    """Return a grid whose nodes have keys: that of partition 3 is b"key 3"."""
    grid = LocalGrid(make_app(), [])
    for partition in partitions:
        grid.join(partition, f"key {partition}".encode())
    return grid


def test_a_node_with_another_key_does_not_take_a_clients_place(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    grid = keyed_grid()
    federation = make_federation(grid, names=ClientNames(bind_keys=True))
    w0 = federation.initial_model(0)
    grid.leave(3)
    spoofer = grid.join(3, b"another key")
    replies = federation.ask(train_request(w0))
    assert replies.missing == {3: "not connected"}
    assert federation.infos[3].node_id != spoofer
    assert "client '3' belongs to another key" in flower_log.text
    honest = grid.join(3, b"key 3")
    assert not federation.ask(train_request(w0, round=1)).missing
    assert federation.infos[3].node_id == honest


def test_a_node_has_one_name(flower_log: pytest.LogCaptureFixture) -> None:
    grid = keyed_grid(range(M - 1))
    federation = make_federation(grid, num_clients=M - 1, names=ClientNames(bind_keys=True))
    grid.join(7, b"key 2")
    federation.newcomers()
    assert federation.newcomers() == []
    assert "it calls itself '7', but its key" in flower_log.text


def test_keys_outlive_the_server(tmp_path: Path, flower_log: pytest.LogCaptureFixture) -> None:
    write_clients(tmp_path, make_federation(keyed_grid()).infos)
    previous = read_clients(tmp_path)
    assert [info.key for info in previous] == [fingerprint(f"key {n}".encode()) for n in range(M)]
    grid = keyed_grid(range(M - 1))
    grid.join(7, b"another key")
    names = ClientNames(bind_keys=True)
    options: dict[str, Any] = {"num_clients": None, "min_clients": M - 1, "names": names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srfca.flower.channel.PATIENCE", 0.1)
        federation = make_federation(grid, previous=previous, timeout=0.1, **options)
    assert federation.ready() == list(range(M - 1))
    assert "client '7' belongs to another key" in flower_log.text


def test_another_key_is_logged_where_keys_are_not_bound(
    flower_log: pytest.LogCaptureFixture,
) -> None:
    """Without registered keys a node has a new one whenever it starts."""
    grid = keyed_grid()
    federation = make_federation(grid)
    grid.leave(3)
    grid.join(3, b"another key")
    assert not federation.ask(train_request(federation.initial_model(0))).missing
    assert "client '3' has another key than before" in flower_log.text


def test_only_listed_clients_with_their_keys_are_accepted(
    tmp_path: Path, flower_log: pytest.LogCaptureFixture
) -> None:
    keys = {name: fingerprint(f"key {name}".encode()) for name in "0123"}
    names = ClientNames(True, {**keys, "4": None, "5": fingerprint(b"key 9")})
    grid = keyed_grid()
    federation = make_federation(grid, num_clients=5, names=names)
    assert federation.client_ids == ("0", "1", "2", "3", "4")
    assert "client '5' has another key in srfca.allow-list" in flower_log.text
    assert "client '6' is not in srfca.allow-list" in flower_log.text


def test_a_replaced_key_is_allowed_by_the_list() -> None:
    names = ClientNames(True, {"a": "new", "b": None})
    names.keys["a"] = "old"
    names.check("a", "new")


def test_a_list_of_ssh_keys_is_read(tmp_path: Path) -> None:
    _, public = Keys(tmp_path / "keys").node("node0")
    path = tmp_path / "clients.json"
    path.write_text(json.dumps({"a": public.read_text(), "b": None}))
    allowed = read_allow_list(path)
    assert allowed["b"] is None
    assert len(allowed["a"] or "") == 64
    path.write_text(json.dumps({"a": "no key"}))
    with pytest.raises(InputError, match=r"the key of 'a' in srfca\.allow-list is no public key"):
        read_allow_list(path)
    path.write_text("[]")
    with pytest.raises(InputError, match="must be an object"):
        read_allow_list(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_allow_list(tmp_path / "none")


def test_keys_are_bound_where_the_superlink_uses_tls() -> None:
    grid: Any = make_grid([])

    def binds(**options: Any) -> bool:
        return _client_names(Settings(num_clients=2, **options), grid)._bind_keys

    assert not binds()
    assert binds(bind_keys=True)
    grid._insecure = False
    assert binds()
    assert not binds(bind_keys=False)


def test_newcomers_are_limited(flower_log: pytest.LogCaptureFixture) -> None:
    grid = make_grid(range(4))
    federation = make_federation(grid, num_clients=4, max_clients=6)
    for partition in range(4, M):
        grid.join(partition)
    federation.newcomers()
    newcomers = federation.newcomers()
    assert newcomers == ["4", "5"]
    assert (
        "client '7' is not taken in: there are 4 clients already, of at most 6" in flower_log.text
    )
    federation.admit(newcomers)
    flower_log.clear()
    assert federation.newcomers() == []
    assert federation.newcomers() == []
    assert "is not taken in" not in flower_log.text, "it is logged once"
