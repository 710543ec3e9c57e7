"""The heuristic: a recipe for any kernel, from its loop nest and the machine's description alone
(vector bytes, registers, ports, caches). It knows no kernel by name, and the number of cores plays
no part."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from math import lcm

from tinygrad.base.settings import NOOPT
from tinygrad.base.target import Target
from tinygrad.loops.cost import estimate
from tinygrad.loops.draft import COPIES, SHORT_VECTORS, UNROLL_WHOLE, Draft, names, steps_along
from tinygrad.loops.groups.schedule import schedule_groups
from tinygrad.loops.layout import LINE, flat_offset, indices, option, stores_of
from tinygrad.loops.products import contractions, factors_of
from tinygrad.loops.reads import divisions, is_index, linear, reads_of, step, sums_of
from tinygrad.loops.recipe import Recipe
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.sharing import keep_row_sums, share_values
from tinygrad.loops.siblings import join_siblings
from tinygrad.loops.vectors.orientation import transpose_windows
from tinygrad.loops.vectors.parts import sum_in_parts
from tinygrad.loops.vectors.products import product
from tinygrad.loops.vectors.row_sums import (
    ask_for_the_next_row,
    has_columns,
    is_word,
    spread_reduction,
)
from tinygrad.loops.vectors.stencils import stencil
from tinygrad.loops.vectors.streams import stream
from tinygrad.loops.vectors.tasks import all_stages_depend_on, parallelise
from tinygrad.simplify.affine import affine
from tinygrad.uop import GroupOp, Ops, UOp

PLANE = 32
"""Vectors of pixels in a large plane: the partial tiles at its end then hardly matter."""


def schedule(kernel: UOp, target: Target) -> tuple[UOp, Recipe]:
    """The scheduled kernel, and the recipe that produced it."""
    if NOOPT:
        return kernel, ()
    draft = Draft(kernel, target)
    draft.do("drop_single")
    if target.has_groups:
        merge_loops(draft)
        schedule_groups(draft)
    elif target.vector == 0:
        keep_rows(draft)
    elif _is_in_order(draft):
        _ordered(draft)
    else:
        _vectors(draft)
        _stream_large_outputs(draft)
    return draft.kernel, draft.recipe


def _vectors(draft: Draft) -> None:
    take_apart(draft)
    if stencil(draft):
        return
    results = transpose_windows(draft) or sum_in_parts(draft)
    merge_loops(draft)
    draft.planes |= {*names(_planes(draft, draft.kernel.src[0]))}
    join_siblings(draft)
    keep_rows(draft)
    for name in reversed(draft.kept):  # innermost first: readers then know how far it is filled
        if not option(draft.stages[name], "first"):
            _nest(draft, name)
    for name in (*results, *draft.added, *stores_of(draft.kernel)):
        _nest(draft, name)
    ask_for_the_next_row(draft)


def _is_in_order(draft: Draft) -> bool:
    return any(role_of(loop) == "ORDERED" for loop in draft.nest("store").loops)


def keep_rows(draft: Draft) -> None:
    """Stages shared values, and ends loops where only identities would follow."""
    share_values(draft)
    _show_bounds(draft)
    draft.do("trim", tuple(sorted(draft.blocked | draft.edges | draft.planes)))
    keep_row_sums(draft)


def _show_bounds(draft: Draft) -> None:
    """Splits a loop of which masks in stages, or reads of them, use the quotient or remainder by a
    divisor of its size: the inner loop may then start late or stop early. Queries of heads that
    share keys are such a case."""
    while (found := _hidden(draft)) is not None:
        loop, divisor = found
        draft.split(name_of(loop), divisor, name_of(loop) + "g")


def _hidden(draft: Draft) -> tuple[UOp, int] | None:
    """A loop of which kept stages use the quotient or remainder, in a mask or where they are read,
    and the divisor."""
    kept = [draft.stages[name] for name in draft.kept]
    used = [n for stage in kept for n in stage.src[0].toposort() if n.op is Ops.CMPLT]
    used += [at for n in reads_of(draft.nodes) if n.src[0] in kept for at in indices(n)]
    for loop, divisor in divisions(n for one in used for n in one.toposort()):
        if loop.op is Ops.RANGE and size_of(loop) > divisor and size_of(loop) % divisor == 0:
            return loop, divisor
    return None


def schedule_small(kernel: UOp, target: Target) -> tuple[UOp, Recipe]:
    """The same with half of the registers, for smaller tiles: for a kernel whose text is too
    long."""
    return schedule(kernel, replace(target, registers=target.registers // 2))


def schedule_scalars(kernel: UOp, target: Target) -> tuple[UOp, Recipe]:
    """Plain loops, the outer ones as tasks: for a kernel whose vectors would have to be assembled
    lane by lane, which makes more text than it saves time."""
    draft = Draft(kernel, target)
    draft.do("drop_single")
    if not _is_in_order(draft):
        keep_rows(draft)
        loops = draft.names_in("store")
        parallelise(draft, [n for n in loops if all_stages_depend_on(draft, n)])
    return draft.kernel, draft.recipe


def _nest(draft: Draft, name: str) -> None:
    nest = draft.nest(name)
    stage = draft.stages.get(name)
    if stage is not None and any(role_of(loop) == "VECTOR" for loop in stage.ranges):
        return  # it is filled for each lane of a loop around it, so its own loops can't be vectors
    inside = draft.sums_in(nest)
    if stage is not None and any(role_of(r) == "VECTOR" for n in inside for r in own_ranges(n)):
        for node in inside:  # vectors of a sum that has several readers: all lie along the sums
            spread_reduction(draft, node, None)
        return
    found = contractions(draft, nest)
    if any(is_word(draft, n) for n in sums_of(draft.below(nest.values))):
        found = []  # their vectors run along another loop of the sum
    if not (found and product(draft, nest, found)):
        stream(draft, draft.nest(name))


def _ordered(draft: Draft) -> None:
    """Loops that must run in order stay as they are; loops inside may become vectors."""
    loops = draft.nest("store").loops
    if any(node.op is Ops.RUNNING for node in draft.nodes):
        _running(draft)
        return
    first = next(i for i, loop in enumerate(loops) if role_of(loop) == "ORDERED")
    outer = [name_of(loop) for loop in loops[:first]]
    last = loops[-1]
    writes = draft.nest("store").writes
    if role_of(last) == "LOOP" and all(step(w, last) == 1 for w in writes):
        draft.vectorise(name_of(last), 1)
    elif role_of(last) == "ORDERED" and len(last.src) == 1:  # a limit would branch in each lane
        _lanes_in_order(draft, last)
    parallelise(draft, [n for n in outer if n in draft.loops])


def _lanes_in_order(draft: Draft, loop: UOp) -> None:
    """The part of a loop in order that does not touch memory is computed for a vector of turns at
    once. At least two turns are left: a loop of one carries nothing on."""
    lanes = draft.lanes_within(size_of(loop))
    lanes //= 2 if lanes == size_of(loop) else 1
    if lanes > 1:
        draft.split(name_of(loop), lanes, name_of(loop) + "v", "ORDERED", "VECTOR")


def _running(draft: Draft) -> None:
    """A running reduction: the innermost loop runs in order. Vectors lie along the elements that
    are written; if that is the loop in order, a vector's lanes run inside it."""
    merge_loops(draft)
    *outer, in_order = draft.nest("store").loops
    (write, *_) = draft.nest("store").writes
    along = next((loop for loop in outer if step(write, loop) == 1), in_order)
    if along is not in_order:
        draft.vectorise(name_of(along), COPIES)
    else:
        _lanes_in_order(draft, in_order)
    parallelise(draft, [name_of(loop) for loop in outer])
    _stream_large_outputs(draft)


def _stream_large_outputs(draft: Draft) -> None:
    """Writes large outputs past the caches. An output larger than the caches is evicted before it
    is read again, so a kernel that touches more than half of the shared cache should leave little
    of its results there."""
    stores, target = draft.kernel.src, draft.target
    written = sum(s.src[0].src[0].arg[1] * s.src[0].dtype.itemsize for s in stores)
    if written < 2 * target.cache_l2 or 2 * estimate(draft.kernel).bytes <= target.cache_l3:
        return
    outputs = {s.src[0].src[0] for s in stores}
    read_back = any(n.src[0] in outputs for s in stores for n in reads_of(s.src[1].toposort()))
    if not read_back and all(map(_fills_lines, stores)):
        draft.do("stream")


def _fills_lines(store: UOp) -> bool:
    """Whether rows begin on cache lines, or where the row before them ended. A line that is written
    partly past the cache and partly through it is transferred twice."""
    written = store.src[0]
    steps, run = affine(written.src[1])[0], written.dtype.itemsize
    for loop in reversed(own_ranges(store)):
        apart = abs(steps.get(loop, 0)) * written.dtype.itemsize
        if run == written.dtype.itemsize < apart <= LINE:
            return False  # what lies between is written elsewhere
        if apart > LINE and apart % LINE and apart != run:
            return False
        run = run * size_of(loop) if apart == run else 0
    return True


# ---- loops that a product takes apart ------------------------------------------------------------


def take_apart(draft: Draft) -> None:
    """Splits a loop that a product's operand uses only by quotients or remainders by a divisor of
    its size: channels in groups, axes that a reshape flattened, pixels that a window placed side by
    side. If one operand uses the quotient and the other the remainder, each gets its own loop."""
    while (found := _composed(draft)) is not None:
        loop, divisor = found
        inner = draft.split(name_of(loop), divisor, name_of(loop) + "g")
        for pair in _pairs(draft):
            _move_apart(draft, name_of(loop), inner, pair)


def _move_apart(draft: Draft, outer: str, inner: str, pair: tuple[UOp, UOp]) -> None:
    """Moves the inner loop outside of all others if both operands use it; if one uses only the
    outer loop and the other only the inner one, beside the loops of its own operand."""
    rest = [n for n in draft.names_in("store") if n != inner]
    if len(rest) == len(draft.nest("store").loops):
        return  # a sum's loop: its parts are next to each other
    if inner in names(pair[0].ranges & pair[1].ranges):
        draft.do("order", "store", (inner, *rest))
        draft.planes |= {inner}
    for one, other in (pair, pair[::-1]):
        first, second = ({name_of(r) for r in operand.ranges} for operand in (one, other))
        if outer in first - second and inner in second - first:
            at = min(i for i, n in enumerate(rest) if n == outer or n in second - first)
            draft.do("order", "store", (*rest[:at], inner, *rest[at:]))
            draft.planes |= {inner}


def _pairs(draft: Draft) -> list[tuple[UOp, UOp]]:
    return [p for n in draft.sums if (p := factors_of(n)) is not None]


def _packed_sums(draft: Draft) -> set[UOp]:
    """Loops of sums along which a factor is unpacked from blocks: numbers of less than a byte, with
    scales between them. No read of the factor advances in constant steps."""
    return {
        loop
        for node in draft.sums
        for factor in factors_of(node) or ()
        for loop in own_ranges(node)
        if factor.op is not Ops.INDEX and {*steps_along(factor.toposort(), loop)} == {None}
    }


def _composed(draft: Draft) -> tuple[UOp, int] | None:
    """A loop that an operand uses only divided, beside a number at most, and the least divisor."""
    loops = {*draft.nest("store").loops, *_packed_sums(draft)}
    operands = [operand for pair in _pairs(draft) for operand in pair]
    seen = divisions({n for operand in operands for n in operand.toposort()})
    cuts: list[tuple[UOp, int]] = []
    for index, divisor in seen:
        terms, _ = affine(index)
        loop = next(iter(terms), None)
        if loop is None or terms != {loop: 1} or loop not in loops or not is_plain_loop(loop):
            continue
        if divisor < size_of(loop) and size_of(loop) % divisor == 0:
            cuts.append((loop, divisor))
    return min(cuts, key=lambda cut: (cut[1], name_of(cut[0])), default=None)


# ---- loops that every access sees as one ---------------------------------------------------------


def merge_loops(draft: Draft) -> None:
    """Merges adjacent loops that every access steps through as through one."""
    while (pair := _mergeable(draft)) is not None:
        outer, inner = names(pair)
        draft.merge(outer, inner, "p")


def _mergeable(draft: Draft) -> tuple[UOp, UOp] | None:
    for closer in (draft.kernel.src[0], *draft.sums):
        own = own_ranges(closer)
        for outer, inner in zip(own, own[1:], strict=False):
            if (
                is_plain_loop(outer)
                and is_plain_loop(inner)
                and _as_one(draft, closer, outer, inner)
            ):
                return outer, inner
    return None


def _as_one(draft: Draft, closer: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether p = outer*size + inner can replace both loops in every use.

    In a kernel that reduces, guards may use the quotient of p: convolutions merge their pixels,
    because packing works best with a masked vector over merged pixels. Some addresses may use it,
    too (`_may_divide`).
    """
    pair, planes = {outer, inner}, _planes(draft, closer)
    dividing = _may_divide(draft, closer, inner)
    for node in draft.nodes:
        found = pair & node.ranges
        if node.op is Ops.RANGE and node not in pair and found:
            return False
        if node.op in (Ops.INDEX, Ops.REDUCE) and len(found) == 1:
            return False
        if node.op is Ops.STORE and not linear(node.src[0].src[1], outer, inner):
            return False
        if not found or is_index(node):
            continue
        if node.op is Ops.INDEX:
            if node not in dividing and not linear(flat_offset(node), outer, inner):
                return False
        elif node.op in GroupOp.Comparison and draft.sums and outer not in planes:
            if _bounds_another(draft, node, pair) and not _goes_through(node, outer, inner):
                return False
        elif node.op in (*GroupOp.Comparison, Ops.CAST) and not _goes_through(node, outer, inner):
            return False
    return True


def _goes_through(node: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether the indices among a node's sources step through both loops as through one."""
    return all(linear(s, outer, inner) for s in node.src if is_index(s))


def _may_divide(draft: Draft, closer: UOp, inner: UOp) -> Container[UOp]:
    """The reads whose addresses may use the quotient of a merged loop: all, if rows of pixels are
    shorter than a vector; if rows are not a whole number of vectors, or few, those of operands that
    products pack."""
    width, lanes = size_of(inner), draft.lanes
    if not draft.sums or closer.op is not Ops.STORE or inner is not own_ranges(closer)[-1]:
        return ()
    alone = not contractions(draft, draft.nest("store"))
    if alone and (2 * width > lanes or any(has_columns(draft, n, inner) for n in draft.sums)):
        return ()
    divisors = {n for index, n in divisions(draft.nodes) if inner in affine(index)[0]}
    is_long = width > SHORT_VECTORS[0] and not _pairs(draft)
    if alone and is_long and any(lanes % lcm(width, n) for n in divisors):
        return ()  # which phase a lane has would change from vector to vector
    if width < lanes:
        return frozenset(draft.nodes)
    return _packed(draft) if width % lanes or width < 4 * lanes else ()


def _planes(draft: Draft, closer: UOp) -> list[UOp]:
    """The loop around a plane of pixels that is large by itself, if masks of a sum depend on it.
    Merged with the pixels, it would only hide that a tap is border for all of them."""
    if closer.op is not Ops.STORE or not draft.sums or draft.stages or draft.target.has_groups:
        return []
    loops, inside = [*own_ranges(closer)], 1
    while loops and inside < PLANE * draft.lanes:
        inside *= size_of(loops.pop())
    seen = [
        n.ranges for n in draft.nodes if n.op in GroupOp.Comparison and any(map(is_index, n.src))
    ]
    return [loop for loop in loops[-1:] if any(loop in ranges for ranges in seen)]


def _packed(draft: Draft) -> frozenset[UOp]:
    """The values that products pack into panels: panels are read in constant steps, however the
    values are read."""
    found: set[UOp] = set()
    for one in contractions(draft, draft.nest("store")):
        found.update(one.columns.toposort())
    return frozenset(found)


def _bounds_another(draft: Draft, comparison: UOp, pair: set[UOp]) -> bool:
    """Whether a long reduction beside these loops may end where the comparison says, and early for
    a large part of their turns (a causal mask, not a convolution's border). A quotient would hide
    that."""
    here = pair.union(draft.nest("store").loops)
    turns = max((size_of(r) for r in pair & comparison.ranges), default=0)  # taps have few turns
    others = (size_of(r) for r in comparison.ranges if r not in here)
    return turns > UNROLL_WHOLE and any(UNROLL_WHOLE < size <= 4 * turns for size in others)
