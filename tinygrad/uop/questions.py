"""Questions about a node that programs which build nodes by hand ask: which variables occur in it,
which number divides it, which nodes are below it. The compiler needs none of these."""

from __future__ import annotations

import math
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.uop.build import Arithmetic
from tinygrad.uop.op import Ops


class Questions(Arithmetic):
    """A class that mixes this in is a node: it has op, dtype, src, arg."""

    __slots__ = ()

    # ---- variables -------------------------------------------------------------------------------

    def vars(self: Any) -> set[Any]:
        """The variables below this node: bound ones as BIND, others as DEFINE_VAR.

        >>> len((Variable("n", 1, 9) + Variable("m", 1, 9) * 2).vars())
        2
        """
        found = {n for n in self.toposort() if n.op is Ops.BIND}
        inside = {n.src[0] for n in found}
        return found | {n for n in self.toposort() if n.op is Ops.DEFINE_VAR and n not in inside}

    def variables(self: Any) -> list[Any]:
        """The variables below this node without their values, in order of name.

        >>> n, m = Variable("n", 1, 9).bind(4), Variable("m", 1, 9)
        >>> (n + m).variables()
        [m[1..9], n[1..9]]
        """
        found = {n.src[0] if n.op is Ops.BIND else n for n in self.vars()}
        return sorted(found, key=lambda n: str(n.arg[0]))

    @property
    def expr(self: Any) -> str:
        """The name of this variable.

        >>> Variable("n", 1, 9).bind(4).expr
        'n'
        """
        return str((self.src or (self,))[0].arg[0])

    def unbind(self: Any) -> tuple[Any, int]:
        """This bound variable without its value, and the value.

        >>> Variable("n", 1, 9).bind(4).unbind()
        (n[1..9], 4)
        """
        return self.src[0], self.val

    def unbind_all(self: Any) -> tuple[Any, dict[Any, int]]:
        """This node with variables that have no values, and the values.

        >>> node, values = (Variable("n", 1, 9).bind(4) + 1).unbind_all()
        >>> node.vmax, list(values.values())
        (10, [4])
        """
        bound = [n for n in self.toposort() if n.op is Ops.BIND]
        return self.substitute({n: n.src[0] for n in bound}), {n.src[0]: n.val for n in bound}

    # ---- numbers ---------------------------------------------------------------------------------

    def const_factor(self: Any) -> int:
        """The largest integer that visibly divides this one.

        >>> (Variable("n", 1, 9) * 6 + 4).const_factor()
        2
        """
        if self.op is Ops.CONST and not dtypes.is_float(self.dtype):
            return int(self.arg)
        if self.op is Ops.ADD:
            return math.gcd(*(s.const_factor() for s in self.src))
        if self.op is Ops.MUL:
            return math.prod(s.const_factor() for s in self.src)
        return 1

    def divides(self: Any, number: int) -> Any:
        """This divided by `number` if it visibly divides this without a remainder, else None.

        >>> int((Variable("n", 2, 2) * 6 + 4).divides(2))
        8
        """
        if number == 1:
            return self
        if self.op is Ops.CONST:
            return None if self.arg % number else self.const_like(self.arg // number)
        if self.op is Ops.ADD:
            parts = [s.divides(number) for s in self.src]
            return None if None in parts else parts[0] + parts[1]
        if self.op is Ops.MUL:
            for one, other in (self.src, self.src[::-1]):
                if (part := one.divides(number)) is not None:
                    return part * other
        return None

    def gcd(self: Any, *others: Any) -> Any:
        """The largest integer that visibly divides this and `others`, as a constant.

        >>> int((Variable("n", 1, 9) * 6).gcd(Variable("m", 1, 9) * 4))
        2
        """
        return self.const_like(math.gcd(*(n.const_factor() for n in (self, *others))))

    def ssimplify(self: Any) -> Any:
        """This simplified; a number if it is one.

        >>> (UOp.const(dtypes.int32, 2) + 3).ssimplify()
        5
        """
        node = self.simplify()
        return node.arg if node.op is Ops.CONST else node

    # ---- below and above -------------------------------------------------------------------------

    @property
    def parents(self: Any) -> dict[Any, None]:
        """All nodes below this one, sources first.

        >>> n = Variable("n", 1, 9)
        >>> [node.op for node in (n + 1).parents]
        [Ops.DEFINE_VAR, Ops.CONST]
        """
        below = dict.fromkeys(self.toposort())
        below.pop(self)
        return below

    @property
    def metadata(self: Any) -> str | None:
        """The user's line that made this node, `file:line`, where that was recorded.

        >>> made = (Tensor([1.0]) + 1).uop
        >>> made.metadata is None, (made + 1).metadata is None
        (False, True)
        """
        found: str | None = self.origin
        return found

    # ---- of linear programs ----------------------------------------------------------------------

    def gep(self: Any, lane: int) -> Any:
        """One lane of a vector.

        >>> pair = UOp(Ops.PARAM, dtypes.float.vec(2), (), (0, "x"))
        >>> pair.gep(1).arg, pair.gep(1).dtype
        (1, dtypes.float)
        """
        return type(self)(Ops.GEP, self.dtype.scalar(), (self,), lane)

    def load(self: Any, *mask: Any, alignment: int | None = None, serial: int = 0) -> Any:
        """What lies where this pointer says; 0 where a mask is false. See `instructions`.

        >>> pointer = UOp(Ops.PARAM, dtypes.float, (), (0, "x"))
        >>> pointer.load().arg
        (4, 0)
        """
        facts = (alignment or self.dtype.itemsize, serial)
        return type(self)(Ops.LOAD, self.dtype, (self, *mask), facts)

    @classmethod
    def special(cls, size: int, name: str) -> Any:
        """The hardware's number of a task, group or lane, from 0 to `size` - 1.

        >>> UOp.special(32, "lane").vmax
        31
        """
        made: Any = cls
        return made(Ops.SPECIAL, dtypes.index, (), (name, size))
