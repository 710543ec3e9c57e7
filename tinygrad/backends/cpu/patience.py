"""Leaving kernels that take long. A native call hears nothing of Python, so a thread listens for
it: at Ctrl-C, or when DEVICE_TIMEOUT is over, it sets the word that the runner looks at before each
chunk of tasks. So the kernels are really over when the error comes, and the device goes on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import signal
import threading
import time
from typing import Any

from tinygrad.base.later import later
from tinygrad.base.settings import SETTINGS

selectors, socket = later("selectors"), later("socket")

NOBODY = b"\0"  # no signal's number: only wakes the listener


class Patience:
    """`with` it, `stop` becomes 1 where the call should end. TimeoutError after DEVICE_TIMEOUT;
    KeyboardInterrupt comes from Python itself, in the main thread, once the call is over."""

    def __init__(self, stop: ctypes.c_int32) -> None:
        self.stop = stop
        self.limit = SETTINGS["DEVICE_TIMEOUT"].value
        self.end = time.monotonic() + self.limit if self.limit else math.inf
        self.late, self.before = False, -1
        self.hears = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def __enter__(self) -> None:
        self.stop.value = 0
        self.listener = _listener()
        with self.listener.lock:
            if self.hears:  # of the main thread there is one: a Ctrl-C left others behind
                self.listener.calls = {each for each in self.listener.calls if not each.hears}
            self.listener.calls.add(self)
        told = self.listener.told
        if self.limit:
            told.send(NOBODY)
        if self.hears:  # the system's handler, in whatever thread, writes the signal's number there
            before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
            self.before = -1 if before == told.fileno() else before

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.hears:
            signal.set_wakeup_fd(self.before)
        with self.listener.lock:
            self.listener.hear()  # what came last is not for a later call
            self.listener.calls.discard(self)
        self.stop.value = 0
        if self.late and error is None:
            raise TimeoutError(f"stopped after {self.limit} s (DEVICE_TIMEOUT)")

    def hear(self, number: int) -> None:
        """Stops the call if the signal is Ctrl-C, and passes the signal on to an event loop."""
        if number == signal.SIGINT:
            self.stop.value = 1
        if self.before != -1:  # somebody's event loop
            with contextlib.suppress(OSError):
                os.write(self.before, bytes([number]))


class Listener:
    """A thread that sleeps until a signal comes, or until a call's time is over."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: set[Patience] = set()
        self.heard, self.told = socket.socketpair()
        self.heard.setblocking(False)
        self.told.setblocking(False)
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> None:
        """Passes signals that came on to the call of the main thread. The lock is held."""
        with contextlib.suppress(BlockingIOError):
            for number in self.heard.recv(64):
                for call in self.calls if number else ():
                    if call.hears:
                        call.hear(number)

    def _listen(self) -> None:
        ears = selectors.DefaultSelector()
        ears.register(self.heard, selectors.EVENT_READ)
        while True:
            with self.lock:
                self.hear()
                now = time.monotonic()
                for call in self.calls:
                    if call.end <= now:
                        call.late, call.stop.value, call.end = True, 1, math.inf
                first = min((call.end for call in self.calls), default=math.inf)
            ears.select(None if first == math.inf else first - now)


@functools.cache
def _listener() -> Listener:
    """The one listener of the process, made for the first long call."""
    return Listener()


if hasattr(os, "register_at_fork"):  # a child has no thread of its parent
    os.register_at_fork(after_in_child=_listener.cache_clear)
