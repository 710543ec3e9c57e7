"""64-bit numbers as two words of 32 bits, the low word first. The arithmetic is long addition and
multiplication as taught in school, written as expressions of uint32. This file also has the program
under construction that takes them in (for `words`)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops, evaluate

Parts = tuple[UOp, ...]
"""The replacement of a value: itself, a number that fits 32 bits, or its low and high word."""

EFFECTS = frozenset(
    (Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.STORE, Ops.FAULT, Ops.BARRIER, Ops.PREFETCH)
)

SIGN = 1 << 31  # the highest bit of a word
BIAS32, BIAS64 = 127, 1023  # the biases of floats with so many bits
INFINITY, NAN = 0x7F800000, 0x7FC00000  # the bits in float32


def word_of(value: int) -> UOp:
    """A constant word."""
    return UOp.const(dtypes.uint32, value)


def bit(condition: UOp) -> UOp:
    """1 where it holds, else 0."""
    return condition.where(word_of(1), 0)


def either(condition: UOp, yes: Parts, no: Parts) -> Parts:
    """One pair or the other."""
    return tuple(condition.where(a, b) for a, b in zip(yes, no, strict=True))


# ---- integers ------------------------------------------------------------------------------------


def sum_of(a: Parts, b: Parts) -> Parts:
    """The carry of the low words goes to the high one."""
    low = a[0] + b[0]
    carry = bit(low < a[0])
    return low, a[1] + b[1] + carry


def negated(a: Parts) -> Parts:
    """All bits inverted, plus 1."""
    return sum_of((~a[0], ~a[1]), (word_of(1), word_of(0)))


def product(a: Parts, b: Parts) -> Parts:
    """The product of the low words, in halves; products of a high and a low word count in the high
    word."""
    a0, a1 = a[0] & 0xFFFF, a[0] >> 16
    b0, b1 = b[0] & 0xFFFF, b[0] >> 16
    middle = a1 * b0 + ((a0 * b0) >> 16)
    other = a0 * b1 + (middle & 0xFFFF)
    high = a1 * b1 + (middle >> 16) + (other >> 16)
    return a[0] * b[0], high + a[0] * b[1] + a[1] * b[0]


def less(a: Parts, b: Parts, signed: bool) -> UOp:
    """Compares the high words, and if these are equal the low ones."""
    flip = SIGN if signed else 0
    a_high, b_high = a[1] ^ flip, b[1] ^ flip
    return (a_high < b_high) | (a_high.eq(b_high) & (a[0] < b[0]))


def left(a: Parts, amount: UOp) -> Parts:
    """Shifted left by less than 64."""
    within = amount & 31
    spilled = (a[0] >> 1) >> (within ^ 31)  # by 32 - within, which may be too much at once
    moved = a[0] << within
    near = amount < 32
    return near.where(moved, 0), near.where((a[1] << within) | spilled, moved)


def right(a: Parts, amount: UOp, signed: bool) -> Parts:
    """Shifted right by less than 64."""
    within = amount & 31
    spilled = (a[1] << 1) << (within ^ 31)
    low = (a[0] >> within) | spilled
    high, rest = a[1] >> within, word_of(0)
    if signed:
        high, rest = (signed_shift(a[1], by) for by in (within, word_of(31)))
    near = amount < 32
    return near.where(low, high), near.where(high, rest)


def signed_shift(high: UOp, amount: UOp) -> UOp:
    """A high word shifted right, with copies of its sign."""
    moved: UOp = high.bitcast(dtypes.int32) >> amount.bitcast(dtypes.int32)
    return moved.bitcast(dtypes.uint32)


def normalised(low: UOp, high: UOp) -> tuple[UOp, UOp, UOp]:
    """Shifted left until the highest bit is set, unless all are 0; and by how much."""
    amount = word_of(0)
    for step in (32, 16, 8, 4, 2, 1):
        small = high < (1 << (32 - step))
        low, high = either(small, left((low, high), word_of(step)), (low, high))
        amount = amount + small.where(word_of(step), 0)
    return low, high, amount


# ---- integers as floats --------------------------------------------------------------------------


def sized(low: UOp, high: UOp, signed: bool) -> tuple[UOp, UOp, UOp, UOp]:
    """An integer's sign bit, and its magnitude, normalised."""
    sign = high & (SIGN if signed else 0)
    if signed:
        low, high = either(sign.ne(0), negated((low, high)), (low, high))
    return (sign, *normalised(low, high))


def assembled(sign: UOp, exponent: UOp, top: UOp, rest: UOp) -> UOp:
    """A float32 from 32 bits whose highest is set, and a flag that tells whether non-zero bits
    follow; rounded to even. `exponent` is that of the highest bit, with float32's bias."""
    kept, odd = top >> 8, (top >> 8) & 1
    lost = ((top & 0xFF) << 1) | bit(rest.ne(0))
    up = bit(lost + odd > 0x100)
    size = ((exponent - 1) << 23) + kept + up  # the highest bit adds 1 to the exponent
    return size | sign


def rounded(low: UOp, high: UOp, signed: bool) -> UOp:
    """The float32 nearest to an integer."""
    sign, low, high, moved = sized(low, high, signed)
    bits = assembled(sign, BIAS32 + 63 - moved, high, low)
    return high.eq(0).where(0, bits).bitcast(dtypes.float32)


def widened(low: UOp, high: UOp, signed: bool) -> Parts:
    """The float64 nearest to an integer."""
    sign, low, high, moved = sized(low, high, signed)
    kept = right((low, high), word_of(11), False)
    lost = (low & 0x7FF) + (kept[0] & 1)
    up = bit(lost > 0x400)
    base = ((BIAS64 + 63 - 1 - moved) << 20) | sign
    size = sum_of(sum_of(kept, (up, word_of(0))), (word_of(0), base))
    return either(high.eq(0), (word_of(0), word_of(0)), size)


def truncated(value: UOp) -> Parts:
    """The integer part of a float32 below 2**63 (if unsigned, 2**64)."""
    bits = value.bitcast(dtypes.uint32)
    exponent, top = (bits >> 23) & 0xFF, (bits << 8) | SIGN
    is_fraction = exponent < BIAS32
    down = is_fraction.where(0, BIAS32 + 63 - exponent)
    size = right((word_of(0), top), down & 63, False)
    size = either(is_fraction, (word_of(0), word_of(0)), size)
    return either((bits >> 31).ne(0), negated(size), size)


# ---- floats as floats ----------------------------------------------------------------------------


def narrowed(low: UOp, high: UOp) -> UOp:
    """A float64 as the nearest float32."""
    sign, exponent, mantissa = high & SIGN, (high >> 20) & 0x7FF, high & 0xFFFFF
    rest, top = left((low, mantissa), word_of(11))
    top |= SIGN
    normal = assembled(sign, exponent - (BIAS64 - BIAS32), top, rest)
    # below the least normal number: shifted right, and rounded there
    down = BIAS64 - BIAS32 + 1 - exponent
    is_far = down > 31
    moved_rest, moved = right((word_of(0), top), is_far.where(31, down), False)
    small = assembled(sign, word_of(1), is_far.where(0, moved), moved_rest | rest)
    size = (exponent < BIAS64 - BIAS32 + 1).where(small, normal)
    size = (exponent > BIAS64 + BIAS32).where(sign | INFINITY, size)
    is_nan = exponent.eq(0x7FF) & (mantissa | low).ne(0)
    return is_nan.where(NAN, size).bitcast(dtypes.float32)


def from_single(value: UOp) -> Parts:
    """The float64 that equals a float32."""
    bits = value.bitcast(dtypes.uint32)
    sign, exponent, mantissa = bits & SIGN, (bits >> 23) & 0xFF, bits & 0x7FFFFF
    _, top, moved = normalised(word_of(0), mantissa)  # of a subnormal number
    is_small = exponent.eq(0)
    mantissa = is_small.where((top << 1) >> 9, mantissa)
    subnormal = top.eq(0).where(0, BIAS64 - BIAS32 + 1 + 8 - moved)
    wide = exponent.eq(0xFF).where(0x7FF, exponent + (BIAS64 - BIAS32))
    wide = is_small.where(subnormal, wide)
    return mantissa << 29, (wide << 20) | (mantissa >> 3) | sign


# ---- the program ---------------------------------------------------------------------------------


def _fold(op: Ops, dtype: DType, src: Parts) -> UOp | None:
    """The result, if it needs no instruction: constants, and words that are all zeros."""
    if op in GroupOp.ALU and all(s.op is Ops.CONST for s in src):
        return UOp.const(dtype, evaluate(op, dtype, *(s.arg for s in src)))
    if op is Ops.WHERE and src[0].op is Ops.CONST:
        return src[1] if src[0].arg else src[2]
    if op is Ops.WHERE and src[1] is src[2]:
        return src[1]
    if len(src) != 2 or not any(s.op is Ops.CONST for s in src):
        return None
    a, b = src
    zero, one = UOp.const(a.dtype, 0), UOp.const(a.dtype, 1)
    if op in (Ops.ADD, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR) and b is zero:
        return a
    if op in (Ops.ADD, Ops.OR, Ops.XOR) and a is zero:
        return b
    if op in (Ops.MUL, Ops.AND) and zero in src:
        return zero
    if op in (Ops.SHL, Ops.SHR) and a is zero:
        return zero
    if op is Ops.MUL and one in src:
        return b if a is one else a
    return None


class Rewriting:
    """The program so far. A node that was placed in a scope which is closed by now gets a twin with
    another tag."""

    def __init__(self) -> None:
        self.out: list[UOp] = []
        self.scopes: list[dict[UOp, UOp]] = [{}]  # what can be used: each node, or its twin
        self.times: dict[UOp, int] = {}  # how often each was placed
        self.loops = 0

    def place(self, node: UOp) -> UOp:
        """`node`, or its twin, which can be used from here on."""
        if node.op in EFFECTS:
            self.out.append(node)
            self.scopes[-1][node] = node
            return node
        for scope in self.scopes:
            if node in scope:
                return scope[node]
        times = self.times.get(node, 0)
        self.times[node] = times + 1
        tag = ("twin", times, node.tag) if times else node.tag
        made = UOp(node.op, node.dtype, node.src, node.arg, tag)
        self.scopes[-1] |= {node: made, made: made}
        self.out.append(made)
        return made

    def do(self, op: Ops, dtype: DType, *src: UOp, arg: object = None) -> UOp:
        """An instruction, unless the result is known."""
        folded = _fold(op, dtype, src) if arg is None else None
        return folded if folded is not None else self.place(UOp(op, dtype, src, arg))

    def placed(self, value: UOp) -> UOp:
        """An expression of available nodes, as instructions."""
        done: ChainMap[UOp, UOp] = ChainMap({}, *self.scopes)
        for node in value.toposort(stop=done):
            if node not in done and node.src:
                src = (done.get(s, s) for s in node.src)
                done[node] = self.do(node.op, node.dtype, *src, arg=node.arg)
        return done.get(value, value)

    def all_placed(self, parts: Iterable[UOp]) -> Parts:
        return tuple(map(self.placed, parts))

    def outer(self, node: UOp) -> UOp:
        """Placed here, and available after this loop."""
        made = self.scopes[-2][node] = self.place(node)
        return made

    def closed(self, node: UOp) -> Parts:
        self.scopes.pop()
        self.place(node)
        return ()

    def divided(self, a: Parts, b: Parts) -> tuple[Parts, Parts]:
        """Quotient and remainder of unsigned numbers: one bit of the quotient a turn."""
        self.loops += 1
        begin, end = (UOp.const(dtypes.index, turn) for turn in (0, 64))
        number = ("divide", self.loops)
        starts, b = (*self.all_placed(a), word_of(0), word_of(0)), self.all_placed(b)
        loop = self.place(UOp(Ops.RANGE, dtypes.index, (begin, end), number))
        self.scopes.append({})
        carries = tuple(
            self.outer(UOp(Ops.CARRY, dtypes.uint32, (start, loop), (*number, i)))
            for i, start in enumerate(starts)
        )
        quotient, rest = carries[:2], carries[2:]
        low, high = left(rest, word_of(1))
        shifted = low | (quotient[1] >> 31), high
        spilled = (rest[1] >> 31).ne(0)
        fits = spilled | less(shifted, b, False).logical_not()
        rest_next = either(fits, sum_of(shifted, negated(b)), shifted)
        doubled = left(quotient, word_of(1))
        following = (doubled[0] | bit(fits), doubled[1], *rest_next)
        pairs = [
            part
            for carry, new in zip(carries, following, strict=True)
            for part in (carry, self.placed(new))
        ]
        self.closed(UOp(Ops.END, dtypes.void, (loop, *pairs)))
        return quotient, rest
