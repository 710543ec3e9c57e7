"""The decision whether a value is computed where it is used, or stored. What counts is how many
bytes are moved and how many operations are repeated, not the number of kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from tinygrad.base.settings import FUSE_OPS
from tinygrad.schedule import redo
from tinygrad.schedule.bases import COMPUTED, MOVED, is_concrete, is_memory, memory_base, reached
from tinygrad.schedule.crossings import Crossing, crossings
from tinygrad.schedule.demand import (
    IN_ORDER,
    Contexts,
    Demand,
    Demanded,
    follow,
    is_redone,
    overlaps,
)
from tinygrad.schedule.movement import loops_of, turns_of
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.rows import are_kept, in_step, products_below
from tinygrad.uop import Ops, UOp

REDONE_AT_MOST = 1.1  # how often a costly value may be computed, over several kernels
SHARED_WEIGHT = 200  # within one kernel: loops/ keeps a shared row in cache
FEW_ROWS = 16  # a reduction over fewer rows would leave cores idle if its users joined it
SMALL_WORK = 1 << 14  # for fewer elements the number of kernels is what counts
SHORT_SUM = 64  # terms of a sum that would gain nothing from a tile of its own
OFTEN = 8  # times that a tile of its own would read an element once instead
LONG_WINDOW = 9  # terms of a sum that gains from a tile of its own if its windows overlap
STORE_WORTH = 96  # multiply-adds that cost as much as writing a value and folding it


class Inlining:
    """The decisions about a graph: its nodes in `order`, and in `wanted` those that have been
    demanded so far; `told`: the company that an earlier walk has found, and `redone`: what it found
    to be computed with others. The walk adds what it finds to `folded` and `laying_out`."""

    def __init__(
        self,
        order: Sequence[UOp],
        wishes: Wishes,
        wanted: Container[UOp],
        told: Mapping[UOp, UOp],
        redone: Container[UOp],
    ) -> None:
        # what a FOLD adds up whose taps are all visited, and the part of the visits that have one
        self.folded: dict[tuple[UOp, Demand], float] = {}
        self.laying_out: set[Demand] = set()  # of factors of products, and of what is below them
        self.company: dict[UOp, UOp] = {}  # values that another one's kernel had better store
        self.crossings: list[Crossing] = []  # of kernels that want the same rows
        self.laid_out = Counter() if wishes.lanes else redo.laid_out(order)
        keeps = wishes.longest_row or wishes.in_registers
        self.products = products_below(order) if keeps else {}
        self._weight, self._leaves = redo.weights_below(order)
        self._kept = redo.kept_anyway(order)
        self._wishes, self._wanted, self._told, self._redone = wishes, wanted, told, redone

    def allows(self, node: UOp, demands: Demanded) -> bool:
        """Whether the node is computed in the kernels that demand it, rather than stored."""
        if _costs_nothing(node) or node.device is None:  # of variables alone: no device stores it
            return True
        kernels = {d.kernel for d in demands}
        if any(k.weight + redo.weight_of(node) > FUSE_OPS.value for k in kernels):
            return False
        if node in self._redone or self._is_kept_in_rows(node, demands):
            return True
        if node.op in (Ops.REDUCE_AXIS, Ops.FOLD):
            return len(demands) == 1 and self._reduction_fits(node, demands)
        if node.op in (Ops.ASSIGN, Ops.CONTIGUOUS):
            return True
        return self._is_redone(node, demands) or self._is_made_for_several(node, demands)

    def accompany(self, node: UOp, demands: Demanded) -> None:
        """Of a node that is inlined: notes which kernels want the same rows of it, so that their
        values are stored together."""
        # the registers of units can't hold two kernels
        if self._wishes.longest_row and self._is_kept_in_rows(node, demands):
            self.company.update((k.stores[0], other.stores[0]) for k, other in in_step(demands))
            self.crossings += [] if self._wishes.lanes else crossings(node, demands)
        elif self._is_made_for_several(node, demands) and not self._is_redone(node, demands):
            host, *others = in_turn(demands)
            self.company.update(dict.fromkeys(others, host))

    def _is_redone(self, node: UOp, demands: Demanded) -> bool:
        """Whether a value is computed wherever it is needed."""
        kernels = len({d.kernel for d in demands})
        cheap = _costs_nothing(node) or self._is_rather_redone(node, demands, kernels)
        return cheap or redo.repeats(node)

    def _is_made_for_several(self, node: UOp, demands: Demanded) -> bool:
        """Whether kernels that all need an element in its own turn could be one, which computes it
        once. If they were told so before, they can't."""
        _, *others = in_turn(demands)
        is_new = len(others) > 0 and self._told.keys().isdisjoint(others)
        return is_new and all(
            d.gate is None and d.where == d.kernel.index and d.kernel.shape == node.shape
            for d in demands
        )

    def _is_kept_in_rows(self, node: UOp, demands: Demanded) -> bool:
        """Whether each kernel that demands a node made of products keeps rows of it."""
        products = self.products.get(node)
        if not products or _costs_nothing(node) or any(map(slides, products)):
            return False
        return are_kept(node, demands, self._wishes, self.products)

    def _is_rather_redone(self, node: UOp, demands: Demanded, kernels: int) -> bool:
        """Whether it costs less to recompute an elementwise value where it is needed than to store
        it."""
        weight = self._weight[node]
        cheap = weight <= redo.CHEAP_WEIGHT and len(self._leaves[node]) <= redo.CHEAP_LEAVES
        if kernels > 1:
            return cheap or self._each_its_part(node, demands) or self._is_made_again(node, demands)
        if len(demands) > 1 and weight * len(demands) > SHARED_WEIGHT:
            return False
        # a reduction below would be stored in its place; storing what follows it is better
        reduced = any(s.op in (Ops.REDUCE_AXIS, Ops.FOLD) for s in self._leaves[node])
        if not any(is_redone(d, c) for d, cs in demands.items() for c in cs):
            return not (reduced and any(map(overlaps, demands)))
        return cheap and not reduced

    @staticmethod
    def _each_its_part(node: UOp, demands: Demanded) -> bool:
        """Whether hardly any element is computed twice, because kernels need different ones."""
        if not is_concrete(node):
            return False
        times = sum(turns_of(context) for contexts in demands.values() for context in contexts)
        return times <= node.size * REDONE_AT_MOST

    def _is_made_again(self, node: UOp, demands: Demanded) -> bool:
        """Whether several kernels should each compute a value, every element once, rather than read
        a stored one. A product does so, too, when it lays out its factors."""
        if node in self._kept or not is_concrete(node):
            return False
        inside = [d for d, cs in demands.items() if any(turns_of(c) > node.size for c in cs)]
        if len(set(inside) - self.laying_out) > self.laid_out[node]:
            return False
        near = node.size * node.dtype.itemsize <= self._wishes.cache and follow(demands)
        worth = redo.NEAR_WORTH if near else redo.BYTE_WORTH
        found = redo.small_work((node,), self._is_stored_anyway, worth)
        return found is not None and (not inside or all(map(self._is_stored_anyway, found[1])))

    def _is_stored_anyway(self, node: UOp) -> bool:
        """Whether a value is in memory in any case, whatever is decided about the node in
        question."""
        return is_memory(node) or (node in self._kept and node in self._wanted)

    def _reduction_fits(self, node: UOp, demands: Demanded) -> bool:
        """Whether a reduction may be computed in its user's kernel, where each element is computed
        once.

        Loops that the reduction does not depend on must be inside those that it depends on (a
        softmax's row), and there must be enough rows to keep the cores busy. Inside another
        reduction it is allowed only if it is small, or if each sum is needed once and is short: the
        sums of a quantised weight's groups.
        """
        ((demand, contexts),) = demands.items()
        free = loops_of(demand.where)
        inner = node.src[0].size if is_concrete(node.src[0]) else redo.WEIGHT_LIMIT
        if max(inner, *(turns_of(context) for context in contexts)) <= SMALL_WORK:
            return True
        if any(store.op in IN_ORDER for store in demand.kernel.stores):
            return False  # sums have neither vectors nor tiles in loops that run in order
        if (node, demand) in self.folded:
            part = self.folded[node, demand]
            if not part and inner > SHORT_SUM * node.size and rereads_factors(node):
                return False
            is_rather = part > 0 and self._rather_folded(node, contexts, part)
            if is_rather or part == 1:
                return is_rather
        if any(is_redone(demand, context) for context in contexts):
            return False
        if any(r not in demand.kernel.ranges for r in free):
            rows = turns_of(demand.kernel.ranges)
            once = is_concrete(node) and all(turns_of(c) == node.size for c in contexts)
            short = inner <= SHORT_SUM * node.size and times_read(node) < OFTEN
            return once and rows >= FEW_ROWS and short
        if is_concrete(node) and turns_of(free) > node.size:  # several want the same sum
            return False
        if all(free.issuperset(context) for context in contexts):
            return True
        return turns_of(free) >= FEW_ROWS and not rereads_factors(node)

    def _rather_folded(self, node: UOp, contexts: Contexts, part: float) -> bool:
        """Whether the sums that a FOLD adds up had better be computed in its loops, although these
        also visit elements that don't exist: a convolution's input gradient. Phases of a stride
        have tiles that are worse, as if each sum was computed twice."""
        if node.op is not Ops.REDUCE_AXIS or node.arg[0] != "add" or not is_concrete(node.src[0]):
            return False
        made = node.size
        redone = part * max(turns_of(context) for context in contexts) - made
        worse = redone if part == 1 else redone + made
        return worse * (node.src[0].size // made) <= STORE_WORTH * made


def in_turn(demands: Demanded) -> list[UOp]:
    """The first store of each kernel that demands something, the last kernel first."""
    kernels = dict.fromkeys(demand.kernel for demand in demands)
    return [k.stores[0] for k in sorted(kernels, key=lambda k: k.last, reverse=True)]


def _costs_nothing(node: UOp) -> bool:
    """Whether nobody would store this: a count or a constant, a movement, or a wider type."""
    return node.op in redo.FREE_LEAVES or node.op in MOVED or redo.widens(node)


def rereads_factors(node: UOp) -> bool:
    """Whether a sum reads its factors several times; tiles of its own would read them once."""
    value = node.src[0]
    if node.arg[0] != "add" or value.op is not Ops.MUL or not is_concrete(value):
        return False
    return value.size >= 2 * sum(memory_base(factor).size for factor in value.src)


def times_read(node: UOp) -> float:
    """How often a reduction reads what it is computed from, on average."""
    tops = reached(node.src[0], through=lambda n: n.op in COMPUTED)
    bases = {memory_base(top) for top in tops if top.op not in COMPUTED}
    return node.src[0].size / max(1, sum(base.size for base in bases if is_concrete(base)))


def slides(node: UOp) -> bool:
    """Whether a sum is that of long windows which overlap, as a convolution of each channel is:
    tiles of its own would read their pixels once."""
    value = node.src[0]
    if not rereads_factors(node) or value.size < LONG_WINDOW * node.size:
        return False
    return any(n.op is Ops.WINDOW for n in reached(*value.src, through=lambda n: n.op in MOVED))


def reads_again(node: UOp) -> bool:
    """Whether a reduction is long and reads its operands several times, as a product does."""
    return not is_concrete(node.src[0]) or (node.src[0].size > SMALL_WORK and rereads_factors(node))


def makes_rows(node: UOp) -> bool:
    """Whether this REDUCE_AXIS may be computed in the kernel that uses it, row by row."""
    return is_concrete(node.src[0]) and not rereads_factors(node)
