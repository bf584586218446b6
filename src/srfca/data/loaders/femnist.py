"""FEMNIST: handwritten digits and letters by writer, from LEAF's json or from parquet files."""

from __future__ import annotations

from pathlib import Path

from srfca.data.loaders import leaf, registry
from srfca.data.loaders.store import cached, data_folder
from srfca.data.loaders.users import Users


def load(folder: Path | str | None = None) -> Users:
    """All writers with their images ``[n, 28, 28]`` and classes 0 to 61.

    White is 255, or 1 where the pixels are floats (see ``leaf``). LEAF's json comes first where
    both are there.
    """
    folder = data_folder(folder)
    train, test, tables = find(folder)
    if train:
        arrays = cached(
            folder,
            "femnist",
            [*train, *test],
            lambda: leaf.read(train, test, leaf.IMAGES).arrays(),
        )
    else:
        from srfca.data.loaders import parquet

        arrays = cached(folder, "femnist-parquet", tables, lambda: parquet.femnist(tables).arrays())
    return Users.from_arrays(arrays)


def find(folder: Path) -> leaf.Files:
    """LEAF's training and test files, or else the tables."""
    return leaf.find(registry.data_set("femnist"), folder, "*.parquet")
