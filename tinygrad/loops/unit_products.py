"""What products by a unit have in common that many lanes execute together, be its operands held by
those lanes or read from the memory that they share: the unit, pieces of operands, its parts of the
output's loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from tinygrad.loops.layout import size_of
from tinygrad.loops.matrix_units import MatrixUnit, Part, matrix_units
from tinygrad.loops.pieces import Options, is_copy, pipeline, sum_over
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import Product
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def common_unit(plan: Plan, m: str, products: Sequence[Product], staged: bool) -> MatrixUnit | None:
    """The unit that all these products take, if they take one; m: the loop of rows."""
    units = [_unit_of(plan, m, one.first_loop, staged) for one in products]
    return units[0] if all(other is units[0] for other in units) else None


def _unit_of(plan: Plan, m: str, k: str, staged: bool) -> MatrixUnit | None:
    """The first unit of a warp, or of several warps that reads staged operands, for the sum over
    `k` of products of two CASTs, or of two values as they are."""
    value = sum_over(plan, k).src[0]
    if value.op is not Ops.MUL:
        return None
    a, b = sorted(value.src, key=lambda x: plan.loops[m] not in x.ranges)
    kinds = [x.src[0].dtype if x.op is Ops.CAST else x.dtype for x in (a, b)]
    for unit in matrix_units(plan.target, kinds[0], kinds[1], value.dtype):
        if unit.held is not None and unit.is_staged == staged and unit.a is kinds[0]:
            return unit
    return None


class ByUnit(ABC):
    """The steps that the recipes share. `sides`: the loops of rows and columns; `inner`: those of a
    group's block; `marks`: loops of which a factor has the one of its side, and not the other."""

    marks: tuple[str, str]

    def __init__(self, plan: Plan, unit: MatrixUnit, shared: int, m: str, n: str) -> None:
        self.plan, self.unit, self.shared = plan, unit, shared
        self.sides = m, n
        self.inner = plan.unused(m + "i"), plan.unused(n + "i")

    def tensorised(self, one: Product, step: int) -> str:
        """The sum becomes the unit's, `step` terms a turn, which are brought in pieces. Returns the
        loop over them."""
        plan, k = self.plan, one.first_loop
        ki = plan.unused(k + "i")
        plan.do("extend", k, step)
        factors = sum_over(plan, k).src[0].src
        rows = next(i for i, x in enumerate(factors) if plan.loops[self.marks[0]] in x.ranges)
        plan.do("tensorise", k, rows, self.unit.name)
        plan.do("split", k, step, ki)
        layouts = [self._layout(k, ki, axis) for axis in range(2)]
        options: Options = ()
        if all(is_copy(self._side(k, i), plan.loops[x[-1]]) for i, x in enumerate(layouts)):
            options = pipeline(plan.target, self.shared, size_of(plan.loops[k]))
        for axis, layout in enumerate(layouts):
            self._piece(k, axis, layout, options)
        return ki

    def _side(self, k: str, axis: int) -> UOp:
        """A factor of the sum over `k` as it is now: of rows (0) or columns (1)."""
        factors, mark = sum_over(self.plan, k).src[0].src, self.plan.loops[self.marks[axis]]
        return next(x for x in factors if mark in x.ranges)

    @abstractmethod
    def _layout(self, k: str, ki: str, axis: int) -> tuple[str, ...]:
        """A piece's loops, in order."""

    @abstractmethod
    def _piece(self, k: str, axis: int, layout: tuple[str, ...], options: Options) -> None:
        """Brings an operand's piece to the shared memory, as the unit wants it."""


def lanes_first(pairs: Iterable[tuple[Sequence[str], Sequence[Part]]]) -> tuple[list[str], ...]:
    """The loops that count lanes, slowest first; and those that count what a lane holds."""
    strides = {
        name: part[2] for names, parts in pairs for name, part in zip(names, parts, strict=True)
    }
    lanes = sorted((x for x in strides if strides[x]), key=lambda x: -strides[x])
    return lanes, [x for x in strides if not strides[x]]
