"""What each expression becomes: one fact a line. A leaf is a loop (`i=8`), a variable with bounds
(`v=(-3, 5)`) or anything of a dtype (`x=INT`)."""

from itertools import permutations

import pytest
from simplify.terms import leaf, parse

from tinygrad.base.dtype import dtypes
from tinygrad.simplify.affine import Algebra
from tinygrad.simplify.rules import simplify
from tinygrad.uop.node import UOp

INT, CHAR, UINT, BOOL = dtypes.int32, dtypes.int8, dtypes.uint32, dtypes.bool
FLOAT, HALF = dtypes.float32, dtypes.float16
INF, NAN = float("inf"), float("nan")


def check(before: str, after: str, **leaves):
    names = {name: leaf(name, bounds) for name, bounds in leaves.items()}
    made, expected = simplify(parse(before, names)), parse(after, names)
    assert made is expected, f"{before} became\n{made!r}, not\n{expected!r}"


INDICES = [
    ("(i*4 + j) // 4", "i", dict(i=8, j=4)),
    ("(i*4 + j) % 4", "j", dict(i=8, j=4)),
    ("(i*4 + j) // 2", "i*2 + j//2", dict(i=8, j=4)),
    ("(i*6 + j) // 4", "(i*6 + j)//4", dict(i=8, j=4)),
    ("(i*6 + 3) // 4", "(i*3 + 1)//2", dict(i=8)),
    ("(i*6 + j) // 12", "i//2", dict(i=8, j=6)),
    ("i // 4 * 4 + i % 4", "i", dict(i=100)),
    ("i // 4 * 12 + i % 4 * 3", "i*3", dict(i=100)),
    ("i // 4 % 5 * 4 + i % 4", "i % 20", dict(i=100)),
    ("(i + j*8) // 24 * 3 + (j + i // 8) % 3", "j + i // 8", dict(i=100, j=7)),
    ("(i + j*8) // 24 * 24 + (j + i // 8) % 3 * 8 + i % 8", "i + j*8", dict(i=100, j=7)),
    ("i // 4 // 5", "i // 20", dict(i=100)),
    ("(i // 4 + 3) // 5", "(i + 12) // 20", dict(i=100)),
    ("i % 20 // 4", "i // 4 % 5", dict(i=100)),
    ("i % 20 % 4", "i % 4", dict(i=100)),
    ("(i % 20 * 3 + j) % 4", "(i*3 + j) % 4", dict(i=100, j=3)),
    ("i % 20 % 7", "i % 20 % 7", dict(i=100)),
    ("i % 8", "i", dict(i=8)),
    ("i // 8", "0", dict(i=8)),
    ("(i + 5) // 8", "(i + 5) // 8", dict(i=8)),
    ("(i + 8) // 8", "1", dict(i=8)),
    ("(i + 17) % 8", "(i + 1) % 8", dict(i=8)),
    ("v // 4", "v // 4", dict(v=(-8, 8))),
    ("(v*4 + j) // 4", "v", dict(v=(-8, 8), j=4)),
    ("v % -3", "v * -1 % 3 * -1", dict(v=(-8, 8))),
    ("v // -3", "v * -1 // 3", dict(v=(-8, 8))),
    ("v // 0", "0", dict(v=(-8, 8))),
    ("v % 0", "v", dict(v=(-8, 8))),
    ("j + i", "i + j", dict(i=8, j=4)),
    ("2*i + 3 + j - i - 3 - j", "i", dict(i=8, j=4)),
    ("i*0", "0", dict(i=8)),
    ("i*j + j*i", "i*j*2", dict(i=8, j=4)),
    ("(i + 1) * (j + 2)", "i*2 + j + i*j + 2", dict(i=8, j=4)),
    ("i << 3", "i*8", dict(i=8)),
    ("(i*8 + j) >> 3", "i", dict(i=8, j=8)),
    ("(i*8 + j) & 7", "j", dict(i=8, j=8)),
    ("~i", "i*-1 + -1", dict(i=8)),
    ("max(i, 0)", "i", dict(i=8)),
    ("max(i, 7)", "7", dict(i=8)),
    ("max(i, j + 8)", "j + 8", dict(i=8, j=4)),
    ("i + o", "i", dict(i=8, o=1)),
    ("(g + 1) // 2", "g", dict(g=2)),
    ("(g + 1) % 2", "g*-1 + 1", dict(g=2)),
    ("(i*2 + g*5 + 1) // 2", "g*3 + i", dict(i=8, g=2)),
    ("(g + 1) // 2", "(g + 1) // 2", dict(g=3)),
    ("index(int(i)*2 + 1) // 2", "i", dict(i=8)),
    ("index(char(i)*2) // 2", "index(char(i)*2) // 2", dict(i=100)),
]
CONDITIONS = [
    ("i < 8", "True", dict(i=8)),
    ("i < 0", "False", dict(i=8)),
    ("i*4 + j < 13", "i*4 + j < 13", dict(i=8, j=4)),
    ("i*4 < 13", "i < 4", dict(i=8)),
    ("i // 4 < 3", "i < 12", dict(i=100)),
    ("2 < i // 4", "i*-1 < -11", dict(i=100)),
    ("not i < 3", "i*-1 < -2", dict(i=8)),
    ("3 < i", "i*-1 < -3", dict(i=8)),
    ("i + 3 < j", "i - j < -3", dict(i=8, j=8)),
    ("i*2 == 5", "False", dict(i=8)),
    ("i*2 == 6", "i == 3", dict(i=8)),
    ("3 - i == 0", "i == 3", dict(i=8)),
    ("i != 9", "True", dict(i=8)),
    ("i*2 != 6", "i != 3", dict(i=8)),
    ("int(i)*2 + 1 < 5", "i < 2", dict(i=8)),
    ("int(i) == int(j)", "i - j == 0", dict(i=8, j=8)),
    ("(i < 3) & (i < 5)", "i < 3", dict(i=8)),
    ("(i < 5) & (i < 3)", "i < 3", dict(i=8)),
    ("(i < 3) & (4 < i)", "False", dict(i=8)),
    ("(i < 3) & (i + j < 6)", "i < 3", dict(i=8, j=4)),
    ("(i == 3) & (i < 5)", "i == 3", dict(i=8)),
    ("(i < 3) & (j < 2) & (i < 3)", "(i < 3) & (j < 2)", dict(i=8, j=4)),
    ("where(i < 5, i % 5, 0)", "where(i < 5, i, 0)", dict(i=8)),
    ("where(i < 8, i, j)", "i", dict(i=8, j=4)),
]
NUMBERS = [
    ("x + 3 + 4", "x + 7", dict(x=INT)),
    ("3 + x", "x + 3", dict(x=INT)),
    ("x - x", "0", dict(x=INT)),
    ("x*3 + x*4", "x*7", dict(x=INT)),
    ("x*3*4", "x*12", dict(x=INT)),
    ("x * 0", "0", dict(x=INT)),
    ("x * 1", "x", dict(x=FLOAT)),
    ("--x", "x", dict(x=FLOAT)),
    ("x / 4", "x * 0.25", dict(x=FLOAT)),
    ("x + (0.0 * -1.0)", "x", dict(x=FLOAT)),
    ("x // 2 // 3", "x // 6", dict(x=INT)),
    ("x // 100 // 100", "x // 100 // 100", dict(x=CHAR)),
    ("x % 12 % 4", "x % 4", dict(x=INT)),
    ("x // 4", "x // 4", dict(x=INT)),
    ("max(max(x, 3), 5)", "max(x, 5)", dict(x=INT)),
    ("x + 1 < 5", "x + 1 < 5", dict(x=INT)),
    ("p & p", "p", dict(p=BOOL)),
    ("p & (not p)", "False", dict(p=BOOL)),
    ("not (not p)", "p", dict(p=BOOL)),
    ("p | True", "True", dict(p=BOOL)),
    ("p & (p | q)", "p", dict(p=BOOL, q=BOOL)),
    ("x <= y", "not (y < x)", dict(x=INT, y=INT)),
    ("where(p, x, x)", "x", dict(p=BOOL, x=FLOAT)),
    ("where(not p, x, y)", "where(p, y, x)", dict(p=BOOL, x=FLOAT, y=FLOAT)),
    ("where(p, where(q, x, y), y)", "where(p & q, x, y)", dict(p=BOOL, q=BOOL, x=FLOAT, y=FLOAT)),
    ("int(int(x))", "x", dict(x=INT)),
    ("half(float(x))", "x", dict(x=HALF)),
    ("char(int(x))", "x", dict(x=CHAR)),
    ("int(float(x))", "int(x)", dict(x=CHAR)),
    ("float(x) != 0", "x", dict(x=BOOL)),
    ("check(x)", "x", dict(x=(0, 2))),
]
UNCHANGED = [
    ("x * 0.0", dict(x=FLOAT)),
    ("x + 0.0", dict(x=FLOAT)),
    ("x + 1.0 + 2.0", dict(x=FLOAT)),
    ("x * 2.0 * 3.0", dict(x=FLOAT)),
    ("x + x * -1.0", dict(x=FLOAT)),
    ("x / x", dict(x=FLOAT)),
    ("x / 3.0", dict(x=FLOAT)),
    ("x == x", dict(x=FLOAT)),
    ("x <= y", dict(x=FLOAT, y=FLOAT)),
    ("float(half(x))", dict(x=FLOAT)),
    ("int(float(x))", dict(x=INT)),
    ("check(x) * 0", dict(x=INT)),
    ("check(x) % 1", dict(x=INT)),
    ("check(x) < check(x)", dict(x=INT)),
    ("max(check(x), y)", dict(x=(0, 3), y=(3, 4))),
    ("check(i) * 0", dict(i=8)),
    ("check(i) // 8", dict(i=8)),
    ("check(i) < 8", dict(i=8)),
    ("where(check(i) < 9, x, x)", dict(i=(0, 99), x=INT)),
]


@pytest.mark.parametrize("before, after, leaves", INDICES + CONDITIONS + NUMBERS)
def test_before_and_after(before, after, leaves):
    check(before, after, **leaves)


@pytest.mark.parametrize("before, leaves", UNCHANGED)
def test_stays(before, leaves):
    names = {name: leaf(name, bounds) for name, bounds in leaves.items()}
    expression = parse(before, names)
    assert simplify(expression) is expression


@pytest.mark.parametrize("parts", [*permutations(("i", "j*4", "k*20"))])
def test_what_was_computed_before_leaves_no_trace_in_a_form(parts):
    """Code is made in the order of a form's terms: it must be the same in every process."""
    names = {"i": leaf("i", 4), "j": leaf("j", 5), "k": leaf("k", 6)}
    algebra = Algebra()
    node = algebra.simplify(parse(" + ".join(parts) + " + 1", names))
    remembered, derived = algebra.affine(node), Algebra().affine(node)
    assert [*remembered[0].items()] == [*derived[0].items()] and remembered[1] == derived[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda u, w: u + 1 - u, lambda u, w: u.const_like(1)),
        (lambda u, w: (u * 4 + 8) // 4, lambda u, w: u + 2),
        (lambda u, w: (u * 4 + w) // 4, lambda u, w: w // 4 + u),
        (lambda u, w: (u * 4 + w) % 4, lambda u, w: w % 4),
        (lambda u, w: (u.bind(3) + w) * 2 - w * 2, lambda u, w: u.bind(3) * 2),
    ],
)
def test_arithmetic_of_variables(before, after):
    u, w = UOp.variable("u", 1, 10), UOp.variable("w", -5, 5)
    made = before(u, w).simplify()
    assert made is after(u, w)
    assert made.simplify() is made


def test_arithmetic_of_variables_that_may_wrap_stays():
    wide = UOp.variable("wide", 0, 1 << 30)
    node = (wide * 4 + 8) // 4
    assert node.simplify() is node
