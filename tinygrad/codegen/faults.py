"""CHECKs as instructions: a test beside the value; where it fails, words of memory tell the host
which it was, and of which numbers. Tests of vectors wait for the end of the loops around them. What
is read is legal whatever they say, since who builds a CHECK takes a safe value where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from tinygrad.base.dtype import DType, dtypes
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import as_node
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


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


def after_loops(program: Sequence[UOp]) -> list[UOp]:
    """The program with FAULTs of vectors behind the loops that they stood in, which remember for
    each lane whether one failed, and the numbers of the last that did: a loop without branches is
    one stretch, whose loads and arithmetic go on beside each other."""
    return _Gathering(program).out


@dataclass
class _Open:
    """A loop (or a branch, whose FAULTs stay) from its place in the program on. For each kind of
    FAULT in it: the CARRYs, and what they are worth so far."""

    place: int
    start: UOp
    carries: dict[UOp, list[UOp]] = field(default_factory=dict)
    values: dict[UOp, list[UOp]] = field(default_factory=dict)


class _Gathering:
    def __init__(self, program: Sequence[UOp]) -> None:
        self.out: list[UOp] = []
        self.open: list[_Open] = []
        self.serial = count(max((n.arg for n in program if n.op is Ops.CARRY), default=0) + 1)
        for node in program:
            self._add(node)

    def _add(self, node: UOp) -> None:
        if node.op in (Ops.RANGE, Ops.IF):
            self.open.append(_Open(len(self.out), node))
        elif node.op is Ops.ENDIF:
            self.open.pop()
        if node.op is Ops.END:
            self._close(node)
        elif node.op is Ops.FAULT and node.src[1].dtype.count > 1 and self._in_loop():
            self._remember(node)
        else:
            self.out.append(node)

    def _in_loop(self) -> bool:
        return bool(self.open) and self.open[-1].start.op is Ops.RANGE

    def _remember(self, fault: UOp) -> None:
        """The lanes that failed, and their numbers, go to the CARRYs of their kind."""
        loop, (words, failed, *numbers) = self.open[-1], fault.src
        zeros = [UOp.const(each.dtype.scalar(), 0) for each in (failed, *numbers)]
        kind = UOp(Ops.FAULT, dtypes.void, (words, *zeros), (fault.arg, failed.dtype.count))
        if kind not in loop.carries:
            loop.carries[kind] = loop.values[kind] = [
                self._carry(zero, each.dtype, loop.start)
                for zero, each in zip(zeros, (failed, *numbers), strict=True)
            ]
        before, *olds = loop.values[kind]
        either = UOp(Ops.OR, failed.dtype, (before, failed))
        chosen = [
            UOp(Ops.WHERE, new.dtype, (failed, new, old))
            for new, old in zip(numbers, olds, strict=True)
        ]
        loop.values[kind] = [either, *chosen]
        self.out += loop.values[kind]

    def _carry(self, zero: UOp, dtype: DType, loop: UOp) -> UOp:
        number = next(self.serial)
        first = UOp(Ops.VECTORIZE, dtype, (zero,), tag=number)
        return UOp(Ops.CARRY, dtype, (first, loop), number)

    def _close(self, end: UOp) -> None:
        """The loop ends; what failed in it is told there, or by a loop around it."""
        loop = self.open.pop()
        carries = [carry for several in loop.carries.values() for carry in several]
        values = [value for several in loop.values.values() for value in several]
        first = [*(carry.src[0] for carry in carries), loop.start, *carries]
        self.out[loop.place : loop.place + 1] = first
        self.out.append(end.with_src((*end.src, *chain(*zip(carries, values, strict=True)))))
        for kind, made in loop.carries.items():
            self._add(UOp(Ops.FAULT, dtypes.void, (kind.src[0], *made), kind.arg[0]))
