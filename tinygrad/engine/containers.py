"""What a call's arguments and results are made of: the tensors and bound variables, and the *shape*
of all the rest. A shape is hashable and says everything else that a step could look at, so two
calls with equal shapes differ in their tensors and in the values of their variables only.

| value | its shape |
|---|---|
| tensor, expression of bound variables | a hole, filled by a leaf |
| list, tuple, named tuple, dict, dataclass, slice, set | its type, and the shapes of its parts |
| one of these with attributes besides | also the shapes of these |
| number, string, bytes, None | its type and value, to the bit: 1, 1.0 and True differ |
| anything else hashable (a model, a function, a dtype) | itself, by its own `==` |
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tinygrad.base.errors import JitError
from tinygrad.engine.holders import Holder
from tinygrad.uop import Ops, UOp


class Plain:
    """A value without tensors. It is equal only to the same value of the same type."""

    __slots__ = ("value", "key")

    def __init__(self, value: Any) -> None:
        self.value = value
        exact = repr(value) if isinstance(value, (float, complex)) else value
        self.key = (type(value), exact)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.key == other.key


class Same(Plain):
    """A value of unknown kind, which is equal only to itself."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        self.value, self.key = value, (type(value), id(value))


def flatten(value: Any, leaves: list[Any], where: str = "") -> Any:
    """The shape of `value`; its tensors and bound variables are appended to `leaves`.

    `where` is a name for the value if it is an argument: a value that can change unnoticed (a NumPy
    array, an object without a hash) is a JitError there. In a result such a value is equal only to
    itself."""
    kind = type(value)
    if kind in _EXACT:
        return Plain(value)
    if isinstance(value, Holder):
        leaves.append(value)
        return (Holder, kind)
    if isinstance(value, UOp) and (binds := bindings_below(value)):
        leaves += binds
        return (UOp, without_values(value), *[bind.src[0] for bind in binds])
    if isinstance(value, (list, tuple)):
        parts: list[Any] = [flatten(v, leaves, where) for v in value]
        return _with_attributes(parts, value, leaves, where)
    if isinstance(value, dict):
        parts = [(Plain(k), flatten(v, leaves, where)) for k, v in value.items()]
        return _with_attributes(parts, value, leaves, where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        parts = [(name, flatten(getattr(value, name), leaves, where)) for name in names]
        return _with_attributes(parts, value, leaves, where, names)
    if isinstance(value, slice):
        return (slice, *[flatten(v, leaves, where) for v in (value.start, value.stop, value.step)])
    if isinstance(value, (set, frozenset)):
        return (kind, frozenset(map(Plain, value)))
    try:
        hash(value)
    except TypeError:
        if where:
            raise JitError(
                f"{where}: an argument of type {kind.__name__}, whose content may change without "
                "a new call being told from an old one; legal are tensors, bound variables, "
                "numbers, strings, containers of these, and hashable objects"
            ) from None
        return Same(value)
    return Plain(value)


def _with_attributes(
    parts: list[Any], value: Any, leaves: list[Any], where: str, names: Collection[str] = ()
) -> Any:
    """The shape of a container that has these parts, some by `names`, and maybe attributes."""
    shape = (type(value), *parts)
    if type(value) in _BARE:
        return shape
    found = {k: v for k, v in getattr(value, "__dict__", {}).items() if k not in names}
    if isinstance(value, defaultdict):
        found["default_factory"] = value.default_factory
    rows = [(name, flatten(each, leaves, where)) for name, each in found.items()]
    return (Attributed, shape, *rows) if rows else shape


class Attributed:
    """In a shape: a container, and then its attributes."""


_BARE = (list, tuple, dict)


def fits(shape: Any, value: Any, leaves: list[Any]) -> bool:
    """Whether `value` certainly has this shape; if so its leaves are appended. It is fast, and
    returns False if there is no quick answer."""
    kind = type(value)
    if type(shape) is Plain:
        same = value is shape.value and kind.__hash__ in _BY_IDENTITY
        return same or (kind in _EXACT and Plain(value) == shape)
    if kind is tuple or kind is list or kind is dict:
        if type(shape) is not tuple or shape[0] is not kind or len(shape) != len(value) + 1:
            return False
        parts: Any = shape[1:]
        values: Any = value
        if kind is dict:
            if [name.key for name, _ in parts] != [(type(key), key) for key in value]:
                return False
            parts, values = [part for _, part in parts], value.values()
        for part, each in zip(parts, values, strict=True):
            if type(part) is tuple and part[0] is Holder:
                if type(each) is not part[1]:
                    return False
                leaves.append(each)
            elif not fits(part, each, leaves):
                return False
        return True
    if type(shape) is tuple and shape[0] is UOp and kind is UOp:
        bound: dict[UOp, UOp] = {}
        fine = matches(value, shape[1], bound) and tuple(bound) == shape[2:]
        leaves += bound.values()
        return fine
    return False


_EXACT = (int, float, str, bool, type(None))
_BY_IDENTITY = (object.__hash__, *(kind.__hash__ for kind in _EXACT))


def matches(node: UOp, form: UOp, bound: dict[UOp, UOp]) -> bool:
    """Whether `node` is the expression `form` with its variables bound, each to one value: these
    are entered in `bound`, in the order of occurrence."""
    if form.op is Ops.DEFINE_VAR:
        return node.op is Ops.BIND and node.src[0] is form and bound.setdefault(form, node) is node
    if node is form:
        return True
    if node.op is not form.op or node.dtype is not form.dtype or node.arg != form.arg:
        return False
    if len(node.src) != len(form.src) or not node.src:
        return False
    for source, part in zip(node.src, form.src, strict=True):
        if not matches(source, part, bound):
            return False
    return True


def unflatten(shape: Any, leaves: Iterator[Any]) -> Any:
    """The value of a shape, with `leaves` in place of its holes."""
    if isinstance(shape, Plain):
        return shape.value
    kind, *parts = shape
    if kind is Holder:
        return next(leaves)
    if kind is Attributed:
        whole, *rows = parts
        return _attributed(unflatten(whole, leaves), rows, leaves)
    if kind is UOp:
        node, *variables = parts
        return node.substitute({variable: next(leaves) for variable in variables})
    if issubclass(kind, dict):
        made = kind.__new__(kind)
        made.update({key.value: unflatten(part, leaves) for key, part in parts})
        return made
    if kind in (set, frozenset):
        return kind(plain.value for plain in parts[0])
    if kind is slice:
        return slice(*[unflatten(part, leaves) for part in parts])
    if issubclass(kind, (list, tuple)):
        values = [unflatten(part, leaves) for part in parts]
        return kind(*values) if hasattr(kind, "_fields") else kind(values)
    return _attributed(object.__new__(kind), parts, leaves)


def _attributed(made: Any, rows: Sequence[tuple[str, Any]], leaves: Iterator[Any]) -> Any:
    for name, part in rows:
        object.__setattr__(made, name, unflatten(part, leaves))
    return made


# ---- bound variables -----------------------------------------------------------------------------


def bindings_below(node: UOp) -> list[UOp]:
    """The bound variables in an integer expression."""
    return [n for n in node.toposort() if n.op is Ops.BIND]


def without_values(node: UOp) -> UOp:
    """The expression with its variables unbound."""
    return node.substitute({bind: bind.src[0] for bind in bindings_below(node)})
