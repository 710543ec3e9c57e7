"""Complex numbers, seen from real ones: how pairs of floats become them, and what has a meaning
for both kinds. What computes with them is `complex`, at the top of the staircase.
"""

from __future__ import annotations

import math
from typing import Any, Self

from tinygrad.base.dtype import dtypes, least_upper_float
from tinygrad.base.errors import DTypeError, ShapeError
from tinygrad.tensor.learning import Learning
from tinygrad.tensor.shapes import axis_of, check_axes


class Pairs(Learning):
    """Real and imaginary parts."""

    __slots__ = ()

    def is_complex(self) -> bool:
        """Whether the dtype is complex.

        >>> Tensor([1j]).is_complex(), Tensor([1.0]).is_complex()
        (True, False)
        """
        return bool(self._element)

    def view_as_complex(self) -> Any:
        """Complex numbers of a last axis of size 2, the real parts first: the same memory.

        >>> Tensor([[1.0, 2.0]]).view_as_complex().tolist()
        [(1+2j)]
        """
        if self.dtype not in (dtypes.float32, dtypes.float64):
            raise DTypeError(f"view_as_complex: {self.dtype!r}; legal are float32 and float64")
        if not self.ndim or self.shape[-1] != 2:
            raise ShapeError(f"view_as_complex: {self.shape}; legal is a last axis of size 2")
        made = self._complex.of(self._node)
        made.requires_grad, made._taped = self.requires_grad, self.requires_grad is True
        made._join(self)
        return made

    def view_as_real(self) -> Any:
        """The real and imaginary parts of complex numbers as a last axis: the same memory.

        >>> Tensor([1 + 2j]).view_as_real().tolist()
        [[1.0, 2.0]]
        """
        raise DTypeError(f"view_as_real: {self.dtype!r}; legal are complex numbers")

    @classmethod
    def complex(cls, real: Self, imag: Self) -> Any:
        """Complex numbers of their parts, two tensors of floats.

        >>> Tensor.complex(Tensor([1.0]), Tensor([2.0])).tolist()
        [(1+2j)]
        """
        return cls._complex.joined(real, imag)

    @classmethod
    def polar(cls, abs: Self, angle: Self) -> Any:  # noqa: A002
        """Complex numbers of their sizes and angles in radians.

        >>> Tensor.polar(Tensor([2.0]), Tensor([0.0])).tolist()
        [(2+0j)]
        """
        return cls._complex.joined(abs * angle.cos(), abs * angle.sin())

    # ---- what real numbers have too --------------------------------------------------------------

    @property
    def real(self) -> Any:
        """The real parts; of real numbers, themselves.

        >>> Tensor([1 + 2j]).real.tolist()
        [1.0]
        """
        return self

    @property
    def imag(self) -> Any:
        """The imaginary parts. DTypeError for real numbers.

        >>> Tensor([1 + 2j]).imag.tolist()
        [2.0]
        """
        raise DTypeError(f"imag: of {self.dtype!r}; legal are complex numbers")

    def conj(self) -> Self:
        """With the opposite imaginary part; of real numbers, themselves.

        >>> Tensor([1 + 2j]).conj().tolist()
        [(1-2j)]
        """
        return self

    def angle(self) -> Any:
        """The angle in radians, from -pi to pi; of real numbers 0 or pi.

        >>> Tensor([-1.0, 1.0]).angle().tolist()
        [3.1415927410125732, 0.0]
        """
        x = self.cast(least_upper_float(self.dtype))
        return x.isnan().where(x, (x < 0).where(math.pi, x.zeros_like()))

    def sgn(self) -> Self:
        """-1, 0 or 1; of a complex number itself over its size, 0 of 0.

        >>> Tensor([3 + 4j]).sgn().tolist()[0].imag
        0.800000011920929
        """
        return self.sign()

    @property
    def mH(self) -> Self:  # noqa: N802
        """The conjugates, with the last two axes exchanged.

        >>> Tensor([[1j, 2.0]]).mH.tolist()
        [[-1j], [(2-0j)]]
        """
        check_axes("mH", self, 2)
        return self.transpose(-2, -1).conj()

    @property
    def H(self) -> Self:  # noqa: N802
        """The same as `mH`, of a matrix.

        >>> Tensor([[1, 2], [3, 4]]).H.tolist()
        [[1, 3], [2, 4]]
        """
        if self.ndim not in (0, 2):
            raise ShapeError(f"H: {self.shape}; legal is a matrix; use mH for batches")
        return self.mH if self.ndim else self.conj()

    def vecdot(self, other: Self, dim: int = -1) -> Self:
        """The sum of conj(this) * other along `dim`.

        >>> Tensor([[1.0, 2.0]]).vecdot(Tensor([[3.0, 4.0]])).tolist()
        [11.0]
        """
        product = self.conj() * other
        return product.sum(axis_of(dim, product.ndim, "vecdot"))
