"""The devices by name, and what they share. A backend's module is imported when its device is first
opened, so a driver or a library that is absent costs nothing until it is asked for. Other
distributions may add devices, see `outside`.

    interface       the four protocols of a backend: read this first
    program         what all renderers agree on
    llvm_ir         LLVM's language, for processors and GPUs (llvm_compiler, llvm_dialect,
                    llvm_frame, llvm_text, llvm_masks, llvm_warp, llvm_matrix, llvm_fault)
    c_family        languages that look like C (c_dialect, c_text)
    wgsl            WebGPU's language
    statements      what these have in common
    blocks          freed memory, kept
    presence        a device that is lost, or computes too long
    without         a machine without some of its features
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any, TypeGuard

from tinygrad.backends.interface import Backend
from tinygrad.backends.outside import offers, open_outside
from tinygrad.base.errors import ArgumentError, DeviceError, TinygradError
from tinygrad.base.settings import requested_device

__all__ = [
    "DEVICES",
    "canonicalize",
    "default_device",
    "keeps",
    "known",
    "names",
    "open_device",
    "why_absent",
]

# name → module with `open_device(index, cache) -> Backend`
DEVICES = {
    "CPU": "tinygrad.backends.cpu",
    "CLANG": "tinygrad.backends.clang",
    "CUDA": "tinygrad.backends.cuda",
    "AMD": "tinygrad.backends.amd",
    "METAL": "tinygrad.backends.metal",
    "CL": "tinygrad.backends.cl",
    "QCOM": "tinygrad.backends.qcom",
    "WEBGPU": "tinygrad.backends.webgpu",
    "PYTHON": "tinygrad.backends.interpreter",
    "NULL": "tinygrad.backends.null",
    "NPY": "tinygrad.backends.npy",
    "DISK": "tinygrad.backends.disk",
}
ALIASES = {"GPU": "CL", "OPENCL": "CL", "LLVM": "CPU", "NV": "CUDA", "HIP": "AMD"}
KEEPING = frozenset(("NPY", "DISK"))  # they hold bytes and run no kernels
EMPTY = frozenset(("NULL",))  # they hold nothing: what is read back is zeros
NOT_BUILT = tuple(name for name, module in DEVICES.items() if find_spec(module) is None)


def canonicalize(name: str) -> str:
    """The canonical form of a device's name: upper case, no alias, no `:0`; after DISK an absolute
    path.

    >>> canonicalize("cpu:0"), canonicalize("llvm"), canonicalize("gpu:1")
    ('CPU', 'CPU', 'CL:1')
    """
    if not isinstance(name, str):
        raise DeviceError(f"device {name!r} of type {type(name).__name__}; legal are names")
    kind, _, index = name.partition(":")
    kind = ALIASES.get(kind.upper(), kind.upper())
    if kind == "DISK":
        return f"{kind}:{os.path.abspath(index)}" if index else kind
    if index and not index.isdecimal():
        raise DeviceError(f"device {name!r}: after the colon stands a number, as in {kind}:1")
    return f"{kind}:{int(index)}" if index and int(index) else kind


def keeps(name: object) -> TypeGuard[str]:
    """Whether a device, given by its canonical name, only holds bytes and runs no kernels."""
    return isinstance(name, str) and (name in KEEPING or name.startswith("DISK:"))


def known(name: str) -> str:
    """The canonical name of a device that has a backend; DeviceError, which lists those that exist,
    if it has none."""
    if not isinstance(name, str):
        raise ArgumentError(
            f"device {name!r} of type {type(name).__name__}; legal are names; to change a dtype: "
            "cast(dtype)"
        )
    canonical = canonicalize(name)
    kind = canonical.partition(":")[0]
    if kind in NOT_BUILT or (kind not in DEVICES and kind not in offers()):
        absent = "has no backend yet" if kind in NOT_BUILT else "is not known"
        raise DeviceError(f"device {name!r} {absent}; there are {', '.join(names())}")
    return canonical


def names() -> list[str]:
    """All devices that have a backend: ours, then those of other distributions."""
    ours = [name for name in DEVICES if name not in NOT_BUILT]
    return ours + [name for name in offers() if name not in DEVICES and name not in ALIASES]


def open_device(name: str, cache: Any = None) -> Backend:
    """Opens the device called `name`. Raises `DeviceError`, with the reason, if that is
    impossible."""
    kind, _, index = known(name).partition(":")
    if kind not in DEVICES:
        return open_outside(kind, int(index or 0), cache)
    which = index if kind == "DISK" else int(index or 0)
    backend = importlib.import_module(DEVICES[kind]).open_device(which, cache)
    assert isinstance(backend, Backend)
    return backend


def why_absent(name: str) -> str | None:
    """A sentence that says why this device can't be opened on this machine; None if it can."""
    try:
        open_device(name)
    except (TinygradError, ImportError, OSError) as error:
        return str(error)
    return None


def default_device() -> str:
    """The device that the environment selects (DEV=CL, CL=1, ...), else the CPU."""
    return canonicalize(requested_device() or "CPU")
