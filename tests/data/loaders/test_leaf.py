from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from srfca.data.loaders import femnist, leaf, letters, shakespeare
from srfca.data.loaders.users import Users
from srfca.errors import InputError
from tests.data.damage import damaged, read_or_refuse

RNG = np.random.default_rng(0)
Samples = dict[str, dict[str, Any]]


def images(sizes: dict[str, int]) -> Samples:
    return {
        name: {
            "x": (RNG.integers(0, 256, (n, 784)) / 255).round(4).tolist(),
            "y": RNG.integers(0, 62, n).tolist(),
        }
        for name, n in sizes.items()
    }


def blob(samples: Samples) -> dict[str, Any]:
    return {
        "users": list(samples),
        "num_samples": [len(sample["y"]) for sample in samples.values()],
        "user_data": samples,
    }


def write(folder: Path, part: str, *files: dict[str, Any], name: str = "femnist") -> list[Path]:
    subfolder = folder / name / part
    subfolder.mkdir(parents=True, exist_ok=True)
    paths = [subfolder / f"all_data_{i}_{part}.json" for i in range(len(files))]
    for path, file in zip(paths, files, strict=True):
        path.write_text(json.dumps(file))
    return paths


def pixels(sample: dict[str, Any]) -> Any:
    return np.rint(255 * np.array(sample["x"])).reshape(-1, 28, 28)


def test_users_of_several_files_are_read_and_matched(tmp_path: Path) -> None:
    first, second = images({"b": 3, "a": 2}), images({"c": 4})
    test = images({"c": 1, "a": 2, "b": 1})
    write(tmp_path, "train", blob(first), blob(second))
    write(tmp_path, "test", blob(test))
    users = femnist.load(tmp_path)
    assert users.names == ("b", "a", "c")
    assert users.train.x.dtype == np.uint8
    for i, (name, sample) in enumerate((first | second).items()):
        x, y = users.train.of(i)
        np.testing.assert_array_equal(x, pixels(sample))
        assert y.tolist() == sample["y"]
        x, y = users.test.of(i)
        np.testing.assert_array_equal(x, pixels(test[name]))
        assert y.tolist() == test[name]["y"]
    again = femnist.load(tmp_path)
    assert again.names == users.names
    np.testing.assert_array_equal(again.test.x, users.test.x)


def test_users_without_training_data_are_dropped(
    tmp_path: Path,
) -> None:
    write(tmp_path, "train", blob(images({"a": 2, "none": 0, "b": 1, "c": 1})))
    write(tmp_path, "test", blob(images({"only": 5, "c": 0, "b": 3, "none": 1})))
    users = femnist.load(tmp_path)
    assert users.names == ("a", "b", "c")
    assert users.train.sizes.tolist() == [2, 1, 1]
    assert users.test.sizes.tolist() == [0, 3, 0]
    assert len(users.test.x) == 3
    assert users.at_least(test=1).names == ("b",)
    assert users.at_least(train=2).names == ("a",)
    assert users.take([2, 0]).names == ("c", "a")


def test_empty_entries_of_dropped_users_are_ignored(tmp_path: Path) -> None:
    content = blob(images({"a": 2}))
    content["user_data"]["dropped"] = {"x": [], "y": []}
    content["hierarchies"] = ["h"]
    write(tmp_path, "train", content)
    write(tmp_path, "test", content)
    assert femnist.load(tmp_path).names == ("a",)


@pytest.mark.parametrize("split", ["train", "test"])
def test_other_pixels_are_stored_as_floats(tmp_path: Path, split: str) -> None:
    plain, fractional = images({"a": 2, "b": 2}), images({"a": 2, "b": 2})
    fractional["b"]["x"][1][5] = 0.12345
    write(tmp_path, "train", blob(fractional if split == "train" else plain))
    write(tmp_path, "test", blob(fractional if split == "test" else plain))
    users = femnist.load(tmp_path)
    assert users.train.x.dtype == users.test.x.dtype == np.float32
    part = users.train if split == "train" else users.test
    for i, name in enumerate("ab"):
        expected = np.array(fractional[name]["x"]).reshape(-1, 28, 28)
        np.testing.assert_allclose(part.of(i)[0], expected, atol=6e-5)
    assert part.of(1)[0][1].reshape(-1)[5] == np.float32(0.12345)


def spoiled(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    content = blob(images({"a": 2, "b": 1}))
    change(content)
    return content


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c.pop("users"), "'users'"),
        (lambda c: c.pop("num_samples"), "'num_samples'"),
        (lambda c: c.pop("user_data"), "room|no entry in 'user_data'"),
        (lambda c: c["users"].append("a"), "different names"),
        (lambda c: c["num_samples"].append(1), "2 counts"),
        (lambda c: c.update(num_samples=[3, 1]), "room|'a' has 2 samples"),
        (lambda c: c.update(num_samples=[1, 1]), "'a' has 2 samples"),
        (lambda c: c.update(num_samples=[10**12, 1]), "room"),
        (lambda c: c.update(num_samples=[-2, 1]), "counts"),
        (lambda c: c["user_data"].update(c=c["user_data"]["a"]), "'c' is not in 'users'"),
        (lambda c: c["user_data"].pop("a"), "'a' has no entry"),
        (lambda c: c["user_data"]["a"].pop("x"), "no 'x' and 'y'"),
        (lambda c: c["user_data"]["a"]["y"].pop(), "2 inputs but 1 targets"),
        (lambda c: c["user_data"]["a"]["y"].__setitem__(0, 62), "0 to 61"),
        (lambda c: c["user_data"]["a"]["y"].__setitem__(0, 0.5), "numbers"),
        (lambda c: c["user_data"]["a"]["y"].__setitem__(0, 10**30), "user 'a'|integer"),
        (lambda c: c["user_data"]["a"]["x"][1].pop(), "user 'a'"),
        (lambda c: [row.pop() for row in c["user_data"]["a"]["x"]], "783 pixels"),
        (lambda c: c["user_data"]["a"]["x"][1].__setitem__(0, 1.5), "0 to 1"),
        (lambda c: c["user_data"]["a"]["x"][1].__setitem__(0, "0.5"), "images"),
        (lambda c: c["user_data"]["a"]["x"][1].__setitem__(0, None), "user 'a'"),
        (lambda c: c["user_data"]["a"].update(x=5), "images"),
    ],
)
def test_invalid_files_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    write(tmp_path, "train", spoiled(change))
    write(tmp_path, "test", blob(images({"a": 1})))
    with pytest.raises(InputError, match=problem) as error:
        femnist.load(tmp_path)
    assert "train" in str(error.value)


def test_a_user_in_two_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "train", blob(images({"a": 1})), blob(images({"a": 2})))
    write(tmp_path, "test", blob(images({"a": 1})))
    with pytest.raises(InputError, match=r"all_data_1_train.json: user 'a' is there twice"):
        femnist.load(tmp_path)


def test_errors_name_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train/\*.json .* is not in .*femnist.*LEAF"):
        femnist.load(tmp_path)
    write(tmp_path, "train", blob(images({"a": 1})))
    with pytest.raises(InputError, match=r"test/\*.json is not in"):
        femnist.load(tmp_path)


VALID = images({"Ann": 2, "Bob": 1})
CONTENT = json.dumps(blob(VALID)).encode()


@given(content=damaged(CONTENT))
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_file_is_refused_or_valid(tmp_path: Path, content: bytes) -> None:
    result = read_or_refuse(
        lambda path: leaf.read_samples([path], leaf.IMAGES), tmp_path / "file.json", content
    )
    if result is not None:
        names, part = result
        assert part.x.shape == (3, 28, 28)
        assert part.sizes.tolist() == [2, 1]
        assert len(set(names)) == 2
        assert set(part.y.tolist()) <= set(range(62))
        assert float(part.x.max()) <= (255 if part.x.dtype == np.uint8 else 1)


def test_memory_is_bounded_by_the_result_and_one_user(tmp_path: Path) -> None:
    (path,) = write(tmp_path, "train", blob(images({f"user {i}": 10 for i in range(60)})))
    tracemalloc.start()
    _, part = leaf.read_samples([path], leaf.IMAGES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 3_000_000
    assert peak < part.x.nbytes + 1_500_000


def windows(text: str, count: int) -> dict[str, Any]:
    return {
        "x": [text[i : i + 80] for i in range(count)],
        "y": [text[i + 80] for i in range(count)],
    }


def test_shakespeare_of_leaf_is_read(tmp_path: Path) -> None:
    text = "".join(RNG.choice(list(letters.ALPHABET), 400))
    train, test = {"A_B": windows(text, 200)}, {"A_B": windows(text[279:], 41)}
    write(tmp_path, "train", blob(train), name="shakespeare")
    declared = blob(test)
    declared["num_samples"] = [41 + 79]
    (path,) = write(tmp_path, "test", declared, name="shakespeare")
    users = shakespeare.load(tmp_path, min_samples=241)
    assert users.train.x.shape == (200, 80)
    assert letters.decode(users.train.x[7]) == text[7:87]
    assert letters.ALPHABET[users.test.y[0]] == text[359]
    with pytest.raises(InputError, match=r"no role .* has 242 samples"):
        shakespeare.load(tmp_path, min_samples=242)
    declared["num_samples"] = [42]
    path.write_text(json.dumps(declared))
    with pytest.raises(InputError, match="41 samples, but 'num_samples' says 42"):
        shakespeare.load(tmp_path, min_samples=1)


def test_strings_of_another_length_are_refused(tmp_path: Path) -> None:
    for spoil in ("x" * 79, 5):
        train = {"A": windows("y" * 200, 100)}
        train["A"]["x"][3] = spoil
        write(tmp_path, "train", blob(train), name="shakespeare")
        write(tmp_path, "test", blob(train), name="shakespeare")
        with pytest.raises(InputError, match="not a string of length 80"):
            shakespeare.load(tmp_path)


def test_real_femnist(real_data: Callable[[str], Path]) -> None:
    users: Users = femnist.load(real_data("femnist"))
    sizes = users.train.sizes + users.test.sizes
    assert users.train.x.dtype == np.uint8
    assert len(users) >= 300
    assert (sizes >= 100).sum() >= 272
    assert users.train.y.max() == 61
    assert np.median(users.train.x) == 255
