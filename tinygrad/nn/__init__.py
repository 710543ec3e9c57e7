"""What networks are made of and trained with: layers here, `optim`, `state`, `datasets` below.

A layer is a plain object: parameters are its attributes, calling it applies it. There is no base
class to inherit from; `nn.state` finds the tensors of any object.
"""

from tinygrad.nn import datasets, optim, state
from tinygrad.nn.layers import (
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    Dropout,
    Embedding,
    Linear,
    LSTMCell,
)
from tinygrad.nn.norms import (
    BatchNorm,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LayerNorm2d,
    RMSNorm,
)

__all__ = [
    "BatchNorm",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LayerNorm2d",
    "Linear",
    "RMSNorm",
    "datasets",
    "optim",
    "state",
]
