"""AMD's chips as data: a row for each generation that changes the code we make. A chip takes the
row whose name is the longest beginning of its own; code is made for the chip itself."""

from __future__ import annotations

from dataclasses import dataclass

from tinygrad.backends.interface import INTEGERS
from tinygrad.base.target import ORDINARY, Target

TRIPLE = "amdgcn-amd-amdhsa"
DTYPES = frozenset(("bool", *INTEGERS, "float16", "float32", "float64"))
NATIVE = ORDINARY | {"PICK", "TRUNC", "ROUND", "RECIP", "CAST_HALF", "MULACC"}
STORAGE = DTYPES | {"bfloat16", "fp8e4m3", "fp8e5m2"}


@dataclass(frozen=True)
class Chip:
    """One generation. `wave` lanes run in step; memory in bytes; `cores` as its largest card has
    them."""

    name: str
    wave: int
    local_memory: int
    cache_l2: int
    cores: int
    native: frozenset[str] = frozenset()


MFMA = frozenset(("mfma",))
CHIPS = (
    Chip("gfx90a", 64, 64 << 10, 8 << 20, 110, MFMA),  # MI210, MI250
    Chip("gfx942", 64, 64 << 10, 4 << 20, 304, MFMA),  # MI300, MI325
    Chip("gfx950", 64, 160 << 10, 4 << 20, 256, MFMA | {"CAST_BFLOAT16"}),  # MI350
    Chip("gfx10", 32, 64 << 10, 4 << 20, 40),  # RX 5000, 6000
    Chip("gfx11", 32, 64 << 10, 6 << 20, 96, frozenset(("wmma",))),  # RX 7000
    Chip("gfx12", 32, 64 << 10, 8 << 20, 64, frozenset(("wmma12",))),  # RX 9000
)


def chip_of(name: str) -> Chip | None:
    """The row of a chip.

    >>> chip_of("gfx1100").wave, chip_of("gfx942").wave, chip_of("gfx803")
    (32, 64, None)
    """
    rows = [chip for chip in CHIPS if name.startswith(chip.name)]
    return max(rows, key=lambda chip: len(chip.name), default=None)


def chip_target(chip: Chip, name: str) -> Target:
    """The Target of the chip `name` of a generation, to make code for it without one here."""
    return Target(
        device="AMD",
        triple=TRIPLE,
        cpu=name,
        features=f"+wavefrontsize{chip.wave}",
        vector=16,
        registers=255,
        cache_l2=chip.cache_l2,
        cache_line=128,
        cores=chip.cores,
        has_groups=True,
        warp=chip.wave,
        group_limit=1024,
        local_memory=chip.local_memory,
        aligned=True,
        dtypes=DTYPES,
        storage_dtypes=STORAGE,
        native=NATIVE | chip.native,
    )
