"""Who wins a race, by clocks that are functions: no gain is taken that could be noise."""

from random import Random

import pytest

from tinygrad.engine.race import Condition, worst_ratio
from tinygrad.engine.recipes import WON
from tinygrad.engine.stopwatch import RACE_ROUNDS


def clock(seconds, noise, seed, bursts=0.0):
    """Times that scatter; of some runs the machine takes twice as long."""
    random = Random(seed)

    def run():
        burst = 2.0 if random.random() < bursts else 1.0
        return seconds * random.lognormvariate(0.0, noise) * burst

    return run


def is_taken(gains, noise=0.0, seed=0, bursts=0.0):
    """Whether a candidate with these gains, one in each condition, replaces the heuristic's."""
    made = (
        Condition(
            clock(1.0 - gain, noise, f"{seed} {place} candidate", bursts),
            clock(1.0, noise, f"{seed} {place} reference", bursts),
            lambda: None,
        )
        for place, gain in enumerate(gains)
    )
    return worst_ratio(made, RACE_ROUNDS) <= WON


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("bursts", [0.0, 0.1])
def test_what_is_no_faster_is_never_taken(noise, bursts):
    assert not any(is_taken([0.0] * 3, noise, seed, bursts) for seed in range(300))


@pytest.mark.parametrize("place", range(3))
def test_what_is_slower_in_one_condition_is_never_taken(place):
    gains = [0.4, 0.4, 0.4]
    gains[place] = -0.02
    assert not any(is_taken(gains, 0.05, seed) for seed in range(300))


def test_a_gain_beyond_the_noise_is_taken():
    assert all(is_taken([0.1] * 3, 0.02, seed) for seed in range(300))
    assert sum(is_taken([0.3] * 3, 0.05, seed, bursts=0.05) for seed in range(100)) > 95


def test_who_lost_is_not_asked_again():
    asked = []

    def condition(name, seconds):
        return Condition(lambda: asked.append(name) or seconds, lambda: 1.0, lambda: None)

    assert worst_ratio([condition("hot", 1.2), condition("cold", 0.5)], 3) > 1
    assert set(asked) == {"hot"}


def test_both_run_in_turn_and_each_begins_as_often():
    order = []
    one, other = (lambda name=name: order.append(name) or 1.0 for name in "ab")
    worst_ratio([Condition(one, other, lambda: order.append("|"))], 4)
    assert "".join(order) == "|b|a|a|b|b|a|a|b"
