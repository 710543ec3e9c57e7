"""Where a captured step finds its state: every tensor that can be reached from the step's function
by the names that it uses, and from there by attributes, keys and positions. If the step, or the
program between two replays, puts another tensor in such a place, that is noticed, even if the old
tensor is still alive elsewhere.

It knows Python's objects and how to go from one to the next without running user code, and of
tensors only that they are some. Which of them the step reads is `capture`'s to say, which settings,
`reads`'s: both then call `watch`. Read `_paths_from` first (the search), then `_parts` (what an
object refers to), then `Places`. A *place* is an owner, a key, and how to look there; a *path* is
the places from the step's function to a tensor.
"""

from __future__ import annotations

import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from functools import partial
from operator import getitem, is_
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from tinygrad.engine.holders import Holder
from tinygrad.uop.node import UOp

MOST = 50_000
"""The most objects that are searched: those beyond are not watched."""

PLAIN = (str, bytes, int, float, complex, type(None))
"""Types without references to other objects."""

OWN = "tinygrad."
"""The prefix of the framework's modules."""

_CLOSED = (*PLAIN, UOp)
_STEADY = ("tinygrad.engine.", "tinygrad.nn.optim")  # what these keep is never rebound
_PARTS = ("__wrapped__", "value", "optimizer", "optimizers", "schedulers")
_MADE_OF: dict[type, tuple[str, ...]] = {
    MethodType: ("__self__", "__func__"),
    partial: ("func", "args", "keywords"),
}
_GONE = (LookupError, AttributeError, ValueError)


class Place(NamedTuple):
    """`get(owner, key)` returns what is there."""

    get: Callable[[Any, Any], Any]
    owner: Any
    key: Any
    value: Any


Path = tuple[Place, ...]
Watched = tuple[Any, ...]  # getter, owners, keys, values


class Places:
    """The paths from `root` to all tensors, by their keys; after `watch`, to some of them. `cells`
    are those of closures, by the code that reads them and the name; `settings` are the other
    watched places (`engine/reads`), with their names in the code."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self.watched: list[Watched] = []
        self.cells = defaultdict[tuple[CodeType, str], list[Place]](list)
        self.settings: list[tuple[str, Place]] = []
        self.seen: set[int] = set()  # the `id` of every object that was seen
        self.paths = _paths_from(root, self.seen, self.cells)

    def knows(self, value: Any) -> bool:
        """Whether an object existed when this was made, and was found. Valid until `watch`."""
        return isinstance(value, (type, ModuleType)) or id(value) in self.seen

    def watch(self, tensors: Container[int], settings: list[tuple[str, Place]]) -> None:
        """From now on watches only the tensors with these ids, and these settings."""
        self.settings = settings
        self.seen.clear()
        self.cells.clear()
        self._keep({k: path for k, path in self.paths.items() if id(path[-1].value) in tensors})

    def _keep(self, paths: dict[tuple[Any, ...], Path]) -> None:
        self.paths = paths
        places = {(id(p.owner), p.key): p for path in paths.values() for p in path}
        self.watched = _rows([*places.values(), *(place for _, place in self.settings)])

    @property
    def are_kept(self) -> bool:
        """Whether all watched places hold the same objects."""
        return _same(self.watched)

    def others(self) -> list[Holder]:
        """The tensors that are where another one was."""
        found = []
        for *_, place in self.paths.values():
            with suppress(*_GONE):
                if isinstance(now := place.get(place.owner, place.key), Holder):
                    found += [now] * (now is not place.value)
        return found

    def look_again(self) -> list[Holder]:
        """The tensors whose place holds another one now, or nothing. A list or another object on
        the path may have been replaced. Settings have been found unchanged before."""
        now = _paths_from(self.root, set(), defaultdict(list))
        lost = []
        for keys, path in self.paths.items():
            tensor = path[-1].value
            if not _same(_rows(path)) and (keys not in now or now[keys][-1].value is not tensor):
                lost.append(tensor)
        if not lost:
            kept = [(name, p._replace(value=p.get(p.owner, p.key))) for name, p in self.settings]
            self.settings = kept  # equal ones, maybe other objects
            self._keep({keys: now.get(keys, path) for keys, path in self.paths.items()})
        return lost


def _paths_from(
    root: Any, seen: set[int], cells: defaultdict[tuple[CodeType, str], list[Place]]
) -> dict[tuple[Any, ...], Path]:
    """The shortest paths come first; an object with several paths is entered once."""
    found: dict[tuple[Any, ...], Path] = {}
    waiting = deque[tuple[Path, Any]]([((), root)])
    seen.add(id(root))
    while waiting and len(seen) < MOST:
        path, value = waiting.popleft()
        for place in _parts(value):
            part = place.value
            if isinstance(part, Holder):
                found[tuple([p.key for p in (*path, place)])] = (*path, place)
                continue
            if place.get is _content:
                code = place.owner.__code__
                cells[code, code.co_freevars[place.key]].append(place)
            if not isinstance(part, _CLOSED) and id(part) not in seen:
                seen.add(id(part))
                if isinstance(part, weakref.ref):
                    seen.add(id(part()))
                waiting.append(((*path, place), part))
    return found


def changed(settings: Iterable[tuple[str, Place]]) -> Iterator[tuple[str, Any, Any]]:
    """The settings that have changed: the name, the old value and the new one."""
    for name, (get, owner, key, value) in settings:
        try:
            now = get(owner, key)
        except _GONE:
            now = "gone"
        if now is not value and not _equal(now, value):
            yield name, value, now


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):  # maybe defined again
        return one.__code__ == other.__code__ and one.__closure__ == other.__closure__
    return type(one) is type(other) and bool(one == other)


def _rows(places: Iterable[Place]) -> list[Watched]:
    """Groups places by their getter."""
    rows: dict[Any, list[Place]] = {}
    for place in places:
        rows.setdefault(place.get, []).append(place)
    return [(get, *list(zip(*row, strict=True))[1:]) for get, row in rows.items()]


def _same(rows: Iterable[Watched]) -> bool:
    """Whether all these places hold the same objects. It runs for each replay, so it is a few loops
    in C."""
    try:
        for get, owners, keys, values in rows:
            if not all(map(is_, map(get, owners, keys), values)):
                return False
    except _GONE:
        return False
    return True


def _parts(value: Any) -> Iterator[Place]:
    """The objects that a value refers to."""
    if isinstance(value, dict):
        for key, part in list(value.items()):
            yield Place(getitem, value, key, part)
    elif isinstance(value, (list, tuple, deque)):
        for number, part in enumerate(list(value)):
            yield Place(getitem, value, number, part)
    elif isinstance(value, weakref.ref):
        yield from _parts(value())  # a method's own, which must not be kept alive
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, (type, ModuleType)):
        yield from _parts_of_space(value)
    else:
        yield from _parts_of_object(value)


def _parts_of_function(function: FunctionType) -> Iterator[Place]:
    space, closure = function.__globals__, function.__closure__ or ()
    if not space.get("__name__", "").startswith(OWN):
        for name in _names(function.__code__):
            if name in space:
                yield Place(getitem, space, name, space[name])
    for number, cell in enumerate(closure):
        with suppress(ValueError):  # of a name that is not bound yet
            yield Place(_content, function, number, cell.cell_contents)
    yield from _attributes(function, ("__defaults__", "__kwdefaults__"))


def _parts_of_object(value: Any) -> Iterator[Place]:
    kind = type(value)
    if kind in _MADE_OF or kind.__module__.startswith(_STEADY):
        yield from _attributes(value, _MADE_OF.get(kind, _PARTS))
        return
    for name, part in list(getattr(value, "__dict__", {}).items()):
        yield Place(getitem, value.__dict__, name, part)
    for cls in kind.__mro__[:-1]:
        slots = getattr(cls, "__slots__", ())
        yield from _attributes(value, (slots,) if isinstance(slots, str) else slots)
        yield from _parts_of_space(cls)


def _parts_of_space(space: Any) -> Iterator[Place]:
    """A class or a module: its tensors, and its methods, which may use names themselves."""
    if not getattr(space, "__module__", space.__name__).startswith(OWN):
        kinds = Holder if isinstance(space, ModuleType) else (Holder, FunctionType)
        names = [n for n, part in list(vars(space).items()) if issubclass(type(part), kinds)]
        yield from _attributes(space, names)


def _attributes(value: Any, names: Iterable[str]) -> Iterator[Place]:
    """What a property makes dies at once, and another object may get its `id`."""
    for name in names:
        is_made = isinstance(getattr(type(value), name, None), property)
        if not is_made and (part := getattr(value, name, None)) is not None:
            yield Place(getattr, value, name, part)


def _content(function: FunctionType, number: int) -> Any:
    return (function.__closure__ or ())[number].cell_contents


def _names(code: CodeType) -> Iterator[str]:
    """All names that a function's code uses, including those of inner functions."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
