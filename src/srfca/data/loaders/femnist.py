"""Load FEMNIST, handwriting grouped by writer, from LEAF's json or from parquet files."""

from __future__ import annotations

from pathlib import Path

from srfca.data.loaders import leaf
from srfca.data.loaders.cache import cached, data_folder
from srfca.data.loaders.publication import ExpectedFiles, Publication, register_publication
from srfca.data.loaders.users import Users


def load(folder: Path | str | None = None) -> Users:
    """Load all writers with their images ``[n, 28, 28]`` and classes 0 to 61.

    White is 255, or 1 if the pixels are floats (see ``leaf``). LEAF's json files are preferred to
    parquet files.

    Args:
        folder: The data folder; None for ``SRFCA_DATA`` or the user's cache folder.

    Raises:
        InputError: If a file is missing or damaged; the message names it.
    """
    folder = data_folder(folder)
    files = find(folder)
    if files.train:
        arrays = cached(
            folder,
            "femnist",
            [*files.train, *files.test],
            lambda: leaf.read(files.train, files.test, leaf.IMAGES).to_arrays(),
        )
    else:
        from srfca.data.loaders import parquet

        arrays = cached(
            folder,
            "femnist-parquet",
            files.tables,
            lambda: parquet.read_femnist(files.tables).to_arrays(),
        )
    return Users.from_arrays(arrays)


def find(folder: Path) -> leaf.Files:
    """Return LEAF's training and test files, or the parquet files if there are none.

    Raises:
        InputError: If there are neither.
    """
    return leaf.find(PUBLICATION, folder, "*.parquet")


def _expected_files(folder: Path) -> ExpectedFiles:
    """Yield all files with their readers."""
    from srfca.data.loaders import parquet

    files = find(folder)
    for path in (*files.train, *files.test):
        yield path, lambda path: leaf.read_samples([path], leaf.IMAGES)
    for path in files.tables:
        yield path, lambda path: parquet.read_femnist([path])


PUBLICATION = register_publication(
    Publication(
        name="femnist",
        title="FEMNIST",
        subfolders=("femnist", "femnist/data"),
        files=("train/*.json and test/*.json", "*.parquet"),
        source=(
            "LEAF publishes the scripts that make it: run data/femnist/preprocess.sh of "
            "https://github.com/TalwalkarLab/leaf and put its folders train and test in femnist/; "
            "or put the parquet files of https://huggingface.co/datasets/flwrlabs/femnist there"
        ),
        expected_files=_expected_files,
    )
)
