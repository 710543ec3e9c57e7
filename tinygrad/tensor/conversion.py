"""The same elements as another dtype, in a buffer of their own, or without their gradient."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Self

from tinygrad.backends import keeps
from tinygrad.base.dtype import COMPLEX_PARTS, DType, dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.engine.keeping import recast
from tinygrad.engine.turns import keeping, turns
from tinygrad.tensor.creation import Creation, DTypeLike, checked_dtype
from tinygrad.tensor.template import small
from tinygrad.uop.node import UOp

WORDS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


class Conversion(Creation):
    """Other dtypes, copies, and where gradients end."""

    __slots__ = ()

    @small
    def cast(self, dtype: DTypeLike) -> Self:
        """Converted: integers wrap, floats round, float to integer saturates (NaN gives 0).

        >>> Tensor([1.9, -1.9]).cast("int").tolist()
        [1, -1]
        """
        kind = checked_dtype(dtype)
        if kind is self.dtype:
            return self
        if kind in COMPLEX_PARTS:
            return self.cast(COMPLEX_PARTS[kind])._to_complex(kind)
        made = self._node.cast(kind)
        if self.requires_grad is True and not (dtypes.is_float(self.dtype) or self._element):
            return self._wrap(made, False)  # whole numbers pass no gradient
        return self._from(made)

    def bitcast(self, dtype: DTypeLike) -> Self:
        """The same bits as another dtype. If its size is another, so is the last axis' size. On
        DISK and NPY nothing is copied.

        >>> Tensor([1.0]).bitcast("int").tolist()
        [1065353216]
        >>> Tensor([[0, 0, 128, 63]], dtype="uint8").bitcast("float").tolist()
        [[1.0]]
        """
        kind, old = checked_dtype(dtype), self.dtype
        if kind is old:
            return self
        shape = self.shape
        if kind.itemsize != old.itemsize:
            nbytes = shape[-1] * old.itemsize if shape else old.itemsize
            if not shape or nbytes % kind.itemsize:
                raise DTypeError(
                    f"bitcast: {old!r} has {old.itemsize} bytes, {kind!r} has {kind.itemsize}, the "
                    f"last axis of {shape} {nbytes}; legal are dtypes whose size divides that"
                )
            shape = (*shape[:-1], nbytes // kind.itemsize)
        if keeps(self.device):
            return self._from(recast(self._node, kind, shape))
        if kind.itemsize > old.itemsize:
            return self._from(_joined_bits(self._node, kind))
        if kind.itemsize < old.itemsize:
            return self._from(_split_bits(self._node, kind))
        return self._from(self._node.bitcast(kind))

    def float(self) -> Self:
        """As float32.

        >>> Tensor([1]).float().dtype
        dtypes.float
        """
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """As float64.

        >>> Tensor([1.0]).double().dtype
        dtypes.double
        """
        return self.cast(dtypes.float64)

    def half(self) -> Self:
        """As float16.

        >>> Tensor([1.0]).half().dtype
        dtypes.half
        """
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """As bfloat16.

        >>> Tensor([1.0]).bfloat16().dtype
        dtypes.bfloat16
        """
        return self.cast(dtypes.bfloat16)

    def int(self) -> Self:
        """As int32.

        >>> Tensor([1.7, -1.7]).int().tolist()
        [1, -1]
        """
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """As int64.

        >>> Tensor([1]).long().dtype
        dtypes.long
        """
        return self.cast(dtypes.int64)

    def short(self) -> Self:
        """As int16.

        >>> Tensor([1]).short().dtype
        dtypes.short
        """
        return self.cast(dtypes.int16)

    def bool(self) -> Self:
        """As bool: whether not zero.

        >>> Tensor([0, 2]).bool().tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)

    @small
    def contiguous(self) -> Self:
        """The same value in a buffer of its own.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        return self._from(self._held.contiguous())

    @small
    def detach(self) -> Self:
        """The same value; no gradient passes.

        >>> Tensor([1.0], requires_grad=True).detach().requires_grad
        False
        """
        with turns.together(), keeping.now:  # nobody writes before this is of the family
            made = self.with_node(self._held.detach())
            made.requires_grad = False
            made._join(self)
        return made

    def contiguous_backward(self) -> Self:
        """The same value; its gradient is stored.

        >>> Tensor([1, 2]).contiguous_backward().tolist()
        [1, 2]
        """
        return self._from(self._held.contiguous())


# ---- elements as several smaller ones, or as parts of larger ones: the first byte is the lowest --


def _joined_bits(node: UOp, dtype: DType) -> UOp:
    """The last axis' neighbours as one larger element each."""
    small, large = node.dtype.itemsize, dtype.itemsize
    count = large // small
    shape = (*node.shape[:-1], node.shape[-1] // count, count)
    words = node.bitcast(WORDS[small]).reshape(shape).cast(WORDS[large])
    parts = [words.sliced(-1, i, i + 1) for i in range(count)]
    moved = [part * part.const_like(1 << 8 * small * i) for i, part in enumerate(parts)]
    return reduce(or_, moved).reshape(shape[:-1]).bitcast(dtype)


def _split_bits(node: UOp, dtype: DType) -> UOp:
    """Each element as several smaller ones along the last axis."""
    small, large = dtype.itemsize, node.dtype.itemsize
    count = large // small
    words = node.bitcast(WORDS[large]).reshape((*node.shape, 1))
    parts = [(words >> words.const_like(8 * small * i)).cast(WORDS[small]) for i in range(count)]
    apart = [part.padded(-1, i, count - 1 - i) for i, part in enumerate(parts)]
    return reduce(or_, apart).reshape((*node.shape[:-1], node.shape[-1] * count)).bitcast(dtype)
