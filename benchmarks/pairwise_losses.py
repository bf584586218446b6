"""All pairwise losses of 100 clients: every client's model on every client's data.

srfca evaluates all pairs, on all samples or on 128 samples of each client (the default of SR-FCA),
or only the pairs that clustering by random pivots needs. The plain loop evaluates one pair after
another: all of a client's data at once, or in batches of a DataLoader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from harness import Contestant, serve
from plain import Batches, mean_loss
from setting import (
    GROUPS,
    Setting,
    best_threads,
    client_arrays,
    mlp,
    parse_setting,
    thread_label,
    torch_threads,
)
from torch.nn.utils import vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from srfca import ClientData, LocalTraining, Partition, Simulation
from srfca.clustering.graph import cluster_graph, pivot, threshold_graph
from srfca.distances import ModelSet, cross_loss
from srfca.federation import Subsample, Train
from srfca.random import Key


def contestants(setting: Setting) -> dict[str, Contestant]:
    """Return the contestants, all with the same trained models; each returns its clusters."""
    x, y = client_arrays(setting)
    data = ClientData.from_arrays(list(zip(x, y, strict=True)))
    federation = Simulation(data, mlp(setting.hidden), device="cpu", validation=0.0)
    clients = range(setting.num_clients)
    starts = federation.initial_model(0).repeat(setting.num_clients, 1)
    local = LocalTraining(
        steps=setting.local_steps, local_steps=setting.local_steps,
        batch_size=setting.batch_size, optimizer="adam", lr=0.003,
    )  # fmt: skip
    models = federation.ask(Train(clients, starts, local, Key(0, "benchmark"))).values
    local_models = ModelSet.of_clients(federation, models)
    threshold = between_groups(cross_loss(local_models, local_models))

    def all_pairs(subsample: Subsample | None = None) -> float:
        model_set = ModelSet.of_clients(federation, models, subsample=subsample)
        return num_clusters(cross_loss(model_set, model_set))

    def lazy() -> float:
        model_set = ModelSet.of_clients(federation, models)

        def has_edges(client: int, candidates: np.ndarray) -> np.ndarray:
            pivot_model = model_set.take(np.array([client]))
            return cross_loss(pivot_model, model_set.take(candidates))[0] <= threshold

        order = np.random.default_rng(0).permutation(setting.num_clients)
        return Partition(pivot(has_edges, order)).num_clusters

    modules = [mlp(setting.hidden) for _ in clients]
    for module, row in zip(modules, models, strict=True):
        vector_to_parameters(row, module.parameters())

    def at_once(client: int) -> Batches:
        return [(x[client], y[client])]

    def loaded(client: int) -> Batches:
        return DataLoader(TensorDataset(x[client], y[client]), setting.batch_size)

    def pairs(batches: Callable[[int], Batches], count: int) -> np.ndarray:
        return np.array(
            [[mean_loss(modules[i], batches(j)) for j in clients] for i in clients[:count]]
        )

    def plain(name: str, batches: Callable[[int], Batches]) -> tuple[str, Contestant]:
        count = best_threads(lambda: pairs(batches, 2))

        def run() -> float:
            with torch_threads(count):
                losses = pairs(batches, setting.num_clients)
            return num_clusters((losses + losses.T) / 2)

        return f"{name}, {thread_label(count)}", run

    def num_clusters(distances: np.ndarray) -> float:
        return cluster_graph(threshold_graph(distances, threshold), "correlation", 0).num_clusters

    return {
        "srfca": all_pairs,
        "srfca, 128 samples": partial(all_pairs, Subsample(128, 0)),
        "srfca, lazy pivots": lazy,
        **dict([plain("plain loop", at_once), plain("plain loop with a DataLoader", loaded)]),
    }


def between_groups(distances: np.ndarray) -> float:
    """Return a threshold between the distances inside groups and those between groups."""
    group = np.arange(len(distances)) % GROUPS
    same = group[:, None] == group
    return float((distances[same].max() + distances[~same].min()) / 2)


if __name__ == "__main__":
    torch.manual_seed(0)
    serve(contestants(parse_setting()))
