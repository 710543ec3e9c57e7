"""Random numbers: Threefry of a counter and the seed.

The counter is taken when the tensor is created, and it and the seed enter the graph as bound
variables: neither the order of computing nor the device changes a value, and another counter or
seed makes no other program.
Element i of a tensor whose counter is c is made of threefry(c + i, seed) alone.
"""

from __future__ import annotations

import math
import time
from typing import Any, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.helpers import argfix, prod
from tinygrad.engine.counters import Stream
from tinygrad.tensor.creation import DTypeLike, checked_dtype, checked_shape
from tinygrad.tensor.order import Order
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

COUNTER_LIMIT = 2**62
SEED_LIMIT = 2**63 - 1
_stream = Stream("random", int(time.time()))
_uint64 = dtypes.uint64

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


class Random(Order):
    """Distributions. `dtype`, `device` and `requires_grad` as for `zeros`."""

    __slots__ = ()

    @classmethod
    def manual_seed(cls, seed: int = 0) -> None:
        """Starts the random numbers anew from `seed`: what follows is the same each time.

        >>> Tensor.manual_seed(7); a = Tensor.rand(2).tolist()
        >>> Tensor.manual_seed(7); Tensor.rand(2).tolist() == a
        True
        """
        _stream.restart(seed & SEED_LIMIT)

    @classmethod
    def _bits64(cls, shape: tuple[Any, ...], device: str) -> UOp:
        """64 fresh random bits for each element, as uint64."""
        size = prod(shape)
        variable = UOp.variable(_stream.name, 0, COUNTER_LIMIT, dtypes.int64)
        start = variable.bind(_stream.take(size)).cast(_uint64).broadcast_to((size,))
        count = UOp.arange(size, device, _uint64) + start
        seed = UOp.variable(_stream.seed_name, 0, SEED_LIMIT, dtypes.int64)
        seed = seed.bind(_stream.seed)
        key = seed.cast(_uint64).broadcast_to((size,))
        return count.alu(Ops.THREEFRY, key).reshape(shape)

    @classmethod
    def random_bits(cls, num: int, device: str | None = None, **_: Any) -> Self:
        """`num` random uint32."""
        place = cls._place(device)
        if num == 0:
            return cls.zeros(0, dtype=dtypes.uint32, device=place)
        return cls._wrap(cls._bits64((num,), place).cast(dtypes.uint32))

    def threefry(self, seed: Self) -> Self:
        """64 random bits from each counter (this) and key, both uint64."""
        a, b = self._meet("threefry", seed, dtype=_uint64)
        return a._from(a._node.alu(Ops.THREEFRY, b._node), b)

    @classmethod
    def _unit(cls, bits: UOp, dtype: DType, top: int = 64) -> UOp:
        """Floats in [0, 1) from the highest bits below bit `top` of uint64 `bits`."""
        wide = dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
        count = min(_BITS[dtype], top - 1)
        high = bits >> (top - count)
        return (high.cast(dtypes.int64).cast(wide) * 2.0**-count).cast(dtype)

    @classmethod
    def _drawn(cls, name: str, shape: Any, more: dict[str, Any]) -> tuple[Any, DType, str]:
        """Shape, float dtype and device of a draw."""
        kind = checked_dtype(more.get("dtype") or dtypes.default_float)
        if not dtypes.is_float(kind):
            raise DTypeError(f"{name}: {kind!r}; legal are floats; use randint for whole numbers")
        return checked_shape(name, *shape), kind, cls._place(more.get("device"))

    @classmethod
    def rand(cls, *shape: Any, **more: Any) -> Self:
        """Uniform in [0, 1).

        >>> Tensor.rand(2, 3).shape
        (2, 3)
        """
        sizes, kind, device = cls._drawn("rand", shape, more)
        if 0 in sizes:
            return cls.zeros(sizes, dtype=kind, device=device)
        bits = cls._bits64(sizes, device)
        return cls._wrap(cls._unit(bits, kind), more.get("requires_grad"))

    @classmethod
    def randn(cls, *shape: Any, **more: Any) -> Self:
        """Normal with mean 0 and standard deviation 1. (Box and Muller, 1958.)

        >>> Tensor.randn(2, 3).shape
        (2, 3)
        """
        sizes, kind, device = cls._drawn("randn", shape, more)
        if 0 in sizes:
            return cls.zeros(sizes, dtype=kind, device=device)
        wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        bits = cls._bits64(sizes, device)
        angle = cls._unit(bits & (2**32 - 1), wide, 32) * (2 * math.pi)
        chance = 1 - cls._unit(bits, dtypes.float32).cast(wide)  # in (0, 1], of the high half
        radius = (chance.log2() * (-2 * math.log(2))).sqrt()
        return cls._wrap((radius * angle.sin()).cast(kind), more.get("requires_grad"))

    @classmethod
    def randint(cls, *shape: Any, low: int = 0, high: int = 10, **more: Any) -> Self:
        """Whole numbers from `low` up to and without `high`, each alike.

        >>> Tensor.randint(3, low=5, high=6).tolist()
        [5, 5, 5]
        """
        kind = checked_dtype(more.get("dtype") or dtypes.int32)
        if not dtypes.is_int(kind):
            raise DTypeError(f"randint: {kind!r}; legal are ints")
        if not isinstance(low, int) or not isinstance(high, int) or low >= high:
            raise ArgumentError(f"randint: from {low} to {high}; legal are ints, low below high")
        sizes, device = checked_shape("randint", *shape), cls._place(more.get("device"))
        if 0 in sizes:
            return cls.zeros(sizes, dtype=kind, device=device)
        bits, span = cls._bits64(sizes, device), high - low
        if span <= 2**32:  # scaled, not divided: the bias is below span / 2**32
            scaled = ((bits >> 32) * span) >> 32
        else:
            scaled = bits.alu(Ops.MOD, bits.const_like(span))
        return cls._wrap((scaled.cast(dtypes.int64) + low).cast(kind), more.get("requires_grad"))

    @classmethod
    def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, **more: Any) -> Self:
        """Uniform from `low` up to and without `high`."""
        kind = checked_dtype(more.pop("dtype", None) or dtypes.default_float)
        wants = more.pop("requires_grad", None)
        if not dtypes.is_float(kind):
            more["dtype"] = dtypes.float32
            return (cls.rand(*shape, **more) * (high - low) + low).floor().cast(kind)
        made = cls.rand(*shape, dtype=kind, **more).mul(high - low).add(low)
        made.requires_grad = wants
        return made

    @classmethod
    def normal(cls, *shape: Any, mean: float = 0.0, std: float = 1.0, **more: Any) -> Self:
        """Normal with this mean and standard deviation."""
        wants = more.pop("requires_grad", None)
        made = cls.randn(*shape, **more).mul(std).add(mean)
        made.requires_grad = wants
        return made

    def rand_like(self, **more: Any) -> Self:
        """`rand` with this one's shape, dtype and device."""
        return self.rand(*self.shape, **self._like(more))

    def randn_like(self, **more: Any) -> Self:
        """`randn` with this one's shape, dtype and device."""
        return self.randn(*self.shape, **self._like(more))

    def _like(self, more: dict[str, Any]) -> dict[str, Any]:
        kind = more.pop("dtype", None) or self.dtype
        return {"dtype": kind, "device": more.pop("device", None) or self.device, **more}

    # ---- initial values of layers ----------------------------------------------------------------

    @classmethod
    def scaled_uniform(cls, *shape: Any, **more: Any) -> Self:
        """Uniform in ±1/√(number of elements)."""
        bound = prod(argfix(*shape)) ** -0.5
        return cls.uniform(*shape, low=-bound, high=bound, **more)

    @classmethod
    def glorot_uniform(cls, *shape: Any, **more: Any) -> Self:
        """Uniform in ±√(6 / (inputs + outputs)). (Glorot and Bengio, 2010.)"""
        sizes = argfix(*shape)
        bound = (6 / (sizes[0] + prod(sizes[1:]))) ** 0.5
        return cls.uniform(*shape, low=-bound, high=bound, **more)

    @classmethod
    def kaiming_uniform(cls, *shape: Any, a: float = 0.01, **more: Any) -> Self:
        """Uniform in ±√(6 / ((1 + a²)·inputs)), for a leaky relu of slope `a`. (He, 2015.)"""
        bound = (6 / (1 + a**2) / prod(argfix(*shape)[1:])) ** 0.5
        return cls.uniform(*shape, low=-bound, high=bound, **more)

    @classmethod
    def kaiming_normal(cls, *shape: Any, a: float = 0.01, **more: Any) -> Self:
        """Normal with standard deviation √(2 / ((1 + a²)·inputs)). (He, 2015.)"""
        std = (2 / (1 + a**2) / prod(argfix(*shape)[1:])) ** 0.5
        return cls.normal(*shape, mean=0.0, std=std, **more)

    # ---- choices ---------------------------------------------------------------------------------

    @classmethod
    def randperm(cls, n: int, device: str | None = None, dtype: DTypeLike | None = None) -> Self:
        """The numbers below `n` in random order.

        >>> sorted(Tensor.randperm(4).tolist())
        [0, 1, 2, 3]
        """
        order = cls.random_bits(n, device).argsort()
        return order.cast(checked_dtype(dtype or dtypes.default_int))

    def multinomial(self, num_samples: int = 1, replacement: bool = False) -> Self:
        """Positions drawn with these weights, from a vector or from each row, as int32.

        >>> Tensor([0.0, 1.0]).multinomial(2, replacement=True).tolist()
        [1, 1]
        """
        if self.ndim not in (1, 2) or num_samples < 1:
            raise ShapeError(f"multinomial: {num_samples} of {self.shape}; legal are 1 or 2 axes")
        rows = self.unsqueeze(0) if self.ndim == 1 else self
        if not replacement:  # the largest of weight-scaled exponentials. (Efraimidis, 2006.)
            keys = rows / -(1 - rows.float().rand_like()).log().minimum(-1e-30)
            drawn = keys.topk(num_samples, dim=1)[1]
        else:
            sums = rows.float().cumsum(1)
            dart = self.rand(rows.shape[0], num_samples, device=self.device).unsqueeze(-1)
            total = sums._cut(1, rows.shape[1] - 1, rows.shape[1]).unsqueeze(1)
            drawn = (sums.unsqueeze(1) <= dart * total).sum(-1)
        drawn = drawn.cast(dtypes.int32)
        return drawn.squeeze(0) if self.ndim == 1 else drawn

    def bernoulli(self, p: float | None = None) -> Self:
        """1 with the chance that each element is, or with chance `p`; else 0.

        >>> Tensor([0.0, 1.0]).bernoulli().tolist()
        [0.0, 1.0]
        """
        if p is None and not dtypes.is_float(self.dtype):
            raise DTypeError(f"bernoulli: chances of {self.dtype!r}; legal are floats, or give p")
        if p is not None and not 0 <= p <= 1:
            raise ArgumentError(f"bernoulli: p = {p}; legal are numbers from 0 to 1")
        chance = self.detach().float() if p is None else p
        drawn = self.rand(*self.shape, dtype=dtypes.float32, device=self.device) < chance
        return drawn.cast(self.dtype)

    def dropout(self, p: float = 0.5) -> Self:
        """While training each element is 0 with chance `p`, the others grow by 1 / (1 - p).

        >>> Tensor([1.0]).dropout(0.5).tolist()
        [1.0]
        """
        if not 0 <= p <= 1:
            raise ArgumentError(f"dropout: p = {p}; legal are numbers from 0 to 1")
        if not self.training or p == 0:
            return self
        if p == 1:
            return self * 0
        kept = self.rand(*self.shape, dtype=dtypes.float32, device=self.device) >= p
        return kept.where(self * (1 / (1 - p)), 0)
