"""64-bit numbers as two words of 32 bits, in a linear program while it is written anew: what one
learns at school, the low word first."""

from __future__ import annotations

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops, evaluate

Parts = tuple[UOp, ...]
"""What a value became: itself, a number that fits 32 bits, or its low and high word."""

EFFECTS = frozenset(
    (Ops.RANGE, Ops.END, Ops.IF, Ops.ENDIF, Ops.STORE, Ops.FAULT, Ops.BARRIER, Ops.PREFETCH)
)


def word_of(value: int) -> UOp:
    """A constant word."""
    return UOp.const(dtypes.uint32, value)


def _fold(op: Ops, dtype: DType, src: Parts) -> UOp | None:
    """What needs no instruction: constants, and words that are all zeros."""
    if op in GroupOp.ALU and all(s.op is Ops.CONST for s in src):
        return UOp.const(dtype, evaluate(op, dtype, *(s.arg for s in src)))
    if op is Ops.WHERE and src[0].op is Ops.CONST:
        return src[1] if src[0].arg else src[2]
    if op is Ops.WHERE and src[1] is src[2]:
        return src[1]
    if len(src) != 2 or not any(s.op is Ops.CONST for s in src):
        return None
    (a, b) = src
    zero = UOp.const(a.dtype, 0)
    if op in (Ops.ADD, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR) and b is zero:
        return a
    if op in (Ops.ADD, Ops.OR, Ops.XOR) and a is zero:
        return b
    if op in (Ops.MUL, Ops.AND) and zero in src:
        return zero
    if op in (Ops.SHL, Ops.SHR) and a is zero:
        return zero
    one = UOp.const(a.dtype, 1)
    if op is Ops.MUL and one in src:
        return b if a is one else a
    return None


class PairArithmetic:
    """The program so far, and instructions on words and pairs of them. A node that was placed in a
    scope which is closed gets a twin with another tag."""

    def __init__(self) -> None:
        self.out: list[UOp] = []
        self.scopes: list[dict[UOp, UOp]] = [{}]  # what is at hand: each node, or its twin
        self.placed: dict[UOp, int] = {}  # how often
        self.serial = 0

    # ---- placing ---------------------------------------------------------------------------------

    def place(self, node: UOp) -> UOp:
        """`node`, or its twin, which can be used from here on."""
        if node.op in EFFECTS:
            self.out.append(node)
            return node
        for scope in self.scopes:
            if node in scope:
                return scope[node]
        times = self.placed.get(node, 0)
        self.placed[node] = times + 1
        tag = ("twin", times, node.tag) if times else node.tag
        made = self.scopes[-1][node] = UOp(node.op, node.dtype, node.src, node.arg, tag)
        self.out.append(made)
        return made

    def do(self, op: Ops, dtype: DType, *src: UOp, arg: object = None) -> UOp:
        """An instruction, unless the result is known."""
        folded = _fold(op, dtype, src) if arg is None else None
        return folded if folded is not None else self.place(UOp(op, dtype, src, arg))

    def word(self, op: Ops, *src: UOp | int) -> UOp:
        """Arithmetic of uint32."""
        return self.do(op, dtypes.uint32, *(word_of(s) if isinstance(s, int) else s for s in src))

    def test(self, op: Ops, *src: UOp | int) -> UOp:
        """A comparison of uint32, or AND and OR of bools."""
        nodes = [word_of(s) if isinstance(s, int) else s for s in src]
        return self.do(op, dtypes.bool, *nodes)

    def choose(self, condition: UOp, yes: UOp | int, no: UOp | int) -> UOp:
        return self.word(Ops.WHERE, condition, yes, no)

    def outer(self, node: UOp) -> UOp:
        """Placed here, and at hand after this loop."""
        made = self.scopes[-2][node] = self.place(node)
        return made

    def closed(self, node: UOp) -> Parts:
        self.scopes.pop()
        self.place(node)
        return ()

    # ---- arithmetic of pairs ---------------------------------------------------------------------

    def sum(self, a: Parts, b: Parts) -> Parts:
        low = self.word(Ops.ADD, a[0], b[0])
        carry = self.choose(self.test(Ops.CMPLT, low, a[0]), 1, 0)
        return low, self.word(Ops.ADD, self.word(Ops.ADD, a[1], b[1]), carry)

    def negated(self, a: Parts) -> Parts:
        low, high = (self.word(Ops.XOR, part, 0xFFFFFFFF) for part in a)
        return self.sum((low, high), (word_of(1), word_of(0)))

    def product(self, a: Parts, b: Parts) -> Parts:
        """Of the low words in halves; the high words meet the low ones in the high word."""
        word = self.word
        (a0, a1), (b0, b1) = (
            (word(Ops.AND, x[0], 0xFFFF), word(Ops.SHR, x[0], 16)) for x in (a, b)
        )
        lowest = word(Ops.MUL, a0, b0)
        middle = word(Ops.ADD, word(Ops.MUL, a1, b0), word(Ops.SHR, lowest, 16))
        other = word(Ops.ADD, word(Ops.MUL, a0, b1), word(Ops.AND, middle, 0xFFFF))
        high = word(Ops.ADD, word(Ops.MUL, a1, b1), word(Ops.SHR, middle, 16))
        high = word(Ops.ADD, high, word(Ops.SHR, other, 16))
        for x, y in ((a[0], b[1]), (a[1], b[0])):
            high = word(Ops.ADD, high, word(Ops.MUL, x, y))
        return word(Ops.MUL, a[0], b[0]), high

    def less(self, a: Parts, b: Parts, signed: bool) -> UOp:
        flip = 0x80000000 if signed else 0
        top = [self.word(Ops.XOR, x[1], flip) for x in (a, b)]
        low = self.test(Ops.CMPLT, a[0], b[0])
        same = self.test(Ops.AND, self.test(Ops.CMPEQ, *top), low)
        return self.test(Ops.OR, self.test(Ops.CMPLT, *top), same)

    def left(self, a: Parts, amount: UOp) -> Parts:
        """Moved up by less than 64."""
        within = self.word(Ops.AND, amount, 31)
        back = self.word(Ops.XOR, within, 31)
        spilled = self.word(Ops.SHR, self.word(Ops.SHR, a[0], 1), back)
        moved = self.word(Ops.SHL, a[0], within)
        high = self.word(Ops.OR, self.word(Ops.SHL, a[1], within), spilled)
        near = self.test(Ops.CMPLT, amount, 32)
        return self.choose(near, moved, 0), self.choose(near, high, moved)

    def right(self, a: Parts, amount: UOp, signed: bool) -> Parts:
        """Moved down by less than 64."""
        within = self.word(Ops.AND, amount, 31)
        back = self.word(Ops.XOR, within, 31)
        spilled = self.word(Ops.SHL, self.word(Ops.SHL, a[1], 1), back)
        low = self.word(Ops.OR, self.word(Ops.SHR, a[0], within), spilled)
        high, rest = self.word(Ops.SHR, a[1], within), word_of(0)
        if signed:
            high, rest = (self.signed_shift(a[1], by) for by in (within, word_of(31)))
        near = self.test(Ops.CMPLT, amount, 32)
        return self.choose(near, low, high), self.choose(near, high, rest)

    def signed_shift(self, high: UOp, amount: UOp) -> UOp:
        signed = self.do(Ops.BITCAST, dtypes.int32, high)
        moved = self.do(Ops.SHR, dtypes.int32, signed, self.do(Ops.BITCAST, dtypes.int32, amount))
        return self.do(Ops.BITCAST, dtypes.uint32, moved)

    def divided(self, a: Parts, b: Parts) -> tuple[Parts, Parts]:
        """Quotient and remainder of numbers without a sign: a bit of the quotient a turn."""
        self.serial += 1
        zero, number = UOp.const(dtypes.index, 0), ("divide", self.serial)
        loop = self.place(UOp(Ops.RANGE, dtypes.index, (zero, UOp.const(dtypes.index, 64)), number))
        self.scopes.append({})
        starts = (*a, word_of(0), word_of(0))
        carries = tuple(
            self.outer(UOp(Ops.CARRY, dtypes.uint32, (start, loop), (*number, i)))
            for i, start in enumerate(starts)
        )
        quotient, rest = carries[:2], carries[2:]
        one = word_of(1)
        top, spilled = (self.word(Ops.SHR, x, 31) for x in (quotient[1], rest[1]))
        low, high = self.left(rest, one)
        shifted = self.word(Ops.OR, low, top), high
        over = self.test(Ops.CMPNE, spilled, 0)
        fits = self.test(Ops.CMPEQ, self.choose(self.less(shifted, b, False), 1, 0), 0)
        taken = self.test(Ops.OR, over, fits)
        without = self.sum(shifted, self.negated(b))
        rest_next = [self.choose(taken, x, y) for x, y in zip(without, shifted, strict=True)]
        doubled = self.left(quotient, one)
        bit = self.choose(taken, 1, 0)
        following = (self.word(Ops.OR, doubled[0], bit), doubled[1], *rest_next)
        pairs = [part for both in zip(carries, following, strict=True) for part in both]
        self.closed(UOp(Ops.END, dtypes.void, (loop, *pairs)))
        return quotient, rest

    def either(self, condition: UOp, yes: Parts, no: Parts) -> Parts:
        return tuple(self.choose(condition, a, b) for a, b in zip(yes, no, strict=True))

    # ---- floats ----------------------------------------------------------------------------------

    def normalised(self, low: UOp, high: UOp) -> tuple[UOp, UOp, UOp]:
        """Moved up until the highest bit is set, unless all are 0, and by how much."""
        amount = word_of(0)
        for step in (32, 16, 8, 4, 2, 1):
            small = self.test(Ops.CMPLT, high, 1 << (32 - step))
            low, high = self.either(small, self.left((low, high), word_of(step)), (low, high))
            amount = self.word(Ops.ADD, amount, self.choose(small, step, 0))
        return low, high, amount

    def sized(self, low: UOp, high: UOp, signed: bool) -> tuple[UOp, UOp, UOp, UOp]:
        """An integer's sign bit, and its size, normalised."""
        sign = self.word(Ops.AND, high, 0x80000000 if signed else 0)
        if signed:
            is_less = self.test(Ops.CMPNE, sign, 0)
            low, high = self.either(is_less, self.negated((low, high)), (low, high))
        return (sign, *self.normalised(low, high))

    def assembled(self, sign: UOp, exponent: UOp, top: UOp, rest: UOp) -> UOp:
        """A float32 of 32 bits whose highest is set, and whether bits follow that are not 0;
        rounded to even. `exponent` is that of the highest bit, with float32's bias."""
        sticky = self.choose(self.test(Ops.CMPNE, rest, 0), 1, 0)
        kept = self.word(Ops.SHR, top, 8)
        lost = self.word(Ops.OR, self.word(Ops.SHL, self.word(Ops.AND, top, 0xFF), 1), sticky)
        odd = self.word(Ops.AND, kept, 1)
        up = self.choose(self.test(Ops.CMPLT, 0x100, self.word(Ops.ADD, lost, odd)), 1, 0)
        base = self.word(Ops.SHL, self.word(Ops.ADD, exponent, 0xFFFFFFFF), 23)
        size = self.word(Ops.ADD, self.word(Ops.ADD, base, kept), up)
        return self.word(Ops.OR, size, sign)

    def rounded(self, low: UOp, high: UOp, signed: bool) -> UOp:
        """The float32 nearest to an integer."""
        sign, low, high, moved = self.sized(low, high, signed)
        exponent = self.word(Ops.ADD, 127 + 63, self.minus(moved))
        bits = self.assembled(sign, exponent, high, low)
        none = self.test(Ops.CMPEQ, high, 0)
        return self.do(Ops.BITCAST, dtypes.float32, self.choose(none, 0, bits))

    def widened(self, low: UOp, high: UOp, signed: bool) -> Parts:
        """The float64 nearest to an integer."""
        sign, low, high, moved = self.sized(low, high, signed)
        exponent = self.word(Ops.ADD, 1023 + 63 - 1, self.minus(moved))
        kept = self.right((low, high), word_of(11), False)
        lost = self.word(Ops.ADD, self.word(Ops.AND, low, 0x7FF), self.word(Ops.AND, kept[0], 1))
        up = self.choose(self.test(Ops.CMPLT, 0x400, lost), 1, 0)
        base = self.word(Ops.OR, self.word(Ops.SHL, exponent, 20), sign)
        size = self.sum(self.sum(kept, (up, word_of(0))), (word_of(0), base))
        none = self.test(Ops.CMPEQ, high, 0)
        return self.either(none, (word_of(0), word_of(0)), size)

    def truncated(self, value: UOp) -> Parts:
        """The whole part of a float32 below 2**63 (of an unsigned one 2**64)."""
        bits = self.do(Ops.BITCAST, dtypes.uint32, value)
        exponent = self.word(Ops.AND, self.word(Ops.SHR, bits, 23), 0xFF)
        top = self.word(Ops.OR, self.word(Ops.SHL, bits, 8), 0x80000000)
        is_less = self.test(Ops.CMPLT, exponent, 127)
        down = self.choose(is_less, 0, self.word(Ops.ADD, 190, self.minus(exponent)))
        size = self.right((word_of(0), top), self.word(Ops.AND, down, 63), False)
        size = self.either(is_less, (word_of(0), word_of(0)), size)
        sign = self.test(Ops.CMPNE, self.word(Ops.SHR, bits, 31), 0)
        return self.either(sign, self.negated(size), size)

    def minus(self, value: UOp) -> UOp:
        return self.word(Ops.ADD, self.word(Ops.XOR, value, 0xFFFFFFFF), 1)

    def narrowed(self, parts: Parts) -> UOp:
        """A float64 as the nearest float32."""
        low, high = parts
        sign = self.word(Ops.AND, high, 0x80000000)
        wide = self.word(Ops.AND, self.word(Ops.SHR, high, 20), 0x7FF)
        mantissa = self.word(Ops.AND, high, 0xFFFFF)
        top, rest = self.left((low, mantissa), word_of(11))[::-1]
        top = self.word(Ops.OR, top, 0x80000000)
        exponent = self.word(Ops.ADD, wide, self.minus(word_of(1023 - 127)))
        normal = self.assembled(sign, exponent, top, rest)
        # below the least normal number: moved down, and rounded there
        down = self.word(Ops.ADD, 1023 - 127 + 1, self.minus(wide))
        far = self.test(Ops.CMPLT, 31, down)
        within = self.choose(far, 31, down)
        moved_top, moved_rest = self.right((word_of(0), top), within, False)[::-1]
        lost = self.word(Ops.OR, moved_rest, rest)
        small = self.assembled(sign, word_of(1), self.choose(far, 0, moved_top), lost)
        size = self.choose(self.test(Ops.CMPLT, wide, 1023 - 126), small, normal)
        over = self.word(Ops.OR, sign, 0x7F800000)
        size = self.choose(self.test(Ops.CMPLT, 1023 + 127, wide), over, size)
        digits = self.test(Ops.CMPNE, self.word(Ops.OR, mantissa, low), 0)
        is_nan = self.test(Ops.AND, self.test(Ops.CMPEQ, wide, 0x7FF), digits)
        size = self.choose(is_nan, 0x7FC00000, size)
        return self.do(Ops.BITCAST, dtypes.float32, size)

    def from_single(self, value: UOp) -> Parts:
        """The float64 that equals a float32."""
        bits = self.do(Ops.BITCAST, dtypes.uint32, value)
        sign = self.word(Ops.AND, bits, 0x80000000)
        exponent = self.word(Ops.AND, self.word(Ops.SHR, bits, 23), 0xFF)
        mantissa = self.word(Ops.AND, bits, 0x7FFFFF)
        _, top, moved = self.normalised(word_of(0), mantissa)  # of a subnormal number
        small = self.test(Ops.CMPEQ, exponent, 0)
        subnormal = self.word(Ops.SHR, self.word(Ops.SHL, top, 1), 9)
        mantissa = self.choose(small, subnormal, mantissa)
        shifted = self.word(Ops.ADD, 1023 - 126 + 8, self.minus(moved))
        wide = self.word(Ops.ADD, exponent, 1023 - 127)
        wide = self.choose(self.test(Ops.CMPEQ, exponent, 0xFF), 0x7FF, wide)
        none = self.test(Ops.CMPEQ, top, 0)
        wide = self.choose(small, self.choose(none, 0, shifted), wide)
        high = self.word(Ops.OR, self.word(Ops.SHL, wide, 20), self.word(Ops.SHR, mantissa, 3))
        return self.word(Ops.SHL, mantissa, 29), self.word(Ops.OR, high, sign)
