"""Threads that work beside each other: a hang or an error in one of them fails the test. And work
that Ctrl-C breaks off."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

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


def interrupted_at(number: int, work: Callable[[], None]) -> bool:
    """Whether a KeyboardInterrupt came at that one of the places in `work` where Python hears
    signals: where functions begin, and where calls of C end."""
    left = number

    def listens(frame: object, event: str, argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if left < 0 and argument is not sys.setprofile:
            raise KeyboardInterrupt

    try:
        sys.setprofile(listens)
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False
