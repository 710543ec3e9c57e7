"""A plugin of mypy: a program may call arguments by the names that PyTorch and NumPy have for them
(`x.sum(dim=1, keepdims=True)`), as methods and functions do when they are called.

    [tool.mypy]
    plugins = ["tinygrad.mypy"]
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from mypy.nodes import ARG_NAMED_OPT, ARG_STAR, CallExpr
from mypy.plugin import FunctionSigContext, MethodSigContext, Plugin
from mypy.types import AnyType, FunctionLike, TypeOfAny

from tinygrad.data import loader
from tinygrad.nn import spellings as layers
from tinygrad.tensor.spellings import AS_WITHOUT, OF_METHOD, OTHERS, UNLIKE

Context = MethodSigContext | FunctionSigContext
Table = Mapping[str, tuple[str, ...]]

TABLES: dict[str, Table] = {
    "tinygrad.data.loader.": loader.OTHERS,
    "tinygrad.nn.": layers.OTHERS,
    "tinygrad.": OTHERS,
}
"""What others call an argument, by what the full name of its function begins with."""


def _named_by_the_call(called: str, table: Table, context: Context) -> FunctionLike:
    """The signature, with the names that this call has for its arguments."""
    call, form = context.context, context.default_signature
    if not isinstance(call, CallExpr):
        return form
    names, kinds, types = list(form.arg_names), list(form.arg_kinds), list(form.arg_types)
    for given in dict.fromkeys(call.arg_names):
        if given is None or given in names or (called, given) in UNLIKE:
            continue
        own = [name for name in names if name and given in _others(called, name, table)]
        starred = own and kinds[names.index(own[0])] == ARG_STAR
        if own and not starred:
            names[names.index(own[0])] = given
        elif starred or given in table[""] or given in AS_WITHOUT or _may_write(called, given):
            names.append(given)
            kinds.append(ARG_NAMED_OPT)
            types.append(AnyType(TypeOfAny.explicit))
    return form.copy_modified(arg_names=names, arg_kinds=kinds, arg_types=types)


def _others(called: str, name: str, table: Table) -> tuple[str, ...]:
    return table.get(name, ()) + OF_METHOD.get((called, name), ())


def _may_write(called: str, given: str) -> bool:
    return given == "inplace" and called in layers.WRITABLE


class Spellings(Plugin):
    """Asks for the signature of each call of this library's."""

    def get_method_signature_hook(
        self, fullname: str
    ) -> Callable[[MethodSigContext], FunctionLike] | None:
        return self._hook(fullname)

    def get_function_signature_hook(
        self, fullname: str
    ) -> Callable[[FunctionSigContext], FunctionLike] | None:
        return self._hook(fullname)

    def _hook(self, fullname: str) -> Callable[[Context], FunctionLike] | None:
        called = fullname.rpartition(".")[2]
        for beginning, table in TABLES.items():
            if fullname.startswith(beginning):
                return functools.partial(_named_by_the_call, called, table)
        return None


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    return Spellings
