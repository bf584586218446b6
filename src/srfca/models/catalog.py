"""Networks by the names that experiments and saved results use."""

from __future__ import annotations

from typing import Any

from srfca.models.cnn import CNN
from srfca.models.dense import MLP, Linear
from srfca.models.lenet5 import LeNet5
from srfca.models.lstm import LSTM
from srfca.models.resnet9 import ResNet9

MODELS: dict[str, type[Any]] = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "lenet5": LeNet5,
    "resnet9": ResNet9,
    "lstm": LSTM,
}
"""Models by name: dataclasses whose instances make modules."""
