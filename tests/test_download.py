from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from srfca.data.loaders import check as checks
from srfca.data.loaders import registry
from srfca.data.loaders.download import Resume, get
from srfca.data.loaders.registry import DataSet, Download
from srfca.errors import InputError
from tests import test_cifar10, test_mnist
from tests.test_shakespeare import LONG

CONTENT = np.random.default_rng(0).bytes(1_000_000)


class Server:
    """Serves files from memory over loopback, and breaks connections when told to."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str | None] = []
        self.breaks_after: int | None = None
        self.ranges = True
        self.status = 200
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, self))
        self.url = f"http://127.0.0.1:{self.http.server_port}"


class Handler(BaseHTTPRequestHandler):
    def __init__(self, owner: Server, *arguments: object) -> None:
        self.owner = owner
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        owner, asked = self.owner, self.headers.get("Range")
        owner.requests.append(asked)
        content = owner.files.get(self.path.lstrip("/"))
        if content is None or owner.status != 200:
            return self.send_error(404 if content is None else owner.status)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and owner.ranges else 0
        if asked and start >= len(content):
            return self.send_error(416)
        body = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if owner.breaks_after is None else body[: owner.breaks_after])
        self.close_connection = True
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


def publish(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    *downloads: Download,
    hashes: dict[str, str] | None = None,
) -> DataSet:
    data = replace(registry.DATA_SETS[name], downloads=downloads, hashes=hashes or {})
    monkeypatch.setitem(registry.DATA_SETS, name, data)
    return data


@pytest.fixture
def text(server: Server, monkeypatch: pytest.MonkeyPatch) -> Download:
    server.files["text"] = CONTENT
    download = Download(f"{server.url}/text", "shakespeare/100-0.txt", md5(CONTENT))
    publish(monkeypatch, "shakespeare", download)
    return download


def test_a_file_is_downloaded_once_with_progress(
    tmp_path: Path, server: Server, text: Download
) -> None:
    seen: list[tuple[str, int, int | None]] = []
    (path,) = get("shakespeare", tmp_path, lambda *news: seen.append(news))
    assert path == tmp_path / "shakespeare" / "100-0.txt"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("100-0.txt", len(CONTENT), len(CONTENT))
    assert [there for _, there, _ in seen] == sorted(there for _, there, _ in seen)
    get("shakespeare", tmp_path)
    assert len(server.requests) == 1
    assert [file.name for file in path.parent.iterdir()] == ["100-0.txt"]


def test_a_dropped_connection_is_taken_up_where_it_broke(
    tmp_path: Path, server: Server, text: Download
) -> None:
    server.breaks_after = 300_000
    (path,) = get("shakespeare", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_what_arrived_before_an_interruption_is_kept(
    tmp_path: Path, server: Server, text: Download
) -> None:
    def interrupt(name: str, there: int, total: int | None) -> None:
        if there > 500_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("shakespeare", tmp_path, interrupt)
    part = tmp_path / "shakespeare" / "100-0.txt.part"
    there = part.stat().st_size
    assert there > 400_000
    (path,) = get("shakespeare", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == f"bytes={there}-"


def test_a_server_that_knows_no_ranges_starts_again(
    tmp_path: Path, server: Server, text: Download
) -> None:
    part = tmp_path / "shakespeare" / "100-0.txt.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1000])
    server.ranges = False
    assert get("shakespeare", tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("old", [b"another file", b"x" * len(CONTENT), b"x" * 2_000_000])
def test_the_rest_of_another_file_is_thrown_away(
    tmp_path: Path, server: Server, text: Download, old: bytes
) -> None:
    part = tmp_path / "shakespeare" / "100-0.txt.part"
    part.parent.mkdir()
    part.write_bytes(old)
    assert get("shakespeare", tmp_path)[0].read_bytes() == CONTENT


def test_without_a_hash_what_is_damaged_or_in_part_is_fetched_anew(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["text"] = whole = LONG.encode()
    publish(
        monkeypatch, "shakespeare", Download(f"{server.url}/text", "shakespeare/100-0.txt", None)
    )
    path = tmp_path / "shakespeare" / "100-0.txt"
    path.parent.mkdir()
    path.with_name("100-0.txt.part").write_bytes(b"of another edition")
    path.write_bytes(whole[:2000] + bytes(1000) + whole[3000:])
    assert get("shakespeare", tmp_path) == [path]
    assert path.read_bytes() == whole
    get("shakespeare", tmp_path)
    assert server.requests == [None]


def test_a_file_with_another_hash_is_refused(
    tmp_path: Path, server: Server, text: Download
) -> None:
    server.files["text"] = b"changed"
    with pytest.raises(InputError, match="hash"):
        get("shakespeare", tmp_path)
    assert list((tmp_path / "shakespeare").iterdir()) == []


def test_a_server_that_gives_nothing_is_named(
    tmp_path: Path, server: Server, text: Download
) -> None:
    server.breaks_after = 0
    with pytest.raises(InputError, match=rf"cannot download {server.url}/text: .* ended too early"):
        get("shakespeare", tmp_path)
    server.status = 503
    with pytest.raises(InputError, match="503"):
        get("shakespeare", tmp_path)
    server.files.clear()
    with pytest.raises(InputError, match="404"):
        get("shakespeare", tmp_path)


def test_without_a_connection_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot download http://127.0.0.1:9/x: .*refused"):
        Resume(tmp_path / "x")("http://127.0.0.1:9/x", tmp_path / "out", None)


def test_what_cannot_be_downloaded_or_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="LEAF publishes"):
        get("femnist", tmp_path)
    with pytest.raises(InputError, match="did you mean 'mnist'"):
        get("mnits", tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot write"):
        get("mnist", tmp_path / "file")


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


BATCHES = {f"cifar-10-batches-py/{name}": test_cifar10.official() for name in test_cifar10.NAMES}


def offer(server: Server, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> None:
    server.files["tar"] = archive(files)
    publish(
        monkeypatch,
        "cifar10",
        Download(f"{server.url}/tar", "cifar-10.tar.gz", md5(server.files["tar"]), unpack=True),
        hashes={name.partition("/")[2]: md5(content) for name, content in BATCHES.items()},
    )


def test_an_archive_is_unpacked_and_verified(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(server, monkeypatch, BATCHES)
    for _ in range(2):
        assert get("cifar10", tmp_path) == [tmp_path / "cifar-10-batches-py"]
    assert len(server.requests) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]
    status = next(status for status in checks.check(tmp_path) if status.name == "cifar10")
    assert status.usable
    assert {file.state for file in status.files} == {"verified"}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"damaged")
    get("cifar10", tmp_path)
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped-from-srfca", "a/../../escaped"])
def test_an_archive_cannot_write_elsewhere(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    offer(server, monkeypatch, {name: b"harm"})
    folder = tmp_path / "data"
    with pytest.raises(InputError, match="cannot be unpacked"):
        get("cifar10", folder)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("escaped")]
    assert not Path("/tmp/escaped-from-srfca").exists()


def states(folder: Path, name: str) -> dict[str, str]:
    status = next(status for status in checks.check(folder) if status.name == name)
    assert status.usable == (not status.problem)
    return {file.path.name: file.state for file in status.files}


def test_check_tells_the_states_apart(tmp_path: Path) -> None:
    paths = test_mnist.write(tmp_path / "MNIST" / "raw")
    images, labels = paths["train-images-idx3-ubyte"], paths["train-labels-idx1-ubyte"]
    images.write_bytes(images.read_bytes()[:-1])
    labels.unlink()
    plain = paths["t10k-labels-idx1-ubyte"]
    plain.with_suffix("").write_bytes(gzip.decompress(plain.read_bytes()))
    plain.unlink()
    assert states(tmp_path, "mnist") == {
        images.name: "damaged",
        labels.name: "missing",
        "t10k-images-idx3-ubyte.gz": "different",
        "t10k-labels-idx1-ubyte": "readable",
    }
    statuses = {status.name: status for status in checks.check(tmp_path)}
    assert list(statuses) == ["mnist", "cifar10", "femnist", "shakespeare"]
    assert "srfca data get mnist" in statuses["mnist"].problem
    assert "is not in" in statuses["femnist"].problem
    assert not statuses["shakespeare"].files


def test_the_published_hashes_are_known() -> None:
    for data in registry.DATA_SETS.values():
        for known in data.hashes.values():
            assert known.startswith("md5:")
            assert len(known) == 36
