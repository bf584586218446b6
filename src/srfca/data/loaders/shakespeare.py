"""Load Shakespeare's speaking roles from Project Gutenberg's complete works, as LEAF does.

A role is a character of one play. Its text is everything that it says, in order, and its samples
are the windows of 80 characters with the character that follows. The file is split into plays at
the titles of its table of contents (or, in editions without one, above "by William Shakespeare").

The text has two layouts, and one edition mixes them. Older plays have the speaker's name and the
speech on one line, and indent further lines; the indentation is determined for each play, so that
The Comedy of Errors, which is not indented, needs no exception as it does in LEAF. Newer plays have
the name on a separate line. Names are in capitals and end with a full stop. Unlike LEAF, stage
directions are left out, since nobody speaks them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from srfca.data.loaders import leaf, letters
from srfca.data.loaders.cache import cached, data_folder
from srfca.data.loaders.publication import (
    Download,
    ExpectedFiles,
    Publication,
    register_publication,
)
from srfca.data.loaders.users import Users, ranges
from srfca.errors import InputError, require

_TEXT_FILES = ("100-0.txt", "pg100.txt", "100.txt")
_ADVICE = "it is damaged, or is not Project Gutenberg's etext 100"

_GUTENBERG = "*** {} OF TH"
_ACT = re.compile(r"(?:[A-Z ]+ )?ACT (?:I|1)\b")
_HEADING = re.compile(
    r"(?:[A-Z ]+ )?ACT [IV1-9]+\b|SCENE\b|"
    r"(?:THE END|FINIS|INDUCTION|(?:THE )?PROLOGUE|EPILOGUE)$"
)
_DIRECTION = re.compile(
    r"[\[(<]|(?:Re-?)?[Ee]nter\b|Exit\b|Exeunt\b|(?:A )?(?:Flourish|Alarums?|Sennet|Trumpets?|"
    r"Music|Thunder|March|Drums?|Excursions|Retreat|Hautboys|Horns?|Cornets|Tucket|Dead march|"
    r"Storm|Lightning)\b"
)
_EXIT = re.compile(r"(?:Exit|Exeunt)\b|(?:Re-)?[Ee]nter [A-Z]")
_ASIDE = re.compile(r"\[[^\[\]]{0,400}\]")
_NAME = r"(?:[1-9]\. ?|MRS\. |DR\. )?[A-Z][A-Z'-]+(?: (?:and )?[A-Z][A-Z'-]*)*"
_INLINE_NAME = re.compile(rf" {{0,6}}({_NAME})\.(?: +|$)(.*)")
_SEPARATE_NAME = re.compile(rf" {{0,6}}({_NAME})\.$")
_NAME_WITHOUT_STOP = re.compile(rf" {{0,6}}({_NAME})$")


@dataclass(frozen=True)
class Roles:
    """The texts of all roles, concatenated.

    Args:
        names: The roles' names, all different.
        text: The texts, as indices of the alphabet.
        sizes: The length of each role's text, ``[m]``.
    """

    names: tuple[str, ...]
    text: NDArray[np.uint8]
    sizes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_windows(self) -> NDArray[np.int64]:
        """Number of windows of each role, ``[m]``."""
        return np.maximum(self.sizes - letters.WINDOW, 0)

    def take(self, roles: NDArray[np.int64]) -> Roles:
        """Return some of the roles, in this order."""
        indices = ranges((np.cumsum(self.sizes) - self.sizes)[roles], self.sizes[roles])
        return Roles(tuple(self.names[i] for i in roles), self.text[indices], self.sizes[roles])

    def at_least(self, total: int) -> Roles:
        """Return the roles with a minimum number of windows, and with test windows.

        Args:
            total: Minimum number of windows.
        """
        counts = self.num_windows
        has_test = counts > letters.num_train_windows(counts) + letters.GAP
        return self.take(np.flatnonzero((counts >= total) & has_test))

    def windows(self) -> Users:
        """Return the training and test windows; they take 80 bytes for every character."""
        return letters.windows(self.text, self.sizes, self.names)


def load(folder: Path | str | None = None, min_samples: int = 1000) -> Users:
    """Load the roles with a minimum number of samples: windows ``[n, 80]`` and next characters.

    Roles are read from the text. If there is none, they are read from LEAF's json files or from
    tables, split into training and test data as in LEAF. Roles without test data are dropped.

    Args:
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.
        min_samples: Minimum number of samples, training and test together.

    Raises:
        InputError: If no file is there, one is damaged, or no role has that many samples.
    """
    require(min_samples >= 1, f"min_samples must be at least 1, not {min_samples}")
    folder = data_folder(folder)
    selected: Roles | Users
    if find_text(folder) is not None:
        selected = load_roles(folder).at_least(min_samples)
    else:
        selected = _load_samples(folder).at_least(total=min_samples, test=1)
    require(
        len(selected) > 0,
        f"no role of Shakespeare in {folder} has {min_samples} samples, test data among them: "
        "min_samples must be smaller",
    )
    return selected.windows() if isinstance(selected, Roles) else selected


def load_roles(folder: Path | str | None = None) -> Roles:
    """Load every role of the text that says more than 80 characters.

    Args:
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

    Raises:
        InputError: If the text is missing or damaged.
    """
    folder = data_folder(folder)
    path = find_text(folder)
    if path is None:
        raise PUBLICATION.missing_files_error(_TEXT_FILES[:1], folder)
    arrays = cached(folder, "shakespeare", [path], lambda: _to_arrays(read(path)))
    return Roles(tuple(arrays["names"].tolist()), arrays["text"], arrays["sizes"])


def find_text(folder: Path) -> Path | None:
    """Return the file of the complete works, None if it is missing."""
    folders = PUBLICATION.search_folders(folder)
    candidates = (path / name for path in folders for name in _TEXT_FILES)
    return next((path for path in candidates if path.is_file()), None)


def find_samples(folder: Path) -> leaf.Files:
    """Return LEAF's training and test files, or tables of samples if there are none.

    Raises:
        InputError: If there are neither.
    """
    return leaf.find(PUBLICATION, folder, "*.parquet", "shakespeare.csv")


def _load_samples(folder: Path) -> Users:
    """Load the roles of LEAF's files, or of tables."""
    files = find_samples(folder)
    if files.train:
        arrays = cached(
            folder,
            "shakespeare-leaf",
            [*files.train, *files.test],
            lambda: leaf.read(files.train, files.test, leaf.TEXT).to_arrays(),
        )
    else:
        from srfca.data.loaders import parquet

        arrays = cached(
            folder,
            "shakespeare-parquet",
            files.tables,
            lambda: parquet.read_shakespeare(files.tables).to_arrays(),
        )
    return Users.from_arrays(arrays)


def _to_arrays(roles: Roles) -> dict[str, NDArray[Any]]:
    """Return roles as arrays by name."""
    return {"names": np.array(roles.names), "text": roles.text, "sizes": roles.sizes}


def read(path: Path) -> Roles:
    """Read the roles of a text file.

    Args:
        path: The complete works.

    Raises:
        InputError: If the file is damaged, or has no play in it.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; {_ADVICE}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if problem := _find_damage(text):
        raise InputError(f"{path}: {problem}; {_ADVICE}")
    texts: dict[str, NDArray[np.uint8]] = {}
    for title, lines in split_plays(text):
        for character, speech in read_speeches(lines).items():
            codes = letters.encode(join_lines(speech))
            if len(codes) > letters.WINDOW:
                texts[role_name(title, character)] = codes
    require(len(texts) > 0, f"{path}: no play with speaking roles is in it; {_ADVICE}")
    sizes = np.array([len(codes) for codes in texts.values()], np.int64)
    return Roles(tuple(texts), np.concatenate(list(texts.values())), sizes)


def _find_damage(text: str) -> str:
    """Return what is wrong with a text, or an empty string."""
    if "\0" in text:
        return "has zero bytes in it"
    if _GUTENBERG.format("START") in text and _GUTENBERG.format("END") not in text:
        return "ends before Project Gutenberg's last line"
    return ""


def role_name(title: str, character: str) -> str:
    """Return the name of a role.

    Examples:
        >>> role_name("THE TRAGEDY OF HAMLET, PRINCE OF DENMARK", "FIRST PLAYER")
        'THE_TRAGEDY_OF_HAMLET_PRINCE_OF_DENMARK_FIRST_PLAYER'
    """
    return re.sub(r"\W+", "_", f"{title} {character}").strip("_")


def split_plays(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the lines of every play; skip poems.

    Args:
        text: The complete works.
    """
    lines = text.splitlines()
    starts = _starts_by_contents(lines) or _starts_by_author(lines)
    bounds = [*(line for _, line in starts), len(lines)]
    for (title, start), end in zip(starts, bounds[1:], strict=True):
        body = lines[start + 1 : end]
        if any(_ACT.match(line.strip()) for line in body):
            yield title, body


def _starts_by_contents(lines: list[str]) -> list[tuple[str, int]]:
    """Return the works' titles and first lines, according to the table of contents."""
    top = next(
        (i for i, line in enumerate(lines[:300]) if line.strip().lower() == "contents"), None
    )
    if top is None:
        return []
    titles: list[str] = []
    position = top + 1
    for position in range(top + 1, min(top + 300, len(lines))):
        title = lines[position].strip()
        if titles and _normalize(title) == _normalize(titles[0]):
            break
        if title:
            titles.append(title)
    normalized = [_normalize(line) if len(line) < 80 else "" for line in lines]
    starts = []
    for title in titles:
        try:
            position = normalized.index(_normalize(title), position)
        except ValueError:
            continue
        starts.append((title, position))
    return starts


def _starts_by_author(lines: list[str]) -> list[tuple[str, int]]:
    """Return the works' titles and first lines, according to the author's name below each title."""
    starts = []
    for i, line in enumerate(lines):
        if line.strip().lower() == "by william shakespeare":
            preceding = [text.strip() for text in lines[max(i - 7, 0) : i] if text.strip()]
            if preceding:
                starts.append((preceding[-1], i))
    return starts


def _normalize(title: str) -> str:
    """Return a title in capitals, without punctuation."""
    return re.sub(r"\W+", " ", title).strip().upper()


def read_speeches(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines that each character of a play says.

    Args:
        lines: The play.
    """
    lines = [line.replace("_", "").replace("\u2019", "'").rstrip() for line in lines]
    starts, indent, block = _find_speeches(lines)
    speeches: dict[str, list[str]] = defaultdict(list)
    character = ""
    new_paragraph, in_direction = True, False
    for i, line in enumerate(lines):
        depth, content = len(line) - len(line.lstrip()), line.strip()
        if not content:
            new_paragraph, in_direction = True, False
            continue
        if i in starts:
            character, speech = starts[i]
            speeches[character].append(_strip_direction(speech))
            in_direction = False
        elif _HEADING.match(content):
            character = ""
        elif new_paragraph:
            indented_as_direction = depth == indent + 1 if block else depth <= indent
            in_direction = bool(_DIRECTION.match(content)) or indented_as_direction
        if i not in starts and character and not in_direction and not _EXIT.match(content):
            speeches[character].append(_strip_direction(content))
        new_paragraph = False
    return dict(speeches)


def _find_speeches(lines: list[str]) -> tuple[dict[int, tuple[str, str]], int, bool]:
    """Find the first lines of all speeches.

    Returns:
        The speaker and the rest of the line, by line; the indentation of these lines; and whether
        names are on separate lines.
    """
    inline, separate = {}, {}
    for i, line in enumerate(lines):
        if _HEADING.match(line.strip()):
            continue
        if match := _SEPARATE_NAME.match(line):
            if i > 0 and not lines[i - 1].strip():
                separate[i] = (match[1], "")
        elif match := _INLINE_NAME.match(line):
            inline[i] = (match[1], match[2])
    block = len(separate) > len(inline)
    candidates = separate if block else inline
    indents = Counter(len(lines[i]) - len(lines[i].lstrip()) for i in candidates)
    indent = indents.most_common(1)[0][0] if indents else 0
    if not block:
        deeper = " " * (indent + 1)
        starts = {i: start for i, start in inline.items() if not lines[i].startswith(deeper)}
        return starts, indent, False
    names = {name for name, _ in separate.values()}
    starts = separate | {i: start for i, start in inline.items() if start[0] in names}
    for i, line in enumerate(lines):
        match = _NAME_WITHOUT_STOP.match(line)
        if match and match[1] in names and i > 0 and not lines[i - 1].strip():
            starts[i] = (match[1], "")
    return starts, indent, True


def _strip_direction(line: str) -> str:
    """Return a line without the stage direction at its right-hand side."""
    return re.split(r" {3,}", line.strip(), maxsplit=1)[0]


def join_lines(lines: list[str]) -> str:
    """Return lines as one text with single spaces, without stage directions in brackets.

    Examples:
        >>> join_lines(["To be, [Aside.] or", "not   to be"])
        'To be, or not to be'
    """
    text = _ASIDE.sub(" ", " ".join(lines))
    return " ".join(text.replace("æ", "ae").replace("Æ", "AE").replace("à", "a").split())


def _expected_files(folder: Path) -> ExpectedFiles:
    """Yield the text, or else all files of samples, with their readers."""
    from srfca.data.loaders import parquet

    text = find_text(folder)
    if text is not None:
        yield text, read
        return
    files = find_samples(folder)
    for path in (*files.train, *files.test):
        yield path, lambda path: leaf.read_samples([path], leaf.TEXT)
    for path in files.tables:
        yield path, lambda path: parquet.read_shakespeare([path])


PUBLICATION = register_publication(
    Publication(
        name="shakespeare",
        title="Shakespeare",
        subfolders=("shakespeare", "shakespeare/data"),
        files=("100-0.txt", "train/*.json and test/*.json", "*.parquet or shakespeare.csv"),
        source="https://www.gutenberg.org/ebooks/100",
        expected_files=_expected_files,
        downloads=(
            Download(
                "https://www.gutenberg.org/files/100/100-0.txt", "shakespeare/100-0.txt", None
            ),
        ),
    )
)
