"""Pieces of operands that a hardware engine copies: boxes of a buffer, which the engine sees as a
tensor of two or three axes. It writes 0 where a box reaches beyond an axis, so the gates of a piece
become the sizes of the tensor. One lane asks for a box, and a signal says when it has arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.codegen.addresses import ROW, Addresses, is_swizzled
from tinygrad.codegen.linear import as_node
from tinygrad.codegen.tiles import in_turns
from tinygrad.loops.layout import element, flat_offset, option
from tinygrad.loops.reads import copy_of
from tinygrad.loops.roles import own_ranges, size_of
from tinygrad.schedule.bases import sure_size
from tinygrad.simplify.affine import FREE, add, affine
from tinygrad.simplify.forms import Terms, step_in
from tinygrad.simplify.masks import conditions_of, gate_of
from tinygrad.uop import Ops, UOp

LONGEST = 256  # elements of a box along an axis
STEP = 16  # bytes that a tensor's strides are multiples of
WIDEST = 1 << 31  # coordinates are below


@dataclass
class Axis:
    """One axis of the tensor: the distance between its places in elements, the coordinate of a
    piece's element, and the number of places (0: as many as the coordinate has values)."""

    stride: int
    terms: dict[UOp, int]
    constant: int = 0
    size: int = 0

    @property
    def places(self) -> int:
        last: int = FREE.span(self.terms, self.constant)[1]
        return self.size or last + 1


@dataclass(frozen=True)
class Boxes:
    """A stage as boxes of `memory`, which are of that `shape`: one box for each turn of the loops
    `apart`. Axes are listed the fastest first."""

    stage: UOp
    memory: UOp
    axes: tuple[Axis, ...]
    shape: tuple[int, ...]
    apart: tuple[UOp, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all boxes, including the part beyond the tensor."""
        elements: int = prod(map(size_of, own_ranges(self.stage)))
        return elements * self.stage.dtype.itemsize

    def fetch(self, addresses: Addresses, signal: UOp) -> None:
        """Begins to copy the boxes; the signal counts the bytes that have arrived."""
        program, stage = addresses.program, self.stage
        inside = [r for r in own_ranges(stage) if r not in self.apart]
        sizes = tuple(axis.places for axis in self.axes)
        layout = sizes, tuple(axis.stride for axis in self.axes[1:]), self.shape
        tensor = program.add(Ops.TENSOR, self.memory.dtype, (addresses.base(self.memory),), layout)
        place = addresses.at(stage, flat_offset(element(stage)), {}).start(*inside)
        for here in in_turns({}, self.apart):
            target, _ = addresses.plain_pointer(place._replace(copies=here))
            coordinates = (
                addresses.integers.total(_without(axis.terms, inside), axis.constant, here)
                for axis in self.axes
            )
            src = (target, tensor, signal, *map(as_node, coordinates))
            nbytes = prod(self.shape) * stage.dtype.itemsize
            program.effect(Ops.FETCH, dtypes.void, src, nbytes)


def boxes_of(stage: UOp) -> Boxes | None:
    """A swizzled stage as boxes of the buffer that it copies. None if it is not a copy, or if its
    rows are not evenly spaced."""
    value, size = copy_of(stage.src[0]), stage.dtype.itemsize
    if value is None or not (is_swizzled(stage) and option(stage, "whole")):
        return None
    (terms, constant), (steps, _) = affine(value.src[1]), affine(flat_offset(element(stage)))
    own = sorted((r for r in own_ranges(stage) if size_of(r) > 1), key=lambda r: steps[r])
    if any(step_in(terms, r) is None for r in own):
        return None
    row = ROW // size  # elements
    along, across = [r for r in own if steps[r] < row], [r for r in own if steps[r] >= row]
    if not across or prod(map(size_of, along)) != row:
        return None
    stride = terms.get(across[0], 0)
    if stride <= 0 or stride * size % STEP or any(terms.get(r, 0) != steps[r] for r in along):
        return None
    axes = _bounded(gate_of(value), _axes(terms, constant, stride))
    if axes is None or not _can_see(axes, value.src[0]):
        return None
    count, inside = 1, 0  # rows of a box: of the innermost loops that follow each other everywhere
    for loop in across:
        follows = (steps[loop], terms.get(loop, 0)) == (count * row, count * stride)
        if not follows or count * size_of(loop) > LONGEST:
            break
        count, inside = count * size_of(loop), inside + 1
    shape = (row, count, *(1 for _ in axes[2:]))
    return Boxes(stage, value.src[0], tuple(axes), shape, tuple(across[inside:]))


def _can_see(axes: Sequence[Axis], memory: UOp) -> bool:
    """Whether a buffer can be a tensor of these axes."""
    last = sum((axis.places - 1) * axis.stride for axis in axes)
    spans = (FREE.span(axis.terms, axis.constant) for axis in axes)
    is_inside = last < sure_size(memory) and all(low >= 0 and high < WIDEST for low, high in spans)
    return is_inside and not any(x.stride * memory.dtype.itemsize % STEP for x in axes[1:])


def _without(terms: Mapping[UOp, int], loops: Sequence[UOp]) -> dict[UOp, int]:
    return {term: factor for term, factor in terms.items() if term not in loops}


def _axes(terms: Terms, constant: int, stride: int) -> list[Axis]:
    """Along a row, and from row to row."""
    rows = {t: k // stride for t, k in terms.items() if k % stride == 0}
    row = {t: k for t, k in terms.items() if t not in rows}
    return [Axis(1, row, constant % stride), Axis(stride, rows, constant // stride)]


def _bounded(gate: UOp | None, axes: list[Axis]) -> list[Axis] | None:
    """The axes with the sizes that a gate's conditions imply; None if one of the conditions is not
    the end of an axis. The part of a coordinate that counts beyond the end, such as a batch,
    becomes an axis of its own."""
    beyond: dict[int, Terms] = {}
    for condition in conditions_of(gate):
        if condition.op is not Ops.CMPLT or condition.src[0].dtype is not dtypes.index:
            return None
        smaller, larger = condition.src
        terms, constant = affine(add(smaller, larger, -1))
        if FREE.span(terms, constant)[1] < 0:
            continue
        ends = ((number, _end(axis, terms, -constant)) for number, axis in enumerate(axes))
        number, end = next(((n, end) for n, end in ends if end is not None), (0, None))
        if end is None:
            return None
        axis, (size, others) = axes[number], end
        axis.size = min(size, axis.size or size)
        if beyond.setdefault(number, others) != others:
            return None
    for number, others in beyond.items():
        if others:
            axis, step = axes[number], min(others.values())
            if len(axes) > 2 or step < axis.size or any(k % step for k in others.values()):
                return None
            axes.append(Axis(axis.stride * step, {t: k // step for t, k in others.items()}))
            axis.terms = _without(axis.terms, list(others))
    return axes


def _end(axis: Axis, terms: Terms, limit: int) -> tuple[int, Terms] | None:
    """The size of the axis that `terms < limit` implies, and the terms of its coordinate that count
    beyond it; None if the condition doesn't end the axis. A condition may count in units of several
    places."""
    factors = {divmod(axis.terms.get(term, 0), factor) for term, factor in terms.items()}
    if len(factors) != 1:
        return None
    ((unit, rest),) = factors
    if rest or unit < 1 or axis.constant % unit:
        return None
    others = _without(axis.terms, list(terms))
    small = {t: k for t, k in others.items() if 0 < k < unit}
    if FREE.span(small, 0)[1] >= unit:
        return None
    return unit * limit + axis.constant, _without(others, list(small))
