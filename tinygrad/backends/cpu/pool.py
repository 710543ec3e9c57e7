"""The helpers of the CPU device: threads that lend a hand to whoever runs a segment.

They are made from Python, which works alike on every system, and enter native code once; from
there on the runner wakes them and puts them to sleep (`runner.py`). There is one pool a process,
made when a segment first has work to share. One caller at a time has its help; a second one works
alone. A forked child has no helpers of its own, forgets the parent's, and makes new ones.

Ctrl-C, which may come at any call of Python's, can keep a caller from giving the pool back. So a
caller is known by a lock that it holds while it computes: what it did not give back is its own when
it comes again, and nobody's once that lock is free.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import weakref

from tinygrad.backends.cpu.pages import PAGE, Pages
from tinygrad.backends.cpu.runner import Runner, wait_functions
from tinygrad.backends.cpu.runner_program import PAUSES, SEAT, SEATS, WORDS
from tinygrad.base.locks import ForkSafeLock

IN_NO_USE = contextlib.nullcontext()


class Pool:
    """`threads` counts the caller too. `borrow` and `give_back` bracket each use."""

    def __init__(self, runner: Runner, threads: int) -> None:
        self.runner = runner
        self.threads = threads
        self._lock = ForkSafeLock()
        self._helpers: list[threading.Thread] = []
        self._scratch: list[Pages] = []
        self._words: Pages | None = None
        self._user: ForkSafeLock | None = None
        _pools.add(self)

    def borrow(self, user: ForkSafeLock, scratch: int) -> int:
        """The pool's address for `run_list`, with `scratch` bytes lent to each helper; 0 if another
        user has it, or if there is no one to help. The caller holds the lock that it names."""
        with self._lock.now:
            if self.threads < 2 or self._user not in (None, user):
                return 0
            self._user = user
        words = self._words or self._start()
        if scratch:
            self._grow_scratch(words, scratch)
        return words.address

    def give_back(self, user: ForkSafeLock) -> None:
        """End of a use that `borrow` began; nothing if it did not."""
        if self._user is user:
            self._user = None

    def stop(self) -> None:
        """End the helpers; the next `borrow` makes new ones."""
        while True:
            user = self._user
            with user.now if user else IN_NO_USE, self._lock.now:
                if self._user in (None, user):
                    return self._dismiss()

    def _dismiss(self) -> None:
        words, helpers = self._words, self._helpers
        self.forget()
        for thread, helper in enumerate(helpers, 1):
            assert words is not None, "helpers have words to sleep on"
            self.runner.dismiss(words.address, thread)
            if helper.ident is not None:
                helper.join()

    def forget(self) -> None:
        """Drop helpers that no longer exist, and whoever used them."""
        self._words, self._helpers, self._scratch, self._user = None, [], [], None

    def _start(self) -> Pages:
        words = Pages(_seat(self.threads))
        wait, wake = wait_functions()
        spins = PAUSES[self.runner.machine].spins
        for name, value in (("spins", spins), ("wait_call", wait), ("wake_call", wake)):
            _write(words.address, f"pool.{name}", value)
        self._words = words
        try:
            for thread in range(1, self.threads):
                helper = threading.Thread(
                    target=_help,
                    args=(self.runner, words, thread),
                    name=f"tinygrad helper {thread}",
                    daemon=True,
                )
                self._helpers.append(helper)
                helper.start()
        except RuntimeError:  # no more threads, or the interpreter is ending: do with fewer
            pass
        except BaseException:
            self._dismiss()
            raise
        return words

    def _grow_scratch(self, words: Pages, nbytes: int) -> None:
        if self._scratch and self._scratch[0].nbytes >= nbytes:
            return
        self._scratch = [Pages(nbytes + PAGE, huge=True) for _ in range(self.threads - 1)]
        for thread, pages in enumerate(self._scratch, 1):
            _write(words.address + _seat(thread), "seat.scratch", pages.address)


def _seat(thread: int) -> int:
    """The offset of a thread's seat in the words of the pool."""
    return SEATS + SEAT * thread


def _write(address: int, word: str, value: int) -> None:
    """Gives a word of the struct at this address a value."""
    ctypes.c_int64.from_address(address + WORDS[word][0]).value = value


def _help(runner: Runner, words: Pages, thread: int) -> None:
    """A helper's thread; its frame keeps the code and the words mapped while it lives."""
    runner.help(words.address, thread)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _stop_all() -> None:
    """Stops all helpers before the interpreter frees its memory: else they would sleep in code that
    is not mapped any more."""
    for pool in list(_pools):
        pool.stop()


def _forget_all() -> None:
    for pool in list(_pools):
        pool.forget()


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
