"""The order in which copies of long computations are emitted."""

import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.interleave import LONG, interleaved
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

VECTOR = dtypes.float32.vec(16)
WIDE = Target("CPU", vector=64, registers=32, fma_ports=1)
NARROW = Target("CPU", vector=32, registers=16)
SOURCE, RESULT = (UOp(Ops.PARAM, dtypes.float32, arg=(i, 4096)) for i in (1, 0))


def place(buffer, copy):
    return UOp(Ops.INDEX, dtypes.float32, (buffer, UOp.const(dtypes.index, 16 * copy)))


def chain(copy, length, source=SOURCE):
    """What one copy is: a load, `length` - 1 squares one after the other, a store."""
    pointer = place(source, copy)
    values = [UOp(Ops.LOAD, VECTOR, (pointer,), (4, copy))]
    for _ in range(length - 1):
        values.append(UOp(Ops.MUL, VECTOR, (values[-1], values[-1])))
    out = place(RESULT, copy)
    return [pointer, *values, out, UOp(Ops.STORE, dtypes.void, (out, values[-1]), (4, ""))]


def copies(count, length, source=SOURCE):
    return [node for copy in range(count) for node in chain(copy, length, source)]


def check_order(before, after):
    """The same instructions, each after its sources, and stores in their order."""
    assert sorted(map(id, before)) == sorted(map(id, after))
    at = {node: i for i, node in enumerate(after)}
    assert all(at[s] < at[node] for node in after for s in node.src if s in at)
    stores = [[n for n in nodes if n.op is Ops.STORE] for nodes in (before, after)]
    assert stores[0] == stores[1]


def switches(nodes):
    """How often the next step belongs to another copy than the one before."""
    steps = [n for n in nodes if n.op is Ops.MUL]
    return sum(a not in b.src for a, b in zip(steps, steps[1:], strict=False))


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["32 registers", "16"])
def test_copies_of_a_long_chain_take_turns(target):
    before = copies(4, LONG)
    after = interleaved(before, target)
    check_order(before, after)
    assert switches(before) == 3 and switches(after) > 40


@pytest.mark.parametrize(
    "before",
    [copies(4, LONG - 2), copies(1, 4 * LONG), copies(4, LONG, source=RESULT)],
    ids=["short chains", "one chain", "what is read is written"],
)
def test_these_stay_as_they_are(before):
    assert interleaved(before, WIDE) == before


def alive(nodes):
    """The most vectors that wait for their readers."""
    last = {s: i for i, n in enumerate(nodes) for s in n.src}
    made = {n: i for i, n in enumerate(nodes) if n in last and n.dtype is VECTOR}
    return max(sum(made[n] <= k < last[n] for n in made) for k in range(len(nodes)))


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["32 registers", "16"])
def test_four_values_a_register_wait_at_most(target):
    before = copies(200, LONG)
    after = interleaved(before, target)
    check_order(before, after)
    assert target.registers < alive(after) <= 4 * target.registers


def test_values_of_others_count():
    held = [UOp(Ops.CARRY, VECTOR, (), i) for i in range(60)]
    more = [UOp(Ops.ADD, VECTOR, (a, b)) for a, b in zip(held, held[1:], strict=False)]
    after = interleaved([*copies(40, LONG), *more], NARROW)
    assert alive(after) <= 4 * NARROW.registers - 60


def test_what_copies_share_comes_first():
    _, factor, *_ = chain(9, LONG)
    shared = UOp(Ops.MUL, VECTOR, (factor, factor))
    before = [*factor.src, factor, shared]
    for copy in range(4):
        pointer, load, *_ = chain(copy, LONG)
        values = [UOp(Ops.MUL, VECTOR, (load, shared))]
        for _ in range(LONG):
            values.append(UOp(Ops.MUL, VECTOR, (values[-1], values[-1])))
        out = place(RESULT, copy)
        store = UOp(Ops.STORE, dtypes.void, (out, values[-1]), (4, ""))
        before += [pointer, load, *values, out, store]
    after = interleaved(before, WIDE)
    check_order(before, after)
    assert switches(after) > 40


def test_what_a_result_leaves_beside_it_belongs_to_its_copy():
    before = []
    for copy in range(4):
        *made, out, store = chain(copy, LONG)
        root = UOp(Ops.ADD, VECTOR, (made[-1], made[-2]))
        beside = place(RESULT, copy + 8)
        before += [*made, root, out, store, beside]
        before.append(UOp(Ops.STORE, dtypes.void, (beside, root), (4, "")))
    after = interleaved(before, WIDE)
    check_order(before, after)
    assert switches(after) > 40
