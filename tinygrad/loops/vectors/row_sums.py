"""Reductions along memory. A row is spread over the lanes of several vectors, or of a matrix unit,
which are combined at the end. Also rows that several reductions read one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tinygrad.loops.cost import turns, weight
from tinygrad.loops.draft import COPIES, UNROLL_WHOLE, Draft, Nest, names, steps_along
from tinygrad.loops.layout import option, stores_of
from tinygrad.loops.operands import owners_of
from tinygrad.loops.products import contractions, fit, vector_unit
from tinygrad.loops.reads import LONGEST_STEP, reads_of, step, sums_of
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp

FEW_VECTORS = 24
"""Vectors of a short row."""

MOST_COPIES = 64
"""A short reduction beside a tile becomes a loop if it would be unrolled more often than this."""


def spread_reduction(
    draft: Draft, reduction: UOp, last: UOp | None, copies: int = COPIES, always: bool = False
) -> None:
    """Spreads a reduction along memory over `copies` vectors, which are folded at the end."""
    loop = own_ranges(reduction)[-1]
    if draft.loops.get(name_of(loop)) is not loop or role_of(loop) != "LOOP":
        return  # done before, for another reader
    # as it is now: loops of reductions inside may have become vectors
    reduction = draft.sum_over(name_of(loop))
    if is_word(draft, reduction):
        _words_of_lanes(draft, loop)
    elif not _lies_along_memory(draft, reduction, last):
        _unroll_a_short_one(draft, reduction, last)
    elif not _meets_a_vector(draft, reduction, None if always else last):
        _spread_over_vectors(draft, reduction, copies, whole_run=always)


def _lies_along_memory(draft: Draft, reduction: UOp, last: UOp | None) -> bool:
    """Whether a reduction fills vectors that are read whole, or goes down a few columns."""
    loop = own_ranges(reduction)[-1]
    if not (size_of(loop) > UNROLL_WHOLE or size_of(loop) >= draft.lanes > 1):
        return False
    down = last is not None and _is_short(draft, last) and has_columns(draft, reduction, last)
    return down or 1 in steps_along(reduction.src[0].toposort(), loop)


def _spread_over_vectors(draft: Draft, reduction: UOp, copies: int, whole_run: bool) -> None:
    """Gives a reduction's innermost loop to a unit, if one fits, and to vectors; with sums inside
    that are read in one run, the next loops too."""
    *outer, loop = own_ranges(reduction)
    unit = vector_unit(draft, loop)
    if unit is not None and size_of(loop) >= draft.lanes * unit[0].depth:
        fit(draft, name_of(loop), *unit)
    draft.vectorise(name_of(loop), copies, "SPREAD")
    has_words = any(is_word(draft, n) for n in sums_of(reduction.src[0].toposort()))
    if whole_run and unit is None and not has_words:
        _spread_blocks(draft, names(outer), size_of(loop) // draft.lanes, copies)


def _unroll_a_short_one(draft: Draft, reduction: UOp, last: UOp | None) -> None:
    """Makes copies of a short reduction's turns, or of those of its inner loops that are few."""
    copies_around = turns(r for r in reduction.ranges if role_of(r) == "UNROLL")
    most, own = min(UNROLL_WHOLE, MOST_COPIES // copies_around), own_ranges(reduction)
    while last is not None and turns(own) > most >= size_of(own[-1]):
        own = own[1:]  # where lanes lie is known then, and which of them are masked
    if turns(own) <= most:
        draft.give("UNROLL", (name_of(r) for r in own if role_of(r) == "LOOP"))


def has_columns(draft: Draft, reduction: UOp, last: UOp) -> bool:
    """Whether a reduction goes down a few columns, one for each turn of `last`, that lie side by
    side and are longer than a vector."""
    loop = own_ranges(reduction)[-1]
    reads = [n for n in reads_of(reduction.src[0].toposort()) if loop in n.ranges]
    if not draft.fills_vectors(loop) or not all(last in n.ranges for n in reads):
        return False
    return any(step(n, loop) in range(2, LONGEST_STEP + 1) for n in reads)


def _is_short(draft: Draft, last: UOp) -> bool:
    """Whether a stored row has no room for vectors: those of its columns' sums lie down them."""
    return role_of(last) == "LOOP" and size_of(last) < draft.lanes


def _spread_blocks(draft: Draft, outer: list[str], vectors: int, copies: int) -> None:
    """Spreads the next loops of a sum whose innermost loop has few vectors: the parts of a block of
    packed numbers. They get sums of their own until there are `copies` of these. The rest of a
    block is unrolled, since it differs from part to part what the parts share and where they
    lie."""
    for name in reversed(outer):
        loop = draft.loops[name]
        if not is_plain_loop(loop) or vectors >= UNROLL_WHOLE:
            return
        owner, *_ = owners_of(draft.kernel, loop)
        whole = vectors * size_of(loop) <= copies
        if not whole and None in steps_along(owner.toposort(), loop):
            whole = vectors * size_of(loop) <= UNROLL_WHOLE
        if not whole:
            parts = (n for n in (8, 4, 2) if vectors * n <= copies and size_of(loop) % n == 0)
            if (part := next(parts, 1)) > 1:
                draft.split(name, part, name + "b", "LOOP", "SPREAD")
            return
        draft.do("role", name, "SPREAD" if vectors < copies else "UNROLL")
        vectors *= size_of(loop)


def is_word(draft: Draft, reduction: UOp) -> bool:
    """Whether a unit takes in the whole innermost loop of a sum at once, as a lane's share, which
    lies side by side: the sum's vectors run along another loop."""
    loop = own_ranges(reduction)[-1]
    unit = vector_unit(draft, loop) if is_plain_loop(loop) else None
    is_whole = unit is not None and size_of(loop) == unit[0].depth
    return is_whole and {*steps_along(reduction.src[0].toposort(), loop)} == {1}


def _words_of_lanes(draft: Draft, loop: UOp) -> None:
    """Gives the products of `loop` to a unit, if a loop of vectors has its lanes laid out as the
    unit expects. The sum's other loops are unrolled."""
    unit = vector_unit(draft, loop)
    reduction = draft.sum_over(name_of(loop))
    reads = [n for n in reads_of(reduction.src[0].toposort()) if loop in n.ranges]
    lanes = [r for r in reduction.ranges if role_of(r) == "VECTOR" and size_of(r) == draft.lanes]
    beside = [r for r in lanes if {*steps_along(reads, r)} == {size_of(loop)}]
    outer = own_ranges(reduction)[:-1]
    if unit is not None and beside:
        fit(draft, name_of(loop), *unit)
        draft.do("drop_single")
    if turns(outer) <= UNROLL_WHOLE:
        draft.give("UNROLL", names(outer))


def _meets_a_vector(draft: Draft, reduction: UOp, last: UOp | None) -> bool:
    """Whether a vector along the reduction would meet another one in the same value: a vector along
    the stored row, along the row of a stage that its readers fill, or of an inner reduction."""
    if last in reduction.ranges and last is not None and draft.lanes_within(size_of(last)) > 1:
        return True
    rows = {r for s in draft.stages.values() if option(s, "first") for r in own_ranges(s)}
    if any(r in rows or role_of(r) == "VECTOR" for r in reduction.ranges):
        return True
    return reduced_by_vectors(reduction.src[0].toposort(), own_ranges(reduction)[-1])


def reduced_by_vectors(nodes: Iterable[UOp], loop: UOp) -> bool:
    """Whether a reduction that depends on the loop runs over a vector already, or a stage that does
    is filled by vectors. If the loop is the stored row, another nest has the same one, or the
    reduction is in a stage that is filled for each of its elements."""
    inside = (n for n in nodes if n.op in (Ops.REDUCE, Ops.STAGE) and loop in n.ranges)
    return any(role_of(r) == "VECTOR" for node in inside for r in own_ranges(node))


# ---- two rows ------------------------------------------------------------------------------------


def are_short_rows(draft: Draft, nest: Nest, sums: list[UOp]) -> bool:
    """Whether short rows are summed in turn, as for a mean and a variance: what ends each sum takes
    as long as the sum, and nothing else can be done meanwhile but another row."""
    *outer, last = nest.loops
    loops = {r for n in sums for r in own_ranges(n)}
    if not nest.is_top or draft.stages or not outer or len(stores_of(draft.kernel)) > 1:
        return False
    is_plain = all(map(is_plain_loop, (outer[-1], last, *loops)))
    is_each_row = all(n.ranges == {*outer} and len(own_ranges(n)) == 1 for n in sums)
    if not is_plain or not is_each_row or most_together(sums) not in range(1, len(sums)):
        return False
    steps = {step for r in loops for step in steps_along(draft.nodes, r)}
    sizes = {*map(size_of, loops)}
    return steps <= {0, 1} and draft.lanes < min(sizes) <= max(sizes) <= FEW_VECTORS * draft.lanes


def most_together(sums: list[UOp]) -> int:
    """How many of these sums share their loops, at most."""
    return max(Counter(map(own_ranges, sums)).values(), default=0)


def take_two_rows(draft: Draft, row: str) -> None:
    """Computes two rows of this loop at a time."""
    parts = [r for r in draft.nest("store").loops if name_of(r).startswith(row)]
    inner = next((r for r in reversed(parts) if is_plain_loop(r)), None)
    if inner is not None and size_of(inner) % 2 == 0:
        pair = draft.split(name_of(inner), 2, name_of(inner) + "u", "LOOP", "UNROLL")
        *rest, vector = (n for n in draft.names_in("store") if n != pair)
        draft.do("order", "store", (*rest, pair, vector))


# ---- the next row --------------------------------------------------------------------------------

SHORTEST_ROW = 8192
"""Bytes that a processor prefetches by itself."""

LONG = 8
"""Operations of one node, for each element, that give memory time to keep up: an exponential."""


def ask_for_the_next_row(draft: Draft) -> None:
    """If several passes go through a row, the first waits for memory and the later ones find the
    row in the cache. So the later passes prefetch the next row, if both easily fit in the cache. A
    processor drops prefetches when a short pass issues too many: so all passes prefetch, unless one
    of them computes so long that memory keeps up."""
    outer = draft.nest("store").loops
    rows = [r for r in outer if role_of(r) in ("LOOP", "PARALLEL")]
    passes = [n for n in draft.sums if n.ranges and n.ranges <= {*rows}]
    if len(passes) < 2 or contractions(draft, draft.nest("store")):
        return
    row = max({r for n in passes for r in n.ranges}, key=rows.index)
    read_in = {own_ranges(node): _read(node, row) for node in passes if own_ranges(node)}
    first, *later = read_in
    read_again = {memory for loops in later for memory in read_in[loops]}
    nbytes = sum(size for memory, size in read_in[first].items() if memory in read_again)
    if not SHORTEST_ROW <= nbytes <= draft.target.cache_l2 // 4:
        return
    asking = [*later, outer[outer.index(row) + 1 :]]
    if all(weight(node) < LONG for one in passes for node in one.src[0].toposort()):
        asking.insert(0, first)
    counted = [[name_of(r) for r in loops if role_of(r) == "LOOP"] for loops in asking]
    innermost = [found[-1] for found in counted if found]
    if innermost:
        draft.do("prefetch", name_of(row), 1, *innermost)


def _read(node: UOp, row: UOp) -> dict[UOp, int]:
    """The buffers of which a reduction reads a part for each row, and how many bytes."""
    inner = sums_of(node.src[0].toposort())
    found: dict[UOp, int] = {}
    for read in reads_of(node.src[0].toposort(stop=inner)):
        if read.src[0].op is Ops.PARAM and row in read.ranges:
            along = turns(r for r in read.ranges if r not in node.ranges)
            found[read.src[0]] = max(found.get(read.src[0], 0), along * read.dtype.itemsize)
    return found
