"""64-bit numbers as pairs of 32-bit words, for targets whose widest integer has 32 bits.

This pass takes a linear program and returns one. If bounds prove that a 64-bit integer or an
`index` fits 32 bits, it stays one number, of dtype index, so addresses and loop counters cost no
more than elsewhere. Any other becomes two uint32, the low word first, with arithmetic as taught in
school. Instructions whose results nothing reads are removed at the end. These are mostly high
words, because an address needs only the low one: it may wrap, as memory is smaller than 2**32
bytes.

A float64 can be moved, chosen, and converted to and from float32. Arithmetic on it is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.base.target import Target
from tinygrad.codegen.linear import HEAD
from tinygrad.codegen.numbers.pairs import (
    EFFECTS,
    Parts,
    Rewriting,
    either,
    from_single,
    left,
    less,
    narrowed,
    negated,
    product,
    right,
    rounded,
    signed_shift,
    sum_of,
    truncated,
    widened,
    word_of,
)
from tinygrad.uop.bounds import Interval, interval_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, bit_cast

LONG = frozenset((dtypes.int64, dtypes.uint64, dtypes.index))
WIDE = LONG | {dtypes.float64}
LEAST, MOST = dtypes.min(dtypes.int32), dtypes.max(dtypes.int32)


def in_words(program: Sequence[UOp], target: Target) -> Sequence[UOp]:
    """The same program without int64, uint64 and float64, and each `index` within 32 bits.
    DTypeError for arithmetic of float64."""
    if target.widest_integer >= 64:
        return program
    walk = _Walk(program)
    for node in program:
        walk.visit(node)
    return _used(walk.out)


def _used(program: Sequence[UOp]) -> list[UOp]:
    """The program without what nothing reads."""
    wanted: set[UOp] = set()
    kept = []
    for node in reversed(program):
        if node in wanted or node.op in EFFECTS or node.op in (Ops.PARAM, Ops.DEFINE_VAR):
            kept.append(node)
            wanted.update(node.src)
    return kept[::-1]


class _Walk(Rewriting):
    """The program while it is rewritten."""

    def __init__(self, program: Sequence[UOp]) -> None:
        super().__init__()
        self.parts: dict[UOp, Parts] = {}
        self.known: dict[UOp, Interval] = {}
        ends = (node for node in program if node.op is Ops.END)
        self.carried = {end.src[0]: end.src[1::2] for end in ends}

    # ---- parts -----------------------------------------------------------------------------------

    def interval(self, node: UOp) -> Interval:
        """The interval of a scalar."""
        if node.op is Ops.CONST:
            return node.arg, node.arg
        whole = dtypes.min(node.dtype.scalar()), dtypes.max(node.dtype.scalar())
        return self.known.get(node, whole)

    def learn(self, node: UOp) -> None:
        """Derives the bounds of a node from those of its sources."""
        if node.dtype.count > 1 or node.op in (Ops.LOAD, Ops.CARRY, Ops.PARAM, Ops.INDEX):
            return
        if not (dtypes.is_int(node.dtype) or node.dtype is dtypes.bool):
            return
        sources = [self.interval(s) for s in node.src]
        if node.op is Ops.RANGE:
            begin, end = sources
            self.known[node] = begin[0], max(end[1] - 1, begin[0])
        else:
            self.known[node] = interval_of(node, sources)

    def fits(self, node: UOp) -> bool:
        """Whether a 64-bit integer certainly fits 32 bits."""
        if node.dtype not in LONG:
            return False
        low, high = self.interval(node)
        return bool(low >= LEAST and high <= MOST)

    def of(self, node: UOp) -> Parts:
        """The parts that replace a node."""
        found = self.parts.get(node)
        if found is None:
            assert node.op is Ops.CONST, f"{node.op!r} is used before it is in the program"
            found = self.parts[node] = self.constant(node)
        return found

    def constant(self, node: UOp) -> Parts:
        if node.dtype not in WIDE:
            return (node,)
        if self.fits(node):
            return (UOp.const(dtypes.index, node.arg),)
        is_float = node.dtype is dtypes.float64
        bits = bit_cast(node.arg, dtypes.float64, dtypes.uint64) if is_float else node.arg
        return word_of(int(bits) & 0xFFFFFFFF), word_of(int(bits) >> 32 & 0xFFFFFFFF)

    def one(self, node: UOp) -> UOp:
        """A value as a single part; of a pair, the low word as a number, for uses that need no
        more."""
        parts = self.of(node)
        return parts[0] if len(parts) == 1 else self.number(parts[0])

    def number(self, low: UOp) -> UOp:
        """A low word as an index."""
        return self.placed(low.bitcast(dtypes.int32).cast(dtypes.index))

    def pair(self, node: UOp) -> Parts:
        """The low and the high word of a 64-bit number."""
        parts = self.of(node)
        if len(parts) == 2:
            return parts
        (value,) = parts
        if value.op is Ops.CONST:
            return word_of(value.arg & 0xFFFFFFFF), word_of(0xFFFFFFFF if value.arg < 0 else 0)
        signed = value.cast(dtypes.int32)
        low = self.placed(signed.bitcast(dtypes.uint32))
        if self.interval(node)[0] >= 0:
            return low, word_of(0)
        return low, self.placed((signed >> 31).bitcast(dtypes.uint32))

    # ---- the walk --------------------------------------------------------------------------------

    def visit(self, node: UOp) -> None:
        if node.dtype.count > 1:
            raise ArgumentError(
                f"{node.op.name.lower()} of {node.dtype.name}: the device computes one number at a "
                "time; legal are recipes without VECTOR"
            )
        if node.op is Ops.CONST:
            return
        self.learn(node)
        rule = RULES.get(node.op)
        if rule is not None:
            self.parts[node] = self.all_placed(rule(self, node))
            return
        wide = [s for s in node.src if s.dtype in WIDE]
        if node.op in HEAD or not (wide or node.dtype in WIDE):
            self.parts[node] = (self.rebuilt(node),)
        elif all(len(self.of(s)) == 1 for s in wide) and (
            node.dtype not in LONG or self.fits(node)
        ):
            dtype = dtypes.index if node.dtype in LONG else node.dtype
            self.parts[node] = (self.do(node.op, dtype, *map(self.one, node.src), arg=node.arg),)
        else:
            arithmetic = ARITHMETIC.get(node.op)
            if arithmetic is None or dtypes.float64 in (node.dtype, *(s.dtype for s in node.src)):
                raise _no_float64(node)
            self.parts[node] = self.all_placed(self.kept(node, arithmetic(self, node)))

    def rebuilt(self, node: UOp) -> UOp:
        """The node with its sources replaced."""
        return self.place(node.with_src(tuple(map(self.one, node.src))))

    def kept(self, node: UOp, found: Parts) -> Parts:
        """A pair as one number, if it fits."""
        return (self.number(found[0]),) if len(found) == 2 and self.fits(node) else found

    # ---- memory ----------------------------------------------------------------------------------

    def memory(self, node: UOp) -> Parts:
        name, size = node.arg
        if node.dtype not in WIDE:
            return (self.place(node),)
        return (self.place(UOp(node.op, dtypes.uint32, (), (name, 2 * size), node.tag)),)

    def variable(self, node: UOp) -> Parts:
        """A variable that doesn't fit 32 bits is passed as two words."""
        if self.fits(node):
            return (self.place(UOp(node.op, dtypes.index, (), node.arg, node.tag)),)
        if node.dtype not in WIDE:
            return (self.place(node),)
        whole = self.place(UOp(node.op, dtypes.int64, (), node.arg, node.tag))
        words = self.do(Ops.BITCAST, dtypes.uint32.vec(2), whole)
        return tuple(self.do(Ops.GEP, dtypes.uint32, words, arg=i) for i in range(2))

    def index(self, node: UOp) -> Parts:
        pointer, offset = self.of(node.src[0])[0], self.one(node.src[1])
        if node.src[0].dtype in WIDE:
            offset = self.do(Ops.MUL, dtypes.index, offset, UOp.const(dtypes.index, 2))
        return (self.place(UOp(Ops.INDEX, pointer.dtype, (pointer, offset), 1)),)

    def places(self, pointer: UOp) -> Parts:
        """The places of both words."""
        low = self.of(pointer)[0]
        one = UOp.const(dtypes.index, 1)
        return low, self.place(UOp(Ops.INDEX, low.dtype, (low, one), 1))

    def load(self, node: UOp) -> Parts:
        masks = [self.one(mask) for mask in node.src[1:]]
        if node.dtype not in WIDE:
            return (self.place(node.with_src((self.of(node.src[0])[0], *masks))),)
        alignment, serial = node.arg
        arg = (min(4, alignment), serial)
        return tuple(
            self.place(UOp(Ops.LOAD, dtypes.uint32, (place, *masks), arg))
            for place in self.places(node.src[0])
        )

    def store(self, node: UOp) -> Parts:
        pointer, value = node.src[:2]
        masks = [self.one(mask) for mask in node.src[2:]]
        if pointer.dtype not in WIDE:
            src = (self.of(pointer)[0], self.one(value), *masks)
            return (self.place(node.with_src(src)),)
        alignment, hint = node.arg
        for place, word in zip(self.places(pointer), self.pair(value), strict=True):
            self.place(
                UOp(Ops.STORE, dtypes.void, (place, word, *masks), (min(4, alignment), hint))
            )
        return ()

    def fault(self, node: UOp) -> Parts:
        """The fault words are 64-bit, too: the high half of the code, then those of the
        operands."""
        pointer, failed, *operands = node.src
        words = [word for operand in operands for word in self.pair(operand)]
        src = (self.of(pointer)[0], self.one(failed), word_of(0), *words)
        self.place(node.with_src(src))
        return ()

    # ---- loops -----------------------------------------------------------------------------------

    def range(self, node: UOp) -> Parts:
        assert all(self.fits(s) for s in node.src), "a loop of more than 2**31 turns"
        for carry in self.carried[node]:  # their initial values are placed before the loop
            initial = carry.src[0]
            wide = carry.dtype in WIDE
            self.parts[carry] = self.pair(initial) if wide else self.of(initial)
        return self.branch(node)

    def branch(self, node: UOp) -> Parts:
        made = self.rebuilt(node)
        self.scopes.append({})
        return (made,)

    def carry(self, node: UOp) -> Parts:
        (loop,) = self.of(node.src[1])
        return tuple(
            self.outer(UOp(Ops.CARRY, first.dtype, (first, loop), (node.arg, i)))
            for i, first in enumerate(self.parts[node])
        )

    def end(self, node: UOp) -> Parts:
        pairs: list[UOp] = []
        for carry, following in zip(node.src[1::2], node.src[2::2], strict=True):
            new = self.pair(following) if carry.dtype in WIDE else self.of(following)
            pairs += [part for both in zip(self.of(carry), new, strict=True) for part in both]
        return self.closed(UOp(node.op, node.dtype, (self.of(node.src[0])[0], *pairs)))

    def ended(self, node: UOp) -> Parts:
        return self.closed(UOp(node.op, node.dtype, self.of(node.src[0])))

    # ---- casts -----------------------------------------------------------------------------------

    def cast(self, node: UOp) -> Parts:
        source, new = node.src[0], node.dtype
        old = source.dtype
        if dtypes.float64 in (old, new):
            return self.cast_float64(node)
        if new in LONG:
            return self.cast_to_long(node, source)
        if old not in LONG or len(self.of(source)) == 1:
            return (self.one(source).cast(new),)
        low, high = self.pair(source)
        if dtypes.is_float(new):
            return (rounded(low, high, old is not dtypes.uint64).cast(new),)
        return (low.cast(new),)

    def cast_to_long(self, node: UOp, source: UOp) -> Parts:
        if source.dtype in LONG:
            return (self.one(source),) if self.fits(node) else self.pair(source)
        (value,) = self.of(source)
        if dtypes.is_float(source.dtype):
            return truncated(value.cast(dtypes.float32))
        if self.fits(node):
            return (value.cast(dtypes.index),)
        word = value.cast(dtypes.uint32)
        if self.interval(source)[0] >= 0:
            return word, word_of(0)
        signed = value.cast(dtypes.int32)  # a negative one that becomes unsigned
        return word, signed_shift(signed.bitcast(dtypes.uint32), word_of(31))

    def cast_float64(self, node: UOp) -> Parts:
        (source,) = node.src
        if node.dtype is dtypes.float32:
            return (narrowed(*self.pair(source)),)
        if node.dtype is not dtypes.float64:
            raise _no_float64(node)
        if source.dtype is dtypes.float64:
            return self.pair(source)
        if dtypes.is_float(source.dtype):
            return from_single(self.one(source).cast(dtypes.float32))
        signed = not dtypes.is_unsigned(source.dtype)
        whole = source if source.dtype in LONG else source.cast(dtypes.int64)
        if whole is not source:
            self.learn(whole)
            self.parts[whole] = self.all_placed(self.cast_to_long(whole, source))
        low, high = self.pair(whole)
        return widened(low, high, signed)

    def bitcast(self, node: UOp) -> Parts:
        source, new = node.src[0], node.dtype
        if source.dtype in WIDE and new in WIDE:
            return self.kept(node, self.pair(source))
        return (self.one(source).bitcast(new),)

    # ---- arithmetic of nodes ---------------------------------------------------------------------

    def pairs(self, node: UOp) -> list[Parts]:
        return [self.pair(s) for s in node.src]

    def add(self, node: UOp) -> Parts:
        return sum_of(*self.pairs(node))

    def multiply(self, node: UOp) -> Parts:
        found = product(*self.pairs(node)[:2])
        return found if node.op is Ops.MUL else sum_of(found, self.pair(node.src[2]))

    def bits(self, node: UOp) -> Parts:
        return tuple(a.alu(node.op, b) for a, b in zip(*self.pairs(node), strict=True))

    def quotient(self, node: UOp) -> Parts:
        """IDIV and MOD, rounded towards zero."""
        sizes, signs = [], []
        for source in node.src:
            value, low = self.pair(source), self.interval(source)[0]
            sign = (value[1] >> 31).ne(0) if low < 0 else None
            sizes.append(value if sign is None else either(sign, negated(value), value))
            signs.append(sign)
        divided, rest = self.divided(*sizes)
        sign = signs[0]
        if node.op is Ops.IDIV and signs[1] is not None:
            sign = signs[1] if sign is None else sign.ne(signs[1])
        found = divided if node.op is Ops.IDIV else rest
        return found if sign is None else either(sign, negated(found), found)

    def shift(self, node: UOp) -> Parts:
        value, (amount, _) = self.pairs(node)
        if node.op is Ops.SHL:
            return left(value, amount)
        return right(value, amount, node.dtype is not dtypes.uint64)

    def compare(self, node: UOp) -> Parts:
        a, b = self.pairs(node)
        if node.op is Ops.CMPLT:
            return (less(a, b, node.src[0].dtype is not dtypes.uint64),)
        low, high = (x.alu(node.op, y) for x, y in zip(a, b, strict=True))
        return (low | high if node.op is Ops.CMPNE else low & high,)

    def where(self, node: UOp) -> Parts:
        condition, yes, no = node.src
        if len(self.of(yes)) == len(self.of(no)) == 1:
            return (self.one(condition).where(self.one(yes), self.one(no)),)
        return self.kept(node, either(self.one(condition), self.pair(yes), self.pair(no)))

    def maximum(self, node: UOp) -> Parts:
        a, b = self.pairs(node)
        return either(less(a, b, node.dtype is not dtypes.uint64), b, a)

    def exchange(self, node: UOp) -> Parts:
        return tuple(self.do(node.op, w.dtype, w, arg=node.arg) for w in self.pair(node.src[0]))


def _no_float64(node: UOp) -> DTypeError:
    return DTypeError(
        f"{node.op.name.lower()} of float64: the device has no numbers of 64 bits; legal are "
        "moving and choosing them, and .float() or .cast(dtypes.float32), which it computes with"
    )


RULES: dict[Ops, Callable[[_Walk, UOp], Parts]] = {
    Ops.PARAM: _Walk.memory,
    Ops.LOCAL: _Walk.memory,
    Ops.DEFINE_VAR: _Walk.variable,
    Ops.INDEX: _Walk.index,
    Ops.LOAD: _Walk.load,
    Ops.STORE: _Walk.store,
    Ops.FAULT: _Walk.fault,
    Ops.RANGE: _Walk.range,
    Ops.IF: _Walk.branch,
    Ops.CARRY: _Walk.carry,
    Ops.END: _Walk.end,
    Ops.ENDIF: _Walk.ended,
    Ops.CAST: _Walk.cast,
    Ops.BITCAST: _Walk.bitcast,
    Ops.WHERE: _Walk.where,
}
ARITHMETIC: dict[Ops, Callable[[_Walk, UOp], Parts]] = {
    Ops.ADD: _Walk.add,
    Ops.MUL: _Walk.multiply,
    Ops.MULACC: _Walk.multiply,
    Ops.IDIV: _Walk.quotient,
    Ops.MOD: _Walk.quotient,
    Ops.MAX: _Walk.maximum,
    Ops.EXCHANGE: _Walk.exchange,
    **dict.fromkeys((Ops.AND, Ops.OR, Ops.XOR), _Walk.bits),
    **dict.fromkeys((Ops.SHL, Ops.SHR), _Walk.shift),
    **dict.fromkeys((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ), _Walk.compare),
}
