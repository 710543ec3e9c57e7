"""Methods that are expressions: what they make of tensors of some shapes is remembered, and made
again of other tensors without running the method.

A training loop makes the same expressions in each step, of other buffers. A method says
`@expression` that only combines its tensors, draws no random numbers, and looks at nothing but
their shapes, dtypes, devices, at numbers and modes. It is run once for each *look* of its
arguments, on stand-ins that have no more than that. A later call gives a promise (`tensor/promise`)
if its tensors are storage or promised themselves; else the nodes, at once. With SPEC each call is
made both ways.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from tinygrad.base.dtype import DType
from tinygrad.base.settings import SPEC, TRACEMETA
from tinygrad.engine.aliases import bottom_of, is_plain_window
from tinygrad.engine.holders import surroundings_now
from tinygrad.engine.realize import capturing
from tinygrad.tensor.core import Core, user_line
from tinygrad.tensor.promise import (
    MOST_DEEP,
    Expression,
    Look,
    Promise,
    Source,
    Template,
    holes_of,
    look_at,
    source_of,
    stand_in,
    write_down,
)
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

F = TypeVar("F", bound=Callable[..., Any])

MOST = 1024  # templates that are kept; the least recently used goes first
_NUMBERS = frozenset((int, bool, str, float, type(None), DType))
_NEW = {Ops.UNIQUE, Ops.BUFFER, Ops.BIND, Ops.ASSIGN, Ops.COPY, Ops.CALL, Ops.SCAN}


def expression(method: F) -> F:
    """The method, which remembers what it made of arguments that looked alike."""

    @functools.wraps(method)
    def remembered(*given: Any, **named: Any) -> Any:
        values = (*given, *named.values()) if named else given
        seen: list[Any] = []  # sources, and nodes of what has none
        looks = looks_of(values, _seen, seen)
        modes = surroundings_now()
        found = looks and _remembered(method, tuple(named), modes, *looks)
        if not looks or not found:
            return method(*given, **named)
        line = user_line() if TRACEMETA.value else None
        if capturing() or UOp in map(type, seen):
            (node,) = found.template.over(holes_of(looks, seen), line)
            assert not SPEC or node is method(*given, **named)._uop, f"{method.__name__}: another"
            made = found.kind.of(node, found.wants)
            made._taped = found.wants is True
            return made
        promise = Promise(Expression(found.template, seen, line), 0, found.look, found.wants)
        assert not SPEC or _is_right(promise, method, given, named), f"{method.__name__}: another"
        made = found.kind._promised(promise)
        if promise.depth >= MOST_DEEP:
            _ = made._uop
        return made

    return remembered  # type: ignore[return-value]


def looks_of(
    values: Iterable[Any], see: Callable[[Any, list[Any]], Hashable], seen: list[Any]
) -> list[Hashable] | None:
    """How the arguments look, what stands behind tensors in `seen`; None where more may matter."""
    found: list[Hashable] = []
    for value in values:
        kind = type(value)
        if kind in _NUMBERS:
            if kind is float and value == 0 and math.copysign(1.0, value) < 0:
                return None  # equal to 0.0, but another number
        elif isinstance(value, Core):
            value = see(value, seen)
            if value is None:
                return None
        elif not (kind is tuple and all(type(n) is int for n in value)):
            return None
        found.append(value)
    return found


def _seen(tensor: Core, seen: list[Source | UOp]) -> Look | None:
    source = source_of(tensor)
    if source is not None:
        seen.append(source)
        return source.look
    node = tensor._held
    seen.append(node)
    return None if tensor._element else look_at(type(tensor), tensor.requires_grad, node)


def _stand_in(look: Look, holes: list[UOp]) -> Core:
    """A tensor that looks so."""
    nodes = stand_in(look)
    holes += nodes
    made: Core = look.kind.of(nodes[0], look.wants_gradient)
    made._taped = True  # no start: of a tensor that is one the node says so
    return made


class Result(NamedTuple):
    """What a method makes: a template with one root, the tensor's class, whether it wants a
    gradient, and how it looks."""

    template: Template
    kind: type[Core]
    wants: bool | None
    look: Look | None


@functools.lru_cache(MOST, typed=True)
def _remembered(
    method: Callable[..., Any], names: tuple[str, ...], modes: Hashable, *looks: Hashable
) -> Result | None:
    """What the method makes of arguments that look so; None where it isn't to be remembered."""
    holes: list[UOp] = []
    values = [_stand_in(look, holes) if type(look) is Look else look for look in looks]
    first = len(values) - len(names)
    result = method(*values[:first], **dict(zip(names, values[first:], strict=True)))
    if not isinstance(result, Core) or result._element:
        return None
    node, wants = result._value, result.requires_grad
    if bottom_of(node) in holes or not is_plain_window(node):
        return None  # a view of an argument, or a copy that is yet to be made
    if node.base.op is Ops.CONST or any(
        below.op in _NEW for below in node.toposort(stop=holes) if below not in holes
    ):
        return None  # storage of its own, or numbers that were drawn
    return Result(Template(holes, [node]), type(result), wants, look_at(type(result), wants, node))


def _is_right(promise: Promise, method: Any, given: Iterable[Any], named: dict[str, Any]) -> bool:
    """Whether the method makes what is promised. Nobody else gets the nodes of this."""
    made: dict[Expression, list[UOp]] = {}
    write_down([promise], made)

    def shadow(value: Any) -> Any:
        source = value._source if isinstance(value, Core) else None
        if not isinstance(source, Promise):
            return value
        node = source.expression.nodes or made[source.expression]
        tensor = type(value).of(node[source.number], value.requires_grad)
        tensor._taped = value._taped
        return tensor

    result = method(*map(shadow, given), **{name: shadow(v) for name, v in named.items()})
    return result._uop is made[promise.expression][0]
