"""What the lanes of a warp do together, in LLVM's words for GPUs: values that lanes exchange, and
matrix units whose operands all lanes hold."""

from __future__ import annotations

from tinygrad.backends.llvm_text import Writer
from tinygrad.uop.node import UOp

# unit → intrinsic, LLVM's type of a word of both operands
WARP_UNITS = {
    "mma.bf16": ("llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"),
    "mma.f16": ("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"),
    "mma.s8": ("llvm.nvvm.mma.m16n8k32.row.col.s8", "i32"),
    "mma.u8": ("llvm.nvvm.mma.m16n8k32.row.col.u8", "i32"),
    "mma.tf32": ("llvm.nvvm.mma.m16n8k8.row.col.tf32", "i32"),
}
# AMD's take and give vectors: intrinsic, type of both operands, what else it is given
ZEROS = ("i32 0", "i32 0", "i32 0")
WMMA = "llvm.amdgcn.wmma.f32.16x16x16"
WHOLE_UNITS = {
    "mfma.bf16": ("llvm.amdgcn.mfma.f32.16x16x16bf16.1k", "<4 x i16>", ZEROS),
    "mfma.f16": ("llvm.amdgcn.mfma.f32.16x16x16f16", "<4 x half>", ZEROS),
    "wmma.bf16": (f"{WMMA}.bf16.v8f32.v16i16", "<16 x i16>", ()),
    "wmma.f16": (f"{WMMA}.f16.v8f32.v16f16", "<16 x half>", ()),
    "wmma12.bf16": (f"{WMMA}.bf16.v8f32.v8i16", "<8 x i16>", ()),
    "wmma12.f16": (f"{WMMA}.f16.v8f32.v8f16", "<8 x half>", ()),
}


def multiply_vectors_in_warp(writer: Writer, node: UOp) -> None:
    """One instruction whose operands are vectors."""
    name, kind, rest = WHOLE_UNITS[node.arg]
    sides = [f"{kind} {writer.emit(f'bitcast {writer.typed(s)} to {kind}')}" for s in node.src[:2]]
    vector = writer.type(node.dtype)
    types = ", ".join([kind, kind, vector, *("i32 immarg" for _ in rest)])
    text = writer.call(name, vector, *sides, writer.typed(node.src[2]), *rest, types=types)
    writer.names[node] = writer.emit(text)


def multiply_in_warp(writer: Writer, node: UOp) -> None:
    """One instruction; its operands are words, its result as many numbers as a lane holds."""
    if node.arg in WHOLE_UNITS:
        multiply_vectors_in_warp(writer, node)
        return
    first, second, total = node.src
    name, word = WARP_UNITS[node.arg]
    kind = writer.type(node.dtype.scalar())
    operands = [(word, value) for side in (first, second) for value in _words(writer, side, word)]
    operands += [(kind, value) for value in _lanes(writer, total)]
    count = node.dtype.count
    made = f"{{ {', '.join([kind] * count)} }}"
    arguments = (f"{k} {value}" for k, value in operands)
    text = writer.call(name, made, *arguments, types=", ".join(k for k, _ in operands))
    found = writer.emit(text)
    vector, result = writer.type(node.dtype), "poison"
    for i in range(count):
        part = writer.emit(f"extractvalue {made} {found}, {i}")
        result = writer.emit(f"insertelement {vector} {result}, {kind} {part}, i32 {i}")
    writer.names[node] = result


def _lanes(writer: Writer, node: UOp) -> list[str]:
    vector = writer.typed(node)
    return [writer.emit(f"extractelement {vector}, i32 {i}") for i in range(node.dtype.count)]


def _words(writer: Writer, node: UOp, word: str) -> list[str]:
    found = _lanes(writer, node)
    if word == writer.type(node.dtype.scalar()):
        return found
    return [writer.emit(f"bitcast {writer.type(node.dtype.scalar())} {x} to {word}") for x in found]


def gather(writer: Writer, node: UOp) -> None:
    """Up to four matrices by one instruction; its words as a vector."""
    pointer, count = writer.pointer(node.src[0]), node.dtype.count
    flip = ".trans" if node.arg[0] else ""
    made = f"{{ {', '.join(['i32'] * count)} }}"
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{flip}.b16.p3"
    found = writer.emit(writer.call(name, made, pointer, types=pointer.rsplit(" ", 1)[0]))
    vector, result = writer.type(node.dtype), "poison"
    for i in range(count):
        part = writer.emit(f"extractvalue {made} {found}, {i}")
        result = writer.emit(f"insertelement {vector} {result}, i32 {part}, i32 {i}")
    writer.names[node] = result


def fetch(writer: Writer, node: UOp) -> None:
    """Past the first cache; a mask leaves no byte of the source to copy, and the rest is 0."""
    ends = [writer.pointer(end) for end in node.src[:2]]
    spaces = [end.rsplit(" ", 1)[0] for end in ends]
    name = f"llvm.nvvm.cp.async.cg.shared.global.{node.arg}"
    if len(node.src) == 3:
        count = writer.emit(f"select i1 {writer.ref(node.src[2])}, i32 {node.arg}, i32 0")
        ends.append(f"i32 {count}")
        spaces.append("i32")
        name += ".s"
    writer.lines.append("  " + writer.call(name, "void", *ends, types=", ".join(spaces)))


def commit(writer: Writer, node: UOp) -> None:
    """A lane's fetches so far are a group."""
    writer.lines.append("  " + writer.call("llvm.nvvm.cp.async.commit.group", "void", types=""))


def wait(writer: Writer, node: UOp) -> None:
    """All groups are there but the last ones."""
    text = writer.call("llvm.nvvm.cp.async.wait.group", "void", f"i32 {node.arg}", types="i32")
    writer.lines.append("  " + text)


def exchange(writer: Writer, node: UOp) -> None:
    """Words of 32 bits, lane for lane: shorter values go in one, longer ones in several."""
    kind, bits = writer.type(node.dtype), writer.width(node.dtype) * node.dtype.count
    value = writer.ref(node.src[0])
    whole = f"i{bits}"
    if kind != whole:
        value = writer.emit(f"bitcast {kind} {value} to {whole}")
    count = max(1, bits // 32)
    words = writer.vector("i32", count)
    if bits < 32:
        value = writer.emit(f"zext {whole} {value} to i32")
    elif count > 1:
        value = writer.emit(f"bitcast {whole} {value} to {words}")
    result = "poison"
    for i in range(count):
        one = value if count == 1 else writer.emit(f"extractelement {words} {value}, i32 {i}")
        got = _other(writer, one, node.arg)
        if count == 1:
            result = got
        else:
            result = writer.emit(f"insertelement {words} {result}, i32 {got}, i32 {i}")
    if bits < 32:
        result = writer.emit(f"trunc i32 {result} to {whole}")
    elif count > 1:
        result = writer.emit(f"bitcast {words} {result} to {whole}")
    if kind != whole:
        result = writer.emit(f"bitcast {whole} {result} to {kind}")
    writer.names[node] = result


def _other(writer: Writer, word: str, mask: int) -> str:
    """A word of the lane whose number differs in the bits of `mask`."""
    name, arguments = writer.dialect.exchange
    place = ""
    if "{place}" in " ".join(arguments):  # a lane is named by four times its number
        low = writer.call("llvm.amdgcn.mbcnt.lo", "i32", "i32 -1", "i32 0", types="i32, i32")
        low = f"i32 {writer.emit(low)}"
        high = writer.call("llvm.amdgcn.mbcnt.hi", "i32", "i32 -1", low, types="i32, i32")
        lane = writer.emit(f"xor i32 {writer.emit(high)}, {mask}")
        place = writer.emit(f"shl i32 {lane}, 2")
    given = [each.format(value=word, mask=mask, place=place) for each in arguments]
    types = ", ".join("i32" for _ in given)
    return writer.emit(writer.call(name, "i32", *given, types=types))
