"""Why two methods differ: because of their clusters, or because of how the models are trained.

    SRFCA_DATA=... python benchmarks/clusters.py femnist --methods sr-fca,ifca --k 2,3 --seeds 5

Every method runs as usual. Then FedAvg trains a model for each of the method's clusters, from the
same w0 and with the same batches: weighted by samples, with equal weights, and with a trimmed mean.
Differences that remain come from the clusters, the others from the training.
"""

from __future__ import annotations

import argparse

import numpy as np

from srfca.aggregation import Aggregation, Mean, TrimmedMean
from srfca.experiments import config, runner
from srfca.federation import Scores
from srfca.methods import METHODS, Method, Run
from srfca.methods.fedavg import fedavg


def main() -> None:
    """Print a table of test losses and accuracies, as means and deviations over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--methods", default="sr-fca,ifca")
    parser.add_argument("--k", default="2", help="numbers of clusters, for methods that need one")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--split", choices=("test", "validation"), default="test")
    parser.add_argument("--trim", type=float, default=0.1, help="beta of the trimmed mean")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    experiment = config.load(arguments.experiment).set(arguments.set)
    trainings: dict[str, Aggregation] = {
        "FedAvg, weighted by samples": Mean(),
        "FedAvg, equal weights": Mean(weighted=False),
        "FedAvg, trimmed mean": TrimmedMean(arguments.trim),
    }
    contestants = [
        (name, k)
        for name in arguments.methods.split(",")
        for k in (arguments.k.split(",") if METHODS[name].needs_k else [None])
    ]
    scores: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        federation = runner.make_federation(experiment, seed, arguments.device)
        for name, k in contestants:
            settings = [] if k is None else [f"{name}.k={k}"]
            method: Method = runner.make_method(
                experiment.set(settings), name, federation.data.truth
            )
            result = method.fit(federation, seed)
            client_models = {"the method": result.client_models}
            for training, aggregation in trainings.items():
                run = Run(federation, seed)
                answer = fedavg(run, result.partition, method.local, aggregation, 1.0)
                client_models[training] = answer.client_models
            title = method.name if k is None else f"{method.name}, K={k}"
            for training, models in client_models.items():
                request = Scores(range(len(models)), models, arguments.split)
                client_scores = federation.ask(request).values
                accuracy = client_scores.accuracy
                percent = np.nan if accuracy is None else 100 * float(accuracy.mean())
                pair = (float(client_scores.loss.mean()), percent)
                scores.setdefault((title, training), []).append(pair)
                print(
                    f"seed {seed}, {title}, {training}: {pair[0]:.4f}, {pair[1]:.2f} %", flush=True
                )
    print(f"| clusters of | trained by | {arguments.split} loss | accuracy % |\n|---|---|---|---|")
    for (title, training), pairs in scores.items():
        mean, deviation = np.mean(pairs, 0), np.std(pairs, 0, ddof=min(1, len(pairs) - 1))
        loss = f"{mean[0]:.4f} ± {deviation[0]:.4f}"
        accuracy = f"{mean[1]:.2f} ± {deviation[1]:.2f}"
        print(f"| {title} | {training} | {loss} | {accuracy} |")


if __name__ == "__main__":
    main()
