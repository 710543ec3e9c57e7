"""Rules for movement ops: two in a row become one, one that moves nothing disappears, and a
constant that is moved is the same constant. Each function's docstring states its law."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tinygrad.uop.node import UOp
from tinygrad.uop.op import SIZED, GroupOp, Ops
from tinygrad.uop.pattern import Rule, UPat


def _reshape(outer: UOp, inner: UOp) -> UOp:
    """reshape(reshape(x, s), t) is reshape(x, t)."""
    return inner.src[0].reshape(outer.sizes)


def _expand(outer: UOp, inner: UOp) -> UOp:
    """expand(expand(x, s), t) is expand(x, t)."""
    return inner.src[0].expand(outer.sizes)


def _permute(outer: UOp, inner: UOp) -> UOp:
    """permute(permute(x, a), b) is permute(x, a[b])."""
    return inner.src[0].permute(tuple(inner.arg[axis] for axis in outer.arg))


def _flip(outer: UOp, inner: UOp) -> UOp:
    """flip(flip(x, a), b) flips the axes that are in exactly one of a and b."""
    return inner.src[0].flip(tuple(sorted({*outer.arg} ^ {*inner.arg})))


def _pad(outer: UOp, inner: UOp) -> UOp:
    """pad(pad(x)) pads by the sums."""
    pairs = zip(outer.sizes, inner.sizes, strict=True)
    return inner.src[0].pad(tuple((a + c, b + d) for (a, b), (c, d) in pairs))


def _shrink(outer: UOp, inner: UOp) -> UOp:
    """shrink(shrink(x)) is one shrink, counted from where the inner one begins."""
    pairs = zip(outer.sizes, inner.sizes, strict=True)
    return inner.src[0].shrink(tuple((a + b, a + e) for (b, e), (a, _) in pairs))


def _shrink_of_pad(outer: UOp, inner: UOp) -> UOp | None:
    """shrink(pad(x)) pads only the part of x that it keeps; it is zeros if it keeps nothing of
    x."""
    x = inner.src[0]
    if not _whole_numbers(outer.sizes, inner.sizes, x.shape):
        return None
    box, pads = [], []
    for (begin, end), (before, _), n in zip(outer.sizes, inner.sizes, x.shape, strict=True):
        low, high = max(begin - before, 0), min(end - before, n)
        if low >= high:
            return None if x.has_check else outer.const_like(0)
        box.append((low, high))
        pads.append((low - (begin - before), end - before - high))
    return x.shrink(tuple(box)).pad(tuple(pads))


def _whole_numbers(*sizes: Any) -> bool:
    """Whether no size in these nested tuples is symbolic."""
    return all(
        _whole_numbers(*size) if isinstance(size, tuple) else isinstance(size, int)
        for size in sizes
    )


def _moves_nothing(node: UOp) -> UOp | None:
    """A movement op that leaves every element in place is its source."""
    source = node.src[0]
    if node.op is Ops.FLIP:
        moved = tuple(axis for axis in node.arg if source.shape[axis] != 1)
        return source.flip(moved) if moved != node.arg else None
    idle = _IDLE.get(node.op)
    arg = node.sizes if node.op in SIZED else node.arg
    return source if idle is not None and idle(arg, source.shape) else None


_IDLE: dict[Ops, Callable[[Any, tuple[Any, ...]], bool]] = {
    Ops.RESHAPE: lambda arg, shape: bool(arg == shape),
    Ops.EXPAND: lambda arg, shape: bool(arg == shape),
    Ops.PERMUTE: lambda arg, shape: bool(arg == tuple(range(len(arg)))),
    Ops.PAD: lambda arg, shape: all(pair == (0, 0) for pair in arg),
    Ops.SHRINK: lambda arg, shape: bool(arg == tuple((0, n) for n in shape)),
}
"""Whether this movement, of something of this shape, moves nothing."""


def constant_under(node: UOp) -> UOp | None:
    """The CONST that is broadcast to this node, if every element is that constant."""
    if node.op is Ops.EXPAND:
        node = node.src[0]
    if node.op is Ops.RESHAPE:
        node = node.src[0]
    return node if node.op is Ops.CONST else None


def _of_a_constant(node: UOp) -> UOp | None:
    """A constant moved is the constant broadcast; padded, only where it is 0 like the padding."""
    constant = constant_under(node.src[0])
    if constant is None:
        return None
    zero = constant.arg == 0 and math.copysign(1, constant.arg) > 0
    pads = node.op is Ops.PAD or (node.op is Ops.WINDOW and any(w[4] or w[5] for w in node.arg))
    return None if pads and not zero else node.const_like(constant.arg)


def _maximum_of_a_constant(node: UOp) -> UOp | None:
    """The maximum of one value repeated is that value."""
    constant, shape = constant_under(node.src[0]), node.src[0].shape
    if node.arg[0] != "max" or constant is None:
        return None
    return node.const_like(constant.arg) if _whole_numbers(shape) and all(shape) else None


def _same(outer: UOp, inner: UOp) -> UOp:
    """Applied twice it is the same as once."""
    return inner


def _twice(op: Ops, outer: Ops | None = None) -> UPat:
    return UPat(outer or op, src=(UPat(op, name="inner"),), name="outer")


_TWICE: dict[Ops, Callable[..., UOp | None]] = {
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.FLIP: _flip,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.CONTIGUOUS: _same,
    Ops.DETACH: _same,
}

RULES = [
    Rule("moves nothing", UPat(GroupOp.Movement, name="node"), _moves_nothing),
    Rule("constant moved", UPat(GroupOp.Movement, name="node"), _of_a_constant),
    *(Rule(f"{op.name.lower()} twice", _twice(op), function) for op, function in _TWICE.items()),
    Rule("shrink of pad", _twice(Ops.PAD, Ops.SHRINK), _shrink_of_pad),
    Rule("maximum of a constant", UPat(Ops.REDUCE_AXIS, name="node"), _maximum_of_a_constant),
]
