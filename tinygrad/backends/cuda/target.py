"""NVIDIA's chips as data: a row for each generation that changes the code we make.

A chip takes the newest row that is not newer than itself, so one that is unknown runs the code of
the newest generation known. Rows for one chip alone (`sm_90a`) hold instructions that later chips
don't have. What differs from card to card (shared memory, registers, processors) is asked of the
driver and replaces a row's numbers, which are those of the data-centre card of that generation.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.base.settings import SETTINGS
from tinygrad.base.target import ORDINARY, Target

TRIPLE = "nvptx64-nvidia-cuda"
WARP = 32
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = frozenset(("bool", *INTEGERS, "float16", "float32", "float64"))
STORAGE = DTYPES | {"bfloat16", "fp8e4m3", "fp8e5m2"}
# LLVM has no exp2 of doubles and no logarithm for this target, and the chip's own exp2 and sine
# are not accurate enough: ours are used.
NATIVE = ORDINARY | {"PICK", "TRUNC", "ROUND", "RECIP", "MULACC", "CAST_HALF"}

PARAMETERS = 4096  # bytes of a kernel's parameters that every driver passes


@dataclass(frozen=True)
class Chip:
    """One generation. `ptx` is the version of the assembly that first knows it."""

    name: str
    capability: tuple[int, int]
    ptx: int
    local_memory: int  # bytes a group may ask for
    cache_l2: int
    native: frozenset[str] = frozenset()  # beyond NATIVE
    only: bool = False  # this capability alone, not later ones


AMPERE = frozenset(("CAST_BFLOAT", "CAST_BFLOAT16", "async_copy", "matrix_load", "mma", "mma_tf32"))
HOPPER = AMPERE | {"wgmma", "wgmma_tf32", "box_copy"}
CHIPS = (
    Chip("sm_75", (7, 5), 70, 64 << 10, 4 << 20),
    Chip("sm_80", (8, 0), 70, 163 << 10, 40 << 20, AMPERE),
    Chip("sm_86", (8, 6), 71, 99 << 10, 6 << 20, AMPERE),
    Chip("sm_89", (8, 9), 78, 99 << 10, 72 << 20, AMPERE),
    Chip("sm_90", (9, 0), 78, 227 << 10, 50 << 20, AMPERE),
    Chip("sm_90a", (9, 0), 80, 227 << 10, 50 << 20, HOPPER, only=True),
)


def chip_of(capability: tuple[int, int], ptx: int = 80) -> Chip | None:
    """The row whose code this chip runs best, for a driver that compiles that version of PTX; None
    if one of the two is older than all rows.

    >>> chip_of((9, 0)).name, chip_of((10, 0)).name, chip_of((8, 7)).name, chip_of((7, 0))
    ('sm_90a', 'sm_90', 'sm_86', None)
    """
    fits = [
        chip
        for chip in CHIPS
        if chip.ptx <= ptx
        and (chip.capability == capability or (chip.capability < capability and not chip.only))
    ]
    return fits[-1] if fits else None


def chip_target(chip: Chip) -> Target:
    """A generation's row as a Target, to make code for it without one here."""
    asked = bool(SETTINGS["ALLOW_TF32"])
    native = {name for name in chip.native if asked or not name.endswith("_tf32")}
    return Target(
        device="CUDA",
        triple=TRIPLE,
        cpu=chip.name,
        features=f"+ptx{chip.ptx}",
        registers=255,
        cache_l1=128 << 10,
        cache_l2=chip.cache_l2,
        cache_line=128,
        has_groups=True,
        warp=WARP,
        group_limit=1024,
        local_memory=chip.local_memory,
        buffer_limit=PARAMETERS // 8,
        aligned=True,
        dtypes=DTYPES,
        storage_dtypes=STORAGE,
        native=NATIVE | native,
    )


def named_target(name: str) -> Target:
    """The Target of a generation by its name, `sm_80` for one."""
    return chip_target(next(chip for chip in CHIPS if chip.name == name))
