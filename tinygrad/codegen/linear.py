"""The linear program under construction: its scopes, the instructions in each, and the final order.

A value found deep inside a loop may belong outside of it. So an instruction goes to the scope in
which its sources live, whatever scope is open. The list is laid out at the end: when a scope
closes, it is put into its parent's list after everything that was hoisted there meanwhile. Nodes
are interned, so an instruction is placed once; those that read memory or carry a value have a
serial number to keep them apart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from tinygrad.base.dtype import DType, dtypes
from tinygrad.codegen.derived import RULES
from tinygrad.simplify.forms import number
from tinygrad.uop.instructions import NATIVE
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, evaluate

Number = int | UOp
"""An index: a known number, or an instruction of dtype index."""

Values = list[UOp]
"""The values that a loop carries from turn to turn."""


HEAD = (Ops.PARAM, Ops.DEFINE_VAR, Ops.LOCAL, Ops.SPECIAL)
"""The ops at the head of a program, in this order: its arguments."""


class Scope:
    """A loop body, an arm of a branch, or only a place for values (without head or tail)."""

    __slots__ = (
        *("parent", "depth", "items", "memo", "starts", "is_open", "head", "tail", "carries"),
        "multiples",
    )

    def __init__(self, parent: Scope | None, head: Sequence[UOp] = ()) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.items: list[UOp | Scope] = []
        self.memo: dict[object, UOp] = {}
        self.starts: dict[object, tuple[UOp, int, int]] = {}  # see `addresses`
        self.is_open = True
        self.head: list[UOp] = list(head)
        self.tail: UOp | None = None
        self.carries: list[UOp] = []
        self.multiples: dict[int, UOp] = {}  # of a loop's counter, carried: see `multiple`


class Program:
    """The instructions of one function, and the place of each. Operations that the target does not
    name in `native` are replaced by ones that every target has (`derived`). `carries`: the compiler
    that comes after would leave multiplications by a loop's counter in the loop. `late`: it would
    also keep in registers what only comes after a loop, and these are shared with other groups."""

    def __init__(self, native: frozenset[str], carries: bool = False, late: bool = False) -> None:
        self.carries_multiples = carries
        self.places_late = late
        self.lacking = frozenset(op for op in NATIVE if op.name not in native)
        self.root = Scope(None)
        self.scope = self.root
        self.base = self.root  # for values that depend on no loop inside a task
        self.places: dict[UOp, Scope] = {}
        self.arguments: dict[UOp, None] = {}
        self._serial = 0

    def serial(self) -> int:
        self._serial += 1
        return self._serial

    # ---- values ----------------------------------------------------------------------------------

    def argument(self, op: Ops, dtype: DType, arg: object) -> UOp:
        """A PARAM, LOCAL, SPECIAL or DEFINE_VAR, at the head of the program."""
        node = UOp(op, dtype, arg=arg)
        self.arguments[node] = None
        self.places[node] = self.root
        return node

    def home(self, sources: Sequence[UOp]) -> Scope:
        """The innermost scope that a source lives in."""
        found = self.root
        for source in sources:
            scope = self.places.get(source)
            if scope is not None and scope.depth > found.depth:
                while not scope.is_open:  # a closed place for values is part of its parent
                    assert scope.parent is not None and not scope.head, f"{source.op!r} is gone"
                    scope = scope.parent
                if scope.depth > found.depth:
                    found = scope
        return found

    def is_at_hand(self, node: UOp) -> bool:
        """Whether the node is placed, and its value can be used in the open scope."""
        scope = self.places.get(node)
        while scope is not None and not scope.is_open and not scope.head:
            scope = scope.parent
        return scope is not None and scope.is_open

    def add(self, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: object = None) -> UOp:
        """An instruction without side effects, placed in the scope where its sources live."""
        if op in self.lacking:
            return RULES[op](self, *src)
        node = UOp(op, dtype, src, arg)
        scope = self.places.get(node)
        if scope is None or not (scope.is_open or self.is_at_hand(node)):
            scope = self.places[node] = self.latest(self.home(src))
            scope.items.append(node)
        return node

    def latest(self, home: Scope) -> Scope:
        """The innermost open place that runs as often as `home`: no register then holds during a
        loop what comes after it. `home` itself where that doesn't matter."""
        if not self.places_late:
            return home
        found = scope = self.scope
        while scope is not home:
            assert scope.parent is not None
            if scope.head:
                found = scope.parent
            scope = scope.parent
        return found

    def effect(self, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: object = None) -> UOp:
        """An instruction at the end of the open scope: it reads or writes memory."""
        node = UOp(op, dtype, src, arg)
        self.places[node] = self.scope
        self.scope.items.append(node)
        return node

    def test(self, op: Ops, a: Number, b: Number) -> UOp:
        """A comparison of two numbers."""
        return self.add(op, dtypes.bool, (as_node(a), as_node(b)))

    def signs(self, op: Ops, value: UOp) -> UOp:
        """The comparison of a vector's lanes with 0; constants if these are."""
        count, kind = value.dtype.count, value.dtype.scalar()
        if value.op is Ops.VECTORIZE and all(lane.op is Ops.CONST for lane in value.src):
            known = [self.lane(value, i).arg for i in range(count)]
            found = (evaluate(op, dtypes.bool, number, 0) for number in known)
            return self.vector([UOp.const(dtypes.bool, each) for each in found])
        zero = self.widen(UOp.const(kind, 0), count)
        return self.add(op, dtypes.bool.vec(count), (value, zero))

    def integer(self, op: Ops, *sources: Number) -> Number:
        """Index arithmetic, folded if possible."""
        a, b = sources
        if isinstance(a, int) and isinstance(b, int):
            return int(evaluate(op, dtypes.index, a, b))
        if op is Ops.ADD and (a == 0 or b == 0):
            return b if isinstance(a, int) else a
        if op is Ops.MUL and (a == 1 or b == 1):
            return b if isinstance(a, int) else a
        return self.add(op, dtypes.index, (as_node(a), as_node(b)))

    def multiple(self, index: UOp, factor: int) -> UOp:
        """An index times a constant. For a loop's counter the product may be carried from turn to
        turn: the address is then advanced by one addition, and no register is shifted that others
        still count with."""
        if index.op is not Ops.RANGE or factor == 1 or not self.carries_multiples:
            return as_node(self.integer(Ops.MUL, index, factor))
        scope = self.places[index]
        if factor not in scope.multiples:
            begin, _ = index.src
            first = int(begin.arg) if begin.op is Ops.CONST else begin
            start = as_node(self.integer(Ops.MUL, first, factor))
            carry = UOp(Ops.CARRY, dtypes.index, (start, index), self.serial())
            self.places[carry], scope.multiples[factor] = scope, carry
            scope.head.append(carry)
        return scope.multiples[factor]

    def smaller(self, a: Number, b: Number) -> Number:
        """The lesser of two indices."""
        return min(a, b) if isinstance(a, int) and isinstance(b, int) else self._one_of(a, b, True)

    def larger(self, a: Number, b: Number) -> Number:
        """The greater of two indices."""
        return max(a, b) if isinstance(a, int) and isinstance(b, int) else self._one_of(a, b, False)

    def _one_of(self, a: Number, b: Number, wants_less: bool) -> UOp:
        left, right = as_node(a), as_node(b)
        arms = (left, right) if wants_less else (right, left)
        return self.add(Ops.WHERE, dtypes.index, (self.test(Ops.CMPLT, left, right), *arms))

    def divided(self, op: Ops, value: UOp, divisor: int) -> UOp:
        """IDIV or MOD of an integer, or a vector of them, that is certainly not negative: a shift
        or a mask, or unsigned division, which takes fewer instructions."""
        dtype, count = value.dtype, value.dtype.count
        kind = dtype.scalar()
        if divisor == 1:
            return value if op is Ops.IDIV else self.widen(UOp.const(kind, 0), count)

        def by(number: int, kind: DType) -> UOp:
            return self.widen(UOp.const(kind, number), count)

        if divisor & (divisor - 1) == 0 and (op is Ops.MOD or Ops.SHR not in self.lacking):
            if op is Ops.MOD:
                return self.add(Ops.AND, dtype, (value, by(divisor - 1, kind)))
            return self.add(Ops.SHR, dtype, (value, by(divisor.bit_length() - 1, kind)))
        plain = _UNSIGNED[kind]
        source = self.add(Ops.CAST, plain.vec(count), (value,))
        found = self.add(op, plain.vec(count), (source, by(divisor, plain)))
        return self.add(Ops.CAST, dtype, (found,))

    def widen(self, value: UOp, count: int) -> UOp:
        """A scalar broadcast to all lanes of a vector; a vector as it is."""
        if value.dtype.count == count:
            return value
        assert value.dtype.count == 1, f"{value.dtype!r} can't become {count} lanes"
        return self.add(Ops.VECTORIZE, value.dtype.vec(count), (value,))

    def joined(self, *values: UOp) -> tuple[UOp, ...]:
        """All values, broadcast to as many lanes as the widest has."""
        count = max(v.dtype.count for v in values)
        return tuple(self.widen(v, count) for v in values) if count > 1 else values

    def lane(self, value: UOp, lane: int) -> UOp:
        """One lane of a vector; a scalar is the same in all lanes."""
        if value.dtype.count == 1:
            return value
        if value.op is Ops.VECTORIZE:
            return value.src[lane if len(value.src) > 1 else 0]
        return self.add(Ops.GEP, value.dtype.scalar(), (value,), lane)

    def vector(self, lanes: Sequence[UOp]) -> UOp:
        """Scalars as a vector."""
        first = lanes[0]
        src = (first,) if all(lane is first for lane in lanes) else tuple(lanes)
        return self.add(Ops.VECTORIZE, first.dtype.vec(len(lanes)), src)

    def picked(self, first: UOp, second: UOp, lanes: Sequence[int]) -> UOp:
        """These lanes, counted through both vectors; without an instruction if the lanes are known
        one by one."""
        count = first.dtype.count
        if first.op is second.op is Ops.VECTORIZE:
            each = [self.lane(v, i) for v in (first, second) for i in range(count)]
            return self.vector([each[i] for i in lanes])
        dtype = first.dtype.scalar().vec(len(lanes))
        return self.add(Ops.SHUFFLE, dtype, (first, second), tuple(lanes))

    def both(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """The conjunction of masks. None is a mask that always holds; a CONST is one that never
        does: see `is_off`."""
        masks = [m for m in (a, b) if m is not None and not (m.op is Ops.CONST and m.arg)]
        if len(masks) < 2:
            return masks[0] if masks else None
        a, b = masks
        if is_off(a) or is_off(b) or a is b:
            return b if is_off(b) else a
        a, b = self.joined(a, b)
        return a if a is b else self.add(Ops.AND, a.dtype, (a, b))

    def chosen(self, mask: UOp | None, value: UOp, other: UOp) -> UOp:
        """`value` where the mask holds, else `other`."""
        if mask is None:
            return value
        mask, value, other = self.joined(mask, value, other)
        return self.add(Ops.WHERE, value.dtype, (mask, value, other))

    @property
    def in_loop(self) -> bool:
        """Whether a loop is open."""
        scope: Scope | None = self.scope
        while scope is not None:
            if scope.head and scope.head[0].op is Ops.RANGE:
                return True
            scope = scope.parent
        return False

    # ---- scopes ----------------------------------------------------------------------------------

    def open(self) -> Scope:
        """A scope that is only a place for values."""
        self.scope = Scope(self.scope)
        return self.scope

    def open_tasks(self, count: int) -> UOp:
        """Returns the number of the task; values that are the same in all tasks stay outside."""
        task = UOp(Ops.SPECIAL, dtypes.index, arg=("task", count))
        self.scope = self.base = Scope(self.scope, (task,))
        self.places[task] = self.scope
        return task

    def open_loop(
        self, begin: Number, end: Number, name: str, initial: Sequence[UOp]
    ) -> tuple[UOp, list[UOp]]:
        """Returns the counter, and a CARRY for each initial value."""
        counter = UOp(
            Ops.RANGE, dtypes.index, (as_node(begin), as_node(end)), (name, self.serial())
        )
        carries = [UOp(Ops.CARRY, v.dtype, (v, counter), self.serial()) for v in initial]
        scope = Scope(self.scope, (counter, *carries))
        scope.carries = carries
        for node in scope.head:
            self.places[node] = scope
        self.scope = scope
        return counter, carries

    def open_branch(self, condition: UOp) -> None:
        node = UOp(Ops.IF, dtypes.void, (condition,), self.serial())
        self.scope = Scope(self.scope, (node,))

    @contextlib.contextmanager
    def branch(self, condition: UOp | None) -> Iterator[None]:
        """A context that runs only if the condition holds; None: always."""
        if condition is None:
            self.open()
        else:
            self.open_branch(condition)
        yield
        self.close()

    def close(self, following: Sequence[UOp] = ()) -> None:
        """Ends the innermost scope; `following` are the next values of its CARRYs."""
        scope = self.scope
        assert scope.parent is not None
        if scope.head:
            opener = scope.head[0]
            if opener.op is Ops.IF:
                scope.tail = UOp(Ops.ENDIF, dtypes.void, (opener,))
            elif opener.op is Ops.RANGE:
                turn = dict(zip(scope.carries, following, strict=True))
                for factor, carry in scope.multiples.items():
                    turn[carry] = as_node(self.integer(Ops.ADD, carry, factor))
                scope.tail = UOp(Ops.END, dtypes.void, (opener, *chain(*turn.items())))
        scope.is_open = False
        scope.parent.items.append(scope)
        self.scope = scope.parent
        for carry in scope.carries:  # from here on it is the last turn's value
            self.places[carry] = scope.parent

    def layout(self) -> list[UOp]:
        """The program in order of execution. The scopes, which know each other, are empty then."""
        out = at_head(self.arguments)
        stack: list[UOp | Scope] = [self.root]
        while stack:
            item = stack.pop()
            if isinstance(item, UOp):
                out.append(item)
                continue
            out.extend(item.head)
            if item.tail is not None:
                stack.append(item.tail)
            stack.extend(reversed(item.items))
            item.items, item.memo, item.starts = [], {}, {}
        return out


_UNSIGNED = {dtypes.index: dtypes.uint64, dtypes.int32: dtypes.uint32}


def at_head(arguments: Iterable[UOp]) -> list[UOp]:
    """Arguments in the order in which a program has them."""
    return sorted(arguments, key=lambda node: (HEAD.index(node.op), str(node.arg[0]).zfill(6)))


def is_off(mask: UOp | None) -> bool:
    """Whether a mask holds in no lane."""
    return mask is not None and mask.op is Ops.CONST and not mask.arg


def as_node(value: Number) -> UOp:
    """A known number as a constant."""
    return number(value) if isinstance(value, int) else value
