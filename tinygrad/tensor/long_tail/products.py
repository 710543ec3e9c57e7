"""Sums over products, by their names: outer and inner, of matrices with something added; and the
lengths and distances that are made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from tinygrad.base.dtype import compute_dtype, least_upper_dtype, least_upper_float
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.tensor.arguments import check_choice, check_number_from
from tinygrad.tensor.creation import DTypeLike, checked_dtype
from tinygrad.tensor.long_tail.parts import Parts
from tinygrad.tensor.reduction import Axis
from tinygrad.tensor.shapes import axis_of
from tinygrad.tensor.template import expressions


@expressions
class Products(Parts):
    """Factors are promoted as in arithmetic and added up as in `dot`."""

    __slots__ = ()

    # ---- vectors ---------------------------------------------------------------------------------

    def _of_ndim(self, operation: str, *wanted: tuple[Any, int]) -> None:
        if any(t.ndim != n for t, n in wanted):
            raise ShapeError(
                f"{operation}: {', '.join(str(t.shape) for t, _ in wanted)}; legal are "
                f"{', '.join(str(n) for _, n in wanted)} axes"
            )

    def outer(self, other: Self) -> Self:
        """Each element of one vector times each of the other, (n, m).

        >>> Tensor([1, 2]).outer(Tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
        """
        self._of_ndim("outer", (self, 1), (other, 1))
        return self.unsqueeze(1) * other

    ger = outer

    def inner(self, other: Any) -> Self:
        """The sum of products over the last axis of both; a number multiplies.

        >>> Tensor([1, 2]).inner(Tensor([3, 4])).item()
        11
        """
        x = self._tensor(other)
        if not self.ndim or not x.ndim:
            return self * x
        if self.shape[-1] != x.shape[-1]:
            raise ShapeError(f"inner: {self.shape} and {x.shape}; legal are equal last axes")
        return self.tensordot(x, ([-1], [-1]))

    def convolve(self, other: Self, mode: str = "full") -> Self:
        """The convolution of two vectors, as NumPy's: what the product of two polynomials has as
        coefficients.

        Args:
            other: the other vector; n and m are their lengths.
            mode: "full" gives n + m - 1 numbers, "same" the middle max(n, m) of them, "valid" those
                where one lies in the other.

        >>> Tensor([1, 2]).convolve(Tensor([1, 3, 5])).tolist()
        [1, 5, 11, 10]
        """
        return self._convolved("convolve", other, mode)

    def correlate(self, other: Self, mode: str = "valid") -> Self:
        """The sums of products of one vector and the other, moved along it, as NumPy's; see
        `convolve`.

        >>> Tensor([1, 2, 3]).correlate(Tensor([0, 1])).tolist()
        [2, 3]
        """
        self._of_ndim("correlate", (self, 1), (other, 1))
        if mode == "same" and self.shape[0] < other.shape[0]:  # NumPy's middle is another one
            return other._convolved("correlate", self.flip(0), mode).flip(0)
        return self._convolved("correlate", other.flip(0), mode)

    def _convolved(self, operation: str, other: Self, mode: str) -> Self:
        check_choice(operation, "mode", mode, ("full", "same", "valid"))
        self._of_ndim(operation, (self, 1), (other, 1))
        if 0 in (*self.shape, *other.shape):
            raise ShapeError(f"{operation}: {self.shape}, {other.shape}; legal are elements")
        long, short = (self, other) if self.shape[0] >= other.shape[0] else (other, self)
        over = short.shape[0] - 1
        pads = {"full": (over, over), "same": (over - over // 2, over // 2), "valid": (0, 0)}
        taps = short.flip(0).reshape(1, 1, -1)
        return long.reshape(1, 1, -1).conv2d(taps, padding=pads[mode]).flatten()

    def polyval(self, x: Any) -> Self:
        """The polynomial with these coefficients, of the highest power first, at each element of x.

        >>> Tensor([1, 0, 2]).polyval(Tensor([0, 3])).tolist()
        [2, 11]
        """
        self._of_ndim("polyval", (self, 1))
        at = self._tensor(x)
        out = at.zeros_like(dtype=least_upper_dtype(self.dtype, at.dtype))
        for i in range(self.shape[0]):
            out = out * at + self[i]
        return out

    def vdot(self, other: Self) -> Self:
        """The sum of products of two vectors, the first conjugated.

        >>> Tensor([1, 2]).vdot(Tensor([3, 4])).item()
        11
        """
        self._of_ndim("vdot", (self, 1), (other, 1))
        return self.conj().dot(other)

    def cross(self, other: Self, dim: int | None = None) -> Self:
        """The vector product along an axis of size 3: the last unless `dim`.

        >>> Tensor([1, 0, 0]).cross(Tensor([0, 1, 0])).tolist()
        [0, 0, 1]
        """
        a, b = self._meet("cross", other)
        axis = axis_of(-1 if dim is None else dim, a.ndim, "cross")
        shapes = [self.shape, getattr(other, "shape", a.shape)]
        if not a.ndim or a.shape[axis] != 3 or any(x[axis - a.ndim :][:1] != (3,) for x in shapes):
            raise ShapeError(f"cross: axis {axis} of {shapes}; legal is an axis of size 3")
        return a.roll(-1, axis) * b.roll(-2, axis) - a.roll(-2, axis) * b.roll(-1, axis)

    def tensordot(self, other: Self, dims: int | Sequence[Sequence[int]] = 2) -> Self:
        """The sum of products over the last `dims` axes of this and the first of `other`, or over
        the axes in two lists.

        >>> Tensor.ones(2, 3, 4).tensordot(Tensor.ones(4, 3, 5), ([1, 2], [1, 0])).shape
        (2, 5)
        """
        if isinstance(dims, int):
            if not 0 <= dims <= min(self.ndim, other.ndim):
                raise ArgumentError(
                    f"tensordot: {dims} axes of {self.shape} and {other.shape}; "
                    "legal are as many as both have"
                )
            here, there = list(range(self.ndim - dims, self.ndim)), list(range(dims))
        elif len(dims) != 2:
            raise ArgumentError(f"tensordot: dims {dims}; legal are a number, or two lists of axes")
        else:
            here = [axis_of(d, self.ndim, "tensordot") for d in dims[0]]
            there = [axis_of(d, other.ndim, "tensordot") for d in dims[1]]
        summed = [self.shape[i] for i in here]
        if summed != [other.shape[i] for i in there]:
            raise ShapeError(
                f"tensordot: axes {here} of {self.shape} and {there} of {other.shape}; "
                "legal are as many, of equal sizes"
            )
        kept = [[i for i in range(t.ndim) if i not in d] for t, d in ((self, here), (other, there))]
        rows, columns = ([t.shape[i] for i in k] for t, k in zip((self, other), kept, strict=True))
        a = self.permute((*kept[0], *here)).reshape(prod(rows), prod(summed))
        b = other.permute((*there, *kept[1])).reshape(prod(summed), prod(columns))
        return a.dot(b).reshape((*rows, *columns))

    def kron(self, other: Self) -> Self:
        """Each element of this times the whole of `other`, side by side. (Kronecker's product.)

        >>> Tensor([[1, 2]]).kron(Tensor([[1], [3]])).tolist()
        [[1, 2], [3, 6]]
        """
        ndim = max(self.ndim, other.ndim)
        a, b = (t._with_axes(ndim) for t in (self, other))
        left = a.reshape(tuple(n for size in a.shape for n in (size, 1)))
        right = b.reshape(tuple(n for size in b.shape for n in (1, size)))
        return (left * right).reshape(tuple(n * m for n, m in zip(a.shape, b.shape, strict=True)))

    # ---- matrices --------------------------------------------------------------------------------

    def mm(self, mat2: Self) -> Self:
        """The product of two matrices, (n, k) @ (k, m).

        >>> Tensor([[1, 2]]).mm(Tensor([[3], [4]])).tolist()
        [[11]]
        """
        self._of_ndim("mm", (self, 2), (mat2, 2))
        return self.dot(mat2)

    def bmm(self, mat2: Self) -> Self:
        """The products of matrices in batches, (N, n, k) @ (N, k, m).

        >>> Tensor.ones(2, 3, 4).bmm(Tensor.ones(2, 4, 5)).shape
        (2, 3, 5)
        """
        self._of_ndim("bmm", (self, 3), (mat2, 3))
        if self.shape[0] != mat2.shape[0]:
            raise ShapeError(f"bmm: {self.shape} and {mat2.shape}; legal are equal batches")
        return self.dot(mat2)

    def mv(self, vec: Self) -> Self:
        """A matrix times a vector, (n, k) @ (k,).

        >>> Tensor([[1, 2], [3, 4]]).mv(Tensor([1, 1])).tolist()
        [3, 7]
        """
        self._of_ndim("mv", (self, 2), (vec, 1))
        return self.dot(vec)

    def _plus(self, product: Self, beta: float | Self, alpha: float | Self) -> Self:
        """beta · this + alpha · product; with beta 0 this isn't looked at."""
        scaled = product if alpha == 1 else product * alpha
        if beta == 0:
            kind = least_upper_dtype(self.dtype, product.dtype)
            return scaled.cast(kind)
        return (self if beta == 1 else self * beta) + scaled

    def addmm(
        self, mat1: Self, mat2: Self, beta: float | Self = 1, alpha: float | Self = 1
    ) -> Self:
        """beta · this + alpha · mat1 @ mat2.

        >>> Tensor([1, 1]).addmm(Tensor([[1, 2]]), Tensor([[1, 0], [0, 1]]), beta=2).tolist()
        [[3, 4]]
        """
        return self._plus(mat1.mm(mat2), beta, alpha)

    def addmv(self, mat: Self, vec: Self, beta: float | Self = 1, alpha: float | Self = 1) -> Self:
        """beta · this + alpha · mat @ vec.

        >>> Tensor([1.0]).addmv(Tensor([[2.0, 3.0]]), Tensor([1.0, 1.0])).tolist()
        [6.0]
        """
        return self._plus(mat.mv(vec), beta, alpha)

    def addr(self, vec1: Self, vec2: Self, beta: float | Self = 1, alpha: float | Self = 1) -> Self:
        """beta · this + alpha · the outer product of two vectors.

        >>> Tensor([[1.0]]).addr(Tensor([2.0]), Tensor([3.0])).tolist()
        [[7.0]]
        """
        return self._plus(vec1.outer(vec2), beta, alpha)

    def baddbmm(
        self, batch1: Self, batch2: Self, beta: float | Self = 1, alpha: float | Self = 1
    ) -> Self:
        """beta · this + alpha · the products of matrices in batches.

        >>> Tensor([[[1.0]]]).baddbmm(Tensor([[[2.0]]]), Tensor([[[3.0]]])).tolist()
        [[[7.0]]]
        """
        return self._plus(batch1.bmm(batch2), beta, alpha)

    def addbmm(
        self, batch1: Self, batch2: Self, beta: float | Self = 1, alpha: float | Self = 1
    ) -> Self:
        """beta · this + alpha · the sum of the products of matrices in batches.

        >>> Tensor([[1.0]]).addbmm(Tensor([[[2.0]]]), Tensor([[[3.0]]])).tolist()
        [[7.0]]
        """
        return self._plus(batch1.bmm(batch2).sum(0), beta, alpha)

    # ---- lengths ---------------------------------------------------------------------------------

    def norm(
        self,
        p: float | str | None = "fro",
        dim: Axis = None,
        keepdim: bool = False,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """(Σ|x|ᵖ)^(1/p) over `dim`: "fro" and None are 2, infinity is the largest, minus infinity
        the least, 0 how many are not zero; "nuc" is the sum of a matrix's singular values.

        ArgumentError for ±infinity of no elements.

        >>> Tensor([3.0, 4.0]).norm().item(), Tensor([3.0, -4.0]).norm(float("inf")).item()
        (5.0, 4.0)
        """
        kind = least_upper_float(self.dtype) if dtype is None else checked_dtype(dtype)
        inner = compute_dtype(kind)
        x = self.cast(inner)
        if isinstance(p, str) and p not in ("fro", "nuc"):
            raise ArgumentError(f"norm: order {p!r}; legal are numbers, fro and nuc")
        if p == "nuc":
            return x._nuclear(dim, keepdim).cast(kind)
        order = 2.0 if p is None or p == "fro" else float(p)
        return x._length(order, dim, keepdim).cast(kind)

    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divided by its p-norm along `dim`, which counts as at least `eps`.

        >>> Tensor([[3.0, 4.0]]).normalize().numpy().round(4)
        array([[0.6, 0.8]], dtype=float32)
        """
        return self / self.norm(p, dim, keepdim=True).maximum(eps)

    def _length(self, order: float, dim: Axis, keepdim: bool) -> Self:
        size = self.abs()
        if order < 1:  # where a power's gradient would be infinite, it is none
            size = size.eq(0).where(0, size)
        if math.isinf(order):
            return size.max(dim, keepdim) if order > 0 else size.min(dim, keepdim)
        if order == 0:
            return self.ne(0).cast(self.dtype).sum(dim, keepdim)
        if order == 1:
            return size.sum(dim, keepdim)
        total = (self.square() if order == 2 else size**order).sum(dim, keepdim)
        silent = total.eq(0)  # where a root's gradient would be infinite, it is none
        root = silent.where(1, total)
        root = root.sqrt() if order == 2 else root ** (1 / order)
        return silent.where(math.inf if order < 0 else 0, root)

    def _nuclear(self, dim: Axis, keepdim: bool) -> Self:
        axes = (0, 1) if dim is None and self.ndim == 2 else dim
        if not isinstance(axes, (tuple, list)) or len(axes) != 2:
            raise ShapeError(f"norm: nuc over {dim} of {self.shape}; legal are two axes")
        rows, columns = (axis_of(d, self.ndim, "norm") for d in axes)
        out = self.moveaxis((rows, columns), (-2, -1)).svd(False)[1].sum(-1)
        if not keepdim:
            return out
        return out.reshape(
            tuple(1 if i in (rows, columns) else n for i, n in enumerate(self.shape))
        )

    def dist(self, other: Any, p: float = 2.0) -> Self:
        """The `norm` of the difference.

        >>> Tensor([1.0, 2.0]).dist(Tensor([4.0, 6.0])).item()
        5.0
        """
        return self.sub(other).norm(p)

    def renorm(self, p: float, dim: int, maxnorm: float) -> Self:
        """Each slice along `dim` whose p-norm is above `maxnorm` made as long as that.

        >>> Tensor([[3.0, 4.0], [0.0, 1.0]]).renorm(2, 0, 1.0).round().tolist()
        [[1.0, 1.0], [0.0, 1.0]]
        """
        axis = axis_of(dim, self.ndim, "renorm")
        if self.ndim < 2 or not maxnorm >= 0 or not p > 0:
            raise ArgumentError(f"renorm: {self.shape}, p {p}, maxnorm {maxnorm}")
        length = self.norm(p, tuple(i for i in range(self.ndim) if i != axis), keepdim=True)
        return self * (length > maxnorm).where(maxnorm / (length + 1e-7), 1)

    def cdist(self, x2: Self, p: float = 2.0, compute_mode: str | None = None) -> Self:
        """The p-norm of each difference of rows of this (.., n, k) and `x2` (.., m, k): (.., n, m).
        Computed from the differences, whatever `compute_mode` says.

        >>> Tensor([[0.0, 0.0]]).cdist(Tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[5.0, 1.0]]
        """
        if self.ndim < 2 or x2.ndim < 2 or self.shape[-1] != x2.shape[-1]:
            raise ShapeError(
                f"cdist: {self.shape} and {x2.shape}; legal are (.., n, k), (.., m, k)"
            )
        check_number_from("cdist", "p", p, 0)
        return (self.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)
