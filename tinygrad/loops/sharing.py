"""Values that several inner loops need. If values are equal up to the names of their loops, and
cost more than a load, the value is computed once and staged. Between the loops of a softmax a row
of it stays LOCAL. Where a product makes or reads the value tile by tile (attention's scores), a
block of that product's rows does."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.loops.cost import turns
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.layout import accumulates, row_padding, stores_of
from tinygrad.loops.products import factors_of, operands_of, those_in
from tinygrad.loops.reads import LONGEST_STEP, reads_of, step, sums_of
from tinygrad.loops.rebuild import replaced
from tinygrad.loops.register_tiles import register_tile
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.loops.trims import bounded
from tinygrad.schedule.bases import beneath
from tinygrad.uop import Ops, UOp

COSTLY = frozenset((Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.COS, Ops.POW, Ops.THREEFRY))
"""Operations whose results are worth keeping."""

LARGEST_BLOCK = 64
"""Rows of a block, at most."""

MOST_STAGES = 8
"""The values that a kernel stages, at most: each requires a search of the whole kernel."""

FEW_TERMS = 65
"""A sum of fewer products gains nothing from a group's tile, compared to the loops that use it."""


@dataclass(frozen=True)
class Candidate:
    """A value inside `loop` that occurs again inside each of `twins`, equal but for the name of the
    loop. `around`: the loops of a sum that are around `loop`."""

    value: UOp
    loop: UOp
    twins: tuple[UOp, ...]
    around: tuple[UOp, ...] = ()


def share_values(draft: Draft, group_rows: int = 0) -> None:
    """Stages every such value, then the values that products compute for a reduction. `group_rows`:
    the lanes of a group keep blocks of at most this many rows, and only of values that products
    compute or read."""
    for _ in range(MOST_STAGES):
        found = _shared(draft)
        if found is None or (group_rows and _row_loop(draft, found) is None):
            found = _made_for_reduction(draft)
        if found is None:
            break
        _keep(draft, found, group_rows)
    _own_loops(draft)


def keep_row_sums(draft: Draft) -> None:
    """Stages what the stores reduce for each row of a block, but not for each column, before the
    columns' loop: a softmax's sum isn't recomputed for each tile of the product with the values.
    Short sums with a causal mask are cheaper inside the tile, where several rows are computed side
    by side."""
    while (found := _row_sum(draft)) is not None:
        draft.kept += (draft.stage(found, those_in(found, draft.block_rows), "sum"),)


def _row_sum(draft: Draft) -> UOp | None:
    top, cut = draft.nest("store"), bounded(draft.kernel)
    sums = sums_of(draft.below(top.values))
    if not top.loops or not any(factors_of(n) and top.loops[-1] in n.ranges for n in sums):
        return None  # not a product
    for node in sums:
        whole = cut.isdisjoint(names(own_ranges(node)))
        if whole and top.loops[-1] not in node.ranges and those_in(node, draft.block_rows):
            return node
    return None


def _contexts(draft: Draft) -> list[tuple[UOp, UOp]]:
    """Each loop with a value inside it: loops of REDUCEs, of stages and of the STOREs. Loops whose
    limits depend on other loops are left out."""
    found = [
        (node.src[0], loop)
        for node in draft.nodes
        if node.op in (Ops.REDUCE, Ops.STAGE)
        for loop in own_ranges(node)
    ]
    top = draft.nest("store")
    found += [(value, loop) for value in top.values for loop in top.loops]
    return [(value, loop) for value, loop in found if not any(s.ranges for s in loop.src)]


def _shared(draft: Draft) -> Candidate | None:
    """The largest value with twins, of the first loop that has one. Later loops that need the value
    then read the stage."""
    contexts = _contexts(draft)
    if len(contexts) < 2 or not draft.sums:
        return None
    inside = {value: dict.fromkeys(draft.below((value,))) for value in {v for v, _ in contexts}}
    size: dict[UOp, int] = {}  # as a tree, so a value is larger than its parts
    for node in draft.nodes:
        size[node] = 1 + sum(size[s] for s in node.src)
    costly = _costly(draft)
    for value, loop in contexts:
        others = [(v, q) for v, q in contexts if q is not loop and q.src == loop.src]
        known: dict[UOp, dict[UOp, UOp]] = {q: {} for _, q in others}
        options = [
            e
            for e in (inside[value] if others else ())
            if loop in e.ranges and _is_value(e) and costly.get((e, loop), e in costly)
        ]
        for e in sorted(options, key=lambda e: size[e], reverse=True):
            # not a diagonal of the value: its rows would be one of the loops that read it
            apart = [(v, q) for v, q in others if q not in e.ranges]
            twins = [q for v, q in apart if replaced(e, {loop: q}, known[q]) in inside[v]]
            if twins and _fits(draft, e, loop):
                return Candidate(e, loop, tuple(dict.fromkeys(twins)))
    return None


def _made_for_reduction(draft: Draft) -> Candidate | None:
    """A value that a REDUCE takes in, or that it multiplies, and that a product computes for each
    turn of its loop: the two products need different tiles."""
    added = {stage.src[0] for stage in draft.stages.values() if accumulates(stage)}
    for node in (n for n in draft.sums if n not in added):
        *around, loop = own_ranges(node)
        for value in factors_of(node) or node.src[:1]:
            made = [n for n in sums_of(draft.below((value,))) if loop in n.ranges]
            pairs = [operands_of(n) for n in made if factors_of(n) and not _is_short(draft, n)]
            if not any(pair and _are_columns(loop, pair) for pair in pairs):
                continue
            found = Candidate(value, loop, (), tuple(around))
            if _fits(draft, value, loop) and _row_loop(draft, found) is not None:
                return found
    return None


def _are_columns(loop: UOp, pair: tuple[UOp, UOp]) -> bool:
    """Whether a loop is not one of all operands, each turn of which is a product of its own."""
    return not all(loop in side.ranges for side in pair)


def _is_short(draft: Draft, product: UOp) -> bool:
    """Whether each of these sums is needed once and has so few terms that a tile would not pay. A
    processor's vectors lie along a sum that is not kept, so it is short if it fills none."""
    once = product.ranges.issuperset(draft.nest("store").loops)
    has_vectors = draft.lanes > 1 and not draft.target.has_groups
    return once and turns(own_ranges(product)) < (draft.lanes if has_vectors else FEW_TERMS)


def _is_value(node: UOp) -> bool:
    return node.op not in (Ops.INDEX, Ops.RANGE, Ops.STAGE, Ops.CONST) and dtypes.is_float(
        node.dtype
    )


def _costly(draft: Draft) -> dict[object, bool]:
    """The nodes that have a costly operation below them, outside of stages. For a key (node, loop):
    whether a REDUCE below the node depends on the loop."""
    found: dict[object, bool] = {}
    reads: dict[UOp, frozenset[UOp]] = {}
    for node in draft.nodes:
        below = frozenset[UOp]()
        if node.op is not Ops.STAGE:
            below = below.union(*(reads[s] for s in node.src))
        if node.op is Ops.REDUCE:
            below |= {node}
        reads[node] = below
        if node.op in COSTLY or (node.op is not Ops.STAGE and any(s in found for s in node.src)):
            found[node] = True
        for reduction in below:
            for loop in reduction.ranges:
                found[node, loop] = True
    return found


def _fits(draft: Draft, value: UOp, loop: UOp) -> bool:
    return size_of(loop) * value.dtype.itemsize <= room(draft.target)


def room(target: Target) -> int:
    """The bytes for staged values: half of a private cache, or most of the memory that a group's
    lanes share."""
    return target.local_memory * 3 // 4 if target.has_groups else target.cache_l2 // 2


def _keep(draft: Draft, found: Candidate, group_rows: int) -> None:
    """Makes one stage for the value. If a product is involved, the loop over its rows is first
    split into blocks."""
    value, loop = found.value, found.loop
    rows = _row_loop(draft, found)
    over = [name_of(loop)]
    if rows is not None:
        if _cut_block(draft, found, rows, group_rows):
            return  # the next round finds the value again, in the new loops
        if _keep_results(draft, value, rows, loop):
            return
        over = [name_of(rows), *over]
    name = draft.numbered("row")
    options: tuple[tuple[str, object], ...] = (("first", True),)
    if rows is not None:
        extra = row_padding(size_of(loop), value.dtype.itemsize)
        options = (("pad", ((f"{name}.{name_of(rows)}", extra),)),)
    twins = tuple(name_of(t) for t in found.twins)
    draft.do("stage", draft.path(value), tuple(over), name, "LOCAL", options, twins)
    draft.kept += (name,)


def _keep_results(draft: Draft, value: UOp, rows: UOp, loop: UOp) -> bool:
    """Also stages what is reduced once for each row: the loops that fill a block of rows may have
    another order, and other readers may need the value."""
    once = {r for r in value.ranges if r is not loop}  # but not for each turn of a sum inside
    for node in sums_of(draft.below((value,))):
        if rows in node.ranges and {*node.ranges} <= once:
            draft.kept += (draft.stage(node, (name_of(rows),), "sum"),)
            return True
    return False


def _row_loop(draft: Draft, found: Candidate) -> UOp | None:
    """The loop over the rows of the products that compute or read the value."""
    value, loop = found.value, found.loop
    made = {n for n in sums_of(draft.below((value,))) if loop in n.ranges}
    forms = {value} | {replaced(value, {loop: q}) for q in found.twins}
    products: list[tuple[UOp, UOp]] = []
    for node in draft.sums:
        pair = operands_of(node)
        sides = [] if pair is None else [*pair, *(beneath(side, (Ops.CAST,)) for side in pair)]
        if pair is not None and (node in made or not forms.isdisjoint(sides)):
            products.append(pair)
    if not products:
        return _adjacent_rows(draft, found)

    def counts_rows(row: UOp) -> bool:
        if row not in value.ranges or row is loop or row in found.twins:
            return False
        everywhere = all(row in side.ranges for pair in products for side in pair)
        return size_of(row) > 1 and role_of(row) == "LOOP" and not everywhere

    loops = list(draft.nest("store").loops)
    loops += [r for s in draft.stages.values() for r in own_ranges(s)[:-1]]
    loops += found.around
    return next(filter(counts_rows, reversed(loops)), None)


def _adjacent_rows(draft: Draft, found: Candidate) -> UOp | None:
    """The loop over rows that lie side by side, element by element, as a transposed matrix's do: a
    block of them is transposed once, and the loops inside go through it along memory."""
    value, loop = found.value, found.loop
    fit = 2 * draft.lanes * size_of(loop) * 4 <= room(draft.target) and not draft.target.has_groups
    fit = fit and size_of(loop) >= draft.lanes  # shorter ones stay in registers
    for read in reads_of(draft.below((value,))) if fit else ():
        for rows in draft.nest("store").loops[:-1]:
            apart = rows is not loop and (step(read, loop) or 0) > LONGEST_STEP
            if (
                draft.fills_vectors(rows)
                and apart
                and step(read, rows) == 1
                and role_of(rows) == "LOOP"
            ):
                return rows
    return None


def _cut_block(draft: Draft, found: Candidate, rows: UOp, group_rows: int) -> bool:
    """Splits the loop over rows into blocks whose values fit in the memory that holds the stage. If
    the rows are terms of a sum, what each turn of the stores' loops takes in is blocks already."""
    value, loop, name, size = found.value, found.loop, name_of(rows), size_of(rows)
    top, are_terms = draft.nest("store").loops, rows in found.around
    if name in draft.blocked | draft.block_rows or not (are_terms or rows in top):
        return False
    if are_terms:
        draft.blocked |= {*names(r for r in top if r in value.ranges)[-1:]}
    block, most = 1, group_rows
    if not group_rows:
        columns = size_of(loop if are_terms else top[-1])
        block, most = register_tile(draft, size, columns, 4).rows, LARGEST_BLOCK
    while 2 * block * size_of(loop) * 4 * 2 <= room(draft.target) and 2 * block <= most:
        block *= 2
    if block >= size:
        draft.block_rows |= {name}
        if not are_terms:
            _inside_the_others(draft, value, (name,))
        return False
    inner = draft.split(name, block, name + "b")
    if are_terms:
        draft.block_rows |= {inner}
        return True
    _add_up_blocks(draft, name, inner)
    _inside_the_others(draft, value, (name, inner))
    draft.blocked |= {name}
    draft.block_rows |= {inner}
    return True


def _inside_the_others(draft: Draft, value: UOp, rows: tuple[str, ...]) -> None:
    """Moves the loops over rows inside of the others that the value depends on: a block of rows is
    computed once, and what all blocks have in common once for all."""
    loops = draft.names_in("store")
    outer = [n for n in loops if n not in rows and draft.loops[n] in value.ranges]
    draft.do("order", "store", (*outer, *rows, *(n for n in loops if n not in (*outer, *rows))))


def _add_up_blocks(draft: Draft, blocks: str, rows: str) -> None:
    """Sums over the rows in other stores are accumulated block by block, over all turns of the
    loops that only these stores have."""
    shared, *others = stores_of(draft.kernel)
    for nest in others:
        for node in sums_of(draft.below(draft.nest(nest).values)):
            if {blocks, rows} <= {*names(own_ranges(node))}:
                draft.do("regroup", draft.path(node), (rows,))
                (whole,) = (n for n in draft.sums if blocks in names(own_ranges(n)))
                own = (n for n in draft.names_in(nest) if n not in draft.names_in(shared))
                name = draft.numbered("acc")
                draft.do("accumulate", draft.path(whole), those_in(whole, own), name)
                draft.added += (name,)


def _own_loops(draft: Draft) -> None:
    """A sum over rows that are a loop of the first stores gets a loop of its own, once all values
    of these rows are staged: each of the two then goes through a block in tiles of its own."""
    for loop in draft.names_in("store"):
        for node in draft.sums:
            if names(own_ranges(node)) == [loop] and loop not in draft.blocked:
                draft.do("own_loop", draft.path(node), draft.numbered("k"))
