"""The CUDA device: PTX from LLVM, run through the driver's library alone (no toolkit)."""

from __future__ import annotations

from typing import Any

from tinygrad.backends.interface import Backend
from tinygrad.base.errors import DeviceError

__all__ = ["open_device"]


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """CUDA device number `index`. Raises `DeviceError` if there is none."""
    raise DeviceError(f"device CUDA:{index}: kernels are compiled, but nothing runs them yet")
