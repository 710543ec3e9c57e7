"""Where temporaries lie: no two of them at the same place at the same time."""

import random

from tinygrad.schedule.memory import Life, most_live, place


def check(lives: list[Life], above_least: float, largest: int = 0) -> None:
    offsets, size = place(lives, largest)
    assert size <= most_live(lives) * above_least
    for i, (one, at) in enumerate(zip(lives, offsets, strict=True)):
        assert at % 256 == 0 and at + one.nbytes <= size
        assert not largest or at // largest == (at + max(one.nbytes, 1) - 1) // largest
        for other, there in zip(lives[:i], offsets, strict=False):
            if one.first <= other.last and other.first <= one.last:
                assert at + one.nbytes <= there or there + other.nbytes <= at, (one, other)


def test_nothing_gets_a_place_of_no_size() -> None:
    assert place([]) == ([], 0)


def test_lives_at_the_same_time_lie_apart() -> None:
    chance = random.Random(0)
    for count in (1, 2, 10, 60):
        starts = [chance.randrange(40) for _ in range(count)]
        sizes = [chance.choice((0, 4, 1000, 70_000, 1 << 20)) for _ in range(count)]
        lengths = [chance.randrange(chance.choice((1, 3, 40)) + 1) for _ in range(count)]
        lives = [Life(n, a, a + m) for n, a, m in zip(sizes, starts, lengths, strict=True)]
        check(lives, 1.1)
        check(lives, 2.0, 1 << 20)
        check(lives, 2.0, 3 << 19)


def test_a_large_one_between_long_lives_leaves_no_gaps() -> None:
    """In order of time the third would lie above both, and the fifth above all."""
    mega = 1 << 20
    rows = [(6, 0, 1), (4, 0, 9), (7, 2, 9), (3, 1, 2), (9, 5, 6)]
    check([Life(n * mega, first, last) for n, first, last in rows], 1.0)


def test_many_are_placed_in_order_of_time() -> None:
    check([Life(1000, i, i + 1) for i in range(3000)], 1.0)
    check([Life(1000, i, i + 1) for i in range(3000)], 1.3, 1280)
