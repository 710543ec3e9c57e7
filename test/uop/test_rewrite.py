"""Patterns find what they say; rewriting goes from sources to users, ends, and sees circles."""

import pytest

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import VerifyError
from tinygrad.uop import rewrite
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.pattern import PatternMatcher, Rule, UPat
from tinygrad.uop.rewrite import graph_rewrite

X, Y, C = UPat.var("x"), UPat.var("y"), UPat.cvar("c")
a, b = UOp.variable("a", 0, 9), UOp.variable("b", 0, 9)
real = UOp.variable("f", 0, 9, dtypes.float32)
one = UOp.const(dtypes.int32, 1)

MATCHES = [
    (X + C, a + 1, dict(x=a, c=one)),
    (X + C, UOp.const(dtypes.int32, 1) + a, dict(x=a, c=one)),  # commutative
    (X < C, one < a, None),  # not commutative
    (X + X, a + a, dict(x=a)),
    (X + X, a + b, None),  # the same name is the same node
    ((X + Y) * X, (a + b) * a, dict(x=a, y=b)),
    ((X + Y) * X, (b + a) * a, dict(x=a, y=b)),
    (UPat(Ops.ADD, name="n"), a + b, dict(n=a + b)),
    (UPat((Ops.ADD, Ops.MUL)), a * b, {}),
    (UPat((Ops.ADD, Ops.MUL)), a < b, None),
    (UPat.var("x", dtypes.float32), real, dict(x=real)),
    (UPat.var("x", (dtypes.int32, dtypes.float32)), a, dict(x=a)),
    (UPat.var("x", dtypes.float32), a, None),
    (UPat.any(X + 1, X * 2), a * 2, dict(x=a)),
    (UPat.any(X + 1, X * 2), a * 3, None),
    (UPat(Ops.MUL, src=(UPat.any(X + 1, X * 2), Y)), (a + 1) * b, dict(x=a, y=b)),
    (UPat(Ops.SINK, src=(X,)), UOp.sink(a, b), None),
    (UPat(Ops.SINK, src=(X,), allow_any_len=True), UOp.sink(a, b), dict(x=a)),
    (UPat(Ops.SINK, src=(X, Y, C), allow_any_len=True), UOp.sink(a, b), None),
    (UPat(Ops.SINK, src=UPat(Ops.DEFINE_VAR)), UOp.sink(a, b), {}),
    (UPat(Ops.SINK, src=UPat(Ops.DEFINE_VAR)), UOp.sink(a, one), None),
    (UPat(Ops.SINK, src=[UPat(Ops.ADD), X]), UOp.sink(a, a + b), dict(x=a)),
    (UPat(Ops.CONST, arg=0), UOp.const(dtypes.int32, 0), {}),
    (UPat(Ops.CONST, arg=0), one, None),
    (X.cast(dtypes.int64), a.cast(dtypes.int64), dict(x=a)),
    (X.cast(dtypes.int64), a.cast(dtypes.int8), None),
]


@pytest.mark.parametrize("pattern, node, found", MATCHES)
def test_pattern_finds(pattern, node, found):
    assert pattern.match(node) == found


def test_rule_of_terms_computes_constants():
    rule = Rule("c", (X + C) + UPat.cvar("d"), X + (C + UPat.cvar("d")))
    assert PatternMatcher([rule]).rewrite(a + 3 + 4) is a + 7
    zero = Rule("zero", X * 0, UPat(Ops.CONST, arg=0))
    assert PatternMatcher([zero]).rewrite(real * 0) is UOp.const(dtypes.float32, 0.0)


def test_guard_decides():
    rule = Rule("small", X + C, X, lambda x, c: c.arg < 5)
    assert PatternMatcher([rule]).rewrite(a + 4) is a
    assert PatternMatcher([rule]).rewrite(a + 5) is None


def test_first_rule_that_fits_wins():
    both = PatternMatcher([(X + 1, lambda x: None), (X + 1, lambda x: x), (X + 1, lambda x: x * 2)])
    assert both.rewrite_named(a + 1) == (a, "<lambda>")
    assert (PatternMatcher([]) + both).rewrite(a + 1) is a


def test_context_reaches_the_rule():
    seen = []
    matcher = PatternMatcher([(UPat(Ops.DEFINE_VAR, name="x"), lambda ctx, x: ctx.append(x))])
    graph_rewrite(a + b, matcher, ctx=seen)
    assert seen == [a, b]


def names_of(order):
    def see(ctx, n):
        ctx.append(n.op)

    seen = []
    graph_rewrite((a + 1) * b, PatternMatcher([(UPat(name="n"), see)]), ctx=seen, bottom_up=order)
    return seen


def test_order_of_rewriting():
    sources_first = [Ops.DEFINE_VAR, Ops.CONST, Ops.ADD, Ops.DEFINE_VAR, Ops.MUL]
    assert names_of(False) == sources_first
    assert names_of(True) == [Ops.MUL, Ops.ADD, Ops.DEFINE_VAR, Ops.CONST, Ops.DEFINE_VAR]


def test_what_a_rule_makes_is_rewritten_too():
    steps = PatternMatcher([(X * 2, lambda x: x + x), (X + X, lambda x: x * 3)])
    assert graph_rewrite((a * 2) * 2, steps) is a * 3 * 3


def test_shared_nodes_are_rewritten_once():
    count = []
    matcher = PatternMatcher([(X + 1, lambda x: count.append(x))])
    shared = a + 1
    graph_rewrite(UOp.sink(shared * 2, shared * 3, shared), matcher)
    assert count == [a]


@pytest.mark.parametrize("bottom_up", [False, True])
def test_circle_is_reported(bottom_up):
    circle = PatternMatcher([(X + Y, lambda x, y: x * y), (X * Y, lambda x, y: x + y)])
    with pytest.raises(VerifyError, match="circle|end"):
        graph_rewrite(a + b, circle, bottom_up=bottom_up)


def test_growth_is_reported():
    grows = PatternMatcher([(UPat(Ops.MUL, src=(X, Y)), lambda x, y: (x * (y + 1)) + 1)])
    with pytest.raises(VerifyError, match="end"):
        graph_rewrite(a * b, grows)


def test_listeners_hear_and_origins_stay():
    heard = []
    node = a + 0
    node.origin = "user.py:3"
    rewrite.listeners.append(lambda *event: heard.append(event))
    try:
        made = graph_rewrite(node * 2, PatternMatcher([Rule("x + 0", X + 0, X * 5)]))
    finally:
        rewrite.listeners.pop()
    assert made is a * 5 * 2
    assert heard == [(node, a * 5, "x + 0")] and (a * 5).origin == "user.py:3"


def test_a_graph_is_rebuilt_by_rows_from_its_sources_up():
    x = UOp.variable("x", 0, 9, dtypes.int32)
    one = (x + 1) * 3
    one.src[0].origin = "here"
    made = one.rebuilt({Ops.ADD: lambda node: node.src[0].alu(Ops.MAX, node.src[1])})
    assert made is x.alu(Ops.MAX, UOp.const(dtypes.int32, 1)) * 3
    assert made.src[0].origin == "here"
    assert one.rebuilt({Ops.SIN: lambda node: node}) is one
