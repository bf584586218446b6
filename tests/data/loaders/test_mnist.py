from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from srfca.data.loaders import mnist
from srfca.errors import InputError
from tests.data.damage import damaged, read_or_refuse

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.array([3, 0, 9, 1, 1], np.uint8)


def idx(array: NDArray[np.uint8]) -> bytes:
    header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.tobytes()


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def write(folder: Path, zipped: bool = True) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3-ubyte": IMAGES,
        "train-labels-idx1-ubyte": LABELS,
        "t10k-images-idx3-ubyte": IMAGES[:2],
        "t10k-labels-idx1-ubyte": LABELS[:2],
    }
    paths = {}
    for name, array in arrays.items():
        paths[name] = folder / (f"{name}.gz" if zipped else name)
        paths[name].write_bytes(gzipped(idx(array)) if zipped else idx(array))
    return paths


@pytest.mark.parametrize("subfolder", ["MNIST/raw", "mnist", "."])
@pytest.mark.parametrize("zipped", [True, False])
def test_all_layouts_are_read(tmp_path: Path, subfolder: str, zipped: bool) -> None:
    write(tmp_path / subfolder, zipped)
    images = mnist.load(tmp_path)
    np.testing.assert_array_equal(images.train_x, IMAGES)
    np.testing.assert_array_equal(images.test_x, IMAGES[:2])
    assert images.train_y.tolist() == LABELS.tolist()
    assert images.test_y.dtype == np.int64
    assert repr(images) == "Images(5 for training, 2 for testing, (28, 28))"


def test_errors_name_missing_files_and_searched_folders(tmp_path: Path) -> None:
    write(tmp_path / "mnist")["t10k-labels-idx1-ubyte"].unlink()
    with pytest.raises(InputError) as error:
        mnist.load(tmp_path)
    for part in ("t10k-labels", str(tmp_path / "MNIST" / "raw"), "srfca data get mnist", "https"):
        assert part in str(error.value)
    assert "train" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "begins with"),
        (idx(IMAGES)[:9], "damaged"),
        (idx(IMAGES)[:-1], "shorter"),
        (idx(IMAGES) + b"x", "longer"),
        (idx(LABELS), "00 00 08 03"),
        (b"<html>not found</html>", "begins with"),
        (idx(IMAGES[:0]), "nothing"),
        (idx(IMAGES[:, 1:]), "27 x 28"),
        (struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 28, 28), "shorter"),
        (gzipped(struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 28, 28)), "shorter"),
        (gzipped(idx(IMAGES))[:-3], "damaged"),
        (gzipped(idx(IMAGES))[:-5] + b"?" + gzipped(idx(IMAGES))[-4:], "CRC"),
    ],
)
def test_invalid_images_are_refused(tmp_path: Path, content: bytes, problem: str) -> None:
    path = write(tmp_path)["train-images-idx3-ubyte"]
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as error:
        mnist.load(tmp_path)
    assert str(path) in str(error.value)


def test_invalid_labels_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path)["train-labels-idx1-ubyte"]
    path.write_bytes(idx(LABELS[:4]))
    with pytest.raises(InputError, match=r"5 images, but .* has 4 labels"):
        mnist.load(tmp_path)
    path.write_bytes(idx(LABELS + 1))
    with pytest.raises(InputError, match="label 10"):
        mnist.load(tmp_path)


@given(content=damaged(gzipped(idx(IMAGES))))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_gzip_file_is_refused_or_read_correctly(tmp_path: Path, content: bytes) -> None:
    images = read_or_refuse(mnist.MNIST.read_images, tmp_path / "file.gz", content)
    if images is not None:
        np.testing.assert_array_equal(images, IMAGES)


@given(data=st.data(), array=st.sampled_from([IMAGES[:2], LABELS]))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_plain_file_is_refused_or_has_the_right_shape(
    tmp_path: Path, data: st.DataObject, array: NDArray[np.uint8]
) -> None:
    read: Callable[[Path], NDArray[np.uint8] | NDArray[np.int64]] = (
        mnist.MNIST.read_images if array.ndim == 3 else mnist.MNIST.read_labels
    )
    result = read_or_refuse(read, tmp_path / "file", data.draw(damaged(idx(array))))
    assert result is None or result.shape == array.shape


def test_real_mnist(real_data: Callable[[str], Path]) -> None:
    images = mnist.load(real_data("mnist"))
    assert images.train_x.shape == (60000, 28, 28)
    assert images.test_x.shape == (10000, 28, 28)
    assert images.train_y[:5].tolist() == [5, 0, 4, 1, 9]
    assert np.bincount(images.test_y).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert images.train_x.mean() == pytest.approx(33.3184, abs=1e-4)
