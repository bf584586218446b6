from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srfca.data.loaders import cifar10
from srfca.errors import InputError
from tests.data.damage import damaged, read_or_refuse

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (3, 3072), dtype=np.uint8)
LABELS = [6, 0, 9]
NAMES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


def numpy_batch(protocol: int, keys: type = bytes) -> bytes:
    batch: dict[Any, Any] = {"labels": LABELS, "data": PIXELS, "batch_label": "x"}
    if keys is bytes:
        batch = {key.encode(): value for key, value in batch.items()}
    return pickle.dumps(batch, protocol)


def python2_batch() -> bytes:
    """A batch with the bytes that Python 2 wrote: strings and numpy.core, protocol 2."""
    out = io.BytesIO()

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    out.write(b"\x80\x02}q\x01(" + string(b"batch_label") + b"q\x02")
    out.write(string(b"training batch 1 of 5") + b"q\x03")
    out.write(string(b"labels") + b"q\x04]q\x05(")
    out.write(b"".join(b"K" + bytes([label]) for label in LABELS) + b"e")
    out.write(string(b"data") + b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07")
    out.write(b"cnumpy\nndarray\nq\x08K\x00\x85q\x09" + string(b"b") + b"q\x0a\x87Rq\x0b")
    out.write(b"(K\x01K\x03M\x00\x0c\x86q\x0ccnumpy\ndtype\nq\x0d" + string(b"u1") + b"q\x0e")
    out.write(b"K\x00K\x01\x87Rq\x0f(K\x03" + string(b"|") + b"q\x10NNN")
    out.write(b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x11b\x89")
    out.write(b"T" + struct.pack("<i", PIXELS.size) + PIXELS.tobytes() + b"q\x12tq\x13b")
    out.write(string(b"filenames") + b"q\x14]q\x15" + string(b"leptodactylus_s_000004.png"))
    out.write(b"q\x16au.")
    return out.getvalue()


BATCHES = {
    "Python 2": python2_batch(),
    **{f"protocol {protocol}": numpy_batch(protocol) for protocol in (2, 3, 4, 5)},
    "text keys": numpy_batch(4, str),
}


def write(folder: Path, batch: bytes) -> None:
    subfolder = folder / "cifar-10-batches-py"
    subfolder.mkdir()
    for name in NAMES:
        (subfolder / name).write_bytes(batch)


@pytest.mark.parametrize("kind", BATCHES)
def test_python_batches_are_read(tmp_path: Path, kind: str) -> None:
    write(tmp_path, BATCHES[kind])
    images = cifar10.load(tmp_path)
    assert images.train_x.shape == (15, 3, 32, 32)
    assert images.test_y.tolist() == LABELS
    np.testing.assert_array_equal(images.train_x[3:6].reshape(3, -1), PIXELS)


def test_column_major_arrays_are_read_as_numpy_does(tmp_path: Path) -> None:
    batch = {b"labels": LABELS, b"data": np.asfortranarray(PIXELS)}
    for protocol in (2, 4, 5):
        x, _ = cifar10.parse_python_batch(tmp_path, pickle.dumps(batch, protocol))
        np.testing.assert_array_equal(x, PIXELS)


def test_binary_batches_are_read(tmp_path: Path) -> None:
    subfolder = tmp_path / "cifar-10-batches-bin"
    subfolder.mkdir()
    rows = np.zeros((10_000, 3073), np.uint8)
    rows[:3, 0], rows[:3, 1:] = LABELS, PIXELS
    for name in NAMES:
        (subfolder / f"{name}.bin").write_bytes(rows.tobytes())
    images = cifar10.load(tmp_path)
    assert images.train_x.shape == (50_000, 3, 32, 32)
    assert images.train_y[10_000:10_003].tolist() == LABELS
    np.testing.assert_array_equal(images.test_x[:3].reshape(3, -1), PIXELS)


class Malicious:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_pickle_is_refused_and_not_executed(tmp_path: Path, protocol: int) -> None:
    harm = tmp_path / "harm"
    for call in ((os.system, f"touch {harm}"), (eval, f"open({str(harm)!r}, 'w')")):
        batch = {b"labels": LABELS, b"data": PIXELS, b"more": Malicious(*call)}
        path = tmp_path / "data_batch_1"
        path.write_bytes(pickle.dumps(batch, protocol))
        with pytest.raises(InputError, match="data_batch_1"):
            cifar10.read_batch(path)
    assert not harm.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "getattr"),
        ("builtins", "bytearray"),
        ("numpy", "memmap"),
        ("numpy", "ndarray.tofile"),
        ("numpy.core.multiarray", "fromfile"),
        ("srfca.data.loaders.cifar10", "os"),
    ],
)
def test_other_names_are_refused(module: str, name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="asks for"):
        cifar10.restricted_load(f"\x80\x02c{module}\n{name}\n.".encode("latin1"))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",  # an array of objects
        b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",  # an array of two gigabytes
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of two thousand million entries
        b"\x80\x02c_codecs\nencode\n}(U\x01aK\x01ub.",  # modifies a function
        b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x00.",  # a bytearray that needs all memory
        pickle.dumps(np.zeros(3, np.float32), 2),
        pickle.dumps(np.array([None]), 2),
        pickle.dumps({1, 2}, 4),
    ],
)
def test_other_objects_are_refused(content: bytes) -> None:
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        cifar10.restricted_load(content)


@pytest.mark.parametrize(
    "batch",
    [
        [],
        {},
        {b"labels": LABELS},
        {b"labels": LABELS[:2], b"data": PIXELS},
        {b"labels": [0, 1, 10], b"data": PIXELS},
        {b"labels": [0, 1, True], b"data": PIXELS},
        {b"labels": [0, 1, 2**70], b"data": PIXELS},
        {b"labels": LABELS, b"data": PIXELS[:, 1:]},
        {b"labels": [], b"data": PIXELS[:0]},
        {b"labels": LABELS, b"data": PIXELS.tolist()},
    ],
)
def test_invalid_batches_are_refused(tmp_path: Path, batch: object) -> None:
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps(batch, 4))
    with pytest.raises(InputError, match="test_batch"):
        cifar10.read_batch(path)


def test_invalid_binary_batches_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "test_batch.bin"
    path.write_bytes(bytes(3073 * 9999))
    with pytest.raises(InputError, match=r"test_batch.bin: has .* must have 30730000"):
        cifar10.read_batch(path)
    path.write_bytes(b"\x0a" + bytes(3073 * 10_000 - 1))
    with pytest.raises(InputError, match="class"):
        cifar10.read_batch(path)


def test_errors_name_missing_batches(tmp_path: Path) -> None:
    write(tmp_path, python2_batch())
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(InputError, match=r"data_batch_3 is not in .*srfca data get cifar10"):
        cifar10.load(tmp_path)


def small(kind: str) -> bytes:
    """A batch with one image, so that much of the damage is outside of the pixels."""
    content = BATCHES[kind]
    if kind == "Python 2":
        return content.replace(PIXELS.tobytes(), bytes(PIXELS.size))
    return pickle.dumps({b"labels": [3], b"data": PIXELS[:1]}, int(kind[-1]))


@given(data=st.data(), kind=st.sampled_from(["Python 2", "protocol 2", "protocol 4", "protocol 5"]))
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_batch_is_refused_or_has_the_right_form(
    tmp_path: Path, data: st.DataObject, kind: str
) -> None:
    content = small(kind)
    in_header = data.draw(st.booleans())
    broken = data.draw(damaged(content[:150])) + content[150:] if in_header else None
    batch = read_or_refuse(
        cifar10.read_batch, tmp_path / "data_batch_1", broken or data.draw(damaged(content))
    )
    if batch is not None:
        x, y = batch
        assert x.shape == (len(y), 3, 32, 32)
        assert x.dtype == np.uint8
        assert set(y.tolist()) <= set(range(10))


def test_real_cifar10(real_data: Callable[[str], Path]) -> None:
    images = cifar10.load(real_data("cifar10"))
    assert images.train_x.shape == (50_000, 3, 32, 32)
    assert images.train_y[:5].tolist() == [6, 9, 9, 4, 1]
    assert np.bincount(images.train_y).tolist() == [5000] * 10
    assert np.bincount(images.test_y).tolist() == [1000] * 10
    mean = images.train_x.mean((0, 2, 3)) / 255
    assert mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
