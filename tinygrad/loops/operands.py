"""Operands of recipes: loops and stages are given by name, values by the path of source positions
that leads to them from the SINK. Names and paths are the same in every process; node objects are
not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from tinygrad.base.errors import ArgumentError
from tinygrad.loops.layout import nodes_of
from tinygrad.loops.roles import name_of, own_ranges, size_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import CLOSERS


@lru_cache(16)
def loops_of(kernel: UOp) -> Mapping[str, UOp]:
    """The kernel's loops by name."""
    return {name_of(node): node for node in nodes_of(kernel) if node.op is Ops.RANGE}


@lru_cache(16)
def stages_of(kernel: UOp) -> Mapping[str, UOp]:
    """The kernel's stages by name, inner ones first."""
    return {name_of(node): node for node in nodes_of(kernel) if node.op is Ops.STAGE}


def at_path(kernel: UOp, path: Sequence[int]) -> UOp:
    """The node reached from the SINK by these source positions."""
    node = kernel
    for position in path:
        if position >= len(node.src):
            raise ArgumentError(f"path {tuple(path)}: {node.op!r} has {len(node.src)} sources")
        node = node.src[position]
    return node


def path_to(kernel: UOp, target: UOp) -> tuple[int, ...]:
    """The first path from the SINK to `target`."""
    stack: list[tuple[UOp, tuple[int, ...]]] = [(kernel, ())]
    seen: set[UOp] = set()
    while stack:
        node, path = stack.pop()
        if node is target:
            return path
        if node not in seen:
            seen.add(node)
            stack.extend((s, (*path, i)) for i, s in reversed(list(enumerate(node.src))))
    raise ArgumentError("the value is not part of the kernel")


def loop_named(kernel: UOp, name: str) -> UOp:
    """The loop of that name; ArgumentError lists those there are."""
    found = loops_of(kernel)
    if name not in found:
        raise ArgumentError(f"no loop {name!r}; there are {', '.join(sorted(found))}")
    return found[name]


def loops_alike(
    primitive: str, kernel: UOp, kept: Sequence[str], given: Sequence[str]
) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """The loops of two reductions; ArgumentError unless the sizes of the loops agree."""
    loops, others = (tuple(loop_named(kernel, n) for n in names) for names in (kept, given))
    if [r.src for r in loops] != [r.src for r in others]:
        sizes = [[size_of(r) for r in own] for own in (loops, others)]
        raise ArgumentError(
            f"{primitive}: loops of {sizes[0]} and {sizes[1]} turns; legal: the same"
        )
    return loops, others


def check_unused(kernel: UOp, *names: str) -> None:
    """ArgumentError if a loop or stage has one of these names."""
    taken = loops_of(kernel).keys() | stages_of(kernel).keys()
    for name in names:
        if name in taken:
            raise ArgumentError(f"the name {name!r} is taken, as are {', '.join(sorted(taken))}")


def owners_of(kernel: UOp, loop: UOp) -> list[UOp]:
    """The STOREs, STAGEs and REDUCEs that close the loop."""
    return [n for n in nodes_of(kernel) if n.op in CLOSERS and loop in own_ranges(n)]


def stage_named(kernel: UOp, name: str) -> UOp:
    """The stage of that name; ArgumentError lists those there are."""
    found = stages_of(kernel)
    if name not in found:
        raise ArgumentError(f"no stage {name!r}; there are {', '.join(found) or 'none'}")
    return found[name]
