"""Pieces of tensors, and tensors made of pieces: what is padded, split, joined or repeated; windows
and diagonals. No value is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinygrad.base.dtype import COMPLEX_PARTS, dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import ceildiv, plain, prod
from tinygrad.engine.aliases import Pair, bottom_of, diagonal_of
from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.in_parts import concatenated
from tinygrad.schedule.strides import is_window
from tinygrad.tensor.arguments import check_choice, check_number_from, check_types, given_sizes
from tinygrad.tensor.movement import Movement, Pads
from tinygrad.tensor.roots import end_of_views, is_detached, tape_end
from tinygrad.tensor.shapes import (
    Shape,
    Sint,
    axis_of,
    broadcast_shape,
    check_axes,
    check_devices,
    check_number,
)
from tinygrad.tensor.template import movements
from tinygrad.uop.infer import least, most, settled
from tinygrad.uop.node import UOp


@movements
class Pieces(Movement):
    """Pad, split, concatenate, repeat, roll, and what is made of them."""

    __slots__ = ()

    # ---- padded ----------------------------------------------------------------------------------

    def _pads(self, padding: Sequence[Any]) -> Pads:
        """Padding in any of its forms as (before, after) an axis.

        One pair or None an axis; or flat numbers in pairs for the last axis, then the one before.
        """
        if padding and all(p is None or isinstance(p, (tuple, list)) for p in padding):
            if len(padding) != self.ndim:
                raise ShapeError(f"pad: {padding} of {self.shape}; legal is one pair an axis")
            return tuple((0, 0) if p is None else (plain(p[0]), plain(p[1])) for p in padding)
        if len(padding) % 2 or len(padding) > 2 * self.ndim:
            raise ShapeError(
                f"pad: {tuple(padding)} of {self.shape}; legal are pairs (before, after), "
                "the last axis first"
            )
        flat = tuple(map(plain, padding))
        check_types("pad", flat, (int, UOp), "whole numbers", ShapeError)
        pairs = tuple(zip(flat[::2], flat[1::2], strict=True))[::-1]
        return ((0, 0),) * (self.ndim - len(pairs)) + pairs

    def pad(self, padding: Sequence[Any], mode: str = "constant", value: Any = 0) -> Self:
        """Elements around: of `value`, or by mode "reflect", "replicate" or "circular".

        `padding` is a pair or None an axis, or flat numbers, the last axis first. Negative
        numbers cut off.

        >>> Tensor([1, 2]).pad((1, 2)).tolist()
        [0, 1, 2, 0, 0]
        """
        value = 0 if value is None else plain(value)
        check_types("pad", [value], (int, float), "numbers")
        if mode != "constant" and value != 0:
            raise ArgumentError(f"pad: value={value}, mode={mode!r}; legal is mode='constant'")
        if not isinstance(padding, (tuple, list)):
            raise ShapeError(
                f"pad: {padding!r} around {self.shape}; legal are pairs, or a number for each side"
            )
        pads = self._pads(padding)
        over = [i for i, (p, n) in enumerate(zip(pads, self.shape, strict=True)) if _cut_off(p, n)]
        if over:
            raise ShapeError(
                f"pad: {pads[over[0]]} cuts more off than axis {over[0]} of {self.shape} has; "
                f"legal are down to {-self.shape[over[0]]}"
            )
        if mode != "constant":
            return self._pad_by(mode, pads)
        most = tuple((_at_most(b), _at_most(a)) for b, a in pads)
        if most != pads:  # some sizes may have either sign: what is too much is cut off
            wide = self.pad(most, value=value)
            edges = zip(pads, most, wide.shape, strict=True)
            return wide._boxed(tuple((m - b, n - (k - a)) for (b, a), (m, k), n in edges))
        box = tuple((_over(-b), n - _over(-a)) for (b, a), n in zip(pads, self.shape, strict=True))
        node = self._held.shrink(box + tuple((0, n) for n in self._element))
        outer = tuple((_over(b), _over(a)) for b, a in pads) + ((0, 0),) * len(self._element)
        padded = node.pad(outer)
        if value != 0 and padded is not node:
            inside = UOp.const(dtypes.bool, True, self.device).broadcast_to(node.shape).pad(outer)
            if isinstance(value, float) and not dtypes.is_float(self.dtype):
                padded = padded.cast(least_upper_dtype(self.dtype, dtypes.default_float))
            check_number("pad", value, padded.dtype)
            padded = inside.where(padded, padded.const_like(value))
        return (self if padded is self._held else self._from(padded))._copied(self)

    def _pad_by(self, mode: str, pads: Pads) -> Self:
        """Pads each axis in turn with pieces of the tensor itself. What is cut off is still
        repeated and reflected, as in PyTorch, but not gone around."""
        check_choice("pad", "mode", mode, ("constant", "reflect", "replicate", "circular"))
        out = self
        for axis, (before, after) in enumerate(pads):
            begin, end = max(0, -before), min(0, after)
            if mode == "circular":
                out, begin, end = out._cut(axis, begin, self.shape[axis] + end), 0, 0
            size = out.shape[axis]
            before, after = max(0, before), max(0, after)
            most = max(0, size - (mode == "reflect"))
            if mode != "replicate" and max(before, after) > most:
                raise ShapeError(
                    f"pad: {mode} by {before, after} of an axis of size {size}; legal are numbers "
                    f"up to {most}"
                )
            if mode == "circular":
                head, tail = out._cut(axis, size - before, size), out._cut(axis, 0, after)
            elif mode == "reflect":
                head = out._cut(axis, 1, before + 1).flip(axis)
                tail = out._cut(axis, size - 1 - after, size - 1).flip(axis)
            else:
                head = out._cut(axis, 0, 1)._grown(axis, before)
                tail = out._cut(axis, size - 1, size)._grown(axis, after)
            out = head.cat(out, tail, dim=axis) if before or after else out
            out = out._cut(axis, begin, out.shape[axis] + end)
        return out._copied(self)

    def pad_to(self, *shape: Any) -> Self:
        """Zeros behind, up to each axis's size in `shape`, none where it is None.

        >>> Tensor([[1, 2]]).pad_to(None, 3).tolist()
        [[1, 2, 0]]
        """
        sizes = self._sizes_to("pad_to", *shape)
        pads = [None if n is None else (0, n - m) for n, m in zip(sizes, self.shape, strict=True)]
        for pad in pads:
            if pad is not None:
                check_number_from("pad_to", "zeros behind an axis", pad[1], 0)
        return self.pad(pads) if pads else self

    # ---- repeated, cut into parts, joined --------------------------------------------------------

    def repeat(self, repeats: Any, *more: Any) -> Self:
        """The whole repeated, for each axis so often; new axes in front.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        counts = given_sizes(repeats, *more)
        check_types("repeat", counts, (int, UOp), "whole numbers", ArgumentError)
        if len(counts) < self.ndim:
            raise ShapeError(f"repeat: {counts} of {self.shape}; legal is a number for each axis")
        if any(isinstance(n, int) and n < 0 for n in counts):
            raise ShapeError(f"repeat: {counts}; legal are numbers from 0")
        shape = (1,) * (len(counts) - self.ndim) + self.shape
        apart = tuple(n for size in shape for n in (1, size))
        grown = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
        final = tuple(c * n for c, n in zip(counts, shape, strict=True))
        return self.reshape(apart).expand(grown).reshape(final)._copied(self)

    def _each_repeated(self, repeats: Sint, axis: int) -> Self:
        grown = self.unsqueeze(axis + 1)._grown(axis + 1, repeats)
        shape = (*self.shape[:axis], self.shape[axis] * repeats, *self.shape[axis + 1 :])
        return grown.reshape(shape)._copied(self)

    def split(self, sizes: Sint | Sequence[Sint], dim: Sint = 0) -> tuple[Self, ...]:
        """Parts of one size (the last may be smaller) or of several, along `dim`.

        >>> [t.tolist() for t in Tensor([1, 2, 3]).split(2)]
        [[1, 2], [3]]
        """
        check_axes("split", self, 1)
        axis, sizes = axis_of(dim, self.ndim, "split"), plain(sizes)
        several = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
        check_types("split", several, (int, UOp), "whole numbers")
        if isinstance(sizes, int):
            total = known_size("split", self.shape, axis)
            check_number_from("split", "sizes", sizes, 1)
            sizes = [min(sizes, total - i) for i in range(0, max(total, 1), sizes)]
        total, ends = self.shape[axis], [settled(sum(sizes[: i + 1])) for i in range(len(sizes))]
        if not ends or ends[-1] != total or any(least(n) < 0 for n in sizes):
            raise ShapeError(f"split: {sizes} of an axis of size {total}; the sum must be its size")
        return tuple(self._cut(axis, e - n, e) for e, n in zip(ends, sizes, strict=True))

    def chunk(self, chunks: Sint, dim: Sint = 0) -> list[Self]:
        """At most `chunks` parts of one size along `dim`; the last may be smaller.

        >>> [t.tolist() for t in Tensor([1, 2, 3]).chunk(2)]
        [[1, 2], [3]]
        """
        chunks = plain(chunks)
        check_number_from("chunk", "chunks", chunks, 1)
        axis = axis_of(dim, self.ndim, "chunk")
        size = ceildiv(known_size("chunk", self.shape, axis), chunks)
        return list(self.split(size if size else [0] * chunks, dim))

    def unbind(self, dim: Sint = 0) -> tuple[Self, ...]:
        """The slices along `dim`, without that axis.

        >>> [t.tolist() for t in Tensor([[1, 2], [3, 4]]).unbind()]
        [[1, 2], [3, 4]]
        """
        axis = axis_of(dim, self.ndim, "unbind")
        kept = self.shape[:axis] + self.shape[axis + 1 :]
        count = known_size("unbind", self.shape, axis)
        return tuple(self._cut(axis, i, i + 1).reshape(kept) for i in range(count))

    def cat(self, *others: Self, dim: Sint = 0) -> Self:
        """One after another along `dim`. What has shape (0,) goes with parts of any shape.

        >>> Tensor([1, 2]).cat(Tensor([3])).tolist()
        [1, 2, 3]
        """
        others, dim = _after_a_list(self, others, dim)
        every = tensors_of("cat", self, others)
        parts = tuple(part for part in every if part.shape != (0,)) or every
        first: Self = parts[0]
        axis = axis_of(dim, first.ndim, "cat")
        if not all(part.ndim for part in parts):
            raise ShapeError("cat: of numbers, shape (); legal is one axis or more: use stack")
        like = first.ndim, first.shape[:axis], first.shape[axis + 1 :]
        if any((p.ndim, p.shape[:axis], p.shape[axis + 1 :]) != like for p in parts):
            raise ShapeError(
                f"cat: shapes {[p.shape for p in parts]} along axis {axis}; "
                "legal are shapes that are equal on all other axes"
            )
        kind = least_upper_dtype(*(p.dtype for p in every))
        if kind in COMPLEX_PARTS:
            parts = tuple(p.cast(kind) for p in parts)
            first, kind = parts[0], COMPLEX_PARTS[kind]
        node = concatenated([part._held.cast(kind) for part in parts], axis)
        made = first._from(node, *parts)._with_none_of(*(p for p in every if 0 in p.shape))
        return made._copied(*parts)

    def _with_none_of(self, *others: Self) -> Self:
        """This, as a result of `others`, too, of which no element came to it: they have gradients,
        of zeros. Nothing is computed."""
        made = self
        for other in others:
            if other.requires_grad is True:
                none = other._held.reshape((prod(other._held.shape),)).shrink(((0, 0),))
                zero = none.pad(((0, 1),)).reshape(()).cast(made._held.dtype)
                # less 0, not plus: -0.0 stays what it is
                made = made._from(made._held - zero.broadcast_to(made._held.shape), other)
        return made

    def stack(self, *others: Self, dim: Sint = 0) -> Self:
        """One beside another along a new axis.

        >>> Tensor([1, 2]).stack(Tensor([3, 4])).tolist()
        [[1, 2], [3, 4]]
        """
        others, dim = _after_a_list(self, others, dim)
        parts = tensors_of("stack", self, others)
        if any(part.shape != parts[0].shape for part in parts):
            raise ShapeError(f"stack: shapes {[p.shape for p in parts]}; legal are equal shapes")
        axis = axis_of(dim, parts[0].ndim + 1, "stack")
        apart: list[Self] = [part.unsqueeze(axis) for part in parts]
        return apart[0].cat(*apart[1:], dim=axis)

    def roll(
        self, shifts: Sint | Sequence[Sint], dims: Sint | Sequence[Sint] | None = None
    ) -> Self:
        """Moved along axes, around the end to the front.

        >>> Tensor([1, 2, 3]).roll(1).tolist()
        [3, 1, 2]
        """
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        steps, axes = (v if isinstance(v, (tuple, list)) else (v,) for v in (shifts, dims))
        if len(steps) != len(axes):
            raise ArgumentError(f"roll: shifts {shifts} and dims {dims}; legal are as many of both")
        check_types("roll", map(plain, steps), (int, UOp), "whole numbers")
        check_axes("roll", self, 1)
        out = self
        for step, dim in zip(steps, axes, strict=True):
            axis = axis_of(dim, self.ndim, "roll")
            size = self.shape[axis]
            if (cut := _turned(size, step)) != 0:
                out = out._cut(axis, cut, size).cat(out._cut(axis, 0, cut), dim=axis)
        return out._copied(self)

    def unfold(self, dim: Sint, size: Sint, step: Sint) -> Self:
        """Windows of `size` along `dim`, `step` apart, as a new last axis.

        >>> Tensor([1, 2, 3, 4]).unfold(0, 2, 1).tolist()
        [[1, 2], [2, 3], [3, 4]]
        """
        axis, size, step = axis_of(dim, self.ndim, "unfold"), plain(size), plain(step)
        if not self.ndim:
            raise ShapeError("unfold: of one number, shape (); legal is one axis or more")
        if not 0 < size <= least(self.shape[axis]) or step <= 0:
            raise ArgumentError(
                f"unfold: windows of {size} every {step} of an axis of size {self.shape[axis]}; "
                "legal are windows that fit, and steps from 1"
            )
        node = self._seen.window(((axis, size, step, 1, 0, 0),))  # (.., element.., taps)
        order = (*range(self.ndim), node.ndim - 1, *self._element_axes)
        return self._from(node.permute(order) if self._element else node)

    def meshgrid(self, *others: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Each vector along an axis of its own, expanded over the others'.

        >>> [t.tolist() for t in Tensor([1, 2]).meshgrid(Tensor([3]))]
        [[[1], [2]], [[3], [3]]]
        """
        check_choice("meshgrid", "indexing", indexing, ("ij", "xy"))
        parts = tensors_of("meshgrid", self, others)
        parts = tuple(part if part.ndim else part.reshape(1) for part in parts)
        if len(parts) == 1:
            return parts
        order = [1, 0, *range(2, len(parts))] if indexing == "xy" else list(range(len(parts)))
        lined = [
            part.reshape(tuple(-1 if i == place else 1 for i in range(len(parts))))
            for part, place in zip(parts, order, strict=True)
        ]
        shape = broadcast_shape("meshgrid", *(part.shape for part in lined))
        return tuple(part._broadcast_to(shape) for part in lined)

    def diagonal(self, offset: Sint = 0, dim1: Sint = 0, dim2: Sint = 1) -> Self:
        """The diagonal of axes `dim1` and `dim2`, `offset` columns to the right, as a last axis.
        It is a view, which can be written.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        found, axes, starts = self._diagonal(offset, dim1, dim2)
        whole = self._seen
        bottom = tape_end(whole, end_of_views(whole, self._root))
        view = found._seen
        is_view = bottom_of(view, bottom) is bottom and is_window(view, bottom)
        if is_view or not is_concrete(whole) or 0 in found.shape:
            return found
        node = diagonal_of(whole, bottom, axes, starts, found.shape[-1])  # (.., element.., n)
        order = (*range(found.ndim - 1), node.ndim - 1, *range(found.ndim - 1, node.ndim - 1))
        node = node.permute(order)
        return self._from(node.detach() if is_detached(whole) else node)

    def _diagonal(self, offset: Sint, dim1: Sint, dim2: Sint) -> tuple[Self, Pair, Pair]:
        """Its elements, a view only of a matrix as it lies in memory; its axes, counted from the
        front, and where it begins on them."""
        first, second = (axis_of(d, self.ndim, "diagonal") for d in (dim1, dim2))
        if self.ndim < 2 or first == second:
            raise ShapeError(f"diagonal: axes {dim1} and {dim2} of {self.shape}; legal are two")
        rest = tuple(i for i in range(self.ndim) if i not in (first, second))
        x = self.permute((*rest, first, second))
        *lead, rows, columns = x.shape
        below, right = max(0, -offset), max(0, offset)
        axes, starts = (first, second), (below, right)
        n = _over(_smaller("diagonal", rows - below, columns - right))
        if isinstance(columns, UOp):  # no view of the storage
            count = UOp.arange(n, self.device)
            x = x.movedim((-2, -1), (0, 1))
            x = x._from(x._held.index(count + below, count + right)).movedim(0, -1)
            return x, axes, starts
        begin = below * columns + right if n else 0
        # (.., rows, columns) → (.., rows * columns), of which each columns + 1st
        flat = x.reshape((*lead, rows * columns))
        end = begin + (n - 1) * (columns + 1) + 1 if n else 0
        part = flat._cut(flat.ndim - 1, begin, end)
        return part._strided(part.ndim - 1, columns + 1), axes, starts


def known_size(operation: str, shape: Shape, axis: int) -> int:
    """The size of an axis; ShapeError if it is symbolic, where the result's form depends on it."""
    axis = axis_of(axis, len(shape), operation)
    if not shape:
        raise ShapeError(f"{operation}: of one number, shape (); legal is one axis or more")
    size = shape[axis]
    if not isinstance(size, int):
        raise ShapeError(
            f"{operation}: axis {axis} of {len(shape)} has a symbolic size, of {size.vmin} to "
            f"{size.vmax}; legal are axes whose size is a number, or slices by sizes: t[:n]"
        )
    return size


def _turned(size: Sint, step: Sint) -> Sint:
    """Where an axis begins after it was rolled by `step`."""
    if isinstance(size, int):
        return settled(-step % size) if size else 0
    low, high = least(step), most(step)
    if max(-low, high) > size.vmin or low < 0 < high:
        raise ShapeError(
            f"roll: by {step} of a symbolic size, of {size.vmin} to {size.vmax}; legal are shifts "
            f"of up to {size.vmin} to one side"
        )
    return settled(-step if high <= 0 else size - step)


def _smaller(operation: str, one: Sint, other: Sint) -> Sint:
    """The smaller of two sizes; ShapeError if it isn't known which."""
    for size, beside in ((one, other), (other, one)):
        if least(settled(beside - size)) >= 0:
            return settled(size)
    raise ShapeError(
        f"{operation}: it is not known whether {one} or {other} is smaller; legal are "
        "sizes of which one is never larger"
    )


def _over(size: Sint) -> Sint:
    """The size if it is above 0, else 0. The sign is the same for all values of variables."""
    if isinstance(size, int):
        return max(0, size)
    return size if size.vmin >= 0 else 0


def _at_most(size: Sint) -> Sint:
    """The size, or the largest one that a symbolic size of either sign may be."""
    return size.vmax if isinstance(size, UOp) and size.vmin < 0 < size.vmax else size


def _cut_off(pair: tuple[Any, Any], size: Sint) -> bool:
    """Whether negative padding cuts off more of an axis than there is."""
    numbers = all(isinstance(n, int) for n in (*pair, size))
    return numbers and size + min(pair[0], 0) + min(pair[1], 0) < 0


def _after_a_list(first: Any, others: tuple[Any, ...], dim: Sint) -> tuple[Any, Sint]:
    """What stands behind `first`, and the axis: what follows a list, as in `Tensor.cat([a], 1)`."""
    axis_follows = len(others) == 1 and isinstance(others[0], int)
    return ((), others[0]) if isinstance(first, (tuple, list)) and axis_follows else (others, dim)


def tensors_of(operation: str, first: Any, others: Sequence[Any]) -> tuple[Any, ...]:
    """`cat(a, b)`, `Tensor.cat(a, b)` and `Tensor.cat([a, b])` alike."""
    items = (*(first if isinstance(first, (tuple, list)) else (first,)), *others)
    wrong = [each for each in items if not isinstance(each, Pieces)]
    if wrong or not items:
        what = f"{wrong[0]!r} of type {type(wrong[0]).__name__}" if wrong else "nothing"
        raise ArgumentError(f"{operation}: of {what}; legal are one tensor or more")
    check_devices(operation, *items)
    return items
