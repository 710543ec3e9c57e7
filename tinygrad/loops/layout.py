"""What a kernel's STOREs, REDUCEs, STAGEs and INDEXes say, and how a staged value is laid out in
memory. No other file takes these tuples apart, but for `roles` (docs/notes/recipes.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tinygrad.base.helpers import round_up
from tinygrad.loops.roles import name_of, own_ranges, role_of, size_of
from tinygrad.simplify.affine import weighted
from tinygrad.uop import Ops, UOp

LINE = 64
"""Bytes of a cache line, for the layout of staged rows."""


@lru_cache(maxsize=64)
def nodes_of(kernel: UOp) -> tuple[UOp, ...]:
    """The kernel's nodes, sources first. They are collected once for all callers that ask about the
    same kernel."""
    return tuple(kernel.toposort())


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


def holds_tiles(stage: UOp) -> bool:
    """Whether a stage holds sums in a unit's tiles: products begin with what lies there, the first
    ones with 0, so nothing is to be set before."""
    return any(role_of(r) == "TILE" for r in own_ranges(stage))


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
