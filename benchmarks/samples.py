"""How far distances on a sample of each client's data are from those on all of it.

    SRFCA_DATA=... python benchmarks/samples.py

Rotated MNIST (100 clients of 540 training samples), after ONE_SHOT's local training: the error of a
cross loss relative to its value on all samples, and whether ONE_SHOT and all of SR-FCA are exact.
"""

from __future__ import annotations

import argparse

import numpy as np

from srfca.distances import Side, distance_named
from srfca.experiments import config, runner
from srfca.federation.base import Sample
from srfca.methods.rounds import local_training
from srfca.random import Key

SIZES = (8, 16, 32, 64, 128, 256)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    experiment = config.load("rotated-mnist")
    errors: dict[int, list[float]] = {size: [] for size in SIZES}
    right: dict[int, list[bool]] = {size: [] for size in SIZES}
    for seed in range(arguments.seeds):
        federation = runner.federation(experiment, seed, arguments.device)
        method = runner.method(experiment, "sr-fca")
        w0 = federation.initial(seed)
        w = local_training(federation, w0, method.work, Key(seed, "one_shot"), lambda steps: None)
        whole = Side.clients(federation, w)
        cross_loss = distance_named("cross_loss")
        expected = cross_loss(whole, whole)
        for size in SIZES:
            some = Side.clients(federation, w, Sample(size, seed))
            errors[size].append(
                float(np.sqrt(np.mean((cross_loss(some, some) / expected - 1) ** 2)))
            )
            tried = runner.method(experiment.set([f"samples={size}"]), "sr-fca")
            right[size].append(tried.fit(federation, seed).partition == federation.data.truth)
    print("| samples | relative error | SR-FCA exact |\n|---|---|---|")
    for size in SIZES:
        exact = f"{sum(right[size])} of {len(right[size])}"
        print(f"| {size} | {np.mean(errors[size]):.1%} | {exact} |")


if __name__ == "__main__":
    main()
