"""What a warp's lanes ask of memory at once, in sectors of 32 bytes, as a card counts them: by the
addresses that the program of the first group computes in the first turn of its loops."""

from collections import defaultdict
from dataclasses import replace

import pytest
from loops import kernels
from loops.nests import GROUPS

from tinygrad.base.dtype import dtypes
from tinygrad.codegen.pipeline import lower
from tinygrad.loops.heuristic import schedule
from tinygrad.loops.reads import sums_of
from tinygrad.loops.roles import own_ranges, role_of
from tinygrad.uop.op import ROW, Ops

SECTOR, WARP = 32, 32
PLAIN = replace(GROUPS, native=GROUPS.native - {"mma", "async_copy", "matrix_load"})


def shares_of(kernel, target=PLAIN):
    """For each slot which part is asked for of the sectors that are fetched or written."""
    scheduled, _ = schedule(kernel, target)
    (phase,) = lower(scheduled, target).phases
    seen = defaultdict(list)
    for lane in range(min(WARP, phase.block[0])):
        for number, (slot, begin, size) in places(phase.program, lane):
            seen[number].append((slot, begin, size))
    asked, touched = defaultdict(int), defaultdict(int)
    for accesses in seen.values():
        slot = accesses[0][0]
        asked[slot] += sum(size for *_, size in accesses)
        sectors = {
            s for _, b, size in accesses for s in range(b // SECTOR, -(-(b + size) // SECTOR))
        }
        touched[slot] += SECTOR * len(sectors)
    return {slot: asked[slot] / touched[slot] for slot in asked}


def places(program, lane):
    """(number of the instruction, (slot, first byte, bytes)) of what a lane loads and stores."""
    known = {}
    for number, node in enumerate(program):
        if node.op in (Ops.LOAD, Ops.STORE):
            if isinstance(place := known.get(node.src[0]), tuple):
                kind = node.dtype if node.op is Ops.LOAD else node.src[1].dtype
                yield number, (*place, kind.itemsize)
        elif (value := value_of(node, known, lane)) is not None:
            known[node] = value


def value_of(node, known, lane):
    sources = [s.arg if s.op is Ops.CONST else known.get(s) for s in node.src]
    if node.op is Ops.PARAM:
        return node.arg[0], 0
    if node.op is Ops.SPECIAL:
        return lane if node.arg[0] == "lid0" else 0
    if node.op in (Ops.RANGE, Ops.CARRY):
        return sources[0]
    if (
        None in sources
        or not node.src
        or not dtypes.is_int(node.dtype)
        and node.op is not Ops.INDEX
    ):
        return None
    if node.op is Ops.CAST:
        return sources[0]
    if node.op is Ops.INDEX:
        pointer, offset = sources
        return (pointer[0], pointer[1] + offset * node.dtype.itemsize) if pointer else None
    meaning = ROW[node.op].meaning
    return meaning(*sources) if meaning and not any(isinstance(s, tuple) for s in sources) else None


COALESCED = {
    "a transposition": kernels.transpose(4096, 4096),
    "one of odd sizes": kernels.transpose(1000, 3001),
    "of halves": kernels.transpose(4096, 4096, dtypes.float16),
    "columns' sums": kernels.total(4096, 4096, 0),
    "of a few columns": kernels.total(4096, 64, 0),
    "of many": kernels.total(1024, 20_000, 0),
    "columns' maxima": kernels.total(4096, 4096, 0, "max"),
    "rows' sums": kernels.total(4096, 4096, 1),
    "of very many": kernels.total(100_000, 200, 1),
    "softmax": kernels.softmax(4096, 4096),
    "softmax of columns": kernels.softmax_of_columns(4096, 1000),
    "of short ones": kernels.softmax_of_columns(100, 40_000),
    "elements": kernels.elementwise(4096, 4096),
}


@pytest.mark.parametrize("what", COALESCED)
def test_lanes_use_all_of_the_sectors_that_memory_gives(what):
    """But for what rows of odd length begin and end with, and a result of a number a group."""
    shares = shares_of(COALESCED[what])
    assert shares and shares[1] >= 0.75
    assert shares.get(0, 1) >= 0.75 or "sums" in what or "maxima" in what


def test_a_sector_a_lane_is_counted_as_what_it_costs():
    """Where there is no memory to turn squares in, lanes read a row apart."""
    assert shares_of(kernels.transpose(4096, 4096), replace(PLAIN, local_memory=0))[1] == 1 / 8


@pytest.mark.parametrize("rows,columns", [(16_384, 2048), (100_000, 64), (50, 50_000)])
@pytest.mark.parametrize("softmax", [kernels.softmax, kernels.softmax_of_columns])
def test_no_lane_reduces_what_another_one_does(softmax, rows, columns):
    """However many rows there are: each reduction is shared by the lanes of its outputs."""
    scheduled, _ = schedule(softmax(rows, columns), PLAIN)
    roles = [{role_of(r) for r in own_ranges(n)} for n in sums_of(scheduled.toposort())]
    assert all("GROUP" in each for each in roles) and len(roles) == 2


def test_a_product_of_rows_is_no_sum_that_lanes_share():
    """Though both factors lie side by side along it, and there are many."""
    _, recipe = schedule(kernels.matmul(512, 512, 512, b_t=True), PLAIN)
    assert not any("GROUP" in step for step in recipe)
