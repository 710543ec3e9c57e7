"""All rules together: `symbolic` in the order in which they are tried, and `simplify`.

The rules of the other files get two properties here: a rule never drops a CHECK, and on a tensor's
graph, where constants are broadcast to a shape, a rule sees through the broadcast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.simplify import arithmetic, boolean, cast, constants, integer, masks, movement
from tinygrad.simplify.affine import FREE, simplify_index
from tinygrad.simplify.constants import drops_check
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.pattern import PatternMatcher, Rule, UPat
from tinygrad.uop.rewrite import graph_rewrite
from tinygrad.uop.services import services

TERMS = [*arithmetic.RULES, *integer.RULES, *boolean.RULES, *cast.RULES]
"""The rules on numbers, as they are proved and fuzzed."""


def names_in(pattern: UPat) -> set[str]:
    """The names of a pattern and of what stands in it."""
    inner = pattern.src if isinstance(pattern.src, (tuple, list)) else ()
    own = set() if pattern.name is None else {pattern.name}
    return own.union(*map(names_in, inner))


def _leaves(pattern: UPat) -> set[str]:
    if isinstance(pattern.src, (tuple, list)):
        return set().union(*map(_leaves, pattern.src))
    return set() if pattern.name is None else {pattern.name}


def dropped(rule: Rule) -> set[str]:
    """The names of a rule's left side that its right side, a term, no longer has."""
    if not isinstance(rule.right, UPat):
        return set()
    return _leaves(rule.left) - names_in(rule.right)


def guarded(rule: Rule) -> Rule:
    """The rule, except where it would drop a CHECK; constants are looked for only as last
    operands."""
    gone, when = sorted(dropped(rule)), rule.when

    def keeps_checks(**found: UOp) -> bool:
        return (when is None or bool(when(**found))) and not any(found[n].has_check for n in gone)

    return Rule(rule.name, _settled(rule.left), rule.right, keeps_checks if gone else when)


def _settled(pattern: UPat) -> UPat:
    """The pattern with sources in one order where one is a constant: `constant last` saw to it."""
    if not isinstance(pattern.src, (tuple, list)):
        return pattern
    src: Any = [_settled(s) for s in pattern.src]
    if isinstance(pattern.src, tuple):
        src = tuple(src)
    elif any(map(_is_constant, src)):
        src = tuple(sorted(src, key=_is_constant))
    return UPat(pattern.ops, pattern.dtypes, src, pattern.arg, pattern.name, pattern.more)


def _is_constant(pattern: UPat) -> bool:
    return pattern.ops == (Ops.CONST,)


# ---- tensors: constants are broadcast ------------------------------------------------------------

_DEPTH = 2
"""No rule looks further down than this."""


def _bare(node: UOp, depth: int, whole: dict[UOp, UOp]) -> UOp:
    """The node with broadcast constants as scalars; `whole` remembers what each was."""
    if (constant := movement.constant_under(node)) is not None:
        return constant
    made = node
    if depth and node.op in GroupOp.Elementwise:
        made = node.with_src(tuple(_bare(s, depth - 1, whole) for s in node.src))
    whole[made] = node
    return made


def _dressed(node: UOp, shape: tuple[Any, ...], whole: dict[UOp, UOp]) -> UOp:
    """The inverse of `_bare`, also for what a rule has made."""
    if node in whole:
        return whole[node]
    if node.op is Ops.CONST:
        return node.broadcast_to(shape)
    if node.op not in GroupOp.Elementwise:
        return node
    return node.with_src(tuple(_dressed(s, shape, whole) for s in node.src))


def _through_broadcast(numbers: PatternMatcher) -> Callable[[UOp], UOp | None]:
    def through_broadcast(node: UOp) -> UOp | None:
        """What holds of constants holds of constants broadcast."""
        if not node.shape:
            return None
        whole: dict[UOp, UOp] = {}
        bare = _bare(node, _DEPTH, whole)
        made = numbers.rewrite(bare) if bare is not node else None
        return None if made is None else _dressed(made, node.shape, whole)

    return through_broadcast


# ---- all -----------------------------------------------------------------------------------------


def _canonical_index(node: UOp) -> UOp | None:
    """An index expression in canonical form."""
    if node.shape:
        return None
    made = FREE.simplify(node)
    return None if made is node or drops_check(node, made) else made


_INDEXED = GroupOp.ALU | {Ops.CAST}

INDICES = [
    Rule("canonical index", UPat(_INDEXED, dtypes.index, name="node"), _canonical_index),
    *masks.RULES,
]
NUMBERS = [*constants.RULES, *INDICES, *map(guarded, TERMS)]

_numbers = PatternMatcher(NUMBERS)
symbolic = _numbers + PatternMatcher(
    [
        Rule(
            "broadcast constants",
            UPat(GroupOp.Elementwise, name="node"),
            _through_broadcast(_numbers),
        ),
        *movement.RULES,
    ]
)
"""Every rule: what a value is stays the same, bit for bit."""


def simplify(node: UOp) -> UOp:
    """The graph written as simply as these rules know."""
    return graph_rewrite(node, symbolic, name="simplify")


size = functools.lru_cache(4096)(simplify_index)
"""A size in its one form. It comes again and again."""


def simplest(node: UOp) -> UOp:
    """What `UOp.simplify` gives: an expression of variables in the one form that it has as a size,
    unless a number of that could wrap; other graphs as `simplify` writes them."""
    node = simplify(node)
    if node.dtype not in dtypes.ints or node.shape or not _VARIED.issuperset(_ops_of(node)):
        return node
    found: dict[UOp, UOp] = {}
    for each in simplify_index(node.cast(dtypes.index)).toposort():
        if each.op is Ops.CAST:
            found[each] = each.src[0]
        elif each.dtype is not dtypes.index:
            found[each] = each
        elif node.dtype.holds(each.vmin, each.vmax):
            found[each] = UOp(each.op, node.dtype, tuple(found[s] for s in each.src), each.arg)
        else:
            return node
    made = found[each]
    return made if made.dtype is node.dtype else node


_VARIED = GroupOp.ALU | {Ops.CONST, Ops.DEFINE_VAR, Ops.BIND}


def _ops_of(node: UOp) -> set[Ops]:
    return {each.op for each in node.toposort()}


services.simplify, services.size = simplest, size
