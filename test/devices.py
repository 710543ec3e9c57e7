"""The devices that tests know: those of the package, and two of the tests' own.

CORE is the interpreter without any op that a backend may do without. TOY is the accelerator that
docs/new_backend.md builds. To add a device to the suite is to add its name here.
"""

from __future__ import annotations

from tinygrad.backends import DEVICES, NOT_BUILT, why_absent

DEVICES["CORE"] = "backends.core_device"
DEVICES["TOY"] = "backends.toy_device"

# name → what `make test` takes of the core op tests, and of the cases of each: one of so many, by
# how slow its compiler or emulator is. `make test-all` takes all.
SUITE = {
    "CPU": (1, 1),
    "CLANG": (6, 400),
    "PYTHON": (1, 8),
    "CL": (7, 400),
    "WEBGPU": (5, 400),
    "NULL": (2, 8),
    "CORE": (3, 8),
    "TOY": (5, 12),
}
BUILT = tuple(name for name in SUITE if name not in NOT_BUILT)
"""Those that have a backend."""


def present(names: tuple[str, ...] = BUILT) -> list[str]:
    """Those that answer on this machine."""
    return [name for name in names if why_absent(name) is None]
