"""The standard's element types, and questions about them."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from tinygrad.base.dtype import COMPLEX_PARTS, DType, dtypes, largest_float, least_upper_dtype
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor import Tensor

__all__ = [
    "astype",
    "bool",
    "can_cast",
    "complex64",
    "complex128",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "result_type",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

bool = dtypes.bool
int8, int16, int32, int64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
uint8, uint16, uint32, uint64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64
float32, float64 = dtypes.float32, dtypes.float64
complex64, complex128 = dtypes.complex64, dtypes.complex128

KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (bool,),
    "signed integer": (int8, int16, int32, int64),
    "unsigned integer": (uint8, uint16, uint32, uint64),
    "integral": (int8, int16, int32, int64, uint8, uint16, uint32, uint64),
    "real floating": (float32, float64),
    "complex floating": (complex64, complex128),
}
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
NAMES: dict[str, DType] = {
    **{f"int{8 * kind.itemsize}": kind for kind in KINDS["signed integer"]},
    **{f"uint{8 * kind.itemsize}": kind for kind in KINDS["unsigned integer"]},
    **{f"float{8 * kind.itemsize}": kind for kind in KINDS["real floating"]},
    **{f"complex{8 * kind.itemsize}": kind for kind in KINDS["complex floating"]},
    "bool": bool,
}


def checked(*arrays: Any) -> None:
    """TypeError for what is no tensor."""
    for x in arrays:
        if not isinstance(x, Tensor):
            raise DTypeError(f"array_api: {x!r} of type {type(x).__name__}; legal are tensors")


def astype(
    x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: str | None = None
) -> Tensor:
    """`x` as another type; a copy even of the same, unless `copy` is False.

    >>> astype(Tensor([1, 2]), float32).tolist()
    [1.0, 2.0]
    """
    checked(x)
    if x.is_complex() and dtype not in KINDS["complex floating"]:
        raise DTypeError(f"astype: {x.dtype!r} to {dtype!r}; legal are real(x), imag(x) and abs(x)")
    made = x.cast(dtype).to(device or x.device)
    return made.clone() if copy and made is x else made


def can_cast(from_: DType | Tensor, to: DType, /) -> builtins.bool:
    """Whether promotion leads from one type to the other.

    >>> can_cast(int8, int16), can_cast(int16, int8)
    (True, False)
    """
    kind = from_.dtype if isinstance(from_, Tensor) else from_
    return least_upper_dtype(kind, to) is to


def result_type(*arrays_and_dtypes: Tensor | DType | complex) -> DType:
    """The type in which all of these meet; numbers of Python take that of the arrays.

    >>> result_type(int8, uint8), result_type(float32, 1)
    (dtypes.short, dtypes.float)
    """
    kinds = [x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes]
    own = [kind for kind in kinds if isinstance(kind, DType)]
    if not own:
        raise ArgumentError(f"result_type: {arrays_and_dtypes}; legal is one array or type or more")
    found = least_upper_dtype(*own)
    for number in (kind for kind in kinds if not isinstance(kind, DType)):
        if isinstance(number, complex):
            found = least_upper_dtype(found, complex64)
        elif isinstance(number, float) and found not in KINDS["numeric"][8:]:
            found = dtypes.default_float
        elif not isinstance(number, builtins.bool) and found is bool:
            found = dtypes.default_int
    return found


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Whether a type is of a kind: another type, or one of the standard's names of kinds.

    >>> isdtype(int8, "integral"), isdtype(float32, ("bool", "signed integer"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in KINDS:
        raise ArgumentError(f"isdtype: kind {kind!r}; legal are {', '.join(KINDS)}")
    return dtype in KINDS[kind]


@dataclass(frozen=True)
class FloatInfo:
    """What `finfo` gives; all but `bits` and `dtype` are floats of Python."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """What `iinfo` gives."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: DType | Tensor, /) -> FloatInfo:
    """The limits of a float type; of a complex one those of its parts.

    >>> finfo(float32).eps == 2.0**-23, finfo(float32).bits
    (True, 32)
    """
    kind = type.dtype if isinstance(type, Tensor) else type
    kind = COMPLEX_PARTS.get(kind, kind)
    if not dtypes.is_float(kind):
        raise DTypeError(f"finfo: {kind!r}; legal are floats and complex numbers")
    exponent, mantissa = dtypes.finfo(kind)
    normal = 2.0 ** (2 - (1 << (exponent - 1)))
    largest = largest_float(kind)
    return FloatInfo(kind.bitsize, 2.0**-mantissa, largest, -largest, normal, kind)


def iinfo(type: DType | Tensor, /) -> IntegerInfo:
    """The limits of an integer type.

    >>> iinfo(int8).min, iinfo(uint8).max
    (-128, 255)
    """
    kind = type.dtype if isinstance(type, Tensor) else type
    if not dtypes.is_int(kind):
        raise DTypeError(f"iinfo: {kind!r}; legal are integers")
    return IntegerInfo(kind.bitsize, int(dtypes.max(kind)), int(dtypes.min(kind)), kind)
