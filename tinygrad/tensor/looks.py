"""The look of a tensor: all that a method whose results are remembered (`tensor/template`) may
depend on, an abstract value. And stand-ins, which have a given look and nothing else: a method is
traced on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tinygrad.base.dtype import DType, dtypes
from tinygrad.schedule.bases import MOVED
from tinygrad.tensor.roots import STORED, is_of_list
from tinygrad.uop import Ops, UOp


@dataclass(frozen=True, eq=False)
class Look:
    """What a method may see of a tensor: `views` of something, from the top down, and that, with
    what is `known` of its numbers: of whole ones that are computed their bounds, of a constant all.
    It may not see where a box of storage begins: that differs from batch to batch, and here it
    is 0. Equal looks are one object, so that comparing them costs nothing."""

    kind: Any
    wants_gradient: bool | None
    views: tuple[tuple[Ops, Any], ...]
    is_storage: bool
    shape: tuple[int, ...]
    dtype: DType
    device: str
    known: tuple[Any, ...]


def look_at(kind: type, wants_gradient: bool | None, node: UOp) -> Look | None:
    """How a tensor of `node` looks; None where more may matter: constants, and sizes' names."""
    views = []
    end = end_below(node)
    while node is not end and len(node.src) == 1:
        views.append((node.op, node.arg))
        node = node.src[0]
    op, dtype, shape, device = node.op, node.dtype, node.shape, node.device
    is_storage = _is_storage(node)
    if is_storage:
        views = [(op, sizes_of(arg) if op is Ops.SHRINK else arg) for op, arg in views]
    movement = op in MOVED and len(node.src) > 1 and op is not Ops.DETACH  # by symbolic sizes
    if op is Ops.CONST:
        known: tuple[Any, ...] = repr(node.arg), node.arg
    else:
        known = () if is_storage or dtypes.is_float(dtype) else (node.vmin, node.vmax)
    if movement:
        return None
    if type(device) is not str or not all(type(n) is int for n in shape):
        return None
    return _look(kind, wants_gradient, tuple(views), is_storage, shape, dtype, device, known)


def end_below(node: UOp) -> UOp:
    """What lies below all movement, or the last padding on the way: of what is not storage a padded
    copy is stored, so methods may see of it what they see of any other value."""
    padded = None
    while node.op in MOVED:
        if node.op is Ops.PAD and padded is None:
            padded = node
        node = node.src[0]
    return node if padded is None or _is_storage(node) else padded


def _is_storage(node: UOp) -> bool:
    """Whether this is storage, or a list that will be."""
    return node.op in STORED or is_of_list(node)


def sizes_of(box: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """A box of the same sizes that begins at 0."""
    return tuple([(0, end - begin) for begin, end in box])


_look = functools.lru_cache(4096, typed=True)(Look)


def look_of_number(low: int, high: int, dtype: DType, device: str) -> Look:
    """The look of a number of which only the bounds are known."""
    return _look(None, None, (), False, (), dtype, device, (low, high))


def look_of_any(dtype: DType, device: str) -> Look:
    """The look of a constant of which the value isn't known."""
    return _look(None, None, (), False, (), dtype, device, ("any", 0.5))


def stand_in(look: Look) -> list[UOp]:
    """A node that looks so, its views, and what it is a view of."""
    node = UOp.new_buffer(look.device, math.prod(look.shape), look.dtype)
    if look.known and type(look.known[0]) is str:
        node = UOp.const(look.dtype, look.known[1], look.device).own()
    elif not look.is_storage:
        node = UOp(Ops.ITEM, look.dtype, (node,), (0, look.shape, *look.known))
    for op, arg in reversed(look.views):
        node = UOp(op, look.dtype, (node,), arg)
    return chain_of(node, len(look.views))


def chain_of(node: UOp, length: int) -> list[UOp]:
    """The node, and `length` more: each the first source of the one before."""
    chain = [node]
    for _ in range(length):
        chain.append(chain[-1].src[0])
    return chain
