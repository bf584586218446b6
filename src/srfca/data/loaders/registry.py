"""The data sets: their files, where they are looked for, who publishes them, known hashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srfca.errors import InputError, unknown


@dataclass(frozen=True)
class Download:
    """One file to download."""

    url: str
    to: str
    """Where it goes in the data folder; an archive is unpacked in this folder."""
    hash: str | None
    """``md5:...`` or ``sha256:...`` as published; None where the publisher gives none."""
    unpack: bool = False


@dataclass(frozen=True)
class DataSet:
    """A data set as its publisher lays it out."""

    name: str
    title: str
    homes: tuple[str, ...]
    """Folders in the data folder that its files are looked for in, the first one first."""
    files: tuple[str, ...]
    """Names of its files in a home, or patterns, for people to read."""
    where: str
    """Where it is from, for people to read."""
    downloads: tuple[Download, ...] = ()
    hashes: dict[str, str] = field(default_factory=dict)
    """Published hashes by file name."""

    def searched(self, folder: Path) -> list[Path]:
        """The folders that its files are looked for in."""
        return [folder / home if home else folder for home in self.homes]


_MNIST = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
_CIFAR10 = {
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "md5:40351d587109b95175f43aff81a1287e",
}

DATA_SETS = {
    data.name: data
    for data in (
        DataSet(
            "mnist",
            "MNIST",
            ("MNIST/raw", "mnist", "MNIST", ""),
            tuple(_MNIST),
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            tuple(
                Download(
                    f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}",
                    f"MNIST/raw/{name}",
                    known,
                )
                for name, known in _MNIST.items()
            ),
            _MNIST,
        ),
        DataSet(
            "cifar10",
            "CIFAR-10",
            ("cifar-10-batches-py", "cifar-10-batches-bin"),
            tuple(_CIFAR10),
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            (
                Download(
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                    "cifar-10-python.tar.gz",
                    "md5:c58f30108f718f92721af3b95e74349a",
                    unpack=True,
                ),
            ),
            _CIFAR10,
        ),
        DataSet(
            "femnist",
            "FEMNIST",
            ("femnist", "femnist/data"),
            ("train/*.json and test/*.json", "*.parquet"),
            "LEAF publishes the scripts that make it: run data/femnist/preprocess.sh of "
            "https://github.com/TalwalkarLab/leaf and put its folders train and test in femnist/; "
            "or put the parquet files of https://huggingface.co/datasets/flwrlabs/femnist there",
        ),
        DataSet(
            "shakespeare",
            "Shakespeare",
            ("shakespeare", "shakespeare/data"),
            ("100-0.txt", "train/*.json and test/*.json", "*.parquet or shakespeare.csv"),
            "https://www.gutenberg.org/ebooks/100",
            (
                Download(
                    "https://www.gutenberg.org/files/100/100-0.txt",
                    "shakespeare/100-0.txt",
                    None,
                ),
            ),
        ),
    )
}
"""All data sets that are read from files, by name."""


def data_set(name: str) -> DataSet:
    """A data set by its name."""
    if name not in DATA_SETS:
        raise unknown("data set", name, DATA_SETS)
    return DATA_SETS[name]


def missing(data: DataSet, files: Sequence[str], folder: Path) -> InputError:
    """An error that says which files are missing, where they were looked for, where to get them."""
    what = ", ".join(files)
    searched = " or ".join(str(path) for path in data.searched(folder))
    get = f"get it with 'srfca data get {data.name}', or from" if data.downloads else "get it:"
    return InputError(
        f"{data.title}: {what} is not in {searched}; {get} {data.where}. "
        "Another data folder can be named with --data-dir or SRFCA_DATA"
    )
