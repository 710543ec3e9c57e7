"""What of a node follows from its sources: shape and device, by the rules that the op table names,
and its bounds, content hash, free loops and CHECKs.

A shape is a tuple of sizes: whole numbers, or nodes where a size is symbolic. It is None for a node
that has no value. The `arg` of a movement op is plain data: it has a HOLE for each symbolic size,
and the sizes themselves are further sources, in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tinygrad.base.errors import ShapeError
from tinygrad.base.helpers import ceildiv, plain
from tinygrad.uop.bounds import interval_of
from tinygrad.uop.op import ROW, SIZED, Ops
from tinygrad.uop.placement import Placement

if TYPE_CHECKING:
    from tinygrad.uop.node import UOp

Shape = tuple[Any, ...]
HOLE = "?"


def opened(arg: Any, sizes: list[UOp]) -> Any:
    """`arg` with a HOLE in the place of each node in it; the nodes are appended to `sizes`."""
    if isinstance(arg, tuple):
        for part in arg:
            if type(part) is not int:
                return tuple([opened(part, sizes) for part in arg])
        return arg
    size = settled(arg)
    if isinstance(size, int):
        return size
    sizes.append(size)
    return HOLE


def filled(arg: Any, sizes: Iterator[UOp]) -> Any:
    """The inverse of `opened`."""
    if isinstance(arg, tuple):
        return tuple(filled(part, sizes) for part in arg)
    return next(sizes) if arg == HOLE else arg


def settled(size: Any) -> Any:
    """A size in its canonical form, so that equal sizes are one node; an int if the value is
    known."""
    size = plain(size)
    return size if isinstance(size, int) else size.as_size()


def least(size: Any) -> Any:
    """The smallest that a size, or another number, may be."""
    return getattr(size, "vmin", size)


def most(size: Any) -> Any:
    """The largest."""
    return getattr(size, "vmax", size)


def window_positions(size: Any, window: tuple[int, ...]) -> Any:
    """How many positions a window (axis, size, stride, dilation, before, after) takes."""
    _, taps, stride, dilation, before, after = window
    return settled(ceildiv(size + before + after - dilation * (taps - 1), stride))


def _same(node: UOp) -> Shape | None:
    for source in node.src:
        if source.shape:
            return source.shape
    return node.src[0].shape


def _permute(node: UOp) -> Shape:
    shape = node.src[0].shape
    return tuple(shape[axis] for axis in node.arg)


def _pad(node: UOp) -> Shape:
    pairs = zip(node.src[0].shape, node.sizes, strict=True)
    return tuple(settled(n + before + after) for n, (before, after) in pairs)


def _shrink(node: UOp) -> Shape:
    """ShapeError for a box that isn't inside: nothing else keeps it from reading other memory."""
    given = node.src[0].shape
    for (begin, end), n in zip(node.sizes, given, strict=True):
        if most(begin) < 0 or least(begin) > most(end) or least(end) > most(n):
            raise misfit(*sizes_of(node))
    return tuple(settled(end - begin) for begin, end in node.sizes)


def _window(node: UOp) -> Shape:
    shape = list(node.src[0].shape)
    for window in node.arg:
        shape[window[0]] = window_positions(shape[window[0]], window)
    return (*shape, *(window[1] for window in node.arg))


def _reduce_axis(node: UOp) -> Shape:
    return tuple(1 if axis in node.arg[1] else n for axis, n in enumerate(node.src[0].shape))


def _index(node: UOp) -> Shape:
    indices = node.src[1 : 1 + node.arg]
    gathered = indices[0].shape if indices else ()
    return (*gathered, *node.src[0].shape[node.arg :])


SHAPE_RULES: dict[str, Callable[[UOp], Shape | None]] = {
    "none": lambda node: None,
    "scalar": lambda node: (),
    "arg": lambda node: node.sizes if node.op in SIZED else node.arg,
    "same": _same,
    "like_first": lambda node: node.src[0].shape,
    "buffer": lambda node: (node.arg,),
    "param": lambda node: (node.arg[1],),
    "permute": _permute,
    "pad": _pad,
    "shrink": _shrink,
    "window": _window,
    "assign": lambda node: node.src[0].base.shape,
    "fold": lambda node: node.sizes[1],
    "item": lambda node: node.arg[1],
    "reduce_axis": _reduce_axis,
    "index": _index,
    "stage": lambda node: tuple(r.src[0].arg for r in node.src[1:]),
}


_RULE_OF = {op: SHAPE_RULES[row.shape] for op, row in ROW.items()}


def shape_of(node: UOp) -> Shape | None:
    """The shape of one node whose sources' shapes are known. ShapeError if its symbolic sizes have
    values now that don't fit."""
    shape = _RULE_OF[node.op](node)
    if is_by_sizes(node) and any(n.val < 0 for n in from_zero(node, shape) if _has_value(n)):
        raise misfit(*sizes_of(node))
    return shape


# ---- symbolic sizes, whose values may not fit where their bounds would ---------------------------

MOVED = SIZED | {Ops.WINDOW}


def is_by_sizes(node: UOp) -> bool:
    """Whether this is movement of which a symbolic size is a part."""
    if node.op not in MOVED:
        return False
    return len(node.src) > 1 or any([type(n) is not int for n in node.src[0].shape])


def _has_value(size: UOp) -> bool:
    """Whether all variables in a size are bound."""
    return size.op in (Ops.BIND, Ops.CONST) or (bool(size.src) and all(map(_has_value, size.src)))


def from_zero(node: UOp, shape: Any) -> list[UOp]:
    """The numbers that must not be negative so that this movement, of result `shape`, has a
    meaning, as far as the bounds of its symbolic sizes don't promise that."""
    numbers = shape
    if node.op is Ops.SHRINK:
        pairs = zip(node.sizes, node.src[0].shape, strict=True)
        numbers = [m for (begin, end), n in pairs for m in (begin, end - begin, n - end)]
    elif node.op is Ops.PAD:
        numbers = [n for pair in node.sizes for n in pair]
    found = [settled(n) for n in numbers if type(n) is not int]
    return [n for n in found if type(n) is not int and n.vmin < 0]


def sizes_of(node: UOp) -> tuple[Ops, Any, Shape]:
    """A movement's op, what it is moved by, and the shape that it moves."""
    return node.op, node.arg if node.op is Ops.WINDOW else node.sizes, node.src[0].shape


def misfit(op: Ops, sizes: Any, given: Shape) -> ShapeError:
    """The error of a movement of shape `given` by sizes that don't fit."""
    what, legal = ("box", "inside") if op is Ops.SHRINK else ("to", "of sizes from 0")
    return ShapeError(
        f"{op.name.lower()}: {what} {sizes} of shape {given}; legal is what is {legal}"
    )


def place_of(op: Ops, src: tuple[UOp, ...], arg: Any) -> Any:
    """The device of a DEVICE or a COPY, or a tuple of several. All other nodes are where their
    sources are."""
    if op is Ops.COPY:
        return src[1].device if len(src) > 1 else None  # `verify` names what lacks it
    return arg.names if isinstance(arg, Placement) else arg


# ---- facts that a node keeps in a slot; those of its sources are known ---------------------------

CLOSERS = {Ops.REDUCE: 1, Ops.STAGE: 1, Ops.STORE: 2}
"""The position of the first range that a node closes, among its sources."""


def free_ranges(node: UOp) -> frozenset[UOp]:
    """The loops that a value depends on."""
    if not node.src:
        return frozenset((node,)) if node.op is Ops.RANGE else frozenset()
    free = frozenset().union(*(s._ranges for s in node.src))
    if node.op is Ops.RANGE:
        return free | {node}
    if node.op in CLOSERS:
        return free - frozenset(node.src[CLOSERS[node.op] :])
    return free


def content_key(node: UOp) -> bytes:
    """A hash of what a node is, the same in every process."""
    own = repr((node.op.name, repr(node.dtype), node.arg))
    digest = hashlib.sha256(own.encode())
    for source in node.src:
        digest.update(source._key)
    return digest.digest()


DERIVED: dict[str, Callable[[UOp], Any]] = {
    "_shape": shape_of,
    "_ranges": free_ranges,
    "_checks": lambda node: node.op is Ops.CHECK or any(s._checks for s in node.src),
    "_interval": lambda node: interval_of(node, [s._interval for s in node.src]),
    "_key": content_key,
}
"""The rule of each slot of a node whose fact is computed when it is first asked for."""
