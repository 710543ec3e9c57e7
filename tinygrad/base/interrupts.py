"""Ctrl-C that comes while Python runs a finaliser. What is raised there is only printed, and an
expression that is dropped runs a finaliser for each of its nodes: so now and then a Ctrl-C would be
lost. It is sent again, when the finaliser is over."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any


def keep_interrupts() -> None:
    """From now on no Ctrl-C is lost in a finaliser; other exceptions there go to the existing
    hook."""
    before = sys.unraisablehook

    def hook(args: Any) -> None:
        if args.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(_interrupt, (hook.__code__,))
        else:
            before(args)

    sys.unraisablehook = hook


def _interrupt(hook: CodeType) -> None:
    """Sends it again, once the main thread is out of the hook, where it would be lost for good."""
    main = threading.main_thread().ident or 0
    time.sleep(0.001)
    while _is_in(hook, sys._current_frames().get(main)):
        time.sleep(0.001)
    if hasattr(signal, "pthread_kill"):  # the main thread's wait ends, too
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _is_in(code: CodeType, frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
