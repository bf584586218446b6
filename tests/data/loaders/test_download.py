from __future__ import annotations

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

from srfca.data.loaders.check import check
from srfca.data.loaders.download import Resume, get
from srfca.data.loaders.publication import PUBLICATIONS, Download
from srfca.errors import InputError
from tests.data.loaders.test_cifar10 import NAMES, python2_batch
from tests.data.loaders.test_shakespeare import LONG

CONTENT = np.random.default_rng(0).bytes(1_000_000)


class Server:
    """Serves files from memory over loopback; ``breaks_after`` bytes it closes a connection."""

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
        owner, requested = self.owner, self.headers.get("Range")
        owner.requests.append(requested)
        content = owner.files.get(self.path.lstrip("/"))
        if content is None or owner.status != 200:
            return self.send_error(404 if content is None else owner.status)
        start = 0
        if requested and owner.ranges:
            start = int(requested.removeprefix("bytes=").rstrip("-"))
        if requested and start >= len(content):
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
) -> None:
    changed = replace(PUBLICATIONS[name], downloads=downloads, hashes=hashes or {})
    monkeypatch.setattr(PUBLICATIONS, "_items", PUBLICATIONS.items() | {name: changed})


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
    (path,) = get("shakespeare", tmp_path, lambda *progress: seen.append(progress))
    assert path == tmp_path / "shakespeare" / "100-0.txt"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == ("100-0.txt", len(CONTENT), len(CONTENT))
    assert [received for _, received, _ in seen] == sorted(received for _, received, _ in seen)
    get("shakespeare", tmp_path)
    assert len(server.requests) == 1
    assert [file.name for file in path.parent.iterdir()] == ["100-0.txt"]


def test_a_dropped_connection_is_resumed(tmp_path: Path, server: Server, text: Download) -> None:
    server.breaks_after = 300_000
    (path,) = get("shakespeare", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_an_interrupted_download_is_resumed(tmp_path: Path, server: Server, text: Download) -> None:
    def interrupt(name: str, received: int, total: int | None) -> None:
        if received > 500_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("shakespeare", tmp_path, interrupt)
    part = tmp_path / "shakespeare" / "100-0.txt.part"
    received = part.stat().st_size
    assert received > 400_000
    (path,) = get("shakespeare", tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.requests[-1] == f"bytes={received}-"


def test_a_server_without_ranges_starts_again(
    tmp_path: Path, server: Server, text: Download
) -> None:
    part = tmp_path / "shakespeare" / "100-0.txt.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1000])
    server.ranges = False
    assert get("shakespeare", tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("old", [b"another file", b"x" * len(CONTENT), b"x" * 2_000_000])
def test_parts_of_another_file_are_discarded(
    tmp_path: Path, server: Server, text: Download, old: bytes
) -> None:
    part = tmp_path / "shakespeare" / "100-0.txt.part"
    part.parent.mkdir()
    part.write_bytes(old)
    assert get("shakespeare", tmp_path)[0].read_bytes() == CONTENT


def test_without_a_hash_damaged_and_partial_files_are_downloaded_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["text"] = text = LONG.encode()
    publish(
        monkeypatch, "shakespeare", Download(f"{server.url}/text", "shakespeare/100-0.txt", None)
    )
    path = tmp_path / "shakespeare" / "100-0.txt"
    path.parent.mkdir()
    path.with_name("100-0.txt.part").write_bytes(b"of another edition")
    path.write_bytes(text[:2000] + bytes(1000) + text[3000:])
    assert get("shakespeare", tmp_path) == [path]
    assert path.read_bytes() == text
    get("shakespeare", tmp_path)
    assert server.requests == [None]


def test_a_file_with_a_wrong_hash_is_refused(
    tmp_path: Path, server: Server, text: Download
) -> None:
    server.files["text"] = b"changed"
    with pytest.raises(InputError, match="hash"):
        get("shakespeare", tmp_path)
    assert list((tmp_path / "shakespeare").iterdir()) == []


def test_errors_name_the_failing_server(tmp_path: Path, server: Server, text: Download) -> None:
    server.breaks_after = 0
    with pytest.raises(InputError, match=rf"cannot download {server.url}/text: .* ended too early"):
        get("shakespeare", tmp_path)
    server.status = 503
    with pytest.raises(InputError, match="503"):
        get("shakespeare", tmp_path)
    server.files.clear()
    with pytest.raises(InputError, match="404"):
        get("shakespeare", tmp_path)


def test_a_refused_connection_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot download http://127.0.0.1:9/x: .*refused"):
        Resume(tmp_path / "x")("http://127.0.0.1:9/x", tmp_path / "out", None)


def test_unavailable_and_unwritable_data_sets_are_refused(tmp_path: Path) -> None:
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


BATCHES = {f"cifar-10-batches-py/{name}": python2_batch() for name in NAMES}


def publish_archive(
    server: Server, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]
) -> None:
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
    publish_archive(server, monkeypatch, BATCHES)
    for _ in range(2):
        assert get("cifar10", tmp_path) == [tmp_path / "cifar-10-batches-py"]
    assert len(server.requests) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-py"]
    status = next(status for status in check(tmp_path) if status.name == "cifar10")
    assert status.usable
    assert {file.state for file in status.files} == {"verified"}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"damaged")
    get("cifar10", tmp_path)
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped-from-srfca", "a/../../escaped"])
def test_an_archive_cannot_write_outside_of_the_folder(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    publish_archive(server, monkeypatch, {name: b"harm"})
    folder = tmp_path / "data"
    with pytest.raises(InputError, match="cannot be unpacked"):
        get("cifar10", folder)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("escaped")]
    assert not Path("/tmp/escaped-from-srfca").exists()
