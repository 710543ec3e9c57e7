"""`dataclass`, as Python's own, but cheap to define. Python's writes and compiles up to six
functions for each class, 0.2 to 0.5 ms, and there are 200 classes: a fifth of the time to a
process's first result. Here classes share all functions but `__init__`, which is written when a
class is first asked for it, so never for most. `field` and `replace` are Python's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field as field
from dataclasses import replace as replace
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


@recursive_repr()
def _shown(self: Any) -> str:
    named = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(f'{n}={value!r}' for n, value in named)})"


def _compared(values: Callable[[Any], Any]) -> dict[str, Any]:
    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


class _Initialiser:
    """Stands for the `__init__` of a class until somebody asks for it."""

    def __init__(self, owner: type, is_frozen: bool) -> None:
        self.owner, self.is_frozen = owner, is_frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        made = _written(self.owner, self.is_frozen)
        self.owner.__init__ = made  # type: ignore[misc]
        return made.__get__(instance, owner)


def _written(owner: Any, is_frozen: bool) -> Any:
    """The function that sets the fields, those for which no value is given to their default."""
    known = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    stored = {f.name for f in dataclasses.fields(owner)}
    taken, by_name, lines, initial = ["self"], ["*"], [], []
    for name, f in owner.__dataclass_fields__.items():
        is_stored = name in stored  # or a ClassVar, or an InitVar
        if not (f.init and (is_stored or "InitVar" in str(f.type))):
            continue
        default, value = "", name
        if f.default is not dataclasses.MISSING:
            default, known[f"_{name}"] = f"=_{name}", f.default
        elif f.default_factory is not dataclasses.MISSING:
            default, known[f"_{name}"] = "=_missing", f.default_factory
            value = f"_{name}() if {name} is _missing else {name}"
        (by_name if f.kw_only else taken).append(name + default)
        if not is_stored:
            initial.append(name)
        else:
            lines.append(
                f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}"
            )
    if hasattr(owner, "__post_init__"):
        lines.append(f"self.__post_init__({', '.join(initial)})")
    taken += by_name if by_name[1:] else []
    exec(f"def __init__({', '.join(taken)}):\n " + "\n ".join(lines or ["pass"]), known)
    made: Any = known["__init__"]
    made.__qualname__ = f"{owner.__qualname__}.__init__"
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        owner: type | None = None, *, frozen: bool = False, eq: bool = True, kw_only: bool = False
    ) -> Any:
        """See `dataclasses.dataclass`.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 2
        >>> Point(1), Point(1) == Point(1, 2), hash(Point(1)) == hash(Point(1, 2))
        (Point(x=1, y=2), True, True)
        """
        if owner is None:
            return lambda owner: dataclass(owner, frozen=frozen, eq=eq, kw_only=kw_only)
        own = {"__eq__", "__hash__", "__init__", "__repr__"} & vars(owner).keys()
        owner.__doc__ = owner.__doc__ or owner.__name__  # or Python's would write one
        dataclasses.dataclass(owner, init=False, repr=False, eq=False, kw_only=kw_only)
        shared = {"__init__": _Initialiser(owner, frozen), "__repr__": _shown}
        if eq:
            names = [f.name for f in dataclasses.fields(owner) if f.compare]
            shared |= _compared(attrgetter(*names))
            if not frozen:
                shared["__hash__"] = None
        for name, value in shared.items():
            if name not in own:
                setattr(owner, name, value)
        if frozen:
            owner.__setattr__ = owner.__delattr__ = _refuse
        return owner
