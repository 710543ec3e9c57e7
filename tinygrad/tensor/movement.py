"""The same elements elsewhere: other shapes, another order, boxes. No value is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType
from typing import Any, Self

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import argfix, plain, prod
from tinygrad.engine.untold import refuse_to_fix
from tinygrad.schedule.regroup import regrouped, symbolic_axes_lead
from tinygrad.tensor.arguments import check_types, given_sizes
from tinygrad.tensor.conversion import Conversion
from tinygrad.tensor.creation import checked_shape
from tinygrad.tensor.formulas import steps_of
from tinygrad.tensor.shapes import Shape, Sint, axis_of, check_axes
from tinygrad.tensor.template import movements
from tinygrad.transforms.gradient import reshaped
from tinygrad.uop.infer import settled
from tinygrad.uop.node import UOp

Pads = tuple[tuple[Sint, Sint], ...]


@movements
class Movement(Conversion):
    """Reshape, expand, permute, shrink, flip, and what is made of them."""

    __slots__ = ()

    # ---- shape -----------------------------------------------------------------------------------

    def reshape(self, shape: Any = (), *more: Any) -> Self:
        """The same elements in row-major order; one size may be -1, None keeps the axis's size.

        >>> Tensor([1, 2, 3, 4]).reshape(2, -1).tolist()
        [[1, 2], [3, 4]]
        """
        given = given_sizes(shape, *more)
        sizes = [self._kept(i, given) if n is None else n for i, n in enumerate(given)]
        legal = "whole numbers, or bitcast(dtype) for a copy of other numbers of the same bits"
        check_types("reshape", sizes, (int, UOp), legal, ShapeError)
        unknown = [i for i, n in enumerate(sizes) if n == -1]
        if any(isinstance(n, int) and n < -1 for n in sizes) or len(unknown) > 1:
            raise ShapeError(f"reshape: to {given}; legal are sizes from 0 and one -1")
        own = self.numel()
        if unknown:
            sizes[unknown[0]] = _quotient(own, [n for n in sizes if n != -1])
        sizes = [settled(n) for n in sizes]
        total = settled(prod(sizes))
        if total != own and isinstance(own, UOp) and total == own.val:
            return self._of_now().reshape(sizes)
        if total != own:
            raise ShapeError(
                f"reshape: {self.shape} has {self.numel()} elements, {given} has "
                f"{prod(sizes)}; legal are shapes with as many elements"
            )
        final = tuple(sizes)
        if final == self.shape:
            return self
        if not symbolic_axes_lead(self.shape, final):
            return self._from(regrouped(self._seen, self.shape, final))
        return self._from(reshaped(self._seen, final + self._element))

    def _of_now(self) -> Self:
        """This with the sizes that its symbolic axes have now, as numbers."""
        refuse_to_fix(self.numel())
        return self._boxed(tuple((0, n if isinstance(n, int) else n.val) for n in self.shape))

    def _kept(self, axis: Sint, given: tuple[Any, ...]) -> Sint:
        if axis >= self.ndim:
            raise ShapeError(f"reshape: {given} keeps axis {axis}, which {self.shape} lacks")
        return self.shape[axis]

    view = reshape

    def expand(self, shape: Any = (), *more: Any) -> Self:
        """Axes of size 1 repeated, new axes in front; -1 keeps a size.

        >>> Tensor([[1], [2]]).expand(2, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        given = given_sizes(shape, *more)
        check_types("expand", given, (int, UOp, NoneType), "whole numbers", ShapeError)
        if len(given) < self.ndim:
            raise ShapeError(f"expand: {self.shape} to {given}; legal are {self.ndim} axes or more")
        own = (1,) * (len(given) - self.ndim) + self.shape
        sizes = tuple(
            n if want is None or (want == -1) else settled(want)
            for n, want in zip(own, given, strict=True)
        )
        new = len(given) - self.ndim
        wrong = [
            i
            for i, (n, want) in enumerate(zip(own, sizes, strict=True))
            if n not in (1, want)
            or (isinstance(want, int) and want < 0)
            or (i < new and isinstance(given[i], int) and given[i] < 0)
        ]
        if wrong:
            size = own[wrong[0]]
            legal = "are sizes from 0" if size == 1 else f"is {size}, only axes of size 1 expand"
            raise ShapeError(f"expand: {self.shape} to {given}: axis {wrong[0]}: legal {legal}")
        return self._broadcast_to(sizes)

    def _broadcast_to(self, shape: Shape) -> Self:
        if shape == self.shape:
            return self
        lined = (1,) * (len(shape) - self.ndim) + self.shape + self._element
        return self._from(reshaped(self._seen, lined).expand(shape + self._element))

    def permute(self, order: Any = (), *more: Any) -> Self:
        """The axes in another order.

        >>> Tensor.ones(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        given = argfix(order, *more)
        axes = tuple(axis_of(a, self.ndim, "permute") for a in given)
        if sorted(axes) != list(range(self.ndim)):
            raise ArgumentError(
                f"permute: {given} of {self.shape}; legal is each of {self.ndim} axes once"
            )
        if axes == tuple(sorted(axes)):
            return self
        return self._from(self._seen.permute(axes + self._element_axes))

    def transpose(self, dim0: Any = 1, dim1: Sint = 0) -> Self:
        """Two axes exchanged. As NumPy has it: of None all, of a tuple in that order.

        >>> Tensor([[1, 2], [3, 4]]).transpose(0, 1).tolist()
        [[1, 3], [2, 4]]
        """
        if dim0 is None or isinstance(dim0, (tuple, list)):
            return self.T if dim0 is None else self.permute(dim0)
        first, second = (axis_of(d, self.ndim, "transpose") for d in (dim0, dim1))
        if first == second:
            return self
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return self._from(self._seen.permute((*order, *self._element_axes)))

    @property
    def T(self) -> Self:  # noqa: N802
        """`transpose()`: the first two axes exchanged. (Those of PyTorch and NumPy reverse all
        axes, which differs from three axes on: `permute(2, 1, 0)`.) Less than two stay.

        >>> Tensor([[1, 2, 3]]).T.shape, Tensor.ones(2, 3, 4).T.shape
        ((3, 1), (3, 2, 4))
        """
        return self.transpose() if self.ndim > 1 else self

    @property
    def mT(self) -> Self:  # noqa: N802
        """The last two axes exchanged.

        >>> Tensor.ones(2, 3, 4).mT.shape
        (2, 4, 3)
        """
        check_axes("mT", self, 2)
        return self.transpose(-2, -1)

    def movedim(self, source: Any, destination: Any) -> Self:
        """Axes at other places, one or several; the rest keep their order.

        >>> Tensor.ones(2, 3, 4).movedim((0, 1), (-1, 0)).shape
        (3, 4, 2)
        """
        given = [v if isinstance(v, (tuple, list)) else (v,) for v in (source, destination)]
        here, there = ([axis_of(d, self.ndim, "movedim") for d in axes] for axes in given)
        if len(here) != len(there) or len(set(here)) < len(here) or len(set(there)) < len(there):
            raise ArgumentError(
                f"movedim: {source} to {destination}; legal are as many of both, each once"
            )
        order = [i for i in range(self.ndim) if i not in here]
        for to, axis in sorted(zip(there, here, strict=True)):
            order.insert(to, axis)
        return self.permute(tuple(order))

    def flatten(self, start_dim: Sint = 0, end_dim: Sint = -1) -> Self:
        """Axes from `start_dim` to `end_dim` as one.

        >>> Tensor.ones(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        first, last = (axis_of(d, self.ndim, "flatten") for d in (start_dim, end_dim))
        shape = self.shape
        if first > last:
            raise ArgumentError(f"flatten: axes {first} to {last}; legal is up to end_dim")
        return self.reshape((*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :]))

    def unflatten(self, dim: Sint, sizes: tuple[Sint, ...]) -> Self:
        """Axis `dim` as several, of `sizes`.

        >>> Tensor.ones(2, 6).unflatten(1, (3, -1)).shape
        (2, 3, 2)
        """
        axis = axis_of(dim, self.ndim, "unflatten")
        if 0 in self.shape and sizes.count(-1) < 2:  # of no elements all shapes have as many
            known, own = prod(n for n in sizes if n != -1), self.shape[axis]
            if own != known and (-1 not in sizes or not known or own % known):
                raise ShapeError(f"unflatten: {own} as {sizes}; legal are its factors")
            sizes = tuple(own // known if n == -1 else n for n in sizes)
        return self.reshape((*self.shape[:axis], *sizes, *self.shape[axis + 1 :]))

    def squeeze(self, dim: Any = None) -> Self:
        """Without axis `dim` if its size is 1, or without all axes of size 1.

        >>> Tensor.ones(1, 3, 1).squeeze().shape
        (3,)
        """
        axes = self._axes(dim, "squeeze")
        return self._spaced(tuple(n for i, n in enumerate(self.shape) if i not in axes or n != 1))

    def unsqueeze(self, dim: Sint) -> Self:
        """A new axis of size 1 at place `dim`.

        >>> Tensor([1, 2]).unsqueeze(-1).shape
        (2, 1)
        """
        axis = axis_of(dim, self.ndim + 1, "unsqueeze")
        return self._spaced((*self.shape[:axis], 1, *self.shape[axis:]))

    def _spaced(self, shape: Shape) -> Self:
        """This under a shape that differs in axes of size 1 only: there is nothing to check, but
        where a symbolic axis stands."""
        if any(type(n) is not int for n in shape):
            return self.reshape(shape)
        return (
            self if shape == self.shape else self._from(reshaped(self._seen, shape + self._element))
        )

    # ---- boxes -----------------------------------------------------------------------------------

    def shrink(self, arg: Sequence[Any]) -> Self:
        """A box: (begin, end) for each axis, None for the whole axis.

        >>> Tensor([1, 2, 3, 4]).shrink(((1, 3),)).tolist()
        [2, 3]
        """
        if len(arg) != self.ndim:
            raise ShapeError(f"shrink: {arg} of {self.shape}; legal is one (begin, end) an axis")
        pairs = zip(arg, self.shape, strict=True)
        wrong = [b for b in arg if b is not None and (not isinstance(b, Sequence) or len(b) != 2)]
        if wrong:
            raise ShapeError(f"shrink: {wrong[0]!r} in {arg}; legal are (begin, end) and None")
        box = tuple((0, n) if b is None else tuple(map(plain, b)) for b, n in pairs)
        for (begin, end), n in zip(box, self.shape, strict=True):
            numbers = all(isinstance(v, int) for v in (begin, end, n))
            if numbers and not 0 <= begin <= end <= n:
                raise ShapeError(f"shrink: {begin, end} of an axis of size {n}; legal are 0 to {n}")
        return self._boxed(box)

    def shrink_to(self, *shape: Any) -> Self:
        """The first elements of each axis: as many as its size in `shape`, all where it is None.

        >>> Tensor([[1, 2], [3, 4]]).shrink_to(1, None).tolist()
        [[1, 2]]
        """
        sizes = self._sizes_to("shrink_to", *shape)
        return self.shrink(tuple(None if n is None else (0, n) for n in sizes))

    def _sizes_to(self, operation: str, *shape: Any) -> tuple[Any, ...]:
        sizes: tuple[Any, ...] = argfix(*shape)
        if len(sizes) != self.ndim:
            raise ShapeError(f"{operation}: {sizes} of {self.shape}; legal is a size an axis")
        return tuple(None if n is None else checked_shape(operation, n)[0] for n in sizes)

    @property
    def _element_axes(self) -> tuple[Sint, ...]:
        """The axes of the node that an element takes."""
        return tuple(range(self.ndim, self.ndim + len(self._element)))

    def _boxed(self, box: Pads) -> Self:
        return self._from(self._seen.shrink(box + tuple((0, n) for n in self._element)))

    def _cut(self, axis: Sint, begin: Sint, end: Sint) -> Self:
        """The elements from `begin` to `end` of one axis."""
        return self._from(self._seen.sliced(axis, begin, end))

    def _grown(self, axis: Sint, size: Sint) -> Self:
        """The tensor with one axis, which has size 1, repeated."""
        return self.expand(tuple(size if i == axis else n for i, n in enumerate(self.shape)))

    def flip(self, axis: Any, *more: Any) -> Self:
        """Axes backwards.

        >>> Tensor([1, 2, 3]).flip(0).tolist()
        [3, 2, 1]
        """
        given = argfix(axis, *more)
        axes = self._axes(given, "flip")
        return self._from(self._seen.flip(axes)) if axes else self

    def _strided(self, axis: Sint, step: Sint) -> Self:
        """Every `step`-th element of one axis."""
        if step == 1:
            return self
        # (.., size, ..) → (.., ceil(size/step), .., 1): windows of one tap
        moved = self._seen.window(((axis, 1, step, 1, 0, 0),))
        return self._from(moved.reshape(moved.shape[:-1]))

    def rearrange(self, formula: str, **sizes: Sint) -> Self:
        """Axes named, split, merged and reordered, as in einops.

        >>> Tensor.ones(2, 12).rearrange("b (h w) -> w b h", h=3).shape
        (4, 2, 3)
        """
        apart, order, final = steps_of(formula, self.shape, sizes)
        return self.reshape(apart).permute(order).reshape(final)


def _quotient(total: Sint, sizes: Sequence[Sint]) -> Sint:
    """What -1 stands for beside `sizes`; where one of them is symbolic, by the values of now: that
    the product is `total` for all others is for the caller to check."""
    rest = settled(prod(sizes))
    if isinstance(rest, UOp):
        return (total if isinstance(total, int) else total.val) // rest.val
    if rest == total == 0:
        raise ShapeError(f"reshape: -1 beside {tuple(sizes)}; legal is a size: any would do")
    return settled(total // rest) if rest != 0 else 0
