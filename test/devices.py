"""The devices that tests know: those of the package, and two of the tests' own.

CORE is the interpreter without any op that a backend may do without. TOY is the accelerator that
docs/new_backend.md builds. To add a device to the suite is to add its name here.
"""

from __future__ import annotations

from tinygrad.backends import DEVICES, NOT_BUILT, why_absent

DEVICES["CORE"] = "backends.core_device"
DEVICES["TOY"] = "backends.toy_device"

# name → `make test` takes the first case of each op test, and then one of so many
SUITE = {
    "CPU": 1,
    "CLANG": 150,
    "PYTHON": 4,
    "CL": 20,
    "WEBGPU": 20,
    "NULL": 4,
    "CORE": 8,
    "TOY": 8,
}
BUILT = tuple(name for name in SUITE if name not in NOT_BUILT)
"""Those that have a backend."""


def present(names: tuple[str, ...] = BUILT) -> list[str]:
    """Those that answer on this machine."""
    return [name for name in names if why_absent(name) is None]
