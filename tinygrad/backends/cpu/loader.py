"""Object code → functions that can be called, without LLVM.

On Linux the ELF objects that LLVM emits are placed and relocated here, about 0.1 ms each, so a
process whose kernels are in the cache never loads LLVM. One object may hold many functions and
their constants, but no writable data: a kernel's state lives in buffers. Pages are written first
and made executable afterwards, never both at once.

Mach-O and COFF objects (macOS, Windows), and machines that have no rows in `relocations.py`, are
linked by llvmlite's own just-in-time linker, which does load LLVM. That path is tested on Linux
only.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.backends.cpu.pages import Pages
from tinygrad.backends.cpu.relocations import RELOCATIONS, SLOT_JUMPS, Relocation, fill
from tinygrad.base.errors import DeviceError
from tinygrad.base.helpers import round_up

# What LLVM may call although the source does not: copying and clearing memory.
LIBRARY_FUNCTIONS = ("memcpy", "memmove", "memset", "memcmp")
SLOT = 16
SYMBOL_TABLE, RELOCATIONS_WITH_ADDEND, NO_BYTES = 2, 4, 8  # sh_type
WRITABLE, ALLOCATED = 1, 2  # sh_flags
GLOBAL, FUNCTION = 1, 2  # st_info: binding, type


@dataclass(frozen=True)
class LoadedObject:
    """Addresses of functions; `owner` keeps their code mapped and must outlive every call."""

    addresses: Mapping[str, int]
    owner: object

    def address(self, name: str) -> int:
        if name not in self.addresses:
            there = ", ".join(self.addresses) or "none"
            raise DeviceError(f"[load] no function {name!r} in the object; there is {there}")
        return self.addresses[name]


def load_object(binary: bytes, names: Sequence[str]) -> LoadedObject:
    """Make the functions `names` of an object callable (on Linux: all that it exports)."""
    is_elf = binary[:4] == b"\x7fELF" and elf_machine(binary) in RELOCATIONS
    if not is_elf or not sys.platform.startswith("linux"):
        return link_with_llvm(binary, names)
    elf = ElfObject(binary)
    pages = Pages(elf.size)
    image = elf.link(pages.address, library_address)
    ctypes.memmove(pages.address, bytes(image), len(image))
    pages.make_executable()
    return LoadedObject(elf.functions(pages.address), pages)


def elf_machine(binary: bytes) -> int:
    """The machine that an ELF object is for, by its number."""
    return int.from_bytes(binary[0x12:0x14], "little")


@functools.cache
def library_address(name: str) -> int:
    """The address of a C library function that kernels may need."""
    if name not in LIBRARY_FUNCTIONS:
        raise DeviceError(
            f"[load] the code calls {name!r}; kernels may only call {', '.join(LIBRARY_FUNCTIONS)}"
        )
    return function_address(getattr(ctypes.CDLL(None), name))


def function_address(function: Any) -> int:
    """Where a ctypes function lies."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class Section:
    """A row of the section table, in the order of the ELF-64 header."""

    name_at: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


@dataclass(frozen=True)
class Symbol:
    """A row of the symbol table."""

    name: str
    info: int
    section: int  # 0: lies outside the object
    value: int


class ElfObject:
    """A relocatable ELF-64 object: where its sections go, and the image for an address."""

    def __init__(self, binary: bytes) -> None:
        self.binary = binary
        self.machine = elf_machine(binary)
        (table,) = struct.unpack_from("<Q", binary, 0x28)
        entry, count, names = struct.unpack_from("<HHH", binary, 0x3A)
        rows = [struct.unpack_from("<IIQQQQIIQQ", binary, table + i * entry) for i in range(count)]
        self.sections = [Section(*row) for row in rows]
        self.section_names = self.sections[names].offset
        self.symbols = self._read_symbols()
        self.offsets, end = self._place_sections()
        self.slots = self._place_slots(round_up(end, SLOT))
        self.size = round_up(end, SLOT) + SLOT * len(self.slots)

    def link(self, base: int, outside: Callable[[str], int]) -> bytearray:
        """The bytes to put at address `base`; `outside` gives addresses of foreign symbols."""
        image = bytearray(self.size)
        for index, at in self.offsets.items():
            section = self.sections[index]
            image[at : at + section.size] = self._bytes(section)
        for symbol_index, at in self.slots.items():
            address = self._address(symbol_index, base, outside)
            image[at : at + SLOT] = SLOT_JUMPS[self.machine] + address.to_bytes(8, "little")
        for row, at, symbol_index, addend in self._relocations():
            if not self.symbols[symbol_index].section or row.slot:
                target = base + self.slots[symbol_index] + (8 if row.slot == "address" else 0)
            else:
                target = self._address(symbol_index, base, outside)
            fill(image, at, row, target + addend, base + at)
        return image

    def functions(self, base: int) -> dict[str, int]:
        """Exported functions and their addresses in an image at `base`."""
        return {
            symbol.name: base + self.offsets[symbol.section] + symbol.value
            for symbol in self.symbols
            if symbol.info == GLOBAL << 4 | FUNCTION and symbol.section in self.offsets
        }

    def _text(self, at: int) -> str:
        return self.binary[at : self.binary.index(0, at)].decode()

    def _bytes(self, section: Section) -> bytes:
        return self.binary[section.offset : section.offset + section.size]

    def _read_symbols(self) -> list[Symbol]:
        tables = [section for section in self.sections if section.kind == SYMBOL_TABLE]
        if not tables:
            return []
        names = self.sections[tables[0].link].offset
        return [
            Symbol(self._text(names + name_at), info, section, value)
            for name_at, info, _, section, value, _ in struct.iter_unpack(
                "<IBBHQQ", self._bytes(tables[0])
            )
        ]

    def _place_sections(self) -> tuple[dict[int, int], int]:
        """Section index → offset in the image, for all that must be in memory; and the end."""
        offsets, end = {}, 0
        for index, section in enumerate(self.sections):
            name = self._text(self.section_names + section.name_at)
            needed = section.flags & ALLOCATED and section.size
            if not needed or name.startswith(".eh_frame"):  # nothing here is ever unwound
                continue
            constant = name.startswith(".data.rel.ro") and section.kind != NO_BYTES
            if section.flags & WRITABLE and not constant:
                raise DeviceError(f"[load] writable data ({name}): kernels keep state in buffers")
            offsets[index] = round_up(end, max(section.align, 1))
            end = offsets[index] + section.size
        return offsets, end

    def _place_slots(self, start: int) -> dict[int, int]:
        """Symbol index → offset of its slot, for the symbols that need one."""
        needed = {
            symbol_index: None
            for row, _, symbol_index, _ in self._relocations()
            if row.slot or not self.symbols[symbol_index].section
        }
        return dict(zip(needed, itertools.count(start, SLOT), strict=False))

    def _relocations(self) -> Iterator[tuple[Relocation, int, int, int]]:
        """(kind, offset in the image, symbol index, addend) of each."""
        for section in self.sections:
            if section.kind != RELOCATIONS_WITH_ADDEND or section.info not in self.offsets:
                continue
            start = self.offsets[section.info]
            for offset, info, addend in struct.iter_unpack("<QQq", self._bytes(section)):
                row = RELOCATIONS[self.machine].get(info & 0xFFFFFFFF)
                if row is None:
                    raise DeviceError(f"[load] unknown relocation kind {info & 0xFFFFFFFF}")
                yield row, start + offset, info >> 32, addend

    def _address(self, symbol_index: int, base: int, outside: Callable[[str], int]) -> int:
        symbol = self.symbols[symbol_index]
        if symbol.section in self.offsets:
            return base + self.offsets[symbol.section] + symbol.value
        return outside(symbol.name)


_linked = itertools.count()


@functools.cache
def _llvm_linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # the older linker takes sections wherever the system has room, maybe further apart than code
    # reaches, which ends the process; the newer one can't read Windows' tables for unwinding
    return llvm.create_lljit_compiler(use_jit_link=sys.platform != "win32")


def link_with_llvm(binary: bytes, names: Sequence[str]) -> LoadedObject:
    """Link by llvmlite, for object formats that this file does not read."""
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().add_object_img(binary).add_current_process()
    for name in names:
        builder.export_symbol(name)
    library = builder.link(_llvm_linker(), f"tinygrad{next(_linked)}")
    return LoadedObject({name: library[name] for name in names}, library)
