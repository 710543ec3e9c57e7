"""Reductions: how two values combine, how accumulators and lanes are combined in a fixed order, and
how a long sum of floats is kept accurate.

The order of a sum depends on the recipe only, never on the number of threads. A sum of more than
`PLAIN` float32 values in a row is computed in blocks. The blocks are added with a correction for
the rounding error of each addition (Kahan), so the error does not grow with the length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.codegen.linear import Program
from tinygrad.loops.cost import weight
from tinygrad.loops.layout import accumulates, nodes_of
from tinygrad.loops.operands import loop_named, owners_of
from tinygrad.loops.primitives import split
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.loops.tensorise import within
from tinygrad.simplify.constants import identity
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops

PLAIN = 8
"""So many values are summed without blocks."""

BLOCK, BLOCK_BYTES = 8, 512
"""Values of one block of a longer sum, in each lane; of short vectors up to twice as many, until a
block has so many bytes, or twice these where the core loads 128 bytes in a cycle and a long loop
does little else. Vectors side by side count, too: they are added in pairs first, so that a block
has a single state to carry. Its correction waits some 20 cycles for that of the block before; in
that time the second cache delivers as many bytes. Therefore data from memory are read a little at a
time: loads that run far ahead of the additions outrun the processor's prefetcher."""

LITTLE, LONG = 4, 256
"""Operations on each value, at most; turns of the loop, at least."""

WRITTEN_OUT = 4
"""Turns of a block that are unrolled."""

PLAIN_PRODUCTS, PRODUCTS_BLOCK = 4096, 256
"""The same for sums of products: their values have both signs, and they must be fast."""


def empty_of(node: UOp) -> UOp:
    """The initial value of a REDUCE's accumulators. A block's sum is only added to another, where
    -0.0 is the exact identity, so that a first addition can be omitted."""
    if node.tag == "block" and node.arg == "add":
        return UOp.const(node.dtype, -0.0)
    return identity(node.arg, node.dtype)


class Combiner:
    """Combines two values of a monoid. `decompose` has left numbers that the target computes
    with."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program, self.target = program, target

    def combine(self, monoid: str, a: UOp, b: UOp) -> UOp:
        """The monoid's operation, lane by lane."""
        sources = self.program.joined(a, b)
        return self.program.add(MONOIDS[monoid].combine, sources[0].dtype, sources)

    def fused(self, a: UOp, b: UOp, total: UOp) -> UOp:
        """a*b + total, rounded once if the target can."""
        if any(_is_nothing(*pair) for pair in ((a, b), (b, a))):
            return total
        a, b, total = self.program.joined(a, b, total)
        if "MULACC" in self.target.native:
            return self.program.add(Ops.MULACC, total.dtype, (a, b, total))
        return self.combine("add", self.program.add(Ops.MUL, total.dtype, (a, b)), total)

    def pairwise(self, monoid: str, values: Iterable[UOp]) -> UOp:
        """Combines all values, neighbours first, in order: each pair as soon as it is there, so
        that few values wait."""
        waiting: list[tuple[int, UOp]] = []  # the depth of each tree, and its value
        for value in values:
            depth = 0
            while waiting and waiting[-1][0] == depth:
                value = self.combine(monoid, waiting.pop()[1], value)
                depth += 1
            waiting.append((depth, value))
        _, total = waiting.pop()
        for _, value in reversed(waiting):
            total = self.combine(monoid, value, total)
        return total

    def fold_lanes(self, monoid: str, value: UOp) -> UOp:
        """Combines the lanes of a vector, halves first as long as there are halves."""
        count = value.dtype.count
        while count > 2 and count % 2 == 0:
            count //= 2
            low, high = range(count), range(count, 2 * count)
            halves = (self.program.picked(value, value, part) for part in (low, high))
            value = self.combine(monoid, *halves)
        return self.pairwise(monoid, [self.program.lane(value, i) for i in range(count)])

    # ---- compensated sums ------------------------------------------------------------------------

    def add_exactly(self, total: UOp, error: UOp, value: UOp) -> tuple[UOp, UOp]:
        """total + (value + error), and the rounding error of this addition (Kahan). If the total is
        or becomes infinite the error is 0, so that it stays infinite."""
        total, error, value = self.program.joined(total, error, value)
        value = self.combine("add", value, error)
        following = self.combine("add", total, value)
        added = self._minus(following, total)
        lost = self._minus(value, added)
        count = lost.dtype.count
        zero = self.program.widen(UOp.const(lost.dtype.scalar(), 0), count)
        # known before `lost` is, so that the next turn does not wait for the test
        nothing = self._minus(following, following)
        is_finite = self.program.add(Ops.CMPEQ, dtypes.bool.vec(count), (nothing, zero))
        return following, self.program.add(Ops.WHERE, lost.dtype, (is_finite, lost, zero))

    def _minus(self, a: UOp, b: UOp) -> UOp:
        minus_one = UOp.const(b.dtype.scalar(), -1)
        return self.fused(b, minus_one, a)


def _is_nothing(a: UOp, b: UOp) -> bool:
    """Whether a product is 0 because `a` is a read whose gate is off, and b can't be NaN or
    infinite."""
    if a.op is not Ops.CONST or a.arg:
        return False
    return b is a or (b.op is Ops.CAST and dtypes.is_bool(b.src[0].dtype))


def is_compensated(node: UOp) -> bool:
    """Whether a REDUCE adds the blocks that `block_sums` made."""
    return node.op is Ops.REDUCE and node.tag == "blocks" and node.arg == "add"


def is_long(node: UOp) -> bool:
    """Whether one accumulator of a float32 sum takes in many values."""
    if node.arg != "add" or node.dtype is not dtypes.float32 or node.tag is not None:
        return False
    if node.src[0].op is Ops.RESCALE:  # a rescaled state is no sum of blocks
        return False
    turns = prod(size_of(loop) for loop in own_ranges(node) if role_of(loop) == "LOOP")
    return bool(turns > (PLAIN_PRODUCTS if _is_product(node) else PLAIN))


# ---- the pass ------------------------------------------------------------------------------------


def block_sums(kernel: UOp, target: Target) -> UOp:
    """Long float32 sums become sums of sums of blocks.

    for k:10000: s += x(k)   becomes   for k:625: for k.block:16: t += x(..); s += t
    """
    found = next(filter(is_long, _in_registers(kernel)), None)
    return kernel if found is None else block_sums(_blocked(kernel, found, target), target)


def _in_registers(kernel: UOp) -> list[UOp]:
    """The REDUCEs, except for those whose accumulators are in a stage."""
    nodes = nodes_of(kernel)
    staged = {n.src[0] for n in nodes if accumulates(n)}
    return [n for n in nodes if n.op is Ops.REDUCE and n not in staged]


def _is_product(node: UOp) -> bool:
    return node.src[0].op in (Ops.MUL, Ops.WMMA)


def _block(kernel: UOp, node: UOp, target: Target) -> int:
    """The number of values that a block of this sum has in each lane."""
    if _is_product(node):
        return PRODUCTS_BLOCK
    own = own_ranges(node)
    lanes = prod(size_of(r) for r in own if role_of(r) == "VECTOR")
    beside = [each for each in _in_registers(kernel) if own_ranges(each) == own]
    light = len(beside) == 1 and sum(map(weight, node.src[0].toposort())) <= LITTLE
    turns = prod(size_of(r) for r in own if role_of(r) == "LOOP")
    wide = light and turns >= LONG and target.load_ports * target.vector >= 128
    fitting = (2 if wide else 1) * BLOCK_BYTES // (lanes * node.dtype.itemsize)
    return min(max(BLOCK, fitting), 2 * BLOCK) if lanes > 1 else BLOCK


def _blocked(kernel: UOp, node: UOp, target: Target) -> UOp:
    """The innermost loops of `node`, which make up a block, stay with the value; the others go out.
    A loop that is too long for a block is split first."""
    block = _block(kernel, node, target)
    loops = [r for r in own_ranges(node) if role_of(r) == "LOOP"]
    inner: list[UOp] = []
    turns = prod(size_of(r) for r in own_ranges(node) if role_of(r) == "SPREAD")
    while loops and turns * size_of(loops[-1]) <= 2 * block:
        inner.append(loops.pop())
        turns *= size_of(inner[-1])
    if 2 * turns > block or not loops:
        return _nested(kernel, node, inner)
    loop = loops[-1]
    factor = _factor(size_of(loop), block // turns)
    piece = f"{name_of(loop)}.block"
    if factor > WRITTEN_OUT or size_of(loop) % factor:
        return split(kernel, name_of(loop), factor, piece)
    kernel = split(kernel, name_of(loop), factor, piece, role="UNROLL")
    return _nested(kernel, owners_of(kernel, loop_named(kernel, piece))[0], inner)


def _factor(size: int, about: int) -> int:
    """A divisor of `size` near `about`, else `about` itself."""
    near = [*range(about, about // 2, -1), *range(about + 1, 2 * about)]
    return next((factor for factor in near if size % factor == 0), about)


def _nested(kernel: UOp, node: UOp, inner: Sequence[UOp]) -> UOp:
    """`node` as a compensated sum of sums over `inner` (and over unrolled loops); likewise the
    REDUCEs that share its loops."""
    own = own_ranges(node)
    inside = [r for r in own if r in inner or role_of(r) in ("UNROLL", "SPREAD", "TILE")]
    outside = [r for r in own if r not in inside]
    # lanes that a loop of the block clips lose their limits, and so are folded after all blocks
    free = {r: r.with_src(r.src[:1]) for r in outside if not r.ranges.isdisjoint(inside)}
    changes: dict[UOp, UOp] = {}
    for each in _in_registers(kernel):
        if own_ranges(each) != own:
            continue
        sums = replaced(each.src[0], changes)
        for lanes in free:
            for limit in lanes.src[1:]:
                sums = within(each, sums, lanes, limit)
        if inside:
            sums = UOp(Ops.REDUCE, each.dtype, (sums, *inside), each.arg, "block")
        changes[each] = UOp(Ops.REDUCE, each.dtype, (sums, *outside), each.arg, "blocks")
    return replaced(kernel.substitute(changes), free)
