from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from srfca.data.columns import read_columns
from srfca.errors import InputError
from tests.data.test_client_files import SPLIT, arrays, npz_content, write_npz


def test_arrays_are_read_by_name_and_in_order(tmp_path: Path) -> None:
    columns = read_columns(write_npz(tmp_path / "own.npz", split=SPLIT))
    assert list(columns) == ["x", "y", "client", "split"]
    for name, array in arrays(split=SPLIT).items():
        np.testing.assert_array_equal(columns[name], array)


def test_a_zip_directory_that_hides_an_array_is_refused(tmp_path: Path) -> None:
    damaged = bytearray(npz_content(compressed=False))
    entry = damaged.rfind(b"PK\1\2", 0, damaged.rfind(b"PK\1\2"))
    damaged[entry + 32] = 46 + len("split.npy")  # the next entry becomes a comment of this one
    (tmp_path / "own.npz").write_bytes(damaged)
    with pytest.raises(InputError, match="its end record counts 4 arrays, but 3 are listed"):
        read_columns(tmp_path / "own.npz")
