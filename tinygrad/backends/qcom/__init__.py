"""The QCOM device: Qualcomm's Adreno, as an OpenCL device with a machine row of its own. Compiler,
memory and queue are those of `cl`: this folder knows only what the chip is like.

An Adreno runs waves of 64 lanes, of 128 where a kernel takes few registers; its groups have 32 KiB
of LOCAL memory. It computes with half at twice the speed of float32, has no float64, and makes
64-bit integers of 32-bit ones, so indices of 32 bits, which kernels prefer, matter most there.
Memory is the phone's own, at tens of gigabytes a second: it is what bounds most kernels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinygrad.backends.c_dialect import OPENCL, OPENCL_HALF
from tinygrad.backends.c_family import CRenderer
from tinygrad.backends.cl.device import connect
from tinygrad.backends.cl.runtime import CLCompiler, CLMemory, CLQueue
from tinygrad.backends.interface import Backend
from tinygrad.base.target import Target

__all__ = ["describe", "open_device"]

MAKERS = ("qualcomm", "adreno")
LANES, LOCAL_MEMORY = 1024, 32 << 10  # of a group: a driver may say less, and no more is used
WORDS = 64  # registers of a lane that leave room for enough waves


def describe(found: Target) -> Target:
    """What an OpenCL driver says of an Adreno, within what the chip does well."""
    return replace(
        found,
        device="QCOM",
        registers=WORDS,
        cache_l2=1 << 20,
        group_limit=min(found.group_limit, LANES),
        local_memory=min(found.local_memory, LOCAL_MEMORY),
        dtypes=found.dtypes - {"float64"},
        storage_dtypes=found.storage_dtypes - {"float64"},
    )


def open_device(index: int = 0, cache: Any = None) -> Backend:
    """Adreno number `index`. Raises `DeviceError` if there is none."""
    connection = connect(index, "QCOM", MAKERS)
    target = describe(connection.target)
    renderer = CRenderer(OPENCL_HALF if "float16" in target.dtypes else OPENCL)
    memory = CLMemory(connection)
    made = renderer, CLCompiler(connection), memory, CLQueue(connection)
    return Backend(target, *made, memory.copy_from)
