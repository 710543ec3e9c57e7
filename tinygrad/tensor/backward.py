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
from collections.abc import Collection, Hashable, Sequence
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
from tinygrad.tensor.core import Core
from tinygrad.tensor.lines import Lines
from tinygrad.tensor.looks import Look, look_at, stand_in
from tinygrad.tensor.origin import user_line
from tinygrad.tensor.promise import (
    Expression,
    Promise,
    Source,
    Template,
    Written,
    holes_of,
    shadow,
    write_down,
)
from tinygrad.tensor.sources import source_of
from tinygrad.tensor.version import Bound, Version
from tinygrad.uop import Ops, UOp

MOST = 256  # graphs whose gradients are known; the least recently used goes first


class Known(NamedTuple):
    """The gradients over what the lines stand on, which of the tensors asked for they are for, and
    how they look, None for a constant."""

    template: Template
    of: list[int]
    looks: list[Look | None]


_known: Recent[Hashable, Known | None] = Recent(MOST)
"""None of what can't be known."""


def promised_gradients(root: Core) -> bool:
    """Adds its gradient, promised, to that of each tensor that `backward` of `root` is for; False,
    and nothing happened, where only a graph tells which these are."""
    with turns.together(), keeping.now:  # else another thread may keep a promise among these
        lines = _lines_of(root)
        found = None if lines is None else _wanted(lines)
        if lines is None or found is None or not found[0]:
            return False
        wanted, beside = found
        for tensor in beside:
            lines.add(tensor._source)
        if lines.is_over:
            return False
        wanted += beside
        made = _made(root, lines, wanted, False)
        for place, gradient in made or ():
            if wanted[place]._grad is None:
                wanted[place].grad = gradient
            else:
                wanted[place]._add_gradient(gradient)
        return made is not None


def promised_derivatives(root: Core, targets: Sequence[Core]) -> list[Core] | None:
    """The derivatives of `root` by some tensors, promised; None where only a graph tells them."""
    with turns.together(), keeping.now:
        lines = _lines_of(root)
        if lines is None or not targets or not all([_is_in(lines, each) for each in targets]):
            return None
        made = _made(root, lines, targets, None) or ()
        found = [gradient for _, gradient in made if isinstance(gradient._source, Promise)]
        return found if len(found) == len(targets) else None


def _lines_of(root: Core) -> Lines | None:
    """What a promised tensor computes; None if it has a graph, or wants no gradient."""
    source = root._source
    if capturing() or not isinstance(source, Promise) or root.requires_grad is False:
        return None
    lines = Lines(whole=True)
    lines.add(source)
    return None if lines.is_over else lines


def _is_in(lines: Lines, tensor: Core) -> bool:
    """Whether these are of a tensor that says that it wants a gradient."""
    source = tensor._source
    if not isinstance(source, Promise):
        return _is_start(lines, tensor)
    return tensor.requires_grad is True is source.wants and source.expression in lines.places


def _made(
    root: Core, lines: Lines, wanted: Sequence[Any], wants: bool | None
) -> list[tuple[int, Core]] | None:
    """The gradients, which say that they want `wants` themselves, and which of `wanted` each is
    for; None where they can't be promised."""
    source: Any = root._source
    key = (*lines.key, source.number, wants, *[_place(lines, tensor) for tensor in wanted])
    known = _known.get(key)
    if known is None and key not in _known:
        known = _template(lines, _by_graph(root, lines, wanted), wanted, wants)
        _known[key] = known
    if known is None:
        return None
    _known.used(key)
    made = Expression(known.template, lines.leaves, user_line(), lines)
    assert not SPEC or _is_right(made, known, _by_graph(root, lines, wanted)), "others"
    gradients = []
    for number, (place, look) in enumerate(zip(known.of, known.looks, strict=True)):
        kind = type(wanted[place])
        if look is None:
            gradient = kind.of(known.template.roots[number], wants)
        else:
            gradient = kind._promised(Promise(made, number, look, wants))
        gradients.append((place, gradient))
    return gradients


def _wanted(lines: Lines) -> tuple[list[Any], list[Any]] | None:
    """The tensors alive that say that they want a gradient and are in the graph, and those beside
    it; None if that can't be told."""
    wanted: list[Any] = []
    beside: list[Any] = []
    places, starts = lines.places, lines.starts
    living: list[Any] = holders.living()
    for tensor in [each for each in living if each.requires_grad is True]:
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
        elif _is_start(lines, tensor):
            wanted.append(tensor)
        elif tensor.serial in starts or 0 in tensor._uop.shape:
            return None
        elif _may_occur(tensor._uop, lines):
            source = source_of(tensor)
            if type(source) is not Version or source.start not in starts:
                return None
            beside.append(tensor)  # a view of where gradients start
    return wanted, beside


def _is_start(lines: Lines, tensor: Any) -> bool:
    """Whether gradients of the lines go to this tensor, which is what it was when it was used; one
    without elements is in no graph."""
    used = lines.starts.get(tensor.serial)
    if used is None or not tensor.requires_grad or tensor._taped:
        return False
    return used.base is bottom_of(tensor._uop) and 0 not in used.look.shape


def _stands_on(expression: Expression, lines: Lines, seen: set[Expression]) -> bool:
    """Whether all that it stands on is among what the lines stand on."""
    seen.add(expression)
    waiting = [expression]
    while waiting:
        for source in waiting.pop().sources:
            if isinstance(source, Promise):
                below = source.expression
                if below not in lines.places and below not in seen:
                    seen.add(below)
                    waiting.append(below)
            elif source not in lines.places and not _is_of_same(source, lines):
                return False
    return True


def _is_of_same(source: Source, lines: Lines) -> bool:
    """Whether it is of storage that the lines are of, in the same era: they are not over."""
    return type(source) is Version and source.base in lines.bases and not source.is_over


_stored_below: weakref.WeakKeyDictionary[UOp, frozenset[UOp]] = weakref.WeakKeyDictionary()
"""The storage that a node is made of."""


def _may_occur(node: UOp, lines: Lines) -> bool:
    """Whether the graph of the lines may have this node of a tensor, which isn't where gradients
    start: it is a view of what they stand on or maybe make, or is made of nothing else."""
    bottom = bottom_of(node)
    if bottom.op is Ops.BUFFER:
        return bottom in lines.bases or is_expected(bottom)
    if any([item.nodes is not None for item in lines.places if type(item) is Expression]):
        return True
    below = _stored_below.get(node)
    if below is None:
        below = frozenset([n for n in node.toposort() if n.op is Ops.BUFFER])
        _stored_below[node] = below
    return len(below) > 0 and lines.bases.keys() >= below


def _place(lines: Lines, tensor: Any) -> Hashable:
    start = lines.starts.get(tensor.serial)
    if start is not None:
        return lines.places[start]
    source = tensor._source
    if type(source) is Version:
        return lines.places[source]
    return lines.places[source.expression], source.number


def _template(
    lines: Lines, nodes: Sequence[UOp | None], wanted: Sequence[Any], wants: bool | None
) -> Known | None:
    """Of gradients that are no views of storage."""
    holes = holes_of([leaf.look for leaf in lines.leaves], lines.leaves)
    looks: list[Look | None] = []
    of = [i for i, node in enumerate(nodes) if node is not None]
    if not of:
        return None
    there = [node for node in nodes if node is not None]
    for node, tensor in zip(there, [wanted[i] for i in of], strict=True):
        if bottom_of(node) in holes:
            return None
        is_constant = node.base.op is Ops.CONST
        looks.append(None if is_constant else look_at(type(tensor), wants, node))
    template = Template(holes, there)
    if template.looks_behind(leaf.look for leaf in lines.leaves):
        return None
    alike = [n for leaf in lines.leaves for n in stand_in(leaf.look)]
    return Known(Template(alike, template.over(alike, None)), of, looks)  # which keeps no storage


def _by_graph(root: Core, lines: Lines, wanted: Sequence[Any]) -> Sequence[UOp | None]:
    """The gradients by the graph, which nobody else gets to see."""
    nodes: dict[Expression, list[UOp]] = {}
    found = shadow(root, nodes)._gradients([shadow(tensor, nodes) for tensor in wanted], None)
    leaves = {leaf.node for leaf in lines.leaves if type(leaf) is Bound}
    return [None if node is None else _like_all_others(node, leaves) for node in found]


def _like_all_others(node: UOp, leaves: Collection[UOp]) -> UOp:
    """A constant that was made to be equal to no other, and changes in no step, as what all are
    equal to."""
    if node.base.op is not Ops.CONST or len(node.base.src) == 1 or node.base in leaves:
        return node
    return node.substitute({node.base: node.base.with_src(node.base.src[:1])})


def _is_right(made: Expression, known: Known, nodes: Sequence[UOp | None]) -> bool:
    """Whether these are its nodes, and no others are gradients."""
    right = [node for node in nodes if node is not None]
    there = [i for i, node in enumerate(nodes) if node is not None]
    return there == known.of and all(map(is_, write_down(made, {})[made], right))
