"""A recipe under construction: the kernel so far, the steps that led to it, and the questions that
the heuristics ask about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.target import Target
from tinygrad.loops.cost import turns
from tinygrad.loops.layout import accumulates, fill_order, memory_of, nodes_of, option, stores_of
from tinygrad.loops.operands import loops_of, path_to, stages_of
from tinygrad.loops.primitives import PRIMITIVES
from tinygrad.loops.reads import reads_of, step, sums_of
from tinygrad.loops.recipe import Recipe
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.simplify.masks import gate_of
from tinygrad.uop.node import UOp
from tinygrad.uop.op import WEIGHT, Ops

NO_DATA = (dtypes.index, dtypes.void)

SELDOM = 64
"""Values that are accessed this many times less often than others don't affect the width of
vectors."""

WORDS = {Ops.THREEFRY: 4}
"""Bytes of the words that an op computes with, if these are not its dtype's."""

COPIES = 4
"""Vectors that are in flight at once in a stream."""

UNROLL_WHOLE = 16
"""An axis that is shorter than a vector and not longer than this is unrolled."""

SHORT_VECTORS = (4, 8)
"""... unless it has this many contiguous elements, which are then a short vector."""


@dataclass(frozen=True)
class Nest:
    """The loops of the STOREs or of one STAGE, and the values inside them. `is_top`: no loops are
    around it, so its loops may be tasks."""

    name: str
    loops: tuple[UOp, ...]
    values: tuple[UOp, ...]
    writes: tuple[UOp, ...] = ()
    is_top: bool = True


@dataclass
class Draft:
    """The kernel during scheduling. `blocked`: loops over blocks of rows, which stay in one task;
    `block_rows`: those over the rows of a block. `edges`: loops whose turn decides where a sum
    begins and ends, such as the loop over pixels near a border. `planes`: loops over planes of
    pixels, whose turn decides whether whole taps are border. `kept`: stages of values that several
    loops share, outermost first; `added`: stages that accumulate the results of blocks of rows.
    `lanes`: elements of a vector."""

    kernel: UOp
    target: Target
    recipe: Recipe = ()
    blocked: frozenset[str] = frozenset()
    edges: frozenset[str] = frozenset()
    planes: frozenset[str] = frozenset()
    block_rows: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    lanes: int = 1

    def __post_init__(self) -> None:
        self.lanes = lanes_for(self.kernel, self.target)

    def take_half_vectors(self) -> None:
        """All further vectors have half of the size."""
        self.target = self.target.halved()
        self.lanes = lanes_for(self.kernel, self.target)

    def do(self, primitive: str, *args: Any) -> None:
        """Applies one step."""
        args = tuple(tuple(a) if isinstance(a, list) else a for a in args)
        made = PRIMITIVES[primitive](self.kernel, *args)
        if made is not self.kernel:
            self.kernel = made
            self.recipe += ((primitive, *args),)

    def split(self, loop: str, factor: int, wanted: str, *roles: str) -> str:
        """Splits a loop. Returns the name of the inner loop, derived from the wanted one."""
        inner = self.unused(wanted)
        self.do("split", loop, factor, inner, *roles)
        return inner

    def merge(self, outer: str, inner: str, base: str) -> str:
        """Merges two loops. Returns the new loop's name."""
        both = self.numbered(base)
        self.do("merge", outer, inner, both)
        return both

    def stage(self, value: UOp, over: Iterable[str], base: str, *how: Any) -> str:
        """Stages a value over these loops. Returns the stage's name."""
        name = self.numbered(base)
        self.do("stage", self.path(value), tuple(over), name, *how)
        return name

    def innermost(self, nest: str, inside: Iterable[str]) -> list[str]:
        """Moves these loops of the nest inside all others. Returns the others."""
        inside = [*inside]
        outer = [n for n in self.names_in(nest) if n not in inside]
        self.do("order", nest, (*outer, *inside))
        return outer

    def give(self, role: str, loops: Iterable[str]) -> None:
        """Gives all these loops the role."""
        for loop in loops:
            self.do("role", loop, role)

    def mark(self) -> Draft:
        """The draft as it is now, for `back_to`."""
        return copy(self)

    def back_to(self, mark: Draft) -> None:
        """Undoes everything since the mark."""
        self.__dict__.update(mark.__dict__)

    # ---- names -----------------------------------------------------------------------------------

    def unused(self, base: str) -> str:
        """`base`, or `base` with a number if the name is taken."""
        is_taken = base in self.loops or base in self.stages
        return self.numbered(base) if is_taken else base

    def numbered(self, base: str) -> str:
        """A new name: `base` and a number."""
        taken = self.loops.keys() | self.stages.keys()
        return next(n for n in (f"{base}{i}" for i in range(1, len(taken) + 2)) if n not in taken)

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[UOp, ...]:
        return nodes_of(self.kernel)

    @property
    def loops(self) -> Mapping[str, UOp]:
        return loops_of(self.kernel)

    @property
    def stages(self) -> Mapping[str, UOp]:
        return stages_of(self.kernel)

    @property
    def sums(self) -> list[UOp]:
        """The REDUCEs of the kernel."""
        return sums_of(self.nodes)

    def sum_over(self, loop: str) -> UOp:
        """The REDUCE that the loop of that name belongs to."""
        return next(node for node in self.sums if self.loops[loop] in own_ranges(node))

    @property
    def inner_stages(self) -> list[UOp]:
        """The stages that are filled inside the stores' nest. Those in GLOBAL memory are filled
        before it."""
        before = [s for s in self.stages.values() if memory_of(s) == "GLOBAL"]
        inside = self.kernel.toposort(stop=before) if before else self.stages.values()
        return [n for n in inside if n.op is Ops.STAGE and n not in before]

    def size(self, loop: str) -> int:
        """The turns of the loop of that name."""
        return size_of(self.loops[loop])

    def turns(self, loops: Iterable[str]) -> int:
        """How often the body of the loops of these names runs."""
        return turns(self.loops[name] for name in loops)

    def nest(self, name: str) -> Nest:
        """The loops and values of the STOREs ("store", or another name from `stores_of`) or of a
        stage. For a stage that accumulates, the values are those that it takes in."""
        stage = self.stages.get(name)
        if stage is None:
            stores = stores_of(self.kernel)[name]
            values, writes = tuple(s.src[1] for s in stores), tuple(s.src[0] for s in stores)
            return Nest(name, own_ranges(stores[0]), values, writes, is_top=name == "store")
        is_top = memory_of(stage) == "GLOBAL"
        values = stage.src[0].src[:1] if accumulates(stage) else stage.src[:1]
        return Nest(name, tuple(fill_order(stage)), values, is_top=is_top)

    def names_in(self, nest: str) -> list[str]:
        """The names of a nest's loops."""
        return names(self.nest(nest).loops)

    def below(self, values: Iterable[UOp]) -> list[UOp]:
        """The nodes of these values that are not inside a stage."""
        return [*_within(self.kernel, tuple(values), is_inline=False)]

    def inline(self, values: Iterable[UOp]) -> list[UOp]:
        """The nodes of these values, and of the stages that are filled while they are computed."""
        return [*_within(self.kernel, tuple(values), is_inline=True)]

    def sums_in(self, nest: Nest) -> list[UOp]:
        """The REDUCEs of a nest, and of the stages that are filled while it runs."""
        return sums_of(self.inline(nest.values))

    def reads_in(self, nest: Nest) -> list[UOp]:
        """The reads of a nest, and of the stages that are filled while it runs."""
        return reads_of(self.inline(nest.values))

    def path(self, node: UOp) -> tuple[int, ...]:
        return path_to(self.kernel, node)

    # ---- steps that many heuristics take ---------------------------------------------------------

    def vectorise(self, loop: str, copies: int, role: str = "UNROLL") -> None:
        """Splits `loop` into turns of `copies` vectors each. A short loop is unrolled instead."""
        size, role_now = self.size(loop), role_of(self.loops[loop])
        if role_now not in ("LOOP", "PARALLEL"):
            return
        lanes = self.lanes_within(size)
        if lanes == 1:
            if 1 < size <= UNROLL_WHOLE and role_now == "LOOP":
                self.do("role", loop, "VECTOR" if self.is_short_vector(loop) else role)
            return
        while copies > 1 and size < lanes * copies:
            copies //= 2
        if copies > 1:
            inner = self.split(loop, lanes * copies, loop + "i", role_now, "LOOP")
            self.split(inner, lanes, loop + "v", role, "VECTOR")
        else:
            self.split(loop, lanes, loop + "v", role_now, "VECTOR")

    def is_short_vector(self, loop: str) -> bool:
        """Whether a loop shorter than a vector should be one short vector: all reads are contiguous
        along it or don't depend on it."""
        counter = self.loops[loop]
        steps = {*steps_along(self.nodes, counter)}
        return size_of(counter) in SHORT_VECTORS and steps <= {0, 1} and len(self.loops) > 1

    def lanes_within(self, size: int) -> int:
        """How many lanes a vector over an axis of this size has; 1 means no vector."""
        lanes = self.lanes
        if lanes > size and size <= UNROLL_WHOLE:
            return 1
        while lanes > size:
            lanes //= 2
        return lanes

    def fills_vectors(self, loop: UOp) -> bool:
        """Whether a loop has enough turns for a whole vector."""
        return self.lanes_within(size_of(loop)) == self.lanes > 1


@lru_cache(maxsize=64)
def _within(kernel: UOp, values: tuple[UOp, ...], is_inline: bool) -> dict[UOp, None]:
    stop = {s for s in stages_of(kernel).values() if not (is_inline and option(s, "first"))}
    return dict.fromkeys(node for value in values for node in value.toposort(stop))


def lanes_for(kernel: UOp, target: Target) -> int:
    """The lanes of a vector of the widest dtype that the kernel computes with or accesses often."""
    often = {
        node: WEIGHT.get(node.op, 1) * turns(node.ranges)
        for node in nodes_of(kernel)
        if node.dtype not in NO_DATA
    }
    most = max(often.values(), default=1)
    widths = [WORDS.get(n.op, n.dtype.itemsize) for n, t in often.items() if t * SELDOM >= most]
    return max(1, min(64, target.vector // max(widths, default=1)))


def is_plain(access: UOp) -> bool:
    """Whether an INDEX reads without a gate."""
    return gate_of(access) is None


def steps_along(nodes: Iterable[UOp], loop: UOp) -> list[int | None]:
    """The steps of all reads that depend on `loop`."""
    return [step(n, loop) for n in reads_of(nodes) if loop in n.ranges]


def reach_along(nodes: Iterable[UOp], loop: UOp) -> int:
    """The longest known step, forward or backward, of all reads that depend on `loop`."""
    return max((abs(s) for s in steps_along(nodes, loop) if s is not None), default=0)


def names(loops: Iterable[UOp]) -> list[str]:
    """Names of loops."""
    return [name_of(loop) for loop in loops]
