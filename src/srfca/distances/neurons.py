"""Networks as layers of neurons, for distances that do not depend on the neurons' order.

Exchanging two neurons of a hidden layer, together with the weights that leave them, gives another
row of the same network. Models that start from different random values end in different orders, so
that the l2 distance of their rows says little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.distances.model_set import ModelSet
from srfca.errors import InputError, require
from srfca.models.rows import Layout

Weights = NDArray[np.float64]
"""Weights of a layer: ``[neurons, neurons before, k]``; k is 1, or the size of a kernel."""
Order = NDArray[np.int64]
"""For each neuron of the first model the matching one of the second: ``[neurons]``."""


@dataclass(frozen=True)
class NeuronLayer:
    """The neurons of one layer of a network.

    Args:
        weights: ``[neurons, neurons before, k]``
        biases: ``[neurons]``, zeros if it has none.
    """

    weights: Weights
    biases: NDArray[np.float64]

    def permuted(self, order: Order, before: Order) -> NeuronLayer:
        """Return the layer with its neurons, and those of the layer before, in another order."""
        return NeuronLayer(self.weights[order][:, before], self.biases[order])

    def incoming(self) -> NDArray[np.float64]:
        """Return what enters each neuron, its bias included: ``[neurons, n]``."""
        return np.column_stack([self.weights.reshape(len(self.weights), -1), self.biases])

    def outgoing(self) -> NDArray[np.float64]:
        """Return what leaves each neuron of the layer before: ``[neurons before, n]``."""
        return np.swapaxes(self.weights, 0, 1).reshape(self.weights.shape[1], -1)

    def squared_distance(self, other: NeuronLayer) -> float:
        """Return the squared l2 distance of two layers."""
        weights, biases = self.weights - other.weights, self.biases - other.biases
        return float(np.vdot(weights, weights) + np.vdot(biases, biases))


Network = list[NeuronLayer]
"""The layers of a network, from the inputs to the outputs."""


def networks_of(models: ModelSet) -> list[Network]:
    """Return the layers of each model.

    Raises:
        InputError: If the network is not a chain of dense and convolutional layers.
    """
    architecture = models.source.architecture
    if architecture is None:
        raise InputError(
            "this distance needs the network's layers, but the federation does not know them: use "
            "distance='cross_loss'"
        )
    layout = architecture.layout
    chain = _chain(layout)
    parts = layout.unstack(models.models.double().cpu())
    state = {name: part.numpy() for name, part in parts.items()}
    return [
        [_layer(state, name, shape, number) for name, shape in chain.items()]
        for number in range(len(models.models))
    ]


def rows_of(models: ModelSet, networks: Sequence[Network]) -> Tensor:
    """Return the rows ``[k, P]`` of changed layers of some models ``[k, P]``."""
    architecture = models.source.architecture
    assert architecture is not None, "networks_of has required it"
    layout = architecture.layout
    state = dict(layout.unstack(models.models))
    for position, name in enumerate(_chain(layout)):
        layers = [network[position] for network in networks]
        for entry, values in (
            (f"{name}weight", [layer.weights for layer in layers]),
            (f"{name}bias", [layer.biases for layer in layers]),
        ):
            if entry in state:
                changed = torch.as_tensor(np.stack(values)).view_as(state[entry])
                state[entry] = changed.to(state[entry])
    return layout.stack(state)


def _layer(
    state: dict[str, NDArray[np.float64]], name: str, shape: Sequence[int], number: int
) -> NeuronLayer:
    weights, bias = state[f"{name}weight"][number], state.get(f"{name}bias")
    biases = np.zeros(shape[0]) if bias is None else bias[number]
    return NeuronLayer(weights.reshape(shape), biases)


def _chain(layout: Layout) -> dict[str, tuple[int, int, int]]:
    """Return the shape ``(neurons, neurons before, k)`` of each layer, in order.

    A dense layer after a convolution has k weights for each channel before it.
    """
    chain: dict[str, tuple[int, int, int]] = {}
    before: int | None = None
    for entry, size in layout.shapes.items():
        prefix, dot, kind = entry.rpartition(".")
        name = prefix + dot
        is_layer = entry in layout.parameters and kind in ("weight", "bias")
        require(
            is_layer and not (kind == "weight" and len(size) not in (2, 4)), _unsupported(entry)
        )
        if kind == "bias":
            require(name in chain and size[0] == chain[name][0], _unsupported(entry))
            continue
        inputs = size[1] if before is None else before
        dense = len(size) == 2
        fits = size[1] % inputs == 0 if dense else size[1] == inputs
        require(fits, _unsupported(entry))
        chain[name] = (size[0], inputs, size.numel() // (size[0] * inputs))
        before = size[0]
    require(bool(chain), "this distance needs a network with layers")
    return chain


def _unsupported(entry: str) -> str:
    return (
        "this distance matches the neurons of dense and convolutional layers that follow each "
        f"other, and {entry!r} belongs to another kind of network: use distance='cross_loss'"
    )


def match(gains: NDArray[np.float64]) -> Order:
    """Return the one-to-one matching of largest total gain ``[n, n]``: ``[n]``.

    >>> match(np.array([[0.0, 2.0], [1.0, 2.0]])).tolist()
    [1, 0]
    """
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(gains, maximize=True)[1])


def between_networks(
    a: ModelSet, b: ModelSet, distance: Callable[[Network, Network], float]
) -> NDArray[np.float64]:
    """Return a symmetric distance of two networks for all pairs of models: ``[k, l]``."""
    first, same = networks_of(a), a.models is b.models
    second = first if same else networks_of(b)
    values = np.zeros((len(first), len(second)))
    for i, u in enumerate(first):
        for j, v in enumerate(second):
            if not same or i < j:
                values[i, j] = distance(u, v)
    return values + values.T if same else values
