"""Questions about one node of a kernel: what a RANGE, a STAGE and an INDEX contain, and how a
staged value is laid out in memory. No other file takes these tuples apart (docs/notes/recipes.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import round_up
from tinygrad.simplify.affine import affine, weighted
from tinygrad.simplify.forms import step_in
from tinygrad.uop.infer import CLOSERS
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

LONGEST_STEP = 4
"""The largest step of a read, in elements, that is done by whole vectors and shuffles."""

LINE = 64
"""Bytes of a cache line, for the layout of staged rows."""


@lru_cache(maxsize=64)
def nodes_of(kernel: UOp) -> tuple[UOp, ...]:
    """The kernel's nodes, sources first. They are collected once for all callers that ask about the
    same kernel."""
    return tuple(kernel.toposort())


def name_of(node: UOp) -> str:
    """The name of a RANGE or a STAGE, unique in its kernel."""
    return str(node.arg[0])


def role_of(loop: UOp) -> str:
    """How a RANGE runs: LOOP, PARALLEL, VECTOR, ..."""
    return str(loop.arg[1])


def size_of(loop: UOp) -> int:
    """The largest number of turns of a RANGE; limits are ignored."""
    return int(loop.src[0].vmax)


def is_plain_loop(loop: UOp) -> bool:
    """Whether the loop is a LOOP of fixed size without limits."""
    return role_of(loop) == "LOOP" and len(loop.src) == 1


def own_ranges(node: UOp) -> tuple[UOp, ...]:
    """The loops that a REDUCE, STAGE or STORE closes."""
    return node.src[CLOSERS[node.op] :]


def stores_of(kernel: UOp) -> dict[str, list[UOp]]:
    """The STOREs grouped by their loops: "store" are those with the loops of the first STORE,
    "store1" those with the loops of the first of the others, and so on."""
    found: dict[tuple[UOp, ...], list[UOp]] = {}
    for store in kernel.src:
        found.setdefault(own_ranges(store), []).append(store)
    return {f"store{i or ''}": stores for i, stores in enumerate(found.values())}


def term_of(reduce: UOp) -> UOp:
    """The value that a REDUCE takes in."""
    value = reduce.src[0]
    return value.src[0] if value.op is Ops.RESCALE else value


def factor_of(reduce: UOp) -> UOp | None:
    """The factor by which a REDUCE multiplies its sum before each turn of its first loop; None
    without one."""
    return reduce.src[0].src[1] if reduce.src[0].op is Ops.RESCALE else None


def memory_of(node: UOp) -> str:
    """Where a STAGE is kept: GLOBAL, LOCAL, or REG, which takes no memory: its value is computed
    where it is read. "" for any other node."""
    return str(node.arg[1]) if node.op is Ops.STAGE else ""


def fills_itself(node: UOp) -> bool:
    """Whether the node is a STAGE that its first reader fills."""
    return node.op is Ops.STAGE and memory_of(node) != "GLOBAL" and bool(option(node, "first"))


def accumulates(node: UOp) -> bool:
    """Whether the node is a STAGE that holds the sums of a REDUCE whose loops run around the
    stage's."""
    return node.op is Ops.STAGE and bool(option(node, "acc"))


def option(stage: UOp, key: str, default: Any = None) -> Any:
    """One of a STAGE's options."""
    return next((value for name, value in stage.arg[2] if name == key), default)


def fact(sink: UOp, key: str) -> tuple[Any, ...]:
    """The values of a fact that a SINK carries, such as "trim" or "prefetch"."""
    return next((value for name, value in sink.arg or () if name == key), ())


@lru_cache(maxsize=4096)
def strides(stage: UOp) -> tuple[int, ...]:
    """Elements between consecutive turns of each range, padding included."""
    loops = own_ranges(stage)
    extra = dict(option(stage, "pad", ()))
    steps = [1] * len(loops)
    for i in range(len(loops) - 2, -1, -1):
        steps[i] = steps[i + 1] * size_of(loops[i + 1]) + extra.get(name_of(loops[i]), 0)
    return tuple(steps)


def elements(stage: UOp) -> int:
    """The number of elements of memory that a stage takes."""
    loops = own_ranges(stage)
    return strides(stage)[0] * size_of(loops[0]) if loops else 1


@lru_cache(maxsize=1 << 14)
def flat_offset(access: UOp) -> UOp:
    """The element that an INDEX reads, as one index expression."""
    if access.src[0].op is not Ops.STAGE:
        return access.src[1]
    return weighted(indices(access), strides(access.src[0]))


def element(stage: UOp, *at: UOp) -> UOp:
    """The INDEX that reads a stage at `at`; without it, at the current turn of the stage's own
    loops."""
    at = at or own_ranges(stage)
    return UOp(Ops.INDEX, stage.dtype, (stage, *at), len(at))


def fill_order(stage: UOp) -> list[UOp]:
    """The loops that fill a STAGE, outermost first."""
    names: tuple[str, ...] = option(stage, "loops", ())
    place = {name: i for i, name in enumerate(names)}
    return sorted(own_ranges(stage), key=lambda r: place.get(name_of(r), len(names)))


def indices(access: UOp) -> tuple[UOp, ...]:
    """The index expressions of an INDEX."""
    return access.src[1 : 1 + access.arg]


def step(access: UOp, loop: UOp) -> int | None:
    """How many elements an INDEX advances with each turn of `loop`; None if the step is not
    constant."""
    return step_in(affine(flat_offset(access))[0], loop)


def reads_of(nodes: Iterable[UOp]) -> list[UOp]:
    """The INDEXes among these nodes."""
    return [node for node in nodes if node.op is Ops.INDEX]


def sums_of(nodes: Iterable[UOp]) -> list[UOp]:
    """The REDUCEs among these nodes."""
    return [node for node in nodes if node.op is Ops.REDUCE]


def divisions(nodes: Iterable[UOp]) -> Iterator[tuple[UOp, int]]:
    """The dividends and divisors of the quotients and remainders in index expressions among these
    nodes."""
    for node in nodes:
        if node.op in (Ops.IDIV, Ops.MOD) and is_index(node) and node.src[1].op is Ops.CONST:
            yield node.src[0], int(node.src[1].arg)


def linear(use: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether an index expression steps through both loops as through one, or depends on
    neither."""
    if not is_index(use):
        return not {outer, inner} & use.ranges
    terms, _ = affine(use)
    if any(t not in (outer, inner) and t.ranges & {outer, inner} for t in terms):
        return False
    return terms.get(outer, 0) == terms.get(inner, 0) * size_of(inner)


def goes_as_one(value: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether everything that a value is computed from steps through two plain loops as through
    one."""
    if not (is_plain_loop(outer) and is_plain_loop(inner)):
        return False
    for node in value.toposort():
        if node.op is Ops.INDEX:
            uses: tuple[UOp, ...] = (flat_offset(node),)
        else:
            uses = () if is_index(node) else tuple(filter(is_index, node.src))
        if not all(linear(use, outer, inner) for use in uses):
            return False
    return True


def below_bits(value: UOp) -> UOp:
    """A value without its bitcasts between dtypes of one size."""
    while value.op is Ops.BITCAST and value.dtype.itemsize == value.src[0].dtype.itemsize:
        value = value.src[0]
    return value


def copy_of(value: UOp) -> UOp | None:
    """The read of a buffer that a value is, but for such bitcasts; None if it is computed."""
    value = below_bits(value)
    return value if value.op is Ops.INDEX and value.src[0].op is Ops.PARAM else None


def steady(access: UOp, loop: UOp) -> bool:
    """Whether a vector along `loop` reads this INDEX as whole vectors."""
    found = step(access, loop)
    return found is not None and abs(found) <= LONGEST_STEP


def overlaps(stage: UOp) -> bool:
    """Whether lanes beyond the end of a row would reach into the next row."""
    return any(extra < 0 for _, extra in option(stage, "pad", ()))


def row_padding(row_elements: int, itemsize: int) -> int:
    """Extra elements for each row, so that rows start on cache lines and don't all map to the same
    sets."""
    line = max(1, LINE // itemsize)
    padded = round_up(row_elements, line)
    if padded * itemsize % 4096 == 0:
        padded += 2 * line
    return padded - row_elements


def is_index(node: UOp) -> bool:
    """Whether the value is an address or a loop counter."""
    return node.dtype is dtypes.index
