from __future__ import annotations

import inspect
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import srfca.registry
from srfca import ClientData, data
from srfca.data import DATASETS, register_dataset
from srfca.data import datasets as package
from srfca.data.registry import _check_dataset
from srfca.errors import InputError
from srfca.registry import Registry

MODULE = """
import torch

from srfca.data import ClientData, register_dataset


@register_dataset("new_dataset")
def new_dataset(*, num_clients: int = 3, seed: int = 0) -> ClientData:
    x = torch.randn(8, 2, generator=torch.Generator().manual_seed(seed))
    return ClientData.from_arrays([(x, x[:, 0])] * num_clients)


number = 7
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[data.DatasetFunction]:
    """The registry, restored after the test."""
    DATASETS.keys()  # load ours first, so that they stay
    monkeypatch.setattr(DATASETS, "_items", DATASETS.items())
    monkeypatch.setattr(sys, "path", [*sys.path])
    return DATASETS


@pytest.fixture
def new_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module ``new_module`` that registers the data set ``new_dataset``."""
    for name in ("new_module", "srfca.data.datasets.new_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "new_module.py").write_text(MODULE)
    return tmp_path


def test_our_data_sets_are_registered_and_importable() -> None:
    assert set(DATASETS.keys()) >= {
        "femnist", "inverted_mnist", "label_cifar10", "rotated_cifar10", "rotated_digits",
        "rotated_mnist", "shakespeare", "synthetic",
    }  # fmt: skip
    for key, function in DATASETS.items().items():
        assert getattr(data, key) is function


@pytest.mark.parametrize("key", DATASETS.keys())
def test_data_sets_take_keyword_arguments_with_defaults_and_a_seed(key: str) -> None:
    parameters = inspect.signature(DATASETS[key]).parameters
    assert {"num_clients", "seed"} <= parameters.keys()
    for parameter in parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is not parameter.empty


def test_a_new_file_adds_a_data_set(
    new_module: Path,
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry[data.DatasetFunction],
) -> None:
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(new_module)])
    monkeypatch.setattr(registry, "_complete", False)
    assert len(registry["new_dataset"](num_clients=5)) == 5
    assert getattr(data, "new_dataset") is registry["new_dataset"]  # noqa: B009


def test_module_and_function_name_a_data_set(
    new_module: Path,
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry[data.DatasetFunction],
) -> None:
    monkeypatch.chdir(new_module)
    assert len(registry["new_module:new_dataset"](num_clients=4)) == 4
    assert "new_dataset" in registry, "the decorator registers its key"
    with pytest.raises(InputError, match="must be a function that returns ClientData, not of type"):
        registry["new_module:number"]
    with pytest.raises(InputError, match="has no attribute 'nothing'"):
        registry["new_module:nothing"]


def test_installed_packages_add_data_sets(
    new_module: Path,
    monkeypatch: pytest.MonkeyPatch,
    registry: Registry[data.DatasetFunction],
) -> None:
    point = EntryPoint("installed", "new_module:new_dataset", "srfca.datasets")
    monkeypatch.syspath_prepend(new_module)
    monkeypatch.setattr(srfca.registry, "entry_points", lambda group: [point])
    fresh: Registry[data.DatasetFunction] = Registry(
        "data set", "srfca.data.datasets", "srfca.datasets", _check_dataset
    )
    assert len(fresh["installed"]()) == 3


def test_unknown_data_sets_are_refused(registry: Registry[data.DatasetFunction]) -> None:
    with pytest.raises(InputError, match="unknown data set 'synthetics': did you mean 'synthetic'"):
        registry["synthetics"]
    with pytest.raises(AttributeError, match="no attribute 'synthetics'"):
        data.synthetics  # type: ignore[attr-defined]  # noqa: B018


def test_a_key_belongs_to_one_data_set(registry: Registry[data.DatasetFunction]) -> None:
    def another(*, seed: int = 0) -> ClientData:
        raise NotImplementedError

    with pytest.raises(InputError, match="two data sets have the key 'synthetic'"):
        register_dataset("synthetic")(another)
