"""Whether one way to run a kernel is certainly faster than another, on a machine that other
programs use too. The two are timed in turn, under each of the conditions that a program may run
them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import quantiles
from typing import NamedTuple

Timed = Callable[[], float]
"""Runs once, and returns the seconds that it took."""


class Condition(NamedTuple):
    """Two ways to run, and what is done before each run."""

    candidate: Timed
    reference: Timed
    before: Callable[[], None]


def worst_ratio(conditions: Iterable[Condition], rounds: int) -> float:
    """The candidate's time over the reference's, under the condition that is worst for it. A
    candidate that has lost under one condition is not tried under the others."""
    worst = 0.0
    for condition in conditions:
        worst = max(worst, ratio_in_turn(condition, rounds))
        if worst >= 1.0:
            break
    return worst


def ratio_in_turn(condition: Condition, rounds: int) -> float:
    """The upper quartile of the ratios of times over the rounds, so that a gain must exceed the
    noise. Which of the two runs first alternates."""
    found = []
    for number in range(rounds):
        times = {}
        pair = [condition.candidate, condition.reference]
        for run in pair if number % 2 else pair[::-1]:
            condition.before()
            times[run] = run()
        found.append(times[condition.candidate] / times[condition.reference])
    return quantiles(found, n=4)[2]
