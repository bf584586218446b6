from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from srfca.data.loaders.check import status
from srfca.data.loaders.fashion_mnist import DEBIAN_FOLDER, FASHION_MNIST, PUBLICATION, load
from srfca.data.loaders.publication import PUBLICATIONS
from srfca.errors import InputError
from tests.data.loaders.test_mnist import IMAGES, LABELS, write

IN_FOLDER = tuple(name for name in FASHION_MNIST.subfolders if name != DEBIAN_FOLDER)


@pytest.mark.parametrize("subfolder", IN_FOLDER)
@pytest.mark.parametrize("zipped", [True, False])
def test_all_layouts_are_read(tmp_path: Path, subfolder: str, zipped: bool) -> None:
    write(tmp_path / subfolder, zipped)
    images = load(tmp_path)
    np.testing.assert_array_equal(images.train_x, IMAGES)
    assert images.train_y.tolist() == LABELS.tolist()
    assert len(images.test_x) == len(images.test_y) == 2


def test_files_of_the_operating_system_are_the_last_resort(tmp_path: Path) -> None:
    system, folder = tmp_path / "system", tmp_path / "data"
    dataset = replace(FASHION_MNIST, subfolders=(*IN_FOLDER, str(system)))
    write(system)
    assert {path.parent for path in dataset.find(folder).values()} == {system}
    assert dataset.load(folder).train_y.tolist() == LABELS.tolist()
    assert status(dataset.publication, folder).usable
    write(folder / IN_FOLDER[0])
    assert {path.parent for path in dataset.find(folder).values()} == {folder / IN_FOLDER[0]}


def test_files_of_mnist_are_not_taken_for_fashion_mnist(tmp_path: Path) -> None:
    write(tmp_path / "MNIST" / "raw")
    write(tmp_path)
    dataset = replace(FASHION_MNIST, subfolders=IN_FOLDER)
    with pytest.raises(InputError, match="Fashion-MNIST: train-images") as error:
        dataset.load(tmp_path)
    assert "srfca data get fashion_mnist" in str(error.value)


def test_a_damaged_file_names_its_data_set(tmp_path: Path) -> None:
    path = write(tmp_path / IN_FOLDER[0])["train-images-idx3-ubyte"]
    path.write_bytes(b"<html>")
    with pytest.raises(InputError, match="get it again with 'srfca data get fashion_mnist'"):
        load(tmp_path)


def test_its_downloads_go_to_the_folder_that_is_searched_first() -> None:
    assert PUBLICATIONS["fashion_mnist"] is PUBLICATION
    targets = [Path(download.target) for download in PUBLICATION.downloads]
    assert {str(target.parent) for target in targets} == {IN_FOLDER[0]}
    assert {target.name for target in targets} == set(PUBLICATION.hashes)


def test_real_fashion_mnist(real_data: Callable[[str], Path]) -> None:
    images = load(real_data("fashion_mnist"))
    assert images.train_x.shape == (60000, 28, 28)
    assert images.test_x.shape == (10000, 28, 28)
    assert np.bincount(images.train_y).tolist() == [6000] * 10
    assert np.bincount(images.test_y).tolist() == [1000] * 10
    assert images.train_y[:5].tolist() == [9, 0, 0, 3, 0]
    assert images.train_x.mean() == pytest.approx(72.9404, abs=1e-4)
