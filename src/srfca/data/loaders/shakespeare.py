"""Shakespeare: the speaking roles of Project Gutenberg's complete works, as LEAF makes them.

A role is a character of one play; its text is all that it says, in order, and its samples are the
windows of 80 characters with the character that follows. The file is cut into plays at the titles
of its table of contents (or, in editions without one, above "by William Shakespeare").

The text is printed in two ways, and one edition mixes them. Older plays have the speaker's name and
the speech on one line, and further lines indented more; LEAF's exception for The Comedy of Errors,
which is not indented, needs none here, since how far speeches are indented is taken from the play.
Newer plays have the name on a line of its own. Names are in capitals and end with a full stop.
Unlike LEAF we leave out stage directions, which nobody speaks.
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

from srfca.data.loaders import leaf, letters, registry
from srfca.data.loaders.store import cached, data_folder
from srfca.data.loaders.users import Users, spans
from srfca.errors import InputError, require

_TEXTS = ("100-0.txt", "pg100.txt", "100.txt")
_AGAIN = "it is damaged, or is not Project Gutenberg's etext 100"


@dataclass(frozen=True)
class Roles:
    """The texts of the roles, one role after another, as indices of the alphabet."""

    names: tuple[str, ...]
    text: NDArray[np.uint8]
    sizes: NDArray[np.int64]
    """How many characters each role says: ``[m]``."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def samples(self) -> NDArray[np.int64]:
        """How many windows each role has, for training and for testing: ``[m]``."""
        return np.maximum(self.sizes - letters.WINDOW, 0)

    def take(self, roles: NDArray[np.int64]) -> Roles:
        """These roles alone, in this order."""
        rows = spans((np.cumsum(self.sizes) - self.sizes)[roles], self.sizes[roles])
        return Roles(tuple(self.names[i] for i in roles), self.text[rows], self.sizes[roles])

    def keep(self, samples: int) -> Roles:
        """The roles with at least so many windows, and with test windows."""
        count = self.samples
        tested = count > letters.split(count) + letters.GAP
        return self.take(np.flatnonzero((count >= samples) & tested))

    def windows(self) -> Users:
        """The training and test windows of the roles; 80 bytes for every character."""
        return letters.windows(self.text, self.sizes, self.names)


def load(folder: Path | str | None = None, min_samples: int = 1000) -> Users:
    """The roles with so many samples: windows ``[n, 80]`` and next characters.

    Roles come from the text; where there is none, from LEAF's json or from tables, with the split
    into training and test data that LEAF gives, or would give. Roles with no test data are dropped.
    """
    require(min_samples >= 1, f"min_samples must be at least 1, not {min_samples}")
    folder = data_folder(folder)
    found: Roles | Users
    if find_text(folder) is not None:
        found = roles(folder).keep(min_samples)
    else:
        found = _from_samples(folder).keep(samples=min_samples, test=1)
    require(
        len(found) > 0,
        f"no role of Shakespeare in {folder} has {min_samples} samples, test data among them: "
        "min_samples must be smaller",
    )
    return found.windows() if isinstance(found, Roles) else found


def roles(folder: Path | str | None = None) -> Roles:
    """Every role of the text that says more than 80 characters."""
    folder = data_folder(folder)
    path = find_text(folder)
    if path is None:
        raise registry.missing(registry.data_set("shakespeare"), _TEXTS[:1], folder)
    arrays = cached(folder, "shakespeare", [path], lambda: _arrays(read(path)))
    return Roles(tuple(arrays["names"].tolist()), arrays["text"], arrays["sizes"])


def find_text(folder: Path) -> Path | None:
    """The complete works, if they are there."""
    homes = registry.data_set("shakespeare").searched(folder)
    return next((h / name for h in homes for name in _TEXTS if (h / name).is_file()), None)


def find_samples(folder: Path) -> leaf.Files:
    """LEAF's training and test files, or else tables of samples."""
    return leaf.find(registry.data_set("shakespeare"), folder, "*.parquet", "shakespeare.csv")


def _from_samples(folder: Path) -> Users:
    train, test, tables = find_samples(folder)
    if train:
        arrays = cached(
            folder,
            "shakespeare-leaf",
            [*train, *test],
            lambda: leaf.read(train, test, leaf.TEXT).arrays(),
        )
    else:
        from srfca.data.loaders import parquet

        arrays = cached(
            folder, "shakespeare-parquet", tables, lambda: parquet.shakespeare(tables).arrays()
        )
    return Users.from_arrays(arrays)


def _arrays(found: Roles) -> dict[str, NDArray[Any]]:
    return {"names": np.array(found.names), "text": found.text, "sizes": found.sizes}


def read(path: Path) -> Roles:
    """The roles of a text file."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; {_AGAIN}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if why := _damage(text):
        raise InputError(f"{path}: {why}; {_AGAIN}")
    texts: dict[str, NDArray[np.uint8]] = {}
    for title, lines in plays(text):
        for character, said in speeches(lines).items():
            codes = letters.encode(joined(said))
            if len(codes) > letters.WINDOW:
                texts[role_name(title, character)] = codes
    require(len(texts) > 0, f"{path}: no play with speaking roles is in it; {_AGAIN}")
    sizes = np.array([len(codes) for codes in texts.values()], np.int64)
    return Roles(tuple(texts), np.concatenate(list(texts.values())), sizes)


def _damage(text: str) -> str:
    """What shows that a text is not whole, or nothing."""
    if "\0" in text:
        return "has zero bytes in it"
    if _GUTENBERG.format("START") in text and _GUTENBERG.format("END") not in text:
        return "ends before Project Gutenberg's last line"
    return ""


def role_name(title: str, character: str) -> str:
    """A role's name.

    >>> role_name("THE TRAGEDY OF HAMLET, PRINCE OF DENMARK", "FIRST PLAYER")
    'THE_TRAGEDY_OF_HAMLET_PRINCE_OF_DENMARK_FIRST_PLAYER'
    """
    return re.sub(r"\W+", "_", f"{title} {character}").strip("_")


def plays(text: str) -> Iterator[tuple[str, list[str]]]:
    """The plays of the complete works: titles and lines. Poems are left out."""
    lines = text.splitlines()
    starts = _listed(lines) or _signed(lines)
    bounds = [*(line for _, line in starts), len(lines)]
    for (title, start), end in zip(starts, bounds[1:], strict=True):
        body = lines[start + 1 : end]
        if any(_ACT.match(line.strip()) for line in body):
            yield title, body


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
_INLINE = re.compile(rf" {{0,6}}({_NAME})\.(?: +|$)(.*)")
_ALONE = re.compile(rf" {{0,6}}({_NAME})\.$")
_BARE = re.compile(rf" {{0,6}}({_NAME})$")


def _listed(lines: list[str]) -> list[tuple[str, int]]:
    """The works with the lines that they begin at, by the table of contents at the top."""
    top = next(
        (i for i, line in enumerate(lines[:300]) if line.strip().lower() == "contents"), None
    )
    if top is None:
        return []
    titles: list[str] = []
    position = top + 1
    for position in range(top + 1, min(top + 300, len(lines))):
        title = lines[position].strip()
        if titles and _plain(title) == _plain(titles[0]):
            break
        if title:
            titles.append(title)
    plain = [_plain(line) if len(line) < 80 else "" for line in lines]
    starts = []
    for title in titles:
        try:
            position = plain.index(_plain(title), position)
        except ValueError:
            continue
        starts.append((title, position))
    return starts


def _signed(lines: list[str]) -> list[tuple[str, int]]:
    """The works with the lines that they begin at, by the author's name under each title."""
    starts = []
    for i, line in enumerate(lines):
        if line.strip().lower() == "by william shakespeare":
            above = [before.strip() for before in lines[max(i - 7, 0) : i] if before.strip()]
            if above:
                starts.append((above[-1], i))
    return starts


def _plain(title: str) -> str:
    return re.sub(r"\W+", " ", title).strip().upper()


def speeches(lines: list[str]) -> dict[str, list[str]]:
    """What each character of a play says, in lines."""
    lines = [line.replace("_", "").replace("\u2019", "'").rstrip() for line in lines]
    starts, indent, block = _layout(lines)
    said: dict[str, list[str]] = defaultdict(list)
    character = ""
    paragraph, direction = True, False
    for i, line in enumerate(lines):
        depth, content = len(line) - len(line.lstrip()), line.strip()
        if not content:
            paragraph, direction = True, False
            continue
        if i in starts:
            character, spoken = starts[i]
            said[character].append(_spoken(spoken))
            direction = False
        elif _HEADING.match(content):
            character = ""
        elif paragraph:
            aside = _DIRECTION.match(content) or (depth == indent + 1 if block else depth <= indent)
            direction = bool(aside)
        if i not in starts and character and not direction and not _EXIT.match(content):
            said[character].append(_spoken(content))
        paragraph = False
    return dict(said)


def _layout(lines: list[str]) -> tuple[dict[int, tuple[str, str]], int, bool]:
    """Where speeches begin: the speaker and the rest of the line, by line.

    Also how far these lines are indented, and whether names stand on lines of their own.
    """
    inline, alone = {}, {}
    for i, line in enumerate(lines):
        if _HEADING.match(line.strip()):
            continue
        if match := _ALONE.match(line):
            if i > 0 and not lines[i - 1].strip():
                alone[i] = (match[1], "")
        elif match := _INLINE.match(line):
            inline[i] = (match[1], match[2])
    block = len(alone) > len(inline)
    indents = Counter(len(lines[i]) - len(lines[i].lstrip()) for i in (alone if block else inline))
    indent = indents.most_common(1)[0][0] if indents else 0
    if not block:
        return (
            {
                i: start
                for i, start in inline.items()
                if not lines[i].startswith(" " * (indent + 1))
            },
            indent,
            False,
        )
    known = {name for name, _ in alone.values()}
    starts = alone | {i: start for i, start in inline.items() if start[0] in known}
    for i, line in enumerate(lines):
        match = _BARE.match(line)
        if match and match[1] in known and i > 0 and not lines[i - 1].strip():
            starts[i] = (match[1], "")
    return starts, indent, True


def _spoken(line: str) -> str:
    """A line without the direction at its right-hand side."""
    return re.split(r" {3,}", line.strip(), maxsplit=1)[0]


def joined(said: list[str]) -> str:
    """Lines as one text, without asides to the reader and with single spaces."""
    text = _ASIDE.sub(" ", " ".join(said))
    return " ".join(text.replace("æ", "ae").replace("Æ", "AE").replace("à", "a").split())
