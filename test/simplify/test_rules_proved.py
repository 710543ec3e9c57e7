"""Every rule whose right side is a term and that speaks of integers or bools is proved by Z3, from
the datum that the engine runs; and each guard is needed: without it Z3 finds a counterexample."""

import itertools

import pytest
from simplify.prover import allowed, formulas

from tinygrad.base.dtype import dtypes
from tinygrad.simplify.rules import TERMS
from tinygrad.uop.pattern import Rule, UPat

PROVABLE = [
    rule
    for rule in TERMS
    if isinstance(rule.right, UPat) and not allowed(rule) <= set(dtypes.floats)
]
GUARDED = [rule for rule in PROVABLE if rule.when is not None]
BY_CONSTANT = {"(x % c) % c", "(x * c) % c"}
"""Z3 can't tell whether remainders by unknowns agree, so these constants are tried one by one."""
CONSTANTS = (1, 2, 3, 4, 6, 12, 60, 127)


def by_name(rule: Rule) -> str:
    return rule.name


@pytest.mark.parametrize("rule", PROVABLE, ids=by_name)
def test_rule_holds(rule):
    cases = [{}]
    if rule.name in BY_CONSTANT:
        names = ("c1", "c2") if "% c) %" in rule.name else ("c1",)
        cases = [
            dict(zip(names, c, strict=True))
            for c in itertools.product(CONSTANTS, repeat=len(names))
        ]
    for constants in cases:
        proofs = formulas(rule, constants)
        assert proofs, "a rule about nothing"
        for formula in proofs:
            broken = formula.counterexample()
            assert broken is None, f"{rule.name} of {formula.test!r} {constants}: {broken}"


@pytest.mark.parametrize("rule", GUARDED, ids=by_name)
def test_forgotten_guard_is_refuted(rule):
    assert any(formula.counterexample(guarded=False) is not None for formula in formulas(rule))


n, x, y, c, d = (
    UPat.var("x", dtypes.ints),
    UPat.var("x"),
    UPat.var("y"),
    UPat.cvar("c"),
    UPat.cvar("d"),
)
WRONG = [
    Rule("x + c < d is x < d - c", (n + c) < d, x < (d + c * -1)),
    Rule("x * c // c is x", n * c // c, x),
    Rule("-x < -y is y < x", n * -1 < y * -1, y < x),
]


@pytest.mark.parametrize("rule", WRONG, ids=by_name)
def test_wrong_rule_is_refuted(rule):
    assert all(formula.counterexample() is not None for formula in formulas(rule))


def test_most_rules_are_proved():
    assert len(PROVABLE) >= 0.75 * len(TERMS)
