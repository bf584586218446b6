"""The Wasserstein distance between the neurons of two networks."""

from __future__ import annotations

import numpy as np

from srfca.distances.model_set import ModelSet
from srfca.distances.neurons import Network, between_networks, match


def wasserstein(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the Wasserstein distance between the neurons of two models, summed over the layers.

    A hidden layer is a uniform distribution of neurons, each at the point of the weights that enter
    it. Its contribution is W_2 squared, times the number of neurons; the optimal transport says
    which neuron the weights of the next layer belong to (Singh, Jaggi: Model Fusion via Optimal
    Transport, NeurIPS 2020). Outputs are compared one by one. The distance is the square root of
    the sum.

    Both networks have equally many neurons, so an optimal transport is a linear assignment. It is
    one pass from the inputs to the outputs, by what enters the neurons; ``matched`` also sees what
    leaves them.

    Args:
        a: k models.
        b: l models.

    Returns:
        ``[k, l]``

    Raises:
        InputError: If the network is not a chain of dense and convolutional layers.

    Examples:
        >>> import torch
        >>> from srfca import Simulation, data, models
        >>> from srfca.distances import ModelSet
        >>> fed = Simulation(data.rotated_digits(num_clients=4), models.mlp(64, 4, 10))
        >>> rows = torch.stack([fed.initial_model(seed) for seed in range(2)])
        >>> distances = wasserstein(*(ModelSet.of_clients(fed, rows),) * 2)
        >>> distances.shape, bool(distances[0, 1] > 0)
        ((2, 2), True)
    """
    return between_networks(a, b, wasserstein_distance)


def wasserstein_distance(first: Network, second: Network) -> float:
    """Return the Wasserstein distance of two networks."""
    before, total = np.arange(first[0].weights.shape[1]), 0.0
    for number, (layer, other) in enumerate(zip(first, second, strict=True)):
        everything = np.arange(len(layer.weights))
        there = other.permuted(everything, before)
        order = everything
        if number < len(first) - 1:
            order = match(layer.incoming() @ there.incoming().T)
        total += layer.squared_distance(there.permuted(order, np.arange(len(before))))
        before = order
    return float(np.sqrt(total))
