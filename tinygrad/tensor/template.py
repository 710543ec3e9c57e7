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
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.settings import SPEC, TRACEMETA
from tinygrad.engine.aliases import bottom_of, is_plain_window, is_window
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
    Version,
    holes_of,
    look_at,
    recording,
    shadow,
    source_of,
    stand_in,
    write_down,
)
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

C = TypeVar("C", bound=Core)
F = TypeVar("F", bound=Callable[..., Any])

See = Callable[[Any, list[Any]], Hashable]
"""How a tensor looks; what stands behind it goes to the list. None where more may matter."""

MOST = 1024  # templates that are kept; the least recently used goes first
_NUMBERS = frozenset((int, bool, str, float, type(None), DType))
_NEW = {Ops.UNIQUE, Ops.BUFFER, Ops.BIND, Ops.ASSIGN, Ops.COPY, Ops.CALL, Ops.SCAN}


def expressions(cls: type[C]) -> type[C]:
    """The class, whose public methods that give a tensor are expressions. They are small: of nodes
    they are made as fast as they are remembered."""
    for name, method in list(vars(cls).items()):
        is_public = not name.startswith("_") or name.startswith("__")
        makes = method.__annotations__.get("return") if type(method) is FunctionType else None
        if is_public and makes == "Self":
            setattr(cls, name, expression(method, is_small=True))
    return cls


def expression(method: F, is_small: bool = False) -> F:
    """The method, which remembers what it made of arguments that looked alike."""
    see = _source_seen if is_small else _seen

    @functools.wraps(method)
    def remembered(*given: Any, **named: Any) -> Any:
        if recording.inside or (is_small and capturing()):
            return method(*given, **named)
        values = (*given, *named.values()) if named else given
        seen: list[Any] = []  # sources, and nodes of what has none
        looks = looks_of(values, see, seen)
        modes = surroundings_now()
        found = looks and _remembered(method, tuple(named), modes, *looks)
        by_nodes = not is_small and (capturing() or UOp in map(type, seen))
        if not looks or not found or not found.can_be_made(seen, by_nodes):
            return method(*given, **named)
        if by_nodes:
            line = user_line() if TRACEMETA.value else None
            (node,) = found.template.over(holes_of(looks, seen), line)
            assert not SPEC or node is method(*given, **named)._uop, f"{method.__name__}: another"
            made = found.kind.of(node, found.wants)
            made._taped = found.wants is True
            return made
        promise = _promised(found, seen)
        assert not SPEC or _is_right(promise, method, given, named), f"{method.__name__}: another"
        made = found.kind._promised(promise)
        if found.views is not None:
            made._view([value for value in values if isinstance(value, Core)][found.views])
        if promise.depth >= MOST_DEEP:
            _ = made._uop
        return made

    return remembered  # type: ignore[return-value]


def looks_of(values: Iterable[Any], see: See, seen: list[Any]) -> list[Hashable] | None:
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


def _source_seen(tensor: Core, seen: list[Any]) -> Look | None:
    """The look of what has a source."""
    source = source_of(tensor)
    if source is None:
        return None
    seen.append(source)
    return source.look


def _seen(tensor: Core, seen: list[Any]) -> Look | None:
    look = _source_seen(tensor, seen)
    if look is not None:
        return look
    node = tensor._held
    seen.append(node)
    can_be_told = dtypes.is_float(node.dtype) and not tensor._element
    return look_at(type(tensor), tensor.requires_grad, node) if can_be_told else None


def _stand_in(look: Look, holes: list[UOp]) -> Core:
    """A tensor that looks so."""
    nodes = stand_in(look)
    holes += nodes
    made: Core = look.kind.of(nodes[0], look.wants_gradient)
    made._taped = True  # no start: of a tensor that is one the node says so
    return made


class Result(NamedTuple):
    """What a method makes: a template with one root, the tensor's class, whether it wants a
    gradient, how it looks, and of which tensor it is a view."""

    template: Template
    kind: type[Core]
    wants: bool | None
    look: Look | None
    views: int | None

    def can_be_made(self, sources: Sequence[Source | UOp], by_nodes: bool) -> bool:
        """Whether it is no view, or one of what is promised."""
        return self.views is None or not (by_nodes or type(sources[self.views]) is Version)


_promises: weakref.WeakValueDictionary[Hashable, Promise] = weakref.WeakValueDictionary()
"""What is the same of the same is promised once, as equal nodes are one."""


def _promised(result: Result, sources: list[Source]) -> Promise:
    key = (result.template, *sources)
    found = _promises.get(key)
    if found is None or found.is_computed:  # who has that may write to it
        line = user_line() if TRACEMETA.value else None
        made = Expression(result.template, sources, line)
        of: Any = None if result.views is None else sources[result.views]
        _promises[key] = found = Promise(made, 0, result.look, result.wants, of)
    return found


@functools.lru_cache(MOST, typed=True)
def _remembered(
    method: Callable[..., Any], names: tuple[str, ...], modes: Hashable, *looks: Hashable
) -> Result | None:
    """What the method makes of arguments that look so; None where it isn't to be remembered."""
    holes: list[UOp] = []
    values = [_stand_in(look, holes) if type(look) is Look else look for look in looks]
    first = len(values) - len(names)
    with recording.expression():
        result = method(*values[:first], **dict(zip(names, values[first:], strict=True)))
    if not isinstance(result, Core) or result._element or any(result is each for each in values):
        return None
    node, wants = result._value, result.requires_grad
    bottom = bottom_of(node)
    views = None
    if bottom in holes:
        if not is_window(node, bottom):
            return None  # a copy that is yet to be made
        ends = [chain[-1] for chain in _chains(looks, holes)]
        views = ends.index(bottom)
    elif not is_plain_window(node) or bottom.op is Ops.CONST:
        return None
    if any(below.op in _NEW for below in node.toposort(stop=holes) if below not in holes):
        return None  # storage of its own, or numbers that were drawn
    look = look_at(type(result), wants, node)
    return Result(Template(holes, [node]), type(result), wants, look, views)


def _chains(looks: Iterable[Hashable], holes: Sequence[UOp]) -> Iterator[Sequence[UOp]]:
    """Of each tensor its part of the holes."""
    begin = 0
    for look in (look for look in looks if isinstance(look, Look)):
        end = begin + len(look.views) + 1
        yield holes[begin:end]
        begin = end


def _is_right(promise: Promise, method: Any, given: Iterable[Any], named: dict[str, Any]) -> bool:
    """Whether the method makes what is promised. Nobody else gets the nodes of this."""
    made: dict[Expression, list[UOp]] = {}
    write_down([promise], made)

    def there(value: Any) -> Any:
        return shadow(value, made) if isinstance(value, Core) else value

    with recording.expression():
        result = method(*map(there, given), **{name: there(v) for name, v in named.items()})
    return result._uop is made[promise.expression][0]
