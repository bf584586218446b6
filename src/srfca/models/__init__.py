"""Models: callables without arguments that return a new ``torch.nn.Module``.

``mlp(784, 200, 10)`` is one, and so is any class or function without arguments; the seed then
determines the initial model w0. An ``nn.Module`` instance is also accepted: a warm start.
"""

from srfca.models.architecture import Architecture
from srfca.models.catalog import MODELS
from srfca.models.cnn import CNN
from srfca.models.dense import MLP, Linear, linear, mlp
from srfca.models.factory import Factory
from srfca.models.lenet5 import LeNet5
from srfca.models.lstm import LSTM
from srfca.models.mixture_module import MixtureModule
from srfca.models.norm_relu import NormReLU
from srfca.models.resnet9 import ResNet9
from srfca.models.rows import Layout, frozen_digest, frozen_names, set_training
from srfca.models.signature import Signature
from srfca.models.warm_start import WarmStart

__all__ = [
    "CNN",
    "LSTM",
    "MLP",
    "MODELS",
    "Architecture",
    "Factory",
    "Layout",
    "LeNet5",
    "Linear",
    "MixtureModule",
    "NormReLU",
    "ResNet9",
    "Signature",
    "WarmStart",
    "frozen_digest",
    "frozen_names",
    "linear",
    "mlp",
    "set_training",
]
