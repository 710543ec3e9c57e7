"""Floats narrower than float32, for targets that can store them but not compute with them.

A value of such a dtype is represented by the float32 that equals it. Memory keeps the narrow dtype;
each op is done in float32, and its result is rounded to the narrow dtype every time. So results do
not depend on what was fused. For +, *, / and the square root, rounding twice gives the same as
rounding once, because float32 has more than twice the digits (Figueroa, 1995). The last bit may
differ among bfloat16's subnormal numbers, and for MULACC.

Conversions are integer arithmetic. There are two exceptions: conversions for which the target has
an instruction (CONVERTS), and a matrix unit's results to bfloat16 if the target has "CAST_BFLOAT",
which may lose subnormal numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.base.dtype import DType, dtypes, largest_float
from tinygrad.base.target import Target
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, bit_cast


@dataclass(frozen=True)
class Narrow:
    """A narrow float type: from the top a sign, an exponent, and `mantissa` bits."""

    name: str
    dtype: DType
    storage: DType  # an integer of its size
    mantissa: int
    bias: int
    infinity: int  # its bits; larger numbers become this (float8e4m3 has no infinity, so NaN)
    nan: int

    @property
    def dropped(self) -> int:
        """The number of bits of float32's mantissa that are dropped."""
        return 23 - self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.dtype.bitsize - 1)

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def aligner(self) -> float:
        """Added to a smaller number, it rounds it to a multiple of the least subnormal."""
        return 2.0 ** (1 - self.bias + self.dropped)


NARROW: dict[DType, Narrow] = {
    row.dtype: row
    for row in (
        Narrow("float16", dtypes.float16, dtypes.uint16, 10, 15, 0x7C00, 0x7E00),
        Narrow("bfloat16", dtypes.bfloat16, dtypes.uint16, 7, 127, 0x7F80, 0x7FC0),
        Narrow("fp8e4m3", dtypes.fp8e4m3, dtypes.uint8, 3, 7, 0x7F, 0x7F),
        Narrow("fp8e5m2", dtypes.fp8e5m2, dtypes.uint8, 2, 15, 0x7C, 0x7E),
    )
}

CONVERTS = {dtypes.float16: "CAST_HALF", dtypes.bfloat16: "CAST_BFLOAT16"}
"""The name by which a target declares conversions to and from float32 that follow IEEE, including
subnormal numbers."""

EXACT = frozenset((Ops.WHERE, Ops.MAX, Ops.TRUNC, Ops.ROUND, Ops.CHECK, Ops.STAGE, Ops.CONST))
"""Ops that return the value of a source, or a value that the narrow type has if the sources are
narrow."""

MAGNITUDE, INFINITY, NAN = 0x7FFFFFFF, 0x7F800000, 0x7FC00000  # of float32's bits


def narrow(sink: UOp, target: Target) -> UOp:
    """The kernel with float32 in place of each narrow float that `target` can't compute with."""
    nodes = sink.toposort()
    lacking = frozenset(dtype for dtype, row in NARROW.items() if row.name not in target.dtypes)
    if not any(node.dtype in lacking for node in nodes):
        return sink
    walk = _Walk(target, lacking)
    for node in nodes:
        walk.visit(node)
    return walk.done[sink]


class _Walk:
    """`done` maps a node to its replacement: for a narrow value, the float32 that equals it."""

    def __init__(self, target: Target, lacking: frozenset[DType]) -> None:
        self.target, self.lacking = target, lacking
        self.done: dict[UOp, UOp] = {}
        self.places: dict[UOp, UOp] = {}  # INDEX → the place in memory, in its storage dtype
        self.stored: dict[UOp, UOp] = {}  # float32 → what it was read from, to store unchanged
        self.rules: dict[Ops, Callable[[UOp, tuple[UOp, ...]], UOp]] = {
            Ops.PARAM: self._param,
            Ops.INDEX: self._index,
            Ops.STORE: self._store,
            Ops.CAST: self._cast,
            Ops.BITCAST: self._bitcast,
        }

    def visit(self, node: UOp) -> None:
        src = tuple(self.done[s] for s in node.src)
        rule = self.rules.get(node.op)
        if rule is not None:
            self.done[node] = rule(node, src)
        elif node.dtype in self.lacking:
            made = UOp(node.op, dtypes.float32, src, node.arg, node.tag)
            self.done[node] = made if _is_exact(node) else self.rounded(made, node.dtype)
        else:
            self.done[node] = node.with_src(src)

    # ---- ops that are not simply done in float32 -------------------------------------------------

    def _param(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        dtype = node.dtype
        if dtype in self.lacking and NARROW[dtype].name not in self.target.storage_dtypes:
            dtype = NARROW[dtype].storage
        return UOp(node.op, dtype, src, node.arg, node.tag)

    def _index(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        place = UOp(node.op, src[0].dtype, src, node.arg, node.tag)
        if node.dtype not in self.lacking or place.dtype is dtypes.float32:
            return place
        self.places[node] = place
        value = self.read(place, node.dtype)
        self.stored[value] = place
        return value

    def _store(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        dtype = node.src[0].dtype
        if dtype not in self.lacking:
            return node.with_src(src)
        place = self.places[node.src[0]]
        value = self.stored.get(src[1])
        if value is None:
            value = self.written(src[1], dtype)
        return node.with_src((place, value.bitcast(place.dtype), *src[2:]))

    def _cast(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        if node.dtype not in self.lacking:
            return src[0].cast(node.dtype)
        value = src[0]
        if node.dtype is dtypes.bfloat16 and self.is_normal(value):
            return value.cast(dtypes.bfloat16).cast(dtypes.float32)
        if value.dtype is dtypes.float64:
            value = odd_float32(value)
        elif dtypes.is_int(value.dtype) and value.dtype.itemsize > 2:
            value = jam(value).cast(dtypes.float32)
        return self.rounded(value.cast(dtypes.float32), node.dtype)

    def _bitcast(self, node: UOp, src: tuple[UOp, ...]) -> UOp:
        value, dtype = src[0], node.src[0].dtype
        if dtype in self.lacking:
            raw = self.stored.get(value)
            value = self.written(value, dtype) if raw is None else raw
        if node.dtype not in self.lacking:
            return value.bitcast(node.dtype)
        place = value.bitcast(self.raw(node.dtype))
        found = self.read(place, node.dtype)
        self.stored[found] = place
        return found

    # ---- conversions, by instruction or by arithmetic --------------------------------------------

    def native(self, dtype: DType) -> bool:
        return CONVERTS.get(dtype) in self.target.native

    def is_normal(self, value: UOp) -> bool:
        """Whether the target's conversion to bfloat16, which treats subnormal numbers as 0, is
        right for this float32: sums that a matrix unit computed are never subnormal."""
        if value.op is Ops.INDEX and value.src[0].op is Ops.STAGE:
            value = value.src[0].src[0]
        is_sum = value.op is Ops.REDUCE and value.src[0].op is Ops.WMMA
        return is_sum and dtypes.is_float(value.dtype) and "CAST_BFLOAT" in self.target.native

    def raw(self, dtype: DType) -> DType:
        return dtype if self.native(dtype) else NARROW[dtype].storage

    def read(self, place: UOp, dtype: DType) -> UOp:
        """The float32 that equals the stored number."""
        raw = place.bitcast(self.raw(dtype))
        return raw.cast(dtypes.float32) if self.native(dtype) else unpack(raw, NARROW[dtype])

    def written(self, value: UOp, dtype: DType) -> UOp:
        """The stored form of a float32 that the narrow dtype can represent."""
        if value.op is Ops.CAST and value.src[0].dtype is dtype:
            return value.src[0]
        return value.cast(dtype) if self.native(dtype) else pack(value, NARROW[dtype])

    def rounded(self, value: UOp, dtype: DType) -> UOp:
        """The nearest float32 that the narrow dtype can represent."""
        if self.native(dtype):
            return value.cast(dtype).cast(dtypes.float32)
        if dtype is not dtypes.bfloat16:
            return round_to(value, NARROW[dtype])
        bits = round_bits(value)
        found = (bits & 0xFFFF0000).bitcast(dtypes.float32)
        self.stored[found] = (bits >> 16).cast(self.raw(dtype))
        return found


def _is_exact(node: UOp) -> bool:
    if node.op is Ops.MUL:
        return any(s.op is Ops.CONST and s.arg in (1.0, -1.0) for s in node.src)
    return node.op in EXACT or (node.op is Ops.REDUCE and node.arg == "max")


# ---- conversions as arithmetic -------------------------------------------------------------------


def unpack(raw: UOp, row: Narrow) -> UOp:
    """The float32 that equals a narrow float, given as an integer."""
    bits = raw.cast(dtypes.uint32)
    if row.dtype is dtypes.bfloat16:
        return (bits << 16).bitcast(dtypes.float32)
    size = bits & (row.sign - 1)
    small = (size << row.dropped).bitcast(dtypes.float32)  # right but for the bias
    found = (small * (2.0 ** (127 - row.bias))).bitcast(dtypes.uint32)
    found = (row.infinity - 1 < size).where(
        found | (INFINITY if row.infinity < row.nan else NAN), found
    )
    sign = (bits & row.sign) << (32 - row.dtype.bitsize)
    return (found | sign).bitcast(dtypes.float32)


def pack(value: UOp, row: Narrow) -> UOp:
    """The bits of a float32 that the narrow type can represent, in that type."""
    bits = value.bitcast(dtypes.uint32)
    if row.dtype is dtypes.bfloat16:
        return (bits >> 16).cast(row.storage)
    size = bits & MAGNITUDE
    found = size + (-((127 - row.bias) << 23)) >> row.dropped
    aligned = (size.bitcast(dtypes.float32) + row.aligner).bitcast(dtypes.uint32)
    steps = aligned + -_bits(row.aligner)
    found = (size < _bits(row.least_normal)).where(steps, found)
    found = (size > (INFINITY - 1)).where(row.infinity, found)
    found = (size > INFINITY).where(row.nan, found)
    sign = bits >> (32 - row.dtype.bitsize) & row.sign
    return (found | sign).cast(row.storage)


def round_bits(value: UOp) -> UOp:
    """Rounds a float32's bits so that the upper half is the nearest bfloat16, ties to even. The
    exponents of both are the same, so that the sign may stay in place."""
    bits = value.bitcast(dtypes.uint32)
    below = bits + 0x7FFF
    found = (bits & 0x10000).ne(0).where(below + 1, below)
    return value.ne(value).where(bits | NAN, found)


def round_to(value: UOp, row: Narrow) -> UOp:
    """The nearest float32 that the narrow type can represent, ties to even; not for bfloat16."""
    bits = value.bitcast(dtypes.uint32)
    size = bits & MAGNITUDE
    drop = row.dropped
    last = size >> drop & 1
    found = size + last + ((1 << (drop - 1)) - 1) & (-(1 << drop))
    aligned = size.bitcast(dtypes.float32) + row.aligner
    steps = (aligned + -row.aligner).bitcast(dtypes.uint32)
    found = (size < _bits(row.least_normal)).where(steps, found)
    too_large = INFINITY if row.infinity < row.nan else NAN
    found = (_bits(largest_float(row.dtype)) < found).where(too_large, found)
    found = (size > INFINITY).where(NAN, found)
    return (found | bits & 0x80000000).bitcast(dtypes.float32)


def odd_float32(value: UOp) -> UOp:
    """A float64 rounded to one of its two neighbours in float32: the odd one, unless it is equal to
    one. A later rounding to fewer digits then gives the same as rounding the float64."""
    near = value.cast(dtypes.float32)
    back, bits = near.cast(dtypes.float64), near.bitcast(dtypes.uint32)
    below = (value < 0.0).where(value < back, back < value)
    even = (bits & 1).eq(0)
    other = bits + below.where(bits.const_like(1), -1)
    return (back.ne(value) & even & value.eq(value)).where(other, bits).bitcast(dtypes.float32)


def jam(value: UOp) -> UOp:
    """Drops bits of an integer so that float32 can hold it; if any dropped bit was 1, the last
    remaining bit is set."""
    dtype, bits = value.dtype, value.dtype.bitsize
    for low, high in ((24, 38), (38, 52), (52, 64)):
        if low >= bits:
            break
        dropped = high - 24
        mask, step = UOp.const(dtype, 2**dropped - 1), UOp.const(dtype, 2**dropped)
        lost = (value & mask).ne(0)
        kept = value & (-(2**dropped))
        jammed = lost.where(kept | step, kept)
        large = (2**low - 1) < value
        if not dtypes.is_unsigned(dtype):
            large = large | (value < (-(2**low)))
        value = large.where(jammed, value)
    return value


def _bits(value: float) -> int:
    """The bits of a float32."""
    return int(bit_cast(value, dtypes.float32, dtypes.uint32))
