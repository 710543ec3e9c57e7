"""Functions of each element, as a table: the standard's name and the method that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.array_api.types import checked
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.tensor import Tensor

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "clip",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]


Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Tensor | float, Tensor | float], Tensor]


def _unary(name: str, method: Callable[[Any], Any], floats: bool = False) -> Unary:
    """A function of one array; with `floats` it leaves integers and bools as they are."""

    def function(x: Tensor, /) -> Tensor:
        checked(x)
        whole = dtypes.is_int(x.dtype) or dtypes.is_bool(x.dtype)
        made: Tensor = +x if floats and whole else getattr(x, method.__name__)()
        return made

    function.__name__, function.__doc__ = name, f"{method.__doc__}"
    return function


def _binary(name: str, method: Callable[[Any, Any], Any]) -> Binary:
    """A function of two arrays, of which one may be a number of Python."""

    def function(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
        if not isinstance(x1, Tensor):
            checked(x2)
            x1 = x2._tensor(x1)  # type: ignore[union-attr]
        made: Tensor = getattr(x1, method.__name__)(x2)
        return made

    function.__name__, function.__doc__ = name, f"{method.__doc__}"
    return function


abs = _unary("abs", Tensor.abs)
acos = _unary("acos", Tensor.acos)
acosh = _unary("acosh", Tensor.acosh)
asin = _unary("asin", Tensor.asin)
asinh = _unary("asinh", Tensor.asinh)
atan = _unary("atan", Tensor.atan)
atanh = _unary("atanh", Tensor.atanh)
bitwise_invert = _unary("bitwise_invert", Tensor.bitwise_not)
ceil = _unary("ceil", Tensor.ceil, floats=True)
conj = _unary("conj", Tensor.conj)
cos = _unary("cos", Tensor.cos)
cosh = _unary("cosh", Tensor.cosh)
exp = _unary("exp", Tensor.exp)
expm1 = _unary("expm1", Tensor.expm1)
floor = _unary("floor", Tensor.floor, floats=True)
isfinite = _unary("isfinite", Tensor.isfinite)
isinf = _unary("isinf", Tensor.isinf)
isnan = _unary("isnan", Tensor.isnan)
log = _unary("log", Tensor.log)
log1p = _unary("log1p", Tensor.log1p)
log2 = _unary("log2", Tensor.log2)
log10 = _unary("log10", Tensor.log10)
logical_not = _unary("logical_not", Tensor.logical_not)
negative = _unary("negative", Tensor.neg)
reciprocal = _unary("reciprocal", Tensor.reciprocal)
round = _unary("round", Tensor.round, floats=True)
sign = _unary("sign", Tensor.sgn)
signbit = _unary("signbit", Tensor.signbit)
sin = _unary("sin", Tensor.sin)
sinh = _unary("sinh", Tensor.sinh)
sqrt = _unary("sqrt", Tensor.sqrt)
square = _unary("square", Tensor.square)
tan = _unary("tan", Tensor.tan)
tanh = _unary("tanh", Tensor.tanh)
trunc = _unary("trunc", Tensor.trunc, floats=True)

add = _binary("add", Tensor.add)
bitwise_and = _binary("bitwise_and", Tensor.bitwise_and)
bitwise_left_shift = _binary("bitwise_left_shift", Tensor.lshift)
bitwise_or = _binary("bitwise_or", Tensor.bitwise_or)
bitwise_right_shift = _binary("bitwise_right_shift", Tensor.rshift)
bitwise_xor = _binary("bitwise_xor", Tensor.bitwise_xor)
atan2 = _binary("atan2", Tensor.atan2)
copysign = _binary("copysign", Tensor.copysign)
divide = _binary("divide", Tensor.div)
equal = _binary("equal", Tensor.eq)
floor_divide = _binary("floor_divide", Tensor.idiv)
logaddexp = _binary("logaddexp", Tensor.logaddexp)
hypot = _binary("hypot", Tensor.hypot)
logical_and = _binary("logical_and", Tensor.logical_and)
logical_or = _binary("logical_or", Tensor.logical_or)
logical_xor = _binary("logical_xor", Tensor.logical_xor)
maximum = _binary("maximum", Tensor.maximum)
minimum = _binary("minimum", Tensor.minimum)
multiply = _binary("multiply", Tensor.mul)
nextafter = _binary("nextafter", Tensor.nextafter)
not_equal = _binary("not_equal", Tensor.ne)
pow = _binary("pow", Tensor.pow)
remainder = _binary("remainder", Tensor.mod)
subtract = _binary("subtract", Tensor.sub)

greater = _binary("greater", Tensor.__gt__)

greater_equal = _binary("greater_equal", Tensor.__ge__)

less = _binary("less", Tensor.__lt__)

less_equal = _binary("less_equal", Tensor.__le__)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """`x` no less than `min` and no more than `max`, in the type of `x`.

    >>> clip(Tensor([1, 5, 9]), 2, 6).tolist()
    [2, 5, 6]
    """
    checked(x)
    x = +x if min is None else x.maximum(min).cast(x.dtype)
    return x if max is None else x.minimum(max).cast(x.dtype)


def positive(x: Tensor, /) -> Tensor:
    """What `x` is, as another array.

    >>> positive(Tensor([-1, 2])).tolist()
    [-1, 2]
    """
    checked(x)
    return +x


def real(x: Tensor, /) -> Tensor:
    """The real parts.

    >>> real(Tensor([1 + 2j])).tolist()
    [1.0]
    """
    checked(x)
    made: Tensor = x.real
    return made


def imag(x: Tensor, /) -> Tensor:
    """The imaginary parts of complex numbers.

    >>> imag(Tensor([1 + 2j])).tolist()
    [2.0]
    """
    checked(x)
    if not x.is_complex():
        raise DTypeError(f"imag: of {x.dtype!r}; legal are complex numbers")
    made: Tensor = x.imag
    return made
