"""Graphs as text: the exact form comes back as the same node."""

import random

import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops
from tinygrad.uop.text import dump, parse, shown, tree

VALUES = (0.0, -0.0, 1.5, float("inf"), -float("inf"), float("nan"))
ODD = "with %1 = odd text\n"
ARGS = (None, 3, -1.5, "name", ODD, (), (1, 2), (("a", "LOOP"), -1), ("inf", float("inf")))


def a_graph(random):
    nodes = [UOp.variable("x", 0, 9), UOp.const(dtypes.float32, random.choice(VALUES))]
    for _ in range(random.randint(1, 30)):
        dtype = random.choice((dtypes.int8, dtypes.index, dtypes.float16, dtypes.float32.vec(4)))
        src = tuple(random.choice(nodes) for _ in range(random.randint(0, 3)))
        op = random.choice(sorted(GroupOp.All - {Ops.CONST}))
        if op in GroupOp.Movement or op is Ops.BUFFER:
            continue
        nodes.append(UOp(op, dtype, src, random.choice(ARGS)))
    return UOp.sink(*nodes)


def test_random_graphs_come_back():
    random_ = random.Random(0)
    for _ in range(200):
        graph = a_graph(random_)
        assert parse(dump(graph)) is graph


def test_arguments_with_infinities_come_back():
    everything = UOp.variable("x", -float("inf"), float("inf"), dtypes.float32)
    assert parse(dump(everything)) is everything


def test_one_node_a_line():
    x = UOp.variable("x", 0, 9)
    assert dump(x + x).splitlines() == [
        "%0 = DEFINE_VAR dtypes.int ('x', 0, 9)",
        "%1 = ADD dtypes.int None %0 %0",
    ]


def test_tree_names_what_is_used_twice():
    two = UOp.const(dtypes.int32, 2)
    assert tree(two + two) == (
        "UOp(Ops.ADD, dtypes.int, arg=None, src=(\n"
        "  x0:=UOp(Ops.CONST, dtypes.int, arg=2, src=()),\n"
        "   x0,))"
    )


N, M = UOp.variable("n", 1, 8), UOp.variable("m", 0, 3)
SHOWN = [
    (N, "n[1..8]"),
    (N.bind(5), "n[1..8]=5"),
    (N.bind(5).cast(dtypes.index), "n[1..8]=5"),
    (N.bind(5) * 2 - 1, "(n*2 - 1)[1..15]=9"),
    ((N.bind(5) + M.bind(2)) * 4, "((n + m)*4)[4..44]=28"),
    ((N.bind(5) + 2) // 3, "((n + 2)//3)[1..3]=2"),
    (N.bind(5) + M, "(n + m)[1..11]"),
    (N.bind(5) + N, "(n + n)[2..16]"),
    (UOp.const(dtypes.index, 3), "UOp(Ops.CONST, dtypes.index, arg=3, src=())"),
]


@pytest.mark.parametrize(("node", "expected"), SHOWN, ids=[text for _, text in SHOWN])
def test_a_size_is_shown_as_its_formula(node, expected):
    assert repr(node) == shown(node) == expected
    assert f"{(node, 4)}" == f"({expected}, 4)"


@pytest.mark.parametrize(
    "text", ["", "nonsense", "%0 = NOPE dtypes.int 1", "%0 = CONST dtypes.x 1"]
)
def test_what_is_no_graph_is_refused(text):
    with pytest.raises(ValueError, match="graph"):
        parse(text)
