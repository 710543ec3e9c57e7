"""Nests without a matrix product, whose time is set by memory. The vector axis is the one along
which accesses are contiguous. Where accesses disagree, square blocks are transposed in registers. A
reduction along memory is spread over several vectors; a reduction down the columns keeps a row of
accumulators."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, gcd, lcm

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import round_up
from tinygrad.loops.cost import turns, weight, work
from tinygrad.loops.layout import (
    LINE,
    LONGEST_STEP,
    divisions,
    is_plain_loop,
    name_of,
    own_ranges,
    reads_of,
    role_of,
    size_of,
    step,
    sums_of,
)
from tinygrad.loops.operands import owners_of
from tinygrad.loops.plan import COPIES, Nest, Plan, names
from tinygrad.loops.products import vector_unit
from tinygrad.loops.vectors.borders import border_outside, counted
from tinygrad.loops.vectors.phases import phases_of, split_phases
from tinygrad.loops.vectors.row_sums import is_word, reduced_by_vectors, spread_reduction
from tinygrad.loops.vectors.short_rows import (
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
    even_part,
    parallelise,
)
from tinygrad.simplify.affine import affine
from tinygrad.uop.node import UOp
from tinygrad.uop.op import WEIGHT, GroupOp, Ops

RUNS = 4
"""Runs of memory that a core reads in parallel."""

ROWS_IN_RUNS = 8
"""Rows that a core reads in parallel if several are interleaved in one run: enough sums to hide the
latency of an instruction."""

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

MOST_PLACES = 2048
"""Indices that are computed ahead, at most: half of the nearest cache."""

SHORT_ROW = 2
"""A gathered row of at most so many vectors is short: finding it costs as much as copying it."""


def stream(plan: Plan, nest: Nest) -> None:
    """Roles and tasks for a nest that only passes over memory."""
    if _by_merged_rows(plan):
        return
    nest = unbroken(plan, nest)
    if not nest.loops:  # a single result
        for reduction in sums_of(plan.inline(nest.values)):
            spread_reduction(plan, reduction, None)
        return
    nest, across = _direction(plan, nest)
    last, outer = nest.loops[-1], names(nest.loops[:-1])
    reductions = sums_of(plan.inline(nest.values))
    if _by_lanes_or_laid_along(plan, nest, reductions, across):
        return
    is_cut = across is None and border_outside(plan, nest)
    nest, reductions = plan.nest(nest.name), sums_of(plan.inline(plan.nest(nest.name).values))
    rows, squares = [r for r in reductions if across in own_ranges(r)], False
    if across is None or rows:
        squares = _are_squares(plan, rows, last)
        copies = 1 if squares else _vectors_in_flight(plan, rows, last, across)
        along = None if reduced_by_vectors(plan.inner_stages, last) else last
        for reduction in sorted(reductions, key=lambda r: is_word(plan, r)):
            spread_reduction(plan, reduction, along, copies, always=bool(rows))
    if rows and squares:
        plan.split(name_of(last), plan.lanes, name_of(last) + "u", "LOOP", "UNROLL")
    elif rows:
        _share_rows(plan, rows, last)
    elif across is not None:
        _transpose(plan, nest, last, across)
    elif nest.is_top and _columns(plan, nest, reductions):
        return
    else:
        _along(plan, nest, last)
    if nest.is_top:
        _make_tasks(plan, nest, outer, rows)
        if not reductions and not plan.stages:
            _find_places_first(plan)
    if is_cut:
        plan.do("trim", counted(plan.nest(nest.name)))


def _by_merged_rows(plan: Plan) -> bool:
    """Does the stores' nest by vectors over several short rows, if it has such rows."""
    period = merge_short_rows(plan)
    if period:
        nest = plan.nest("store")
        *outer, last = names(nest.loops)
        copies = _copies(plan, nest, nest.loops[-1])
        plan.vectorise(last, max(period, copies // period * period))
        parallelise(plan, _task_loops(plan, plan.nest("store"), outer, last, are_rows=False))
    return period > 0


def _by_lanes_or_laid_along(plan: Plan, nest: Nest, sums: list[UOp], across: UOp | None) -> bool:
    """Does a nest of short rows by lanes, or one of narrow matrices again once their columns lie
    along its sums. Whether it was one of these."""
    *outer, last = names(nest.loops)
    is_row = sums and not any(is_word(plan, n) for n in sums)
    if is_row and lay_side_by_side(plan, nest, sums, across):
        if nest.is_top:
            parallelise(plan, _task_loops(plan, nest, outer, last, are_rows=True))
        return True
    if across is None and nest.is_top and not plan.stages and _lay_columns_along(plan, nest, sums):
        stream(plan, plan.nest(nest.name))
        return True
    return False


def _direction(plan: Plan, nest: Nest) -> tuple[Nest, UOp | None]:
    """The loop that vectors should run along instead of the stored row; or None, and the nest with
    a copy for each phase of its loops."""
    last, loads = nest.loops[-1], reads_of(plan.inline(nest.values))
    across, phases = _across(plan, loads, last), phases_of(plan, nest)
    if across is not None and (last not in phases or _mostly(loads, last, across)):
        return nest, across
    return (split_phases(plan, nest, phases) if phases else nest), None


def _find_places_first(plan: Plan) -> None:
    """If short rows are gathered, their indices are computed for many rows beforehand: by vectors,
    and with one bounds check for several. Each row then takes few instructions."""
    row: list[UOp] = []
    for loop in reversed(plan.nest("store").loops):
        places = _places(plan, loop)
        if places and role_of(loop) == "LOOP" and row and role_of(row[0]) == "VECTOR":
            name, inner = name_of(loop), name_of(loop)
            if size_of(loop) > MOST_PLACES:
                part = even_part(size_of(loop), MOST_PLACES // 2)
                inner = plan.split(name, part, name + "p", "LOOP")
            while found := _places(plan, plan.loops[inner]):
                stage = plan.stage(found[0], (inner,), "places", "LOCAL")
                plan.vectorise(f"{stage}.{inner}", COPIES)
        row.append(loop)
        if places or turns(row) > SHORT_ROW * plan.lanes:
            return


def _places(plan: Plan, loop: UOp) -> list[UOp]:
    """The computed values (more than a plain read) that give the position of the stores' reads
    along a loop."""
    reads = reads_of(plan.below(plan.nest("store").values))
    offsets = dict.fromkeys(part for read in reads for part in read.src[1].toposort())
    data = [n.src[0] for n in offsets if n.op is Ops.CAST and n.dtype is dtypes.index]
    return [n for n in data if loop in n.ranges and n.op not in (Ops.INDEX, Ops.CAST)]


def _make_tasks(plan: Plan, nest: Nest, outer: list[str], rows: list[UOp]) -> None:
    """Makes tasks of the outer loops, and of the last one if that doesn't repeat work."""
    last = name_of(nest.loops[-1])
    far = bool(rows) and _from_memory(plan, rows, nest.loops[-1])
    multiple, side_by_side = 1, list[str]()
    are_squares = plan.loops.get(last) is not nest.loops[-1]  # a turn has as many rows as lanes
    if far and not are_squares and _in_runs(rows, nest.loops[-1]):
        turning = _taking_turns(nest, rows)
        side_by_side = [last, *names(turning)]
        count = ROWS_IN_RUNS // turns(turning) if turning else RUNS
        multiple = _rows_of_a_task(_sums_of_rows(plan), nest.loops[-1], count)
        last = plan.split(last, size_of(nest.loops[-1]) // count, last + "r")
    outer = [n for n in outer if n not in side_by_side]
    parallelise(plan, _task_loops(plan, nest, outer, last, bool(rows)), multiple)
    if rows and nest.name == "store":
        _those_that_share_together(plan)
    if rows and not far:
        ask_ahead(plan, nest.name)
    elif rows:
        sums = _one_by_one(plan, side_by_side)
        if side_by_side:
            inside = {name: [f"{name}.{loop}" for loop in side_by_side] for name in sums}
            _runs_side_by_side(plan, inside or {nest.name: side_by_side})


def _task_loops(plan: Plan, nest: Nest, outer: list[str], last: str, are_rows: bool) -> list[str]:
    """The loops that may be tasks: those that each stage depends on; and loops over blocks, if
    there are too few others. Loops that no sum is repeated in are enough, if they have enough
    turns."""
    found = [n for n in outer if all_stages_depend_on(plan, n)]
    if not are_rows and last in plan.loops and all_stages_depend_on(plan, last):
        found = _ordered_names(plan, nest, [*found, last])
    elif are_rows and all_stages_depend_on(plan, last):
        found.append(last)
    if turns(plan.loops[n] for n in found) < TASKS_WITH_BLOCKS:
        found = _ordered_names(plan, nest, [*found, *plan.blocked])
    alone = [n for n in found if all_reductions_depend_on(plan, n)]
    return alone if turns(plan.loops[n] for n in alone) >= TASKS_WITH_BLOCKS else found


def _those_that_share_together(plan: Plan) -> None:
    """Makes tasks that read the same part of the largest buffer consecutive: they find it in the
    cache."""
    nest = plan.nest("store")
    reads = reads_of(plan.below(nest.values))
    largest = max(reads, key=lambda n: turns(n.ranges) * n.dtype.itemsize)
    tasks = [r for r in nest.loops if role_of(r) == "PARALLEL"]
    inside = [r for r in nest.loops if r not in tasks]
    tasks.sort(key=lambda r: r not in largest.ranges)
    plan.do("order", "store", names([*tasks, *inside]))


def _taking_turns(nest: Nest, rows: list[UOp]) -> list[UOp]:
    """Loops over rows of the largest matrix that are interleaved, piece by piece: together they are
    one run of memory."""
    last, within = nest.loops[-1], [r for row in rows for r in own_ranges(row)]
    read = max(_apart(rows, last), key=lambda n: turns(n.ranges) * n.dtype.itemsize)
    piece = max((step(read, r) or 0 for r in within if r in read.ranges), default=0)
    found = [r for r in nest.loops[:-1] if is_plain_loop(r) and 0 < (step(read, r) or 0) < piece]
    return found if 2 * turns(found) <= ROWS_IN_RUNS else []


def _sums_of_rows(plan: Plan) -> list[UOp]:
    """The sums that are direct values of the stores, one for each element."""
    nest = plan.nest("store")
    return [n for n in sums_of(plan.below(nest.values)) if n.ranges == frozenset(nest.loops)]


def _one_by_one(plan: Plan, side_by_side: list[str]) -> list[str]:
    """For sums over the rows of several matrices: each sum is staged for all rows of a task in
    turn, unless one depends on another and reads the row again. Results are then computed by
    vectors. Returns the stages' names."""
    rows = plan.nest("store").loops[-1]
    sums = _sums_of_rows(plan)
    loops = [name_of(own_ranges(n)[0]) for n in sums]
    together = len({*loops}) < len(loops)
    again = any(one is not other and one in other.toposort() for one in sums for other in sums)
    if role_of(rows) != "LOOP" or plan.stages or len(sums) < 2 or together or again:
        return []
    over = dict.fromkeys((*side_by_side, name_of(rows)))
    for first in loops:
        (one,) = owners_of(plan.kernel, plan.loops[first])
        plan.stage(one, over, "sums", "LOCAL")
    _along(plan, plan.nest("store"), rows)
    return [*plan.stages]


def ask_ahead(plan: Plan, nest: str) -> None:
    """Prefetches the rows of the next turn: the hardware prefetcher stops at page boundaries."""
    for loop in reversed(plan.nest(nest).loops):
        if role_of(loop) == "LOOP":
            plan.do("prefetch", name_of(loop), 1)
            return


def _copies(plan: Plan, nest: Nest, last: UOp) -> int:
    """How many vectors along `last` are unrolled side by side: a power of two."""
    nodes, operations = plan.inline(plan.nest(nest.name).values), 0
    for node in nodes:
        if node.dtype is dtypes.index or node.op not in GroupOp.Elementwise | {Ops.INDEX}:
            continue
        apart = step(node, last) if node.op is Ops.INDEX else 0
        by_vectors = plan.lanes if apart is None else min(2 * abs(apart), plan.lanes)
        each = max(WEIGHT.get(node.op, 1), by_vectors)
        operations += each * turns(r for r in node.ranges if role_of(r) == "UNROLL")
    copies = COPIES
    window = WINDOW if reads_of(nodes) else WINDOW // 2
    while copies > 1 and copies * operations > window:
        copies //= 2
    return copies


def _along(plan: Plan, nest: Nest, last: UOp) -> None:
    """Vectors along the stored row; or copies of the vectors that lie down its columns."""
    if reduced_by_vectors(plan.nodes, last):
        if size_of(last) <= LONGEST_STEP and role_of(last) == "LOOP":
            plan.give("UNROLL", [name_of(last)])
    elif is_one_vector(plan, nest):
        lanes = 1 << size_of(last).bit_length()
        plan.split(name_of(last), lanes, name_of(last) + "v", "LOOP", "VECTOR")
    elif not _by_lanes(plan, nest, last):
        period, whole = _period(plan, nest, last), ceil(size_of(last) / plan.lanes)
        if role_of(last) == "LOOP" and 1 < min(period, whole) <= COPIES:
            block = plan.split(name_of(last), min(period, whole) * plan.lanes, name_of(last) + "i")
            plan.split(block, plan.lanes, name_of(last) + "v", "UNROLL", "VECTOR")
        else:
            plan.vectorise(name_of(last), _copies(plan, nest, last))


def _period(plan: Plan, nest: Nest, last: UOp) -> int:
    """After how many vectors the lanes along `last` read in the same pattern again: remainders by
    3, such as the phases of a window of stride 3, after three."""
    found = divisions(plan.inline(nest.values))
    divisors = [n for index, n in found if last in affine(index)[0] and n <= LONGEST_STEP]
    return lcm(*divisors) // gcd(lcm(*divisors), plan.lanes)


def _by_lanes(plan: Plan, nest: Nest, last: UOp) -> bool:
    """Makes rows lanes that would else be scalars."""
    alone = nest.is_top and not plan.sums and not plan.stages and role_of(last) == "LOOP"
    is_short = plan.lanes_within(size_of(last)) == 1 and not plan.is_short_vector(name_of(last))
    return alone and is_short and lay_side_by_side(plan, nest, [], None)


def _across(plan: Plan, loads: list[UOp], last: UOp) -> UOp | None:
    """The loop along which reads are contiguous that aren't so along the stored row; or along which
    they are whole vectors, where along the stored row each lane would be a separate read."""
    apart = [n for n in loads if last in n.ranges and step(n, last) not in (0, 1)]
    for load in apart:
        steps = {1} if step(load, last) is not None else {*range(1, LONGEST_STEP + 1)}
        for loop in sorted(load.ranges - {last}, key=name_of):
            if plan.fills_vectors(loop) and role_of(loop) == "LOOP" and step(load, loop) in steps:
                return loop
    return None


def _mostly(loads: list[UOp], last: UOp, across: UOp) -> bool:
    """Whether the reads that are contiguous along `across` are at least half of those that aren't
    along the row."""
    apart = [n for n in loads if last in n.ranges and step(n, last) not in (0, 1)]
    better = [n for n in apart if step(n, across) in (0, 1)]
    return 2 * sum(turns(n.ranges) for n in better) >= sum(turns(n.ranges) for n in apart)


def _columns(plan: Plan, nest: Nest, reductions: list[UOp]) -> bool:
    """A single reduction down the columns of rows that are read whole: its accumulators are a LOCAL
    row, and a task takes a strip of columns."""
    last = nest.loops[-1]
    lanes = plan.lanes
    if len(reductions) != 1 or len(nest.values) != 1 or plan.stages or lanes == 1:
        return False
    (reduction,) = reductions
    if last not in reduction.ranges or len(own_ranges(reduction)) != 1:
        return False
    down = own_ranges(reduction)[0]
    if size_of(last) < COPIES * lanes:
        return False
    if role_of(last) != "LOOP" or plan.loops.get(name_of(down)) is not down:
        return False
    if any(last in bound.ranges for loop in nest.loops for bound in loop.src):
        return False  # phases that end where the row does: accumulators have a row of their own
    if size_of(down) < 2 * ACCUMULATE_TURNS or role_of(down) != "LOOP":
        return False
    strips = max(1, min(MANY_TASKS, work(plan.kernel) // GRAIN))
    width = max(ceil(size_of(last) / strips), STRIP_BYTES // reduction.dtype.itemsize)
    width = min(round_up(width, COPIES * lanes), round_up(size_of(last), COPIES * lanes))
    width = min(width, plan.target.cache_l1 // 2 // reduction.dtype.itemsize)
    strip = plan.split(name_of(last), width, name_of(last) + "r", "PARALLEL")
    reduction = next(iter(sums_of(plan.below(plan.nest("store").values))))
    row = plan.numbered("acc")
    plan.do("accumulate", plan.path(reduction), (strip,), row)
    plan.split(name_of(down), ACCUMULATE_TURNS, name_of(down) + "u", "LOOP", "UNROLL")
    plan.vectorise(f"{row}.{strip}", 1)
    plan.vectorise(strip, COPIES)
    plan.give("PARALLEL", names(r for r in nest.loops[:-1] if role_of(r) == "LOOP"))
    return True


def _from_memory(plan: Plan, rows: list[UOp], last: UOp) -> bool:
    """Whether what differs between the rows of these sums is too large for the near caches, or may
    not be there since other kernels run in between."""
    nbytes = sum(turns(n.ranges) * n.dtype.itemsize for n in _apart(rows, last))
    return 4 * nbytes > plan.target.cache_l2


def _apart(rows: list[UOp], last: UOp) -> list[UOp]:
    """The reads from memory that differ between the rows of these sums."""
    return [n for n in _reads(rows) if last in n.ranges and n.src[0].op is Ops.PARAM]


def _in_runs(rows: list[UOp], last: UOp) -> bool:
    """Whether rows from memory are read as `RUNS` parallel runs: if there are enough rows, and they
    share an operand."""
    size = size_of(last) if is_plain_loop(last) else 0
    return size >= RUNS * TASKS_WITH_BLOCKS and size % RUNS == 0 and _share(rows, last)


def _rows_of_a_task(sums: list[UOp], last: UOp, runs: int) -> int:
    """The least number of rows of each run in a task. If it reads several matrices in turn
    (`_one_by_one`), enough for each of them to be a run."""
    return 1 if len(sums) < 2 else max(1, size_of(last) // (runs * TASKS))


def _vectors_in_flight(plan: Plan, rows: list[UOp], last: UOp, across: UOp | None) -> int:
    """How many vectors of a row are summed side by side. If several rows come from memory side by
    side (`_runs_side_by_side`), a line of each; if one alone does, as many as of all of them."""
    if across is None or not _from_memory(plan, rows, last):
        return COPIES
    if not _in_runs(rows, last):
        return 2 * COPIES
    if vector_unit(plan, across) is not None:
        return 1
    return max(1, LINE // (plan.lanes * min(n.dtype.itemsize for n in _apart(rows, last))))


def _share(rows: list[UOp], last: UOp) -> bool:
    """Whether these sums read anything again for each row."""
    loops = {r for row in rows for r in own_ranges(row)}
    return any(last not in n.ranges and n.ranges & loops for n in _reads(rows))


def _runs_side_by_side(plan: Plan, runs: Mapping[str, list[str]]) -> None:
    """Reads rows from memory as a few parallel runs, each as long as possible. What all rows share
    is loaded once for all of them, so that most loads in flight come from memory; and a core's
    prefetcher follows runs that continue from task to task. It would see adjacent rows as one run
    that is read in the wrong order, unless they are interleaved. `runs`: the loops over them in
    each nest."""
    for nest, loops in runs.items():
        plan.innermost(nest, loops)
        plan.give("UNROLL", loops)


def _reads(rows: list[UOp]) -> dict[UOp, None]:
    return dict.fromkeys(reads_of(n for row in rows for n in row.src[0].toposort()))


def _lay_columns_along(plan: Plan, nest: Nest, sums: list[UOp]) -> bool:
    """Lays the columns of a narrow matrix along these sums, if the other operand lies so and many
    rows of it read them. Whether there are any."""
    for each in sums:
        own, reads = own_ranges(each), _reads([each])
        steps = {read: step(read, own[-1]) for read in reads if own[-1] in read.ranges}
        if 1 not in steps.values():
            continue
        for read, apart in steps.items():
            loops = [r for r in (*nest.loops, *own) if r in read.ranges]
            again = turns(r for r in nest.loops if r not in read.ranges)
            is_plain = all(map(is_plain_loop, loops)) and {*loops} == read.ranges
            if apart != 1 and is_plain and again >= COLUMN_READERS and read.src[0].op is Ops.PARAM:
                stream(plan, plan.nest(plan.stage(read, names(loops), "turned", "GLOBAL")))
                return True
    return False


def _share_rows(plan: Plan, rows: list[UOp], last: UOp) -> None:
    """The vector runs along the reduced row; rows that share the other operand are computed
    together."""
    in_cache = not _from_memory(plan, rows, last)
    if in_cache and size_of(last) >= COPIES and _share(rows, last):
        name = name_of(last)
        plan.split(name, COPIES, name + "u", "LOOP", "UNROLL")


def _are_squares(plan: Plan, rows: list[UOp], last: UOp) -> bool:
    """Whether rows of these sums also take in columns of a buffer, which are adjacent: as many rows
    as a vector has lanes are then summed together, and squares transposed in registers."""
    return plan.fills_vectors(last) and any(
        step(n, last) == 1 and (step(n, own_ranges(row)[-1]) or 0) > LONGEST_STEP
        for row in rows
        for n in _apart([row], last)
    )


def _transpose(plan: Plan, nest: Nest, last: UOp, across: UOp) -> None:
    """Transposes blocks of 4 x 4 squares of vectors in the order of the writes: writes past the
    caches are fast if a line is completed before many others are begun. Reads without constant
    steps along the stored row can't be transposed: there the vector runs along the reads, and the
    writes go lane by lane. So does it where stored rows are reduced, too: each is a lane; and where
    they are shorter than a vector, and their elements cost more than that. What a long expression
    reads across is transposed into the nearest cache, and the expression computed along the row."""
    lanes, n, c = plan.lanes_within(size_of(last)), name_of(last), name_of(across)
    reductions = sums_of(plan.inline(nest.values))
    if any(across in r.ranges and last not in r.ranges for r in reductions):
        plan.vectorise(c, 1)
        return
    if across in nest.loops and size_of(last) < plan.lanes and lanes_pay(plan, nest, across):
        plan.do("role", n, "UNROLL")
        plan.vectorise(c, 1)
        return
    if across not in nest.loops or lanes != plan.lanes:
        plan.vectorise(n, 1)
        return
    apart = _read_across(plan, nest.name, last, across)
    if all(step(r, last) is None for r in apart):
        block = plan.split(n, lanes, n + "i")
        vector = plan.split(c, lanes, n + "v", "LOOP", "VECTOR")
        plan.innermost(nest.name, (n, c, block, vector))
        return
    staged = _is_long(plan, nest, last) and all(r.ranges <= {*nest.loops} for r in apart)
    block, other = (
        plan.split(name, _even_piece(size_of(loop), most, lanes), name + "i")
        for name, loop, most in (
            (n, last, COPIES * lanes),
            (c, across, lanes if staged else COPIES * lanes),
        )
    )
    if staged:
        plan.innermost(nest.name, (n, c, other, block))
        while apart := _read_across(plan, nest.name, plan.loops[block], plan.loops[other]):
            stream(plan, plan.nest(plan.stage(apart[0], (other, block), "turned")))
        _along(plan, plan.nest(nest.name), plan.loops[block])
        return
    vector = plan.split(block, lanes, n + "v", "LOOP", "VECTOR")
    square = plan.split(other, lanes, c + "u", "LOOP", "UNROLL")
    plan.innermost(nest.name, (n, c, other, block, square, vector))


def _even_piece(size: int, most: int, lanes: int) -> int:
    """The turns of a piece, of as few as there are if they have at most `most`: whole vectors, and
    hardly more of them than there are turns. A stage has room for whole pieces."""
    return round_up(ceil(size / ceil(size / most)), lanes)


def _is_long(plan: Plan, nest: Nest, last: UOp) -> bool:
    """Whether more is done with the elements than squares have room for."""
    nodes = plan.inline(nest.values)
    copies = all(value.op is Ops.INDEX for value in nest.values)
    return not copies and sum(weight(n) for n in nodes if last in n.ranges) > BESIDE_SQUARES


def _read_across(plan: Plan, nest: str, last: UOp, across: UOp) -> list[UOp]:
    """The reads that are contiguous along `across`, and advance along the stored row."""
    loads = reads_of(plan.inline(plan.nest(nest).values))
    return [r for r in loads if last in r.ranges and step(r, across) == 1]


def _ordered_names(plan: Plan, nest: Nest, wanted: list[str]) -> list[str]:
    return [n for n in plan.names_in(nest.name) if n in wanted]
