"""Activations as layers, for lists of layers: `x.sequential([Linear(2, 3), ReLU()])`."""

from __future__ import annotations

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.nn.held import held
from tinygrad.tensor import Tensor
from tinygrad.tensor.creation import DTypeLike


def _same(x: Tensor) -> Tensor:
    """x itself.

    >>> nn.Identity()(Tensor([1, 2])).tolist()
    [1, 2]
    """
    return x


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x), Φ the normal distribution's; "tanh" is a cheaper form close to it.

    (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.)

    >>> round(gelu(Tensor([1.0])).item(), 4)
    0.8413
    """
    return x.gelu(approximate)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half of x times the sigmoid of the second. (Dauphin and others, 2016.)

    >>> glu(Tensor([4.0, 0.0])).tolist()
    [2.0]
    """
    if x.ndim == 0 or not -x.ndim <= dim < x.ndim:
        raise ArgumentError(
            f"glu: axis {dim} of shape {x.shape}; legal are {-x.ndim} to {x.ndim - 1}"
        )
    if x.shape[dim] % 2:
        raise ShapeError(f"glu: axis {dim} of shape {x.shape} has no halves; legal are even sizes")
    value, gate = x.chunk(2, dim=dim)
    return value * gate.sigmoid()


def softmax(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """e**x over its sum along `dim`.

    >>> softmax(Tensor([[0.0], [0.0]]), dim=0).tolist()
    [[0.5], [0.5]]
    """
    return x.softmax(dim, dtype)


def log_softmax(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of `softmax`.

    >>> log_softmax(Tensor([0.0, 0.0])).numpy().round(4)
    array([-0.6931, -0.6931], dtype=float32)
    """
    return x.log_softmax(dim, dtype)


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x above 0, `negative_slope` times x below.

    >>> leaky_relu(Tensor([-1.0, 2.0]), 0.5).tolist()
    [-0.5, 2.0]
    """
    return x.leaky_relu(negative_slope)


def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """x above the threshold, else `value`.

    >>> threshold(Tensor([-1.0, 2.0]), 0.5, 7.0).tolist()
    [7.0, 2.0]
    """
    return (x <= threshold).where(value, x)


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where it is above 0, else a multiple of it. `weight` has one factor, or one for each
    channel of x (N, channels, *any). (He and others, 2015.)

    >>> prelu(Tensor([[-4.0, 4.0]]), Tensor([0.25])).tolist()
    [[-1.0, 4.0]]
    """
    size = weight.numel()
    if size > 1 and (x.ndim < 2 or x.shape[1] != size):
        raise ShapeError(f"PReLU: x has shape {x.shape}; legal is (N, {size}, *any)")
    share = x._along(1, weight) if size > 1 else weight.reshape(())
    return (x > 0).where(x, x * share)


def _over_channels(x: Tensor) -> Tensor:
    """The softmax over the channels of x (N, channels, height, width).

    >>> nn.Softmax2d()(Tensor.ones(1, 2, 1, 1)).flatten().tolist()
    [0.5, 0.5]
    """
    if x.ndim not in (3, 4):
        raise ShapeError(f"Softmax2d: {x.shape}; legal is (N, channels, height, width)")
    return x.softmax(-3)


def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool | None = None
) -> Tensor:
    """x where it is above 0, else a multiple of it. While `training` (default: `Tensor.training`)
    each element's factor is random, between `lower` and `upper`; otherwise it is their mean.

    (Xu, Wang, Chen and Li, "Empirical Evaluation of Rectified Activations", 2015.)

    >>> rrelu(Tensor([-4.0, 4.0]), 0.25, 0.75).tolist()
    [-2.0, 4.0]
    """
    if not lower <= upper:
        raise ArgumentError(f"rrelu: lower={lower}, upper={upper}; legal is no more than upper")
    share: Tensor | float = (lower + upper) / 2
    if Tensor.training if training is None else training:
        share = Tensor.uniform(*x.shape, low=lower, high=upper, dtype=x.dtype, device=x.device)
    return (x > 0).where(x, x * share)


Identity = held("Identity", _same)
Threshold = held("Threshold", threshold)
Softmax2d = held("Softmax2d", _over_channels)
ReLU = held("ReLU", Tensor.relu)
ReLU6 = held("ReLU6", Tensor.relu6)
SELU = held("SELU", Tensor.selu)
SiLU = held("SiLU", Tensor.silu)
Mish = held("Mish", Tensor.mish)
Tanh = held("Tanh", Tensor.tanh)
Sigmoid = held("Sigmoid", Tensor.sigmoid)
LogSigmoid = held("LogSigmoid", Tensor.logsigmoid)
Hardsigmoid = held("Hardsigmoid", Tensor.hardsigmoid)
Hardswish = held("Hardswish", Tensor.hardswish)
Softsign = held("Softsign", Tensor.softsign)
GELU = held("GELU", gelu)
GLU = held("GLU", glu)
LeakyReLU = held("LeakyReLU", leaky_relu)
RReLU = held("RReLU", rrelu)
ELU = held("ELU", Tensor.elu)
CELU = held("CELU", Tensor.celu)
Softplus = held("Softplus", Tensor.softplus)
Hardtanh = held("Hardtanh", Tensor.hardtanh)
Softmax = held("Softmax", softmax)
LogSoftmax = held("LogSoftmax", log_softmax)


class PReLU:
    """x where it is above 0, else a learned multiple of it. (He and others, 2015.)

    Args:
        num_parameters: 1, or the channels of x, (N, channels, *any), for a share each.
        init: the first share.

    >>> PReLU()(Tensor([[-4.0, 4.0]])).tolist()
    [[-1.0, 4.0]]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Tensor.full((num_parameters,), init)

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return prelu(x, self.weight)
