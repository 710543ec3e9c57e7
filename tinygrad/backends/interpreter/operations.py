"""What the interpreter's functions call: numbers fitted to a dtype, meanings, loads and stores.

Speed matters a little, because tests run on this: each function here is made once for a dtype.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinygrad.base.bits import decode, encode
from tinygrad.base.dtype import ConstType, DType, dtypes, round_float, saturate
from tinygrad.loops.matrix_units import UNITS, MatrixUnit, Part
from tinygrad.uop.op import ROW, Ops

Number = Callable[[Any], Any]


def dtype_named(name: str) -> DType:
    """The dtype whose own name this is."""
    return dtypes.index if name == "index" else dtypes.fields()[name]


# ---- rounding ------------------------------------------------------------------------------------


@functools.cache
def fit(name: str) -> Number:
    """The function that rounds or wraps a number to the dtype called `name`."""
    dtype = dtype_named(name)
    if dtype is dtypes.bool:
        return bool
    if dtype is dtypes.index:
        return int
    if dtypes.is_int(dtype):
        return _wrapper(dtype)
    if dtype is dtypes.float64:
        return float
    if dtype.fmt is not None:
        return _rounder(struct.Struct("<" + dtype.fmt))
    return lambda value: round_float(value, dtype)


def _wrapper(dtype: DType) -> Number:
    mask, low = (1 << dtype.bitsize) - 1, int(dtypes.min(dtype))
    if low == 0:
        return lambda value: value & mask
    return lambda value: (value - low & mask) + low


def _rounder(layout: struct.Struct) -> Number:
    pack, unpack = layout.pack, layout.unpack

    def rounded(value: float) -> float:
        try:
            return unpack(pack(value))[0]  # type: ignore[no-any-return]
        except OverflowError:
            return math.copysign(math.inf, value)

    return rounded


# ---- arithmetic ----------------------------------------------------------------------------------


def divide_toward_zero(a: int, b: int) -> int:
    """What IDIV means in a linear program, where its divisor is never 0."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def remainder(a: int, b: int) -> int:
    """The remainder of `divide_toward_zero`, which has the sign of the dividend."""
    return a - b * divide_toward_zero(a, b)


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """a*b + c so that rounding it to a shorter float rounds once.

    The sum is exact or rounded to odd, which keeps the side of a tie on which the exact sum lies
    (Boldo and Melquiond, 2008). Products of floats shorter than float64 are exact.
    """
    product = a * b
    total = product + c
    if isinstance(total, int) or not math.isfinite(total):
        return total
    part = total - product
    error = (product - (total - part)) + (c - part)
    if error == 0 or struct.pack("<d", total)[0] & 1:
        return total
    return math.nextafter(total, math.copysign(math.inf, error))


def multiply_add_double(a: float, b: float, c: float) -> float:
    """a*b + c of float64, rounded once: by way of fractions, since the product is not exact."""
    from fractions import Fraction

    plain = a * b + c
    if not all(map(math.isfinite, (a, b, c))):
        return plain
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else plain  # which knows a zero's sign
    except OverflowError:
        return plain


def natural_exponential(x: float) -> float:
    """e**x; infinity where that is too large."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


LINEAR_MEANINGS: dict[Ops, Callable[..., ConstType]] = {
    Ops.IDIV: divide_toward_zero,
    Ops.MOD: remainder,
    Ops.MULACC: multiply_add,
}


@functools.cache
def meaning(op: str, name: str) -> Callable[..., Any]:
    """An op on numbers of the dtype called `name`: what the op table says, before rounding."""
    if op == "MULACC" and name == "double":
        return multiply_add_double
    if op == "EXP":
        return natural_exponential
    found = LINEAR_MEANINGS.get(Ops[op]) or ROW[Ops[op]].meaning
    assert found is not None
    return found


@functools.cache
def operation(op: str, name: str) -> Callable[..., Any]:
    """An op whose result is fitted to the dtype called `name`."""
    raw, fitted = meaning(op, name), fit(name)
    return lambda *values: fitted(raw(*values))


@functools.cache
def cast(source: str, target: str) -> Number:
    """A number of one dtype as a number of another."""
    old, new = dtype_named(source), dtype_named(target)
    fitted = fit(target)
    if dtypes.is_float(old) and dtypes.is_int(new):
        return lambda value: fitted(saturate(value, new))
    if dtypes.is_int(old) and dtypes.is_float(new):
        return float if new is dtypes.float64 else lambda value: fitted(float(_sticky(value)))
    return fitted


def _sticky(value: int) -> int:
    """`value` in the 53 bits of a double, of which the last says whether anything was cut: then
    rounding on to a shorter float rounds like one rounding."""
    cut = abs(value).bit_length() - 53
    if cut <= 0:
        return value
    kept = abs(value) >> cut
    kept |= kept << cut != abs(value)
    return (kept if value > 0 else -kept) << cut


def bitcast(values: Sequence[ConstType], source: str, target: str) -> tuple[ConstType, ...]:
    """The same bits as numbers of another dtype."""
    old, new = dtype_named(source), dtype_named(target)
    raw = b"".join(encode(value, old).to_bytes(old.itemsize, "little") for value in values)
    starts = range(0, len(raw), new.itemsize)
    pieces = (raw[start : start + new.itemsize] for start in starts)
    return tuple(decode(int.from_bytes(piece, "little"), new) for piece in pieces)


# ---- memory --------------------------------------------------------------------------------------


class Coded:
    """Memory of a dtype that Python's memoryview does not know, read and written element-wise."""

    def __init__(self, memory: memoryview, dtype: DType) -> None:
        self.codes = memory.cast("H" if dtype.itemsize == 2 else "B")
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, at: int) -> ConstType:
        return decode(self.codes[at], self.dtype)

    def __setitem__(self, at: int, value: ConstType) -> None:
        self.codes[at] = encode(value, self.dtype)


def view(memory: memoryview, name: str) -> Any:
    """`memory` as a sequence of numbers of the dtype called `name`."""
    dtype = dtype_named(name)
    whole = memory[: len(memory) // dtype.itemsize * dtype.itemsize]
    if dtype.fmt is None or dtype is dtypes.float16:  # memoryview knows "e" from Python 3.12 on
        return Coded(whole, dtype)
    return whole.cast("B").cast(dtype.fmt)  # type: ignore[call-overload]


def local(memories: dict[str, memoryview], key: str, size: int, name: str) -> Any:
    """Scratch memory that a group shares; the first lane to ask finds NaN in it."""
    if key not in memories:
        memories[key] = memoryview(bytearray(b"\xff") * (size * dtype_named(name).itemsize))
    return view(memories[key], name)


def load(memory: Any, at: int) -> Any:
    """One element; unlike a list, never from the end."""
    if at < 0:
        raise IndexError(f"[load] element {at} of {len(memory)}")
    return memory[at]


def store(memory: Any, at: int, value: Any) -> None:
    """Change one element."""
    if at < 0:
        raise IndexError(f"[store] element {at} of {len(memory)}")
    memory[at] = value


def load_lanes(memory: Any, at: int, mask: Iterable[bool], zero: Any) -> tuple[Any, ...]:
    """Neighbours from `at` on; zero, and no access, where the mask is false."""
    return tuple(load(memory, i) if lane else zero for i, lane in enumerate(mask, at))


def store_lanes(memory: Any, at: int, mask: Iterable[bool], values: Iterable[Any]) -> None:
    """Change neighbours from `at` on, but not where the mask is false."""
    for i, (lane, value) in enumerate(zip(mask, values, strict=True), at):
        if lane:
            store(memory, i, value)


def arrive(coming: list[list[tuple[Any, int, Sequence[Any]]]], most: int) -> None:
    """Stores what was fetched, except for the last `most` groups."""
    while len(coming) > most:
        for memory, at, values in coming.pop(0):
            store_lanes(memory, at, (True,) * len(values), values)


class Signal:
    """A signal whose phase ends after `count` arrivals, once all bytes that these announced are
    there. Boxes are copied as late as possible: when somebody waits for them."""

    def __init__(self, count: int) -> None:
        self.count = self.left = count
        self.turns = self.expected = 0
        self.boxes: list[tuple[int, Callable[[], None]]] = []

    def arrive(self, nbytes: int) -> None:
        """Counts an arrival, which announces this many bytes."""
        self.left -= 1
        self.expected += nbytes
        if not self.expected:
            self._end()

    def had(self, odd: int) -> bool:
        """Whether the last phase that ended was an odd one, or an even one. Before the first phase
        the answer is "odd"."""
        if self.left == 0 and self.expected == sum(nbytes for nbytes, _ in self.boxes):
            for _, copy in self.boxes:
                copy()
            self.boxes, self.expected = [], 0
            self._end()
        return self.turns % 2 != odd

    def _end(self) -> None:
        if self.left == 0:
            self.left, self.turns = self.count, self.turns + 1


def copy_box(
    target: Any,
    at: int,
    source: Any,
    start: int,
    kinds: Sequence[tuple[int, str]],
    layout: tuple[tuple[int, ...], ...],
    place: tuple[int, ...],
) -> None:
    """Copies a box of a tensor to swizzled rows of 128 bytes; elements beyond the tensor are 0.
    `kinds`: the size and the dtype of an element in the target and in the source. `layout`: the
    tensor's sizes, its strides except the first, and the box's shape."""
    sizes, strides, shape = layout
    (itemsize, new), (_, old) = kinds
    for number, turn in enumerate(itertools.product(*map(range, reversed(shape)))):
        spot = [a + b for a, b in zip(place, reversed(turn), strict=True)]
        value: Any = 0
        if all(0 <= a < size for a, size in zip(spot, sizes, strict=True)):
            steps = zip(spot, (1, *strides), strict=True)
            value = load(source, start + sum(a * step for a, step in steps))
            value = value if old == new else bitcast((value,), old, new)[0]
        byte = (at + number) * itemsize
        store(target, (byte ^ byte // ROW_BYTES % 8 * CHUNK) // itemsize, value)


def gather(said: Any, lane: int, count: int, itemsize: int, flip: bool) -> tuple[int, ...]:
    """A lane's words of `count` matrices of 8 rows of 16 bytes; turned, elements are two bytes."""
    start, (row, word), pack = lane - lane % 32, divmod(lane % 32, 4), 4 // itemsize
    words = []
    for matrix in range(start, start + 8 * count, 8):
        if flip:
            spots = [(matrix + pack * word + part, row) for part in range(pack)]
        else:
            spots = [(matrix + row, pack * word + part) for part in range(pack)]
        found = 0
        for part, (teller, at) in enumerate(spots):
            memory, begin = said[teller]
            code = load(memory, begin + at) & (1 << 8 * itemsize) - 1
            found |= code << 8 * itemsize * part
        words.append(found)
    return tuple(words)


def fault(memory: Any, at: int, code: int, failed: Any, *operands: Any) -> None:
    """Writes the code and the operands of the first lane that failed, unless a fault is reported
    already."""
    lanes = failed if isinstance(failed, tuple) else (failed,)
    if not any(lanes) or memory[at]:
        return
    lane = lanes.index(True)
    words = (value[lane] if isinstance(value, tuple) else value for value in operands)
    for i, word in enumerate((code, *words), at):
        store(memory, i, word)


@functools.cache
def matrix_unit(name: str) -> Callable[..., tuple[Any, ...]]:
    """A function that does to a, b and the total what the instruction of that row of
    `loops/matrix_units` does. Products of floats are exact; each addition rounds."""
    unit = UNITS[name]
    own = (dtype for dtype in (unit.a, unit.b))
    reads = [(lambda code, d=d: decode(code, d)) if dtypes.is_float(d) else int for d in own]
    add = operation("MULACC", unit.out.name)
    within = [divmod(k, unit.pack) for k in range(unit.depth)]

    def multiply(a: Sequence[Any], b: Sequence[Any], total: Sequence[Any]) -> tuple[Any, ...]:
        left, right = (tuple(map(read, x)) for read, x in zip(reads, (a, b), strict=True))
        a_is_wide = len(left) > unit.rows * unit.depth
        columns = unit.columns if len(right) > unit.depth else 1  # a single word is for all lanes
        out = list(total)
        for at in range(len(out)):
            row, column = divmod(at, unit.columns)
            start = (at if a_is_wide else row) * unit.depth
            for k, (outer, inner) in enumerate(within):
                place = (outer * columns + column % columns) * unit.pack + inner
                out[at] = add(left[start + k], right[place], out[at])
        return tuple(out)

    return multiply


@functools.cache
def warp_unit(name: str) -> Callable[..., tuple[Any, ...]]:
    """A function that gives a lane's part of the product that its warp computes by that row of
    `loops/matrix_units`. `said` has the words of both operands, of every lane."""
    unit = UNITS[name]
    held = unit.held
    assert held is not None
    add = operation("MULACC", unit.out.name)
    first = _placed(unit, held.a, held.depth, held.a_items)
    second = _placed(unit, held.b, held.depth, held.b_items)
    out = {
        spot: place
        for place, spot in _placed(unit, held.rows, held.columns, held.out_items).items()
    }

    def multiply(said: Any, lane: int, total: Sequence[Any]) -> tuple[Any, ...]:
        start, own = lane - lane % unit.lanes, lane % unit.lanes
        results = list(total)
        for i in range(len(results)):
            row, column = out[own, i]
            for k in range(unit.depth):
                values = []
                for side, places, at, dtype in (
                    (0, first, row, unit.a),
                    (1, second, column, unit.b),
                ):
                    holder, item = places[at, k]
                    values.append(_element(said[start + holder][side], item, dtype))
                results[i] = add(*values, results[i])
        return tuple(results)

    return multiply


ROW_BYTES, CHUNK = 128, 16  # of a row of a staged operand, and of what is swizzled within it


@functools.cache
def staged_unit(name: str) -> Callable[..., tuple[Any, ...]]:
    """What a lane gets of the product of two operands in LOCAL memory, each given as (memory, first
    element, layout): see `codegen/fragments`."""
    unit = UNITS[name]
    held = unit.held
    assert held is not None
    add = operation("MULACC", unit.out.name)
    places = _placed(unit, held.rows, held.columns, held.out_items)
    spots = {spot: place for place, spot in places.items()}

    def multiply(lane: int, a: Any, b: Any, total: Sequence[Any]) -> tuple[Any, ...]:
        results = list(total)
        left = functools.cache(lambda row: _staged(unit.a, a, row, unit.depth))
        right = functools.cache(lambda column: _staged(unit.b, b, column, unit.depth))
        for i in range(len(results)):
            row, column = spots[lane % unit.lanes, i]
            for pair in zip(left(row), right(column), strict=True):
                results[i] = add(*pair, results[i])
        return tuple(results)

    return multiply


def _staged(dtype: DType, operand: Any, index: int, depth: int) -> list[Any]:
    """The elements along the depth of one row or column."""
    memory, first, (turned, stride, chunk) = operand
    size, found = dtype.itemsize, []
    for k in range(depth):
        row, place = (k, index) if turned else (index, k)
        block, place = divmod(place, ROW_BYTES // size)
        at = first * size + row // 8 * stride + row % 8 * ROW_BYTES + block * chunk + place * size
        at ^= at // ROW_BYTES % 8 * CHUNK
        found.append(decode(load(memory, at // size) & (1 << dtype.bitsize) - 1, dtype))
    return found


def _placed(
    unit: MatrixUnit, rows: Sequence[Part], columns: Sequence[Part], items: Sequence[str]
) -> dict[tuple[int, int], tuple[int, int]]:
    """The place of the element at each row and column: its lane, and its number in the lane."""
    sizes = {name: size for name, size, _ in (*rows, *columns)}
    found = {}
    for lane in range(unit.lanes):
        turns = itertools.product(*(range(sizes[name]) for name in items))
        for number, turn in enumerate(turns):
            digits = dict(zip(items, turn, strict=True))
            place = []
            for parts in (rows, columns):
                at = 0
                for name, size, stride in parts:
                    at = at * size + (lane // stride % size if stride else digits[name])
                place.append(at)
            found[place[0], place[1]] = lane, number
    return found


def _element(words: Sequence[int], item: int, dtype: DType) -> Any:
    """An element of a row of words of 32 bits."""
    word, place = divmod(item, 4 // dtype.itemsize)
    return decode(words[word] >> place * dtype.bitsize & (1 << dtype.bitsize) - 1, dtype)


NAMESPACE = {
    "inf": math.inf,
    "nan": math.nan,
    "Signal": Signal,
    "partial": functools.partial,
    **{
        function.__name__: function
        for function in (
            fit,
            meaning,
            operation,
            cast,
            bitcast,
            view,
            local,
            matrix_unit,
            warp_unit,
            staged_unit,
        )
    },
    **{
        function.__name__: function
        for function in (load, store, load_lanes, store_lanes, arrive, copy_box, gather, fault)
    },
}
