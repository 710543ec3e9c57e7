"""Gradients of promised tensors: if the lines of an expression occurred before, its gradients are
templates, too.

`backward` adds a gradient to each live tensor that occurs in its graph. Without a graph, it is
known which tensors these are: the tensors where gradients start, and promises that the expression
uses. Other promises may stand *beside* it: they use nothing but the same storage, as the loss and
the accuracy of one model do, and may occur in the graph as parts of other expressions. Whether they
do is learned from the first graph. A tensor that has a node and wants a gradient can't occur in it
if its node reads other storage, as that of the last step's loss does, which a loop still holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from operator import is_
from typing import Any, NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import Recent
from tinygrad.base.settings import SPEC
from tinygrad.engine.aliases import bottom_of
from tinygrad.engine.holders import holders
from tinygrad.engine.realize import capturing
from tinygrad.engine.storage import is_expected
from tinygrad.engine.turns import keeping, turns
from tinygrad.tensor.again import Lines
from tinygrad.tensor.core import Core, user_line
from tinygrad.tensor.looks import Look, look_at, stand_in
from tinygrad.tensor.promise import (
    Expression,
    Promise,
    Source,
    Template,
    Version,
    Written,
    holes_of,
    shadow,
    write_down,
)
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

MOST = 256  # graphs whose gradients are known; the least recently used goes first


class Known(NamedTuple):
    """The gradients over what the lines stand on, which of the tensors asked for they are for, and
    how they look, None for a constant."""

    template: Template
    of: list[int]
    looks: list[Look | None]


_known: Recent[Hashable, Known | None] = Recent(MOST)
"""None of what can't be known."""

LongWay = Callable[[Any, list[Any]], Sequence[UOp | None]]
"""The gradients of a tensor by some others."""


def promised_gradients(root: Core, long_way: LongWay) -> bool:
    """Adds its gradient, promised, to that of each tensor that `backward` of `root` is for; False,
    and nothing happened, where only a graph tells which these are."""
    with turns.together(), keeping.now:  # else another thread may keep a promise among these
        return _promise(root, long_way)


def _promise(root: Core, long_way: LongWay) -> bool:
    source = root._source
    if capturing() or not isinstance(source, Promise) or root.requires_grad is False:
        return False
    lines = Lines(whole=True)
    lines.add(source)
    if lines.is_over:
        return False
    found = _wanted(lines)
    if found is None or not found[0]:
        return False
    wanted, beside = found
    for tensor in beside:
        lines.add(tensor._source)
    count, wanted = len(wanted), wanted + beside
    key = (*lines.key, source.number, count, *[_place(lines, tensor) for tensor in wanted])
    if key not in _known:
        _known[key] = _template(lines, _by_graph(root, wanted, long_way), wanted, count)
    known = _known[key]
    if known is None:
        return False
    _known.move_to_end(key)
    made = Expression(known.template, lines.leaves, user_line())
    assert not SPEC or _is_right(made, known, _by_graph(root, wanted, long_way)), "others"
    for number, (place, look) in enumerate(zip(known.of, known.looks, strict=True)):
        tensor = wanted[place]
        if look is None:
            gradient = type(tensor).of(known.template.roots[number], False)
        else:
            gradient = type(tensor)._promised(Promise(made, number, look, False))
        if tensor.grad is None:
            tensor.grad = gradient
        else:
            tensor._add_gradient(gradient)
    return True


def _wanted(lines: Lines) -> tuple[list[Any], list[Any]] | None:
    """The tensors alive that say that they want a gradient and are in the graph, and those beside
    it; None if that can't be told."""
    wanted: list[Any] = []
    beside: list[Any] = []
    places, starts = lines.places, lines.starts
    alive: list[Any] = [reference() for reference in holders.references()]
    for tensor in [each for each in alive if each is not None and each.requires_grad is True]:
        source = tensor._source
        if isinstance(source, Promise):
            if type(source) is Written:
                return None
            if source.wants and source.expression in places:
                if dtypes.is_float(source.like.dtype):
                    wanted.append(tensor)
            elif _stands_on(source.expression, lines, set()) and (
                dtypes.is_float(source.like.dtype)
            ):
                if source.look is None or not source.wants:
                    return None
                beside.append(tensor)
        elif tensor.serial in starts:
            wanted.append(tensor)
        elif 0 in tensor._uop.shape or _may_occur(tensor._uop, lines):
            return None
    return wanted, beside


def _stands_on(expression: Expression, lines: Lines, seen: set[Expression]) -> bool:
    """Whether all that it stands on is among what the lines stand on."""
    seen.add(expression)
    for source in expression.sources:
        if isinstance(source, Promise):
            below = source.expression
            if not (below in lines.places or below in seen or _stands_on(below, lines, seen)):
                return False
        elif source not in lines.places and all([not _is_same(source, a) for a in lines.leaves]):
            return False
    return True


def _is_same(source: Source, leaf: Source) -> bool:
    """Whether these are of the same storage in the same era."""
    if type(source) is not Version or type(leaf) is not Version:
        return source is leaf
    return source.base is leaf.base and source.era == leaf.era


_stored_below: weakref.WeakKeyDictionary[UOp, Collection[UOp]] = weakref.WeakKeyDictionary()
"""The storage that a node is made of."""


def _may_occur(node: UOp, lines: Lines) -> bool:
    """Whether the graph of the lines may have this node of a tensor, which isn't where gradients
    start: it is a view of what they stand on or maybe make, or is made of nothing else."""
    bases = {leaf.base for leaf in lines.leaves if isinstance(leaf, Version)}
    bottom = bottom_of(node)
    if bottom.op is Ops.BUFFER:
        return bottom in bases or is_expected(bottom)
    if any([item.nodes is not None for item in lines.places if type(item) is Expression]):
        return True
    below = _stored_below.get(node)
    if below is None:
        below = frozenset([n for n in node.toposort() if n.op is Ops.BUFFER])
        _stored_below[node] = below
    return len(below) > 0 and bases.issuperset(below)


def _place(lines: Lines, tensor: Any) -> Hashable:
    start = lines.starts.get(tensor.serial)
    if start is not None:
        return lines.places[start]
    promise = tensor._source
    return lines.places[promise.expression], promise.number


def _template(
    lines: Lines, nodes: Sequence[UOp | None], wanted: Sequence[Any], count: int
) -> Known | None:
    """Of gradients that are no views of storage; those of the first `count` are all there."""
    holes = holes_of([leaf.look for leaf in lines.leaves], lines.leaves)
    looks: list[Look | None] = []
    of = [i for i, node in enumerate(nodes) if node is not None or i < count]
    for node, tensor in [(nodes[i], wanted[i]) for i in of]:
        if node is None or bottom_of(node) in holes:
            return None
        is_constant = node.base.op is Ops.CONST
        if is_constant and len(node.base.src) > 1:
            return None
        looks.append(None if is_constant else look_at(type(tensor), False, node))
    template = Template(holes, [node for node in nodes if node is not None])
    if template.looks_behind(leaf.look for leaf in lines.leaves):
        return None
    alike = [n for leaf in lines.leaves for n in stand_in(leaf.look)]
    return Known(Template(alike, template.over(alike, None)), of, looks)  # which keeps no storage


def _by_graph(root: Core, wanted: Sequence[Any], long_way: LongWay) -> Sequence[UOp | None]:
    """The gradients by the graph, which nobody else gets to see."""
    nodes: dict[Expression, list[UOp]] = {}
    return long_way(shadow(root, nodes), [shadow(tensor, nodes) for tensor in wanted])


def _is_right(made: Expression, known: Known, nodes: Sequence[UOp | None]) -> bool:
    """Whether these are its nodes, and no others are gradients."""
    right = [node for node in nodes if node is not None]
    there = [i for i, node in enumerate(nodes) if node is not None]
    return there == known.of and all(map(is_, write_down(made, {})[made], right))
