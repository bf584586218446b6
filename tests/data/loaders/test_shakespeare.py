from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from srfca.data.loaders import letters, shakespeare
from srfca.errors import InputError
from tests.data.damage import damaged, read_or_refuse

OLD = """
ALL'S FAIR

Dramatis Personae

  KING OF FRANCE
  A WIDOW OF FLORENCE.

ACT I. SCENE 1. Rousillon. The palace

Enter KING and the WIDOW, all in
black

  KING. In delivering my son from me, I bury a second
    husband.                                 [He sits down]
  WIDOW. And I in going [aside] weep anew;
  but I must attend.                              Exit WIDOW

                        Enter FIRST LORD,
                        and OTHERS

  KING. Speak.

           Under the greenwood tree
           Who loves to lie with me.

  FIRST LORD. I will,
    My lord.                                      Exeunt

SCENE 2.

A street

  MRS. PAGE. What news?
THE END
"""

NEW = """
THE TRAGEDY OF HAM, PRINCE



by William Shakespeare



Contents

ACT I
Scene I. A platform.


 Dramatis Personæ

HAM, Prince.
GHOST


ACT I

SCENE I. A platform.

 Enter Ham and two sentinels.

HAM.
Who\u2019s _there_?

GHOST.
Nay—answer me. [_Aside._] Stand
and unfold yourself.

 Enter a Lord with
 Attendants.

[Flourish.]

HAM and GHOST.
Long live!

HAM
Adieu.

1. QUEEN.
“Well.”

   He is gone, lady.

GHOST. Swear.

FINIS
"""

BOOK = f"""The Complete Works

      Contents

               THE SONNETS

               ALL'S FAIR

               THE TRAGEDY OF HAM, PRINCE

               A POEM

THE SONNETS

From fairest creatures. WE. DESIRE.
{OLD}

{NEW}

A POEM

VENUS. Not a play.
"""


def test_plays_are_found_by_the_table_of_contents() -> None:
    assert [title for title, _ in shakespeare.split_plays(BOOK)] == [
        "ALL'S FAIR",
        "THE TRAGEDY OF HAM, PRINCE",
    ]


def test_plays_are_found_by_the_author_without_a_table_of_contents() -> None:
    book = f"THE PLAY\n\n\nby William Shakespeare\n{OLD}\nANOTHER\n\nby William Shakespeare\n{OLD}"
    assert [title for title, _ in shakespeare.split_plays(book)] == ["THE PLAY", "ANOTHER"]


def speeches(play: str) -> dict[str, str]:
    spoken = shakespeare.read_speeches(play.splitlines())
    return {character: shakespeare.join_lines(lines) for character, lines in spoken.items()}


def test_speeches_with_inline_names() -> None:
    assert speeches(OLD) == {
        "KING": "In delivering my son from me, I bury a second husband. Speak. "
        "Under the greenwood tree Who loves to lie with me.",
        "WIDOW": "And I in going weep anew; but I must attend.",
        "FIRST LORD": "I will, My lord.",
        "MRS. PAGE": "What news?",
    }


def test_speeches_without_indentation() -> None:
    shifted = "\n".join(line.removeprefix("  ") for line in OLD.splitlines())
    assert speeches(shifted) == speeches(OLD)


def test_speeches_with_names_on_separate_lines() -> None:
    expected = {
        "HAM": "Who's there? Adieu.",
        "GHOST": "Nay\u2014answer me. Stand and unfold yourself. Swear.",
        "HAM and GHOST": "Long live!",
        "1. QUEEN": "\u201cWell.\u201d He is gone, lady.",
    }
    assert speeches(NEW) == expected
    deeper = "\n".join(f"      {line}" if line else "" for line in NEW.splitlines())
    assert speeches(deeper) == expected


def write(folder: Path, text: str | bytes, name: str = "100-0.txt") -> Path:
    subfolder = folder / "shakespeare"
    subfolder.mkdir(exist_ok=True)
    path = subfolder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


LONG = BOOK.replace("Speak.", "Speak. " * 100).replace("\n", "\r\n")


@pytest.mark.parametrize("name", ["100-0.txt", "pg100.txt", "100.txt"])
def test_roles_with_too_few_samples_are_dropped(tmp_path: Path, name: str) -> None:
    write(tmp_path, b"\xef\xbb\xbf" + LONG.encode(), name)
    roles = shakespeare.load_roles(tmp_path)
    assert roles.names == ("ALL_S_FAIR_KING",)
    users = shakespeare.load(tmp_path, min_samples=500)
    count = int(roles.num_windows[0])
    assert users.train.sizes.tolist() == [int(0.8 * count)]
    assert users.test.sizes.tolist() == [count - int(0.8 * count) - 79]
    assert letters.decode(users.train.x[0]).startswith("In delivering my son")
    with pytest.raises(InputError, match="5000"):
        shakespeare.load(tmp_path, min_samples=5000)


def test_missing_and_invalid_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"100-0.txt is not in .*srfca data get shakespeare"):
        shakespeare.load(tmp_path)
    with pytest.raises(InputError, match="not in"):
        shakespeare.load_roles(tmp_path)
    for content in (b"", b"<html>", "é".encode("latin1"), b"Contents\n\nA\n\nA\nACT I\n"):
        path = write(tmp_path, content)
        with pytest.raises(InputError, match=str(path)):
            shakespeare.load(tmp_path)


def test_truncated_and_zeroed_texts_are_refused(tmp_path: Path) -> None:
    complete = f"*** START OF THE PROJECT\n{LONG}\n*** END OF THE PROJECT\n"
    assert len(shakespeare.read(write(tmp_path, complete))) == 1
    for broken, problem in (
        (complete[:-30], "last line"),
        (complete.replace("my", "\0\0"), "zero bytes"),
    ):
        with pytest.raises(InputError, match=problem):
            shakespeare.read(write(tmp_path, broken))


@given(content=damaged(LONG.encode()))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_text_is_refused_or_gives_valid_roles(tmp_path: Path, content: bytes) -> None:
    roles = read_or_refuse(shakespeare.read, tmp_path / "100-0.txt", content)
    if roles is not None:
        assert roles.text.max() < 80
        assert roles.sizes.min() > 80
        assert roles.sizes.sum() == len(roles.text)
        assert len(set(roles.names)) == len(roles)


def test_real_shakespeare(real_data: Callable[[str], Path]) -> None:
    roles = shakespeare.load_roles(real_data("shakespeare"))
    sizes = dict(zip(roles.names, roles.sizes.tolist(), strict=True))
    assert 1000 < len(roles) < 1400
    assert 4_200_000 < len(roles.text) < 4_700_000
    for name, min_size in {
        "THE_TRAGEDY_OF_HAMLET_PRINCE_OF_DENMARK_HAMLET": 55_000,
        "THE_TRAGEDY_OF_OTHELLO_MOOR_OF_VENICE_IAGO": 40_000,
        "THE_TRAGEDY_OF_ROMEO_AND_JULIET_ROMEO": 20_000,
        "THE_FIRST_PART_OF_KING_HENRY_THE_FOURTH_FALSTAFF": 20_000,
        "THE_COMEDY_OF_ERRORS_ADRIANA": 10_000,
        "MUCH_ADO_ABOUT_NOTHING_BENEDICK": 15_000,
        "THE_MERRY_WIVES_OF_WINDSOR_MRS_PAGE": 10_000,
        "THE_TWO_NOBLE_KINSMEN_PALAMON": 15_000,
    }.items():
        assert sizes[name] > min_size
    assert not [name for name in roles.names if "_ACT_" in name or "SCENE" in name]
    text = letters.decode(roles.text)
    assert text.count("Exeunt") + text.count("Enter ") < 100
    first = shakespeare.load(real_data("shakespeare"), min_samples=40_000)
    assert len(first) == 3
