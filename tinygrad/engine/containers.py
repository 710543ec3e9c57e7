"""What a call's arguments and results are made of: the tensors and bound variables, and the *shape*
of all the rest. A shape is hashable and says everything else that a step could look at, so two
calls with equal shapes differ in their tensors and in the values of their variables only.

| value | its shape |
|---|---|
| tensor, expression of bound variables | a hole, filled by a leaf |
| list, tuple, named tuple, dict, dataclass, slice, set | its type, and the shapes of its parts |
| number, string, bytes, None | its type and value, to the bit: 1, 1.0 and True differ |
| anything else hashable (a model, a function, a dtype) | itself, by its own `==` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tinygrad.base.errors import JitError
from tinygrad.engine.holders import Holder
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


class Plain:
    """A value without tensors. Equal only to the same value of the same type."""

    __slots__ = ("value", "key")

    def __init__(self, value: Any) -> None:
        self.value = value
        exact = repr(value) if isinstance(value, (float, complex)) else value
        self.key = (type(value), exact)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and self.key == other.key

    def __repr__(self) -> str:
        return repr(self.value)


class Same(Plain):
    """A value of no known kind, equal to itself only."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        self.value, self.key = value, (type(value), id(value))


def flatten(value: Any, leaves: list[Any], where: str = "") -> Any:
    """The shape of `value`; its tensors and bound variables are appended to `leaves`.

    `where` names what is flattened if it is an argument: a value that can change without anybody
    seeing it (an array of NumPy's, an object without a hash) is a JitError there. In a result it
    is equal to itself only."""
    kind = type(value)
    if kind in (int, float, str, bool, type(None)):
        return Plain(value)
    if kind is tuple or kind is list:
        return (kind, *[flatten(v, leaves, where) for v in value])
    if kind is dict:
        return (kind, *[(Plain(k), flatten(v, leaves, where)) for k, v in value.items()])
    if isinstance(value, Holder):
        leaves.append(value)
        return (Holder, kind)
    if isinstance(value, UOp) and (binds := bindings_below(value)):
        leaves += binds
        return (UOp, without_values(value), *[bind.src[0] for bind in binds])
    if isinstance(value, (list, tuple)):
        return (kind, *[flatten(v, leaves, where) for v in value])
    if isinstance(value, dict):
        return (kind, *[(Plain(k), flatten(v, leaves, where)) for k, v in value.items()])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        return (kind, *[(name, flatten(getattr(value, name), leaves, where)) for name in names])
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return (slice, *[flatten(v, leaves, where) for v in parts])
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


def unflatten(shape: Any, leaves: Iterator[Any]) -> Any:
    """The value of a shape with `leaves` in its holes."""
    if isinstance(shape, Plain):
        return shape.value
    kind, *parts = shape
    if kind is Holder:
        return next(leaves)
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
    made = object.__new__(kind)
    for name, part in parts:
        object.__setattr__(made, name, unflatten(part, leaves))
    return made


# ---- bound variables -----------------------------------------------------------------------------


def bindings_below(node: UOp) -> list[UOp]:
    """The bound variables that an expression of whole numbers is made of."""
    return [n for n in node.toposort() if n.op is Ops.BIND]


def without_values(node: UOp) -> UOp:
    """The expression with its variables unbound."""
    return node.substitute({bind: bind.src[0] for bind in bindings_below(node)})
