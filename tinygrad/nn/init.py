"""Initialisers for weights. Each fills a tensor in place and returns it.

The gain compensates for how an activation changes the scale of its input. The fans of a weight
(out, in, *taps) are the numbers of inputs and of outputs that one element connects.
"""

from __future__ import annotations

import math

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.nn import spellings
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_above, check_choice, check_number_from

GAINS = {
    "linear": 1.0,
    "conv": 1.0,
    "sigmoid": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor for the weights before an activation; `param` is the slope of leaky_relu, 0.01
    unless given.

    >>> calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope * slope))
    check_choice("calculate_gain", "nonlinearity", nonlinearity, ("leaky_relu", *GAINS))
    return GAINS[nonlinearity]


def constant_(tensor: Tensor, value: float) -> Tensor:
    """All elements the same.

    >>> constant_(Tensor.zeros(2), 3.0).tolist()
    [3.0, 3.0]
    """
    return _filled(tensor, tensor.full_like(value))


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    >>> zeros_(Tensor.empty(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    >>> ones_(Tensor.empty(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Numbers from a to b.

    >>> uniform_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    return _filled(tensor, Tensor.uniform(*tensor.shape, low=a, high=b, device=tensor.device))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normally distributed numbers.

    >>> normal_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    return _filled(tensor, Tensor.normal(*tensor.shape, mean=mean, std=std, device=tensor.device))


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Normally distributed numbers, restricted to lie between a and b.

    They are made by the inverse of the distribution function, from uniform numbers between its
    values at a and b.

    >>> trunc_normal_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    check_above("trunc_normal_", "std", std)
    low, high = (0.5 * (1 + math.erf((x - mean) / std / math.sqrt(2))) for x in (a, b))
    share = Tensor.uniform(*tensor.shape, low=2 * low - 1, high=2 * high - 1, device=tensor.device)
    values = share.erfinv() * (std * math.sqrt(2)) + mean
    return _filled(tensor, values.clamp(a, b))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform, of variance gain²·2 / (inputs + outputs). (Glorot and Bengio, 2010.)

    >>> xavier_uniform_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    bound = gain * math.sqrt(6 / max(1, sum(fans(tensor))))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal, of variance gain²·2 / (inputs + outputs). (Glorot and Bengio, 2010.)

    >>> xavier_normal_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(1, sum(fans(tensor)))))


def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Uniform, of variance gain² / inputs (or outputs, by `mode`). (He and others, 2015.)

    >>> kaiming_uniform_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    bound = math.sqrt(3) * calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Normal, of variance gain² / inputs (or outputs, by `mode`). (He and others, 2015.)

    >>> kaiming_normal_(Tensor.empty(3, 2)).shape
    (3, 2)
    """
    std = calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return normal_(tensor, 0.0, std)


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Orthogonal rows, or columns if it is tall; all axes but the first count as columns.

    (Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning", 2013.)

    >>> w = orthogonal_(Tensor.empty(2, 2))
    >>> (w @ w.T).numpy().round(3).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_: {tensor.shape}; legal are two axes or more")
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])
    noise = Tensor.randn(max(rows, columns), min(rows, columns), device=tensor.device)
    q, r = noise.qr()
    q = q[:, : min(rows, columns)] * r.diagonal().sign()
    return _filled(tensor, (q if rows >= columns else q.T).reshape(tensor.shape) * gain)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix.

    >>> eye_(Tensor.empty(2, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_: a tensor of shape {tensor.shape}; legal are two axes")
    return _filled(tensor, Tensor.eye(*tensor.shape, device=tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight (out, in, *taps) that returns its input: 1 at the middle tap of each
    channel's own input channel, in each of `groups`.

    >>> dirac_(Tensor.empty(2, 2, 3)).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    if not 3 <= tensor.ndim <= 5 or groups < 1 or tensor.shape[0] % groups:
        raise ShapeError(
            f"dirac_: {tensor.shape} in {groups} groups; legal are 3 to 5 axes, the first of which "
            "groups divide"
        )
    out, channels, *taps = tensor.shape
    rows = np.zeros((groups, out // groups, channels, *taps), np.float32)
    same = np.arange(min(out // groups, channels))
    rows[(slice(None), same, same, *(n // 2 for n in taps))] = 1
    return _filled(tensor, Tensor(rows.reshape(tensor.shape), device=tensor.device))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Normally distributed numbers, except that this share of each column is 0.

    (Martens, "Deep learning via Hessian-free optimization", 2010.)

    >>> (sparse_(Tensor.empty(4, 3), 0.5).eq(0)).sum(0).tolist()
    [2, 2, 2]
    """
    if tensor.ndim != 2:
        raise ShapeError(f"sparse_: a tensor of shape {tensor.shape}; legal are two axes")
    check_number_from("sparse_", "sparsity", sparsity, 0, 1)
    check_number_from("sparse_", "std", std, 0)
    rows, device = tensor.shape[0], tensor.device
    order = Tensor.rand(*tensor.shape, device=device).argsort(0)
    kept = order >= math.ceil(sparsity * rows)
    return _filled(tensor, kept.where(Tensor.randn(*tensor.shape, device=device) * std, 0))


def fans(tensor: Tensor) -> tuple[int, int]:
    """Inputs and outputs of a weight (out, in, *taps).

    >>> fans(Tensor.zeros(8, 3, 5, 5))
    (75, 200)
    """
    if tensor.ndim < 2:
        raise ShapeError(f"a weight of shape {tensor.shape} has no fans; legal are 2 axes or more")
    taps = prod(tensor.shape[2:])
    return tensor.shape[1] * taps, tensor.shape[0] * taps


def _fan(tensor: Tensor, mode: str) -> int:
    check_choice("init", "mode", mode, ("fan_in", "fan_out"))
    return max(1, fans(tensor)[0 if mode == "fan_in" else 1])  # of none nothing is filled


def _filled(tensor: Tensor, values: Tensor) -> Tensor:
    """`tensor` with these values, in place if it was computed or has views. DTypeError for random
    ones that it can't hold."""
    if dtypes.is_float(values.dtype) and not dtypes.is_float(tensor.dtype):
        raise DTypeError(f"init: a tensor of {tensor.dtype!r}; legal are floats")
    values = values.cast(tensor.dtype).detach()
    if tensor.uop.realized is None and not tensor.has_views:
        wanted = tensor.requires_grad
        tensor.replace(values.contiguous())
        tensor.requires_grad = wanted
        return tensor.realize()
    return tensor.assign(values).realize()


spellings.spell(globals(), ["calculate_gain", *(name for name in globals() if name.endswith("_"))])
