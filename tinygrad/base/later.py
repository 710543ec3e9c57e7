"""What most processes never need: a module that is imported when something of it is first asked
for, or an object of one. A process that finds its kernels in the cache makes none, so it doesn't
wait for the files that would."""

from __future__ import annotations

import importlib
import threading
from typing import Any

from tinygrad.base.helpers import once
from tinygrad.base.locks import ForkSafeLock

_importing = ForkSafeLock(threading.RLock, awaited=True)  # Python has locks of its own meanwhile


class _Later:
    def __init__(self, module: str, maker: str, arguments: tuple[Any, ...]) -> None:
        self._module, self._maker, self._arguments = module, maker, arguments

    @once
    def _found(self) -> Any:
        with _importing.now:
            module = importlib.import_module(self._module)
            return getattr(module, self._maker)(*self._arguments) if self._maker else module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


def later(module: str, maker: str = "", *arguments: Any) -> Any:
    """A stand-in for a module, or for what its `maker` returns for the arguments.

    >>> later("math").sqrt(4.0), later("fractions", "Fraction", 1, 2).denominator
    (2.0, 2)
    """
    return _Later(module, maker, arguments)
