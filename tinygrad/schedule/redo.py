"""What computing an element costs, and which values are computed again by each kernel that uses
them, so that nobody stores them. What a backward pass needs of the activations is mostly a few
operations on values that are stored anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.schedule.bases import COMPUTED, beneath, memory_base, reached
from tinygrad.schedule.rows import is_product
from tinygrad.uop.node import UOp
from tinygrad.uop.op import WEIGHT, GroupOp, Ops

CHEAP_WEIGHT = 8  # values of up to so many operations are recomputed rather than stored
CHEAP_LEAVES = 2  # ... if they read no more than so many values
REPEATED = 1.5  # from this ratio of elements to those in memory on, the latter are stored instead
WEIGHT_LIMIT = 1 << 20  # shared nodes count once for each path, so weights can double quickly
NO_VALUE = frozenset((Ops.DEVICE, Ops.UNIQUE, Ops.SINK))
LAID_OUT = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.CAST))
FREE_LEAVES = frozenset((Ops.CONST, Ops.ARANGE, Ops.DEFINE_VAR, Ops.BIND))

BYTE_WORTH = 12
"""Operations that cost as much as writing a byte of a value and reading it in another kernel."""

NEAR_WORTH = 4
"""The same, where that kernel follows so soon that the byte is still in a cache."""

OWN_CACHE = 16
"""What is this many times smaller than the cache that cores share is in a core's own."""

SMALL = 8
"""Reading a value is free if it is this many times smaller than the result."""

FEWEST_USES = 16  # of a factor's elements, if laying it out is to take little time

LARGE_LEAVES = 2
"""Large values that may be read in place of a stored one."""


def weight_of(node: UOp) -> int:
    """Operations for one element, without those of its sources."""
    takes = node.op in GroupOp.Elementwise or node.op is Ops.INDEX
    return WEIGHT.get(node.op, 1) if takes else 0


def weights_below(order: Sequence[UOp]) -> tuple[dict[UOp, int], dict[UOp, tuple[UOp, ...]]]:
    """For each node the cost of one element down to memory or a reduction: operations, and what is
    read (at most one value more than is cheap)."""
    weight: dict[UOp, int] = {}
    leaves: dict[UOp, tuple[UOp, ...]] = {}
    for node in order:
        if node.op in COMPUTED:
            sources = [s for s in node.src if s.op not in NO_VALUE]
            weight[node] = min(WEIGHT_LIMIT, weight_of(node) + sum(weight[s] for s in sources))
            read = dict.fromkeys(leaf for s in sources for leaf in leaves[s])
            leaves[node] = tuple(read)[: CHEAP_LEAVES + 1]
        else:
            weight[node] = 0
            leaves[node] = () if node.op in FREE_LEAVES else (node,)
    return weight, leaves


def widens(node: UOp) -> bool:
    """Whether the node only widens numbers: if anything is stored, it is the narrower form."""
    if node.op is not Ops.CAST:
        return False
    given, kind = node.src[0].dtype, node.dtype
    return not dtypes.is_bool(given) and given.itemsize < kind.itemsize


def repeats(node: UOp) -> bool:
    """Whether the node is a few cheap operations on values that are repeated: if anything is
    stored, it is those values."""
    weight, stored = 0, set[UOp]()
    for top in reached(node, through=lambda n: n.op in GroupOp.Elementwise):
        if top.op not in GroupOp.Elementwise:
            stored.add(memory_base(top))
            continue
        weight += weight_of(top)
        if weight > CHEAP_WEIGHT:
            return False
    return node.size >= REPEATED * sum(base.size for base in stored)


def kept_anyway(order: Sequence[UOp]) -> set[UOp]:
    """Values that depend on a product elementwise and have several users: they are stored in any
    case. Nodes come in order."""
    users = Counter(source for node in order for source in set(node.src))
    kept, costly = set[UOp](), set[UOp]()
    for node in order:
        is_made = node.op is Ops.REDUCE_AXIS and is_product(node)
        if is_made or (node.op in COMPUTED and not costly.isdisjoint(node.src)):
            (kept if users[node] > 1 else costly).add(node)
    return kept


def laid_out(order: Iterable[UOp]) -> Counter[UOp]:
    """How many products each node is a factor of. A factor is laid out once, so it is computed
    once, however many rows or columns read it."""
    found: Counter[UOp] = Counter()
    for node in order:
        if node.op is Ops.REDUCE_AXIS and is_product(node):
            value = node.src[0]
            factors = [beneath(factor, LAID_OUT) for factor in value.src]
            if all(value.size >= FEWEST_USES * factor.size for factor in factors):
                found.update(factors)
    return found


def made_together(values: Sequence[UOp], stored: Container[UOp], cache: int) -> list[UOp]:
    """Of values that a kernel reads, each element once: those that it had better compute, with what
    they are made of. Each of them may cost more operations than storing it, but not all together,
    as they share most of them. Few bytes are still in a core's own cache."""
    same = [value for value in values if value.size == values[0].size]
    size = sum(value.size * value.dtype.itemsize for value in same)
    if len(same) == 1 or size * OWN_CACHE < cache:
        return []
    worth = NEAR_WORTH if size <= cache else BYTE_WORTH
    found = small_work(same, lambda node: node in stored, worth)
    return found[0] if found else []


def small_work(
    nodes: Sequence[UOp], is_kept: Callable[[UOp], bool], byte_worth: int
) -> tuple[list[UOp], list[UOp]] | None:
    """What is computed for an element of each of these nodes, and the stored values that it is
    computed from, if few of them are large, and if this takes fewer operations than storing the
    nodes; each operation counts once, however often its result is used."""
    most = byte_worth * sum(node.dtype.itemsize for node in nodes)
    weight, large, made, read = 0, 0, list[UOp](), list[UOp]()

    def is_made(top: UOp) -> bool:
        return top.op in COMPUTED and (top in nodes or not is_kept(top))

    for top in reached(*nodes, through=is_made):
        if is_made(top):
            weight += weight_of(top)
            made.append(top)
        elif top.op not in FREE_LEAVES:
            read.append(top)
            large += top.size * SMALL > nodes[0].size
        if weight > most or large > LARGE_LEAVES:
            return None
    return made, read
