"""Sizes that differ from turn to turn: a batch of texts, or a cache that grows, has another length
in each turn of a loop, and all else in the graph is the same. When the third of such graphs comes,
and all sizes follow from one number n, they are written as `n*a + b`, and the graph gets one plan
for any n between bounds.

It is used for a graph whose sizes are those of some n, each of them: with this n it is that graph,
and how the rule was found doesn't matter.

`outline` tells what graphs have in common, `rule_of` finds how their sizes follow from n, `Span`
says which graphs a plan is for, and `Alike` decides when one is worth it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tinygrad.base.dtype import dtypes
from tinygrad.engine.structure import Structure, met
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import settled

SIZED = frozenset((Ops.BUFFER, Ops.RESHAPE, Ops.EXPAND, Ops.SHRINK, Ops.PAD, Ops.ARANGE))
"""Ops whose `arg` is sizes. All else in the graphs must be the same."""

TURNS = 2  # graphs of other sizes before the one that gets a plan for any
ROOM = 64  # sizes up to this one are always between the bounds
MOST_ROOM = 1 << 30  # bytes for the largest of the sizes, which each of them takes
OPERATIONS = 5e8  # of a kernel, which take about as long as making it: then each size is worth that

Sizes = tuple[int, ...]
Keys = tuple[UOp | int, ...]
"""For each number in a graph what is equal for equal numbers (`numbers.key_of`)."""


def outline(structure: Structure) -> tuple[tuple[Any, ...], Sizes] | None:
    """A structure's form without its sizes, and these; None if some are symbolic already."""
    free = set(structure.numbers)
    places, marks = itertools.count(), itertools.count(-1, -1)
    at: dict[UOp, int] = {}
    form: list[Any] = []
    sizes: list[Any] = []
    for node in structure.nodes:
        at[node] = next(marks if node.op is Ops.UNIQUE else places)
        sources, arg = node.src, node.arg
        if node.op in SIZED:
            own = list(_sizes_in(arg))
            sizes += own
            arg = len(own)
        if node.op is Ops.UNIQUE:  # which only tells buffers from each other, as their places do
            continue
        if node.op is Ops.BUFFER:
            sources = sources[1:]
        elif node.op is Ops.BIND:
            sources, arg = (), node.src[0].arg[1:]
        elif node.op is Ops.CONST:  # by its text: 0.0 and -0.0 are equal
            sources, arg = sources[:1], None if node in free else repr(arg)
        form += (node.op, node.dtype, arg, node.tag, len(sources))
        form += [at[source if source in at else met(source, at)] for source in sources]
    form += [at[met(root, at)] for root in structure.roots]
    form.append(len(structure.numbers))
    return (tuple(form), tuple(sizes)) if all(type(n) is int for n in sizes) else None


def _sizes_in(arg: Any) -> Iterator[Any]:
    """The numbers in nested tuples."""
    if isinstance(arg, tuple):
        for part in arg:
            yield from _sizes_in(part)
    else:
        yield arg


def _with_sizes(arg: Any, sizes: Iterator[Any]) -> Any:
    """The same tuples of other numbers."""
    if isinstance(arg, tuple):
        return tuple(_with_sizes(part, sizes) for part in arg)
    return next(sizes)


class Rule(NamedTuple):
    """How sizes follow from a number n from `low` to `high`: each is n*a + b."""

    factors: tuple[tuple[int, int], ...]
    low: int
    high: int


def rule_of(samples: Sequence[Sizes]) -> Rule | None:
    """How the sizes of these graphs follow from a number, which is one of them; None if they don't.

    >>> rule_of([(3, 24, 7), (5, 40, 7), (4, 32, 7)])
    Rule(factors=((1, 0), (8, 0), (0, 7)), low=2, high=64)
    >>> rule_of([(3, 9), (5, 25), (4, 16)])
    """
    columns = list(zip(*samples, strict=True))
    for numbers in dict.fromkeys(columns):
        if len(set(numbers)) < len(numbers):
            continue
        factors = [_factor(numbers, column) for column in columns]
        known = tuple(each for each in factors if each is not None)
        if len(known) == len(factors):
            low = min(numbers)
            while low > 2 and all((low - 1) * a + b > 0 for a, b in known if a):
                low -= 1
            high = max(ROOM, 1 << (max(numbers) - 1).bit_length())
            return Rule(known, low, high) if high <= dtypes.int32.max else None
    return None


def _factor(numbers: Sequence[int], sizes: Sequence[int]) -> tuple[int, int] | None:
    """The whole numbers a, from 0, and b with size = n*a + b for each n and its size."""
    (first, second, *_), (one, two, *_) = numbers, sizes
    a, rest = divmod(two - one, second - first)
    b = one - first * a
    same = all(n * a + b == size for n, size in zip(numbers, sizes, strict=True))
    return (a, b) if not rest and a >= 0 and same else None


@dataclass(frozen=True)
class Span:
    """The graphs that a plan for any size is for: their sizes follow the rule, and their constants
    are these, but at the places `open`, where the plan takes any."""

    rule: Rule
    numbers: Keys
    open: tuple[int, ...]

    def number_of(self, sizes: Sizes, numbers: Keys) -> int | None:
        """The n of a graph, if it is one of these."""
        factors, low, high = self.rule
        pairs = list(zip(factors, sizes, strict=True))
        (a, b), size = next(pair for pair in pairs if pair[0][0])
        n = (size - b) // a
        same = all(n * a + b == size for (a, b), size in pairs)
        fits = same and low <= n <= high and differing(self.numbers, numbers).issubset(self.open)
        return n if fits else None

    def args(self, structure: Structure, n: UOp) -> dict[UOp, Any]:
        """The args of the nodes whose sizes depend on n."""
        factors = iter(self.rule.factors)
        found: dict[UOp, Any] = {}
        for node in structure.nodes:
            own = [next(factors) for _ in _sizes_in(node.arg)] if node.op in SIZED else ()
            if any(a for a, _ in own):
                sizes = [settled(n * a + b) if a else b for a, b in own]
                found[node] = _with_sizes(node.arg, iter(sizes))
        return found


def differing(numbers: Keys, others: Keys) -> set[int]:
    """The places where constants differ. Where a box begins is one of the sizes."""
    pairs = enumerate(zip(numbers, others, strict=True))
    return {i for i, (one, other) in pairs if isinstance(one, UOp) and one is not other}


class Own(Protocol):
    """A plan for one size: how often it was used, and how much a kernel of it does."""

    uses: int

    @property
    def operations(self) -> float:
        """Of a kernel, on average."""


class Alike:
    """Graphs that differ in sizes and constants: the last few that got plans of their own; and the
    plan for any size, once there is one."""

    def __init__(self) -> None:
        self.seen: list[tuple[Sizes, Keys, Own]] = []
        self.span: Span | None = None
        self.plan: Any = None
        self.is_hopeless = False  # an operation takes no symbolic size

    @property
    def open(self) -> tuple[int, ...]:
        """The places of the constants that the plan for any size takes."""
        return () if self.span is None else self.span.open

    def number_of(self, sizes: Sizes, numbers: Keys) -> int | None:
        """The n of a graph, if the plan for any size is for it."""
        return None if self.span is None else self.span.number_of(sizes, numbers)

    def take(self, span: Span, plan: Any) -> None:
        """Takes the plan for any size; None if there can't be one."""
        if plan is None:
            self.is_hopeless = True
        else:
            self.span, self.plan = span, plan

    def see(self, sizes: Sizes, numbers: Keys, plan: Own) -> None:
        """Notes a graph that got a plan of its own."""
        others = [each for each in self.seen if each[0] != sizes]
        self.seen = [*others, (sizes, numbers, plan)][-TURNS:]

    def next_span(self, sizes: Sizes, numbers: Keys) -> Span | None:
        """For which graphs, like this one and the last ones, a plan for any size is worth it: if
        each had another size, was over after a step or two, and takes longer to plan than to
        run."""
        others = [each for each in self.seen if each[0] != sizes]
        if self.is_hopeless or len(others) < TURNS:
            return None
        plans = [plan for *_, plan in others]
        if any(p.uses > 2 or p.operations > OPERATIONS for p in plans):
            return None
        rule = rule_of([sizes, *(each for each, *_ in others)])
        places = set(self.open).union(*(differing(each, numbers) for _, each, _ in others))
        return None if rule is None else Span(rule, numbers, tuple(sorted(places)))
