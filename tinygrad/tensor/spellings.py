"""Other libraries' names for the same things: keywords that mean one of a method's own. Arguments
that are numbers, bools or words must be so: a bool is no number, a float no whole one and no bool.
Nothing is computed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tinygrad.tensor.arguments import PLAIN, looked_at_of, told, wrong_type

OTHERS = {
    "axis": ("dim", "dims", "axes"),
    "dim": ("axis", "dimension"),
    "dim0": ("axis0",),
    "dim1": ("axis1",),
    "x": ("other", "value", "exponent", "divisor", "x2"),
    "dims": ("dim", "axis", "axes"),
    "self": ("input",),
    "others": ("tensors", "arrays"),
    "other": ("vec2", "mat2", "x2", "b"),
    "shifts": ("shift",),
    "padding": ("pad",),
    "order": ("dims", "axes"),
    "shape": ("size",),
    "keepdim": ("keepdims",),
    "correction": ("ddof", "unbiased"),
    "sizes": ("split_size", "split_size_or_sections", "split_sizes"),
    "indices_or_sections": ("indices", "sections"),
    "repeats": ("dims", "reps"),
    "steps": ("num",),
    "n": ("N",),
    "m": ("M",),
    "interpolation": ("method",),
    "formula": ("equation", "subscripts"),
    "min_": ("min", "a_min"),
    "max_": ("max", "a_max"),
    "stop": ("end",),
    "src": ("value",),
    "sorted_": ("sorted",),
    "diagonal": ("k",),
    "p": ("ord",),
    "": ("non_blocking", "force", "sparse", "sparse_grad", "out_int32", "memory_format")
    + ("foreach", "fused", "capturable"),
}
"""What PyTorch and NumPy call an argument, by its name here; it has none where it would change
nothing."""

OF_METHOD = {
    ("where", "self"): ("condition",),
    ("where", "x"): ("input",),
    ("where", "y"): ("other",),
    ("cdist", "self"): ("x1",),
    ("dot", "w"): ("tensor",),
    ("vander", "self"): ("x",),
    ("trapezoid", "self"): ("y",),
    ("trapz", "self"): ("y",),
    ("cumulative_trapezoid", "self"): ("y",),
    ("isin", "self"): ("elements", "element"),
    ("one_hot", "self"): ("tensor",),
    ("searchsorted", "self"): ("sorted_sequence",),
    ("searchsorted", "values"): ("input", "v"),
    ("scaled_dot_product_attention", "self"): ("query",),
    **dict.fromkeys([(name, "") for name in ("svd", "svdvals", "lstsq")], ("driver",)),
}
"""The same of an argument that has another name in one function."""

AS_WITHOUT = {
    **dict.fromkeys(("out", "dtype", "device", "_weight", "generator", "worker_init_fn"), None),
    **dict.fromkeys(("size_average", "reduce"), None),
    **dict.fromkeys(
        ("differentiable", "error_if_nonfinite", "copy", "get_infos", "check_errors"), False
    ),
    **dict.fromkeys(("endpoint", "pivot", "compute_uv", "in_order"), True),
}
"""Arguments that are not there, with which a call means what it means without them."""

OPTIONS = ("dtype", "device", "requires_grad", "generator", "contiguous")
"""What a method takes beside its own arguments that says `**more`: how a tensor is made."""

UNLIKE = {("max", "dim"), ("min", "dim")}
"""Where the other's result is another one, too: PyTorch gives positions beside the values."""


_ABSENT = object()


def spell(cls: type) -> None:
    """Lets the public methods of a class take their arguments by other names."""
    for name, method in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(method, FunctionType):
            setattr(cls, name, spelled(method))
        elif isinstance(method, classmethod):
            setattr(cls, name, classmethod(spelled(method.__func__)))


def spell_functions(module: dict[str, Any]) -> None:
    """Lets the public functions of a module take their arguments by other names: those that it
    defines, and the methods that are functions there."""
    for name, thing in list(module.items()):
        if not isinstance(thing, FunctionType) or name.startswith("_"):
            continue
        if thing.__module__ == module["__name__"] or "." in thing.__qualname__:
            module[name] = spelled(thing, OTHERS, name)


def original(method: Any) -> Any:
    """The function that decorators wrap; `inspect.unwrap` takes long for 4,000 methods."""
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method


def follow(cls: type) -> None:
    """Other names of a method that a class has anew are names of the new one."""
    above = cls.__mro__[1]
    anew = [n for n, m in vars(cls).items() if isinstance(m, FunctionType) and hasattr(above, n)]
    names: dict[Any, list[str]] = {}
    for name in dir(above) if anew else ():
        if isinstance(method := getattr(above, name, None), FunctionType):
            names.setdefault(original(method), []).append(name)
    for name in anew:
        for other in names.get(original(getattr(above, name)), ()):
            if other not in vars(cls):
                setattr(cls, other, vars(cls)[name])


def turn(cls: type) -> None:
    """Methods that a class has anew are its own also where a class above is named: there
    `Tensor.norm(z)` is `z.norm()`. The check stands below what remembers results, so a call that is
    like an earlier one doesn't pay for it."""
    above = cls.__mro__[1]
    for name, form in vars(cls).items():
        if not name.startswith("_") and isinstance(form, FunctionType) and hasattr(above, name):
            getattr(above, name).forms[:] = (cls, form)


def spelled(
    method: Callable[..., Any],
    others: dict[str, tuple[str, ...]] = OTHERS,
    called: str = "",
    plain: dict[Any, tuple[type, ...]] = PLAIN,
) -> Callable[..., Any]:
    """The method, which also takes others' names for its arguments. TypeError, with those that
    are legal, for one that it doesn't have; DTypeError for one of a type that it doesn't take.
    Errors name the method, or what it is `called`."""
    if hasattr(method, "remember") and not called:  # what is like an earlier call is legal
        inner: Any = method.__wrapped__  # type: ignore[attr-defined]
        return method.remember(spelled(inner, others, called, plain))  # type: ignore[no-any-return]
    names = Names(method, others, called)
    if not (names.others or names.more or called or names.typed):
        return method
    passes_on = names.more not in ("", "more")
    own = tuple(dict.fromkeys(names.own + (OPTIONS if names.more else ())))

    looked_at: list[tuple[int, str, frozenset[type]]] | None = None
    forms: list[Any] = []

    @functools.wraps(method)
    def spelling(*args: Any, **named: Any) -> Any:
        args = args or names.first_of(named)
        if forms and args and isinstance(args[0], forms[0]):
            return forms[1](*args, **named)
        for name in () if passes_on else named:
            if name not in own:
                args += names.rest_of(named, len(args) > 1)
                named = names.own_of(named, own)
                break
        nonlocal looked_at
        if looked_at is None:  # asked once all names are there
            looked_at = looked_at_of(method, plain)
        for place, name, legal in looked_at:
            given = args[place] if place < len(args) else named.get(name, _ABSENT)
            if type(given) not in legal and given is not _ABSENT:
                wrong = wrong_type(method, names.method, args, named)
                if wrong is not None:
                    raise wrong
                break
        try:
            return method(*args, **named)
        except Exception as error:
            call = (method, names.method, args, named)
            better = told(*call, error) or unbound(*call, own)
            if better is None:
                raise
            raise better from error

    spelling.forms = forms  # type: ignore[attr-defined]
    return spelling


def unbound(
    method: Callable[..., Any], called: str, args: Any, named: Any, own: tuple[str, ...]
) -> TypeError | None:
    """The error that names arguments which are missing, or too many."""
    try:
        inspect.signature(method).bind(*args, **named)
    except TypeError as error:
        names = ", ".join(name for name in own if name not in ("self", "cls"))
        said = str(error).replace("argument: 'self'", "tensor")
        return TypeError(f"{called}: {said}; legal are {names or 'none'}")
    return None


class Names:
    """What a method calls its arguments, and what others call these."""

    def __init__(
        self, method: Callable[..., Any], others: dict[str, tuple[str, ...]], called: str
    ) -> None:
        plain = original(method)
        code, given = plain.__code__, plain.__annotations__
        count = code.co_argcount + code.co_kwonlyargcount
        starred = list(code.co_varnames[count:])
        self.method = called or method.__name__
        self.own = code.co_varnames[:count]
        self.rest = starred.pop(0) if code.co_flags & inspect.CO_VARARGS else ""
        self.typed = any(given.get(name, "Any") != "Any" for name in (*self.own, self.rest))
        self.more = starred.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else ""
        self.others = {
            other: name
            for name in (*self.own, self.rest)
            for other in (*others.get(name, ()), *OF_METHOD.get((self.method, name), ()))
            if other not in self.own and (self.method, other) not in UNLIKE
        }

    def rest_of(self, named: dict[str, Any], given: bool) -> tuple[Any, ...]:
        """What is given by name of those that stand without one: `zeros(size=2)`. What stands
        before sizes are other arguments: `randint(0, 5, size=(2,))`."""
        own = (name for name in named if self.rest and self.others.get(name, name) == self.rest)
        name = next(own, None)
        if name is None or (given and self.rest != "shape"):
            return ()
        value = named.pop(name)
        return ((value,) if given and isinstance(value, int) else value,)

    def first_of(self, named: dict[str, Any]) -> tuple[Any, ...]:
        """The first argument, if it is given by name: decorators may call it another one."""
        for name in named:
            if self.own[:1] == (self.others.get(name, name),):
                return (named.pop(name),)
        return ()

    def own_of(self, named: dict[str, Any], legal: tuple[str, ...]) -> dict[str, Any]:
        """What is given, by the method's own names."""
        found: dict[str, Any] = {}
        for given, value in named.items():
            if given not in legal and value is AS_WITHOUT.get(given, self):
                continue
            name = self.others.get(given, given)
            if not name:
                continue  # what makes no difference here
            if name not in legal or name in found:
                wrong = "twice" if name in found else f"no argument {given!r}"
                names = ", ".join(name for name in legal if name not in ("self", "cls"))
                raise TypeError(f"{self.method}: {wrong} in {list(named)}; legal are {names}")
            found[name] = value
        return found
