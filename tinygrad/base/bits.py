"""Numbers as the bits that memory holds: the one place that knows the layout of each dtype.

A BITCAST of a constant goes through it, renderers write constants with it, and the interpreter
reads and writes the types that Python's memoryviews lack (half, bfloat16, fp8).
"""

from __future__ import annotations

import functools
import math
import struct

from tinygrad.base.dtype import ConstType, DType, dtypes, round_float

FP8_NAN = {dtypes.fp8e4m3: 0x7F, dtypes.fp8e5m2: 0x7E}


def encode(value: ConstType, dtype: DType) -> int:
    """The bits of `value`, a number of `dtype`, as an integer.

    >>> hex(encode(1.0, dtypes.bfloat16)), encode(-1, dtypes.int8), hex(encode(1.5, dtypes.fp8e5m2))
    ('0x3f80', 255, '0x3e')
    """
    if dtype.fmt is not None:
        return int.from_bytes(struct.pack("<" + dtype.fmt, value), "little")
    value = round_float(float(value), dtype)
    if dtype is dtypes.bfloat16:
        return int.from_bytes(struct.pack("<f", value)[2:], "little")
    if value != value:
        return FP8_NAN[dtype]
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    return sign | _fp8_values(dtype)[abs(value)]


def decode(bits: int, dtype: DType) -> ConstType:
    """The number that these bits represent."""
    raw = bits.to_bytes(dtype.itemsize, "little")
    if dtype.fmt is not None:
        return struct.unpack("<" + dtype.fmt, raw)[0]  # type: ignore[no-any-return]
    if dtype is dtypes.bfloat16:
        return struct.unpack("<f", b"\0\0" + raw)[0]  # type: ignore[no-any-return]
    return _fp8_number(bits, dtype)


def _fp8_number(bits: int, dtype: DType) -> float:
    exponent_bits, mantissa_bits = dtypes.finfo(dtype)
    sign = -1.0 if bits & 0x80 else 1.0
    exponent = (bits & 0x7F) >> mantissa_bits
    mantissa = bits & (1 << mantissa_bits) - 1
    if dtype is dtypes.fp8e4m3 and bits & 0x7F == 0x7F:
        return math.nan
    if dtype is dtypes.fp8e5m2 and exponent == 31:
        return math.nan if mantissa else sign * math.inf
    bias = (1 << exponent_bits - 1) - 1
    whole = mantissa + (1 << mantissa_bits if exponent else 0)
    return sign * math.ldexp(whole, max(exponent, 1) - bias - mantissa_bits)


@functools.cache
def _fp8_values(dtype: DType) -> dict[float, int]:
    """The bits of each non-negative number."""
    values = ((_fp8_number(bits, dtype), bits) for bits in range(0x80))
    return {value: bits for value, bits in values if value == value}
