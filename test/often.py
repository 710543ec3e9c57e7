"""Which of many cases of a test run each time, and which with `make test-all` only."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def one_in(number: int, cases: Iterable[Any]) -> list[Any]:
    """The cases, of which the first and then each `number`th run each time, the others rarely."""
    return [case if not place % number else rarely(case) for place, case in enumerate(cases)]


def rarely(case: Any) -> Any:
    """A case that `make test-all` runs alone."""
    values: Sequence[Any] = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
