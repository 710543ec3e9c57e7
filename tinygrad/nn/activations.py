"""Activations as layers, for lists of layers: `x.sequential([Linear(2, 3), ReLU()])`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.base.errors import ShapeError
from tinygrad.tensor import Tensor


class Activation:
    """A function of each element, or along one axis: any shape → the same."""

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        raise NotImplementedError


def _of(name: str, function: Callable[[Tensor], Tensor]) -> type[Activation]:
    """A layer without options that applies `function`."""
    methods = {
        "__doc__": function.__doc__,
        "__module__": __name__,
        "__call__": lambda self, x: function(x),
        "__repr__": lambda self: f"{name}()",
    }
    return type(name, (Activation,), methods)


def _same(x: Tensor) -> Tensor:
    """x itself.

    >>> nn.Identity()(Tensor([1, 2])).tolist()
    [1, 2]
    """
    return x


Identity = _of("Identity", _same)
ReLU = _of("ReLU", Tensor.relu)
ReLU6 = _of("ReLU6", Tensor.relu6)
SELU = _of("SELU", Tensor.selu)
SiLU = _of("SiLU", Tensor.silu)
Mish = _of("Mish", Tensor.mish)
Tanh = _of("Tanh", Tensor.tanh)
Sigmoid = _of("Sigmoid", Tensor.sigmoid)
LogSigmoid = _of("LogSigmoid", Tensor.logsigmoid)
Hardsigmoid = _of("Hardsigmoid", Tensor.hardsigmoid)
Hardswish = _of("Hardswish", Tensor.hardswish)
Softsign = _of("Softsign", Tensor.softsign)


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
    if x.shape[dim] % 2:
        raise ShapeError(f"glu: axis {dim} of shape {x.shape} has no halves; legal are even sizes")
    value, gate = x.chunk(2, dim=dim)
    return value * gate.sigmoid()


@dataclass
class GELU(Activation):
    """`gelu`.

    >>> GELU()(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-0.1587,  0.3457,  1.9545], dtype=float32)
    """

    approximate: str = "none"

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return gelu(x, self.approximate)


@dataclass
class LeakyReLU(Activation):
    """x where it is above 0, else a small share of it.

    >>> LeakyReLU()(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-0.01,  0.5 ,  2.  ], dtype=float32)
    """

    negative_slope: float = 0.01

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.leaky_relu(self.negative_slope)


@dataclass
class ELU(Activation):
    """x where it is above 0, else alpha·(exp(x) - 1).

    >>> ELU()(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-0.6321,  0.5   ,  2.    ], dtype=float32)
    """

    alpha: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.elu(self.alpha)


@dataclass
class CELU(Activation):
    """x where it is above 0, else alpha·(exp(x/alpha) - 1).

    >>> CELU()(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-0.6321,  0.5   ,  2.    ], dtype=float32)
    """

    alpha: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.celu(self.alpha)


@dataclass
class Softplus(Activation):
    """log(1 + exp(beta·x)) / beta.

    >>> Softplus()(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([0.3133, 0.9741, 2.1269], dtype=float32)
    """

    beta: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.softplus(self.beta)


@dataclass
class Hardtanh(Activation):
    """x cut to min_val..max_val.

    >>> Hardtanh()(Tensor([-1.0, 0.5, 2.0])).numpy().round(4)
    array([-1. ,  0.5,  1. ], dtype=float32)
    """

    min_val: float = -1.0
    max_val: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.hardtanh(self.min_val, self.max_val)


@dataclass
class Softmax(Activation):
    """exp(x) over its sum along `dim`.

    >>> Softmax(-1)(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.softmax(self.dim)


@dataclass
class LogSoftmax(Activation):
    """The log of `Softmax`.

    >>> LogSoftmax(-1)(Tensor([0.0, 0.0])).numpy().round(4)
    array([-0.6931, -0.6931], dtype=float32)
    """

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        """Any shape → the same."""
        return x.log_softmax(self.dim)


@dataclass
class GLU:
    """`glu`: half as many features come out.

    >>> GLU()(Tensor([[1.0, 2.0, 0.0, 0.0]])).tolist()
    [[0.5, 1.0]]
    """

    dim: int = -1

    def __call__(self, x: Tensor) -> Tensor:
        """(.., 2·features, ..) → (.., features, ..)."""
        return glu(x, self.dim)


class PReLU(Activation):
    """x where it is above 0, else a share of it that is learnt. (He and others, 2015.)

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
        size = self.weight.shape[0]
        if size > 1 and (x.ndim < 2 or x.shape[1] != size):
            raise ShapeError(f"PReLU: x has shape {x.shape}; legal is (N, {size}, *any)")
        share = self.weight.reshape(1, -1, *(1,) * (x.ndim - 2)) if size > 1 else self.weight
        return (x > 0).where(x, x * share)


class Dropout2d(Activation):
    """Zeroes whole channels of x (N, channels, *any) with probability `p` while training.

    (Tompson and others, "Efficient Object Localization Using Convolutional Networks", 2015.)

    >>> Dropout2d()(Tensor.ones(1, 2, 3, 3)).shape
    (1, 2, 3, 3)
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        """(N, channels, *any) → the same shape."""
        if not Tensor.training or self.p == 0:
            return x
        kept = Tensor.ones(*x.shape[:2], *(1,) * (x.ndim - 2), dtype=x.dtype, device=x.device)
        return x * kept.dropout(self.p)
