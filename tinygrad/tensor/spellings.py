"""Other libraries' names for the same things: keywords that mean one of a method's own, and what to
say where a method is looked for that has another name here. Nothing is computed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

OTHERS = {
    "axis": ("dim", "dims"),
    "dim": ("axis",),
    "dims": ("dim", "axis"),
    "keepdim": ("keepdims",),
    "correction": ("ddof", "unbiased"),
}
"""What PyTorch and NumPy call an argument, by its name here."""

UNLIKE = {("max", "dim"), ("min", "dim")}
"""Where the other's result is another one, too: PyTorch gives positions beside the values."""

METHODS = {
    "astype": "cast(dtype)",
    "type": "cast(dtype)",
    "type_as": "cast(other.dtype)",
    "cpu": 'to("CPU")',
    "cuda": 'to("CUDA")',
    "copy": "clone()",
    "equal": "(a == b).all()",
    "nelement": "numel()",
    "view_as": "reshape(other.shape)",
    "new_zeros": "Tensor.zeros(shape, dtype=t.dtype, device=t.device)",
    "new_tensor": "Tensor(data, dtype=t.dtype, device=t.device)",
    "positive": "+t",
}
"""What is looked for: what does the same here."""


def spell(cls: type) -> None:
    """Lets the public methods of a class take their arguments by other names."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, spelled(method))


def follow(cls: type) -> None:
    """Other names of a method that a class has anew are names of the new one."""
    above = cls.__mro__[1]
    anew = [n for n, m in vars(cls).items() if isinstance(m, FunctionType) and hasattr(above, n)]
    names: dict[Any, list[str]] = {}
    for name in dir(above) if anew else ():
        if isinstance(method := getattr(above, name, None), FunctionType):
            names.setdefault(inspect.unwrap(method), []).append(name)
    for name in anew:
        for other in names.get(inspect.unwrap(getattr(above, name)), ()):
            if other not in vars(cls):
                setattr(cls, other, vars(cls)[name])


def spelled(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which also takes others' names for its arguments. TypeError, with those that
    are legal, for one that it doesn't have."""
    code = inspect.unwrap(method).__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    others = {
        other: name
        for name in own
        for other in OTHERS.get(name, ())
        if other not in own and (method.__name__, other) not in UNLIKE
    }
    if not others or code.co_flags & inspect.CO_VARKEYWORDS:
        return method

    @functools.wraps(method)
    def spelling(*args: Any, **named: Any) -> Any:
        for name in named:
            if name not in own:
                return method(*args, **_own(method.__name__, named, own, others))
        return method(*args, **named)

    return spelling


def _own(
    method: str, named: dict[str, Any], own: tuple[str, ...], others: dict[str, str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for given, value in named.items():
        if given in ("out", "dtype") and given not in own and value is None:
            continue  # NumPy's functions say that they want none
        name = others.get(given, given)
        if name not in own or name in found:
            wrong = "twice" if name in found else f"no argument {given!r}"
            raise TypeError(f"{method}: {wrong} in {list(named)}; legal are {', '.join(own[1:])}")
        found[name] = value
    return found


def missed(kind: str, name: str) -> str:
    """What to say of an attribute that a tensor doesn't have."""
    there = f"; legal is {METHODS[name]}" if name in METHODS else ""
    return f"{kind!r} object has no attribute {name!r}{there}"
