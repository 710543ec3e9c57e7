"""CHECKs as instructions: a test beside the value; where it fails, words of memory tell the host
which it was, and of which numbers. Tests of vectors stand one beside the other, once in a stretch:
a renderer then asks all of them at once. What is read is legal whatever they say, since who builds
a CHECK takes a safe value where it fails."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import as_node
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

ENDS = frozenset(
    (Ops.RANGE, Ops.CARRY, Ops.END, Ops.IF, Ops.ENDIF, Ops.BARRIER, Ops.SPECIAL, Ops.PARAM)
)


class Faults:
    """The tests of one phase. `words` is the parameter that they write to, if the kernel has one;
    `codes` are the kernel's messages so far, with the numbers that stand for them."""

    def __init__(
        self, integers: Integers, words: UOp | None, codes: dict[tuple[str, str], int]
    ) -> None:
        self.program, self.integers = integers.program, integers
        self.words, self.codes = words, codes

    def test(self, check: UOp, value: UOp, fine: UOp, copies: Copies) -> None:
        """A FAULT where `fine` is false, which says what `value` is there, if that is a number."""
        program = self.program
        if fine.op is Ops.CONST and fine.arg:
            return
        assert self.words is not None, "a kernel with a CHECK has a fault buffer"
        code = self.codes.setdefault(check.arg, len(self.codes) + 1)
        true = program.widen(UOp.const(dtypes.bool, True), fine.dtype.count)
        failed = program.add(Ops.CMPNE, fine.dtype, (fine, true))
        mask = self.integers.valid(self.integers.limited(check), copies)
        failed_here = program.both(failed, mask)
        assert failed_here is not None
        operands = [value] if dtypes.is_int(value.dtype) else []
        pointer = program.argument(Ops.PARAM, self.words.dtype, self.words.arg)
        src = (pointer, *program.joined(failed_here, *operands))
        if Ops.FAULT in program.lacking:
            self._by_branches(*src, code=code)
        else:
            program.effect(Ops.FAULT, dtypes.void, src, code)

    def _by_branches(self, pointer: UOp, failed: UOp, *operands: UOp, code: int) -> None:
        """A FAULT by branches and stores, lane by lane. Two tasks that fail at once may mix their
        operands; the code comes last, and any of theirs is right."""
        program = self.program

        def word(number: int) -> UOp:
            place = (pointer, as_node(number))
            return program.add(Ops.INDEX, pointer.dtype, place) if number else pointer

        size = pointer.dtype.itemsize
        for lane in range(failed.dtype.count):
            with program.branch(program.lane(failed, lane)):
                arg = (size, program.serial())
                first = program.effect(Ops.LOAD, pointer.dtype, (pointer,), arg)
                some = program.test(Ops.CMPNE, first, UOp.const(pointer.dtype, 0))
                none = program.add(Ops.XOR, some.dtype, (some, UOp.const(some.dtype, 1)))
                with program.branch(none):
                    values = [program.lane(value, lane) for value in operands]
                    values = [program.add(Ops.CAST, pointer.dtype, (value,)) for value in values]
                    numbers = [*enumerate((UOp.const(dtypes.int64, code), *values))]
                    for number, value in reversed(numbers):
                        stored = (word(number), value)
                        program.effect(Ops.STORE, dtypes.void, stored, (size, ""))


def together(program: Sequence[UOp]) -> list[UOp]:
    """The program with FAULTs of vectors side by side, sorted by lanes: in each stretch after all
    that they test and before the rest, which then needs no registers for them."""
    out: list[UOp] = []
    stretch: list[UOp] = []
    for node in program:
        if node.op in ENDS:
            out += [*_tested_first(stretch), node]
            stretch = []
        else:
            stretch.append(node)
    return out + _tested_first(stretch)


def _tested_first(stretch: list[UOp]) -> list[UOp]:
    faults = [n for n in stretch if n.op is Ops.FAULT and n.src[1].dtype.count > 1]
    needed = set(faults)
    for node in reversed(stretch):
        if node in needed:
            needed.update(node.src)
    read = {_memory(n) for n in stretch if n.op is Ops.LOAD and n in needed}
    written = {_memory(n) for n in stretch if n.op is Ops.STORE}
    if written and (Ops.PICK in {m.op for m in read | written} or not read.isdisjoint(written)):
        needed.update(stretch)  # what is read may be written between: then the tests come last
    first = [n for n in stretch if n in needed and n not in faults]
    faults.sort(key=lambda fault: fault.src[1].dtype.count)
    return [*first, *faults, *(n for n in stretch if n not in needed)]


def _memory(access: UOp) -> UOp:
    """What a LOAD or a STORE points into."""
    pointer = access.src[0]
    while pointer.op is Ops.INDEX:
        pointer = pointer.src[0]
    return pointer
