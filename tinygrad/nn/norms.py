"""Normalisation layers: they give their input mean 0 and variance 1, over the batch or within each
sample."""

from __future__ import annotations

from typing import Any, ClassVar

from tinygrad.base.dtype import dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.nn.held import held
from tinygrad.nn.ranks import as_batch, check_rank
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from
from tinygrad.tensor.template import expression
from tinygrad.uop.infer import settled


class BatchNorm:
    """Normalizes each channel to mean 0 and variance 1 over the batch, then scales and shifts it.

    While `Tensor.training`, the statistics are those of x, and the layer updates a moving average
    of them; otherwise they are the moving average. (Ioffe and Szegedy, "Batch Normalization",
    2015.)

    Args:
        sz: channels of x, (N, sz, *any).
        eps: added to the variance.
        affine: whether to apply a learned scale and shift.
        track_running_stats: whether to keep a moving average; else the batch's always count.
        momentum: the weight of the newest batch in the average; None for as much as each before.
        bias: whether to shift; affine=False turns this off, too.

    Raises:
        ShapeError: x has another number of channels, or one value a channel while training.

    >>> BatchNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    ranks: ClassVar[tuple[int, ...]] = ()
    """How many axes x may have; any number from two where it isn't said."""

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float | None = 0.1,
        bias: bool = True,
    ) -> None:
        self.num_features = sz
        self.eps = eps
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.momentum = momentum
        self.weight, self.bias = _scale_and_shift((sz,), affine, bias)
        if track_running_stats:
            self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64, requires_grad=False)
            self.running_mean = Tensor.zeros(sz, requires_grad=False)
            self.running_var = Tensor.ones(sz, requires_grad=False)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, sz, *any) → the same shape."""
        _check_layer(self, x, 1, self.num_features)
        check_number_from("BatchNorm", "eps", self.eps, 0)
        mean, variance = self.calc_stats(x)  # (sz,) each
        return _moved_to(x, mean, variance, self.weight, self.bias, self.eps)

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and variance to normalize x by, (sz,) each; training updates the average.

        >>> layer = BatchNorm(3)
        >>> mean, variance = layer.calc_stats(Tensor.ones(2, 3, 4))
        >>> mean.shape, variance is layer.running_var
        ((3,), True)
        """
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        mean, variance = _statistics(x)
        if self.track_running_stats:
            with Tensor.no_grad():
                self.num_batches_tracked.assign(self.num_batches_tracked + 1)
            count, momentum = self.num_batches_tracked, self.momentum
            share = 1 / count.float() if momentum is None else momentum
            _track(x, mean, variance, self.running_mean, self.running_var, share)
        return mean, variance


class BatchNorm1d(BatchNorm):
    """A `BatchNorm` of x (N, sz) or (N, sz, length).

    >>> BatchNorm1d(3)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """A `BatchNorm` of x (N, sz, height, width).

    >>> BatchNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """A `BatchNorm` of x (N, sz, depth, height, width).

    >>> BatchNorm3d(3)(Tensor.ones(2, 3, 4, 4, 4)).shape
    (2, 3, 4, 4, 4)
    """

    ranks = (5,)


class GroupNorm:
    """Mean 0 and variance 1 within each sample and group of channels, then scaled and shifted.

    (Wu and He, "Group Normalization", 2018.)

    Args:
        num_groups: how many groups; must divide the channels.
        num_channels: channels of x, (N, num_channels, *any).
        eps: added to the variance.
        affine: whether to apply a learned scale and shift to each channel.
        bias: whether to shift; affine=False turns this off, too.

    >>> GroupNorm(2, 6)(Tensor.ones(1, 6, 4)).shape
    (1, 6, 4)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(
                f"GroupNorm: {num_groups} groups of {num_channels} channels; legal is what divides"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.weight, self.bias = _scale_and_shift((num_channels,), affine, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, num_channels, *any) → the same shape."""
        _check_channels("GroupNorm", x, 1, self.num_channels)
        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm:
    """Mean 0 and variance 1 within each sample and channel, then scaled and shifted.

    (Ulyanov, Vedaldi and Lempitsky, "Instance Normalization", 2016.)

    Args:
        num_features: channels of x, (N, num_features, *any).
        eps: added to the variance.
        affine: whether to apply a learned scale and shift to each channel. None: by the class's
            name; tinygrad's `InstanceNorm` does, PyTorch's `InstanceNorm1d` to `3d` don't.
        momentum: the weight of the newest batch in the averages.
        track_running_stats: whether to keep moving averages of the samples' statistics while
            `Tensor.training`, and to use them else.
        bias: whether to shift; affine=False turns this off, too.

    >>> InstanceNorm(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    ranks: ClassVar[tuple[int, ...]] = ()
    """How many axes x may have, without N and with it; with it, any number, where it isn't said."""
    is_affine: ClassVar[bool] = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool | None = None,
        momentum: float = 0.1,
        track_running_stats: bool = False,
        bias: bool = True,
    ) -> None:
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.track_running_stats = track_running_stats
        self.affine = self.is_affine if affine is None else affine
        self.weight, self.bias = _scale_and_shift((num_features,), self.affine, bias)
        if track_running_stats:
            self.num_batches_tracked = Tensor.zeros(dtype=dtypes.int64, requires_grad=False)
            self.running_mean = Tensor.zeros(num_features, requires_grad=False)
            self.running_var = Tensor.ones(num_features, requires_grad=False)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, num_features, *any) → the same shape."""
        rank = max(self.ranks, default=x.ndim)
        _check_layer(self, x, 1 if x.ndim == rank else 0, self.num_features)
        return as_batch(self._batched, x, rank)

    def _batched(self, x: Tensor) -> Tensor:
        learnt = (self.weight, self.bias)
        if not self.track_running_stats:
            return instance_norm(x, None, None, *learnt, True, self.momentum, self.eps)
        kept = (self.running_mean, self.running_var)
        is_on = bool(Tensor.training)
        return instance_norm(x, *kept, *learnt, is_on, self.momentum, self.eps)


class InstanceNorm1d(InstanceNorm):
    """An `InstanceNorm` of x (N, num_features, length), or without N.

    >>> InstanceNorm1d(3)(Tensor.ones(3, 4)).shape
    (3, 4)
    """

    ranks = (2, 3)
    is_affine = False


class InstanceNorm2d(InstanceNorm):
    """An `InstanceNorm` of x (N, num_features, height, width), or without N.

    >>> InstanceNorm2d(3)(Tensor.ones(3, 4, 4)).shape
    (3, 4, 4)
    """

    ranks = (3, 4)
    is_affine = False


class InstanceNorm3d(InstanceNorm):
    """An `InstanceNorm` of x (N, num_features, depth, height, width), or without N.

    >>> InstanceNorm3d(3)(Tensor.ones(3, 4, 4, 4)).shape
    (3, 4, 4, 4)
    """

    ranks = (4, 5)
    is_affine = False


class LayerNorm:
    """Mean 0 and variance 1 over the last axes, then scaled and shifted.

    (Ba, Kiros and Hinton, "Layer Normalization", 2016.)

    Args:
        normalized_shape: the sizes of the last axes of x, or of the last one.
        eps: added to the variance.
        elementwise_affine: whether to apply a learned scale and shift.
        bias: whether to shift; elementwise_affine=False turns this off, too.

    Raises:
        ShapeError: the last axes of x have other sizes.

    >>> LayerNorm(4)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight, self.bias = _scale_and_shift(self.normalized_shape, elementwise_affine, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """(.., *normalized_shape) → the same shape."""
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class LayerNorm2d:
    """Mean 0 and variance 1 over the channels of each pixel, then scaled and shifted.

    Args:
        normalized_shape: channels of x, (N, channels, height, width).
        eps: added to the variance.
        elementwise_affine: whether to apply a learned scale and shift to each channel.

    >>> LayerNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, elementwise_affine: bool = True
    ) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        self.weight, self.bias = _scale_and_shift((normalized_shape,), elementwise_affine)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, channels, height, width) → the same shape."""
        if x.ndim != 4 or x.shape[1] != self.normalized_shape:
            raise ShapeError(
                f"LayerNorm2d: x has shape {x.shape}; legal is (N, {self.normalized_shape}, "
                "height, width)"
            )
        channels = x.permute(0, 2, 3, 1)
        out = layer_norm(channels, (self.normalized_shape,), self.weight, self.bias, self.eps)
        return out.permute(0, 3, 1, 2)


class RMSNorm:
    """The last axis divided by its root mean square, then scaled.

    (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)

    Args:
        dim: size of the last axis.
        eps: added to the mean square.
        elementwise_affine: whether to apply a learned scale.

    >>> RMSNorm(2)(Tensor([3.0, 3.0])).round().tolist()
    [1.0, 1.0]
    """

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.normalized_shape = (dim,)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Tensor.ones(dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """(.., dim) → the same shape and dtype (computed in float32 at least)."""
        return rms_norm(x, x.shape[-1:], self.weight, self.eps)


def _check_layer(layer: BatchNorm | InstanceNorm, x: Tensor, axis: int, channels: int) -> None:
    """Of a layer's rank, and its channels at `axis`."""
    who = type(layer).__name__
    if layer.ranks:
        check_rank(who, x, layer.ranks)
    _check_channels(who, x, axis, channels)


def _check_channels(layer: str, x: Tensor, axis: int, channels: int) -> None:
    if x.ndim < 2 or x.shape[axis] != channels:
        before = "N, " * axis
        raise ShapeError(f"{layer}: x has shape {x.shape}; legal is ({before}{channels}, *any)")


def _scale_and_shift(
    shape: tuple[int, ...], wanted: bool, bias: bool = True
) -> tuple[Tensor | None, Tensor | None]:
    """What a layer multiplies by and adds: at first 1 and 0."""
    if not isinstance(wanted, bool):
        raise ArgumentError(
            f"affine={wanted!r}; legal are True and False: what stands there in PyTorch, momentum, "
            "goes by its name"
        )
    if not wanted:
        return None, None
    return Tensor.ones(*shape), Tensor.zeros(*shape) if bias else None


def _check_shapes(who: str, legal: tuple[int, ...], *given: Tensor | None) -> None:
    """ShapeError for a weight, bias or average that would broadcast, or be reshaped."""
    for each in given:
        if each is not None and each.shape != legal:
            raise ShapeError(f"{who}: a weight, bias or average {each.shape}; legal is {legal}")


def _check_ends(who: str, x: Tensor, last: tuple[int, ...]) -> None:
    if x.shape[-len(last) :] != last:
        raise ShapeError(f"{who}: x has shape {x.shape}; legal is (.., *{last})")


# ---- as functions --------------------------------------------------------------------------------


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each channel of x (N, channels, *any) to mean 0 and variance 1, then scales and
    shifts it. While `training` it uses the statistics of the batch, and moves the averages towards
    them in place; otherwise it uses the averages.

    >>> batch_norm(Tensor([[1.0], [3.0]]), None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    check_number_from("batch_norm", "eps", eps, 0)
    if x.ndim < 2:
        raise ShapeError(f"batch_norm: x has shape {x.shape}; legal is (N, channels, *any)")
    _check_shapes("batch_norm", (x.shape[1],), running_mean, running_var, weight, bias)
    if running_mean is None or running_var is None:
        if not training or running_mean is not running_var:
            raise ArgumentError(
                f"batch_norm: training={training} with {running_mean=}, {running_var=}; legal are "
                "both averages, or None of them while training"
            )
        mean, variance = _statistics(x)
    elif training:
        mean, variance = _statistics(x)
        _track(x, mean, variance, running_mean, running_var, momentum)
    else:
        mean, variance = running_mean, running_var
    return _moved_to(x, mean, variance, weight, bias, eps)


def _count(x: Tensor) -> Any:
    """How many values a channel has."""
    return prod(n for axis, n in enumerate(x.shape) if axis != 1)


@expression
def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel."""
    count = settled(_count(x))
    text = "one value a channel, and no variance; legal are two or more"
    if count == 1:
        raise ShapeError(f"BatchNorm: {x.shape} has {text}")
    others = tuple(axis for axis in range(x.ndim) if axis != 1)
    variance, mean = _wide(x).var_mean(others, correction=0)
    text = f"BatchNorm: {text}"
    return mean._if_size(count, 2, text), variance._if_size(count, 2, text)


def _track(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    means: Tensor,
    variances: Tensor,
    momentum: float | Tensor,
) -> None:
    """Moves the averages towards the statistics of x."""
    count = _count(x)
    with Tensor.no_grad():
        for average, new in ((means, mean), (variances, variance * (count / (count - 1)))):
            average.assign(average.lerp(new, momentum).cast(average.dtype))


@expression
def _moved_to(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    return _wide(x).batchnorm(weight, bias, mean, (variance + eps).rsqrt()).cast(x.dtype)


def local_response_norm(
    x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x (N, channels, *any) divided by (k + alpha·the mean square of the `size` channels
    around)^beta. (Krizhevsky and others, "ImageNet Classification", 2012.)

    >>> local_response_norm(Tensor([[[1.0], [1.0], [1.0]]]), 2, alpha=2.0, beta=1.0).tolist()
    [[[0.5], [0.3333333432674408], [0.3333333432674408]]]
    """
    if x.ndim < 3 or size < 1:
        raise ShapeError(
            f"local_response_norm: {size} channels of x {x.shape}; legal are 1 or more of (N, "
            "channels, *any)"
        )
    around = (None, (size // 2, (size - 1) // 2), *(None,) * (x.ndim - 2))
    squares = x.square().pad(around).unfold(1, size, 1).mean(-1)
    return x / (squares * alpha + k) ** beta


LocalResponseNorm = held("LocalResponseNorm", local_response_norm)


def layer_norm(
    x: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over the last axes, then scaled and shifted.

    >>> layer_norm(Tensor([1.0, 3.0]), (2,), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    check_number_from("layer_norm", "eps", eps, 0)
    _check_ends("layer_norm", x, tuple(normalized_shape))
    _check_shapes("layer_norm", tuple(normalized_shape), weight, bias)
    out = _wide(x).layernorm(tuple(range(-len(normalized_shape), 0)), eps)
    return _scaled(out, weight, bias, x)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 in each group of channels of x (N, channels, *any).

    >>> group_norm(Tensor.ones(1, 6, 4), 2).shape
    (1, 6, 4)
    """
    if num_groups < 1 or x.ndim < 2 or x.shape[1] % num_groups:
        raise ShapeError(f"group_norm: {num_groups} groups of x {x.shape}; legal is what divides")
    check_number_from("group_norm", "eps", eps, 0)
    _check_shapes("group_norm", (x.shape[1],), weight, bias)
    size = x.shape[1] // num_groups * prod(x.shape[2:])
    if (x.shape[0], size) == (1, 1):
        raise ShapeError(
            f"group_norm: x {x.shape} has one value in each of {num_groups} groups, and no "
            "variance; legal are two or more"
        )
    out = _wide(x).reshape(x.shape[0], num_groups, size).layernorm(-1, eps).reshape(x.shape)
    shape = (-1, *(1,) * (x.ndim - 2))
    scale, shift = (None if each is None else each.reshape(shape) for each in (weight, bias))
    return _scaled(out, scale, shift, x)


def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes each sample and channel of x (N, channels, *any) to mean 0 and variance 1, then
    scales and shifts it. It uses the sample's statistics, and moves the averages towards their
    means in place; or, without `use_input_stats`, it uses the averages.

    >>> instance_norm(Tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    if x.ndim < 3:
        raise ShapeError(f"instance_norm: x has shape {x.shape}; legal is (N, channels, *any)")
    _check_shapes("instance_norm", (x.shape[1],), running_mean, running_var, weight, bias)
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    count = settled(prod(x.shape[2:]))
    if count == 1:
        raise ShapeError(f"instance_norm: x {x.shape} has one value a channel, and no variance")
    x = x._if_size(count, 2, "instance_norm: one value a channel, and no variance")
    if running_mean is not None and running_var is not None:
        variance, mean = _wide(x).detach().var_mean(tuple(range(2, x.ndim)), correction=1)
        for average, new in ((running_mean, mean), (running_var, variance)):
            old = average.detach()
            average.assign((old + (new.mean(0) - old) * momentum).cast(average.dtype))
    return group_norm(x, x.shape[1], weight, bias, eps)


def rms_norm(
    x: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x divided by its root mean square over the last axes, in float32 at least, then scaled. `eps`
    None is the distance from 1 to the next number.

    >>> rms_norm(Tensor([3.0, 3.0]), (2,)).round().tolist()
    [1.0, 1.0]
    """
    wide = _wide(x)
    kind = x.dtype if dtypes.is_float(x.dtype) else wide.dtype
    check_number_from("rms_norm", "eps", eps or 0, 0)
    _check_ends("rms_norm", x, tuple(normalized_shape))
    _check_shapes("rms_norm", tuple(normalized_shape), weight)
    small = 2.0 ** -dtypes.finfo(kind)[1] if eps is None else eps
    axes = tuple(range(-len(normalized_shape), 0))
    out = wide * (wide.square().mean(axes, keepdim=True) + small).rsqrt()
    return _scaled(out, weight, None, x)


def _wide(x: Tensor) -> Tensor:
    """`x` in float32 at least, so that a normalised value is rounded only once, at the end."""
    return x.cast(least_upper_dtype(x.dtype, dtypes.float32))


def _scaled(out: Tensor, weight: Tensor | None, bias: Tensor | None, x: Tensor) -> Tensor:
    """`out` times `weight` plus `bias`, if there are any; they broadcast. The dtype is what `x`,
    and these, promote to."""
    given = [each for each in (weight, bias) if each is not None]
    for each in given:
        out = out * each if each is weight else out + each
    return out.cast(least_upper_dtype(x.dtype, *(each.dtype for each in given)))
