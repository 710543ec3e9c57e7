"""What the lanes of a warp do together, in LLVM's words for GPUs: values that lanes exchange, and
matrix units whose operands all lanes hold."""

from __future__ import annotations

from tinygrad.backends.llvm_text import Writer, is_number
from tinygrad.uop import Ops, UOp

# unit → intrinsic, LLVM's type of a word of both operands
WARP_UNITS = {
    "mma.bf16": ("llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"),
    "mma.f16": ("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"),
    "mma.s8": ("llvm.nvvm.mma.m16n8k32.row.col.s8", "i32"),
    "mma.u8": ("llvm.nvvm.mma.m16n8k32.row.col.u8", "i32"),
    "mma.tf32": ("llvm.nvvm.mma.m16n8k8.row.col.tf32", "i32"),
}
# AMD's operands and results are vectors: intrinsic, type of both operands, further arguments
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
    """One instruction; its operands are words, its result has as many numbers as a lane holds."""
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
    _keep(writer, node, _parts(writer, made, text, count))


def _lanes(writer: Writer, node: UOp) -> list[str]:
    if node in writer.parts:
        return writer.parts[node]
    if is_number(node) and len(set(node.src)) == 1:
        return [writer.ref(node.src[0])] * node.dtype.count
    vector = writer.typed(node)
    return [writer.emit(f"extractelement {vector}, i32 {i}") for i in range(node.dtype.count)]


def _words(writer: Writer, node: UOp, word: str) -> list[str]:
    found = _lanes(writer, node)
    if word == writer.type(node.dtype.scalar()):
        return found
    return [writer.emit(f"bitcast {writer.type(node.dtype.scalar())} {x} to {word}") for x in found]


def gather(writer: Writer, node: UOp) -> None:
    """Up to four matrices by one instruction; the words are returned as a vector."""
    pointer, count = writer.pointer(node.src[0]), node.dtype.count
    flip = ".trans" if node.arg[0] else ""
    made = f"{{ {', '.join(['i32'] * count)} }}"
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{flip}.b16.p3"
    text = writer.call(name, made, pointer, types=pointer.rsplit(" ", 1)[0])
    _keep(writer, node, _parts(writer, made, text, count))


def fetch(writer: Writer, node: UOp) -> None:
    """A copy that bypasses the first cache. A mask makes it copy no byte of the source, and the
    rest is 0."""
    if node.src[1].op is Ops.TENSOR:
        fetch_box(writer, node)
        return
    ends = [writer.pointer(end) for end in node.src[:2]]
    spaces = [end.rsplit(" ", 1)[0] for end in ends]
    name = f"llvm.nvvm.cp.async.cg.shared.global.{node.arg}"
    if len(node.src) == 3:
        count = writer.emit(f"select i1 {writer.ref(node.src[2])}, i32 {node.arg}, i32 0")
        ends.append(f"i32 {count}")
        spaces.append("i32")
        name += ".s"
    writer.lines.append("  " + writer.call(name, "void", *ends, types=", ".join(spaces)))


def fetch_box(writer: Writer, node: UOp) -> None:
    """One instruction for the engine that copies tensors; it reports the bytes to a signal."""
    target, tensor, signal, *places = node.src
    given = [
        _shared(writer, target),
        f"i64 {writer.emit(f'ptrtoint ptr {writer.ref(tensor)} to i64')}",
    ]
    given += [_short(writer, place) for place in places]
    numbers = ", ".join(f"${i}" for i in range(2, len(given)))
    name = (
        f"cp.async.bulk.tensor.{len(places)}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    )
    text = f"{name} [$0], [$1, {{{numbers}}}], [${len(given)}];"
    _told(writer, text, *given, _shared(writer, signal))


def signal(writer: Writer, node: UOp) -> None:
    """A barrier that lanes don't wait at."""
    _told(writer, f"mbarrier.init.shared::cta.b64 [$0], {node.arg};", _shared(writer, node.src[0]))


def commit(writer: Writer, node: UOp) -> None:
    """The copies that the lane has begun become a group; or the lane arrives at a signal, and says
    how many bytes will come."""
    if node.src:
        how, more = ("arrive.expect_tx", f", {node.arg}") if node.arg else ("arrive", "")
        text = f"mbarrier.{how}.shared::cta.b64 _, [$0]{more};"
        _told(writer, text, _shared(writer, node.src[0]))
        return
    if node.arg == "products":
        _assembly(writer, "wgmma.commit_group.sync.aligned;")
        return
    writer.lines.append("  " + writer.call("llvm.nvvm.cp.async.commit.group", "void", types=""))


def wait(writer: Writer, node: UOp) -> None:
    """Waits until all groups but the last ones are complete. A sum that is waited for passes
    through, so that nothing reads its registers before."""
    what, most = node.arg
    if what == "signal":
        where, odd = node.src
        test = "mbarrier.try_wait.parity.shared::cta.b64 %had, [$0], $1;"
        again = "again${:uid}"
        lines = ["{", ".reg .pred %had;", f"{again}:", test, f"@!%had bra {again};", "}"]
        _told(writer, r"\0A".join(lines), _shared(writer, where), _short(writer, odd))
        return
    if what == "products":
        text = f"wgmma.wait_group.sync.aligned {most};"
        if not node.src:
            _assembly(writer, text)
            return
        kind, parts = writer.type(node.dtype.scalar()), _lanes(writer, node.src[0])
        _keep(writer, node, _changed(writer, text, kind, parts))
        return
    text = writer.call("llvm.nvvm.cp.async.wait.group", "void", f"i32 {most}", types="i32")
    writer.lines.append("  " + text)


def fence(writer: Writer, node: UOp) -> None:
    """Makes the lane's writes visible to units that read shared memory by descriptors."""
    _assembly(writer, "fence.proxy.async.shared::cta;")


# unit without its columns → shape and types, immediates: of the operands' signs, and whether their
# rows run along their own axis
FLOATS = ", 1, 1, {}, {}"
STAGED_UNITS = {
    "wgmma.bf16": ("k16.f32.bf16.bf16", FLOATS),
    "wgmma.f16": ("k16.f32.f16.f16", FLOATS),
    "wgmma.tf32": ("k8.f32.tf32.tf32", ", 1, 1"),
    "wgmma.s8": ("k32.s32.s8.s8", ""),
    "wgmma.u8": ("k32.s32.u8.u8", ""),
}
SWIZZLED = 1 << 62  # rows of 128 bytes
ADDRESS, CHUNK, STRIDE = 0, 16, 32  # bits where a descriptor's numbers of 16 bytes begin


def matrix(writer: Writer, node: UOp) -> None:
    """A descriptor (PTX ISA, "Matrix Descriptor Format")."""
    _, stride, chunk = node.arg
    space, place = writer.pointer(node.src[0]).rsplit(" ", 1)
    address = writer.emit(f"ptrtoint {space} {place} to i64")
    address = writer.emit(f"lshr exact i64 {address}, 4")
    facts = SWIZZLED | stride // 16 << STRIDE | chunk // 16 << CHUNK
    writer.names[node] = writer.emit(f"or disjoint i64 {address}, {facts}")


def begin_products(writer: Writer, node: UOp) -> None:
    """One instruction of four warps, which runs asynchronously. Once a group it is ordered after
    earlier writes to its registers."""
    unit, _, columns = node.arg.rpartition(".")
    shape, rest = STAGED_UNITS[unit]
    a, b, total = node.src
    kind, parts = writer.type(node.dtype.scalar()), _lanes(writer, total)
    count = len(parts)
    names = ", ".join(f"${i}" for i in range(count))
    rest = rest.format(*(int(side.arg[0]) for side in (a, b)))
    text = f"wgmma.mma_async.sync.aligned.m64n{columns}{shape} {{{names}}}"
    text = f"{text}, ${2 * count}, ${2 * count + 1}, %on{rest};"  # tied operands are counted twice
    lines = ["{", ".reg .pred %on;", "setp.ne.b32 %on, 1, 0;", text, "}"]
    if not writer.in_group:
        lines, writer.in_group = ["wgmma.fence.sync.aligned;", *lines], True
    text = r"\0A".join(lines)
    given = [f"i64 {writer.ref(side)}" for side in (a, b)]
    _keep(writer, node, _changed(writer, text, kind, parts, *given))


def _shared(writer: Writer, node: UOp) -> str:
    """An address in shared memory, as a 32-bit word."""
    return f"i32 {writer.emit(f'ptrtoint {writer.pointer(node)} to i32')}"


def _short(writer: Writer, node: UOp) -> str:
    """An index as a 32-bit word."""
    if writer.type(node.dtype) == "i32":
        return writer.typed(node)
    return f"i32 {writer.emit(f'trunc {writer.typed(node)} to i32')}"


def _told(writer: Writer, text: str, *given: str) -> None:
    """An instruction with words or addresses as operands, which no memory access is moved
    across."""
    letters = "".join(f"{'l' if each.startswith('i64') else 'r'}," for each in given)
    quoted = f'call void asm sideeffect "{text}", "{letters}~{{memory}}"'
    writer.lines.append(f"  {quoted}({', '.join(given)}) convergent")


def _assembly(writer: Writer, text: str) -> None:
    writer.in_group = False
    writer.lines.append(f'  call void asm sideeffect "{text}", "~{{memory}}"() convergent')


def _changed(writer: Writer, text: str, kind: str, parts: list[str], *given: str) -> list[str]:
    """The new values of registers that an instruction reads and writes. LLVM's braces are
    doubled."""
    letter, count = ("f" if kind == "float" else "r"), len(parts)
    results = ",".join([f"={letter}"] * count)
    operands = ",".join([*map(str, range(count)), *["l"] * len(given), "~{memory}"])
    made = f"{{ {', '.join([kind] * count)} }}"
    values = ", ".join([*(f"{kind} {part}" for part in parts), *given])
    quoted = f'asm sideeffect "{text}", "{results},{operands}"'
    return _parts(writer, made, f"call {made} {quoted}({values}) convergent", count)


def _parts(writer: Writer, made: str, text: str, count: int) -> list[str]:
    """The numbers that an instruction returns."""
    found = writer.emit(text)
    return [writer.emit(f"extractvalue {made} {found}, {i}") for i in range(count)]


def _keep(writer: Writer, node: UOp, parts: list[str]) -> None:
    """The numbers as the node's vector."""
    vector, kind, result = writer.type(node.dtype), writer.type(node.dtype.scalar()), "poison"
    for i, part in enumerate(parts):
        result = writer.emit(f"insertelement {vector} {result}, {kind} {part}, i32 {i}")
    writer.names[node] = result
    writer.parts[node] = parts


def exchange(writer: Writer, node: UOp) -> None:
    """Exchanges words of 32 bits, lane for lane: shorter values use one, longer ones several."""
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
