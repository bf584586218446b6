"""Models: callables without arguments that return a new ``torch.nn.Module``.

``mlp(784, 200, 10)`` is one, and so is any class or function without arguments; the seed then
determines the initial model w0. An ``nn.Module`` instance is also accepted: a warm start.
"""

from srfca.models.cnn import CNN
from srfca.models.dense import MLP, Linear, linear, mlp
from srfca.models.lenet5 import LeNet5
from srfca.models.lstm import LSTM
from srfca.models.norm_relu import NormReLU
from srfca.models.resnet9 import ResNet9
from srfca.models.rows import Layout, frozen_digest, frozen_names, set_training

MODELS = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "lenet5": LeNet5,
    "resnet9": ResNet9,
    "lstm": LSTM,
}
"""Models by the names that experiments use."""

__all__ = [
    "CNN",
    "LSTM",
    "MLP",
    "MODELS",
    "Layout",
    "LeNet5",
    "Linear",
    "NormReLU",
    "ResNet9",
    "frozen_digest",
    "frozen_names",
    "linear",
    "mlp",
    "set_training",
]
