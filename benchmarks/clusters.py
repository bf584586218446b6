"""What makes two methods differ: who is in which cluster, or how the clusters' models are trained.

    SRFCA_DATA=... python benchmarks/clusters.py femnist --methods sr-fca,ifca --k 2,3 --seeds 5

Every method runs as it is. Then models are trained by FedAvg in the clusters that it found, from
the same w0 and with the same batches: with clients weighed by their samples, with all alike, and
with a trimmed mean. What differs then is the clusters' doing; the rest is the training's.
"""

from __future__ import annotations

import argparse

import numpy as np

from srfca.experiments import config, runner
from srfca.experiments.config import takes_k
from srfca.methods import Method
from srfca.methods.fedavg import fedavg
from srfca.methods.rounds import aggregate_named, plain_mean, weighted_mean
from srfca.methods.run import Run


def main() -> None:
    """Print a table of test losses and accuracies, as means and deviations over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--methods", default="sr-fca,ifca")
    parser.add_argument("--k", default="2", help="numbers of clusters, for methods that are told")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--split", choices=("test", "validation"), default="test")
    parser.add_argument("--trim", type=float, default=0.1, help="beta of the trimmed mean")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    experiment = config.load(arguments.experiment).set(arguments.set)
    trainings = {
        "FedAvg by samples": weighted_mean,
        "FedAvg, all alike": plain_mean,
        "FedAvg, trimmed mean": aggregate_named("trimmed_mean", arguments.trim),
    }
    contestants = [
        (name, k)
        for name in arguments.methods.split(",")
        for k in (arguments.k.split(",") if takes_k(name) else [None])
    ]
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        federation = runner.federation(experiment, seed, arguments.device)
        for name, k in contestants:
            told = experiment if k is None else experiment.set([f"{name}.k={k}"])
            method: Method = runner.method(told, name, federation.data.truth)
            found = method.fit(federation, seed)
            trained = {"its own training": found.client_models}
            for training, aggregate in trainings.items():
                again = fedavg(Run(federation, seed), found.partition, method.work, aggregate, 1.0)
                trained[training] = again.client_models
            title = method.name if k is None else f"{method.name}, K={k}"
            for training, models in trained.items():
                scores = federation.scores(models, range(len(models)), arguments.split)
                accuracy = np.nan if scores.accuracy is None else float(scores.accuracy.mean())
                pair = (float(scores.loss.mean()), 100 * accuracy)
                figures.setdefault((title, training), []).append(pair)
                print(
                    f"seed {seed}, {title}, {training}: {pair[0]:.4f}, {pair[1]:.2f} %", flush=True
                )
    print(f"| clusters of | models by | {arguments.split} loss | accuracy % |\n|---|---|---|---|")
    for (title, training), pairs in figures.items():
        mean, deviation = np.mean(pairs, 0), np.std(pairs, 0, ddof=min(1, len(pairs) - 1))
        loss, accuracy = (
            f"{mean[0]:.4f} ± {deviation[0]:.4f}",
            f"{mean[1]:.2f} ± {deviation[1]:.2f}",
        )
        print(f"| {title} | {training} | {loss} | {accuracy} |")


if __name__ == "__main__":
    main()
