"""Random inputs over the public surface: whatever is not accepted must be refused clearly.

    python -m tools.fuzz --number 100000 --seed 0

Each input is one call of the Python interface or one command line, in this process and tiny. It may
succeed, or raise an ``InputError`` (a command ends with exit code 2, one line and no traceback).
Every other exception is unexpected: it is printed with the number that repeats it, and the exit
code is 1.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import srfca
from srfca import ClientData, InputError, LocalTraining, Partition, Simulation, data, models
from srfca.aggregation import geometric_median, krum, mean, median, trimmed_mean
from srfca.analysis import Analysis, analyze
from srfca.clustering import agglomerate, cluster
from srfca.data.transforms import rotate, unchanged
from srfca.experiments import config
from srfca.federation import Losses, Scores
from srfca.methods import Result
from srfca.methods.registry import METHODS
from tools import damage

Target = Callable[[random.Random], object]
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 10**20, 2**63, -(2**63), 0.0, 0.5, 1.0, -0.5, 1e-300,
    1e20, 1e308, float("inf"), float("-inf"), float("nan"), "", "auto", "mean", "1", "40%", "-5%",
    "x" * 50, "\x00", "ünï", b"bytes", (), [], [1, 2], {}, {"a": 1}, np.int64(2), np.float32(0.5),
    np.array(2), np.array([]), torch.tensor(2), torch.tensor(0.5), torch.tensor([]), object, len,
)  # fmt: skip
"""Values for parameters, most of them wrong."""
NUMBERS = (0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 1e30, 1e308, -1e308, float("inf"), float("nan"))


USUAL: tuple[Any, ...] = (1, 2, 3, 0, 0.5, 0.1, "auto", "mean", "sgd", "l2", None, True, False)
"""Values that some parameters take."""


def odd(rng: random.Random) -> Any:
    """Return a value that is often wrong."""
    return rng.choice(ODD if rng.random() < 0.5 else USUAL)


def array(rng: random.Random, *shape: int) -> np.ndarray:
    """Return an array, of ordinary numbers or with a few wild ones."""
    values = np.random.default_rng(rng.randrange(2**32)).standard_normal(shape)
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        if values.size:
            values.flat[rng.randrange(values.size)] = rng.choice(NUMBERS)
    kind = rng.choice((np.float64, np.float64, np.float32, np.int64, np.bool_))
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(kind))


def shape(rng: random.Random, dimensions: int) -> tuple[int, ...]:
    """Return a small shape."""
    return tuple(rng.choice((0, 1, 2, 3, 5)) for _ in range(dimensions))


@cache
def small_data() -> ClientData:
    """Return data of four clients."""
    return data.rotated_digits(num_clients=4, rotations=2)


@cache
def federation() -> Simulation:
    """Return four clients with a small model."""
    return Simulation(small_data(), models.mlp(64, 2, 10), device="cpu")


def local_training(rng: random.Random) -> object:
    """Make a ``LocalTraining`` of random settings."""
    names = [field.name for field in fields(LocalTraining)]
    return LocalTraining(**{name: odd(rng) for name in rng.sample(names, rng.randrange(1, 4))})


def method(rng: random.Random) -> object:
    """Make a method of random parameters."""
    kind = METHODS.items()[rng.choice(sorted(METHODS.items()))]
    names = [field.name for field in fields(kind) if field.name not in ("local", "truth")]
    given = {name: odd(rng) for name in rng.sample(names, min(len(names), rng.randrange(1, 4)))}
    if kind.needs_truth:
        given["truth"] = small_data().truth
    return kind(**given)


def fit(rng: random.Random) -> object:
    """Fit a method with a wrong argument."""
    method = srfca.FedAvg(local=LocalTraining(steps=1))
    given = odd(rng) if rng.random() < 0.5 else federation()
    return method.fit(given, seed=odd(rng))


def partition(rng: random.Random) -> object:
    """Make partitions, and compare them."""
    labels: list[Any] = [
        rng.choice((-1, 0, 1, 2, 5, -2, 0.5, "a", None, 2**40)) for _ in range(rng.randrange(6))
    ]
    usual = [rng.randrange(-1, 4) for _ in range(rng.randrange(1, 6))]
    one = Partition(labels if rng.random() < 0.3 else usual)
    length = len(one) if rng.random() < 0.8 else rng.randrange(1, 6)
    other = Partition([rng.randrange(-1, 3) for _ in range(length)])
    return [getattr(one, name)(other) for name in ("misclustering", "ari", "nmi", "purity")]


def distances(rng: random.Random) -> object:
    """Cluster a matrix of distances."""
    side = rng.choice((1, 2, 3, 5, 8))
    matrix = np.abs(array(rng, *(side, side)))
    if rng.random() < 0.7:
        matrix = matrix.astype(np.float64)
        with np.errstate(all="ignore"):
            matrix = matrix / 2 + matrix.T / 2
        np.fill_diagonal(matrix, 0)
    threshold: Any = rng.choice(("auto", "40%", 0.5, 1.0, odd(rng)))
    if rng.random() < 0.5:
        return agglomerate(matrix, threshold=threshold)
    return cluster(matrix, threshold=threshold, min_size=rng.choice((1, 2, odd(rng))))


def aggregation(rng: random.Random) -> object:
    """Aggregate rows."""
    rows = torch.as_tensor(array(rng, *shape(rng, rng.choice((1, 2, 2, 2, 2, 3)))))
    match rng.randrange(5):
        case 0:
            weights = None if rng.random() < 0.3 else torch.as_tensor(array(rng, *shape(rng, 1)))
            return mean(rows, weights)
        case 1:
            return trimmed_mean(rows, rng.choice((0.0, 0.1, 0.25, 0.5, -1.0, float("nan"))))
        case 2:
            return median(rows)
        case 3:
            return geometric_median(rows, iterations=3)
        case _:
            return krum(rows, rng.choice((0, 1, 2, -1)), rng.choice((1, 2, 9, 0)))


def client_data(rng: random.Random) -> object:
    """Make client data from arrays."""
    kind, width = rng.choice((1, 2)), rng.choice((1, 2, 3))
    parts: list[Any] = []
    for _ in range(rng.randrange(4)):
        count = rng.choice((0, 1, 3, 4))
        x = array(rng, *((count, width) if kind == 2 else (count,)))
        parts.append((x, array(rng, rng.choice((count, count, count, 2)))))
        if rng.random() < 0.03:
            parts[-1] = odd(rng)
    test = rng.choice((None, None, parts, [], parts[:1]))
    return ClientData.from_arrays(parts, test, rng.choice((None, None, [0] * len(parts), [0, 1])))


def frame(rng: random.Random) -> object:
    """Make client data from a table."""
    count = rng.choice((0, 1, 4, 8))
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: list(range(count)),
        lambda: [rng.choice(("a", "b")) for _ in range(count)],
        lambda: array(rng, count),
        lambda: array(rng, count, 2),
        lambda: [rng.choice(("a", "b", "", None)) for _ in range(count)],
        lambda: [rng.choice((1, 2.5, "c", True, None)) for _ in range(count)],
        lambda: array(rng, count + 1),
    )
    table: dict[str, Any] = {name: rng.choice(kinds)() for name in ("f", "g", "y")}
    table["client"] = [rng.choice(("a", "b")) for _ in range(count)]
    given: dict[str, Any] = {"client": "client", "target": "y"}
    for name in rng.sample(
        ("client", "target", "features", "test", "target_kind", "standardize", "missing"),
        rng.choice((0, 0, 1, 2)),
    ):
        given[name] = rng.choice(("f", "g", ["f"], 0.25, "drop", "classes", "values", odd(rng)))
    return ClientData.from_frame(table, **given)


def federate(rng: random.Random) -> object:
    """Deal samples to clients."""
    x, y = array(rng, 12, 4, 4), array(rng, rng.choice((12, 12, 12, 3)))
    clusters = [rng.choice((unchanged, rotate(180))) for _ in range(rng.randrange(3))]
    given: dict[str, Any] = {"num_clients": rng.choice((1, 2, 3, 12, 2**31, odd(rng)))}
    for name in rng.sample(("sizes", "shares", "standardize", "seed", "reuse"), rng.randrange(3)):
        given[name] = rng.choice(("balanced", "lognormal", "no", "client", [0.5, 0.5], odd(rng)))
    return data.federate(x, y, clusters=clusters, **given)


def datasets(rng: random.Random) -> object:
    """Make a data set of random size."""
    sizes: tuple[Any, ...] = (1, 2, 4, -1, 0, 2.0, True, None, "4", torch.tensor(4), float("inf"))
    if rng.random() < 0.9:
        names = ("num_clients", "samples", "dimension", "clusters", "seed")
        given: dict[str, Any] = {name: rng.choice(sizes) for name in rng.sample(names, 2)}
        usual = {"num_clients": 4, "samples": 3, "dimension": 2, "clusters": 2}
        return data.synthetic(**usual | given)
    return data.rotated_digits(
        num_clients=rng.choice((*sizes, 2**31, 10**20)), rotations=rng.choice(sizes)
    )


def requests(rng: random.Random) -> object:
    """Ask a simulation something wrong."""
    rows = torch.as_tensor(
        array(rng, rng.choice((1, 2, 4)), rng.choice((0, 1, 160, 160, 160, 161)))
    )
    clients = np.array([rng.choice((0, 1, 2, 3, 3, 4, -1, 10**6)) for _ in range(rng.randrange(4))])
    split: Any = rng.choice(("train", "test", "validation", "wrong", None))
    if rng.random() < 0.5:
        return federation().ask(Losses(clients, rows, split))
    return federation().ask(Scores(clients, rows, split))


def simulation(rng: random.Random) -> object:
    """Make a simulation with odd settings."""
    names = ("loss", "augment", "device", "precision", "block_size", "validation", "seed")
    given = {name: odd(rng) for name in rng.sample(names, rng.randrange(1, 3))}
    given = {"device": "cpu"} | given
    outputs = rng.choice((1, 2, 10, 10))
    return Simulation(small_data(), models.mlp(64, 2, outputs), **given)


def networks(rng: random.Random) -> object:
    """Make a network of odd sizes."""
    sizes: tuple[Any, ...] = (
        1,
        2,
        0,
        -1,
        2.0,
        True,
        None,
        "2",
        float("inf"),
        torch.tensor(2),
        (2,),
        (2, 0),
        [],
    )
    factory = rng.choice((models.mlp, models.linear))
    return factory(*(rng.choice(sizes) for _ in range(3 if factory is models.mlp else 1)))


def settings(rng: random.Random) -> object:
    """Change settings of an experiment."""
    names = (
        "steps",
        "lr",
        "trim",
        "k",
        "ifca.k",
        "seed",
        "",
        "num_clients",
        "threshold",
        "no.such",
    )
    text = rng.choice((f"{rng.choice(names)}={odd(rng)!s}", str(odd(rng)), rng.choice(names)))
    return config.load(rng.choice(("rotated-digits", "synthetic", "nothing", "\x00"))).set([text])


class Folders:
    """A saved result that is damaged and loaded over and over."""

    def __init__(self, home: Path) -> None:
        self.home, self.base = home, home / "base"
        result = srfca.SRFCA(local=LocalTraining(steps=2)).fit(federation())
        result.save(self.base)
        analyze(result, federation()).save(self.base)

    def load(self, rng: random.Random) -> object:
        """Damage a file of a result, and load it."""
        copy = self.home / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.base, copy)
        path = rng.choice(sorted(copy.iterdir()))
        rng.choice([kind for kind in damage.DAMAGES if kind is not damage.swap])(path, rng)
        return Result.load(copy), Analysis.load(copy)

    def command(self, rng: random.Random) -> object:
        """Run a command line."""
        words = [
            "run", "compare", "resume", "report", "list", "predict", "assign", "export", "data",
            "rotated-digits", "synthetic", "--method", "local", "ifca", "--set", "steps=1",
            "lr=nan", "--seed", "1", "-1", "x", "1e9", "--out", "--journal", "--json", "--k",
            "--data", str(self.base), str(self.home / "nothing"), "--quick", "--report", "--model",
        ]  # fmt: skip
        tiny = ["--set", "steps=1", "--set", "num_clients=4", "--method", "local"]
        arguments = [rng.choice(words) for _ in range(rng.randrange(1, 6))]
        if arguments[0] in ("compare", "report", "export", "run"):
            arguments = [arguments[0], "no-such-experiment", *arguments[1:]]
        if rng.random() < 0.05:
            arguments = ["run", "rotated-digits", *tiny, f"--seed={odd(rng)!s}", "--json"]
        if any("\x00" in argument for argument in arguments):
            return None  # the system passes none
        code, errors = damage.srfca(*arguments)
        if code not in (0, 2) or "Traceback" in errors:
            raise AssertionError(f"{arguments}: exit code {code}: {errors}")
        return code


@contextmanager
def targets() -> Iterator[dict[Target, int]]:
    """Yield what is called, with weights."""
    with tempfile.TemporaryDirectory() as home, chdir(home):
        folders = Folders(Path(home))
        yield {
            local_training: 15, method: 20, fit: 2, partition: 10, distances: 6, aggregation: 12,
            client_data: 8, frame: 6, federate: 6, datasets: 6, requests: 3, simulation: 2,
            networks: 5, settings: 5, folders.load: 2, folders.command: 1,
        }  # fmt: skip


def fuzz(number: int, seed: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Call random targets; return the counts of outcomes, and the unexpected exceptions."""
    counts, unexpected = Counter[str](), dict[str, str]()
    with targets() as weights, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for trial in range(first, first + number):
            rng = random.Random(f"{seed}/{trial}")
            [target] = rng.choices(list(weights), list(weights.values()))
            try:
                target(rng)
                counts["accepted"] += 1
            except InputError:
                counts["refused"] += 1
            except Exception as error:
                counts["unexpected"] += 1
                frames = traceback.extract_tb(error.__traceback__)
                place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
                own = [frame for frame in frames if "srfca" in frame.filename]
                inside = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else place
                text = str(error).partition("\n")[0][:150]
                line = f"{target.__name__}: {type(error).__name__} at {inside}: {text}"
                unexpected.setdefault(
                    f"{target.__name__} {type(error)} {inside}", f"{trial} {line}"
                )
    return counts, list(unexpected.values())


def main() -> int:
    """Fuzz, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts, unexpected = fuzz(options.number, options.seed, options.first)
    for line in unexpected:
        print(line)
    parts = ", ".join(f"{counts[kind]} {kind}" for kind in ("accepted", "refused", "unexpected"))
    print(f"{options.number} inputs (seed {options.seed}): {parts}")
    return int(counts["unexpected"] > 0)


if __name__ == "__main__":
    sys.exit(main())
