"""What must not happen, in LLVM's words: a FAULT tells of the first lane in which it did. It is a
branch that is not expected, off the way of what computes."""

from __future__ import annotations

from tinygrad.backends.llvm_text import SIGNED, Writer, kind_of
from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop import GroupOp, UOp


def fault(writer: Writer, node: UOp) -> None:
    """One check. In a cold branch the first failing lane is reported, unless another fault was."""
    words, failed, *operands = node.src
    count = failed.dtype.count
    lanes = f"i{8 * count}"
    writer.count += 1
    names = ("fault", "report", "told", "fine")
    failing, report, told, fine = (f"{name}{writer.count}" for name in names)
    writer.fork(_any(writer, failed), failing, fine, ", !prof !2")
    taken = f"cmpxchg {writer.pointer(words)}, i64 0, i64 {node.arg} monotonic monotonic"
    ours = writer.emit(f"extractvalue {{ i64, i1 }} {writer.emit(taken)}, 1")
    writer.fork(ours, report, told)
    lane = ""
    if count > 1:
        bits = writer.emit(f"bitcast {writer.as_bytes(failed)} to {lanes}")
        name, types = f"llvm.cttz.{lanes}", f"{lanes}, i1 immarg"
        bit = writer.emit(writer.call(name, lanes, f"{lanes} {bits}", "i1 true", types=types))
        lane = writer.emit(f"lshr {lanes} {bit}, 3")
    for number, operand in enumerate(operands, 1):
        is_one = operand.dtype.count == 1
        value = writer.ref(operand) if is_one else _lane(writer, operand, f"{lanes} {lane}")
        if writer.width(operand.dtype) < 64:
            word = "sext" if kind_of(operand.dtype) == SIGNED else "zext"
            kind = writer.type(operand.dtype.scalar())
            value = writer.emit(f"{word} {kind} {value} to i64")
        where = writer.emit(f"getelementptr i64, {writer.pointer(words)}, i64 {number}")
        space = writer.spaces.get(words, "ptr")
        writer.lines.append(f"  store i64 {value}, {space} {where}, align 8")
    writer.join(told)
    writer.join(fine)


def _any(writer: Writer, mask: UOp) -> str:
    """Whether any lane is true. Bits of a mask may be moved if it compares values that only fit a
    register of 64 bytes: see `Writer.as_bytes`."""
    bools, failed = mask.dtype, writer.ref(mask)
    if bools.count == 1:
        return failed
    if bools.count * _compared(mask).itemsize >= 64:
        name, kind = f"llvm.vector.reduce.or.v{bools.count}i1", writer.type(bools)
        return writer.emit(writer.call(name, "i1", f"{kind} {failed}", types=kind))
    lanes, wide = f"i{8 * bools.count}", writer.as_bytes(mask)
    return writer.emit(f"icmp ne {lanes} {writer.emit(f'bitcast {wide} to {lanes}')}, 0")


def _lane(writer: Writer, vector: UOp, number: str) -> str:
    """The element at a computed position."""
    if writer.dialect.picks_lanes:
        return writer.emit(f"extractelement {writer.typed(vector)}, {number}")
    found, kind = "", writer.types[vector.dtype.scalar()]
    for lane in range(vector.dtype.count):
        item = writer.emit(f"extractelement {writer.typed(vector)}, i32 {lane}")
        same = writer.emit(f"icmp eq {number}, {lane}")
        found = writer.emit(f"select i1 {same}, {kind} {item}, {kind} {found or item}")
    return found


def _compared(mask: UOp) -> DType:
    """The dtype of the values that a mask compares."""
    while mask.src and mask.src[0].dtype is mask.dtype:
        mask = mask.src[0]
    return mask.src[0].dtype.scalar() if mask.op in GroupOp.Comparison else dtypes.bool
