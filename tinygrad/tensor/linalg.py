"""Products of matrices: matmul, einsum, linear layers, triangles."""

from __future__ import annotations

from typing import Any, Self

from tinygrad.base.dtype import compute_dtype, least_upper_dtype, sum_acc_dtype
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor.arguments import check_types
from tinygrad.tensor.creation import DTypeLike, checked_dtype
from tinygrad.tensor.elementwise import is_complex
from tinygrad.tensor.reduction import Reduction
from tinygrad.tensor.shapes import broadcast_shape, check_axes, check_devices
from tinygrad.tensor.template import expression, expressions, small
from tinygrad.uop.op import Ops


@expressions
class Linalg(Reduction):
    """What sums over products."""

    __slots__ = ()

    @small
    def _inner(self, other: Self, axes: tuple[int, ...], dtype: DTypeLike | None) -> Self:
        """The sum of self * other over `axes`, in a type wide enough for it.

        Factors of a narrow type are widened before they are multiplied, so that only the result
        is rounded.
        """
        if is_complex(other):
            return self._promoted(other)._inner(other, axes, dtype)  # type: ignore[no-any-return]
        out = least_upper_dtype(self.dtype, other.dtype) if dtype is None else checked_dtype(dtype)
        wide = compute_dtype(sum_acc_dtype(out))
        return (self.cast(wide) * other.cast(wide))._reduce("add", axes, False).cast(out)

    @expression
    def dot(self, w: Any, dtype: DTypeLike | None = None) -> Self:
        """The matrix product: over the last axis of this and the last but one of `w`; a vector
        counts as a row on the left, as a column on the right; all axes before are batches.

        ShapeError unless the sizes that meet are equal.

        >>> (Tensor([[1, 2], [3, 4]]) @ Tensor([1, 1])).tolist()
        [3, 7]
        """
        other = self._tensor(w)
        if not self.ndim or not other.ndim:
            raise ShapeError(f"matmul: {self.shape} @ {other.shape}; legal is one axis or more")
        row, column = self.ndim == 1, other.ndim == 1
        a = self.unsqueeze(0) if row else self
        b = other.unsqueeze(1) if column else other
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"matmul: {self.shape} @ {other.shape}: the last axis of the first has size "
                f"{a.shape[-1]}, axis {0 if column else -2} of the second has {b.shape[-2]}; "
                "legal are equal sizes"
            )
        check_devices("matmul", a, b)
        broadcast_shape("matmul", a.shape[:-2], b.shape[:-2])
        out: Self = a._rows_by_columns(b, dtype)
        if row:
            out = out.squeeze(-2)
        return out.squeeze(-1) if column else out

    def _rows_by_columns(self, b: Any, dtype: DTypeLike | None) -> Any:
        """(.., m, k) times (.., k, n). The products are laid out as the factors lie in memory, so
        that a gradient, which sums over another of their axes, lies there like its factor."""
        if is_complex(b):  # its rows hold pairs, of which each is multiplied by the same number
            pairs = self._rows_by_columns(b.view_as_real().flatten(-2), dtype)
            return pairs.unflatten(-1, (-1, 2)).view_as_complex()
        if b._is_transposed:  # (.., m, 1, k) * (.., 1, n, k)
            left, right, summed = self.unsqueeze(-2), b.transpose(-1, -2).unsqueeze(-3), 1
        elif self._is_transposed:  # (.., k, m, 1) * (.., k, 1, n)
            left, right, summed = self.transpose(-1, -2).unsqueeze(-1), b.unsqueeze(-2), 3
        else:  # (.., m, k, 1) * (.., 1, k, n)
            left, right, summed = self.unsqueeze(-1), b.unsqueeze(-3), 2
        return left._inner(right, (max(left.ndim, right.ndim) - summed,), dtype)

    @property
    def _is_transposed(self) -> bool:
        """Whether this is a view that swaps the last two axes of another tensor."""
        order, n = self.uop.arg, self.ndim
        return self.uop.op is Ops.PERMUTE and order[-2:] == (n - 1, n - 2)

    def matmul(self, x: Any, reverse: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The matrix product; see `dot`.

        >>> Tensor.ones(2, 3).matmul(Tensor.ones(3, 4)).shape
        (2, 4)
        """
        return self._tensor(x).dot(self, dtype) if reverse else self.dot(x, dtype)

    def __matmul__(self, x: Any) -> Self:
        return self.matmul(x)

    def __rmatmul__(self, x: Any) -> Self:
        return self.matmul(x, True)

    @expression
    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DTypeLike | None = None
    ) -> Self:
        """self @ weight + bias; a weight of one axis multiplies.

        >>> Tensor([[1.0, 2.0]]).linear(Tensor([[1.0], [1.0]]), Tensor([0.5])).tolist()
        [[3.5]]
        """
        if dtype is not None:
            bias = None if bias is None else bias.cast(dtype)
            return self.cast(dtype).linear(weight.cast(dtype), bias)
        out = self * weight if weight.ndim == 1 else self.dot(weight)
        return out if bias is None else out + bias

    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DTypeLike | None = None) -> Self:
        """Sums over products, by letters: each axis has one, and what isn't in the result is
        summed. `...` stands for batch axes.

        >>> Tensor.einsum("ij,jk->ik", Tensor([[1, 2]]), Tensor([[3], [4]])).tolist()
        [[11]]
        """
        xs = list(operands[0] if operands and isinstance(operands[0], (tuple, list)) else operands)
        check_types(f"einsum: {formula!r}", xs, Linalg, "tensors", ArgumentError)
        inputs, output = _letters(formula, xs)
        out_type = dtype or least_upper_dtype(*(x.dtype for x in xs))
        done, letters = xs[0], inputs[0]
        done, letters = _diagonals(done, letters)
        for i, (x, names) in enumerate(zip(xs[1:], inputs[1:], strict=True), start=1):
            x, names = _diagonals(x, names)
            later = set(output).union(*inputs[i + 1 :])
            every = _merged(letters, names)
            in_a_row = iter([c for c in output if c in every])  # as the result is stored
            every = "".join(next(in_a_row) if c in output else c for c in every)
            closed = tuple(k for k, c in enumerate(every) if c not in later)
            a, b = _lined(done, letters, every), _lined(x, names, every)
            _check_sizes(formula, every, a, b)
            done = a._inner(b, closed, dtype or least_upper_dtype(a.dtype, b.dtype))
            letters = "".join(c for c in every if c in later)
        rest = tuple(k for k, c in enumerate(letters) if c not in output)
        if rest:
            done = done.sum(rest, dtype=dtype)
            letters = "".join(c for c in letters if c in output)
        out: Self = done.permute(tuple(letters.index(c) for c in output)).cast(out_type)
        return out

    # ---- triangles -------------------------------------------------------------------------------

    def _lower(self, diagonal: int) -> Self:
        """Where the column is at most the row plus `diagonal`."""
        check_axes("triu and tril", self, 2)
        diagonal = max(-_FAR, min(diagonal, _FAR))
        down = self._counting(self.shape[-2], self.device).unsqueeze(1)
        return self._counting(self.shape[-1], self.device) < down + (diagonal + 1)

    def tril(self, diagonal: int = 0) -> Self:
        """The lower triangle, zeros above.

        >>> Tensor([[1, 2], [3, 4]]).tril().tolist()
        [[1, 0], [3, 4]]
        """
        zero = self._tensor(0, self.dtype)
        return self if 0 in self.shape else self._lower(diagonal).where(self, zero)

    def triu(self, diagonal: int = 0) -> Self:
        """The upper triangle, zeros below.

        >>> Tensor([[1, 2], [3, 4]]).triu().tolist()
        [[1, 2], [0, 4]]
        """
        zero = self._tensor(0, self.dtype)
        return self if 0 in self.shape else self._lower(diagonal - 1).where(zero, self)


_FAR = 1 << 30  # further than any axis is long
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _letters(formula: str, xs: list[Any]) -> tuple[list[str], str]:
    """The letters of each operand and of the result, with those that `...` stands for."""
    left, arrow, right = formula.replace(" ", "").partition("->")
    inputs = left.split(",")
    wrong = [c for c in (left + right).replace("...", "").replace(",", "") if c not in LETTERS]
    if wrong or "," in right:
        raise ArgumentError(
            f"einsum: {formula!r}: {wrong[0] if wrong else ','!r} names no axis; legal are "
            "letters, ... and , between operands"
        )
    if len(inputs) != len(xs):
        raise ArgumentError(
            f"einsum: {formula!r} names {len(inputs)} operands, {len(xs)} given; legal are as many"
        )
    spare = [c for c in LETTERS if c not in formula]
    counts = [x.ndim - len(names.replace("...", "")) for x, names in zip(xs, inputs, strict=True)]
    dots = max((n for n, names in zip(counts, inputs, strict=True) if "..." in names), default=0)
    batch = "".join(spare[:dots])
    if not arrow:
        once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    inputs = [
        names.replace("...", batch[dots - n :] if n else "")
        for names, n in zip(inputs, counts, strict=True)
    ]
    for names, x in zip(inputs, xs, strict=True):
        if len(names) != x.ndim:
            raise ShapeError(
                f"einsum: {formula!r} names {len(names)} axes of {x.shape}; legal is each"
            )
    output = right.replace("...", batch)
    if unknown := set(output) - set("".join(inputs)):
        raise ArgumentError(
            f"einsum: {formula!r}: {sorted(unknown)} stand in no operand; legal are letters that do"
        )
    return inputs, output


def _diagonals(x: Any, names: str) -> tuple[Any, str]:
    """Axes of the same letter become their diagonal, as the last axis."""
    for c in dict.fromkeys(names):
        while names.count(c) > 1:
            first = names.index(c)
            second = names.index(c, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeError(f"einsum: {c!r} twice, of sizes {x.shape}; legal is one size")
            x, *_ = x._diagonal(0, first, second)
            names = names[:first] + names[first + 1 : second] + names[second + 1 :] + c
    return x, names


def _merged(one: str, other: str) -> str:
    """The letters of both in an order that each of them has, if there is one: so gradients, sums
    over what a factor lacks, lie like the factor."""
    every, at = one, len(one)
    for c in reversed(other):
        at = every.index(c) if c in every else at
        every = every if c in every else every[:at] + c + every[at:]
    return every


def _lined(x: Any, names: str, every: str) -> Any:
    """The axes of `x` in the order of `every`, of size 1 where it has none."""
    present = [c for c in every if c in names]
    moved = x.permute(tuple(names.index(c) for c in present))
    sizes = dict(zip(present, moved.shape, strict=True))
    return moved.reshape(tuple(sizes.get(c, 1) for c in every))


def _check_sizes(formula: str, every: str, a: Any, b: Any) -> None:
    for c, n, m in zip(every, a.shape, b.shape, strict=True):
        if n != m and 1 not in (n, m):
            raise ShapeError(f"einsum: {formula!r}: {c} has sizes {n} and {m}; legal is one size")
