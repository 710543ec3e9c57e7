"""Elements read as several smaller ones, and as parts of larger ones: the first byte is the lowest,
as it is on every machine that this runs on."""

from __future__ import annotations

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp

WORDS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def joined_bits(node: UOp, dtype: DType) -> UOp:
    """The last axis' neighbours as one larger element each."""
    small, large = node.dtype.itemsize, dtype.itemsize
    count = large // small
    shape = (*node.shape[:-1], node.shape[-1] // count, count)
    parts = node.bitcast(WORDS[small]).reshape(shape).cast(WORDS[large])
    whole = None
    for i in range(count):
        box = (*((0, n) for n in shape[:-1]), (i, i + 1))
        part = parts.shrink(box)
        part = part * part.const_like(1 << 8 * small * i)
        whole = part if whole is None else whole | part
    assert whole is not None
    return whole.reshape(shape[:-1]).bitcast(dtype)


def split_bits(node: UOp, dtype: DType) -> UOp:
    """Each element as several smaller ones along the last axis."""
    small, large = dtype.itemsize, node.dtype.itemsize
    count = large // small
    words = node.bitcast(WORDS[large]).reshape((*node.shape, 1))
    whole = None
    for i in range(count):
        part = (words >> words.const_like(8 * small * i)).cast(WORDS[small])
        part = part.pad((*((0, 0) for _ in node.shape), (i, count - 1 - i)))
        whole = part if whole is None else whole | part
    assert whole is not None
    return whole.reshape((*node.shape[:-1], node.shape[-1] * count)).bitcast(dtype)
