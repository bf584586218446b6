"""All pairwise losses of 100 clients: every client's model on every client's data.

srfca evaluates all pairs, on all samples or, as SR-FCA does unless told otherwise, on 128 of each
client, or only the pairs that clustering by random pivots looks at. The plain loop evaluates pair
after pair: a client's whole data at once, or in a DataLoader's batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from harness import Contestant, serve
from plain import Batches, loss
from setting import Setting, best_threads, clients, mlp, named, setting, threads
from torch.nn.utils import vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from srfca import ClientData, Partition, Simulation, Work
from srfca.clustering.graph import cluster_graph, pivot, threshold_graph
from srfca.distances import Side, cross_loss
from srfca.federation.base import Sample
from srfca.random import Key


def contestants(sizes: Setting) -> dict[str, Contestant]:
    """All of them, on the same trained models; each tells how many clusters it finds."""
    x, y = clients(sizes)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation = Simulation(data, mlp(sizes.hidden), device="cpu", validation=0.0)
    every = range(sizes.clients)
    starts = federation.initial(0).repeat(sizes.clients, 1)
    work = Work(
        steps=sizes.local_steps, local_steps=sizes.local_steps, batch_size=sizes.batch,
        optimizer="adam", lr=0.003,
    )  # fmt: skip
    models = federation.fit(starts, every, work, Key(0, "benchmark"))
    limit = between_groups(cross_loss(own := Side.clients(federation, models), own))

    def all_pairs(sample: Sample | None = None) -> float:
        side = Side.clients(federation, models, sample)
        return clusters(cross_loss(side, side))

    def lazy() -> float:
        side = Side.clients(federation, models)

        def near(vertex: int, others: np.ndarray) -> np.ndarray:
            return cross_loss(side.take(np.array([vertex])), side.take(others))[0] <= limit

        order = np.random.default_rng(0).permutation(sizes.clients)
        return Partition(pivot(near, order)).num_clusters

    modules = [mlp(sizes.hidden) for _ in every]
    for module, row in zip(modules, models, strict=True):
        vector_to_parameters(row, module.parameters())

    def at_once(client: int) -> Batches:
        return [(x[client], y[client])]

    def loaded(client: int) -> Batches:
        return DataLoader(TensorDataset(x[client], y[client]), sizes.batch)

    def pairs(batches: Callable[[int], Batches], count: int) -> np.ndarray:
        return np.array([[loss(modules[i], batches(j)) for j in every] for i in every[:count]])

    def plain(name: str, batches: Callable[[int], Batches]) -> tuple[str, Contestant]:
        count = best_threads(lambda: pairs(batches, 2))

        def run() -> float:
            with threads(count):
                losses = pairs(batches, sizes.clients)
            return clusters((losses + losses.T) / 2)

        return f"{name}, {named(count)}", run

    def clusters(distances: np.ndarray) -> float:
        return cluster_graph(threshold_graph(distances, limit), "correlation", 0).num_clusters

    return {
        "srfca": all_pairs,
        "srfca, 128 samples": partial(all_pairs, Sample(128, 0)),
        "srfca, lazy pivots": lazy,
        **dict([plain("plain loop", at_once), plain("plain loop with a DataLoader", loaded)]),
    }


def between_groups(distances: np.ndarray) -> float:
    """A threshold between the distances of clients of one group and those of others."""
    group = np.arange(len(distances)) % 4
    same = group[:, None] == group
    return float((distances[same].max() + distances[~same].min()) / 2)


if __name__ == "__main__":
    torch.manual_seed(0)
    serve(contestants(setting()))
