"""Client data: what the clients hold, with the true partition where it is known."""

from collections.abc import Callable

from srfca.data.clients import ClientData, Samples
from srfca.data.custom import load
from srfca.data.digits import rotated_digits
from srfca.data.federate import federate
from srfca.data.paper import (
    femnist,
    inverted_mnist,
    label_cifar10,
    rotated_cifar10,
    rotated_mnist,
    shakespeare,
)
from srfca.data.synthetic import synthetic

FEDERATIONS: dict[str, Callable[..., ClientData]] = {
    "femnist": femnist,
    "inverted_mnist": inverted_mnist,
    "label_cifar10": label_cifar10,
    "rotated_cifar10": rotated_cifar10,
    "rotated_digits": rotated_digits,
    "rotated_mnist": rotated_mnist,
    "shakespeare": shakespeare,
    "synthetic": synthetic,
}
"""Client data by the names that experiments use."""

__all__ = [
    "FEDERATIONS",
    "ClientData",
    "Samples",
    "federate",
    "femnist",
    "inverted_mnist",
    "label_cifar10",
    "load",
    "rotated_cifar10",
    "rotated_digits",
    "rotated_mnist",
    "shakespeare",
    "synthetic",
]
