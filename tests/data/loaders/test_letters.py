from __future__ import annotations

import numpy as np

from srfca.data.loaders import letters


def test_alphabet_is_that_of_leaf() -> None:
    assert len(letters.ALPHABET) == 80
    assert list(letters.ALPHABET) == sorted(letters.ALPHABET)
    indices = letters.encode(letters.ALPHABET)
    assert indices.tolist() == list(range(80))
    assert letters.decode(indices) == letters.ALPHABET
    assert letters.decode(letters.encode("\u201cAy\u201d\u2014\u2019tis\t\U0001f600 \ud800")) == (
        '"Ay"-\'tis    '
    )


def test_windows_follow_the_text_and_do_not_overlap_between_splits() -> None:
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
