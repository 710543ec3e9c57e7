"""Tensors of complex numbers: below them there are only pairs of floats.

A complex tensor of shape S holds a node of shape S + (2,), the real part first, which is how NumPy,
PyTorch and files lay complex numbers out. So the compiler has no complex dtype, gradients are those
of the parts (dL/d re + i·dL/d im, PyTorch's convention), and jit, devices and assignment need to
know nothing. What moves elements works on `_held`, the node with that axis; what computes with
numbers asks for `_node`, which is refused here. So every method of the staircase either moves, or
has its complex form in this file, or is made of such, or is an error that names it.

Python's and C99's rule for a real number beside a complex one holds: it has no imaginary part, so
`inf * (1 + 0j)` is `inf + 0j`, not NaN.
"""

# ruff: noqa: D102  a method means what it means for real numbers

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import COMPLEX_PARTS, DType, complex_of, dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.engine.realize import read
from tinygrad.engine.sharing import Loan
from tinygrad.tensor.complex import functions
from tinygrad.tensor.core import Core
from tinygrad.tensor.creation import (
    DTypeLike,
    as_numpy,
    checked_dtype,
    nested_shape,
    parts_of_number,
)
from tinygrad.tensor.dlpack import Strided
from tinygrad.tensor.elementwise import Number, is_complex
from tinygrad.tensor.origin import PACKAGE
from tinygrad.tensor.reduction import spread_over
from tinygrad.tensor.shapes import Shape, axis_of
from tinygrad.tensor.spellings import turn
from tinygrad.tensor.tensor import Tensor
from tinygrad.uop import Ops, UOp

# what would go through, and means nothing
REFUSED = ("trunc", "floor", "ceil", "round", "layernorm", "cov", "corrcoef")
# functions around methods, and inside them
_WRAPPERS = {"widened", "remembered", "spelling", "method", "turned_method", "__get__"}
_WRAPPERS |= {"<lambda>", "<genexpr>", "<listcomp>"}


def _operation(name: str) -> str:
    """The method of a tensor that the user called; `name` where no frame says."""
    frame = sys._getframe(2)
    folder = PACKAGE + "tensor"
    while frame is not None and frame.f_code.co_filename.startswith(folder):
        if frame.f_code.co_name not in _WRAPPERS:
            name = frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return name


def _by_parts(function: Callable[..., functions.Pair]) -> Callable[..., Any]:
    """The method that makes both parts of its result of both parts of a tensor."""

    def method(self: Complex) -> Any:
        return self.joined(*function(*self._parts()))

    return method


def _refused(name: str) -> Callable[..., Any]:
    def method(self: Complex, *_: Any, **__: Any) -> Any:
        raise self._meaningless(name)

    return method


class Complex(Tensor):
    """A tensor of complex64 or complex128; `Tensor(...)` of complex numbers makes one."""

    __slots__ = ()
    _element = (2,)

    def __init__(
        self,
        data: Any,
        device: Any = None,
        dtype: DTypeLike | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        kind = complex_of(dtypes.default_float) if dtype is None else checked_dtype(dtype)
        if isinstance(data, (list, tuple)) and not any(hasattr(x, "__array__") for x in data):
            nested_shape(data)  # ragged lists are told
        if isinstance(data, complex):
            made: Any = self.full((), data, dtype=kind, device=device)
        elif isinstance(data, Tensor):
            made = (data if device is None else data.to(device)).cast(kind)
        elif not _numeric(data):
            made = Tensor(data, device).cast(kind)
        else:
            values = as_numpy(data)
            if dtype is None and values.dtype == np.complex128 and hasattr(data, "dtype"):
                kind = dtypes.complex128
            values = values.astype(kind.name)
            pairs = np.stack((values.real, values.imag), -1)
            made = Tensor(pairs, device).view_as_complex()
        self._set(made._held, requires_grad)

    # ---- the pair --------------------------------------------------------------------------------

    @classmethod
    def _wrap(cls, node: UOp, requires_grad: bool | None = None) -> Any:
        return Tensor._wrap(node, requires_grad)  # what doesn't say otherwise is no complex number

    @classmethod
    def of(cls, node: UOp, wants_gradient: bool | None = None) -> Self:
        return super()._wrap(node, wants_gradient)

    def _from(self, node: UOp, *others: Core) -> Any:
        return self.view_as_real()._from(node, *others).view_as_complex()

    @property
    def _node(self) -> UOp:
        raise self._meaningless()

    def _meaningless(self, name: str = "this") -> DTypeError:
        name = _operation(name)
        return DTypeError(
            f"{name}: of {self.dtype!r}; complex numbers have no {name}; legal are real numbers: "
            "use .real, .imag, .abs() or .view_as_real()"
        )

    @property
    def shape(self) -> Shape:
        return self._uop.shape[:-1]

    @property
    def dtype(self) -> DType:
        return complex_of(self._uop.dtype)

    def view_as_real(self) -> Tensor:
        made = Tensor._wrap(self._held, self.requires_grad)
        made._taped = self.requires_grad is True
        made._join(self)
        return made

    def _lend(self, operation: str, copy: bool | None) -> tuple[Loan, Strided]:
        pairs = self.view_as_real()
        loan, view = pairs._lend(operation, copy)
        found = view.as_complex()
        if found is None and copy is False:
            raise BufferError(f"{operation}: the parts of {self!r} lie apart; legal is a copy")
        if found is None:
            loan, view = pairs._lend(operation, True)
            found = view.as_complex()
            assert found is not None, "a copy lies side by side"
        return loan, found

    def view_as_complex(self) -> Self:
        raise DTypeError(f"view_as_complex: of {self.dtype!r}; legal are floats")

    @classmethod
    def joined(cls, real: Tensor, imag: Tensor | None) -> Any:
        """Complex numbers of two tensors of floats; without `imag` it is 0."""
        if imag is None:
            return real.unsqueeze(-1).pad((0, 1)).view_as_complex()
        a, b = real._meet("complex", imag)
        return a.stack(b, dim=-1).view_as_complex()

    @property
    def real(self) -> Tensor:
        return self.view_as_real()._cut(self.ndim, 0, 1).reshape(self.shape)

    @property
    def imag(self) -> Tensor:
        return self.view_as_real()._cut(self.ndim, 1, 2).reshape(self.shape)

    def _parts(self, other: Any = None) -> tuple[Any, Any]:
        """The real and imaginary part of this, or of an operand: tensors or numbers; an imaginary
        part of None is none at all."""
        x = self if other is None else other
        if isinstance(x, Number):
            return x, None
        if isinstance(x, complex):
            return x.real, x.imag
        x = self._tensor(x)
        return (x.real, x.imag) if is_complex(x) else (x, None)

    # ---- as what, where --------------------------------------------------------------------------

    def cast(self, dtype: DTypeLike) -> Any:
        kind = checked_dtype(dtype)
        if kind in COMPLEX_PARTS:
            same = kind is self.dtype
            return self if same else self.view_as_real().cast(COMPLEX_PARTS[kind]).view_as_complex()
        if kind is dtypes.bool:
            return self.ne(0)
        raise DTypeError(
            f"{_operation('cast')}: {self.dtype!r} to {kind!r} would lose the imaginary part; "
            "legal are complex dtypes and bool; use .real or .abs()"
        )

    def _to_complex(self, kind: DType) -> Self:
        return self.cast(kind)  # type: ignore[no-any-return]

    def _tensor(self, other: Any, dtype: DType | None = None) -> Any:
        if isinstance(other, Number) and (dtype is None or dtype in COMPLEX_PARTS):
            return self.full((), other, dtype=dtype or self.dtype, device=self.device)
        return super()._tensor(other, dtype)

    def const_like(self, value: Any, dtype: Any = None) -> Any:
        return self.full_like(value, dtype)

    def _read(self) -> NDArray[Any]:
        pairs = np.ascontiguousarray(read(self._held))
        return pairs.view(self.dtype.name).reshape(self.shape)

    def pad(self, padding: Any, mode: str = "constant", value: Any = 0) -> Any:
        if mode != "constant" or value == 0:
            return inspect.unwrap(Tensor.pad)(self, padding, mode)
        parts = zip((self.real, self.imag), parts_of_number(value), strict=True)
        return self.joined(*(part.pad(padding, mode, number) for part, number in parts))

    # ---- arithmetic ------------------------------------------------------------------------------

    def _binary(self, op: Ops, other: Any, reverse: bool = False) -> Any:
        if op is Ops.ADD:
            return self._plus_complex(other)
        if op is Ops.MUL:
            return self._times_complex(other)
        raise self._meaningless()

    def _plus_complex(self, other: Any) -> Any:
        if isinstance(other, Complex):
            return (self.view_as_real() + other.view_as_real()).view_as_complex()
        (a, b), (c, d) = self._parts(), self._parts(other)
        return self.joined(*(a + c)._meet("add", b if d is None else b + d))

    def _times_complex(self, other: Any) -> Any:
        c, d = self._parts(other)
        if d is None:
            factor = c if isinstance(c, Number) else c.unsqueeze(-1)
            return (self.view_as_real() * factor).view_as_complex()
        a, b = self._parts()
        return self.joined(a * c - b * d, a * d + b * c)

    def sub(self, x: Any, reverse: bool = False, *, alpha: float = 1) -> Any:
        if alpha != 1:
            return self.sub(self._tensor(x) * alpha, reverse)
        return self.neg().add(x) if reverse else self.add(-(x if _number(x) else self._tensor(x)))

    def neg(self) -> Any:
        return (-self.view_as_real()).view_as_complex()

    def div(self, x: Any, reverse: bool = False, rounding_mode: str | None = None) -> Any:
        if rounding_mode is not None:
            raise ArgumentError(f"div: rounding_mode {rounding_mode!r} of {self.dtype!r}; no legal")
        if reverse:
            return self.reciprocal() * x
        c, d = self._parts(x)
        if d is None:
            divisor = c if isinstance(c, Number) else c.unsqueeze(-1)
            return (self.view_as_real() / divisor).view_as_complex()
        return self.joined(*functions.quotient(*self._parts(), *functions.tensors(self, c, d)))

    def reciprocal(self) -> Any:
        one = self.real.ones_like()
        return self.joined(*functions.quotient(one, one.zeros_like(), *self._parts()))

    def pow(self, x: Any, reverse: bool = False) -> Any:
        if reverse:
            return self._tensor(x).cast(self.dtype).pow(self)
        if isinstance(x, Number):
            if float(x).is_integer() and abs(x) <= 64:
                power = self._multiplied(abs(int(x)))
                return power if x >= 0 else power.reciprocal()
            if x == 0.5:
                return self.sqrt()
        zero = self.eq(0)
        safe = zero.where(1.0, self)
        power = (safe.log() * x).exp()
        exponent = self._tensor(x)
        return zero.where(exponent.eq(0).where(1.0, power.zeros_like()), power)

    def _multiplied(self, times: int) -> Any:
        return super()._multiplied(times) if times else self.ones_like()

    def _compare(self, op: Ops, x: Any, reverse: bool = False) -> Any:
        if op not in (Ops.CMPEQ, Ops.CMPNE):
            raise self._meaningless()
        (a, b), (c, d) = self._parts(), self._parts(x)
        one, other = a._compare(op, c), b._compare(op, 0 if d is None else d)
        return one & other if op is Ops.CMPEQ else one | other

    def isclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Any:
        other = self._tensor(other)
        near = self.isfinite() & other.isfinite()
        near = near & ((self - other).abs() <= other.abs() * rtol + atol)
        return self.eq(other) | near | (self.isnan() & other.isnan() & equal_nan)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Any:
        return self.real.isinf() | self.imag.isinf()

    def logical_not(self) -> Any:
        return self.eq(0)

    @classmethod
    def chosen(cls, mask: Tensor, x: Any, y: Any) -> Any:
        """`x` where the mask is true, else `y`; one of them, or both, are complex."""
        like = x if isinstance(x, Complex) else y
        if not isinstance(like, Complex):
            like = Complex(like, mask.device)
        one, other = (like._tensor(like.const_like(v) if _number(v) else v) for v in (x, y))
        kind = least_upper_dtype(one.dtype, other.dtype)
        yes, no = (v.cast(kind).view_as_real() for v in (one, other))
        chosen = mask.unsqueeze(-1).where(yes, no)
        return chosen.view_as_complex()

    # ---- parts and functions ---------------------------------------------------------------------

    def conj(self) -> Any:
        return self.joined(self.real, -self.imag)

    def abs(self) -> Any:
        return functions.size(*self._parts())

    def angle(self) -> Any:
        return functions.angle(*self._parts())

    def sgn(self) -> Any:
        size = self.abs()
        return self / size.eq(0).where(1, size)

    sqrt = _by_parts(functions.sqrt)
    exp = _by_parts(functions.exp)
    expm1 = _by_parts(functions.expm1)
    log = _by_parts(functions.log)
    log1p = _by_parts(functions.log1p)
    sin = _by_parts(functions.sin)
    cos = _by_parts(functions.cos)
    tan = _by_parts(functions.tan)
    asin = _by_parts(functions.asin)
    acos = _by_parts(functions.acos)
    acosh = _by_parts(functions.acosh)
    atanh = _by_parts(functions.atanh)

    def exp2(self) -> Any:
        return (self * math.log(2)).exp()

    def log2(self) -> Any:
        return self.log() / math.log(2)

    def log10(self) -> Any:
        return self.log() / math.log(10)

    def atan(self) -> Any:
        return (self * 1j).atanh() * -1j

    def sinh(self) -> Any:
        return (self * 1j).sin() * -1j

    def cosh(self) -> Any:
        return (self * 1j).cos()

    def tanh(self) -> Any:
        return (self * 1j).tan() * -1j

    def asinh(self) -> Any:
        return (self * 1j).asin() * -1j

    def sigmoid(self) -> Any:
        return ((-self).exp() + 1).reciprocal()

    # ---- many to one -----------------------------------------------------------------------------

    def _reduce(self, monoid: str, axis: Any, keepdim: bool) -> Any:
        if monoid == "max":
            raise self._meaningless()
        axes = self._axes(axis, monoid)
        if monoid == "add":
            return self.view_as_real()._reduce(monoid, axes, keepdim).view_as_complex()
        kept = tuple(1 if i in axes else n for i, n in enumerate(self.shape))
        rest = tuple(i for i in range(self.ndim) if i not in axes)
        lined = self.permute((*rest, *axes)).reshape((*(self.shape[i] for i in rest), -1))
        out = _product(lined)._copied(self)
        return out.reshape(kept) if keepdim else out

    def _accumulated(self, monoid: str, axis: Any, keepdim: bool, dtype: Any) -> Any:
        return (self if dtype is None else self.cast(dtype))._reduce(monoid, axis, keepdim)

    def var_mean(self, axis: Any = None, keepdim: bool = False, correction: Any = None) -> Any:
        axis, correction = spread_over(axis, correction)
        spread = sum(part.var(axis, keepdim, correction) for part in self._parts())
        return spread, self.mean(axis, keepdim)

    def cumsum(self, axis: int = 0, dtype: Any = None) -> Any:
        at, x = axis_of(axis, self.ndim, "cumsum"), self if dtype is None else self.cast(dtype)
        return x.view_as_real().cumsum(at).view_as_complex() if self.ndim else x._copied(self)

    def cumprod(self, axis: int = 0, dtype: Any = None) -> Any:
        at, out = axis_of(axis, self.ndim, "cumprod"), self if dtype is None else self.cast(dtype)
        step, size = 1, self.shape[at] if self.ndim else 1
        while step < size:  # element i holds the product of the last 2*step: of i and of i - step
            pads = tuple((step, -step) if i == at else (0, 0) for i in range(self.ndim))
            out, step = out * out.pad(pads, value=1), step * 2
        return out._copied(self)

    def norm(
        self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Any:
        if p == "nuc":
            return self._nuclear(dim, keepdim)
        return self.abs().norm(p, dim, keepdim, dtype)

    # ---- products --------------------------------------------------------------------------------

    def _inner(self, other: Any, axes: tuple[int, ...], dtype: Any) -> Any:
        (a, b), (c, d) = self._parts(), self._parts(other)
        parts = [x._inner(c, axes, None) for x in (a, b)]
        if d is not None:
            parts[0] = parts[0] - b._inner(d, axes, None)
            parts[1] = parts[1] + a._inner(d, axes, None)
        out = self.joined(*parts)
        return out if dtype is None else out.cast(dtype)

    def _rows_by_columns(self, b: Any, dtype: Any) -> Any:
        """(.., m, k) times (.., k, n) as one product of real matrices, which lie in memory as they
        are: rows of 2k floats times 2k rows of 2n, where pair k of rows is b's row and i times it.
        """
        if not isinstance(b, Complex):
            out = self.joined(*(part._rows_by_columns(b, None) for part in self._parts()))
        else:
            left = self.view_as_real().flatten(-2)  # (.., m, 2k)
            both = b.stack(b * 1j, dim=-2).view_as_real()  # (.., k, 2, n, 2)
            *lead, k, _, n, _ = both.shape
            right = both.reshape((*lead, 2 * k, 2 * n))
            kinds = least_upper_dtype(left.dtype, right.dtype)
            pairs = left.cast(kinds)._rows_by_columns(right.cast(kinds), None)
            out = pairs.unflatten(-1, (-1, 2)).view_as_complex()
        return out if dtype is None else out.cast(dtype)


for _name in REFUSED:
    setattr(Complex, _name, _refused(_name))
turn(Complex)


def _number(x: Any) -> bool:
    """Whether `x` is a Python number."""
    return isinstance(x, (complex, *Number))


def _numeric(data: Any) -> bool:
    return isinstance(data, (list, tuple)) or hasattr(data, "__array__")


def _product(x: Any) -> Any:
    """The product along the last axis, by halves, so that it and its gradient are exact at 0."""
    size = x.shape[-1]
    if size == 0:
        return x.ones(*x.shape[:-1], dtype=x.dtype, device=x.device)
    while size > 1:
        half = size // 2
        out = x._cut(x.ndim - 1, 0, half) * x._cut(x.ndim - 1, half, 2 * half)
        x = out.cat(x._cut(x.ndim - 1, 2 * half, size), dim=-1) if size % 2 else out
        size = x.shape[-1]
    return x.reshape(x.shape[:-1])


# Lower floors make complex tensors, and from one of them real ones, without seeing this file.
Core._complex, Core._real = Complex, Tensor
