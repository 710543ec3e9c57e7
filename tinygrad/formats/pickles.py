"""Reads pickles without running them.

A pickle is a program for a small machine with a stack and a memo. The machine here has only the
opcodes that build plain values and containers. A class or function is only a name, which must be in
the caller's table, and a call does what the table says. Nothing is imported, no attribute is looked
up, and no other code runs. `pickletools` decodes the opcodes.

Work and memory are bounded by the length of the file. Keys of dicts and members of sets are flat
and short, because hashing nested tuples that share their parts can take exponential time; integers
are short, too. The arguments of all calls together, which a call may copy, are not longer than what
was read: otherwise one value in the memo could be passed a thousand times.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinygrad.base.errors import FileError
from tinygrad.base.later import later

pickletools = later("pickletools")

Function = Callable[..., Any]


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle names, and its replacement here: `call` makes its value,
    `build` sets the state of such a value. None: it may be named but not called."""

    path: str
    call: Function | None = None
    build: Function | None = None
    value: Any = None  # what it is where it is no function: a dtype


MARK = object()
SIZED = (str, bytes, bytearray, tuple, list, dict, set, frozenset)
SCALARS = (str, bytes, int, float, bool, type(None))
LONGEST = 1 << 12  # decimal digits, or bytes, of an integer
PARTS = 64  # of a key that is a tuple
SLACK = 1 << 16  # elements that calls may be given beyond those that were read


def load(
    file: io.BytesIO,
    names: Mapping[str, Name],
    persistent: Function | None = None,
    where: str = "pickle",
) -> Any:
    """The value of the pickle at the file's position, which then stands behind it.

    Args:
        file: the bytes.
        names: what may be named, by `module.name`.
        persistent: makes the value of a persistent id (a storage).
        where: what messages call the file.

    Raises:
        FileError: a name that isn't in the table, an opcode that plain values don't need, or a
            pickle that is broken.
    """
    machine = Machine(names, persistent, where)
    try:
        for code, argument, place in pickletools.genops(file):
            machine.place = place
            step = STEPS.get(code.name)
            if step is None:
                raise FileError(f"{where}: opcode {code.name}, which plain values don't need")
            step(machine, argument)
        return machine.pop()
    except FileError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise FileError(f"{where}: a broken pickle: {error}") from error
    except (RecursionError, MemoryError) as error:
        raise FileError(f"{where}: a pickle too deep or too large: {error!r}") from error


class Machine:
    """The stack, the memo, and what may be named."""

    def __init__(self, names: Mapping[str, Name], persistent: Function | None, where: str) -> None:
        self.names = names
        self.persistent = persistent
        self.where = where
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.made: dict[int, tuple[Name, Any]] = {}  # by id: what made a value, which it keeps
        self.places: dict[int, int] = {}  # by id: where in the memo a value stands
        self.place = 0  # of the opcode in the file
        self.given = 0  # elements that calls were given

    def pop(self) -> Any:
        """The top of the stack."""
        value = self.stack.pop()
        if value is MARK:
            raise ValueError("a MARK where a value should be")
        return value

    def since_mark(self) -> list[Any]:
        """What was pushed since the last MARK."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise ValueError("no MARK")

    def top(self, *kinds: type) -> Any:
        """The top of the stack, which stays there."""
        value = self.stack[-1]
        if type(value) not in kinds:
            raise ValueError(f"a {type(value).__name__} where {kinds[0].__name__} should be")
        return value

    def name(self, module: Any, name: Any) -> None:
        """Pushes what the table says."""
        path = f"{module}.{name}"
        found = self.names.get(path)
        if found is None:
            raise FileError(
                f"{self.where}: it names {path}, which is no plain value, and was not loaded; "
                "convert the file to safetensors where you trust it"
            )
        self.stack.append(found if found.value is None else found.value)

    def call(self, function: Any, arguments: Any) -> None:
        """Pushes the value of a call, if the table has one."""
        if not isinstance(function, Name) or function.call is None:
            raise FileError(f"{self.where}: it calls {_short(function)}, which can't be called")
        if type(arguments) is not tuple:
            raise ValueError("a call without a tuple of arguments")
        self.charge(arguments)
        value = function.call(*arguments)
        if function.build is not None:
            self.made[id(value)] = function, value
        self.stack.append(value)

    def charge(self, arguments: tuple[Any, ...]) -> None:
        """Counts the arguments of a call, down to the parts of a state."""
        parts = [part for whole in arguments if type(whole) is tuple for part in whole]
        self.given += sum(len(part) for part in (*arguments, *parts) if isinstance(part, SIZED))
        if self.given > 2 * self.place + SLACK:
            raise ValueError(f"calls are given {self.given} elements in {self.place} bytes")

    def build(self, state: Any) -> None:
        """Gives the top of the stack its state, if the table says how."""
        value = self.stack[-1]
        maker, _ = self.made.get(id(value), (None, None))
        if maker is None or maker.build is None:
            raise FileError(f"{self.where}: it sets the state of {_short(value)}")
        self.charge((state,))
        self.stack[-1] = changed = maker.build(value, state)
        if changed is not value and id(value) in self.places:
            self.memo[self.places[id(value)]] = changed

    def remember(self, place: int) -> None:
        """Puts the top of the stack into the memo."""
        value = self.memo[place] = self.stack[-1]
        if id(value) in self.made:
            self.places[id(value)] = place

    def set_items(self, pairs: list[Any]) -> None:
        """Puts keys and values into the dict on top."""
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise ValueError("items for what is no dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            target[flat(key)] = value


def flat(key: Any) -> Any:
    """A key that hashes quickly: a scalar, or a short tuple of scalars."""
    parts = key if type(key) is tuple else (key,)
    if len(parts) > PARTS:
        raise ValueError(f"a key of {len(parts)} parts; legal are {PARTS}")
    if not all(isinstance(part, SCALARS) for part in parts):
        raise ValueError(f"a key {_short(key)}; legal are scalars and tuples of them")
    return key


def _short(value: Any) -> str:
    return value.path if isinstance(value, Name) else f"a {type(value).__name__}"


def _push(machine: Machine, value: Any) -> None:
    if isinstance(value, int) and value.bit_length() > 8 * LONGEST:
        raise ValueError(f"an integer of {value.bit_length()} bits")
    machine.stack.append(value)


def _push_new(make: Callable[[], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, _: machine.stack.append(make())


def _push_marked(make: Callable[[list[Any]], Any]) -> Callable[[Machine, Any], None]:
    return lambda machine, _: machine.stack.append(make(machine.since_mark()))


def _tuple_of(count: int) -> Callable[[Machine, Any], None]:
    def step(machine: Machine, _: Any) -> None:
        values = [machine.pop() for _ in range(count)]
        machine.stack.append(tuple(reversed(values)))

    return step


def _nothing(machine: Machine, _: Any) -> None:
    """What only helps readers."""


def _dict(machine: Machine, _: Any) -> None:
    pairs = machine.since_mark()
    machine.stack.append({})
    machine.set_items(pairs)


def _append(machine: Machine, _: Any) -> None:
    value = machine.pop()
    machine.top(list).append(value)


def _appends(machine: Machine, _: Any) -> None:
    values = machine.since_mark()
    machine.top(list).extend(values)


def _set_item(machine: Machine, _: Any) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


def _add_items(machine: Machine, _: Any) -> None:
    values = machine.since_mark()
    machine.top(set).update(map(flat, values))


def _pop(machine: Machine, _: Any) -> None:
    machine.stack.pop()


def _pop_mark(machine: Machine, _: Any) -> None:
    machine.since_mark()


def _put(machine: Machine, place: Any) -> None:
    machine.remember(int(place))


def _memoize(machine: Machine, _: Any) -> None:
    machine.remember(len(machine.memo))


def _global(machine: Machine, names: Any) -> None:
    module, _, name = names.partition(" ")
    machine.name(module, name)


def _stack_global(machine: Machine, _: Any) -> None:
    name, module = machine.pop(), machine.pop()
    machine.name(module, name)


def _reduce(machine: Machine, _: Any) -> None:
    arguments, function = machine.pop(), machine.pop()
    machine.call(function, arguments)


def _persistent(machine: Machine, _: Any) -> None:
    if machine.persistent is None:
        raise ValueError("a persistent id in a pickle that should have none")
    machine.stack.append(machine.persistent(machine.pop()))


def _persistent_text(machine: Machine, text: Any) -> None:
    machine.stack.append(text)
    _persistent(machine, None)


STEPS: Mapping[str, Callable[[Machine, Any], None]] = {
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _nothing),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), _push),
    **dict.fromkeys(("FLOAT", "BINFLOAT"), _push),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), _push),
    **dict.fromkeys(("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"), _push),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), _push),
    "NONE": _push_new(lambda: None),
    "NEWTRUE": _push_new(lambda: True),
    "NEWFALSE": _push_new(lambda: False),
    "EMPTY_LIST": _push_new(list),
    "EMPTY_TUPLE": _push_new(tuple),
    "EMPTY_DICT": _push_new(dict),
    "EMPTY_SET": _push_new(set),
    "MARK": _push_new(lambda: MARK),
    "LIST": _push_marked(list),
    "TUPLE": _push_marked(tuple),
    "FROZENSET": _push_marked(lambda values: frozenset(map(flat, values))),
    "DICT": _dict,
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    "ADDITEMS": _add_items,
    "POP": _pop,
    "POP_MARK": _pop_mark,
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    "MEMOIZE": _memoize,
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"),
        lambda machine, place: machine.stack.append(machine.memo[int(place)]),
    ),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "BUILD": lambda machine, _: machine.build(machine.pop()),
    "BINPERSID": _persistent,
    "PERSID": _persistent_text,
}
