"""The l2 distance of two networks after their neurons are matched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.distances.model_set import ModelSet
from srfca.distances.neurons import (
    Network,
    Order,
    between_networks,
    match,
    networks_of,
    rows_of,
)

_SWEEPS = 20
"""Most sweeps over the layers; a few are enough, since every matching lowers the distance."""


def matched(a: ModelSet, b: ModelSet) -> np.ndarray:
    """Return the l2 distance of two models after their neurons are matched, layer by layer.

    The hidden neurons of one network are put in the order in which it is nearest to the other: a
    linear assignment for each layer, by the weights that enter and leave its neurons, repeated
    while that brings the networks nearer (Ainsworth, Hayase, Srinivasa: Git Re-Basin, ICLR 2023).
    For one hidden layer it is the least distance over all orders; for more, a local minimum.

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
        >>> _, first, _, second = reversed_neurons = fed.module(fed.initial_model(0))
        >>> first.weight.data, first.bias.data = first.weight.data.flip(0), first.bias.data.flip(0)
        >>> second.weight.data = second.weight.data.flip(1)
        >>> layout = fed.architecture.layout
        >>> rows = torch.stack([fed.initial_model(0), layout.row(reversed_neurons)])
        >>> clients = ModelSet.of_clients(fed, rows)
        >>> bool((matched(clients, clients) < 1e-6).all())
        True
    """
    return between_networks(a, b, matched_distance)


def matched_distance(first: Network, second: Network) -> float:
    """Return the l2 distance of two networks after their neurons are matched."""
    orders = matching(first, second)
    layers = zip(first, second, orders[1:], orders, strict=False)
    return float(
        np.sqrt(sum(u.squared_distance(v.permuted(o, before)) for u, v, o, before in layers))
    )


def aligned(models: ModelSet, references: ModelSet, which: NDArray[np.int64]) -> Tensor:
    """Return models whose neurons are in the order that matches a reference: ``[k, P]``.

    They compute what they did before.

    Args:
        models: k models.
        references: l models.
        which: ``[k]`` the reference of each model.

    Raises:
        InputError: If the network is not a chain of dense and convolutional layers.
    """
    networks, others = networks_of(models), networks_of(references)
    permuted = []
    for network, reference in zip(networks, which.tolist(), strict=True):
        orders = matching(others[reference], network)
        permuted.append(
            [
                layer.permuted(order, before)
                for layer, order, before in zip(network, orders[1:], orders, strict=False)
            ]
        )
    return rows_of(models, permuted)


def matching(first: Network, second: Network) -> list[Order]:
    """Return the order of the second network's neurons in each layer, inputs and outputs included.

    Inputs and outputs stay as they are. The first sweep sees what enters a neuron alone, because
    the next layer has not been matched yet.
    """
    sizes = [first[0].weights.shape[1], *(len(layer.weights) for layer in first)]
    orders = [np.arange(size) for size in sizes]
    for sweep in range(_SWEEPS):
        previous = list(orders)
        for hidden in range(1, len(first)):
            layer, other = first[hidden - 1], second[hidden - 1]
            there = other.permuted(np.arange(sizes[hidden]), orders[hidden - 1])
            gains = layer.incoming() @ there.incoming().T
            if sweep or hidden == len(first) - 1:
                after, other_after = first[hidden], second[hidden]
                kept = other_after.permuted(orders[hidden + 1], np.arange(sizes[hidden]))
                gains = gains + after.outgoing() @ kept.outgoing().T
            orders[hidden] = match(gains)
        if all(np.array_equal(x, y) for x, y in zip(orders, previous, strict=True)):
            break
    return orders
