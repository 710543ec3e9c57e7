"""Small pure functions that several floors need. Nothing here knows what a tensor is. The arguments
of those that programs import as well (`tinygrad.helpers`) have tinygrad's names."""

from __future__ import annotations

import contextlib
import functools
import gc
import numbers
import operator
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from tinygrad.base.errors import ArgumentError

T = TypeVar("T")
U = TypeVar("U")


def prod(x: Iterable[Any]) -> Any:
    """The product of `x`; 1 for none. Works on ints, floats and symbolic sizes.

    >>> prod([2, 3, 4])
    24
    """
    return functools.reduce(operator.mul, x, 1)


class once(Generic[T]):  # noqa: N801  as `property`
    """A property that is computed when it is first asked for. `functools.cached_property` holds a
    lock meanwhile (in Python 3.11), which a forked child may find taken."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> T:
        found = instance.__dict__[self.compute.__name__] = self.compute(instance)
        return found


class Recent(OrderedDict[T, U]):
    """A bounded cache: a dictionary of `most` entries. One more, and the first one is removed;
    who uses an entry may say so.

    >>> known = Recent(2)
    >>> known["a"] = known["b"] = known["c"] = 0
    >>> list(known)
    ['b', 'c']
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: T, value: U) -> None:
        super().__setitem__(key, value)
        if len(self) > self.most:
            self.popitem(last=False)

    def used(self, key: T) -> None:
        """Moves an entry to the end, unless it is long before one has to go: a long key takes as
        much time as all else that is done to find it. Another thread may have removed it."""
        if 2 * len(self) > self.most:
            with contextlib.suppress(KeyError):
                self.move_to_end(key)

    def held(self) -> list[U]:
        """The values, in any order, while other threads may change it: no key is asked for its
        hash, which could let them in between."""
        return list(dict.values(self))


def dedup(x: Iterable[T]) -> list[T]:
    """`x` without repeats, in order.

    >>> dedup([1, 2, 1])
    [1, 2]
    """
    return list(dict.fromkeys(x))


def post_order(starts: Iterable[T], sources: Callable[[T], Iterable[T]]) -> list[T]:
    """These and all that is reached through `sources`, each once and after its own sources. What
    `sources` gives last is visited first.

    >>> post_order([6], lambda n: [d for d in (1, 2, 3) if d < n and n % d == 0])
    [1, 3, 2, 6]
    """
    order: list[T] = []
    seen: set[T] = set()
    stack = [(start, False) for start in starts]
    while stack:
        node, is_left = stack.pop()
        if is_left:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend([(source, False) for source in sources(node)])
    return order


def plain(value: Any) -> Any:
    """Another library's number as a Python number; anything else unchanged."""
    if type(value) in (int, float, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def argfix(*x: Any) -> tuple[Any, ...]:
    """`f(1, 2)` and `f((1, 2))` alike as `(1, 2)`.

    >>> argfix(1, 2), argfix((1, 2))
    ((1, 2), (1, 2))
    """
    if x and isinstance(x[0], (tuple, list)):
        if len(x) != 1:
            raise ArgumentError(f"{x}; legal are numbers, or one tuple of them")
        x = tuple(x[0])
    return tuple(map(plain, x))


def argsort(x: Sequence[Any]) -> Any:
    """The positions of `x` in increasing order, as a list or tuple like it; the inverse of a
    permutation.

    >>> argsort([30, 10, 20]), argsort((30, 10, 20))
    ([1, 2, 0], (1, 2, 0))
    """
    return type(x)(sorted(range(len(x)), key=x.__getitem__))  # type: ignore[call-arg]


def ceildiv(num: Any, amt: Any) -> Any:
    """`num / amt`, rounded up.

    >>> ceildiv(7, 2)
    4
    """
    return -(-num // amt)


def round_up(num: int, amt: int) -> int:
    """The smallest multiple of `amt` that is at least `num`.

    >>> round_up(5, 4)
    8
    """
    return -(-num // amt) * amt


def flatten(l: Iterable[Iterable[T]]) -> list[T]:  # noqa: E741  tinygrad's names
    """The list with one level of nesting removed.

    >>> flatten([[1, 2], [3]])
    [1, 2, 3]
    """
    return [item for items in l for item in items]


def free_memory() -> int:
    """The memory in bytes that the machine can provide without ending a process; a number larger
    than any memory if it doesn't say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) for line in lines if "MemAvailable" in line) * 1024
    except (OSError, StopIteration):
        return 1 << 62


def strides_for(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Steps of a row-major layout: `strides_for((2, 3)) == (3, 1)`."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


MASSES = 10_000  # objects: with fewer, small collections find short-lived ones


def at_once(actions: Iterable[functools.partial[Any]]) -> None:
    """Calls all of these functions of C, or none: where Python doesn't run, no Ctrl-C is heard.

    >>> at_once([functools.partial(seen.append, n) for seen in [[]] for n in (1, 2)])
    """
    deque(map(functools.partial.__call__, [*actions]), maxlen=0)


@contextlib.contextmanager
def garbage_kept() -> Iterator[None]:
    """A context without garbage collection of cycles: a large graph has none, and searching for
    them among its nodes takes a quarter of the time to build it. If many objects were made, they
    count as old afterwards, or the next collection would go through all of them at once."""
    was_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        try:
            if was_on and gc.get_count()[0] > MASSES and not gc.get_freeze_count():
                # to the oldest generation; frozen, they would be looked through never
                at_once([functools.partial(gc.freeze), functools.partial(gc.unfreeze)])
        finally:
            if was_on:
                gc.enable()


COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def uncolored(text: str) -> str:
    """`text` without terminal colours."""
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def colored(st: str, color: str | None, background: bool = False) -> str:
    """`st` in a terminal colour; capitals mean bright. None leaves it plain.

    >>> uncolored(colored("loss", "green")), len(colored("loss", "green"))
    ('loss', 13)
    """
    if color is None:
        return st
    code = 10 * background + 60 * (color.upper() == color) + 30 + COLORS.index(color.lower())
    return f"\x1b[{code}m{st}\x1b[0m"


def time_to_str(t: float, w: int = 8) -> str:
    """A duration in a unit of which there are more than ten, the number `w` characters wide.

    >>> time_to_str(0.015)
    '   15.00ms'
    """
    for scale, unit in ((1, "s "), (1e3, "ms"), (1e6, "us")):
        if t * scale > 10 or unit == "us":
            return f"{t * scale:{w}.2f}{unit}"
    raise AssertionError("unreachable")


def plural(count: int, word: str) -> str:
    """`plural(2, "kernel") == "2 kernels"`."""
    return f"{count} {word}" + ("" if count == 1 else "s")


def no_such_name(module: str, instead: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: an AttributeError that says what does the same here, where another
    library has that name."""

    def refuse(name: str) -> Any:
        there = f"; legal is {instead[name]}" if name in instead else ""
        raise AttributeError(f"{module} has no {name!r}{there}")

    return refuse
