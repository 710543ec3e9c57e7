"""Loops and index arithmetic: each kernel's values as expressions over its ranges.

The second walk, from the leaves up, kernel by kernel: for every (node, demand) that the first
inlined, the scalar expression of that element. Memory appears as PARAM(number of the version in
the plan, size).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.schedule.bases import memory_base, reached, sure_size
from tinygrad.schedule.demand import Demand, Kernel, loop_shape
from tinygrad.schedule.movement import both, offset_of, view_offset
from tinygrad.schedule.onehot import narrowed_sum
from tinygrad.schedule.walk import Demands
from tinygrad.simplify.constants import drops_check, is_positive_zero
from tinygrad.simplify.masks import all_of, bounds_under, conditions_of, gate_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, GroupOp, Ops

StorageOf = Callable[[UOp], UOp]


class Expressions:
    """The expressions of one kernel; `storage` returns the PARAM of a stored node."""

    def __init__(self, demands: Demands, kernel: Kernel, storage: StorageOf) -> None:
        self.demands = demands
        self.kernel = kernel
        self.storage = storage
        self.made: dict[tuple[UOp, Demand], UOp] = {}
        for node, demand in reversed(kernel.inlined):
            made = ELEMENTS[node.op](self, node, demand)
            if made.origin is None:
                made.origin = node.origin
            self.made[node, demand] = made

    def stores(self) -> list[UOp]:
        """The kernel's STOREs."""
        return [self._store(node) for node in self.kernel.stores]

    def _store(self, node: UOp) -> UOp:
        kernel = self.kernel
        here = self.demands.stored_at[node]
        if node.op is Ops.SCATTER:
            offset = self._scattered(node, here)
        elif node.op is Ops.ASSIGN:
            offset, _ = view_offset(node.src[0], memory_base(node.src[0]), kernel.index)
        else:
            offset = offset_of(here.where, loop_shape(node))
        return self.storage(node).index(offset).store(self.made[node, here], *kernel.ranges)

    # ---- one element -----------------------------------------------------------------------------

    def value(self, node: UOp, demand: Demand) -> UOp:
        """The value that a user gets: the inlined expression, or a read of memory."""
        made = self.made.get((node, self.demands.same_as.get((node, demand), demand)))
        if made is not None:
            return made
        memory, offset = self.storage(node), offset_of(demand.where, node.shape)
        return memory.index(offset, gate=None if _is_inside(memory, offset) else demand.gate)

    def _elementwise(self, node: UOp, demand: Demand) -> UOp:
        src = tuple([self.value(s, demand) for s in node.src])
        if node.op is Ops.CHECK and demand.gate is not None:  # what is not needed may be anything
            src = (src[0], demand.gate.where(src[1], src[1].const_like(True)))
        return UOp(node.op, node.dtype, src, node.arg)

    def _same(self, node: UOp, demand: Demand) -> UOp:
        return self.value(node.src[0], demand)

    def _running(self, node: UOp, demand: Demand) -> UOp:
        monoid, axis = node.arg
        src = self.value(node.src[0], demand), demand.where[axis]
        return UOp(Ops.RUNNING, node.dtype, src, monoid)

    def _moved(self, node: UOp, demand: Demand) -> UOp:
        inner, condition, _ = self.demands.links[node, demand]
        value = self.value(node.src[0], inner)
        return value if condition is None else zero_unless(condition, value)

    def _reduced(self, node: UOp, demand: Demand) -> UOp:
        inner, condition, ranges = self.demands.links[node, demand]
        value = self.value(node.src[0], inner)
        monoid = "add" if node.op is Ops.FOLD else node.arg[0]
        if node.op is Ops.FOLD and value.op is Ops.REDUCE and value.arg == "add":
            value, ranges = value.src[0], (*value.src[1:], *ranges)  # a sum of sums is one sum
        if condition is not None:
            value = zero_unless(condition, value, lax=True)
            if node.op is Ops.FOLD and value.op is Ops.MUL:
                value = _guarded_once(value, conditions_of(condition))
        return narrowed_sum(value, ranges) if monoid == "add" else value.reduce(monoid, *ranges)

    def _gathered(self, node: UOp, demand: Demand) -> UOp:
        inner = self.demands.links[node, demand].demand
        sources = [self.value(s, inner) for s in node.src[1:]]
        indices, gates = sources[: node.arg], sources[node.arg :]
        rest = demand.where[len(inner.where) :]
        where = (*(i.cast(dtypes.index) for i in indices), *rest)
        base = memory_base(node.src[0])
        offset, conditions = view_offset(node.src[0], base, where)
        asked = [i >= 0 for i in indices if drops_check(i, offset)]  # an axis may repeat elements
        gate = both(demand.gate, *gates, *conditions, *asked)
        return self.storage(base).index(offset, gate=gate)

    def _scattered(self, node: UOp, demand: Demand) -> UOp:
        inner = self.demands.links[node, demand].demand
        indices = tuple(self.value(s, inner).cast(dtypes.index) for s in node.src[2:])
        rest = demand.where[len(inner.where) :]
        return offset_of((*indices, *rest), node.shape)

    def _combined(self, node: UOp, demand: Demand) -> UOp:
        update = self.value(node.src[1], demand)
        if node.arg[0] == "set":
            return update
        old = self.storage(node).index(self._scattered(node, demand))
        return old.alu(MONOIDS[node.arg[0]].combine, update)


ELEMENTS: dict[Ops, Callable[[Expressions, UOp, Demand], UOp]] = {
    **dict.fromkeys(GroupOp.Elementwise, Expressions._elementwise),
    **dict.fromkeys(GroupOp.Movement, Expressions._moved),
    Ops.CONST: lambda _, node, demand: UOp.const(node.dtype, node.arg),
    **dict.fromkeys((Ops.DEFINE_VAR, Ops.BIND), lambda _, node, demand: node),
    Ops.ARANGE: lambda _, node, demand: demand.where[0].cast(node.dtype),
    Ops.REDUCE_AXIS: Expressions._reduced,
    Ops.FOLD: Expressions._reduced,
    Ops.RUNNING: Expressions._running,
    Ops.INDEX: Expressions._gathered,
    Ops.SCATTER: Expressions._combined,
    Ops.ASSIGN: lambda kernel, node, demand: kernel.value(node.src[1], demand),
    Ops.CONTIGUOUS: Expressions._same,
}
"""What an inlined node is in a kernel."""


def zero_unless(condition: UOp, value: UOp, lax: bool = False) -> UOp:
    """`value`, or 0 where the condition fails. A read whose gate contains the condition needs no
    change, nor does a value computed from such reads if it stays 0. Terms of a sum are `lax`: -0 is
    as good as 0 there, and other factors, read without a gate, count as finite. So a product stays
    a product, and only one factor becomes 0: one that reads nothing where the condition fails, or
    else the one that depends least on it, such as an image that is the same everywhere."""
    if _is_zero_unless(set(conditions_of(condition)), value, lax):
        return value
    if lax and value.op is Ops.MUL:
        asked = {*conditions_of(condition)}
        factor, other = sorted(
            value.src,
            key=lambda each: (not _reads_under(asked, each), len(each.ranges & condition.ranges)),
        )
        if _scales_zero(other, lax):
            return zero_unless(condition, factor, lax).alu(Ops.MUL, other)
    return condition.where(value, value.const_like(0))


def _reads_under(conditions: set[UOp], value: UOp) -> bool:
    """Whether a value is computed from reads that all these conditions gate."""
    reads = (n for n in value.toposort() if n.op is Ops.INDEX)
    return any(conditions.issubset(conditions_of(gate_of(n))) for n in reads)


def _guarded_once(product: UOp, windows: Sequence[UOp]) -> UOp:
    """A product of two reads in a FOLD, where a condition of its windows that both have is left to
    one of them, if the other reads no more elements without: it counts as finite. The smaller
    memory is freed first. So the taps that a window's gradient reads depend on no border, and the
    window on no tap that is missing."""
    small, large = sorted(product.src, key=_size)
    if not all(n.op is Ops.INDEX and n.arg == 1 and len(n.src) == 3 for n in product.src):
        return product
    is_turned = small is not product.src[0]
    small = _freed(small, {*windows}.intersection(conditions_of(gate_of(large))))
    large = _freed(large, {*windows}.intersection(conditions_of(gate_of(small))))
    return large.alu(Ops.MUL, small) if is_turned else small.alu(Ops.MUL, large)


def _freed(read: UOp, wanted: set[UOp]) -> UOp:
    """A read without those of the wanted conditions that keep it from no element of its memory.
    Those that a variable sets stay: what lies behind a symbolic size was never written."""
    memory, offset, gate = read.src
    conditions = conditions_of(gate)
    for condition in [c for c in conditions if c in wanted and not c.variables()]:
        rest = [c for c in conditions if c is not condition]
        low, high = bounds_under(rest, offset)
        is_inside = low >= 0 and high < sure_size(memory)  # bounds are no tighter than what is read
        if is_inside and (low, high) == bounds_under(conditions, offset):
            conditions = rest
    return memory.index(offset, gate=all_of(conditions) if conditions else None)


def _size(read: UOp) -> int:
    return int(read.src[0].arg[1]) if read.op is Ops.INDEX and read.src[0].op is Ops.PARAM else 0


def _is_zero_unless(conditions: set[UOp], value: UOp, lax: bool) -> bool:
    zero: dict[UOp, bool] = {}
    stack = [value]
    while stack and len(zero) < MOST_LOOKED_AT:
        node = stack[-1]
        operands = node.src[1:] if node.op is Ops.WHERE else node.src
        operands = operands if node.op in _KEEPING_ZERO else ()
        todo = [s for s in operands if s not in zero]
        if todo:
            stack += todo
            continue
        stack.pop()
        if node.op is Ops.INDEX:
            zero[node] = conditions.issubset(conditions_of(gate_of(node)))
        elif node.op is Ops.CONST:
            zero[node] = is_positive_zero(node)
        elif node.op is Ops.FDIV:
            zero[node] = zero[operands[0]] and _is_mean(node)
        else:
            others = [s for s in operands if not zero[s]]
            may_scale = node.op is Ops.MUL and len(others) < len(operands)
            scales = may_scale and all([_scales_zero(other, lax) for other in others])
            zero[node] = bool(operands) and (not others or scales)
    return zero.get(value, False)


def _scales_zero(value: UOp, lax: bool) -> bool:
    """Whether 0 times this value is 0: it is positive, or, where -0 is as good as 0, just finite:
    no quotient, no logarithm, no power."""
    if not lax:
        return value.op is Ops.CONST and 0 < value.arg < math.inf
    return not any(
        (node.op in _POLES and not _is_mean(node))
        or (node.op is Ops.CONST and not math.isfinite(node.arg))
        for node in reached(value, through=lambda n: n.op in GroupOp.Elementwise)
    )


def _is_mean(quotient: UOp) -> bool:
    """Whether this divides by a positive number, as means do."""
    by = quotient.src[-1]
    return quotient.op is Ops.FDIV and by.op is Ops.CONST and 0 < by.arg < math.inf


MOST_LOOKED_AT = 64
"""Nodes that are searched: a value of more nodes isn't found to be 0."""

_KEEPING_ZERO = {
    *(Ops.MUL, Ops.FDIV, Ops.ADD, Ops.MAX, Ops.WHERE),
    *(Ops.CAST, Ops.TRUNC, Ops.ROUND, Ops.SQRT),
}
_POLES = frozenset((Ops.FDIV, Ops.RECIP, Ops.LOG2, Ops.EXP2, Ops.POW))


def _is_inside(memory: UOp, offset: UOp) -> bool:
    """Whether every turn of the loops reads an existing element. Then no gate is needed, and values
    that don't depend on a gate's loops stay the same for all their turns."""
    return bool(offset.vmin >= 0 and offset.vmax < sure_size(memory))
