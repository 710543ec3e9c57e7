"""Values that a kernel keeps in rows: results of a product that are used several times along one of
their axes, as attention's scores are by the softmax and by the product with the values.

To store such a value would move all of it to memory and back; to recompute it at each use would
repeat the product. Instead `loops/sharing` computes it block by block, a block being some rows, and
keeps a block in the cache until all loops over these rows are done. That is worth it if the other
operands of the products, which each block reads again, are less than the value itself on its way to
memory and back. It is also worth it if the value is so much larger than its operands that memory
matters more than time; then other kernels that use the value compute it again, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import permutations
from math import prod
from typing import NamedTuple

from tinygrad.base.dtype import DType
from tinygrad.schedule.bases import COMPUTED, beneath
from tinygrad.schedule.demand import Demanded, Kernel
from tinygrad.schedule.movement import ZERO, Index, loops_of, source_index, turns_of
from tinygrad.schedule.plan import Wishes
from tinygrad.simplify.affine import affine, simplify_index
from tinygrad.uop import GroupOp, Ops, UOp

READ_THROUGH = GroupOp.Movement | {Ops.CAST}
"""Ops between a factor's computation and its multiplication that a kernel reads through."""

GROWING = {Ops.WINDOW, Ops.PAD}
"""Movement ops whose result has more elements than the source."""

BLOCK = 1 << 16
"""Elements of a block of rows, which a private cache can hold beside other data."""

LARGEST_BLOCK = 64
"""Rows of a block, at most."""

FEWEST_ROWS = 16
"""With fewer rows there are no blocks for several cores."""

OPERATIONS_A_READ = 6
"""Multiply-adds that cost as much as writing an element to memory and reading it back, divided by
the rows of a block."""

BLOW_UP = 4
"""A value this many times larger than its operands is recomputed rather than stored."""

MOST_PRODUCTS = 4
"""The most products in a value that is kept in rows: each kernel that uses it computes all of
them."""

FEWEST_USES = 8
"""Uses of each factor of scores, for a unit: half of its rows."""

DEEPEST_AGAIN = 128
"""The most terms of scores that several kernels compute in registers; a gradient needs two such at
once."""

LONGEST_IN_REGISTERS = 1 << 20
"""Elements of the longest row whose scores a unit recomputes rather than stores."""


class ProductFacts(NamedTuple):
    """A REDUCE_AXIS over products: the terms of each sum, whether the result is BLOW_UP times
    larger than the factors, the factors' dtype if they have the same, and how often each factor is
    used."""

    depth: int
    grows: bool
    dtype: DType | None
    uses: int


class Reader(NamedTuple):
    """A kernel that needs a value: its loops, the indices, and the loops around them."""

    loops: tuple[UOp, ...]
    indices: list[Index]
    contexts: list[tuple[UOp, ...]]


class KeptRow(NamedTuple):
    """What a kernel keeps: the elements of a row, how often one would be computed if it weren't
    kept, and whether blocks of rows are possible, which requires a single loop along the row."""

    elements: int
    redone: int
    in_blocks: bool


Products = dict[UOp, dict[UOp, ProductFacts]]
"""For each node the products that it depends on elementwise and by movement."""


def products_below(order: Iterable[UOp]) -> Products:
    """The products below each node; nodes come in order."""
    found: Products = {}
    for node in order:
        if node.op is Ops.REDUCE_AXIS and is_product(node):
            found[node] = {node: _fact_of(node)}
        elif node.op in COMPUTED:
            below = [found[s] for s in node.src if s in found]
            if below:
                found[node] = {p: fact for each in below for p, fact in each.items()}
    return found


def is_product(node: UOp) -> bool:
    """Whether a REDUCE_AXIS sums products of two tensors that differ in their axes."""
    source = _products_of(node)
    if node.arg[0] != "add" or source.op is not Ops.MUL:
        return False
    if node.size == 0:
        return False
    return all(beneath(factor, READ_THROUGH).size < source.size for factor in source.src)


def is_contraction(node: UOp) -> bool:
    """Whether both factors of such a product have all terms of the sum, as in a product of
    matrices."""
    if not is_product(node):
        return False
    source = _products_of(node)
    sizes = [beneath(factor, READ_THROUGH - GROWING).size for factor in source.src]
    return prod(sizes) >= source.size * (source.size // node.size)


def _fact_of(node: UOp) -> ProductFacts:
    source = _products_of(node)
    factors = [beneath(factor, READ_THROUGH) for factor in source.src]
    grows = node.size >= BLOW_UP * sum(factor.size for factor in factors)
    first, second = map(_rounded_to, source.src)
    dtype = first if first is second else None
    uses = source.size // max(factor.size for factor in factors)
    return ProductFacts(source.size // node.size, grows, dtype, uses)


def _rounded_to(factor: UOp) -> DType:
    """The narrowest dtype between the computation of a factor and its multiplication."""
    found = factor.dtype
    while factor.op in READ_THROUGH:
        (factor, *_) = factor.src
        found = min(found, factor.dtype, key=lambda dtype: dtype.itemsize)
    return found


def _products_of(node: UOp) -> UOp:
    return beneath(node.src[0], (Ops.CAST,))


def are_kept(node: UOp, demands: Demanded, wishes: Wishes, made: Products) -> bool:
    """Whether each kernel that needs a value of products keeps it in rows of at most `longest_row`
    elements; or, for rows of any length, computes it in the registers of units, if it only reduces
    rows. `made`: the products of all nodes."""
    facts = made[node].values()
    kernels = readers_of(demands)
    if not kernels or len(facts) > MOST_PRODUCTS:
        return False
    grows = all(fact.grows for fact in facts)
    if len(kernels) > 1 and not grows:
        return False
    longest = wishes.longest_row
    if _fit_registers(facts, kernels, wishes, made):
        longest = max(longest, LONGEST_IN_REGISTERS)
    rows = [_row_of(node, reader, grows, made) for reader in kernels.values()]
    needed = sum(len(reader.indices) for reader in kernels.values())
    return all(
        row is not None
        and row.elements <= longest
        and (needed > 1 or row.redone > 1)
        and _is_worth(row, facts)
        for row in rows
    )


def _fit_registers(
    facts: Collection[ProductFacts], kernels: dict[Kernel, Reader], wishes: Wishes, made: Products
) -> bool:
    """Whether units can compute the value in registers, in each of these kernels."""
    several = len(kernels) > 1
    return (
        all(f.dtype in wishes.in_registers and f.uses >= FEWEST_USES for f in facts)
        and not (several and any(f.depth > DEEPEST_AGAIN for f in facts))
        and not (several and not all(_multiplies(kernel, made, wishes) for kernel in kernels))
        and all(map(_reduces, kernels.values()))
    )


def _is_worth(row: KeptRow, facts: Iterable[ProductFacts]) -> bool:
    """Whether reading the products' operands again for each block of rows costs less than moving
    the value to memory and back, and less than computing it as often as it is needed."""
    block = max(1, min(LARGEST_BLOCK, BLOCK // row.elements)) if row.in_blocks else 1
    worth = OPERATIONS_A_READ * block
    return all(
        (fact.grows or fact.depth <= worth) and row.redone <= max(worth, 2 * fact.depth)
        for fact in facts
    )


def in_step(demands: Demanded) -> Iterator[tuple[Kernel, Kernel]]:
    """Pairs of kernels that have the same loops and need the same rows in the same turns."""
    for (one, first), (other, second) in permutations(readers_of(demands).items(), 2):
        if [loop.src for loop in first.loops] != [loop.src for loop in second.loops]:
            continue
        loops = dict(zip(second.loops, first.loops, strict=True))
        pairs = zip(row_parts(first), row_parts(second), strict=True)
        if all(here is there.substitute(loops) for here, there in pairs):
            yield one, other


def readers_of(demands: Demanded) -> dict[Kernel, Reader]:
    """The demands by kernel; empty if some of them have a gate."""
    found: dict[Kernel, Reader] = {}
    for demand, contexts in demands.items():
        if demand.gate is not None:
            return {}
        reader = found.setdefault(demand.kernel, Reader(demand.kernel.ranges, [], []))
        reader.indices.append(demand.where)
        reader.contexts.extend(contexts)
    return found


def _multiplies(kernel: Kernel, made: Products, wishes: Wishes) -> bool:
    """Whether a kernel stores a product whose operands units can take from registers."""
    store = kernel.stores[0]
    value = store.src[-1] if store.op in (Ops.CONTIGUOUS, Ops.ASSIGN) else store
    facts = made.get(value, {}).values()
    return bool(facts) and all(fact.dtype in wishes.in_registers for fact in facts)


def _reduces(reader: Reader) -> bool:
    """Whether the loops along a row are none of the kernel's own."""
    rows = loops_of(row_parts(reader))
    return all((loops_of(at) - rows).isdisjoint(reader.loops) for at in reader.indices)


def row_parts(reader: Reader) -> Index:
    """For each axis the part of the index that counts rows: it depends on the kernel's own loops
    only, and is the same in all indices. For heads that share keys, the head counts along a row,
    and the group counts rows."""
    own = frozenset(reader.loops)
    parts = []
    for places in zip(*reader.indices, strict=True):
        found = {_without(at, at.ranges - own) for at in places}
        parts.append(found.pop() if len(found) == 1 else ZERO)
    return tuple(parts)


def _without(at: UOp, loops: frozenset[UOp]) -> UOp:
    """The index in the first turn of these loops."""
    return simplify_index(at.substitute(dict.fromkeys(loops, ZERO))) if loops else at


def _in_turn(at: UOp) -> bool:
    """Whether the loops count consecutively: the step of each is the range of those inside it."""
    terms, counted = affine(at)[0], 1
    for loop, stride in sorted(terms.items(), key=lambda term: term[1]):
        if loop.op is not Ops.RANGE or stride != counted:
            return False
        counted *= loop.vmax + 1
    return at.vmin == 0 and counted > 1


def _is_shared(node: UOp, index: Index, along: frozenset[UOp], made: Products) -> bool:
    """Whether some factor of a product is the same all along a row: else rows are sums of their own
    in each element, such as matrices that are stored innermost, and no tile makes several."""
    todo, seen = [(node, index)], set[tuple[UOp, Index]]()
    while todo:  # each once, however many ways lead to it
        node, index = place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        if node.op is Ops.REDUCE_AXIS:
            if any(_is_same(factor, index, along) for factor in _products_of(node).src):
                return True
            continue
        if node.op in GroupOp.Movement:
            index = source_index(node, index)[0]
        todo += [(source, index) for source in node.src if source in made]
    return False


def _is_same(factor: UOp, index: Index, along: frozenset[UOp]) -> bool:
    while factor.op in READ_THROUGH:
        if factor.op is not Ops.CAST:
            index = source_index(factor, index)[0]
        (factor, *_) = factor.src
    return loops_of(index).isdisjoint(along)


def _row_of(node: UOp, reader: Reader, parted: bool, made: Products) -> KeptRow | None:
    """What a kernel would keep; None if the demands are not for rows.

    All indices agree on the rows, which correspond one to one to the kernel's outermost loops, and
    differ at most in the loops along the row. If the row may be `parted`, a loop along it may count
    part of an axis. This is so for heads that share the keys of scores; but also for the heads of a
    projection, which is better stored.
    """
    first, parts = reader.indices[0], row_parts(reader)
    row_loops = loops_of(parts)
    along = loops_of(first) - row_loops
    pairs = [pair for index in reader.indices for pair in zip(index, parts, strict=True)]
    apart = [at for at, part in pairs if at is not part]
    if not along or not all((parted or at.op is Ops.RANGE) and _in_turn(at) for at in apart):
        return None
    if any(row_loops != set(context[: len(row_loops)]) for context in reader.contexts):
        return None
    if not _is_shared(node, first, along, made):
        return None
    axes = zip(node.room, first, parts, strict=True)
    rows = prod(n if at is part else turns_of(part.ranges) for n, at, part in axes)
    if turns_of(row_loops) > rows or turns_of(row_loops) < FEWEST_ROWS:
        return None
    own = frozenset().union(*map(loops_of, reader.indices))
    redone = max(turns_of(r for r in c if r not in own) for c in reader.contexts)
    return KeptRow(turns_of(along), redone, len(along) == 1)
