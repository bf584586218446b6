"""Models. What srfca calls a model is anything that makes a ``torch.nn.Module`` when called.

``mlp(784, 200, 10)`` is one; so is any class or function of no arguments. The seed then decides the
common start w0. An ``nn.Module`` itself is taken as a start that is already chosen (a warm start).
"""

from srfca.models.cnn import CNN
from srfca.models.dense import MLP, Linear, linear, mlp
from srfca.models.lstm import LSTM
from srfca.models.norm_relu import NormReLU
from srfca.models.resnet9 import ResNet9
from srfca.models.rows import Layout

MODELS = {"linear": Linear, "mlp": MLP, "cnn": CNN, "resnet9": ResNet9, "lstm": LSTM}
"""Models by the names that experiments use."""

__all__ = [
    "CNN",
    "LSTM",
    "MLP",
    "MODELS",
    "Layout",
    "Linear",
    "NormReLU",
    "ResNet9",
    "linear",
    "mlp",
]
