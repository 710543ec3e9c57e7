"""The places in object code that a loader must fill in: a table of kinds for two machines.

A row says what is written (`value`, from the target's and the place's address) and how it is
packed into the bytes there (`insert`). Sources: the "ELF for the Arm 64-bit Architecture" and
"System V ABI, AMD64" supplements, whose names the rows keep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tinygrad.base.errors import DeviceError

X86_64, AARCH64 = 62, 183  # e_machine of the ELF header


def absolute(target: int, place: int) -> int:
    """The address itself."""
    return target


def relative(target: int, place: int) -> int:
    """The distance in bytes."""
    return target - place


def page_relative(target: int, place: int) -> int:
    """The distance of the 4 KiB pages, in pages: what ADRP adds."""
    return (target >> 12) - (place >> 12)


def within_page(target: int, place: int) -> int:
    """The address within its 4 KiB page."""
    return target & 0xFFF


@dataclass(frozen=True)
class Field:
    """`bits` bits of a little-endian word of `size` bytes, starting at bit `low`.

    The value is first divided by `1 << scale`. `split_low` bits of it go to bit 29 instead,
    as ADR and ADRP want it.
    """

    size: int
    bits: int
    low: int = 0
    scale: int = 0
    signed: bool = True
    split_low: int = 0

    def insert(self, word: int, value: int) -> int:
        """`word` with `value` in this field. Raises ValueError if it does not fit."""
        if value & ((1 << self.scale) - 1):
            raise ValueError(f"{value:#x} is not a multiple of {1 << self.scale}")
        value >>= self.scale
        least, limit = (-1 << (self.bits - 1), 1 << (self.bits - 1)) if self.signed else (0, 0)
        if self.signed and not least <= value < limit:
            raise ValueError(f"{value:#x} does not fit {self.bits} signed bits")
        if not self.signed and not 0 <= value < 1 << self.bits:
            raise ValueError(f"{value:#x} does not fit {self.bits} bits")
        high = self.bits - self.split_low
        word = _replace(word, self.low, high, value >> self.split_low)
        return _replace(word, 29, self.split_low, value) if self.split_low else word


def _replace(word: int, low: int, bits: int, value: int) -> int:
    mask = (1 << bits) - 1
    return (word & ~(mask << low)) | ((value & mask) << low)


@dataclass(frozen=True)
class Relocation:
    """One kind. `slot`: whether it refers to the symbol's slot, a jump and an address that the
    loader makes: "" only for symbols outside the object, "jump" or "address" always."""

    name: str
    value: Callable[[int, int], int]
    field: Field
    slot: str = ""


WORD64 = Field(8, 64, signed=False)
WORD32 = Field(4, 32)
DISTANCE64 = Field(8, 64)
ADR = Field(4, 21, low=5, split_low=2)


def offset12(scale: int) -> Field:
    """The unsigned 12-bit offset of ADD (scale 0) and of loads of `1 << scale` bytes."""
    return Field(4, 12, low=10, scale=scale, signed=False)


RELOCATIONS: dict[int, dict[int, Relocation]] = {
    X86_64: {
        1: Relocation("R_X86_64_64", absolute, WORD64),
        2: Relocation("R_X86_64_PC32", relative, WORD32),
        4: Relocation("R_X86_64_PLT32", relative, WORD32),
        9: Relocation("R_X86_64_GOTPCREL", relative, WORD32, "address"),
        24: Relocation("R_X86_64_PC64", relative, DISTANCE64),
        41: Relocation("R_X86_64_GOTPCRELX", relative, WORD32, "address"),
        42: Relocation("R_X86_64_REX_GOTPCRELX", relative, WORD32, "address"),
    },
    AARCH64: {
        257: Relocation("R_AARCH64_ABS64", absolute, WORD64),
        260: Relocation("R_AARCH64_PREL64", relative, DISTANCE64),
        261: Relocation("R_AARCH64_PREL32", relative, WORD32),
        273: Relocation("R_AARCH64_LD_PREL_LO19", relative, Field(4, 19, 5, 2)),
        274: Relocation("R_AARCH64_ADR_PREL_LO21", relative, ADR),
        275: Relocation("R_AARCH64_ADR_PREL_PG_HI21", page_relative, ADR),
        277: Relocation("R_AARCH64_ADD_ABS_LO12_NC", within_page, offset12(0)),
        278: Relocation("R_AARCH64_LDST8_ABS_LO12_NC", within_page, offset12(0)),
        279: Relocation("R_AARCH64_TSTBR14", relative, Field(4, 14, 5, 2)),
        280: Relocation("R_AARCH64_CONDBR19", relative, Field(4, 19, 5, 2)),
        282: Relocation("R_AARCH64_JUMP26", relative, Field(4, 26, 0, 2)),
        283: Relocation("R_AARCH64_CALL26", relative, Field(4, 26, 0, 2)),
        284: Relocation("R_AARCH64_LDST16_ABS_LO12_NC", within_page, offset12(1)),
        285: Relocation("R_AARCH64_LDST32_ABS_LO12_NC", within_page, offset12(2)),
        286: Relocation("R_AARCH64_LDST64_ABS_LO12_NC", within_page, offset12(3)),
        299: Relocation("R_AARCH64_LDST128_ABS_LO12_NC", within_page, offset12(4)),
        311: Relocation("R_AARCH64_ADR_GOT_PAGE", page_relative, ADR, "address"),
        312: Relocation("R_AARCH64_LD64_GOT_LO12_NC", within_page, offset12(3), "address"),
    },
}

# A slot is 16 bytes: an instruction that jumps to the address in its second half.
SLOT_JUMPS = {
    X86_64: bytes.fromhex("ff2502000000cccc"),  # jmp [rip + 2]
    AARCH64: bytes.fromhex("5000005800021fd6"),  # ldr x16, 8; br x16
}


def fill(image: bytearray, offset: int, row: Relocation, target: int, place: int) -> None:
    """Apply one relocation at `image[offset]`, which will lie at address `place`."""
    end = offset + row.field.size
    word = int.from_bytes(image[offset:end], "little")
    try:
        word = row.field.insert(word, row.value(target, place))
    except ValueError as error:
        raise DeviceError(f"[load] {row.name} at {place:#x} to {target:#x}: {error}") from error
    image[offset:end] = word.to_bytes(row.field.size, "little")
