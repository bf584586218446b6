"""SR-FCA as it is written down, one client and one pair at a time.

Harshvardhan, Ghosh, Mazumdar: An Improved Federated Clustering Algorithm with Model-based
Clustering (TMLR, 02/2024), in the manner of the authors' code: a module for each client, an
optimiser and a DataLoader, an evaluation for each pair of a model and a client's data. It takes the
batches that srfca draws, so that both do the same work and find the same clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from plain import loss, train
from setting import row
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from srfca import Partition, Work
from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.random import Key, batches, client_words, streams


@dataclass(frozen=True)
class Sequential:
    """What the clients hold, and how they train.

    Args:
        clients: Their ids, by which their batches are drawn.
        x: Of each client, ``[n, ...]``.
        y: Of each client, ``[n]``.
        module: Holds w0.
        work: Steps, batches and rate of Adam.
        threshold: lambda, of ONE_SHOT and of MERGE.
        trim: beta.
        refine_steps: R.
        min_size: t.
        loaders: Batches come from a DataLoader, as they do in the authors' code; if not, those of
            a training lie ready, and a client's data is evaluated at once.
    """

    clients: tuple[str, ...]
    x: list[Tensor]
    y: list[Tensor]
    module: nn.Module
    work: Work
    threshold: float
    trim: float = 0.1
    refine_steps: int = 1
    min_size: int = 2
    loaders: bool = True

    def sr_fca(self, seed: int) -> tuple[Partition, Tensor]:
        """ONE_SHOT, then REFINE: the clusters, and a model for each ``[k, P]``."""
        every = range(len(self.x))
        w0 = row(self.module)
        index = self.batches(Key(seed, "one_shot"), self.work.steps)
        own = [self.fit(w0, client, index[client]) for client in every]
        losses = np.array([[self.loss(w, client) for client in every] for w in own])
        partition = self.clusters((losses + losses.T) / 2, seed).drop_smaller_than(self.min_size)
        for r in range(1, self.refine_steps + 1):
            models = self.trimmed_mean_gd(w0, partition, Key(seed, f"refine {r}"))
            partition, models = self.recluster(partition, models, losses)
            partition, models = self.merge(partition, models, seed)
        return partition, torch.stack(models)

    def trimmed_mean_gd(self, w0: Tensor, partition: Partition, key: Key) -> list[Tensor]:
        """Every cluster trains from w0; after each round, the trimmed mean of its clients."""
        models = [w0] * partition.num_clusters
        for number in range(self.work.rounds):
            steps = len(self.work.span(number))
            index = self.batches(Key(key.seed, key.purpose, number), steps)
            for cluster, members in enumerate(partition):
                sent = [self.fit(models[cluster], client, index[client]) for client in members]
                models[cluster] = trimmed_mean(torch.stack(sent), self.trim)
        return models

    def recluster(
        self, partition: Partition, models: list[Tensor], losses: np.ndarray
    ) -> tuple[Partition, list[Tensor]]:
        """Every client goes to the nearest cluster."""
        labels = []
        for client in range(len(self.x)):
            distances = [
                (losses[client, members].mean() + self.loss(model, client)) / 2
                for members, model in zip(partition, models, strict=True)
            ]
            labels.append(int(np.argmin(distances)))
        found = Partition(labels)
        return found, [models[labels[members[0]]] for members in found]

    def merge(
        self, partition: Partition, models: list[Tensor], seed: int
    ) -> tuple[Partition, list[Tensor]]:
        """Clusters whose models are near become one, with the mean of their models."""
        on = np.array(
            [
                [np.mean([self.loss(model, client) for client in members]) for members in partition]
                for model in models
            ]
        )
        joined = self.clusters((on + on.T) / 2, seed)
        merged = Partition(joined.labels[partition.labels])
        return merged, [torch.stack([models[c] for c in some]).mean(0) for some in joined]

    def clusters(self, distances: np.ndarray, seed: int) -> Partition:
        """Correlation clustering of the graph at lambda."""
        return cluster_graph(threshold_graph(distances, self.threshold), "correlation", seed)

    def batches(self, key: Key, steps: int) -> Tensor:
        """The samples that clients take, ``[m, steps, b]``: those that srfca takes."""
        sizes = torch.tensor([len(y) for y in self.y])
        assert self.work.batch_size is not None
        return batches(streams(key, client_words(self.clients)), sizes, self.work.batch_size, steps)

    def fit(self, start: Tensor, client: int, index: Tensor) -> Tensor:
        """One client trains from a row, one step for each row of ``index``."""
        self.load(start)
        optimizer = torch.optim.Adam(self.module.parameters(), lr=self.work.lr)
        x, y = self.x[client], self.y[client]
        if self.loaders:
            train(
                self.module,
                optimizer,
                DataLoader(TensorDataset(x, y), batch_sampler=index.tolist()),
            )
        else:
            train(self.module, optimizer, zip(x[index], y[index], strict=True))
        return row(self.module)

    def loss(self, model: Tensor, client: int) -> float:
        """The mean loss of a model on a client's data."""
        self.load(model)
        x, y = self.x[client], self.y[client]
        if self.loaders:
            return loss(self.module, DataLoader(TensorDataset(x, y), self.work.batch_size))
        return loss(self.module, [(x, y)])

    def load(self, model: Tensor) -> None:
        """Write a row into the module."""
        vector_to_parameters(model.clone(), self.module.parameters())


def trimmed_mean(rows: Tensor, beta: float) -> Tensor:
    """By a sort of every coordinate."""
    drop = int(beta * len(rows) + 1e-9)
    return rows.sort(0).values[drop : len(rows) - drop].mean(0)
