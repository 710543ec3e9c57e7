"""How a command ends: `python -m tinygrad doctor | head -1` closes the pipe, and that is no
error."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable


def run_command(main: Callable[[], int | None]) -> int:
    """The exit code of a program, 0 for None. Who reads what it prints may stop before it ends;
    then it ends there, with the code that a shell gives for a closed pipe."""
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_unread(sys.stdout.fileno()):
            raise  # another pipe was broken
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return 141
    return code or 0


def _is_unread(pipe: int) -> bool:
    """Whether nobody can read what is written here any more."""
    ready = select.poll()
    ready.register(pipe, 0)
    return any(event & select.POLLERR for _, event in ready.poll(0))
