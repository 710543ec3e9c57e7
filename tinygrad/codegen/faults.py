"""CHECKs as instructions: a test beside the value. Where it fails, words in memory tell the host
which CHECK it was, and with which numbers. Tests of vectors are collected until the loops around
them end. Reads are safe whatever a test says, because whoever builds a CHECK uses a safe value
where it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.target import Target
from tinygrad.codegen.index import Copies, Integers
from tinygrad.codegen.linear import as_node, is_off
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.op import unsigned_of


class Faults:
    """The checks of one phase. `words` is the parameter that they write to, if the kernel has one;
    `codes` maps the kernel's messages so far to their numbers."""

    def __init__(
        self, integers: Integers, words: UOp | None, codes: dict[tuple[str, str], int]
    ) -> None:
        self.program, self.integers = integers.program, integers
        self.words, self.codes = words, codes

    def test(self, check: UOp, value: UOp, fine: UOp, copies: Copies) -> None:
        """A FAULT where `fine` is false, which reports `value`, if that is a number."""
        program = self.program
        if fine.op is Ops.CONST and fine.arg:
            return
        assert self.words is not None, "a kernel with a CHECK has a fault buffer"
        code = self.codes.setdefault(check.arg, len(self.codes) + 1)
        true = program.widen(UOp.const(dtypes.bool, True), fine.dtype.count)
        failed = program.add(Ops.CMPNE, fine.dtype, (fine, true))
        mask = self.integers.valid(self.integers.limited(check), copies)
        failed_here = program.both(failed, mask)
        if failed_here is None or is_off(failed_here):
            return
        tells = "{0}" in check.arg[1] and dtypes.is_int(value.dtype)
        operands = [value] if tells else []
        pointer = program.argument(Ops.PARAM, self.words.dtype, self.words.arg)
        src = (pointer, *program.joined(failed_here, *operands))
        if Ops.FAULT in program.lacking:
            self._by_branches(*src, code=code)
        else:
            program.effect(Ops.FAULT, dtypes.void, src, code)

    def _by_branches(self, pointer: UOp, failed: UOp, *operands: UOp, code: int) -> None:
        """A FAULT by branches and stores, lane by lane. If two tasks fail at once, their operands
        may get mixed; the code is written last, and the code of either is right."""
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


def after_loops(program: Sequence[UOp], target: Target) -> Sequence[UOp]:
    """Moves the FAULTs of vectors behind all loops. Until then each lane remembers what to report:
    a loop without branches lets its loads and arithmetic overlap. For numbers that must be below a
    limit it remembers the largest, which is compared at the end; for all others, whether one
    failed, and the numbers of the last failure."""
    if target.vector == 0:
        return program
    if any(node.op is Ops.FAULT for node in program):
        program = _Gathering(program).out
    used: set[UOp] = set()
    kept: list[UOp] = []
    for node in reversed(program):
        if node in used or node.op not in _PURE:
            used.update(node.src)
            kept.append(node)
    return kept[::-1]


_PURE = GroupOp.Elementwise | {Ops.VECTORIZE}  # dropped, if only a FAULT used it


def _comparison(fault: UOp) -> tuple[UOp, UOp, UOp | None] | None:
    """An unsigned number, the CONST that it must be below, and a mask: if this is the FAULT's
    condition, and the number is all that it reports."""
    _, failed, *reported = fault.src
    failed, mask = failed.src if failed.op is Ops.AND else (failed, None)
    held = _held(failed)
    if held is None or held.op is not Ops.CMPLT or len(reported) != 1:
        return None
    number, limit = held.src
    limit = limit.src[0] if limit.op is Ops.VECTORIZE else limit
    if not dtypes.is_unsigned(number.dtype) or limit.op is not Ops.CONST or limit.arg <= 0:
        return None
    (told,) = reported
    is_number = told is number or (told.op is Ops.CAST and told.src[0] is number)
    same_bits = told.dtype.itemsize == number.dtype.itemsize
    return (number, limit, mask) if is_number and same_bits else None


def _held(failed: UOp) -> UOp | None:
    """The comparison that had to hold, if that is what failed."""
    if failed.op is not Ops.CMPNE or failed.src[0].op not in (Ops.CMPNE, Ops.CMPLT):
        return None
    held, true = failed.src
    true = true.src[0] if true.op is Ops.VECTORIZE else true
    return held if true.op is Ops.CONST and true.arg is True else None


@dataclass
class _Open:
    """A loop (or the program, or a branch, whose FAULTs stay there) that begins at a position of
    the program. For each kind of FAULT in it: the CARRYs, and their current values."""

    place: int = 0
    start: UOp | None = None
    carries: dict[UOp, list[UOp]] = field(default_factory=dict)
    values: dict[UOp, list[UOp]] = field(default_factory=dict)


class _Gathering:
    def __init__(self, program: Sequence[UOp]) -> None:
        self.out: list[UOp] = []
        self.open = [_Open()]
        self.serial = count(max((n.arg for n in program if n.op is Ops.CARRY), default=0) + 1)
        for node in program:
            self._add(node)
        self._tell(self.open.pop().values)

    def _add(self, node: UOp) -> None:
        if node.op in (Ops.RANGE, Ops.IF):
            self.open.append(_Open(len(self.out), node))
        elif node.op is Ops.ENDIF:
            self.open.pop()
        if node.op is Ops.END:
            self._close(node)
        elif node.op is Ops.FAULT and node.src[1].dtype.count > 1 and self._waits():
            self._remember(node)
        else:
            self.out.append(node)

    def _waits(self) -> bool:
        """Whether what happens here is reported later: not inside a branch, nor at the end."""
        if not self.open:
            return False
        start = self.open[-1].start
        return start is None or start.op is Ops.RANGE

    def _remember(self, fault: UOp) -> None:
        """Adds what this FAULT reports to the values of its kind."""
        compared = _comparison(fault)
        if compared is not None:
            self._remember_largest(fault, *compared)
            return
        words, failed, *numbers = fault.src
        failed = failed if numbers else self._as_mask(failed)
        kind = UOp(Ops.FAULT, dtypes.void, (words,), (fault.arg, failed.dtype))
        one, *olds = self._before(kind, (failed, *numbers))
        now = [self._node(Ops.OR, failed.dtype, one, failed)]
        for number, old in zip(numbers, olds, strict=True):
            now.append(self._node(Ops.WHERE, number.dtype, failed, number, old))
        self.open[-1].values[kind] = now

    def _as_mask(self, failed: UOp) -> UOp:
        """Where a comparison failed all bits are 1: as many as what it compares has, which a vector
        of bools would have to be made of."""
        held = _held(failed)
        if held is None or held.src[0].dtype.scalar() is dtypes.bool:
            return failed
        kind = unsigned_of(held.src[0].dtype)
        none, all_bits = (UOp.const(kind.scalar(), n) for n in (0, dtypes.max(kind.scalar())))
        choices = [self._same(const, kind) for const in (none, all_bits)]
        self.out += choices
        return self._node(Ops.WHERE, kind, held, *choices)

    def _remember_largest(self, fault: UOp, number: UOp, limit: UOp, mask: UOp | None) -> None:
        """Remembers the largest of the numbers that must be below a limit."""
        words, failed, told = fault.src
        kind = UOp(Ops.FAULT, dtypes.void, (words, limit), (fault.arg, told.dtype))
        (largest,) = self._before(kind, (number,))
        is_larger = self._node(Ops.CMPLT, failed.dtype, largest, number)
        if mask is not None:
            is_larger = self._node(Ops.AND, failed.dtype, is_larger, mask)
        chosen = self._node(Ops.WHERE, number.dtype, is_larger, number, largest)
        self.open[-1].values[kind] = [chosen]

    def _before(self, kind: UOp, remembered: Sequence[UOp]) -> list[UOp]:
        """The remembered values of a kind so far: zeros before its first FAULT."""
        inside = self.open[-1]
        if kind not in inside.values:
            zeros = [self._same(UOp.const(n.dtype.scalar(), 0), n.dtype) for n in remembered]
            if inside.start is None:
                self.out += zeros
                return zeros
            carries = [UOp(Ops.CARRY, n.dtype, (n, inside.start), n.tag) for n in zeros]
            inside.carries[kind] = inside.values[kind] = carries
        return inside.values[kind]

    def _node(self, op: Ops, dtype: DType, *src: UOp) -> UOp:
        self.out.append(UOp(op, dtype, src))
        return self.out[-1]

    def _same(self, const: UOp, dtype: DType) -> UOp:
        """A constant in all lanes, as a node of its own."""
        return UOp(Ops.VECTORIZE, dtype, (const,), tag=next(self.serial))

    def _close(self, end: UOp) -> None:
        """The loop ends; its failures are reported there, or passed on to the scope around it."""
        loop = self.open.pop()
        carries = [carry for several in loop.carries.values() for carry in several]
        values = [value for several in loop.values.values() for value in several]
        first = [*(carry.src[0] for carry in carries), self.out[loop.place], *carries]
        self.out[loop.place : loop.place + 1] = first
        self.out.append(end.with_src((*end.src, *chain(*zip(carries, values, strict=True)))))
        self._tell(loop.carries)

    def _tell(self, remembered: dict[UOp, list[UOp]]) -> None:
        """FAULTs for the remembered values, by kind."""
        for kind, made in remembered.items():
            words, *limits = kind.src
            code, told = kind.arg
            if limits:
                (number,) = made
                test, true = dtypes.bool.vec(number.dtype.count), UOp.const(dtypes.bool, True)
                consts = self._same(limits[0], number.dtype), self._same(true, test)
                self.out += consts
                below = self._node(Ops.CMPLT, test, number, consts[0])
                made = [self._node(Ops.CMPNE, test, below, consts[1])]
                made.append(number if told is number.dtype else self._node(Ops.CAST, told, number))
            elif made[0].dtype.scalar() is not dtypes.bool:
                none = self._same(UOp.const(made[0].dtype.scalar(), 0), made[0].dtype)
                self.out.append(none)
                test = dtypes.bool.vec(none.dtype.count)
                made = [self._node(Ops.CMPNE, test, made[0], none)]
            self._add(UOp(Ops.FAULT, dtypes.void, (words, *made), code))
