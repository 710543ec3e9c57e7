"""Leaving kernels that take long. A native call hears nothing of Python, so a thread listens for
it: at Ctrl-C, or when DEVICE_TIMEOUT is over, it sets the word that the runner looks at before each
chunk of tasks. So the kernels are really over when the error comes, and the device goes on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
from typing import Any

from tinygrad.base.settings import SETTINGS

OVER = b"\0"  # no signal's number


class Patience:
    """`with` it, `stop` becomes 1 where the call should end. TimeoutError after DEVICE_TIMEOUT;
    KeyboardInterrupt comes from Python itself, in the main thread, once the call is over."""

    def __init__(self, stop: ctypes.c_int32) -> None:
        self.stop = stop
        self.limit = SETTINGS["DEVICE_TIMEOUT"].value or None
        self.late, self.before = False, -1
        self.hears = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def __enter__(self) -> None:
        self.stop.value = 0
        self.listening, self.telling = socket.socketpair()
        self.telling.setblocking(False)
        self.thread = threading.Thread(target=self._listen, daemon=True)
        if self.hears:  # the system's handler, in whatever thread, writes the signal's number there
            self.before = signal.set_wakeup_fd(self.telling.fileno(), warn_on_full_buffer=False)
        self.thread.start()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.hears:
            signal.set_wakeup_fd(self.before)
        self.telling.send(OVER)
        self.thread.join()
        self.listening.close()
        self.telling.close()
        self.stop.value = 0
        if self.late and error is None:
            raise TimeoutError(f"stopped after {self.limit} s (DEVICE_TIMEOUT)")

    def _listen(self) -> None:
        self.listening.settimeout(self.limit)
        try:
            while (said := self.listening.recv(1)) != OVER:
                if said[0] == signal.SIGINT:
                    self.stop.value = 1
                if self.before != -1:  # somebody's event loop
                    with contextlib.suppress(OSError):
                        os.write(self.before, said)
        except TimeoutError:
            self.late, self.stop.value = True, 1
