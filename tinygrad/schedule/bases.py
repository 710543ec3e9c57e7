"""What must lie in memory for a value to be read there: the storage below a view.

node.base         below all movement
memory_base       and below DETACH: so any element can be read by its address
contiguous_base   below RESHAPE and DETACH: so elements are in memory in the node's order
stored_base       below movement that copies nothing: so the node is a view of storage
previous_version  of what an ASSIGN or SCATTER makes: what it overwrites
storage_home      the first of all versions that lived in the same place
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from weakref import WeakKeyDictionary

from tinygrad.schedule.strides import repeats, strides_of
from tinygrad.uop import GroupOp, Ops, UOp

MEMORY_LEAVES = frozenset((Ops.PARAM, Ops.BUFFER))
VIEWS = GroupOp.View | {Ops.DETACH}
MOVED = GroupOp.Movement | {Ops.DETACH}
COMPUTED = GroupOp.Elementwise | MOVED


def is_memory(node: UOp) -> bool:
    """Whether the value is in storage before any kernel runs."""
    return node.op in MEMORY_LEAVES


def sure_size(memory: UOp) -> int:
    """The elements that a PARAM has for certain: of a symbolic size, the fewest."""
    return int(memory.arg[-1])


def is_concrete(node: UOp) -> bool:
    """Whether no size of its shape is symbolic."""
    return all(isinstance(n, int) for n in node.shape)


def is_kernelized(node: UOp) -> bool:
    """Whether the node is a buffer together with the kernel that will fill it."""
    return node.op is Ops.ASSIGN and node.src[1].op is Ops.KERNEL


def beneath(node: UOp, ops: Collection[Ops]) -> UOp:
    """The node below a chain of these operations."""
    while node.op in ops:
        node = node.src[0]
    return node


def reached(*starts: UOp, through: Callable[[UOp], bool]) -> Iterator[UOp]:
    """These nodes, and all that can be reached through the sources of nodes for which `through`
    holds; each once."""
    stack, seen = list(starts), set(starts)
    while stack:
        top = stack.pop()
        yield top
        if through(top):
            stack += [s for s in top.src if s not in seen]
            seen.update(top.src)


def stored_base(node: UOp) -> UOp:
    """What must be stored so that `node` is a view of storage. Movement that copies nothing, or
    only leaves out elements, is skipped; so is all of a view that shows elements several times, as
    these are one for who writes there."""
    node = beneath(node, (Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.FLIP, Ops.DETACH))
    below = beneath(node, VIEWS)
    if is_memory(below) or below.op is Ops.ASSIGN:
        return below
    whole = beneath(node, MOVED)
    return whole if strides_of(node, whole) is not None and repeats(node, whole) else node


def contiguous_base(node: UOp) -> UOp:
    """What must be stored so that `node`'s elements are in memory in its own order."""
    return beneath(node, (Ops.RESHAPE, Ops.DETACH))


def memory_base(node: UOp) -> UOp:
    """What must be in memory so that any element of `node` can be read by address."""
    return beneath(node, MOVED)


def overwrites(node: UOp) -> bool:
    """Whether storing the node has to wait for readers of what was there."""
    return node.op is Ops.ASSIGN or node.op is Ops.SCATTER


def previous_version(node: UOp) -> UOp:
    """The version that an ASSIGN or SCATTER overwrites."""
    return memory_base(node.src[0])


def storage_home(node: UOp) -> UOp:
    """The first version that lived where `node` lives."""
    passed = []
    while overwrites(node):
        found = _homes.get(node)
        if found is not None:
            node = found
            break
        passed.append(node)
        node = previous_version(node)
    for each in passed:
        _homes[each] = node
    return node


_homes: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()
"""What was found, so that thousands of versions of one buffer aren't gone through for each."""
