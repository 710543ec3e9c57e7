"""Block formats of quantised weights, as tensor operations on the bytes of the blocks.

A row of `FORMATS` gives the number of elements and of bytes in a block, and the function that turns
blocks (n, bytes) of uint8 into (n, elements) of float32. The functions are shifts, masks and
multiplications of single elements, so they fuse into whatever reads the weights: memory holds the
blocks, and a matrix product dequantises them as it multiplies.

(Layouts: ggml-common.h and ggml-quants.c of https://github.com/ggml-org/ggml. The grids of the IQ
formats are data of the `gguf` package, extra `gguf`.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, FileError
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import Devices
from tinygrad.uop.node import UOp

LARGE = 256  # elements of a block of the K and IQ formats
NEAREST_4BIT = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # times 2


@dataclass(frozen=True)
class Format:
    """One block format: its number in GGUF files, elements of a block, what its bytes are (words of
    2 and 4 bytes, "V": bytes), and how blocks become numbers."""

    number: int
    elements: int
    fields: str
    unpack: Callable[[Tensor], Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return np.dtype(self.fields).itemsize

    def turned(self, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Blocks whose words have the other byte order."""
        given = np.dtype(self.fields).newbyteorder(">")
        return raw.view(given).astype(given.newbyteorder("<")).view(np.uint8)


def dequantise(raw: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    """Blocks as float32, lazily.

    Args:
        raw: all blocks as uint8, one behind the other.
        name: a row of FORMATS, such as "Q4_0".
        shape: of the result; its last axis is a whole number of blocks.

    >>> zeros = Tensor.zeros(2 * 34, dtype="uint8")
    >>> dequantise(zeros, "Q8_0", (2, 32)).shape
    (2, 32)
    """
    row = FORMATS.get(name)
    if row is None:
        raise ArgumentError(f"dequantise: format {name}; legal are {', '.join(FORMATS)}")
    made = row.unpack(raw.reshape(-1, row.nbytes)).reshape(shape)
    _BLOCKS[made.uop] = raw, name
    return made


_BLOCKS: WeakKeyDictionary[UOp, tuple[Tensor, str]] = WeakKeyDictionary()
"""What expressions over blocks are made of, for who wants a few rows of them."""


def is_in_blocks(table: Tensor) -> bool:
    """Whether `dequantise` made this, so that it should never be computed as a whole."""
    return table.uop in _BLOCKS


def rows(table: Tensor, places: Tensor) -> Tensor:
    """Rows of a table (count, size..), (..) → (.., size..). Of a table that `dequantise` made, only
    the blocks of these rows are read and converted; a gather of any other expression computes all
    of it.

    >>> table = dequantise(Tensor.zeros(2 * 34, dtype="uint8"), "Q8_0", (2, 32))
    >>> rows(table, Tensor([[1, 0, 1]])).shape
    (1, 3, 32)
    """
    if not is_in_blocks(table):
        return table._rows(places)
    raw, name = _BLOCKS[table.uop]
    blocks = raw.reshape(table.shape[0], -1)._rows(places)
    return dequantise(blocks.flatten(), name, (*places.shape, *table.shape[1:]))


# ---- words for what the formats have in common ---------------------------------------------------


def parts(blocks: Tensor, *sizes: int) -> tuple[Tensor, ...]:
    """Bytes (n, size) of the fields of a block, in order."""
    return blocks.split(list(sizes), dim=1)


def word(raw: Tensor, nbytes: int) -> Tensor:
    """(n, k * nbytes) bytes as (n, k) unsigned numbers, little endian."""
    kind = {2: dtypes.uint16, 4: dtypes.uint32}[nbytes]
    lanes = raw.reshape(raw.shape[0], -1, nbytes).cast(kind)
    out = lanes[:, :, 0]
    for place in range(1, nbytes):
        out = out | (lanes[:, :, place] << 8 * place)
    return out


def half(raw: Tensor) -> Tensor:
    """(n, 2k) bytes as (n, k) float16 values, in float32."""
    return word(raw, 2).bitcast(dtypes.half).float()


def signed(raw: Tensor) -> Tensor:
    """Bytes as signed numbers, in float32."""
    return raw.bitcast(dtypes.int8).float()


def cut(raw: Tensor, count: int, width: int, run: int = 1) -> Tensor:
    """Numbers of `width` bits packed into words, `count` in each. Of each `run` of words come first
    the lowest bits of all, then the next bits. (n, k) words become (n, k * count) numbers."""
    rows = raw.shape[0]
    steps = Tensor.arange(count, dtype=raw.dtype, device=raw.device)
    shifts = (steps * width).reshape(1, 1, count, 1)
    spread = raw.reshape(rows, -1, 1, run) >> shifts
    return (spread & ((1 << width) - 1)).reshape(rows, -1)


def over(scales: Tensor, numbers: Tensor) -> Tensor:
    """(n, k) scales, each repeated over one of k equal groups of (n, m) numbers: (n, m)."""
    rows, count = scales.shape
    return (scales.reshape(rows, count, 1) * numbers.reshape(rows, count, -1)).reshape(rows, -1)


def looked_up(table: Tensor, places: Tensor) -> Tensor:
    """The entries of a table. Indices are in range by the way they were cut."""
    return table[places.cast(dtypes.int32)]


@functools.cache
def _table(values: tuple[int, ...], device: Devices) -> Tensor:
    return Tensor(list(values), device=device, dtype=dtypes.float32).realize()


@functools.cache
def _grid(name: str, device: Devices) -> Tensor:
    """(entries, 4 or 8) values of an IQ format, from the package that keeps them."""
    try:
        from gguf import quants
    except ImportError as error:
        raise FileError(f"{name} weights need the package gguf: pip install gguf") from error
    kind: Any = getattr(quants, name)
    kind.init_grid()
    return Tensor(kind.grid.reshape(kind.grid_shape), device=device).realize()


@functools.cache
def _sign_rows(device: Devices) -> Tensor:
    """Bit patterns of 8 signs with even parity: the 7 low bits are the index."""
    rows = [n | (n.bit_count() & 1) << 7 for n in range(128)]
    return Tensor(rows, device=device, dtype=dtypes.uint8).realize()


def _signs(patterns: Tensor) -> Tensor:
    """(n, k) bytes as (n, 8k) factors: -1 where a bit is set."""
    return 1.0 - 2.0 * cut(patterns, 8, 1).float()


def _picked(name: str, places: Tensor) -> Tensor:
    """(n, k) places in a grid as (n, k * width) values."""
    return looked_up(_grid(name, places.device), places).reshape(places.shape[0], -1)


# ---- 32 elements, one scale ----------------------------------------------------------------------


def _q4_0(blocks: Tensor) -> Tensor:
    scale, low = parts(blocks, 2, 16)
    return over(half(scale), cut(low, 2, 4, 16).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    scale, least, low = parts(blocks, 2, 2, 16)
    return over(half(scale), cut(low, 2, 4, 16).float()) + half(least)


def _five_bits(high: Tensor, low: Tensor) -> Tensor:
    return (cut(low, 2, 4, 16) | (cut(high, 8, 1) << 4)).float()


def _q5_0(blocks: Tensor) -> Tensor:
    scale, high, low = parts(blocks, 2, 4, 16)
    return over(half(scale), _five_bits(high, low) - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    scale, least, high, low = parts(blocks, 2, 2, 4, 16)
    return over(half(scale), _five_bits(high, low)) + half(least)


def _q8_0(blocks: Tensor) -> Tensor:
    scale, numbers = parts(blocks, 2, 32)
    return over(half(scale), signed(numbers))


def _iq4_nl(blocks: Tensor) -> Tensor:
    scale, low = parts(blocks, 2, 16)
    values = looked_up(_table(NEAREST_4BIT, blocks.device), cut(low, 2, 4, 16))
    return over(half(scale), values)


def _mxfp4(blocks: Tensor) -> Tensor:
    exponent, low = parts(blocks, 1, 16)
    power = exponent.cast(dtypes.uint32)  # 2**(power - 128): the values are doubled
    tiny = (power < 2).where(power + 1, 0) << 21  # subnormal: 2**-128, 2**-127
    scale = (power < 2).where(tiny, (power - 1) << 23).bitcast(dtypes.float32)
    return over(scale, looked_up(_table(E2M1, blocks.device), cut(low, 2, 4, 16)))


def _nvfp4(blocks: Tensor) -> Tensor:
    scales, low = parts(blocks, 4, 32)
    exponent, mantissa = (scales >> 3) & 15, (scales & 7).float()
    normal = (1 + mantissa / 8) * (exponent.float() - 8).exp2()
    size = exponent.eq(0).where(mantissa * 2.0**-10, normal)
    size = (scales.eq(0) | scales.eq(0x7F)).where(0.0, size)
    return over(size, looked_up(_table(E2M1, blocks.device), cut(low, 2, 4, 8)))


# ---- 256 elements: scales of scales --------------------------------------------------------------


def _q2_k(blocks: Tensor) -> Tensor:
    scales, low, scale, least = parts(blocks, 16, 64, 2, 2)
    numbers = cut(low, 4, 2, 32).float()
    steps = half(scale) * (scales & 15).float()  # (n, 16)
    offsets = half(least) * (scales >> 4).float()
    return over(steps, numbers) - over(offsets, numbers.ones_like())


def _q3_k(blocks: Tensor) -> Tensor:
    mask, low, packed, scale = parts(blocks, 32, 64, 12, 2)
    six = cut(packed[:, :8], 2, 4, 8) | (cut(packed[:, 8:], 4, 2, 4) << 4)  # (n, 16)
    numbers = cut(low, 4, 2, 32).float() - 4 * (1 - cut(mask, 8, 1, 32).float())
    return over(half(scale) * (six.float() - 32), numbers)


def _scales_and_offsets(packed: Tensor) -> tuple[Tensor, Tensor]:
    """12 bytes as 8 scales and 8 offsets of 6 bits: the last 4 of each share bytes."""
    first, second, both = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = (first & 63).cat((both & 15) | ((first >> 2) & 48), dim=1)
    offsets = (second & 63).cat((both >> 4) | ((second >> 2) & 48), dim=1)
    return scales.float(), offsets.float()


def _scaled(scale: Tensor, least: Tensor, packed: Tensor, numbers: Tensor) -> Tensor:
    scales, offsets = _scales_and_offsets(packed)
    steps, shifts = half(scale) * scales, half(least) * offsets
    return over(steps, numbers) - over(shifts, numbers.ones_like())


def _q4_k(blocks: Tensor) -> Tensor:
    scale, least, packed, low = parts(blocks, 2, 2, 12, 128)
    return _scaled(scale, least, packed, cut(low, 2, 4, 32).float())


def _q5_k(blocks: Tensor) -> Tensor:
    scale, least, packed, high, low = parts(blocks, 2, 2, 12, 32, 128)
    numbers = cut(low, 2, 4, 32) | (cut(high, 8, 1, 32) << 4)
    return _scaled(scale, least, packed, numbers.float())


def _q6_k(blocks: Tensor) -> Tensor:
    low, high, scales, scale = parts(blocks, 128, 64, 16, 2)
    numbers = (cut(low, 2, 4, 64) | (cut(high, 4, 2, 32) << 4)).float() - 32
    return over(half(scale) * signed(scales), numbers)


def _q8_k(blocks: Tensor) -> Tensor:
    scale, numbers, _ = parts(blocks, 4, 256, 32)  # and the sums of 16 numbers each
    return over(word(scale, 4).bitcast(dtypes.float32), signed(numbers))


def _iq4_xs(blocks: Tensor) -> Tensor:
    scale, high, low, packed = parts(blocks, 2, 2, 4, 128)
    six = cut(low, 2, 4) | (cut(word(high, 2), 8, 2).cast(dtypes.uint8) << 4)  # (n, 8)
    values = looked_up(_table(NEAREST_4BIT, blocks.device), cut(packed, 2, 4, 16))
    return over(half(scale) * (six.float() - 32), values)


# ---- three values a number -----------------------------------------------------------------------


def _digits(raw: Tensor, count: int, run: int) -> Tensor:
    """`count` digits of base 3 a byte, stored as fractions of 256, most significant first."""
    rows = raw.shape[0]
    powers = [Tensor.full((1,), 3**k, dtype=dtypes.uint8, device=raw.device) for k in range(count)]
    power = powers[0].cat(*powers[1:]).reshape(1, 1, count, 1)
    moved = (raw.reshape(rows, -1, 1, run) * power).reshape(rows, -1)  # wraps
    return ((moved.cast(dtypes.uint16) * 3) >> 8).float() - 1


def _tq1_0(blocks: Tensor) -> Tensor:
    first, second, rest, scale = parts(blocks, 32, 16, 4, 2)
    numbers = _digits(first, 5, 32).cat(_digits(second, 5, 16), _digits(rest, 4, 4), dim=1)
    return over(half(scale), numbers)


def _tq2_0(blocks: Tensor) -> Tensor:
    low, scale = parts(blocks, 64, 2)
    return over(half(scale), cut(low, 4, 2, 32).float() - 1)


# ---- grids: 8 or 4 values by one number ----------------------------------------------------------


def _iq2_xxs(blocks: Tensor) -> Tensor:
    scale, packed = parts(blocks, 2, 64)
    pairs = word(packed, 4).reshape(-1, 8, 2)
    places = packed.reshape(-1, 8, 8)[:, :, :4].reshape(-1, 32)
    tops = pairs[:, :, 1]
    patterns = looked_up(_sign_rows(blocks.device), cut(tops, 4, 7))
    sizes = half(scale) * (0.5 + (tops >> 28).float()) * 0.25
    return over(sizes, _picked("IQ2_XXS", places) * _signs(patterns))


def _iq2_xs(blocks: Tensor) -> Tensor:
    scale, packed, scales = parts(blocks, 2, 64, 8)
    words = word(packed, 2)
    patterns = looked_up(_sign_rows(blocks.device), words >> 9)
    sizes = half(scale) * (0.5 + cut(scales, 2, 4).float()) * 0.25
    return over(sizes, _picked("IQ2_XS", words & 511) * _signs(patterns))


def _iq2_s(blocks: Tensor) -> Tensor:
    scale, low, signs, high, scales = parts(blocks, 2, 32, 32, 8, 8)
    places = low.cast(dtypes.uint16) | (cut(high, 4, 2).cast(dtypes.uint16) << 8)
    sizes = half(scale) * (0.5 + cut(scales, 2, 4).float()) * 0.25
    return over(sizes, _picked("IQ2_S", places) * _signs(signs))


def _iq3_xxs(blocks: Tensor) -> Tensor:
    scale, places, packed = parts(blocks, 2, 64, 32)
    words = word(packed, 4)
    patterns = looked_up(_sign_rows(blocks.device), cut(words, 4, 7))
    sizes = half(scale) * (0.5 + (words >> 28).float()) * 0.5
    return over(sizes, _picked("IQ3_XXS", places) * _signs(patterns))


def _iq3_s(blocks: Tensor) -> Tensor:
    scale, low, high, signs, scales = parts(blocks, 2, 64, 8, 32, 4)
    places = low.cast(dtypes.uint16) | (cut(high, 8, 1).cast(dtypes.uint16) << 8)
    sizes = half(scale) * (1 + 2 * cut(scales, 2, 4).float())
    return over(sizes, _picked("IQ3_S", places) * _signs(signs))


def _iq1_s(blocks: Tensor) -> Tensor:
    scale, low, high = parts(blocks, 2, 32, 16)
    words = word(high, 2)  # (n, 8)
    places = low.cast(dtypes.uint16) | (cut(words, 4, 3) << 8)
    sizes = half(scale) * (2 * ((words >> 12) & 7).float() + 1)
    shift = 0.125 - 0.25 * (words >> 15).float()
    values = _picked("IQ1_S", places)
    return over(sizes, values + over(shift, values.ones_like()))


def _iq1_m(blocks: Tensor) -> Tensor:
    low, high, packed = parts(blocks, 32, 16, 8)
    words = word(packed, 2)  # (n, 4), each with 4 bits of the scale on top
    bits = words >> 12
    whole = bits[:, 0] | (bits[:, 1] << 4) | (bits[:, 2] << 8) | (bits[:, 3] << 12)
    scale = whole.bitcast(dtypes.half).float().reshape(-1, 1)
    sizes = scale * (2 * cut(words, 4, 3).float() + 1)  # (n, 16)
    nibbles = cut(high, 2, 4).cast(dtypes.uint16)  # (n, 32)
    places = low.cast(dtypes.uint16) | ((nibbles & 7) << 8)
    shift = 0.125 - 0.25 * (nibbles >> 3).float()
    values = _picked("IQ1_M", places)
    return over(sizes, values + over(shift, values.ones_like()))


FORMATS: Mapping[str, Format] = {
    "Q4_0": Format(2, 32, "u2,V16", _q4_0),
    "Q4_1": Format(3, 32, "u2,u2,V16", _q4_1),
    "Q5_0": Format(6, 32, "u2,V20", _q5_0),
    "Q5_1": Format(7, 32, "u2,u2,V20", _q5_1),
    "Q8_0": Format(8, 32, "u2,V32", _q8_0),
    "Q2_K": Format(10, LARGE, "V80,u2,u2", _q2_k),
    "Q3_K": Format(11, LARGE, "V108,u2", _q3_k),
    "Q4_K": Format(12, LARGE, "u2,u2,V140", _q4_k),
    "Q5_K": Format(13, LARGE, "u2,u2,V172", _q5_k),
    "Q6_K": Format(14, LARGE, "V208,u2", _q6_k),
    "Q8_K": Format(15, LARGE, "f4,V256,(16,)u2", _q8_k),
    "IQ2_XXS": Format(16, LARGE, "u2,(32,)u2", _iq2_xxs),
    "IQ2_XS": Format(17, LARGE, "u2,(32,)u2,V8", _iq2_xs),
    "IQ3_XXS": Format(18, LARGE, "u2,V96", _iq3_xxs),
    "IQ1_S": Format(19, LARGE, "u2,V32,(8,)u2", _iq1_s),
    "IQ4_NL": Format(20, 32, "u2,V16", _iq4_nl),
    "IQ3_S": Format(21, LARGE, "u2,V108", _iq3_s),
    "IQ2_S": Format(22, LARGE, "u2,V80", _iq2_s),
    "IQ4_XS": Format(23, LARGE, "u2,u2,V132", _iq4_xs),
    "IQ1_M": Format(29, LARGE, "V56", _iq1_m),
    "TQ1_0": Format(34, LARGE, "V52,u2", _tq1_0),
    "TQ2_0": Format(35, LARGE, "V64,u2", _tq2_0),
    "MXFP4": Format(39, 32, "V17", _mxfp4),
    "NVFP4": Format(40, 64, "V36", _nvfp4),
}
