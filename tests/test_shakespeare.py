from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from srfca.data.loaders import letters, shakespeare
from srfca.errors import InputError
from tests.damage import attempt, damaged

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
    assert [title for title, _ in shakespeare.plays(BOOK)] == [
        "ALL'S FAIR",
        "THE TRAGEDY OF HAM, PRINCE",
    ]


def test_plays_are_found_by_their_author_where_there_is_no_table() -> None:
    book = f"THE PLAY\n\n\nby William Shakespeare\n{OLD}\nANOTHER\n\nby William Shakespeare\n{OLD}"
    assert [title for title, _ in shakespeare.plays(book)] == ["THE PLAY", "ANOTHER"]


def said(play: str) -> dict[str, str]:
    spoken = shakespeare.speeches(play.splitlines())
    return {character: shakespeare.joined(lines) for character, lines in spoken.items()}


def test_speeches_of_the_old_layout() -> None:
    assert said(OLD) == {
        "KING": "In delivering my son from me, I bury a second husband. Speak. "
        "Under the greenwood tree Who loves to lie with me.",
        "WIDOW": "And I in going weep anew; but I must attend.",
        "FIRST LORD": "I will, My lord.",
        "MRS. PAGE": "What news?",
    }


def test_speeches_that_are_not_indented() -> None:
    shifted = "\n".join(line.removeprefix("  ") for line in OLD.splitlines())
    assert said(shifted) == said(OLD)


def test_speeches_of_the_new_layout() -> None:
    expected = {
        "HAM": "Who's there? Adieu.",
        "GHOST": "Nay\u2014answer me. Stand and unfold yourself. Swear.",
        "HAM and GHOST": "Long live!",
        "1. QUEEN": "\u201cWell.\u201d He is gone, lady.",
    }
    assert said(NEW) == expected
    deeper = "\n".join(f"      {line}" if line else "" for line in NEW.splitlines())
    assert said(deeper) == expected


def test_the_alphabet_is_leafs() -> None:
    assert len(letters.ALPHABET) == 80
    assert list(letters.ALPHABET) == sorted(letters.ALPHABET)
    every = letters.encode(letters.ALPHABET)
    assert every.tolist() == list(range(80))
    assert letters.decode(every) == letters.ALPHABET
    assert letters.decode(letters.encode("\u201cAy\u201d\u2014\u2019tis\t\U0001f600 \ud800")) == (
        '"Ay"-\'tis    '
    )


def test_windows_are_the_text_in_order_and_the_parts_do_not_meet() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(0, 80, 1000).astype(np.uint8)
    sizes = np.array([600, 30, 370])
    users = letters.windows(text, sizes, ["a", "b", "c"])
    assert users.train.sizes.tolist() == [416, 0, 232]
    assert users.test.sizes.tolist() == [520 - 416 - 79, 0, 0]
    for role, start in ((0, 0), (2, 630)):
        x, y = users.train.of(role)
        for i in range(len(x)):
            np.testing.assert_array_equal(x[i], text[start + i : start + i + 80])
            assert y[i] == text[start + i + 80]
    x, y = users.test.of(0)
    np.testing.assert_array_equal(x[0], text[416 + 79 : 416 + 79 + 80])
    np.testing.assert_array_equal(x[-1], text[519:599])
    assert y[-1] == text[599]


def write(folder: Path, text: str | bytes, name: str = "100-0.txt") -> Path:
    home = folder / "shakespeare"
    home.mkdir(exist_ok=True)
    path = home / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


LONG = BOOK.replace("Speak.", "Speak. " * 100).replace("\n", "\r\n")


@pytest.mark.parametrize("name", ["100-0.txt", "pg100.txt", "100.txt"])
def test_roles_with_too_few_samples_are_dropped(tmp_path: Path, name: str) -> None:
    write(tmp_path, b"\xef\xbb\xbf" + LONG.encode(), name)
    roles = shakespeare.roles(tmp_path)
    assert roles.names == ("ALL_S_FAIR_KING",)
    users = shakespeare.load(tmp_path, min_samples=500)
    count = int(roles.samples[0])
    assert users.train.sizes.tolist() == [int(0.8 * count)]
    assert users.test.sizes.tolist() == [count - int(0.8 * count) - 79]
    assert letters.decode(users.train.x[0]).startswith("In delivering my son")
    with pytest.raises(InputError, match="5000"):
        shakespeare.load(tmp_path, min_samples=5000)


def test_missing_and_wrong_texts_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"100-0.txt is not in .*srfca data get shakespeare"):
        shakespeare.load(tmp_path)
    with pytest.raises(InputError, match="not in"):
        shakespeare.roles(tmp_path)
    for content in (b"", b"<html>", "é".encode("latin1"), b"Contents\n\nA\n\nA\nACT I\n"):
        path = write(tmp_path, content)
        with pytest.raises(InputError, match=str(path)):
            shakespeare.load(tmp_path)


def test_a_text_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    whole = f"*** START OF THE PROJECT\n{LONG}\n*** END OF THE PROJECT\n"
    assert len(shakespeare.read(write(tmp_path, whole))) == 1
    for broken, why in ((whole[:-30], "last line"), (whole.replace("my", "\0\0"), "zero bytes")):
        with pytest.raises(InputError, match=why):
            shakespeare.read(write(tmp_path, broken))


@given(content=damaged(LONG.encode()))
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_text_is_refused_or_gives_sound_roles(tmp_path: Path, content: bytes) -> None:
    roles = attempt(shakespeare.read, tmp_path / "100-0.txt", content)
    if roles is not None:
        assert roles.text.max() < 80
        assert roles.sizes.min() > 80
        assert roles.sizes.sum() == len(roles.text)
        assert len(set(roles.names)) == len(roles)


def test_the_real_shakespeare(real_data: Callable[[str], Path]) -> None:
    roles = shakespeare.roles(real_data("shakespeare"))
    sizes = dict(zip(roles.names, roles.sizes.tolist(), strict=True))
    assert 1000 < len(roles) < 1400
    assert 4_200_000 < len(roles.text) < 4_700_000
    for name, least in {
        "THE_TRAGEDY_OF_HAMLET_PRINCE_OF_DENMARK_HAMLET": 55_000,
        "THE_TRAGEDY_OF_OTHELLO_MOOR_OF_VENICE_IAGO": 40_000,
        "THE_TRAGEDY_OF_ROMEO_AND_JULIET_ROMEO": 20_000,
        "THE_FIRST_PART_OF_KING_HENRY_THE_FOURTH_FALSTAFF": 20_000,
        "THE_COMEDY_OF_ERRORS_ADRIANA": 10_000,
        "MUCH_ADO_ABOUT_NOTHING_BENEDICK": 15_000,
        "THE_MERRY_WIVES_OF_WINDSOR_MRS_PAGE": 10_000,
        "THE_TWO_NOBLE_KINSMEN_PALAMON": 15_000,
    }.items():
        assert sizes[name] > least
    assert not [name for name in roles.names if "_ACT_" in name or "SCENE" in name]
    text = letters.decode(roles.text)
    assert text.count("Exeunt") + text.count("Enter ") < 100
    first = shakespeare.load(real_data("shakespeare"), min_samples=40_000)
    assert len(first) == 3
