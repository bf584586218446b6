"""Client data: the samples of every client, and the true partition where it is known.

Data sets register themselves in ``DATASETS``, one file of ``srfca.data.datasets`` each. They are
attributes of this package by their keys: ``srfca.data.rotated_digits``.
"""

from typing import TYPE_CHECKING

from srfca.data.client_data import ClientData, Samples
from srfca.data.client_files import load
from srfca.data.datasets.cifar10 import label_cifar10, rotated_cifar10
from srfca.data.datasets.drifting_images import drifting_image_phases, drifting_images
from srfca.data.datasets.fashion_mnist import rotated_fashion_mnist
from srfca.data.datasets.femnist import femnist, transposed_femnist
from srfca.data.datasets.field_images import field_images
from srfca.data.datasets.flux import flux_images
from srfca.data.datasets.mnist import inverted_mnist, rotated_mnist
from srfca.data.datasets.rotated_digits import rotated_digits
from srfca.data.datasets.shakespeare import shakespeare
from srfca.data.datasets.synthetic import synthetic
from srfca.data.drift import concept_transforms, drift_phases, drift_schedule
from srfca.data.partition import federate
from srfca.data.poisoning import flip_labels
from srfca.data.registry import DATASETS, DatasetFunction, register_dataset
from srfca.data.schema import Schema

__all__ = [
    "DATASETS",
    "ClientData",
    "DatasetFunction",
    "Samples",
    "Schema",
    "concept_transforms",
    "drift_phases",
    "drift_schedule",
    "drifting_image_phases",
    "drifting_images",
    "federate",
    "femnist",
    "field_images",
    "flip_labels",
    "flux_images",
    "inverted_mnist",
    "label_cifar10",
    "load",
    "register_dataset",
    "rotated_cifar10",
    "rotated_digits",
    "rotated_fashion_mnist",
    "rotated_mnist",
    "shakespeare",
    "synthetic",
    "transposed_femnist",
]

if not TYPE_CHECKING:  # type checkers see the imports above, and report any other name

    def __getattr__(name: str) -> DatasetFunction:
        """Return a registered data set that is not imported above, by its key."""
        if not name.startswith("_") and name in DATASETS:
            return DATASETS[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
