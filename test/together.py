"""Threads that work beside each other: a hang or an error in one of them fails the test. And what
another thread may do at any line, done at each line in turn."""

from __future__ import annotations

import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 300.0  # seconds, which only a thread that waits for ever takes


def together(
    *works: Callable[[], Any], often: bool = False, patience: float = PATIENCE
) -> list[Any]:
    """What each returns. All begin at once; with `often` they take turns between any two lines."""
    found: dict[int, Any] = {}
    errors: list[BaseException] = []
    begin = threading.Barrier(len(works), timeout=patience)

    def told(place: int, work: Callable[[], Any]) -> None:
        try:
            begin.wait()
            found[place] = work()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=told, args=(place, work), daemon=True)
        for place, work in enumerate(works)
    ]
    interval, end = sys.getswitchinterval(), time.monotonic() + patience
    if often:
        sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
    finally:
        sys.setswitchinterval(interval)
    if errors:
        raise errors[0]
    frames = sys._current_frames()
    stacks = ["".join(traceback.format_stack(frames[t.ident])) for t in threads if t.is_alive()]
    assert not stacks, "not ended:\n" + "\n".join(stacks)
    return [found[place] for place in range(len(works))]


def beside(work: Callable[[], object], patience: float = 0.1) -> threading.Thread:
    """A thread that has ended, or waits for what the caller does: then it ends later."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(patience)
    return thread


def at_a_line(
    number: int, functions: Any, work: Callable[[], T], act: Callable[[], Any]
) -> tuple[T, bool]:
    """What `work` returns, with `act` called before that one of the lines that it runs of these
    functions: what another thread does there, or Ctrl-C. And whether it was called: `work` has no
    more lines, if it wasn't."""
    left, codes = number, {inspect.unwrap(function).__code__ for function in functions}

    def follow(frame: Any, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code not in codes:
            return None
        left -= event == "line"
        if left == -1 and event == "line":
            act()
        return follow

    sys.settrace(follow)
    try:
        return work(), left < 0
    finally:
        sys.settrace(None)


def at_each_line(
    functions: list[Any], work: Callable[[], Any], other: Callable[[], Any]
) -> Iterator[None]:
    """Yields when `work` has been done, with another thread's work done before one of the lines of
    these functions that it runs, for each of them in turn."""
    number, comes = 0, True
    while comes:
        others: list[threading.Thread] = []
        _, comes = at_a_line(
            number, functions, work, lambda o=others: o.append(beside(other, 0.02))
        )
        for thread in others:
            thread.join(60)
        yield
        number += 1
    assert number > 3
