"""Transforms that make the samples of one cluster, or of one client, differ from those of another.

A transform is any function from inputs ``[n, ...]`` and labels ``[n]`` to inputs and labels.
``compose`` applies several in turn.
"""

from srfca.data.transforms.base import (
    Array,
    Chain,
    RandomTransform,
    Splits,
    Transform,
    apply,
    compose,
    unchanged,
)
from srfca.data.transforms.corruptions import (
    CORRUPTIONS,
    blur,
    brightness,
    contrast,
    gaussian_noise,
)
from srfca.data.transforms.inputs import color_cast, invert, rotate, shift_features, transpose
from srfca.data.transforms.labels import (
    label_noise,
    only_classes,
    permute_labels,
    reverse_labels,
    shift_labels,
)

__all__ = [
    "Array",
    "CORRUPTIONS",
    "Chain",
    "RandomTransform",
    "Splits",
    "Transform",
    "apply",
    "blur",
    "brightness",
    "color_cast",
    "compose",
    "contrast",
    "gaussian_noise",
    "invert",
    "label_noise",
    "only_classes",
    "permute_labels",
    "reverse_labels",
    "rotate",
    "shift_features",
    "shift_labels",
    "transpose",
    "unchanged",
]
