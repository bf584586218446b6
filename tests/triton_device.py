"""The device of the tests of Triton kernels: a GPU if there is one, else Triton's interpreter."""

from __future__ import annotations

import os

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # triton reads it when it is imported
