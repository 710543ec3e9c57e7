"""Matrix units in LLVM's words: the intrinsic of each row of `loops/matrix_units`. A recipe names a
row only where the target has its feature; elsewhere LLVM would end the process."""

from __future__ import annotations

from tinygrad.backends.llvm_text import Writer
from tinygrad.uop.node import UOp

# unit → intrinsic, LLVM's type of an element of both operands
VECTOR_UNITS = {
    "vdpbf16ps": ("llvm.x86.avx512bf16.dpbf16ps.512", "bfloat"),
    "vpdpbusd": ("llvm.x86.avx512.vpdpbusd.512", "i8"),
    "vpdpwssd": ("llvm.x86.avx512.vpdpwssd.512", "i16"),
    "vpdpbusd.256": ("llvm.x86.avx512.vpdpbusd.256", "i8"),
    "vpdpwssd.256": ("llvm.x86.avx512.vpdpwssd.256", "i16"),
}


def multiply_vectors(writer: Writer, node: UOp) -> None:
    """A dot product of words in each lane; a single word of `a` goes to every lane."""
    first, second, total = node.src
    name, element = VECTOR_UNITS[node.arg]
    kind, out = f"<{second.dtype.count} x {element}>", writer.type(node.dtype)
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
