"""Elements read as several smaller ones, and as parts of larger ones: the first byte is the lowest,
as it is on every machine that this runs on."""

from __future__ import annotations

from functools import reduce
from operator import or_

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp

WORDS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def joined_bits(node: UOp, dtype: DType) -> UOp:
    """The last axis' neighbours as one larger element each."""
    small, large = node.dtype.itemsize, dtype.itemsize
    count = large // small
    shape = (*node.shape[:-1], node.shape[-1] // count, count)
    words = node.bitcast(WORDS[small]).reshape(shape).cast(WORDS[large])
    parts = [words.sliced(-1, i, i + 1) for i in range(count)]
    moved = [part * part.const_like(1 << 8 * small * i) for i, part in enumerate(parts)]
    return reduce(or_, moved).reshape(shape[:-1]).bitcast(dtype)


def split_bits(node: UOp, dtype: DType) -> UOp:
    """Each element as several smaller ones along the last axis."""
    small, large = dtype.itemsize, node.dtype.itemsize
    count = large // small
    words = node.bitcast(WORDS[large]).reshape((*node.shape, 1))
    parts = [(words >> words.const_like(8 * small * i)).cast(WORDS[small]) for i in range(count)]
    apart = [part.padded(-1, i, count - 1 - i) for i, part in enumerate(parts)]
    return reduce(or_, apart).reshape((*node.shape[:-1], node.shape[-1] * count)).bitcast(dtype)
