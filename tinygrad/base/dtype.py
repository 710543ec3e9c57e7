"""Element types and the lattice by which they promote. Facts only; conversion lives elsewhere."""

from __future__ import annotations

import builtins
import functools
import math
import struct
from typing import Any, ClassVar, Final

from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.base.settings import SETTINGS

ConstType = float | int | bool


class DType:
    """One element type, or a vector of `count` elements (a register's worth).

    Every dtype is a singleton, so `is` and `==` agree and hashing is by identity.
    `fmt` is the struct-module letter of one element, None where Python has none.
    """

    __slots__ = ("name", "itemsize", "fmt", "count", "priority", "_scalar")
    _vectors: ClassVar[dict[tuple[DType, int], DType]] = {}

    name: str
    itemsize: int
    fmt: str | None
    count: int
    priority: int

    def __init__(
        self, name: str, itemsize: int, fmt: str | None, priority: int, count: int = 1
    ) -> None:
        self.name, self.itemsize, self.fmt = name, itemsize, fmt
        self.priority, self.count = priority, count
        self._scalar: DType = self

    def vec(self, count: int) -> DType:
        """The vector of `count` elements of this type; `count` 1 is the type itself."""
        assert self.count == 1, f"{self} is already a vector"
        if count == 1:
            return self
        made = DType._vectors.get((self, count))
        if made is None:
            made = DType(
                f"{self.name}{count}", self.itemsize * count, self.fmt, self.priority, count
            )
            made._scalar = self
            DType._vectors[self, count] = made
        return made

    def scalar(self) -> DType:
        """The type of one element."""
        return self._scalar

    @property
    def base(self) -> DType:
        return self

    @property
    def bitsize(self) -> int:
        return self.itemsize * 8

    @property
    def min(self) -> ConstType:
        return dtypes.min(self)

    @property
    def max(self) -> ConstType:
        return dtypes.max(self)

    def holds(self, low: ConstType, high: ConstType) -> bool:
        """Whether the whole numbers from `low` to `high` lie between its least and greatest."""
        return bool(self.min <= low and high <= self.max)

    def __repr__(self) -> str:
        vector = f".vec({self.count})" if self.count > 1 else ""
        return f"dtypes.{self._scalar.name}{vector}"

    def __lt__(self, other: DType) -> bool:
        return (self.priority, self.name) < (other.priority, other.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self._scalar.name, self.count))

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: Any) -> DType:
        return self


def _restore(name: str, count: int) -> DType:
    made: DType = getattr(dtypes, name)
    return made.vec(count)


class dtypes:  # noqa: N801  tinygrad spells it so
    """All element types by name, their ranges, and questions about them.

    >>> dtypes.max(dtypes.int8), dtypes.is_float(dtypes.bfloat16)
    (127, True)
    """

    void: Final = DType("void", 0, None, -2)
    index: Final = DType("index", 8, "q", -1)  # addresses and loop counters inside the compiler
    bool: Final = DType("bool", 1, "?", 0)
    int8: Final = DType("char", 1, "b", 1)
    uint8: Final = DType("uchar", 1, "B", 2)
    int16: Final = DType("short", 2, "h", 3)
    uint16: Final = DType("ushort", 2, "H", 4)
    int32: Final = DType("int", 4, "i", 5)
    uint32: Final = DType("uint", 4, "I", 6)
    int64: Final = DType("long", 8, "q", 7)
    uint64: Final = DType("ulong", 8, "Q", 8)
    fp8e4m3: Final = DType("fp8e4m3", 1, None, 9)
    fp8e5m2: Final = DType("fp8e5m2", 1, None, 10)
    float16: Final = DType("half", 2, "e", 11)
    bfloat16: Final = DType("bfloat16", 2, None, 12)
    float32: Final = DType("float", 4, "f", 13)
    float64: Final = DType("double", 8, "d", 14)
    complex64: Final = DType("complex64", 8, None, 15)  # of tensors only: below, pairs of floats
    complex128: Final = DType("complex128", 16, None, 16)

    char, uchar, short, ushort = int8, uint8, int16, uint16
    int, uint, long, ulong = int32, uint32, int64, uint64
    half, float, double = float16, float32, float64
    cfloat, cdouble = complex64, complex128

    fp8s = (fp8e4m3, fp8e5m2)
    floats = (fp8e4m3, fp8e5m2, float16, bfloat16, float32, float64)
    complexes = (complex64, complex128)
    uints = (uint8, uint16, uint32, uint64)
    sints = (int8, int16, int32, int64)
    ints = uints + sints

    default_float: DType = float32
    default_int: DType = int32

    @staticmethod
    def fields() -> dict[str, DType]:
        """Every public name, aliases included, and its type.

        >>> dtypes.fields()["half"] is dtypes.float16
        True
        """
        return {k: v for k, v in vars(dtypes).items() if isinstance(v, DType) and k != "index"}

    @staticmethod
    def is_float(dtype: DType) -> builtins.bool:
        """Whether the type is a float, including narrow ones.

        >>> dtypes.is_float(dtypes.bfloat16), dtypes.is_float(dtypes.int8)
        (True, False)
        """
        return dtype.scalar() in _FLOATS

    @staticmethod
    def is_complex(dtype: DType) -> builtins.bool:
        """Whether the type is complex.

        >>> dtypes.is_complex(dtypes.complex64), dtypes.is_complex(dtypes.float32)
        (True, False)
        """
        return dtype in COMPLEX_PARTS

    @staticmethod
    def is_int(dtype: DType) -> builtins.bool:
        """Whether the type is an integer; bool is not.

        >>> dtypes.is_int(dtypes.uint8), dtypes.is_int(dtypes.bool)
        (True, False)
        """
        return dtype.scalar() in _INTEGERS

    @staticmethod
    def is_unsigned(dtype: DType) -> builtins.bool:
        """Whether the type is an unsigned integer.

        >>> dtypes.is_unsigned(dtypes.uint8), dtypes.is_unsigned(dtypes.int8)
        (True, False)
        """
        return dtype.scalar() in _UNSIGNED

    @staticmethod
    def is_bool(dtype: DType) -> builtins.bool:
        """Whether this is bool.

        >>> dtypes.is_bool(dtypes.bool), dtypes.is_bool(dtypes.uint8)
        (True, False)
        """
        return dtype.scalar() is dtypes.bool

    @staticmethod
    def min(dtype: DType) -> ConstType:
        """The smallest value: -inf for floats that have it, False for bool.

        >>> dtypes.min(dtypes.int8), dtypes.min(dtypes.float32)
        (-128, -inf)
        """
        dtype = dtype.scalar()
        if dtype is dtypes.fp8e4m3:
            return -448.0
        if dtypes.is_float(dtype):
            return -math.inf
        if dtypes.is_int(dtype):
            return 0 if dtypes.is_unsigned(dtype) else -(2 ** (dtype.itemsize * 8 - 1))
        return False

    @staticmethod
    def max(dtype: DType) -> ConstType:
        """The greatest value: inf for floats that have it, True for bool.

        >>> dtypes.max(dtypes.uint8), dtypes.max(dtypes.fp8e4m3)
        (255, 448.0)
        """
        dtype = dtype.scalar()
        if dtype is dtypes.fp8e4m3:
            return 448.0
        if dtypes.is_float(dtype):
            return math.inf
        if dtypes.is_int(dtype):
            bits = dtype.itemsize * 8 - (0 if dtypes.is_unsigned(dtype) else 1)
            return (1 << bits) - 1
        return True

    @staticmethod
    def finfo(dtype: DType) -> tuple[Any, Any]:
        """(exponent bits, mantissa bits) of a float type; DTypeError for any other.

        >>> dtypes.finfo(dtypes.bfloat16)
        (8, 7)
        """
        if dtype.scalar() not in _FLOAT_BITS:
            raise DTypeError(f"finfo: {dtype!r}; legal are floats")
        return _FLOAT_BITS[dtype.scalar()]

    @staticmethod
    def from_py(value: Any) -> DType:
        """The default type of a Python number, or of nested lists of them.

        >>> dtypes.from_py([1, 2.5]), dtypes.from_py(True)
        (dtypes.float, dtypes.bool)
        """
        if isinstance(value, bool):
            return dtypes.bool
        if isinstance(value, int):
            return dtypes.default_int
        if isinstance(value, float):
            return dtypes.default_float
        if isinstance(value, complex):
            return complex_of(dtypes.default_float)
        if isinstance(value, (list, tuple)):
            kinds = [dtypes.from_py(v) for v in value]
            return max(kinds, key=lambda d: d.priority) if kinds else dtypes.default_float
        raise DTypeError(
            f"from_py: {value!r} of type {type(value).__name__}; legal are numbers, bools and lists"
        )

    @staticmethod
    def as_const(value: ConstType, dtype: DType) -> ConstType:
        """`value` as a constant of `dtype`: integers wrap, floats round to the type.

        >>> dtypes.as_const(300, dtypes.uint8), dtypes.as_const(0.1, dtypes.half)
        (44, 0.0999755859375)
        """
        dtype = dtype.scalar()
        if dtypes.is_int(dtype):
            if dtype is dtypes.index:
                return saturate(value, dtype)
            return wrap_int(saturate(value, dtype), dtype)
        if dtypes.is_float(dtype):
            if isinstance(value, int):
                return round_whole(value, dtype)
            return round_float(float(value), dtype)
        if dtype in COMPLEX_PARTS:
            raise DTypeError(f"a constant of {dtype}, a pair of floats; legal are real numbers")
        return bool(value)


_FLOATS = frozenset(dtypes.floats)
_UNSIGNED = frozenset(dtypes.uints)
_INTEGERS = frozenset((*dtypes.ints, dtypes.index))

_FLOAT_BITS = {
    dtypes.fp8e4m3: (4, 3),
    dtypes.fp8e5m2: (5, 2),
    dtypes.float16: (5, 10),
    dtypes.bfloat16: (8, 7),
    dtypes.float32: (8, 23),
    dtypes.float64: (11, 52),
}

COMPLEX_PARTS = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
"""The type of the real and the imaginary part."""

# Promotion: the smallest type above both. An arrow leads to the next larger types.
_ABOVE = {
    dtypes.bool: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.int16: (dtypes.int32,),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.int32: (dtypes.int64,),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.int64: dtypes.fp8s,
    dtypes.uint64: dtypes.fp8s,
    dtypes.fp8e4m3: (dtypes.float16, dtypes.bfloat16),
    dtypes.fp8e5m2: (dtypes.float16, dtypes.bfloat16),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64, dtypes.complex64),
    dtypes.float64: (dtypes.complex128,),
    dtypes.complex64: (dtypes.complex128,),
    dtypes.complex128: (),
}


def _closure(dtype: DType) -> frozenset[DType]:
    return frozenset({dtype}).union(*(_closure(d) for d in _ABOVE[dtype]))


_AT_LEAST = {dtype: _closure(dtype) for dtype in _ABOVE}


def least_upper_dtype(*kinds: DType) -> DType:
    """The type to which operands of these types are converted before an operation. No integer
    holds those of uint64 and negative ones, so these together are the default float.

    >>> least_upper_dtype(dtypes.int8, dtypes.uint8), least_upper_dtype(dtypes.int64, dtypes.half)
    (dtypes.short, dtypes.half)
    >>> least_upper_dtype(dtypes.int8, dtypes.uint64)
    dtypes.float
    """
    return _least_above(kinds) or dtypes.default_float


@functools.cache
def _least_above(kinds: tuple[DType, ...]) -> DType | None:
    """None: a float, of whole numbers alone."""
    shared = frozenset.intersection(*(_AT_LEAST[d] for d in kinds))
    least = min(shared, key=lambda d: d.priority)
    whole = all(d is dtypes.bool or dtypes.is_int(d) for d in kinds)
    return None if whole and dtypes.is_float(least) else least


def least_upper_float(dtype: DType) -> DType:
    """`dtype` if it is a float, else the default float (for division, exp, mean, ...)."""
    return dtype if dtypes.is_float(dtype) else least_upper_dtype(dtype, dtypes.default_float)


def complex_of(dtype: DType) -> DType:
    """The complex type whose parts hold numbers of `dtype`.

    >>> complex_of(dtypes.half), complex_of(dtypes.float64)
    (dtypes.complex64, dtypes.complex128)
    """
    return least_upper_dtype(dtype, dtypes.complex64)


def sum_acc_dtype(dtype: DType) -> DType:
    """The type of a sum's result: small integers widen, so that a count doesn't wrap."""
    if dtypes.is_unsigned(dtype):
        return least_upper_dtype(dtype, dtypes.uint32)
    if dtypes.is_int(dtype) or dtype is dtypes.bool:
        return least_upper_dtype(dtype, dtypes.int32)
    return dtype


def compute_dtype(dtype: DType) -> DType:
    """The type used for sums, products and other computations with numbers of `dtype`: float32 for
    narrow floats, which are rounded once at the end; otherwise `dtype` itself.

    >>> compute_dtype(dtypes.bfloat16), compute_dtype(dtypes.float64), compute_dtype(dtypes.int8)
    (dtypes.float, dtypes.double, dtypes.char)
    """
    return dtypes.float32 if dtypes.is_float(dtype) and dtype.itemsize < 4 else dtype


def to_dtype(dtype: DType | str) -> DType:
    """A dtype itself, or the one with this name: `"float32"`, `"half"`, `"int"`; or NumPy's
    name."""
    if isinstance(dtype, DType):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or dtype
    name = INVERSE_NAMES.get(name, name)
    if (found := dtypes.fields().get(name.lower())) is None:
        raise TypeError(f"unknown dtype {dtype!r}; the names are {', '.join(dtypes.fields())}")
    return found


def _default(setting: str, kinds: tuple[DType, ...]) -> DType:
    """The default type that the environment names."""
    name = SETTINGS[setting].value
    found = dtypes.fields().get(name.lower())
    if found not in kinds:
        legal = ", ".join(kind.name for kind in kinds)
        raise ArgumentError(f"the environment says {setting}={name}; legal are {legal}")
    return found


dtypes.default_float = _default("DEFAULT_FLOAT", dtypes.floats)
dtypes.default_int = _default("DEFAULT_INT", dtypes.ints)


def wrap_int(value: int, dtype: DType) -> int:
    """Two's complement: `value` reduced to the bits of `dtype`."""
    low, size = _span(dtype)
    return (value - low) % size + low


@functools.cache
def _span(dtype: DType) -> tuple[int, int]:
    """An integer type's smallest value, and the number of its values."""
    if dtype is dtypes.index:
        dtype = dtypes.int64
    return int(dtypes.min(dtype)), 1 << dtype.bitsize


def saturate(value: ConstType, dtype: DType) -> int:
    """A number as an integer of `dtype`: floats are clamped to its range, NaN gives 0, integers
    stay unchanged."""
    if not isinstance(value, float):
        return int(value)
    if math.isnan(value):
        return 0
    low, high = int(dtypes.min(dtype)), int(dtypes.max(dtype))
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)  # as ints: float(high) of 64 bits is above high


def round_float(value: float, dtype: DType) -> float:
    """The nearest value of a float type, ties to even; too large gives infinity.

    fp8e4m3 has no infinity: a number that is too large becomes NaN.
    """
    if dtype is dtypes.float64 or value != value or math.isinf(value):
        return _too_large(value, dtype) if math.isinf(value) else value
    if dtype is dtypes.float32:
        try:
            return float(struct.unpack("<f", struct.pack("<f", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    exponent_bits, mantissa_bits = _FLOAT_BITS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    _, exponent = math.frexp(value)  # value = f * 2**exponent, 0.5 <= |f| < 1
    step = max(exponent - 1, 1 - bias) - mantissa_bits
    try:
        rounded = math.ldexp(round(math.ldexp(value, -step)), step)
    except OverflowError:
        return _too_large(value, dtype)
    rounded = math.copysign(rounded, value)
    return rounded if abs(rounded) <= largest_float(dtype) else _too_large(rounded, dtype)


def round_whole(value: int, dtype: DType) -> float:
    """`round_float` of an integer of any length. Rounding it to 53 bits first would be rounding
    twice, so the last of these bits records whether any later bit was set.

    >>> round_whole(2**60 + 2**36 + 1, dtypes.float32) == 2.0**60 + 2**37
    True
    >>> round_whole(-(10**400), dtypes.half)
    -inf
    """
    cut = value.bit_length() - 53
    try:
        if cut <= 0 or dtype is dtypes.float64:
            return round_float(float(value), dtype)
        kept = abs(value) >> cut
        kept |= abs(value) != kept << cut
        return round_float(math.copysign(math.ldexp(kept, cut), 1 if value > 0 else -1), dtype)
    except OverflowError:
        return _too_large(1 if value > 0 else -1, dtype)


def largest_float(dtype: DType) -> float:
    """The largest finite value of a float type."""
    if dtype is dtypes.fp8e4m3:
        return 448.0
    exponent_bits, mantissa_bits = _FLOAT_BITS[dtype]
    bias = (1 << (exponent_bits - 1)) - 1
    return math.ldexp(2 - math.ldexp(1.0, -mantissa_bits), bias)


def _too_large(value: float, dtype: DType) -> float:
    return math.copysign(math.nan if dtype is dtypes.fp8e4m3 else math.inf, value)


INVERSE_NAMES = {
    "bool": "bool",
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float16": "half",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "fp8e4m3",
    "float8_e5m2": "fp8e5m2",
    "float32": "float",
    "float64": "double",
}
"""NumPy's (and ml_dtypes') names of the types that both have."""


def from_numpy_name(name: str) -> DType:
    """The dtype that NumPy calls `name`; TypeError, which lists the names, if there is none."""
    if (own := INVERSE_NAMES.get(name)) is None:
        raise TypeError(f"no dtype for NumPy's {name!r}; there are {', '.join(INVERSE_NAMES)}")
    found: DType = getattr(dtypes, own)
    return found


@functools.cache
def to_numpy_name(dtype: DType) -> str:
    """What NumPy (or ml_dtypes, for what NumPy lacks) calls `dtype`."""
    if dtype in COMPLEX_PARTS:
        return dtype.name
    return next(numpy_name for numpy_name, own in INVERSE_NAMES.items() if own == dtype.name)
