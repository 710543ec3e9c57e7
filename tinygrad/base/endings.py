"""A context that Ctrl-C finds begun or not, ended or not. An `__exit__` in Python may be broken off
before its first line, and then nothing ends; one in C, which Python's files have, is called as a
whole."""

from __future__ import annotations

import functools
import io
from collections import deque
from collections.abc import Iterable
from typing import Any

Action = functools.partial[Any]
call = functools.partial.__call__


class Ending(io.IOBase):
    """At the end of a `with`, functions of C are called. It may be entered again inside.

    An `__enter__` calls `at_end` last. What begins then, it says without a call, at which Ctrl-C
    would be heard before the `with` has begun.
    """

    closed = True  # for `io`, which would close it when it dies

    def at_end(self, *actions: Action) -> None:
        """Says what is called at the end of the `with` that begins now."""
        outer = vars(self).get("close")
        if outer is not None:
            actions += (functools.partial(setattr, self, "close", outer),)
        # all that the `__exit__` of `io` calls
        self.close = actions[0] if len(actions) == 1 else _of(actions)  # type: ignore[method-assign]


def _of(actions: Iterable[Action]) -> Action:
    return functools.partial(deque, map(call, actions), 0)
