"""Download published data sets.

An interrupted download resumes: the received bytes stay in a ``.part`` file, and the rest is
requested with an HTTP range. A file is moved into place only if it has the published hash. If there
is no published hash, the publisher may have replaced the file, and the download starts again.
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

from srfca.data.loaders.cache import data_folder
from srfca.data.loaders.check import status
from srfca.data.loaders.publication import PUBLICATIONS, Download, Publication, matches_hash
from srfca.errors import InputError
from srfca.files import writable_folder

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes received and the total bytes, None if unknown."""

_MAX_STALLED_ATTEMPTS = 5
_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0


def get(
    name: str, folder: Path | str | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download a data set into the data folder.

    Files that are there already and have the published hash are not downloaded again.

    Args:
        name: The data set.
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        progress: Called after every chunk.

    Returns:
        The files, or the folder of an unpacked archive.

    Raises:
        InputError: If the data set is unknown or cannot be downloaded, the folder is not writable,
            the server fails, or the hash is wrong.
    """
    publication = PUBLICATIONS[name]
    folder = data_folder(folder)
    if not publication.downloads:
        raise InputError(
            f"{publication.title} cannot be downloaded in one piece. {publication.source}"
        )
    writable_folder(folder)
    return [_fetch(publication, download, folder, progress) for download in publication.downloads]


def _fetch(
    publication: Publication, download: Download, folder: Path, progress: Progress | None
) -> Path:
    """Download one file, and unpack it if it is an archive."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    target = folder / download.target
    if download.unpack and (unpacked := _find_unpacked(publication, folder)):
        return unpacked
    writable_folder(target.parent)
    resume = Resume(target, progress)
    if download.hash is None:
        resume.part.unlink(missing_ok=True)  # it may be of another edition
        files = status(publication, folder).files
        if any(file.state == "damaged" and file.path == target for file in files):
            target.unlink()
    for last_attempt in (False, True):
        from_scratch = not resume.part.exists()
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
            if from_scratch or last_attempt:
                raise InputError(
                    f"{download.url} is not the file that {publication.title} is published with "
                    f"(its hash differs): try again later, or get it from {publication.source}"
                ) from error
        else:
            break
    return _unpack(target, publication.subfolders[0]) if download.unpack else target


class Resume:
    """A downloader for pooch that resumes from ``TARGET.part``.

    Args:
        target: The file that is downloaded.
        progress: Called after every chunk.
    """

    def __init__(self, target: Path, progress: Progress | None = None) -> None:
        self.part = target.with_name(f"{target.name}.part")
        self.progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        """Download a URL to the file that pooch names.

        Args:
            url: What to download.
            output_file: Where to put it.
            pooch: Ignored; pooch passes itself.

        Raises:
            InputError: If the server refuses, or sends nothing several times in a row.
        """
        stalled, problem = 0, ""
        while stalled < _MAX_STALLED_ATTEMPTS:
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
        raise _failed(url, f"{problem}; the received bytes are kept: run it again to resume")

    def _size(self) -> int:
        """Return how many bytes have been received."""
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self, url: str) -> bool:
        """Append what the server sends; return whether the file is complete."""
        received = self._size()
        headers = {"User-Agent": "srfca", "Accept-Encoding": "identity"}
        if received:
            headers["Range"] = f"bytes={received}-"
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_TIMEOUT_SECONDS
        ) as reply:
            if reply.status != 206:
                received = 0
            length = reply.headers.get("Content-Length")
            total = received + int(length) if length is not None else None
            with self.part.open("ab" if received else "wb") as file:
                while chunk := reply.read(_CHUNK_BYTES):
                    file.write(chunk)
                    received += len(chunk)
                    if self.progress is not None:
                        self.progress(self.part.name.removesuffix(".part"), received, total)
        return total is None or received == total


def _failed(url: str, problem: str) -> InputError:
    """Return the error of a failed download."""
    return InputError(f"cannot download {url}: {problem}")


def _find_unpacked(publication: Publication, folder: Path) -> Path | None:
    """Return the first subfolder if it has all published files with their hashes."""
    unpacked = publication.search_folders(folder)[0]
    for name, published in publication.hashes.items():
        path = unpacked / name
        if not (path.is_file() and matches_hash(path, published)):
            return None
    return unpacked


def _unpack(archive: Path, name: str) -> Path:
    """Move a folder of an archive into place atomically, and remove the archive."""
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
    """Extract the regular files of an archive, and refuse paths outside of the folder."""
    for member in tar:
        path = (folder / member.name).resolve()
        if not path.is_relative_to(folder):
            raise tarfile.TarError(f"{member.name!r} lies outside of it")
        content = tar.extractfile(member) if member.isfile() else None
        if content is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file)
