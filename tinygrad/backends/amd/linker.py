"""LLVM's object of a kernel → the shared object that AMD's loader takes, so that no linker need be
installed. An object has code, one descriptor of 64 bytes a kernel, and a note with its facts; only
the descriptor's distance to its code is left to fill in. The layout is lld's, to the byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tinygrad.base.errors import CompileError
from tinygrad.base.helpers import round_up

PAGE = 0x1000
COMMENT = b"Linker: tinygrad\0"
ALLOC, LOCAL, ABSOLUTE = 2, 0, 0xFFF1
REL64 = 5  # R_AMDGPU_REL64: symbol + addend - place
PROGBITS, SYMTAB, STRTAB, HASH, DYNAMIC, NOTE, NOBITS, DYNSYM = 1, 2, 3, 5, 6, 7, 8, 11
GNU_HASH, RELRO, STACK = 0x6FFFFFF6, 0x6474E552, 0x6474E551
LINKED = (".text", ".rodata", ".note")

Symbol = tuple[str, int, int, int, int, int]  # name, info, other, section, value, size


@dataclass
class Section:
    """A row of the section table, and its bytes. `size` counts where nothing is in the file.
    `linked`: the section with its names, or with the symbols that it lists; `link` is its
    number."""

    name: str
    kind: int
    flags: int
    align: int
    data: bytes
    link: int = 0
    info: int = 0
    entry: int = 0
    linked: str = ""
    address: int = 0
    offset: int = 0
    size: int = 0


def read_object(binary: bytes) -> tuple[list[Section], list[Symbol]]:
    """The sections and symbols of a relocatable object."""
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    count, names = struct.unpack_from("<HH", binary, 0x3C)
    rows = [struct.unpack_from("<IIQQQQIIQQ", binary, table + 64 * i) for i in range(count)]
    sections = [
        Section(_text(binary, rows[names][4] + row[0]), row[1], row[2], row[8], b"", *row[6:8])
        for row in rows
    ]
    for section, row in zip(sections, rows, strict=True):
        section.data = binary[row[4] : row[4] + row[5]]
    listed = next(section for section in sections if section.kind == SYMTAB)
    strings = sections[listed.link].data
    symbols = [(_text(strings, s[0]), *s[1:]) for s in struct.iter_unpack("<IBBHQQ", listed.data)]
    return sections, symbols[1:]


def link(binary: bytes) -> bytes:
    """The shared object. Raises `CompileError` for what only a real linker could place."""
    given, symbols = read_object(binary)
    code, facts, note = (_only(given, name) for name in LINKED)
    for section in given:
        placed = section.name in LINKED or not section.data or not section.flags & ALLOC
        if not placed or (section.name.startswith(".rela") and section.name != ".rela.rodata"):
            raise CompileError(f"[link] {section.name}: kernels have {', '.join(LINKED)} alone")
    locals_ = [symbol for symbol in symbols if symbol[1] >> 4 == LOCAL]
    shared = [symbol for symbol in symbols if symbol[1] >> 4 != LOCAL]
    names = [symbol[0] for symbol in shared]
    strings, all_strings = _strings(names), _strings([*(s[0] for s in locals_), *names, "_DYNAMIC"])
    room = bytes(24 * (2 + len(symbols)))
    out = [
        Section("", 0, 0, 1, b""),
        note,
        Section(".dynsym", DYNSYM, ALLOC, 8, bytes(24 * (1 + len(shared))), 0, 1, 24, ".dynstr"),
        Section(".gnu.hash", GNU_HASH, ALLOC, 8, _gnu_hash(names), linked=".dynsym"),
        Section(".hash", HASH, ALLOC, 4, _hash(names), 0, 0, 4, ".dynsym"),
        Section(".dynstr", STRTAB, ALLOC, 1, strings),
        facts,
        code,
        Section(".dynamic", DYNAMIC, ALLOC | 1, 8, bytes(7 * 16), 0, 0, 16, ".dynstr"),
        Section(".relro_padding", NOBITS, ALLOC | 1, 1, b""),
        *(section for section in given if section.name.startswith(".AMDGPU")),
        Section(".comment", PROGBITS, 0x30, 1, COMMENT, 0, 0, 1),
        Section(".symtab", SYMTAB, 0, 8, room, 0, len(locals_) + 2, 24, ".strtab"),
        Section(".shstrtab", STRTAB, 0, 1, b""),
        Section(".strtab", STRTAB, 0, 1, all_strings),
    ]
    at = {section.name: section for section in out}
    number = {section.name: i for i, section in enumerate(out)}
    for section in out:
        section.link = number[section.linked] if section.linked else section.link
    at[".shstrtab"].data = _strings([section.name for section in out[1:]])
    end = _place(out)
    moving = {given.index(section): section for section in (code, facts)}

    def moved(symbol: Symbol) -> Symbol:
        name, info, other, where, value, size = symbol
        if where == ABSOLUTE:
            return symbol
        section = moving[where]
        return name, info, other, number[section.name], section.address + value, size

    dynamic = at[".dynamic"]
    shared = list(map(moved, shared))
    own = ("_DYNAMIC", 0, 2, number[".dynamic"], dynamic.address, 0)
    at[".dynsym"].data = _symbols(shared, strings)
    at[".symtab"].data = _symbols([*map(moved, locals_), own, *shared], all_strings)
    tags = {6: at[".dynsym"].address, 11: 24, 5: at[".dynstr"].address, 10: len(strings)}
    tags |= {0x6FFFFEF5: at[".gnu.hash"].address, 4: at[".hash"].address, 0: 0}
    dynamic.data = b"".join(struct.pack("<QQ", *tag) for tag in tags.items())
    facts.data = _relocated(given, symbols, facts, moving)
    return _written(binary, out, at, end)


def _place(out: Sequence[Section]) -> int:
    """Gives each section its offset and address; the end of the last."""
    offset = address = 64 + 56 * 8
    for section in out[1:]:
        if section.name in (".text", ".dynamic"):  # begins a segment of its own
            address = round_up(address, PAGE) + address % PAGE
        address = round_up(address, section.align)
        is_loaded = bool(section.flags & ALLOC)
        offset = round_up(offset, section.align)
        section.size = len(section.data)
        if section.kind == NOBITS:
            section.size = round_up(address, PAGE) - address
        section.offset, section.address = offset, address if is_loaded else 0
        offset += len(section.data)
        address += section.size
    return offset


def _relocated(
    given: Sequence[Section], symbols: Sequence[Symbol], facts: Section, at: dict[int, Section]
) -> bytes:
    """The descriptors, each with the distance to its code."""
    data = bytearray(facts.data)
    for relocations in (section for section in given if section.name == ".rela.rodata"):
        for place, info, addend in struct.iter_unpack("<QQq", relocations.data):
            _, _, _, section, value, _ = symbols[(info >> 32) - 1]
            if info & 0xFFFFFFFF != REL64 or section not in at:
                raise CompileError(f"[link] relocation {info & 0xFFFFFFFF}; legal is {REL64}")
            target = at[section].address + value
            struct.pack_into("<q", data, place, target + addend - facts.address - place)
    return bytes(data)


def _written(binary: bytes, out: Sequence[Section], at: dict[str, Section], end: int) -> bytes:
    """The file: header, segments, sections, their table."""
    table = round_up(end, 8)
    file = bytearray(table)
    file[:64] = binary[:64]
    struct.pack_into("<H", file, 16, 3)  # a shared object
    struct.pack_into("<QQ", file, 32, 64, table)
    struct.pack_into("<HHHHH", file, 54, 56, 8, 64, len(out), len(out) - 2)
    note, facts, code, dynamic = (at[n] for n in (".note", ".rodata", ".text", ".dynamic"))
    whole, padding = facts.offset + facts.size, at[".relro_padding"]
    relro = dynamic.offset, dynamic.address, dynamic.size, dynamic.size + padding.size
    segments = (  # kind, flags, offset, address, bytes in the file, in memory, alignment
        (6, 4, 64, 64, 56 * 8, 56 * 8, 8),
        (1, 4, 0, 0, whole, whole, PAGE),
        (1, 5, code.offset, code.address, code.size, code.size, PAGE),
        (1, 6, *relro, PAGE),
        (2, 6, *relro[:3], dynamic.size, 8),
        (RELRO, 4, *relro, 1),
        (STACK, 6, 0, 0, 0, 0, 0),
        (4, 4, note.offset, note.address, note.size, note.size, 4),
    )
    for i, (kind, flags, offset, address, stored, size, align) in enumerate(segments):
        row = kind, flags, offset, address, address, stored, size, align
        struct.pack_into("<IIQQQQQQ", file, 64 + 56 * i, *row)
    for section in out:
        file[section.offset : section.offset + len(section.data)] = section.data
    titles = at[".shstrtab"].data
    for s in out:
        name = titles.index(b"\0" + s.name.encode() + b"\0") + 1 if s.name else 0
        places = s.flags, s.address, s.offset, s.size, s.link, s.info, s.align, s.entry
        file += struct.pack("<IIQQQQIIQQ", name, s.kind, *places)
    file[table : table + 64] = bytes(64)
    return bytes(file)


def _symbols(symbols: Iterable[Symbol], strings: bytes) -> bytes:
    """A table of symbols, after the empty one."""
    rows = [
        struct.pack("<IBBHQQ", strings.index(b"\0" + name.encode() + b"\0") + 1, *rest)
        for name, *rest in symbols
    ]
    return b"".join([bytes(24), *rows])


def _hash(names: Sequence[str]) -> bytes:
    """The classic table: as many chains as symbols, the newest first."""
    count = len(names) + 1
    first, following = [0] * count, [0] * count
    for number, name in enumerate(names, 1):
        value = 0
        for letter in name.encode():
            value = (value << 4) + letter
            value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
        chain = value % count
        following[number], first[chain] = first[chain], number
    return struct.pack(f"<{2 + 2 * count}I", count, count, *first, *following)


def _gnu_hash(names: Sequence[str]) -> bytes:
    """The newer table, with one bucket and one word of a filter."""
    values, seen = [], 0
    for name in names:
        value = 5381
        for letter in name.encode():
            value = (value * 33 + letter) & 0xFFFFFFFF
        seen |= 1 << value % 64 | 1 << (value >> 26) % 64
        values.append(value & ~1)
    values[-1] |= 1  # the chain's end
    return struct.pack(f"<IIIIQI{len(values)}I", 1, 1, 1, 26, seen, 1, *values)


def _strings(names: Iterable[str]) -> bytes:
    return b"\0" + b"".join(name.encode() + b"\0" for name in names)


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def _only(sections: Sequence[Section], name: str) -> Section:
    found = [section for section in sections if section.name == name]
    if len(found) != 1:
        raise CompileError(f"[link] {len(found)} sections {name}; legal is one")
    return found[0]
