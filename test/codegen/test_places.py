"""Where the instructions of a linear program stand."""

import pytest

from tinygrad import dtypes
from tinygrad.codegen.linear import Program, as_node
from tinygrad.uop.op import Ops


@pytest.mark.parametrize("late", [False, True])
def test_what_comes_after_a_loop_is_computed_after_it_where_registers_are_shared(late):
    program = Program(frozenset(op.name for op in Ops), late=late)
    lane = program.argument(Ops.SPECIAL, dtypes.index, ("lid0", 32))
    program.open()
    counter, _ = program.open_loop(0, 8, "k", ())
    inside = program.add(Ops.ADD, dtypes.index, (lane, as_node(5)))
    program.close()
    after = program.add(Ops.MUL, dtypes.index, (lane, as_node(3)))
    again = program.add(Ops.ADD, dtypes.index, (lane, as_node(5)))
    program.close()
    order = program.layout()
    assert again is inside
    assert order.index(inside) < order.index(counter)  # it is the same in each turn
    assert (order.index(after) > order.index(counter)) == late
