"""Nests without a matrix product, whose time is set by memory. The vector axis is the one along
which accesses are contiguous. Where accesses disagree, square blocks are transposed in registers. A
reduction along memory is spread over several vectors; a reduction down the columns keeps a row of
accumulators."""

from __future__ import annotations

from math import ceil, gcd, lcm

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import round_up
from tinygrad.loops.cost import turns, weight, work
from tinygrad.loops.draft import COPIES, Draft, Nest, names
from tinygrad.loops.reads import LONGEST_STEP, divisions, reads_of, step, sums_of
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.vectors.borders import border_outside, counted
from tinygrad.loops.vectors.phases import phases_of, split_phases
from tinygrad.loops.vectors.row_sums import (
    are_short_rows,
    is_word,
    most_together,
    reduced_by_vectors,
    spread_reduction,
    take_two_rows,
)
from tinygrad.loops.vectors.runs import (
    are_squares,
    come_from_memory,
    lay_runs_side_by_side,
    read_by,
    runs_of,
    split_into_runs,
    stage_one_by_one,
    take_rows_together,
    vectors_in_flight,
)
from tinygrad.loops.vectors.short_rows import (
    ROWS,
    is_one_vector,
    lanes_pay,
    lay_side_by_side,
    merge_short_rows,
)
from tinygrad.loops.vectors.stretches import unbroken
from tinygrad.loops.vectors.tasks import (
    GRAIN,
    MANY_TASKS,
    TASKS,
    TASKS_WITH_BLOCKS,
    all_reductions_depend_on,
    all_stages_depend_on,
    parallelise,
)
from tinygrad.simplify.affine import affine
from tinygrad.uop.node import UOp
from tinygrad.uop.op import WEIGHT, GroupOp, Ops

WINDOW = 320
"""Operations that a core can execute out of order: the turns of a longer body overlap by
themselves, and copies of it would only be more text. If nothing is read, half of this is enough."""

ACCUMULATE_TURNS = 8
"""Rows that are summed in registers before they are added to a row of accumulators."""

STRIP_BYTES = 4096
"""The narrowest strip of columns that a task sums: less would read memory in pieces."""

BESIDE_SQUARES = 8
"""Operations on an element, at most, that are done while squares are transposed in registers: more
of them need these registers, and are too much text for all rows of a square."""

COLUMN_READERS = 64
"""Sums that read a column, from which on it is laid along them first."""


def stream(draft: Draft, nest: Nest) -> None:
    """Roles and tasks for a nest that only passes over memory."""
    if _by_merged_rows(draft):
        return
    nest = unbroken(draft, nest)
    if not nest.loops:  # a single result
        for reduction in draft.sums_in(nest):
            spread_reduction(draft, reduction, None)
        return
    nest, across = _direction(draft, nest)
    last, outer = nest.loops[-1], names(nest.loops[:-1])
    if _by_lanes_or_laid_along(draft, nest, draft.sums_in(nest), across):
        return
    is_cut = across is None and border_outside(draft, nest)
    nest = draft.nest(nest.name)
    reductions = draft.sums_in(nest)
    rows = [r for r in reductions if across in own_ranges(r)]
    are_short = across is None and are_short_rows(draft, nest, reductions)
    if across is None:
        _spread(draft, nest, COPIES // (most_together(reductions) if are_short else 1))
        if nest.is_top and _columns(draft, nest, reductions):
            return
        _along(draft, nest, last)
    elif rows:
        _reduced_rows(draft, nest, rows, across)
    else:
        _transpose(draft, nest, last, across)
    if nest.is_top:
        _make_tasks(draft, nest, outer, rows, are_short)
    if is_cut:
        draft.do("trim", counted(draft.nest(nest.name)))


def _spread(draft: Draft, nest: Nest, copies: int = COPIES, always: bool = False) -> None:
    """Spreads the nest's reductions along memory over vectors."""
    last = nest.loops[-1]
    along = None if reduced_by_vectors(draft.inner_stages, last) else last
    for reduction in sorted(draft.sums_in(nest), key=lambda r: is_word(draft, r)):
        spread_reduction(draft, reduction, along, copies, always)


def _reduced_rows(draft: Draft, nest: Nest, rows: list[UOp], across: UOp) -> None:
    """Vectors along the rows that are reduced, `across` the stored one. Some of these are reduced
    together: as many as squares have rows, or those that share the other operand."""
    last = nest.loops[-1]
    if are_squares(draft, rows, last):
        _spread(draft, nest, copies=1, always=True)
        draft.split(name_of(last), draft.lanes, name_of(last) + "u", "LOOP", "UNROLL")
    else:
        _spread(draft, nest, vectors_in_flight(draft, rows, last, across), always=True)
        take_rows_together(draft, rows, last)


def _by_merged_rows(draft: Draft) -> bool:
    """Does the stores' nest by vectors over several short rows, if it has such rows."""
    period = merge_short_rows(draft)
    if period:
        nest = draft.nest("store")
        *outer, last = names(nest.loops)
        copies = _copies(draft, nest, nest.loops[-1])
        draft.vectorise(last, max(period, copies // period * period))
        parallelise(draft, _task_loops(draft, draft.nest("store"), outer, last, are_rows=False))
    return period > 0


def _by_lanes_or_laid_along(draft: Draft, nest: Nest, sums: list[UOp], across: UOp | None) -> bool:
    """Does a nest of short rows by lanes, or one of narrow matrices again once their columns lie
    along its sums. Whether it was one of these."""
    *outer, last = names(nest.loops)
    is_row = sums and not any(is_word(draft, n) for n in sums)
    if is_row and lay_side_by_side(draft, nest, sums, across):
        if nest.is_top:
            parallelise(draft, _task_loops(draft, nest, outer, last, are_rows=True))
        return True
    if (
        across is None
        and nest.is_top
        and not draft.stages
        and _lay_columns_along(draft, nest, sums)
    ):
        stream(draft, draft.nest(nest.name))
        return True
    return False


def _direction(draft: Draft, nest: Nest) -> tuple[Nest, UOp | None]:
    """The loop that vectors should run along instead of the stored row; or None, and the nest with
    a copy for each phase of its loops."""
    across = _across(draft, draft.reads_in(nest), nest.loops[-1])
    if across is not None:
        return nest, across
    phases = phases_of(draft, nest)
    return (split_phases(draft, nest, phases) if phases else nest), None


def _make_tasks(
    draft: Draft, nest: Nest, outer: list[str], rows: list[UOp], are_short: bool
) -> None:
    """Makes tasks of the outer loops, and of the last one if that doesn't repeat work."""
    last = name_of(nest.loops[-1])
    far = bool(rows) and come_from_memory(draft, rows, nest.loops[-1])
    multiple, side_by_side = 1, list[str]()
    # in squares a turn has as many rows as a vector has lanes
    are_in_squares = draft.loops.get(last) is not nest.loops[-1]
    if far and not are_in_squares:
        last, side_by_side, multiple = split_into_runs(draft, nest, rows)
    outer = [n for n in outer if n not in side_by_side]
    parallelise(draft, _task_loops(draft, nest, outer, last, bool(rows)), multiple)
    if are_short:
        take_two_rows(draft, outer[-1])
    if rows and nest.name == "store":
        _those_that_share_together(draft)
    if far:
        sums = stage_one_by_one(draft, side_by_side)
        if sums:  # vectors compute the results of these
            store = draft.nest("store")
            _along(draft, store, store.loops[-1])
        if side_by_side:
            inside = {name: [f"{name}.{loop}" for loop in side_by_side] for name in sums}
            lay_runs_side_by_side(draft, inside or {nest.name: side_by_side})


def _task_loops(draft: Draft, nest: Nest, outer: list[str], last: str, are_rows: bool) -> list[str]:
    """The loops that may be tasks: those that each stage depends on; and loops over blocks, if
    there are too few others. Loops that no sum is repeated in are enough, if they have enough
    turns."""
    found = [n for n in outer if all_stages_depend_on(draft, n)]
    if not are_rows and last in draft.loops and all_stages_depend_on(draft, last):
        found = _ordered_names(draft, nest, [*found, last])
    elif are_rows and all_stages_depend_on(draft, last):
        found.append(last)
    if draft.turns(found) < TASKS_WITH_BLOCKS:
        found = _ordered_names(draft, nest, [*found, *draft.blocked])
    alone = [n for n in found if all_reductions_depend_on(draft, n)]
    return alone if draft.turns(alone) >= TASKS_WITH_BLOCKS else found


def _those_that_share_together(draft: Draft) -> None:
    """Makes tasks that read the same part of the largest buffer consecutive: they find it in the
    cache."""
    nest = draft.nest("store")
    reads = reads_of(draft.below(nest.values))
    largest = max(reads, key=lambda n: turns(n.ranges) * n.dtype.itemsize)
    tasks = [r for r in nest.loops if role_of(r) == "PARALLEL"]
    inside = [r for r in nest.loops if r not in tasks]
    tasks.sort(key=lambda r: r not in largest.ranges)
    draft.do("order", "store", names([*tasks, *inside]))


def _copies(draft: Draft, nest: Nest, last: UOp) -> int:
    """How many vectors along `last` are unrolled side by side: a power of two."""
    nodes, operations = draft.inline(draft.nest(nest.name).values), 0
    for node in nodes:
        if node.dtype is dtypes.index or node.op not in GroupOp.Elementwise | {Ops.INDEX}:
            continue
        apart = step(node, last) if node.op is Ops.INDEX else 0
        by_vectors = draft.lanes if apart is None else min(2 * abs(apart), draft.lanes)
        each = max(WEIGHT.get(node.op, 1), by_vectors)
        operations += each * turns(r for r in node.ranges if role_of(r) == "UNROLL")
    copies = COPIES
    window = WINDOW if reads_of(nodes) else WINDOW // 2
    while copies > 1 and copies * operations > window:
        copies //= 2
    return copies


def _along(draft: Draft, nest: Nest, last: UOp) -> None:
    """Vectors along the stored row; or copies of the vectors that lie down its columns."""
    if reduced_by_vectors(draft.nodes, last):
        if size_of(last) <= LONGEST_STEP and role_of(last) == "LOOP":
            draft.give("UNROLL", [name_of(last)])
    elif is_one_vector(draft, nest):
        lanes = 1 << size_of(last).bit_length()
        draft.split(name_of(last), lanes, name_of(last) + "v", "LOOP", "VECTOR")
    elif not _by_lanes(draft, nest, last):
        period, whole = _period(draft, nest, last), ceil(size_of(last) / draft.lanes)
        if role_of(last) == "LOOP" and 1 < min(period, whole) <= COPIES:
            block = draft.split(
                name_of(last), min(period, whole) * draft.lanes, name_of(last) + "i"
            )
            draft.split(block, draft.lanes, name_of(last) + "v", "UNROLL", "VECTOR")
        else:
            draft.vectorise(name_of(last), _copies(draft, nest, last))


def _period(draft: Draft, nest: Nest, last: UOp) -> int:
    """After how many vectors the lanes along `last` read in the same pattern again: remainders by
    3, such as the phases of a window of stride 3, after three."""
    found = divisions(draft.inline(nest.values))
    divisors = [n for index, n in found if last in affine(index)[0] and n <= LONGEST_STEP]
    return lcm(*divisors) // gcd(lcm(*divisors), draft.lanes)


def _by_lanes(draft: Draft, nest: Nest, last: UOp) -> bool:
    """Makes rows lanes that would else be scalars."""
    alone = nest.is_top and not draft.sums and not draft.stages and role_of(last) == "LOOP"
    is_short = draft.lanes_within(size_of(last)) == 1 and not draft.is_short_vector(name_of(last))
    return alone and is_short and lay_side_by_side(draft, nest, [], None)


def _across(draft: Draft, loads: list[UOp], last: UOp) -> UOp | None:
    """The loop along which reads are contiguous that aren't so along the stored row; or along which
    they are whole vectors, where along the stored row each lane would be a separate read."""
    apart = [n for n in loads if last in n.ranges and step(n, last) not in (0, 1)]
    for load in apart:
        steps = {1} if step(load, last) is not None else {*range(1, LONGEST_STEP + 1)}
        for loop in sorted(load.ranges - {last}, key=name_of):
            if draft.fills_vectors(loop) and role_of(loop) == "LOOP" and step(load, loop) in steps:
                return loop
    return None


def _columns(draft: Draft, nest: Nest, reductions: list[UOp]) -> bool:
    """A single reduction down the columns of rows that are read whole: its accumulators are a LOCAL
    row, and a task takes a strip of columns. Whole rows follow one another in memory, so a few runs
    of them are read in parallel."""
    last = nest.loops[-1]
    lanes = draft.lanes
    if len(reductions) != 1 or len(nest.values) != 1 or draft.stages or lanes == 1:
        return False
    (reduction,) = reductions
    if last not in reduction.ranges or len(own_ranges(reduction)) != 1:
        return False
    down = own_ranges(reduction)[0]
    if size_of(last) < COPIES * lanes:
        return False
    if role_of(last) != "LOOP" or draft.loops.get(name_of(down)) is not down:
        return False
    if any(last in bound.ranges for loop in nest.loops for bound in loop.src):
        return False  # phases that end where the row does: accumulators have a row of their own
    if size_of(down) < 2 * ACCUMULATE_TURNS or role_of(down) != "LOOP":
        return False
    outer = turns(nest.loops[:-1])
    strips = 1 if outer >= TASKS else max(1, min(MANY_TASKS, work(draft.kernel) // GRAIN))
    width = max(ceil(size_of(last) / strips), STRIP_BYTES // reduction.dtype.itemsize)
    width = min(round_up(width, COPIES * lanes), round_up(size_of(last), COPIES * lanes))
    width = min(width, draft.target.cache_l1 // 2 // reduction.dtype.itemsize)
    strip = draft.split(name_of(last), width, name_of(last) + "r", "PARALLEL")
    reduction = next(iter(sums_of(draft.below(draft.nest("store").values))))
    row = draft.numbered("acc")
    draft.do("accumulate", draft.path(reduction), (strip,), row)
    runs = runs_of([reduction], down) if width >= size_of(last) else 1
    if runs > 1:
        draft.split(name_of(down), size_of(down) // runs, name_of(down) + "r", "UNROLL", "LOOP")
    else:
        draft.split(name_of(down), ACCUMULATE_TURNS, name_of(down) + "u", "LOOP", "UNROLL")
    draft.vectorise(f"{row}.{strip}", 1)
    draft.vectorise(strip, COPIES)
    draft.give("PARALLEL", names(r for r in nest.loops[:-1] if role_of(r) == "LOOP"))
    return True


def _lay_columns_along(draft: Draft, nest: Nest, sums: list[UOp]) -> bool:
    """Lays the columns of a narrow matrix along these sums, if the other operand lies so and many
    rows of it read them; and along the stored row what its vectors would read lane by lane as
    often, such as weights of each channel. Whether there are any."""
    last = nest.loops[-1]
    for each in sums:
        own, reads = own_ranges(each), read_by([each])
        is_along = any(step(read, own[-1]) == 1 for read in reads if own[-1] in read.ranges)
        for read in reads:
            loops = [r for r in (*nest.loops, *own) if r in read.ranges]
            again = turns(r for r in nest.loops if r not in read.ranges)
            is_plain = all(map(is_plain_loop, loops)) and {*loops} == read.ranges
            if again < COLUMN_READERS or not is_plain or read.src[0].op is not Ops.PARAM:
                continue
            if is_along and own[-1] in read.ranges and step(read, own[-1]) != 1:
                over = loops
            elif draft.fills_vectors(last) and abs(step(read, last) or 0) > LONGEST_STEP:
                over = [r for r in loops if r is not last] + [last]
            else:
                continue
            stream(draft, draft.nest(draft.stage(read, names(over), "turned", "GLOBAL")))
            return True
    return False


def _transpose(draft: Draft, nest: Nest, last: UOp, across: UOp) -> None:
    """Transposes blocks of 4 x 4 squares of vectors in the order of the writes: writes past the
    caches are fast if a line is completed before many others are begun. Reads without constant
    steps along the stored row can't be transposed: there the vector runs along the reads, and the
    writes go lane by lane. So does it where stored rows are reduced, too: each is a lane; and where
    they are shorter than a vector, and their elements cost more than that. What a long expression
    reads across is transposed into the nearest cache, and the expression computed along the row."""
    lanes, n, c = draft.lanes_within(size_of(last)), name_of(last), name_of(across)
    reductions = draft.sums_in(nest)
    if any(across in r.ranges and last not in r.ranges for r in reductions):
        row = {last}.union(*(own_ranges(r) for r in reductions))
        is_short = all(is_plain_loop(r) and size_of(r) < draft.lanes for r in row)
        draft.give("UNROLL", sorted(names(row)) if is_short else ())
        draft.vectorise(c, ROWS if is_short else 1)
        return
    if (
        across in nest.loops
        and size_of(last) < draft.lanes
        and lanes_pay(draft, nest, across, [last])
    ):
        draft.do("role", n, "UNROLL")
        draft.vectorise(c, 1)
        return
    if across not in nest.loops or lanes != draft.lanes:
        draft.vectorise(n, 1)
        return
    apart = _read_across(draft, nest.name, last, across)
    if all(step(r, last) is None for r in apart):
        block = draft.split(n, lanes, n + "i")
        vector = draft.split(c, lanes, n + "v", "LOOP", "VECTOR")
        draft.innermost(nest.name, (n, c, block, vector))
        return
    staged = _is_long(draft, nest, last) and all(r.ranges <= {*nest.loops} for r in apart)
    width = _even_piece(size_of(last), COPIES * lanes, lanes)
    height = _even_piece(size_of(across), lanes if staged else COPIES * lanes, lanes)
    block = draft.split(n, width, n + "i")
    other = draft.split(c, height, c + "i")
    if staged:
        draft.innermost(nest.name, (n, c, other, block))
        while apart := _read_across(draft, nest.name, draft.loops[block], draft.loops[other]):
            stream(draft, draft.nest(draft.stage(apart[0], (other, block), "turned")))
        _along(draft, draft.nest(nest.name), draft.loops[block])
        return
    vector = draft.split(block, lanes, n + "v", "LOOP", "VECTOR")
    square = draft.split(other, lanes, c + "u", "LOOP", "UNROLL")
    draft.innermost(nest.name, (n, c, other, block, square, vector))


def _even_piece(size: int, most: int, lanes: int) -> int:
    """The turns of a piece, of as few as there are if they have at most `most`: whole vectors, and
    hardly more of them than there are turns. A stage has room for whole pieces."""
    return round_up(ceil(size / ceil(size / most)), lanes)


def _is_long(draft: Draft, nest: Nest, last: UOp) -> bool:
    """Whether more is done with the elements than squares have room for."""
    nodes = draft.inline(nest.values)
    copies = all(value.op is Ops.INDEX for value in nest.values)
    return not copies and sum(weight(n) for n in nodes if last in n.ranges) > BESIDE_SQUARES


def _read_across(draft: Draft, nest: str, last: UOp, across: UOp) -> list[UOp]:
    """The reads that are contiguous along `across`, and advance along the stored row."""
    loads = draft.reads_in(draft.nest(nest))
    return [r for r in loads if last in r.ranges and step(r, across) == 1]


def _ordered_names(draft: Draft, nest: Nest, wanted: list[str]) -> list[str]:
    return [n for n in draft.names_in(nest.name) if n in wanted]
