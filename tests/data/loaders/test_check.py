from __future__ import annotations

import gzip
from pathlib import Path

from srfca.data.loaders.check import check
from tests.data.loaders import test_mnist


def states(folder: Path, name: str) -> dict[str, str]:
    status = next(status for status in check(folder) if status.name == name)
    assert status.usable == (not status.problem)
    return {file.path.name: file.state for file in status.files}


def test_check_distinguishes_the_states(tmp_path: Path) -> None:
    paths = test_mnist.write(tmp_path / "MNIST" / "raw")
    images, labels = paths["train-images-idx3-ubyte"], paths["train-labels-idx1-ubyte"]
    images.write_bytes(images.read_bytes()[:-1])
    labels.unlink()
    plain = paths["t10k-labels-idx1-ubyte"]
    plain.with_suffix("").write_bytes(gzip.decompress(plain.read_bytes()))
    plain.unlink()
    assert states(tmp_path, "mnist") == {
        images.name: "damaged",
        labels.name: "missing",
        "t10k-images-idx3-ubyte.gz": "different",
        "t10k-labels-idx1-ubyte": "readable",
    }
    statuses = {status.name: status for status in check(tmp_path)}
    assert list(statuses) == ["cifar10", "fashion_mnist", "femnist", "mnist", "shakespeare"]
    assert "srfca data get mnist" in statuses["mnist"].problem
    assert "is not in" in statuses["femnist"].problem
    assert not statuses["shakespeare"].files
