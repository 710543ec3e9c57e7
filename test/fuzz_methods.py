"""Methods against PyTorch's of the same name: one call, on both, of random shapes and dtypes,
and of special values. Values, shapes and gradients must agree; what PyTorch refuses is free.

    python test/fuzz_methods.py --minutes 10 --seed 1 [--only cumsum,sort]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

from tinygrad.tensor import Tensor

Shape = tuple[int, ...]
Arguments = tuple[Any, ...]  # arrays among them become tensors of the library that is called

FLOATS = ("float32", "float32", "float32", "float64", "float16")
WHOLE = ("int32", "int64", "int16", "int8", "uint8")
SHAPES: tuple[Shape, ...] = ((), (0,), (1,), (3,), (7,), (33,), (0, 3), (3, 0), (1, 1))
SHAPES += ((2, 3), (3, 1), (1, 4), (5, 7), (3, 17), (2, 3, 4), (2, 1, 3), (3, 0, 2), (1, 2, 3, 2))
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, math.inf, -math.inf, math.nan, 1e-8, 1e30, -1e30, 100.0)
TOLERANCES = {"float16": 6e-3, "float32": 2e-5, "float64": 1e-10}


class Draw(Random):
    """Random inputs of a call."""

    def array(self, shape: Shape, kind: str, special: float = 0.2) -> Any:
        """Numbers around 0, some of them special: limits of whole numbers, infinities, NaN."""
        count = math.prod(shape)
        if kind == "bool":
            return np.array([self.random() < 0.5 for _ in range(count)], bool).reshape(shape)
        if kind in WHOLE:
            least, most = np.iinfo(kind).min, np.iinfo(kind).max
            numbers: list[Any] = [self.randint(max(least, -12), 12) for _ in range(count)]
            edges: tuple[Any, ...] = (least, most, 0)
        else:
            numbers, edges = [self.gauss(0, 2) for _ in range(count)], SPECIAL
        numbers = [self.choice(edges) if self.random() < special else n for n in numbers]
        with np.errstate(over="ignore"):
            return np.array(numbers, kind).reshape(shape)

    def shape(self, least: int = 0, empty: bool = True) -> Shape:
        """Of at least so many axes."""
        return self.choice([s for s in SHAPES if len(s) >= least and (empty or 0 not in s)])

    def axis(self, shape: Shape) -> int:
        """From the front or from the back; of a number 0."""
        return self.randrange(-len(shape), len(shape)) if shape else 0

    def places(self, shape: Shape, size: int) -> Any:
        """Positions on an axis."""
        return np.array([self.randrange(size) for _ in range(math.prod(shape))]).reshape(shape)

    def alike(self, shape: Shape) -> Shape:
        """A shape that broadcasts to this one."""
        kept = [1 if self.random() < 0.25 else n for n in shape]
        return tuple(kept[self.randrange(len(kept)) if kept and self.random() < 0.3 else 0 :])


# ---- what each method is given -------------------------------------------------------------------

Inputs = Callable[[Draw], Arguments]


def one(*kinds: str) -> Inputs:
    """An array."""
    return lambda draw: (draw.array(draw.shape(), draw.choice(kinds)),)


def two(*kinds: str) -> Inputs:
    """Two arrays of one dtype that broadcast."""

    def inputs(draw: Draw) -> Arguments:
        shape, kind = draw.shape(), draw.choice(kinds)
        return draw.array(shape, kind), draw.array(draw.alike(shape), kind)

    return inputs


def divided(draw: Draw) -> Arguments:
    """Whole numbers, and such that are not 0."""
    a, b = two(*WHOLE)(draw)
    return a, np.where(b == 0, b + 1, b)


def along(*kinds: str, empty: bool = False) -> Inputs:
    """An array and one of its axes; nothing so large that sums of it depend on their order."""

    def inputs(draw: Draw) -> Arguments:
        shape = draw.shape(0, empty)
        array = draw.array(shape, draw.choice(kinds))
        large = np.isfinite(array) & (np.abs(array) > 1e4)
        return np.where(large, 3, array).astype(array.dtype), draw.axis(shape)

    return inputs


def moved(least: int, more: Callable[[Draw, Shape], Arguments], empty: bool = True) -> Inputs:
    """An array of any dtype and at least so many axes, and what its shape allows."""

    def inputs(draw: Draw) -> Arguments:
        shape = draw.shape(least, empty)
        array = draw.array(shape, draw.choice((*FLOATS, *WHOLE, "bool")), 0.0)
        return array, *more(draw, shape)

    return inputs


def gathered(draw: Draw, shape: Shape) -> Arguments:
    """An axis, and positions on it."""
    axis = draw.axis(shape)
    sizes = [draw.randint(1, n) for n in shape]
    sizes[axis] = draw.randint(0, 6)
    return axis, draw.places(tuple(sizes), shape[axis])


def selected(draw: Draw, shape: Shape) -> Arguments:
    """An axis, and positions on it, in a row."""
    axis = draw.axis(shape)
    return axis, draw.places((draw.randint(0, 5),), shape[axis])


def part(draw: Draw, shape: Shape) -> Arguments:
    """An axis, where a part of it begins, and its length."""
    axis = draw.axis(shape)
    begin = draw.randint(0, shape[axis])
    return axis, begin, draw.randint(0, shape[axis] - begin)


def swapped(draw: Draw, shape: Shape) -> Arguments:
    """Two axes."""
    return draw.axis(shape), draw.axis(shape)


def multiplied(draw: Draw) -> Arguments:
    """Factors of a product of matrices, or vectors, or stacks of matrices."""
    m, k, n = (draw.choice((0, 1, 2, 5, 17)) for _ in range(3))
    shapes = (((m, k), (k, n)), ((k,), (k, n)), ((m, k), (k,)), ((3, 1, m, k), (2, k, n)))
    kind = draw.choice(("float32", "float64", "int32", "int64", "uint8"))
    first, second = draw.choice(shapes)
    return draw.array(first, kind, 0.0), draw.array(second, kind, 0.0)


def ordered(draw: Draw) -> Arguments:
    """An array without equal elements, and one of its axes."""
    shape = draw.shape(1, False)
    numbers = np.array(draw.sample(range(-99, 99), math.prod(shape)))
    return numbers.reshape(shape).astype(draw.choice(("float32", "int32"))), draw.axis(shape)


ROWS: list[tuple[str, Inputs]] = [  # names, and what they are given
    ("abs acosh asin asinh atan atanh ceil cos cosh deg2rad exp exp2 expm1 floor", one(*FLOATS)),
    ("erf erfc erfinv frac isfinite isinf isnan lgamma log log10 log1p log2", one(*FLOATS)),
    ("logical_not logit nan_to_num neg reciprocal relu round rsqrt sigmoid", one(*FLOATS)),
    ("signbit sin sinc sinh sqrt square tan tanh trunc", one(*FLOATS)),
    ("bitwise_not sgn", one(*WHOLE)),
    ("add sub mul div maximum minimum fmax fmin eq ne lt le gt ge", two(*FLOATS)),
    ("logical_and logical_xor atan2 hypot copysign floor_divide", two(*FLOATS)),
    ("logaddexp xlogy heaviside", two(*FLOATS)),
    ("bitwise_and bitwise_or bitwise_xor", two(*WHOLE)),
    ("floor_divide remainder fmod", divided),
    ("sum mean std var logsumexp softmax log_softmax", along(*FLOATS)),
    ("amax amin cumsum cumprod nansum", along(*FLOATS)),
    ("any all count_nonzero prod", along("float32", empty=True)),
    ("sort argsort median mode cummax cummin argmax argmin", ordered),
    ("cov corrcoef", lambda draw: (draw.array((draw.randint(1, 4), 9), "float32", 0),)),
    ("flatten ravel nonzero squeeze", moved(0, lambda draw, shape: ())),
    ("tril triu", moved(2, lambda draw, shape: (draw.randint(-3, 3),))),
    ("diagonal", moved(2, lambda draw, shape: (draw.randint(-2, 2),))),
    ("transpose swapaxes movedim", moved(1, swapped)),
    ("unbind", moved(1, lambda draw, shape: (draw.axis(shape),))),
    ("flip", moved(1, lambda draw, shape: ((draw.axis(shape),),))),
    ("reshape", moved(0, lambda draw, shape: (shape[::-1],))),
    ("permute", moved(0, lambda draw, shape: (draw.sample(range(len(shape)), len(shape)),))),
    ("unsqueeze", moved(0, lambda draw, shape: (draw.randint(-len(shape) - 1, len(shape)),))),
    ("roll", moved(1, lambda draw, shape: (draw.randint(-5, 5), draw.axis(shape)))),
    ("narrow", moved(1, part)),
    ("repeat", moved(0, lambda draw, shape: ([draw.randint(0, 2) for _ in (*shape, 0)],))),
    ("chunk", moved(1, lambda draw, shape: (draw.randint(1, 4), draw.axis(shape)), False)),
    ("repeat_interleave", moved(1, lambda draw, shape: (draw.randint(0, 3), draw.axis(shape)))),
    ("gather", moved(1, gathered, False)),
    ("index_select", moved(1, selected, False)),
    ("masked_select", moved(0, lambda draw, shape: (draw.array(shape, "bool"),))),
    ("take", moved(0, lambda draw, shape: (draw.places((4,), math.prod(shape)),), False)),
    ("matmul", multiplied),
]
TABLE = {name: inputs for names, inputs in ROWS for name in names.split()}
NOT_SMOOTH = "maximum minimum fmax fmin atan2 hypot copysign heaviside floor_divide"
"""Whose gradients jump where the operands that are drawn may lie, or that have none there."""


# ---- both ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A method's name and what it is given; prints as what to paste."""

    name: str
    given: Arguments

    def on(self, tensor: Callable[[Any], Any], first: Any = None, given: Arguments = ()) -> Any:
        """Its result, of arrays as `tensor` makes them; the method of `first`, if that is given."""
        start, *rest = (self._made(each, tensor) for each in given or self.given)
        return getattr(start if first is None else first, self.name)(*rest)

    def _made(self, given: Any, tensor: Callable[[Any], Any]) -> Any:
        return tensor(given.copy()) if isinstance(given, np.ndarray) else given


def drawn(draw: Draw, names: Sequence[str]) -> Call:
    """A method, and what it is given."""
    name = draw.choice(names)
    return Call(name, TABLE[name](draw))


def wrong(call: Call) -> str | None:
    """What is unlike PyTorch's."""
    try:
        wanted = call.on(torch.tensor)
    except (RuntimeError, IndexError, TypeError, ValueError):
        wanted = None
    try:
        found = call.on(Tensor)
        several = found if isinstance(found, (tuple, list)) else [found]
        values = [each.numpy() for each in several]
    except Exception as error:  # whatever it is: that is what is looked for
        return None if wanted is None else f"{type(error).__name__}: {error}"
    if wanted is None:
        return None
    theirs = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    unlike = (_unlike(v, t.numpy(), 1) for v, t in zip(values, theirs, strict=True))
    return next(filter(None, unlike), None) or _wrong_gradient(call)


def _unlike(found: Any, wanted: Any, looser: float) -> str | None:
    if found.shape != wanted.shape:
        return f"shape {found.shape}, PyTorch has {wanted.shape}"
    if wanted.dtype.kind != "f":
        same = found.astype(wanted.dtype) == wanted
    else:
        if found.dtype != wanted.dtype:
            return f"dtype {found.dtype}, PyTorch has {wanted.dtype}"
        off = looser * TOLERANCES[wanted.dtype.name]
        same = np.isclose(found.astype(float), wanted.astype(float), off, off, equal_nan=True)
    if np.all(same):
        return None
    at = tuple(np.argwhere(~same)[0].tolist())
    return f"{found[at]!r} at {at}, PyTorch has {wanted[at]!r}"


def _wrong_gradient(call: Call) -> str | None:
    """The gradient of the first array, where no value is special."""
    x = call.given[0]
    if x.dtype.kind != "f" or call.name in NOT_SMOOTH.split() or not x.size:
        return None
    plain = np.asarray(np.cos(np.arange(x.size) * 1.7).reshape(x.shape) * 0.9, x.dtype)
    given = (plain, *(_plain(g) for g in call.given[1:]))
    theirs, ours = torch.tensor(plain, requires_grad=True), Tensor(plain, requires_grad=True)
    wanted, found = (
        out[0] if isinstance(out, (tuple, list)) else out
        for out in (call.on(torch.tensor, theirs, given), call.on(Tensor, ours, given))
    )
    if not wanted.requires_grad or not wanted.numel():
        return None
    weights = np.sin(np.arange(wanted.numel()) + 1.0).reshape(tuple(wanted.shape)).astype(x.dtype)
    (wanted * torch.tensor(weights)).sum().backward()
    (found * Tensor(weights)).sum().backward()
    assert theirs.grad is not None
    if np.isnan(theirs.grad.numpy()).any():  # where there is no value there is no gradient
        return None
    got = np.zeros_like(plain) if ours.grad is None else ours.grad.numpy()
    problem = _unlike(got, theirs.grad.numpy(), 100)
    return problem and f"gradient of {plain.tolist()}: {problem}"


def _plain(given: Any) -> Any:
    is_special = isinstance(given, np.ndarray) and given.dtype.kind == "f"
    return (
        np.asarray(np.cos(given.size + np.arange(given.size)).reshape(given.shape), given.dtype)
        if is_special
        else given
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(TABLE))
    options = parser.parse_args()
    draw, end, calls = Draw(options.seed), time.monotonic() + 60 * options.minutes, 0
    while time.monotonic() < end:
        call = drawn(draw, options.only.split(","))
        calls += 1
        if (problem := wrong(call)) is not None:
            print(f"{call}\n    {problem}", flush=True)
    print(f"{calls} calls")


if __name__ == "__main__":
    main()
