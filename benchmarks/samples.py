"""How far distances on a subsample of each client's data are from those on all of it.

    SRFCA_DATA=... python benchmarks/samples.py

Rotated MNIST (100 clients of 540 training samples), after ONE_SHOT's local training: the error of
the cross loss relative to its value on all samples, and whether SR-FCA finds the true clusters.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from srfca.distances import ModelSet, cross_loss
from srfca.experiments import config, runner
from srfca.federation import Subsample, Train
from srfca.random import Key

SIZES = (8, 16, 32, 64, 128, 256)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    experiment = config.load("rotated-mnist")
    errors: dict[int, list[float]] = {size: [] for size in SIZES}
    exact: dict[int, list[bool]] = {size: [] for size in SIZES}
    for seed in range(arguments.seeds):
        federation = runner.make_federation(experiment, seed, arguments.device)
        method = runner.make_method(experiment, "sr-fca")
        clients = range(len(federation.client_ids))
        starts = federation.initial_model(seed).expand(len(clients), -1)
        alone = replace(method.local, local_steps=method.local.steps)
        models = federation.ask(Train(clients, starts, alone, Key(seed, "one_shot"))).values
        complete = ModelSet.of_clients(federation, models)
        expected = cross_loss(complete, complete)
        for size in SIZES:
            sampled = ModelSet.of_clients(federation, models, subsample=Subsample(size, seed))
            relative = cross_loss(sampled, sampled) / expected - 1
            errors[size].append(float(np.sqrt(np.mean(relative**2))))
            method = runner.make_method(experiment.set([f"sr-fca.samples={size}"]), "sr-fca")
            exact[size].append(method.fit(federation, seed).partition == federation.data.truth)
    print("| samples | relative error | SR-FCA exact |\n|---|---|---|")
    for size in SIZES:
        count = f"{sum(exact[size])} of {len(exact[size])}"
        print(f"| {size} | {np.mean(errors[size]):.1%} | {count} |")


if __name__ == "__main__":
    main()
