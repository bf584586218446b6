"""SR-FCA as the paper states it, one client and one pair at a time.

Harshvardhan, Ghosh, Mazumdar: An Improved Federated Clustering Algorithm with Model-based
Clustering (TMLR, 02/2024), structured like the authors' code: an optimizer and a DataLoader for
each client, and an evaluation for each pair of a model and a client's data. It takes the batches
that srfca draws, so that both do the same work and find the same clusters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from plain import mean_loss, train
from setting import to_row
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset

from srfca import LocalTraining, Partition
from srfca.clustering.graph import cluster_graph, threshold_graph
from srfca.random import Key, batches, client_words, streams


@dataclass(frozen=True)
class Sequential:
    """Sequential SR-FCA: the clients' data and the parameters.

    Args:
        client_ids: Which decide the clients' batches.
        x: Inputs of each client, ``[n, ...]``.
        y: Targets of each client, ``[n]``.
        module: Holds w0.
        local: How clients train: steps, batch size and learning rate of Adam.
        threshold: lambda, of ONE_SHOT and of MERGE.
        trim: beta.
        refine_steps: R.
        min_size: t.
        data_loaders: Take batches from a DataLoader, as the authors' code does; otherwise index all
            batches of a training at once, and evaluate all of a client's data at once.
    """

    client_ids: tuple[str, ...]
    x: list[Tensor]
    y: list[Tensor]
    module: nn.Module
    local: LocalTraining
    threshold: float
    trim: float = 0.1
    refine_steps: int = 1
    min_size: int = 2
    data_loaders: bool = True

    def sr_fca(self, seed: int) -> tuple[Partition, Tensor]:
        """Run ONE_SHOT, then REFINE; return the clusters and their models ``[k, P]``."""
        clients = range(len(self.x))
        w0 = to_row(self.module)
        index = self.batches(Key(seed, "one_shot"), self.local.steps)
        local_models = [self.train_client(w0, client, index[client]) for client in clients]
        losses = np.array([[self.loss(w, client) for client in clients] for w in local_models])
        partition = self.cluster((losses + losses.T) / 2, seed).drop_smaller_than(self.min_size)
        for step in range(1, self.refine_steps + 1):
            models = self.trimmed_mean_gd(w0, partition, Key(seed, f"refine {step}"))
            partition, models = self.recluster(partition, models, losses)
            partition, models = self.merge(partition, models, seed)
        return partition, torch.stack(models)

    def trimmed_mean_gd(self, w0: Tensor, partition: Partition, key: Key) -> list[Tensor]:
        """Train every cluster from w0, with the trimmed mean of its clients after each round."""
        models = [w0] * partition.num_clusters
        for number in range(self.local.rounds):
            steps = len(self.local.span(number))
            index = self.batches(Key(key.seed, key.purpose, number), steps)
            for cluster, members in enumerate(partition):
                rows = [
                    self.train_client(models[cluster], client, index[client]) for client in members
                ]
                models[cluster] = trimmed_mean(torch.stack(rows), self.trim)
        return models

    def recluster(
        self, partition: Partition, models: list[Tensor], losses: np.ndarray
    ) -> tuple[Partition, list[Tensor]]:
        """Move every client to the nearest cluster."""
        labels = []
        for client in range(len(self.x)):
            distances = [
                (losses[client, members].mean() + self.loss(model, client)) / 2
                for members, model in zip(partition, models, strict=True)
            ]
            labels.append(int(np.argmin(distances)))
        reclustered = Partition(labels)
        return reclustered, [models[labels[members[0]]] for members in reclustered]

    def merge(
        self, partition: Partition, models: list[Tensor], seed: int
    ) -> tuple[Partition, list[Tensor]]:
        """Join clusters whose models are near, and average their models."""
        losses = np.array(
            [
                [np.mean([self.loss(model, client) for client in members]) for members in partition]
                for model in models
            ]
        )
        joined = self.cluster((losses + losses.T) / 2, seed)
        merged = Partition(joined.labels[partition.labels])
        return merged, [torch.stack([models[c] for c in group]).mean(0) for group in joined]

    def cluster(self, distances: np.ndarray, seed: int) -> Partition:
        """Return the correlation clustering of the graph at lambda."""
        return cluster_graph(threshold_graph(distances, self.threshold), "correlation", seed)

    def batches(self, key: Key, steps: int) -> Tensor:
        """Return the samples of each client's batches, ``[m, steps, b]``, as srfca draws them."""
        sizes = torch.tensor([len(y) for y in self.y])
        stream = streams(key, client_words(self.client_ids))
        assert self.local.batch_size is not None
        return batches(stream, sizes, self.local.batch_size, steps)

    def train_client(self, start: Tensor, client: int, index: Tensor) -> Tensor:
        """Train one client from a row, one step for each row of ``index``."""
        self.load(start)
        optimizer = torch.optim.Adam(self.module.parameters(), lr=self.local.lr)
        x, y = self.x[client], self.y[client]
        if self.data_loaders:
            loader = DataLoader(TensorDataset(x, y), batch_sampler=index.tolist())
            train(self.module, optimizer, loader)
        else:
            train(self.module, optimizer, zip(x[index], y[index], strict=True))
        return to_row(self.module)

    def loss(self, model: Tensor, client: int) -> float:
        """Return the mean loss of a model on a client's data."""
        self.load(model)
        x, y = self.x[client], self.y[client]
        if self.data_loaders:
            return mean_loss(self.module, DataLoader(TensorDataset(x, y), self.local.batch_size))
        return mean_loss(self.module, [(x, y)])

    def load(self, model: Tensor) -> None:
        """Write a row into the module."""
        vector_to_parameters(model.clone(), self.module.parameters())


def trimmed_mean(rows: Tensor, beta: float) -> Tensor:
    """Return the trimmed mean by sorting every coordinate."""
    dropped = int(beta * len(rows) + 1e-9)
    return rows.sort(0).values[dropped : len(rows) - dropped].mean(0)
