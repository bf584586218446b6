"""Small experiments, methods and files for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from srfca import ClientData, Partition
from srfca.experiments import config
from srfca.experiments.experiment import Experiment
from srfca.methods import Answer, Method, Run
from srfca.parameters import constrained

SMALL = ["num_clients=8", "steps=4", "rotations=2", "refine_steps=1"]
"""Settings of rotated-digits for a run of a fraction of a second."""

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = np.arange(12) % 2
CLIENT = np.array(["b", "a", "c"] * 4)
SPLIT = np.array(["train"] * 9 + ["test"] * 3)

NETWORKS = """
from torch import nn
import torch

def network(): return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4))
def wrong(): return 3
def broken(): raise KeyError("no such layer")
ready, number = network(), 5
"""
"""A module with factories of networks, good ones and bad ones."""


def small_experiment() -> Experiment:
    return config.load("rotated-digits").set(SMALL)


def write_npz(path: Path, **changes: Any) -> Path:
    """Write a file of three clients; an array that is None is left out."""
    arrays: dict[str, Any] = {"x": X, "y": Y, "client": CLIENT} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def write_sensors(folder: Path) -> Path:
    """Write 24 sensors that see the four quadrants turned by 0, 120 or 240 degrees."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24 * 60, 2))
    sensor = np.repeat(np.arange(24), 60)
    angle = np.arctan2(x[:, 0], x[:, 1]) + 2 * np.pi / 3 * (sensor % 3)
    y = (angle // (np.pi / 2)).astype(int) % 4
    np.savez(folder / "sensors.npz", x=x, y=y, client=sensor)
    return folder / "sensors.npz"


def write_flights(folder: Path) -> Path:
    """Write a table of flights to twelve airports, half of which make up delays, half do not."""
    rng = np.random.default_rng(0)
    lines = ["dest,dep_delay,carrier,late,gained,day"]
    for number in range(12 * 60):
        airport, delay = number % 12, rng.normal(20, 10)
        gained = (0.5 if airport % 2 else -0.5) * delay + rng.normal()
        carrier, cell = "AU"[number % 2] + "A", "NA" if number == 17 else f"{gained:.2f}"
        lines.append(f"D{airport},{delay:.2f},{carrier},{float(gained > 0)},{cell},2013-{number}")
    (folder / "flights.csv").write_text("\n".join(lines) + "\n")
    return folder / "flights.csv"


@dataclass(frozen=True, kw_only=True)
class RoundRobin(Method):
    """Deal clients to k clusters in turn, without training.

    Args:
        k: The number of clusters.
    """

    name: ClassVar[str] = "Round robin"
    needs_k: ClassVar[bool] = True

    k: int = constrained(2, at_least=1)

    @property
    def trainings(self) -> float:
        return 2

    def solve(self, run: Run) -> Answer:
        labels = np.arange(run.num_clients) % self.k
        answer = Answer.canonical(labels, run.initial_model().expand(self.k, -1))
        run.record("DEAL", Partition(labels), answer.client_models)
        return answer


ROUND_ROBIN = "tests.experiments.small:RoundRobin"
"""The method above, which is not registered, as the command line names it."""


@dataclass(frozen=True, kw_only=True)
class Nameless(Method):
    """A method that does not declare its name."""

    def solve(self, run: Run) -> Answer:
        raise AssertionError


def coin_tosses(*, num_clients: int = 4, samples: int = 20, seed: int = 0) -> ClientData:
    """Return clients whose label is the sign of their only feature, or its opposite."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_clients, samples, 1)).astype(np.float32)
    truth = np.arange(num_clients) % 2
    y = (x[:, :, 0] > 0).astype(np.int64) ^ truth[:, None]
    arrays = [(x[client], y[client]) for client in range(num_clients)]
    return ClientData.from_arrays(arrays, arrays, truth)


def untyped_coins(num_clients=4, seed=0, **options):  # type: ignore[no-untyped-def]
    """Return clients like ``coin_tosses``, from a function without type annotations."""
    return coin_tosses(num_clients=num_clients, seed=seed)
