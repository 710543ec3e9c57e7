"""Methods whose results are remembered, traced once for each look of their arguments: for arguments
that look like earlier ones, the expression is made again without running the method.

In each step a training loop makes the same expressions of other buffers. A method is marked
`@expression` if it only combines its tensors, draws no random numbers, and depends on nothing but
shapes, dtypes, devices, numbers and modes. It runs once for each *look* of its arguments, on
stand-ins that have nothing but that look. A later call gives a promise (`tensor/promise`) if its
tensors are storage or promised themselves; otherwise it gives the nodes at once. With SPEC each
call is also made the ordinary way, and compared."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import JitError
from tinygrad.base.settings import SPEC
from tinygrad.engine.aliases import bottom_of
from tinygrad.engine.holders import surroundings_now
from tinygrad.engine.realize import capturing, computing
from tinygrad.engine.turns import keeping, turns
from tinygrad.schedule.bases import MOVED
from tinygrad.schedule.strides import is_window, repeats, steps_between
from tinygrad.tensor.backlog import compute_backlog, may_be_put_off
from tinygrad.tensor.core import Core
from tinygrad.tensor.looks import Look, look_at, stand_in
from tinygrad.tensor.modes import recording
from tinygrad.tensor.origin import user_line
from tinygrad.tensor.promise import (
    DEEP,
    Expression,
    Promise,
    Source,
    Template,
    Written,
    holes_of,
    shadow,
    write_down,
)
from tinygrad.tensor.roots import end_of_views, equals_known
from tinygrad.tensor.sources import fetch, source_of
from tinygrad.tensor.varying import MARKER, VARYING, leaf_of, marked, opened, varies
from tinygrad.tensor.version import Bound, Version
from tinygrad.uop import Ops, UOp

C = TypeVar("C", bound=Core)
F = TypeVar("F", bound=Callable[..., Any])

See = Callable[[Any, list[Any]], Hashable]
"""How a tensor looks; what stands behind it goes to the list. None where more may matter."""

MOST = 1024  # templates that are kept; the least recently used goes first
MOST_DEEP = 20_000  # promises that stand on each other; what is made of so many has a node at once
_NUMBERS = frozenset((int, bool, str, float, type(None), type(Ellipsis), DType))
_SELECTING = _NUMBERS | {slice}
_MADE = ("Self", "list[Self]", "tuple[Self, ...]", "tuple[Self, Self]", "tuple[Self, Self, Self]")
_NEW = {Ops.UNIQUE, Ops.BUFFER, Ops.BIND, Ops.ASSIGN, Ops.COPY}


def expressions(cls: type[C], moves: bool = False) -> type[C]:
    """The class, whose public methods that give tensors are expressions. They are small: of nodes
    they are made as fast as they are remembered, and so are views of storage where most `moves`
    elements."""
    for name, method in list(vars(cls).items()):
        is_public = not name.startswith("_") or name.startswith("__")
        makes = method.__annotations__.get("return") if type(method) is FunctionType else None
        if is_public and makes in _MADE and not hasattr(method, "is_small"):
            setattr(cls, name, expression(method, is_small=True, moves=moves))
    return cls


def small(method: F) -> F:
    """A method that is treated like those of a class of `expressions`."""
    return expression(method, is_small=True)


def movements(cls: type[C]) -> type[C]:
    """The same for a class whose methods mostly move elements."""
    return expressions(cls, moves=True)


def constants(method: F) -> F:
    """A method of a class that makes a tensor of numbers alone, made to remember its results."""
    return expression(method, is_small=True, of_numbers=True)


def expression(
    method: F, is_small: bool = False, moves: bool = False, of_numbers: bool = False
) -> F:
    """The method, made to remember its results for arguments that look alike."""
    see = _source_seen if is_small else _seen

    @functools.wraps(method)
    def remembered(*given: Any, **named: Any) -> Any:
        if recording.inside or (is_small and capturing()):
            return method(*given, **named)
        if moves and not named and given and _is_of_storage(*given):
            with turns.together(), keeping.now:  # what it is a view of stays that until it is one
                return method(*given)
        values = (*given, *named.values()) if named else given
        seen: list[Any] = []  # sources, and nodes of what has none
        looks = looks_of(values, see, seen)
        if looks is None and not capturing():
            tensors = list(_all(Core, values))
            if len(tensors) > 1 and any([fetch(tensor) for tensor in tensors]):
                seen = []
                looks = looks_of(values, see, seen)
        is_one = moves and list(map(type, seen)) == [Version]
        if not looks or not (seen or of_numbers) or is_one:
            return method(*given, **named)
        names = tuple(named)
        found = _remembered(method, names, surroundings_now(), *looks)
        if found is ANY_NUMBER:
            found = _remembered(method, names, surroundings_now(), *(opened(looks) or ()))
            seen += _numbers(found, given)
        by_nodes = not is_small and (capturing() or UOp in map(type, seen))
        if not found or not ((found.is_new and not by_nodes) or found.can_be_made(seen, by_nodes)):
            return method(*given, **named)
        if by_nodes:
            return found.of_nodes(method, names, looks, seen)
        if Written not in map(type, seen):
            return _as_promised(found, seen, method, names, values)
        with turns.together(), keeping.now:  # no write is done before what reads it is there
            if not any([type(source) is Written and source.is_over for source in seen]):
                return _as_promised(found, seen, method, names, values)
        return remembered(*given, **named)  # another thread was faster

    made: Any = remembered
    made.is_small = is_small
    how = {"is_small": is_small, "moves": moves, "of_numbers": of_numbers}
    made.remember = functools.partial(expression, **how)
    return made  # type: ignore[no-any-return]


def _is_of_storage(of: Any, *numbers: Any) -> bool:
    """Whether a view of storage is asked for, by numbers and slices alone."""
    if not isinstance(of, Core) or isinstance(of._source, Promise):
        return False
    if of._uop.base.op is not Ops.BUFFER and not equals_known(of._uop):
        return False
    parts = numbers[0] if len(numbers) == 1 and type(numbers[0]) is tuple else numbers
    return _SELECTING.issuperset(map(type, parts))


class Several(NamedTuple):
    """The looks of what is in a tuple, a list or a slice."""

    kind: type
    looks: tuple[Hashable, ...]
    types: tuple[type, ...]  # equal numbers may be of several

    def values(self, nodes: Iterator[UOp]) -> Any:
        """The same of tensors that look so, and have these nodes."""
        values = [_value_of(look, nodes) for look in self.looks]
        return slice(*values) if self.kind is slice else self.kind(values)


_PARTED: dict[type, Callable[[Any], Iterable[Any]]] = {
    tuple: lambda value: value,
    list: lambda value: value,
    Several: lambda value: value.looks,
    slice: lambda value: (value.start, value.stop, value.step),
}


def looks_of(values: Iterable[Any], see: See, seen: list[Any]) -> list[Hashable] | None:
    """The looks of the arguments. The sources behind tensors are added to `seen`. None where more
    than a look may matter."""
    found: list[Hashable] = []
    for value in values:
        kind = type(value)
        if isinstance(value, Core):
            value = see(value, seen)
            if value is None:
                return None
        elif kind in _NUMBERS or kind is type or isinstance(value, float):  # as NumPy's float64
            if isinstance(value, float) and value == 0 and math.copysign(1.0, value) < 0:
                return None  # equal to 0.0, but another number
        elif kind is not tuple or not all([type(n) is int for n in value]):
            inner = _PARTED[kind](value) if kind in _PARTED else ()
            parts = looks_of(inner, see, seen)
            if not parts:
                return None
            value = Several(kind, tuple(parts), tuple(map(type, parts)))
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
    source = source_of(tensor)
    if source is not None:
        seen.append(source)
        return source.look
    node = tensor._held
    seen.append(node)
    can_be_told = dtypes.is_float(node.dtype) and not tensor._element
    return look_at(type(tensor), tensor.requires_grad, node) if can_be_told else None


def _value_of(look: Hashable, nodes: Iterator[UOp]) -> Any:
    """An argument that looks so; a tensor is of the next of the nodes."""
    if isinstance(look, Several):
        return look.values(nodes)
    if not isinstance(look, Look):
        return MARKER if look is VARYING else look
    made: Core = look.kind.of(next(nodes), look.wants_gradient)
    made._taped = True  # no start: of a tensor that is one the node says so
    return made


def _all(kind: type, values: Iterable[Any]) -> Iterator[Any]:
    """What is of a kind among values, and in those that have parts, in order."""
    for value in values:
        if isinstance(value, kind):
            yield value
        elif type(value) in _PARTED:
            yield from _all(kind, _PARTED[type(value)](value))


def _numbers(found: Result | None, given: Sequence[Any]) -> list[Bound]:
    """The leaf for the operand's value."""
    return [leaf_of(given[1], dtype, device) for dtype, device in found.numbers] if found else []


class Output(NamedTuple):
    """A tensor that a method makes: its class, whether it wants a gradient, how it looks, of which
    tensor it is a view, of which a view or a copy that is yet to be made, and whether it may be
    computed at any time (`tensor/backlog`)."""

    kind: type[Core]
    wants: bool | None
    look: Look | None
    views: int | None
    moves: int | None
    may_be_put_off: bool

    def of(self, node: UOp) -> Core:
        """The tensor, of a node."""
        made = self.kind.of(node, self.wants)
        made._taped = self.wants is True
        return made

    def promised(self, promise: Promise, values: Iterable[Any]) -> Core:
        """A tensor without a node, promised of these arguments."""
        made = self.kind._promised(promise)
        if self.views is not None:
            made._view(list(_all(Core, values))[self.views])
        if self.may_be_put_off and recording.computes:
            compute_backlog(promise.expression.template)
        if promise.depth >= MOST_DEEP:
            _ = made._uop
        return made


class Result(NamedTuple):
    """What a method makes: a template with a root for each of the tensors, which are in a
    `container` unless there is only one."""

    template: Template
    outputs: list[Output]
    container: Callable[[Iterable[Any]], Any] | None
    is_new: bool  # whether none of them is a view or a copy of what is given
    numbers: list[tuple[DType, str]] = []  # of constants that may change, the last of its holes

    def can_be_made(self, sources: Sequence[Source | UOp], by_nodes: bool) -> bool:
        """Whether there is no view, or only of what is promised and will be stored; and where nodes
        are asked for no write that has none yet."""
        if by_nodes and Written in map(type, sources):
            return False
        for each in self.outputs:
            source = None if each.moves is None else sources[each.moves]
            if source is None:
                continue
            if by_nodes or type(source) is not Promise:
                return False
            if each.views is not None and not source.stored.is_whole:
                return False
        return True

    def of_nodes(
        self, method: Any, names: Any, looks: Iterable[Hashable], seen: Sequence[Source | UOp]
    ) -> Any:
        """What the method makes, of the nodes behind its arguments."""
        nodes = self.template.over(holes_of(_all(Look, looks), seen), user_line())
        if SPEC:
            below = iter([each if isinstance(each, UOp) else each.node for each in seen])
            again = [_value_of(look, below) for look in looks]
            assert self.gives(_run(method, names, again), nodes), method.__name__
        made = [each.of(node) for each, node in zip(self.outputs, nodes, strict=True)]
        return self.container(made) if self.container else made[0]

    def gives(self, result: Any, nodes: Sequence[UOp]) -> bool:
        """Whether these are the nodes of the results."""
        right = [each._uop for each in (result if self.container else (result,))]
        return _are_alike(nodes, right)


ANY_NUMBER = Result(Template((), ()), [], None, False)
"""Says that a call is to be remembered for any number."""

_promises: dict[Hashable, weakref.ref[Promise]] = {}
"""What is the same of the same is promised once, as equal nodes are one. A promise that dies takes
its entry along, without Python code."""


def _as_promised(
    found: Result, sources: list[Source], method: Any, names: Sequence[str], values: Sequence[Any]
) -> Any:
    """What the method gives for these values, promised."""
    promises = _promised(found, sources)
    if SPEC and promises[0].depth <= DEEP:  # it takes as long as it is deep
        right = _is_right(promises, found, method, names, values, sources)
        assert right, method.__name__
    if not found.container:
        return found.outputs[0].promised(promises[0], values)
    made = zip(found.outputs, promises, strict=True)
    return found.container([each.promised(promise, values) for each, promise in made])


def _promised(result: Result, sources: list[Source]) -> list[Promise]:
    template, made = result.template, []
    expression: Expression | None = None
    for number, output in enumerate(result.outputs):
        key = (template, number, *sources)
        reference = _promises.get(key)
        promise = None if reference is None else reference()
        if promise is None or promise.is_computed:  # who has what is computed may write to it
            if expression is None:
                expression = Expression(template, sources, user_line())
            of: Any = None if output.views is None else sources[output.views]
            promise = Promise(expression, number, output.look, output.wants, of)
            _promises[key] = weakref.ref(promise, functools.partial(_promises.pop, key))
        expression = promise.expression
        made.append(promise)
    return made


def _output(
    each: Core, node: UOp, tensors: Sequence[Core], ends: list[UOp], of: dict[UOp, int]
) -> Output | None:
    """What is remembered of a result with this node; None where it can't be. `ends`: what each of
    the given tensors is a view of; `of`: their numbers by what lies below that."""
    moves = of.get(bottom_of(node))
    is_of_copy = moves is not None and ends[moves] is not bottom_of(node)
    is_view = _is_view(node, ends)
    if is_of_copy:
        return None
    end = _end_below(node, ends)
    views = ends.index(end) if is_view else None
    if views is not None and each.family is not tensors[views].family:
        views = None  # a copy, in order by its meaning: what neither lies so nor repeats looks else
        if not (repeats(node, end) or is_window(node.reshape((node.size,)), end)):
            return None
    if moves is not None and _may_go_around(node, tensors[moves]._uop):
        return None
    look = look_at(type(each), each.requires_grad, node)
    wants = each.requires_grad
    return Output(type(each), wants, look, views, moves, may_be_put_off(look, wants))


def _may_go_around(node: UOp, given: UOp) -> bool:
    """Whether it is a diagonal, or windows, of what repeats elements, which may be a view of what
    lies below: a stand-in begins with the repeated ones, so it can't tell."""
    if not repeats(given, bottom_of(given)):
        return False
    is_around = bottom_of(node, given) is not given
    return is_around or any(step.op is Ops.WINDOW for step in steps_between(node, given))


def _end_below(node: UOp, ends: list[UOp]) -> UOp:
    """The one of these nodes that lies below movement, or what does."""
    while node not in ends and node.op in MOVED:
        node = node.src[0]
    return node


def _is_view(node: UOp, ends: list[UOp]) -> bool:
    """Whether a node is a view of one of these."""
    bottom = _end_below(node, ends)
    return bottom in ends and is_window(node, bottom)


@functools.lru_cache(MOST, typed=True)
def _remembered(
    method: Callable[..., Any], names: tuple[str, ...], modes: Hashable, *looks: Hashable
) -> Result | None:
    """What the method makes of arguments that look so; None where it isn't to be remembered."""
    takes_any = getattr(method, "takes_any_number", False) and not names
    free = opened(looks) if takes_any else None
    if free is not None and varies((method, names, modes, *free)):
        return ANY_NUMBER
    return _tried(method, names, looks)


def _tried(
    method: Callable[..., Any], names: Sequence[str], looks: Sequence[Hashable]
) -> Result | None:
    """Runs the method on stand-ins, and keeps what it made; None where that isn't all that a call
    means."""
    alike = list(_all(Look, looks))
    chains = [stand_in(look) for look in alike]
    holes = [node for chain in chains for node in chain]
    above = iter([chain[0] for chain in chains])
    values = [_value_of(look, above) for look in looks]
    result = _on_stand_ins(method, names, values)
    container = type(result) if isinstance(result, (tuple, list)) else None
    made = list(result) if container else [result]
    tensors = list(_all(Core, values))
    given = set(map(id, tensors))
    if not made or any([not isinstance(t, Core) or t._element or id(t) in given for t in made]):
        return None
    nodes = _plain([each._value for each in made], holes)
    ends = [end_of_views(chain[0]) for chain in chains]
    numbers = {chain[-1]: number for number, chain in enumerate(chains)}
    outputs = []
    for each, node in zip(made, nodes, strict=True):
        output = _output(each, node, tensors, ends, numbers)
        if output is None:
            return None
        outputs.append(output)
    inner = [n for n in UOp.sink(*nodes).toposort(stop=holes) if n not in holes]
    constants = marked(inner) if VARYING in looks else []
    is_start = not tensors and made[0].requires_grad
    if is_start or len(constants) != (VARYING in looks) or _is_more(nodes, inner, ends):
        return None
    template = Template((*holes, *constants), nodes)
    if not tensors:  # nodes that others make, too, and compute: nothing may keep these
        if any([each.look is None for each in outputs]):
            return None
        template.roots = tuple([stand_in(each.look)[0] for each in outputs if each.look])
    if template.looks_behind(alike):
        return None
    is_new = all([each.moves is None for each in outputs])
    of_numbers: Any = [(node.dtype, node.device) for node in constants]
    return Result(template, outputs, container, is_new, of_numbers)


def _on_stand_ins(method: Callable[..., Any], names: Sequence[str], values: list[Any]) -> Any:
    """What the method makes of stand-ins; nothing if it asks for more than their looks."""
    before, computing.recorder = computing.recorder, _OnStandIns()
    try:
        return _run(method, names, values)
    except JitError:
        return ()
    finally:
        computing.recorder = before


def _is_more(nodes: Sequence[UOp], inner: Iterable[UOp], ends: list[UOp]) -> bool:
    """Whether results are more than expressions of their own: views of each other, constants, or
    made of storage or of numbers that were drawn."""
    new = [bottom_of(node) for node in nodes if not _is_view(node, ends)]
    return (
        len(set(new)) < len(new)
        or any([bottom_of(node).op is Ops.CONST for node in nodes])
        or any([node.op in _NEW for node in inner])
    )


def _plain(nodes: Sequence[UOp], holes: Collection[UOp] = ()) -> list[UOp]:
    """The same, with constants that were made on the way and are of nobody's like all others."""
    below = UOp.sink(*nodes).toposort(stop=holes)
    owned = [n for n in below if n.op is Ops.CONST and len(n.src) > 1 and n not in holes]
    plain = {n: n.with_src(n.src[:1]) for n in owned}
    return [node.substitute(plain) for node in nodes] if plain else list(nodes)


def _are_alike(nodes: Sequence[UOp], others: Sequence[UOp]) -> bool:
    """Whether these are the same when they are `_plain`. What both share isn't walked, or each call
    of a long chain would walk all that lies before it."""
    pairs, seen = [*zip(nodes, others, strict=True)], set()
    while pairs:
        pair = one, other = pairs.pop()
        if one is other or pair in seen:
            continue
        seen.add(pair)
        if one.op is Ops.CONST is other.op:
            if one.with_src(one.src[:1]) is not other.with_src(other.src[:1]):
                return False
        elif (one.op, one.dtype, one.arg, one.tag) != (
            other.op,
            other.dtype,
            other.arg,
            other.tag,
        ) or len(one.src) != len(other.src):
            return False
        else:
            pairs += zip(one.src, other.src, strict=True)
    return True


class _OnStandIns:
    """Looks on while a method runs on stand-ins, which have no values, and are nobody's."""

    name, start = "expression", 0
    others: Collection[int] = ()

    def refuse(self, *_: Any) -> None:
        """JitError: it can't be remembered, or there is nothing that could be computed."""
        raise JitError(self.name)

    before = after = refuse
    begins_gradient = sees_gradient = sets_gradient = refuse

    def each_time(self, happens: Any) -> None:
        """It can't be remembered."""
        raise JitError(self.name)

    def unwatched(self) -> AbstractContextManager[None]:
        """Nothing is watched here."""
        return nullcontext()


_LOOKS = 3  # another thread may come between two


def _is_right(
    promises: Sequence[Promise],
    result: Result,
    method: Any,
    names: Any,
    values: Any,
    seen: Sequence[Source],
) -> bool:
    """Whether what is promised is what the method makes. Nobody else gets to see that. Another
    thread may compute what it stands on meanwhile: then it is looked at again, or nobody can tell.
    """
    for _ in range(_LOOKS):
        made = write_down(promises[0].expression, {})
        shadows = [_shadows(value, made) for value in values]
        if result.gives(_run(method, names, shadows), made[promises[0].expression]):
            return True
    return not all(map(_stands_on, _all(Core, values), seen))  # numbers come last


def _stands_on(tensor: Core, source: Source) -> bool:
    """Whether a tensor is still what it was seen to stand on."""
    if isinstance(source, Version):
        return source.now(tensor) is source
    return not isinstance(source, Promise) or tensor._source is source


def _run(method: Any, names: Sequence[str], values: Sequence[Any]) -> Any:
    """What an expression makes of values, the last of which have names."""
    first = len(values) - len(names)
    with recording.expression():
        return method(*values[:first], **dict(zip(names, values[first:], strict=True)))


def _shadows(value: Any, made: dict[Expression, list[UOp]]) -> Any:
    """An argument in which shadows stand for tensors."""
    if isinstance(value, Core):
        return shadow(value, made)
    if type(value) in (tuple, list):
        return type(value)([_shadows(each, made) for each in value])
    return value
