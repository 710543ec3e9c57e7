"""Matrix units in LLVM's words: the intrinsic of each row of `loops/matrix_units`. A recipe names a
row only where the target has its feature; elsewhere LLVM would end the process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tinygrad.backends.llvm_text import Writer, is_number
from tinygrad.backends.llvm_warp import begin_products, multiply_in_warp
from tinygrad.loops.matrix_units import UNITS
from tinygrad.uop import Ops, UOp

# unit → intrinsic, LLVM's type of an element of both operands
VECTOR_UNITS = {
    "vdpbf16ps": ("llvm.x86.avx512bf16.dpbf16ps.512", "bfloat"),
    "vpdpbusd": ("llvm.x86.avx512.vpdpbusd.512", "i8"),
    "vpdpwssd": ("llvm.x86.avx512.vpdpwssd.512", "i16"),
    "vpdpbusd.256": ("llvm.x86.avx512.vpdpbusd.256", "i8"),
    "vpdpwssd.256": ("llvm.x86.avx512.vpdpwssd.256", "i16"),
}


def multiply(writer: Writer, node: UOp) -> None:
    """One instruction of a unit without registers of its own."""
    if UNITS[node.arg].held is None:
        multiply_vectors(writer, node)
    elif UNITS[node.arg].is_staged:
        begin_products(writer, node)
    else:
        multiply_in_warp(writer, node)


def multiply_vectors(writer: Writer, node: UOp) -> None:
    """A dot product of words in each lane; a single word of an operand is broadcast to every
    lane."""
    first, second, total = node.src
    name, element = VECTOR_UNITS[node.arg]
    count = max(first.dtype.count, second.dtype.count)
    kind, out = f"<{count} x {element}>", writer.type(node.dtype)
    a = _as(writer, first, kind, node.dtype.count)
    b = _as(writer, second, kind, node.dtype.count)
    arguments = (f"{out} {writer.ref(total)}", f"{kind} {a}", f"{kind} {b}")
    text = writer.call(name, out, *arguments, types=f"{out}, {kind}, {kind}")
    writer.names[node] = writer.emit(text)


def _as(writer: Writer, node: UOp, kind: str, lanes: int) -> str:
    """An operand as a vector of that type, repeated if it is a single word."""
    value, own = writer.ref(node), writer.type(node.dtype)
    count = int(kind.split()[0][1:])
    if node.dtype.count < count:
        word = f"i{node.dtype.itemsize * 8}"
        value = writer.emit(f"bitcast {own} {value} to {word}")
        value = writer.splat(word, value, lanes)
        own = f"<{lanes} x {word}>"
    return value if own == kind else writer.emit(f"bitcast {own} {value} to {kind}")


# ---- tiles ---------------------------------------------------------------------------------------

TILE_REGISTERS, TILE_ROWS, ROW_BYTES = 8, 16, 64
CONFIG = bytes([1, *[0] * 15]) + bytes([ROW_BYTES, 0] * 8) + bytes(16) + bytes([TILE_ROWS] * 8)
"""Palette 1: every register has all its rows, and whole rows. With the zeros after them 64
bytes."""

TILE_CONFIG = '@tiles = private unnamed_addr constant [64 x i8] c"{}", align 64'.format(
    "".join(f"\\{byte:02X}" for byte in CONFIG.ljust(64, b"\0"))
)


class TileRegisters:
    """Assigns tiles to registers. A sum keeps its register from its first product to its store; an
    operand has one from its load to its last use. LLVM does not see them, so they are assigned
    here; recipes ensure that there are enough."""

    def __init__(
        self, writer: Writer, program: Sequence[UOp], carried: dict[UOp, list[tuple[UOp, UOp]]]
    ) -> None:
        self.writer = writer
        products = [n for n in program if n.op is Ops.WMMA and UNITS[n.arg].is_tile]
        sources = [s for n in products for s in n.src if not is_number(s)]
        starts = [n.src[0] for n in sources if n.op is Ops.CARRY and n.src[0].op is Ops.LOAD]
        self.values = {*products, *sources, *starts}
        self.uses = Counter(s for n in products for s in n.src[:2])
        # recipes let rows pass through the cache beside the columns, which stay
        self.passing = {n.src[0] for n in products}
        self.carried: dict[UOp, list[tuple[UOp, UOp]]] = {}
        for loop, pairs in carried.items():
            self.carried[loop] = [pair for pair in pairs if pair[0] in self.values]
            carried[loop] = [pair for pair in pairs if pair[0] not in self.values]
        self.numbers: dict[UOp, int] = {}
        self.free = list(range(TILE_REGISTERS))
        self.depths: dict[UOp, int] = {}  # loops that are open where an operand is loaded
        self.waiting: list[list[UOp]] = []  # a loop's operands from outside, freed when it ends

    def begin(self) -> list[str]:
        """The first lines of a function that uses tiles."""
        return [self._call("ldtilecfg", "ptr @tiles", types="ptr")] if self.values else []

    def end(self) -> list[str]:
        """Its last lines."""
        return [self._call("tilerelease", types="")] if self.values else []

    def write(self, node: UOp) -> bool:
        """Whether this instruction works on tiles; if so it is emitted."""
        if not self.values:
            return False
        if node.op in (Ops.RANGE, Ops.END):  # loops are also everybody else's
            (self._open if node.op is Ops.RANGE else self._close)(node)
            return False
        is_stored = node.op is Ops.STORE and node.src[1] in self.values
        if not is_stored and node not in self.values:
            return False
        WRITTEN[node.op](self, node)
        return True

    def _load(self, node: UOp) -> None:
        self._take(node)
        self.depths[node] = len(self.waiting)
        name = "tileloaddt164" if node in self.passing else "tileloadd64"
        if len(node.src) == 1:
            self._move(name, node, node.src[0])
            return
        writer = self.writer  # 0 if the mask is false
        writer.count += 1
        self._emit("tilezero", f"i8 {self.numbers[node]}", types="i8 immarg")
        writer.fork(writer.ref(node.src[1]), f"inside{writer.count}", f"after{writer.count}")
        self._move(name, node, node.src[0])
        writer.join(f"after{writer.count}")

    def _store(self, node: UOp) -> None:
        self._move("tilestored64", node.src[1], node.src[0])
        self._release(node.src[1])

    def _open(self, loop: UOp) -> None:
        for carry, _ in self.carried.get(loop, ()):
            self._sum(carry, carry.src[0])
        self.waiting.append([])

    def _close(self, node: UOp) -> None:
        for carry, following in self.carried.get(node.src[0], ()):
            assert self.numbers[carry] == self.numbers[following], "a sum stays in its register"
        for operand in self.waiting.pop():
            self._release(operand)

    def _sum(self, node: UOp, before: UOp) -> None:
        """`node` continues in the register of the sum before it, or starts at 0."""
        if before in self.numbers:
            self.numbers[node] = self.numbers[before]
        else:
            assert all(s.arg == 0 for s in before.src or (before,)), "sums start at 0"
            self._take(node)
            self._emit("tilezero", f"i8 {self.numbers[node]}", types="i8 immarg")

    def _multiply(self, node: UOp) -> None:
        first, second, total = node.src
        self._sum(node, total)
        numbers = [f"i8 {self.numbers[n]}" for n in (node, first, second)]
        self._emit(node.arg, *numbers, types=", ".join(["i8 immarg"] * 3))
        for operand in (first, second):
            self.uses[operand] -= 1
            if self.uses[operand] == 0:
                inside = self.waiting[self.depths[operand] :]
                if inside:  # the loop's next turn reads it again
                    inside[0].append(operand)
                else:
                    self._release(operand)

    def _take(self, node: UOp) -> None:
        self.numbers[node] = self.free.pop(0)

    def _release(self, node: UOp) -> None:
        self.free.append(self.numbers[node])

    def _move(self, name: str, tile: UOp, pointer: UOp) -> None:
        where = (f"i8 {self.numbers[tile]}", f"ptr {self.writer.ref(pointer)}", f"i64 {ROW_BYTES}")
        self._emit(name, *where, types="i8 immarg, ptr, i64")

    def _emit(self, name: str, *arguments: str, types: str) -> None:
        self.writer.lines.append(self._call(name, *arguments, types=types))

    def _call(self, name: str, *arguments: str, types: str) -> str:
        return "  " + self.writer.call(f"llvm.x86.{name}", "void", *arguments, types=types)


WRITTEN: dict[Ops, Callable[[TileRegisters, UOp], None]] = {
    Ops.LOAD: TileRegisters._load,
    Ops.STORE: TileRegisters._store,
    Ops.WMMA: TileRegisters._multiply,
    Ops.CARRY: lambda registers, node: None,  # its loop has begun it
}
