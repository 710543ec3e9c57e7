"""Random numbers: Threefry of a counter and the seed.

The counter is taken when the tensor is created, and it and the seed enter the graph as bound
variables: neither the order of computing nor the device changes a value, and another counter or
seed makes no other program.
Element i of a tensor whose counter is c is made of threefry(c + i, seed) alone. Programs that want
streams of their own hold a `Generator` and give it as `generator=`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

from tinygrad.base.dtype import COMPLEX_PARTS, DType, dtypes, largest_float
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import ceildiv, prod
from tinygrad.tensor.arguments import check_number_from, check_types, number_of
from tinygrad.tensor.core import constant
from tinygrad.tensor.creation import DTypeLike, checked_dtype, checked_shape
from tinygrad.tensor.draws import Rule, drawn
from tinygrad.tensor.generator import Generator, default_generator
from tinygrad.tensor.modes import During
from tinygrad.tensor.order import Order
from tinygrad.tensor.shapes import Devices, broadcast_shape
from tinygrad.tensor.template import small
from tinygrad.uop import Ops, UOp

# Bits of randomness of a float in [0, 1): one more than its mantissa stores, so that all values
# are exact multiples of the same step.
_BITS = {
    dtypes.float64: 53,
    dtypes.float32: 24,
    dtypes.float16: 11,
    dtypes.bfloat16: 8,
    dtypes.fp8e4m3: 4,
    dtypes.fp8e5m2: 3,
}


def _unit(bits: UOp, dtype: DType, top: int = 64) -> UOp:
    """Floats in [0, 1) from the highest bits below bit `top` of uint64 `bits`."""
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    count = min(_BITS[dtype], top - 1)
    high = bits >> (top - count)
    return (high.cast(dtypes.int64).cast(wide) * 2.0**-count).cast(dtype)


def _normal(bits: UOp, dtype: DType) -> UOp:
    """Normal with mean 0 and variance 1."""
    wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    angle = _unit(bits & (2**32 - 1), wide, 32) * (2 * math.pi)
    chance = 1 - _unit(bits, dtypes.float32).cast(wide)  # in (0, 1], of the high half
    radius = (chance.log2() * (-2 * math.log(2))).sqrt()
    return (radius * angle.sin()).cast(dtype)


def _whole(bits: UOp, low: int, high: int, dtype: DType) -> UOp:
    """Whole numbers from `low` up to and without `high`."""
    span = high - low
    if span <= 2**32:  # scaled, not divided: the bias is below span / 2**32
        scaled = ((bits >> 32) * span) >> 32
    else:
        scaled = bits.alu(Ops.MOD, bits.const_like(span))
    return (scaled.cast(dtypes.int64) + low).cast(dtype)


def _whole_range(kind: DType) -> tuple[int, int]:
    """The least and the greatest whole number of which `kind` holds all between."""
    if dtypes.is_float(kind):
        most = 2 ** (dtypes.finfo(kind)[1] + 1)
        return -most, most
    if kind in COMPLEX_PARTS:
        raise DTypeError(f"randint: {kind!r}; legal are real numbers")
    return int(kind.min), int(kind.max)


def check_ends(operation: str, low: float, high: float, kind: DType) -> None:
    """ArgumentError for ends that `kind` cannot hold, or floats whose distance it cannot."""
    if not -math.inf < low <= high < math.inf:
        raise ArgumentError(f"{operation}: from {low} to {high}; legal is low up to high")
    if dtypes.is_float(kind):
        most = largest_float(kind)
        held = max(-low, high, high - low) <= most
    else:
        least = math.floor(low)
        held = kind.holds(least, max(least, math.ceil(high) - 1))
    if not held:
        raise ArgumentError(
            f"{operation}: from {low} to {high} as {kind!r}, which doesn't hold both ends and "
            "their distance; give dtype= for more"
        )


class Random(Order):
    """Distributions. `dtype`, `device` and `requires_grad` as for `zeros`; `generator`: what to
    draw from, if not from the one that all share."""

    __slots__ = ()

    @classmethod
    def manual_seed(cls, seed: int = 0) -> None:
        """Starts the random numbers anew from `seed`: what follows is the same each time.

        >>> Tensor.manual_seed(7); a = Tensor.rand(2).tolist()
        >>> Tensor.manual_seed(7); Tensor.rand(2).tolist() == a
        True
        """
        default_generator.manual_seed(seed)

    @classmethod
    def _of_bits(cls, name: str, sizes: Any, more: dict[str, Any], rule: Rule, *args: Any) -> Self:
        """What `rule` makes of 64 fresh random bits for each element, as uint64."""
        shape, device = checked_shape(name, *sizes), cls._place(more.get("device"))
        wants = more.get("requires_grad")
        if 0 in shape:
            none = constant(0, dtypes.uint64, device, shape)
            return cls._wrap(rule(none, *args), wants)
        generator = default_generator if more.get("generator") is None else more["generator"]
        if not isinstance(generator, Generator):
            raise ArgumentError(f"generator {generator!r}; legal are None and a Generator(seed)")
        made = drawn(cls, generator, shape, device, rule, *args)
        made.requires_grad = wants
        return made

    @classmethod
    def random_bits(
        cls, key: Any = None, counter: Self | None = None, num: Any = None, **more: Any
    ) -> Self:
        """`num` random uint32: those that belong to a key and a counter, tensors of two uint32, or
        from the stream: `random_bits(num)`.

        >>> Tensor.random_bits(3).dtype
        dtypes.uint
        """
        if counter is not None:
            return cls._bits_of(key, counter, num)
        shape = key if num is None else num
        return cls._of_bits("random_bits", (shape,), more, UOp.cast, dtypes.uint32)

    @classmethod
    def _bits_of(cls, key: Self, counter: Self, num: int) -> Self:
        (size,) = checked_shape("random_bits", num)
        half = ceildiv(size, 2)
        counts = cls.arange(half, dtype=dtypes.uint32, device=key.device)
        own = counter.reshape(2, 1)._words(key)
        return counts.stack(counts + half)._words(own)[:size]

    def _words(self, key: Self) -> Self:
        """Threefry of 64-bit numbers, given as a row of low halves and one of high halves, and of a
        key, low half first: all low halves, then all high ones."""
        words, keys = self.cast(dtypes.uint64), key.cast(dtypes.uint64)
        bits: Any = ((words[1] << 32) | words[0]).threefry((keys[1] << 32) | keys[0])
        made: Self = (bits & 0xFFFFFFFF).cat(bits >> 32)
        return made.cast(dtypes.uint32)

    def threefry(self, seed: Self) -> Self:
        """64 random bits from each counter (this) and key, both uint64.

        >>> Tensor([1], dtype="uint64").threefry(Tensor([2], dtype="uint64")).dtype
        dtypes.ulong
        """
        a, b = self._meet("threefry", seed, dtype=dtypes.uint64)
        return a._from(a._node.alu(Ops.THREEFRY, b._node), b)

    @classmethod
    def _drawn(cls, name: str, rule: Rule, shape: Any, more: dict[str, Any]) -> Any:
        """Floats as `rule` makes them; of complex numbers the parts are drawn apart."""
        kind = checked_dtype(more.get("dtype") or dtypes.default_float)
        if part := COMPLEX_PARTS.get(kind):
            parts = (cls._drawn(name, rule, shape, {**more, "dtype": part}) for _ in range(2))
            return cls._complex.joined(*parts)
        if not dtypes.is_float(kind):
            raise DTypeError(f"{name}: {kind!r}; legal are floats; use randint for whole numbers")
        return cls._of_bits(name, shape, more, rule, kind)

    @classmethod
    def _changed(
        cls, draw: Any, shape: Any, more: dict[str, Any], change: Callable[[Self], Self]
    ) -> Self:
        """What `change` makes of a draw, as a tensor that nothing leads to."""
        wants = more.pop("requires_grad", None)
        with During("on", True):  # under no_grad it would say False, and be asked for its node
            made = change(draw(*shape, **more))
        made.requires_grad = wants
        return made

    @classmethod
    def rand(cls, *shape: Any, **more: Any) -> Self:
        """Uniform in [0, 1); of complex numbers, each part.

        >>> Tensor.rand(2, 3).shape
        (2, 3)
        """
        return cls._drawn("rand", _unit, shape, more)  # type: ignore[no-any-return]

    @classmethod
    def randn(cls, *shape: Any, **more: Any) -> Self:
        """Normal with mean 0 and variance 1, of complex numbers too. (Box and Muller, 1958.)

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        made = cls._drawn("randn", _normal, shape, more)
        return made * math.sqrt(0.5) if made.is_complex() else made  # type: ignore[no-any-return]

    @classmethod
    def randint(cls, *shape: Any, low: int = 0, high: int = 10, **more: Any) -> Self:
        """Whole numbers from `low` up to and without `high`, each alike, of any real `dtype` that
        holds them. Before a tuple of sizes may stand what PyTorch has there: high, or low and high.

        >>> Tensor.randint(3, low=5, high=6).tolist(), Tensor.randint(5, 6, (2,)).tolist()
        ([5, 5, 5], [5, 5])
        """
        if len(shape) in (2, 3) and isinstance(shape[-1], (tuple, list)):
            low, high, shape = (low, *shape)[-3:]
        kind = checked_dtype(more.get("dtype") or dtypes.int32)
        low, high = number_of(low), number_of(high)
        if not isinstance(low, int) or not isinstance(high, int) or low >= high:
            raise ArgumentError(f"randint: from {low} to {high}; legal are ints, low below high")
        least, most = _whole_range(kind)
        if not least <= low < high <= most + 1:
            raise ArgumentError(
                f"randint: from {low} to {high} as {kind!r}, which holds {least} to {most}; "
                "give dtype= for more"
            )
        return cls._of_bits("randint", shape, more, _whole, low, high, kind)

    @classmethod
    def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, **more: Any) -> Self:
        """Uniform from `low` up to `high`; of floats rounding may give `high` itself.
        ArgumentError for ends, or a distance of floats, that the type doesn't hold.

        >>> Tensor.uniform(2, low=3, high=3).tolist()
        [3.0, 3.0]
        """
        kind = checked_dtype(more.pop("dtype", None) or dtypes.default_float)
        check_ends("uniform", low, high, kind)
        if not dtypes.is_float(kind):
            whole = cls.uniform(*shape, low=low, high=high, dtype=dtypes.float32, **more)
            return whole.floor().cast(kind)
        more["dtype"] = kind
        return cls._changed(cls.rand, shape, more, lambda x: x.mul(high - low).add(low))

    @classmethod
    def normal(cls, *shape: Any, mean: Any = 0.0, std: Any = 1.0, **more: Any) -> Self:
        """Normal with this mean and standard deviation, of which tensors have one for each element,
        and say the shape. They may come first, as PyTorch has them: (mean, std, shape).

        >>> Tensor.normal(2, 3, mean=1.0, std=0.5).shape
        (2, 3)
        >>> Tensor.normal(Tensor([1.0, 2.0]), 0.0).tolist()
        [1.0, 2.0]
        """
        if shape and isinstance(shape[0], (float, Random)):
            mean, shape = shape[0], shape[1:]
            if shape and not isinstance(shape[0], (tuple, list)):
                std, shape = shape[0], shape[1:]
        given = [each for each in (mean, std) if isinstance(each, Random)]
        if given and not shape:
            shape = broadcast_shape("normal", *(each.shape for each in given))
            more = {"device": given[0].device, **more}
            more["dtype"] = more.get("dtype") or given[-1].dtype
        check_types("normal", (mean, std), (int, float, Random), "numbers and tensors")
        if isinstance(std, Random):
            std = std.detach()
            std = std._from(std._node.check((std >= 0)._node, "value", "normal: a std below 0"))
        else:
            check_number_from("normal", "std", std, 0)
        mean = mean.detach() if isinstance(mean, Random) else mean
        return cls._changed(cls.randn, shape, more, lambda x: x.mul(std).add(mean))

    @classmethod
    def exponential(cls, *shape: Any, rate: float = 1.0, **more: Any) -> Self:
        """Exponential: times between events of which `rate` happen in a unit of time.

        >>> bool((Tensor.exponential(8) >= 0).all())
        True
        """
        if not rate > 0:
            raise ArgumentError(f"exponential: rate = {rate}; legal are numbers above 0")
        # of numbers in (0, 1]
        return cls._changed(cls.rand, shape, more, lambda x: (1 - x).log() * (-1 / rate))

    @classmethod
    def gumbel(cls, *shape: Any, loc: float = 0.0, scale: float = 1.0, **more: Any) -> Self:
        """Gumbel: where the largest of many lies. With it added to logits, argmax draws by them.

        >>> Tensor.gumbel(2, 3).shape
        (2, 3)
        """
        check_number_from("gumbel", "scale", scale, 0)
        return cls._changed(
            cls.exponential, shape, more, lambda x: x.maximum(1e-30).log() * -scale + loc
        )

    def rand_like(self, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """`rand` with this one's shape, dtype and device.

        >>> Tensor.zeros(2, 3).rand_like().shape
        (2, 3)
        """
        return self._like(self.rand, dtype, more)

    def randn_like(self, dtype: DTypeLike | None = None, **more: Any) -> Self:
        """`randn` with this one's shape, dtype and device.

        >>> Tensor.zeros(2, 3).randn_like().shape
        (2, 3)
        """
        return self._like(self.randn, dtype, more)

    # ---- initial values of layers ----------------------------------------------------------------

    @classmethod
    def scaled_uniform(cls, *shape: Any, **more: Any) -> Self:
        """Uniform in ±1/√(number of elements).

        >>> Tensor.scaled_uniform(2, 3).shape
        (2, 3)
        """
        bound = (prod(checked_shape("scaled_uniform", *shape)) or 1) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, **more)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **more: Any) -> Self:
        """Uniform in ±√(6 / (inputs + outputs)). (Glorot and Bengio, 2010.)

        >>> Tensor.glorot_uniform(2, 3).shape
        (2, 3)
        """
        sizes = checked_shape("glorot_uniform", *shape)
        bound = (6 / ((sum(sizes[:1]) + prod(sizes[1:])) or 1)) ** 0.5
        return cls.uniform(*shape, low=-bound, high=bound, **more)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **more: Any) -> Self:
        """Uniform in ±√(6 / ((1 + a²)·inputs)), for a leaky relu of slope `a`. (He, 2015.)

        >>> Tensor.kaiming_uniform(2, 3).shape
        (2, 3)
        """
        bound = (6 / (1 + a**2) / _fan_in(shape)) ** 0.5
        return cls.uniform(*shape, low=-bound, high=bound, **more)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **more: Any) -> Self:
        """Normal with standard deviation √(2 / ((1 + a²)·inputs)). (He, 2015.)

        >>> Tensor.kaiming_normal(2, 3).shape
        (2, 3)
        """
        std = (2 / (1 + a**2) / _fan_in(shape)) ** 0.5
        return cls.normal(*shape, mean=0.0, std=std, **more)

    # ---- choices ---------------------------------------------------------------------------------

    @classmethod
    def randperm(
        cls, n: int, device: Devices | None = None, dtype: DTypeLike | None = None, **more: Any
    ) -> Self:
        """The numbers below `n` in random order.

        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        (size,) = checked_shape("randperm", n)
        order = cls.random_bits(size, device=device, **more).argsort()
        return order.cast(checked_dtype(dtype or dtypes.default_int))

    def bernoulli(self, p: float | None = None, **more: Any) -> Self:
        """1 with the chance that each element is, or with chance `p`; else 0, in this dtype. A
        read of the result raises RuntimeCheckError if an element is no chance.

        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
        """
        if p is None and not dtypes.is_float(self.dtype):
            raise DTypeError(f"bernoulli: chances of {self.dtype!r}; legal are floats, or give p")
        check_number_from("bernoulli", "p", p or 0, 0, 1)
        chance: Any = p
        if p is None:
            own = self.detach().float()
            ok = ((own >= 0) & (own <= 1))._node
            chance = own._from(own._node.check(ok, "value", "bernoulli: a chance outside 0 to 1"))
        more = {"device": self.device, "dtype": dtypes.float32, **more}
        drawn: Self = self.rand(*self.shape, **more) < chance
        return drawn.cast(self.dtype)

    def multinomial(self, num_samples: int = 1, replacement: bool = False, **more: Any) -> Self:
        """Positions drawn with these weights, from a vector or from each row, as int32.

        Weights need not add up to 1. A read of the result raises RuntimeCheckError if one is
        negative or not finite, if all are 0, or if fewer are above 0 than are drawn without
        replacement.

        >>> Tensor([0.0, 1.0]).multinomial(2, replacement=True).tolist()
        [1, 1]
        """
        if self.ndim not in (1, 2) or num_samples < 1:
            raise ShapeError(f"multinomial: {num_samples} of {self.shape}; legal are 1 or 2 axes")
        if not replacement and num_samples > self.shape[-1]:
            raise ShapeError(
                f"multinomial: {num_samples} of {self.shape} without replacement; legal are up to "
                f"{self.shape[-1]}, or replacement=True"
            )
        rows = (self.unsqueeze(0) if self.ndim == 1 else self).float()
        rows = rows._weights(1 if replacement else num_samples)
        more = {"device": self.device, **more}
        if not replacement:  # the largest of weight-scaled exponentials. (Efraimidis, 2006.)
            keys = rows / rows.exponential(*rows.shape, **more).maximum(1e-30)
            drawn = keys.topk(num_samples, dim=1)[1]
        else:
            sums = rows.cumsum(1)
            dart = self.rand(rows.shape[0], num_samples, **more).unsqueeze(-1)
            total = sums._cut(1, rows.shape[1] - 1, rows.shape[1]).unsqueeze(1)
            sums = sums.unsqueeze(1)
            last = (sums < total).sum(-1)  # above 0: rounding must not go beyond it
            drawn = (sums <= dart * total).sum(-1).minimum(last)
        drawn = drawn.cast(dtypes.int32)
        return drawn.squeeze(0) if self.ndim == 1 else drawn

    @small
    def _weights(self, least: int) -> Self:
        """Rows of weights, with CHECKs that they are some."""
        node = self._node
        ok = ((self >= 0) & (self < math.inf))._node
        node = node.check(ok, "value", "multinomial: a weight that is negative or not finite")
        many = ((self > 0).sum(1, keepdim=True) >= least).expand(self.shape)._node
        message = f"multinomial: fewer weights above 0 than the {least} that are drawn"
        return self._from(node.check(many, "value", message))

    def dropout(self, p: float = 0.5, generator: Generator | None = None) -> Self:
        """While training each element is 0 with chance `p`, the others grow by 1 / (1 - p).

        >>> Tensor([1.0]).dropout(0.5).tolist()
        [1.0]
        """
        check_number_from("dropout", "p", p, 0, 1)
        if not self.training or p == 0:
            return self
        if p == 1:
            return self * 0
        more = {"dtype": dtypes.float32, "device": self.device, "generator": generator}
        kept = self.rand(*self.shape, **more) >= p
        return kept.where(self * (1 / (1 - p)), 0)


def _fan_in(shape: tuple[Any, ...]) -> Any:
    """How many inputs meet in an output of a weight (out, in, ..); 1 where there are none."""
    return prod(checked_shape("kaiming", *shape)[1:]) or 1
