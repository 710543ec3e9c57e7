"""The settings that a captured step reads by name: numbers, other plain values and functions that
globals, closures and attributes hold.

Replays run none of the step's Python, so they would keep the settings of the captured call for
ever. While a step is captured, a profiler is shown each function of Python that is called. What its
code reads by name, from what was there before the step, is looked up when it is called, and is
watched from then on (`engine/places`): one that has changed since is an error. So are the lists and
the like that it finds in this way (`engine/contents`), or calls a method of.

This file decides only what is read; it compares nothing, and knows no tensor. Read `_reads` first
(a function's bytecode as names, with the attributes and elements that are taken at once), then
`Reads._place` (from names to the places of values), then `Reads._look` (what the profiler does).

Of the environment it is known which variables were read. Not seen is what is reached in another
way: by `getattr(x, name)`, through local variables, in a file, or while another profiler runs. Of
that `engine/outlines` sees what was another number in the call before.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from inspect import CO_GENERATOR
from itertools import pairwise
from operator import getitem
from types import CodeType, FrameType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple

from tinygrad.engine.contents import SETTINGS, SOURCES, Contents, owner_of
from tinygrad.engine.holders import Holder
from tinygrad.engine.places import OWN, Place, Places

_OPEN = ("tinygrad.nn", "tinygrad.models")  # parts of the framework that are configured by settings


class Read(NamedTuple):
    """`root.name.name` in a function's code. Names in brackets are keys."""

    is_global: bool
    root: str
    names: tuple[tuple[str, Any], ...]  # "." or "[", and what follows
    is_stored: bool
    use: str = ""  # "whole", "iterated", "part", "looked up"; nothing where it is only written

    def __str__(self) -> str:
        parts = (f".{key}" if how == "." else f"[{key!r}]" for how, key in self.names)
        return self.root + "".join(parts)


class Reads:
    """What a step reads while it runs. `places` knows the objects that existed before."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._first: dict[tuple[int, Any], tuple[str, Place]] = {}  # as the step found it
        self._read: set[tuple[int, Any]] = set()
        self.contents = Contents()

    def watching(self) -> AbstractContextManager[None]:
        """A context in which reads are watched, unless someone else watches already."""
        return _profiled(None, self._look)

    def unwatched(self) -> AbstractContextManager[None]:
        """A context in which reads are not watched."""
        return _profiled(self._look, None)

    def settings(self) -> list[tuple[str, Place]]:
        """What was read, with its name in the code and the value that it had before the step."""
        return [self._first[key] for key in self._read]

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            owner = getattr(argument, "__self__", None)
            if id(owner) in self._places.seen and _is_seen(_module(frame)):
                self.contents.meets(owner, f"a {type(owner).__name__} (in {_name(frame)})")
            return
        if event != "call":
            return
        if frame.f_code is _ENVIRONMENT and isinstance(name := frame.f_locals["key"], str):
            place = Place(os.environ.get, name, None, os.environ.get(name))
            self._first.setdefault((id(os.environ), name), (f"os.environ[{name!r}]", place))
            self._read.add((id(os.environ), name))
            return
        if frame.f_code.co_flags & CO_GENERATOR and _module(frame) != __name__:
            self.contents.enters(frame)
        for read in _reads(frame.f_code, _module(frame)):
            if not read.is_global and not read.names:
                self._meet(frame, read, frame.f_locals.get(read.root))
            for key, place in self._place(frame, read):
                if isinstance(place.value, SETTINGS):
                    self._first.setdefault(key, (f"{read} (in {_name(frame)})", place))
                    if not read.is_stored:
                        self._read.add(key)
                    continue
                self._meet(frame, read, place.value)

    def _meet(self, frame: FrameType, read: Read, value: Any) -> None:
        value = owner_of(value)
        if id(value) in self._places.seen or isinstance(value, SOURCES):
            self.contents.meets(value, f"{read} (in {_name(frame)})", read.use)

    def _place(self, frame: FrameType, read: Read) -> Iterator[tuple[tuple[int, Any], Place]]:
        """The place of what is read, if it existed before the step, and a key that identifies
        it."""
        place: Place | None = None
        owner: Any = frame.f_globals
        if not read.is_global:
            if not read.names:
                for cell in self._places.cells.get((frame.f_code, read.root), ()):
                    yield (id(cell.owner), cell.key), cell
            value = frame.f_locals.get(read.root)
        elif read.root in owner and not _module(frame).startswith(OWN):
            value = owner[read.root]
            place = Place(getitem, owner, read.root, value)
        else:
            return
        key: Any = read.root
        for how, name in read.names:
            if isinstance(value, SETTINGS):
                break
            if not self._places.knows(value):
                return
            owner, key = value, name
            place = _attribute(value, key) if how == "." else _element(value, key)
            if place is None:
                return
            value = place.value
        if place is not None:
            yield (id(owner), key), place


@contextmanager
def _profiled(before: Any, inside: Any) -> Iterator[None]:
    """A context with another profiler, if it is entered with the one `before`."""
    if sys.getprofile() != before:
        yield
        return
    sys.setprofile(inside)
    try:
        yield
    finally:
        sys.setprofile(before)


def _attribute(value: Any, name: str) -> Place | None:
    """The place of an attribute; None if it is unknown, or is internal to the framework."""
    if isinstance(value, ModuleType):
        space = vars(value)
        is_own = value.__name__.startswith(OWN)
        return None if is_own or name not in space else Place(getitem, space, name, space[name])
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, Holder) or _is_own(kind.__module__):
        return None
    owner = next((cls for cls in kind.__mro__ if name in vars(cls)), None)
    part = None if owner is None else vars(owner)[name]
    if value is not kind:
        if isinstance(part, MemberDescriptorType):
            found = getattr(value, name, value)
            return None if found is value else Place(getattr, value, name, found)
        space = getattr(value, "__dict__", {})
        if name in space and not hasattr(type(part), "__set__"):
            return Place(getitem, space, name, space[name])
    if owner is None or _is_own(owner.__module__) or hasattr(type(part), "__get__"):
        return None
    if value is not kind and hasattr(value, "__dict__"):
        return Place(_inherited, (value.__dict__, owner), name, part)
    return Place(getattr, owner, name, part)


def _inherited(owners: tuple[dict[str, Any], type], name: str) -> Any:
    """An attribute of a class, unless the object has an attribute of its own."""
    space, kind = owners
    return space[name] if name in space else getattr(kind, name)


def _element(value: Any, key: Any) -> Place | None:
    """The place of an element, if looking it up runs no user code and creates nothing."""
    look = getattr(type(value), "__getitem__", None)
    if look not in _PLAIN_LOOKS or (look is dict.__getitem__ and key not in value):
        return None
    try:
        return Place(getitem, value, key, value[key])
    except (TypeError, LookupError):
        return None


_ENVIRONMENT = type(os.environ).__getitem__.__code__
_PLAIN_LOOKS = (dict.__getitem__, list.__getitem__, tuple.__getitem__)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _name(frame: FrameType) -> str:
    return frame.f_code.co_qualname


def _is_seen(module: str) -> bool:
    """Whether the module is neither of the framework nor of the standard library."""
    return not _is_own(module) and module.partition(".")[0] not in sys.stdlib_module_names


def _is_own(module: str) -> bool:
    return module.startswith(OWN) and not module.startswith(_OPEN)


# ---- what a function's code reads ----------------------------------------------------------------


@functools.lru_cache(1 << 12)
def _reads(code: CodeType, module: str) -> Sequence[Read]:
    """The names that the code loads and stores, each with the attributes and elements that are
    taken at once."""
    if not _is_seen(module):
        return ()
    found: dict[Read, None] = {}
    read: Read | None = None
    every = list(dis.get_instructions(code))
    steps = [step for step in every if step.opname not in _SILENT]
    rebound = {step.argval for step in steps if step.opname in ("STORE_FAST", "STORE_DEREF")}
    for at, step in enumerate(steps):
        name, argument = step.opname, step.argval
        if name == "LOAD_CONST" and steps[at + 1].opname == "BINARY_SUBSCR":
            continue
        if name in _GLOBALS:
            read = Read(True, argument, (), name == "STORE_GLOBAL")
        elif name.startswith(_LOCALS):
            local = argument[-1] if isinstance(argument, tuple) else argument
            is_cell = local in code.co_freevars
            known = is_cell or local not in rebound
            read = Read(False, local, (), name.startswith("STORE")) if known else None
        elif read is not None and name in _ATTRIBUTES:
            if argument == "get" and (key := steps[at + 1]).opname == "LOAD_CONST":
                found[read._replace(names=(*read.names, ("[", key.argval)))] = None
            read = read._replace(names=(*read.names, (".", argument)), is_stored=name[0] == "S")
        elif read is not None and name == "BINARY_SUBSCR" and steps[at - 1].opname == "LOAD_CONST":
            read = read._replace(names=(*read.names, ("[", steps[at - 1].argval)))
        else:
            read = None
        if read is not None and not read.names and _is_only_counted(step, every):
            read = read._replace(is_stored=True)
        if read is not None:
            use = "looked up" if _is_looked_up(step, every) else _use(steps[at + 1 : at + 3])
            found[read._replace(use=use)] = None
    return tuple(found)


def _use(after: Sequence[dis.Instruction]) -> str:
    """How the value that was just read is used."""
    name, argument = after[0].opname, after[0].argval
    if name in _ATTRIBUTES:
        return "iterated" if argument in _ITERATING else "" if argument in _WRITING else "whole"
    if len(after) > 1 and after[1].opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
        return ""
    if len(after) > 1 and after[1].opname == "BINARY_SUBSCR" and name == "LOAD_CONST":
        return "part"
    return "iterated" if name == "GET_ITER" else "whole"


def _is_looked_up(read: dis.Instruction, every: Sequence[dis.Instruction]) -> bool:
    """Whether an element of what was just read is taken, by a computed key."""
    above = 0  # on the stack
    after = every[every.index(read) + 1 :]
    for step, following in pairwise(after):
        if step.opname in _ATTRIBUTES and above == 0:
            return step.argval == "get" and following.opname != "LOAD_CONST"
        if following.opname == "BINARY_SUBSCR" and above == 0 and step.opname == "LOAD_CONST":
            return False
        if step.opname == "BINARY_SUBSCR" and above == 1:
            return True
        if step.opcode in _JUMPS:
            return False
        above += dis.stack_effect(step.opcode, step.arg)
        if above < 1:
            return False
    return False


def _is_only_counted(read: dis.Instruction, every: Sequence[dis.Instruction]) -> bool:
    """Whether what was just read goes nowhere but back: `calls += 1`. Then nothing that the step
    computes depends on it, and it counts the calls that ran Python."""
    at = every.index(read) + 1
    names = [step.opname for step in every[at : at + 3]]
    counted = names[:2] in _COUNTED and names[2:] == [read.opname.replace("LOAD", "STORE")]
    return counted and every[at + 2].argval == read.argval


_COUNTED = [["LOAD_CONST", "BINARY_OP"], ["LOAD_SMALL_INT", "BINARY_OP"]]  # `+ 1`
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_ITERATING = {"items", "keys", "values", "copy"}
_WRITING = {"append", "extend", "insert", "remove", "pop", "clear", "update", "setdefault", "add"}
_WRITING |= {"discard", "popitem", "popleft", "appendleft", "extendleft", "reverse", "sort"}
_SILENT = {"COPY", "NOP", "CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"}
_LOCALS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "STORE_DEREF")
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"}
