"""How far should clients fine-tune? Learning rates and weights of the fine-tuned model.

    SRFCA_DATA=... python benchmarks/fine_tuning.py --seed 1000 --seeds 4  # table of the docs

The true clusters are trained by FedAvg. Every client then trains on from its cluster's model, at
some fraction of the learning rate, and goes a part of the way to the outcome. The table has the
points of test accuracy that this gains.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from srfca.experiments import config, runner
from srfca.federation.requests import Scores, Train
from srfca.methods.oracle import Oracle
from srfca.random import Key

EXPERIMENTS = (
    "fashion-dirichlet-1", "fashion-dirichlet-03", "fashion-rotations", "fashion-noise-60",
    "transposed-femnist",
)  # fmt: skip
RATES = (1.0, 0.25, 0.1)
WEIGHTS = (0.25, 0.5, 0.75, 1.0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=float, default=1 / 15, help="fraction of the training")
    parser.add_argument("--only", nargs="+", default=EXPERIMENTS, metavar="NAME")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="settings")
    arguments = parser.parse_args()
    columns = [f"{rate:g} x {weight:g}" for rate in RATES for weight in WEIGHTS]
    print(f"| federation | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name in arguments.only:
        gains = [
            test_gains(name, seed, arguments.steps, arguments.settings)
            for seed in range(arguments.seed, arguments.seed + arguments.seeds)
        ]
        cells = [f"{100 * gain:+.1f}" for gain in np.mean(gains, axis=0)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def test_gains(name: str, seed: int, fraction: float, settings: Sequence[str]) -> list[float]:
    """Return the gain of mean test accuracy for each rate and weight, rate by rate."""
    experiment = config.load(name).set(settings)
    federation = runner.make_federation(experiment, seed)
    method: Oracle = runner.make_method(experiment, "oracle", federation.data.truth)
    starts = method.fit(federation, seed=seed).client_models
    clients = np.arange(len(starts))

    def accuracy(models: torch.Tensor) -> float:
        scores = federation.ask(Scores(clients, models, "test")).values
        if scores.accuracy is None:
            raise ValueError(f"{name} has no classes")
        return float(scores.accuracy.mean())

    before = accuracy(starts)
    steps = max(round(fraction * method.local.steps), 1)
    gains = []
    for rate in RATES:
        local = replace(
            method.local, steps=steps, local_steps=steps, schedule="constant",
            lr=method.local.lr * rate,
        )  # fmt: skip
        tuned = federation.ask(Train(clients, starts, local, Key(seed, "fine-tune"))).values
        gains += [accuracy(torch.lerp(starts, tuned, weight)) - before for weight in WEIGHTS]
    return gains


if __name__ == "__main__":
    main()
