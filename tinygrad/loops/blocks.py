"""What products on devices with groups have in common, whoever multiplies: a group computes a block
of the result. It goes along the sum in steps; for each, all its lanes together bring a piece of
both operands into the memory that they share, whatever the operands are made of. What lies beyond
the edges is 0 in the pieces, so that only what is stored needs masks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from tinygrad.loops.layout import size_of
from tinygrad.loops.matrix_units import MatrixUnit, Part, matrix_units
from tinygrad.loops.pieces import TURNED, VECTOR, Options, fill, is_copy, pipeline, reach, sum_over
from tinygrad.loops.plan import Plan
from tinygrad.loops.products import Product, those_in
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


class Blocks(ABC):
    """The steps of the recipes. `sides`: the loops of rows and columns, which count blocks;
    `inner`: those of a block; `marks`: loops of which a factor has the one of its side, and not the
    other; `outer`: all other loops of the output. `lanes` of a group fill the pieces, whose rows
    lie as `options` say, or 16 bytes beyond whole ones."""

    options: Options = ()

    def __init__(
        self, plan: Plan, block: tuple[int, int], lanes: int, m: str, n: str, outer: list[str]
    ) -> None:
        self.plan, self.lanes, self.outer = plan, lanes, outer
        self.sides = m, n
        self.inner = self.marks = plan.unused(m + "i"), plan.unused(n + "i")
        for side, inner, size in zip(self.sides, self.inner, block, strict=True):
            plan.do("split", side, size, inner, "PARALLEL", "LOOP")

    def bring(self, one: Product, step: int, unit: MatrixUnit | None = None) -> str:
        """Operands come in pieces, `step` terms a turn; the products are the unit's. Returns the
        loop over the terms of a turn."""
        plan, k = self.plan, one.first_loop
        ki = plan.unused(k + "i")
        plan.do("extend", k, step)
        if unit is not None:
            factors = sum_over(plan, k).src[0].src
            rows = next(i for i, x in enumerate(factors) if plan.loops[self.marks[0]] in x.ranges)
            plan.do("tensorise", k, rows, unit.name)
        plan.do("split", k, step, ki)
        layouts = [self.layout(k, ki, axis) for axis in range(2)]
        sides = [self.side(k, axis) for axis in range(2)]
        options = self.options
        if all(is_copy(x, plan.loops[own[-1]]) for x, own in zip(sides, layouts, strict=True)):
            shared = self.shared(max(x.dtype.itemsize for x in sides))
            options = (*pipeline(plan.target, shared, size_of(plan.loops[k])), *options)
        for axis, layout in enumerate(layouts):
            self._piece(k, axis, layout, options)
        return ki

    def side(self, k: str, axis: int) -> UOp:
        """A factor of the sum over `k` as it is now: of rows (0) or columns (1)."""
        factors, mark = sum_over(self.plan, k).src[0].src, self.plan.loops[self.marks[axis]]
        return next(x for x in factors if mark in x.ranges)

    @abstractmethod
    def layout(self, k: str, ki: str, axis: int) -> tuple[str, ...]:
        """A piece's loops, slowest first."""

    @abstractmethod
    def shared(self, itemsize: int) -> int:
        """Bytes of the pieces of one turn, of elements of that size."""

    def is_turned(self, k: str, ki: str, axis: int) -> bool:
        """Whether memory has neighbours along a piece's own axis, and not along the sum, and a unit
        can turn what it reads."""
        value, own = self.side(k, axis), self.plan.loops[self.marks[axis]]
        loads = [x for x in self.plan.below((value,)) if x.op is Ops.INDEX]
        is_across = reach(loads, own) < reach(loads, self.plan.loops[ki])
        return value.dtype.itemsize == TURNED and is_across

    def _piece(self, k: str, axis: int, layout: tuple[str, ...], options: Options) -> None:
        """An operand's piece in shared memory."""
        plan, name, value = self.plan, self.plan.numbered("p" + "ab"[axis]), self.side(k, axis)
        layout = those_in(value, layout)  # one block may be all
        plan.do("stage", plan.path(value), layout, name, "LOCAL", options)
        plan.do("complete", name)
        if not self.options:
            plan.do("pad", name, f"{name}.{layout[0]}", max(1, VECTOR // value.dtype.itemsize))
        fill(plan, name, self.lanes)

    def order(self, *loops: Iterable[str]) -> None:
        """The output's loops within the outer ones, which count groups, too."""
        self.plan.do("order", "store", (*self.outer, *(x for each in loops for x in each)))
        for loop in self.outer:
            self.plan.do("role", loop, "PARALLEL")


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


def lanes_first(pairs: Iterable[tuple[Sequence[str], Sequence[Part]]]) -> tuple[list[str], ...]:
    """The loops that count lanes, slowest first; and those that count what a lane holds."""
    strides = {
        name: part[2] for names, parts in pairs for name, part in zip(names, parts, strict=True)
    }
    lanes = sorted((x for x in strides if strides[x]), key=lambda x: -strides[x])
    return lanes, [x for x in strides if not strides[x]]
