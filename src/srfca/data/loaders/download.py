"""Getting a data set from its publisher.

A download goes on where it stopped: what has arrived stays in a ``.part`` file, and the rest is
asked for with an HTTP range. Only a file with the publisher's hash is put in its place. Where there
is none to tell editions apart, another call begins anew.
"""

from __future__ import annotations

import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from srfca.data.loaders.check import status
from srfca.data.loaders.registry import DataSet, Download, data_set
from srfca.data.loaders.store import data_folder, file_hash
from srfca.errors import InputError
from srfca.files import writable_folder

Progress = Callable[[str, int, int | None], None]
"""Told the file's name, the bytes that are there and the bytes in all, where known."""

_ATTEMPTS = 5
_CHUNK = 1 << 18
_TIMEOUT = 30.0


def get(
    name: str, folder: Path | str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download a data set into the data folder and give the files, or folders of unpacked ones.

    What is there already and has the publisher's hash is not downloaded again.
    """
    data = data_set(name)
    folder = data_folder(folder)
    if not data.downloads:
        raise InputError(f"{data.title} cannot be downloaded in one piece. {data.where}")
    writable_folder(folder)
    return [_fetch(data, download, folder, progress) for download in data.downloads]


def _fetch(data: DataSet, download: Download, folder: Path, progress: Progress | None) -> Path:
    import pooch

    pooch.get_logger().setLevel("WARNING")
    target = folder / download.to
    if download.unpack and (there := _unpacked(data, folder)):
        return there
    writable_folder(target.parent)
    resume = Resume(target, progress)
    if download.hash is None:
        resume.part.unlink(missing_ok=True)  # by now there may be another edition
        if any(f.state == "damaged" and f.path == target for f in status(data, folder).files):
            target.unlink()
    for last in (False, True):
        fresh = not resume.part.exists()
        try:
            pooch.retrieve(
                download.url,
                download.hash,
                fname=target.name,
                path=target.parent,
                downloader=resume,
            )
        except InputError:
            raise
        except ValueError as error:
            if fresh or last:
                raise InputError(
                    f"{download.url} is not the file that {data.title} is published with (its hash "
                    f"is another): try again later, or get it from {data.where}"
                ) from error
        else:
            break
    return _unpack(target, data.homes[0]) if download.unpack else target


class Resume:
    """A downloader for pooch that goes on with what is in ``TARGET.part``."""

    def __init__(self, target: Path, progress: Progress | None = None) -> None:
        self.part = target.with_name(f"{target.name}.part")
        self.progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        """Download a URL to the file that pooch asks for."""
        stalled, problem = 0, ""
        while stalled < _ATTEMPTS:
            before = self._size()
            try:
                if self._receive(url):
                    os.replace(self.part, output_file)
                    return
            except urllib.error.HTTPError as error:
                if error.code == 416:
                    self.part.unlink(missing_ok=True)
                elif error.code < 500:
                    raise _failed(url, f"the server answers {error.code} {error.reason}") from error
                problem = f"the server answers {error.code} {error.reason}"
            except urllib.error.URLError as error:
                problem = str(error.reason)
            except (http.client.HTTPException, OSError) as error:
                problem = str(error)
            else:
                problem = "the connection ended too early"
            stalled = 0 if self._size() > before else stalled + 1
        raise _failed(url, f"{problem}; what has arrived is kept, so that it can go on later")

    def _size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self, url: str) -> bool:
        """Append what the server sends; whether all of the file is there then."""
        have = self._size()
        headers = {"User-Agent": "srfca", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_TIMEOUT
        ) as reply:
            if reply.status != 206:
                have = 0
            length = reply.headers.get("Content-Length")
            total = have + int(length) if length is not None else None
            with self.part.open("ab" if have else "wb") as file:
                while chunk := reply.read(_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if self.progress is not None:
                        self.progress(self.part.name.removesuffix(".part"), have, total)
        return total is None or have == total


def _failed(url: str, problem: str) -> InputError:
    return InputError(f"cannot download {url}: {problem}")


def _unpacked(data: DataSet, folder: Path) -> Path | None:
    """The first home, where all of the published files are in it with their hashes."""
    home = data.searched(folder)[0]
    for name, known in data.hashes.items():
        path = home / name
        if not (path.is_file() and file_hash(path, known.partition(":")[0]) == known):
            return None
    return home


def _unpack(archive: Path, name: str) -> Path:
    """Put the folder of this name in an archive beside it, in one move, and remove the archive."""
    draft = Path(tempfile.mkdtemp(dir=archive.parent, prefix=".unpack-"))
    try:
        with tarfile.open(archive) as tar:
            _extract(tar, draft.resolve())
        target = archive.parent / name
        if (draft / name).is_dir() and target.exists():
            os.replace(target, draft / ".before")
        os.replace(draft / name, target)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"{archive} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    archive.unlink()
    return target


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files of an archive, no links, into a folder and nowhere else."""
    for member in tar:
        path = (folder / member.name).resolve()
        if not path.is_relative_to(folder):
            raise tarfile.TarError(f"{member.name!r} lies outside of it")
        content = tar.extractfile(member) if member.isfile() else None
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
