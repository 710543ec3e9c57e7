"""Sums over the rows of a matrix, as in its product with a vector: how many rows a core reads at a
time, and in which order it goes over them, which counts where they come from memory."""

from __future__ import annotations

from collections.abc import Mapping

from tinygrad.loops.cost import turns
from tinygrad.loops.draft import COPIES, Draft, Nest, names
from tinygrad.loops.layout import LINE
from tinygrad.loops.operands import owners_of
from tinygrad.loops.products import vector_unit
from tinygrad.loops.reads import LONGEST_STEP, is_index, reads_of, step, sums_of
from tinygrad.loops.roles import is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.vectors.tasks import TASKS, TASKS_WITH_BLOCKS
from tinygrad.uop import GroupOp, Ops, UOp

RUNS = (4, 5, 3, 2)
"""Runs of memory that a core reads in parallel, the best number first: a prefetcher that follows
one run alone doesn't ask memory for as much as it can deliver."""

ROWS_IN_RUNS = 8
"""Rows that a core reads in parallel if several are interleaved in one run: enough sums to hide the
latency of an instruction."""


def come_from_memory(draft: Draft, rows: list[UOp], last: UOp) -> bool:
    """Whether what differs between the rows of these sums is too large for the near caches, or may
    not be there since other kernels run in between."""
    nbytes = sum(turns(n.ranges) * n.dtype.itemsize for n in _apart(rows, last))
    return 4 * nbytes > draft.target.cache_l2


def read_by(rows: list[UOp]) -> dict[UOp, None]:
    """What these sums read, each once."""
    return dict.fromkeys(reads_of(n for row in rows for n in row.src[0].toposort()))


def _apart(rows: list[UOp], last: UOp) -> list[UOp]:
    """The reads from memory that differ between the rows of these sums."""
    return [n for n in read_by(rows) if last in n.ranges and n.src[0].op is Ops.PARAM]


def _share(rows: list[UOp], last: UOp) -> bool:
    """Whether these sums read anything again for each row."""
    loops = {r for row in rows for r in own_ranges(row)}
    return any(last not in n.ranges and n.ranges & loops for n in read_by(rows))


def runs_of(rows: list[UOp], loop: UOp) -> int:
    """In how many parallel runs the rows of this loop are read from memory, if they follow one
    another there. 1: they are too few, or the loop will be cut, where a concatenation's parts
    meet."""
    reduced = {n for row in rows for n in row.src[0].toposort()}
    compared = (n for n in reduced if n.op in GroupOp.Comparison and any(map(is_index, n.src)))
    if not is_plain_loop(loop) or any(loop in n.ranges for n in compared):
        return 1
    size = size_of(loop)
    fitting = (n for n in RUNS if size % n == 0 and size >= n * TASKS_WITH_BLOCKS)
    return next(fitting, 1)


def vectors_in_flight(draft: Draft, rows: list[UOp], last: UOp, across: UOp) -> int:
    """How many vectors of a row are summed side by side. If several rows come from memory side by
    side (`lay_runs_side_by_side`), a line of each; if one alone does, as many as of all of them."""
    if not come_from_memory(draft, rows, last):
        return COPIES
    if runs_of(rows, last) == 1:
        return 2 * COPIES
    if vector_unit(draft, across) is not None:
        return 1
    return max(1, LINE // (draft.lanes * min(n.dtype.itemsize for n in _apart(rows, last))))


def take_rows_together(draft: Draft, rows: list[UOp], last: UOp) -> None:
    """The vector runs along the reduced row; rows that share the other operand are computed
    together."""
    in_cache = not come_from_memory(draft, rows, last)
    if in_cache and size_of(last) >= COPIES and _share(rows, last):
        name = name_of(last)
        draft.split(name, COPIES, name + "u", "LOOP", "UNROLL")


def are_squares(draft: Draft, rows: list[UOp], last: UOp) -> bool:
    """Whether rows of these sums also take in columns of a buffer, which are adjacent: as many rows
    as a vector has lanes are then summed together, and squares transposed in registers."""
    return draft.fills_vectors(last) and any(
        step(n, last) == 1 and (step(n, own_ranges(row)[-1]) or 0) > LONGEST_STEP
        for row in rows
        for n in _apart([row], last)
    )


def split_into_runs(draft: Draft, nest: Nest, rows: list[UOp]) -> tuple[str, list[str], int]:
    """Splits the loop over rows into a few long runs of memory, if they are read so. Returns the
    loop over the rows of a run, the loops over rows that are read side by side, and how many turns
    of the former a task has at least."""
    last = nest.loops[-1]
    count = runs_of(rows, last)
    if count == 1:
        return name_of(last), [], 1
    turning = _taking_turns(nest, rows)
    count = ROWS_IN_RUNS // turns(turning) if turning else count
    several = len(_read_in_turn(draft)) > 1
    # of each matrix, enough rows to be a run
    least = max(1, size_of(last) // (count * TASKS)) if several else 1
    inner = draft.split(name_of(last), size_of(last) // count, name_of(last) + "r")
    return inner, [name_of(last), *names(turning)], least


def _taking_turns(nest: Nest, rows: list[UOp]) -> list[UOp]:
    """Loops over rows of the largest matrix that are interleaved, piece by piece: together they are
    one run of memory."""
    last, within = nest.loops[-1], [r for row in rows for r in own_ranges(row)]
    read = max(_apart(rows, last), key=lambda n: turns(n.ranges) * n.dtype.itemsize)
    piece = max((step(read, r) or 0 for r in within if r in read.ranges), default=0)
    found = [r for r in nest.loops[:-1] if is_plain_loop(r) and 0 < (step(read, r) or 0) < piece]
    return found if 2 * turns(found) <= ROWS_IN_RUNS else []


def _sums_of_rows(draft: Draft) -> list[UOp]:
    """The sums that are direct values of the stores, one for each element."""
    nest = draft.nest("store")
    return [n for n in sums_of(draft.below(nest.values)) if n.ranges == frozenset(nest.loops)]


def _read_in_turn(draft: Draft) -> list[str]:
    """The outermost loops of the sums over the rows of several matrices, unless two have the same
    loops, or one depends on another and reads the row again: then none."""
    sums = _sums_of_rows(draft)
    loops = [name_of(own_ranges(n)[0]) for n in sums]
    together = len({*loops}) < len(loops)
    again = any(one is not other and one in other.toposort() for one in sums for other in sums)
    return [] if together or again else loops


def stage_one_by_one(draft: Draft, side_by_side: list[str]) -> list[str]:
    """For sums over the rows of several matrices: each sum is staged for all rows of a task in
    turn. Returns the stages' names."""
    rows, loops = draft.nest("store").loops[-1], _read_in_turn(draft)
    if role_of(rows) != "LOOP" or draft.stages or len(loops) < 2:
        return []
    over = dict.fromkeys((*side_by_side, name_of(rows)))
    for first in loops:
        (one,) = owners_of(draft.kernel, draft.loops[first])
        draft.stage(one, over, "sums", "LOCAL")
    return [*draft.stages]


def lay_runs_side_by_side(draft: Draft, runs: Mapping[str, list[str]]) -> None:
    """Reads rows from memory as a few parallel runs, each as long as possible. What all rows share
    is loaded once for all of them, so that most loads in flight come from memory; and a core's
    prefetcher follows runs that continue from task to task. It would see adjacent rows as one run
    that is read in the wrong order, unless they are interleaved. `runs`: the loops over them in
    each nest."""
    for nest, loops in runs.items():
        draft.innermost(nest, loops)
        draft.give("UNROLL", loops)
