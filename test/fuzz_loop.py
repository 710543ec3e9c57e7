"""The loop of fuzzers that try one seed after the other, and what they say."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable


def look_for_finds(
    parser: argparse.ArgumentParser,
    checking: Callable[[argparse.Namespace], Callable[[int], str | None]],
) -> int:
    """Prints what each seed's check finds wrong; None: nothing; an error is a find.
    `checking` gives the check that the options ask for. Returns the number of finds."""
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10**9)
    options = parser.parse_args()
    check = checking(options)
    end, failed, seed = time.monotonic() + 60 * options.minutes, 0, options.seed
    while time.monotonic() < end and seed < options.seed + options.count:
        try:
            wrong = check(seed)
        except Exception as error:  # noqa: BLE001  a find, whatever it is
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            failed += 1
            print(f"seed {seed}: {wrong[:300]}", flush=True)
        seed += 1
    print(f"{seed - options.seed} programs from seed {options.seed}, {failed} differ")
    return failed
