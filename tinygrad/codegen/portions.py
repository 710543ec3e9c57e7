"""Kernels whose arrays lie in more windows (`base/windows`) than a device can bind. Their groups
are launched in portions, each of which sees a smaller part of the arrays."""

from __future__ import annotations

from tinygrad.base.target import Target
from tinygrad.base.windows import Stretch, merged, windows
from tinygrad.loops.layout import memory_of, nodes_of
from tinygrad.loops.rebuild import Replacement, rebuild
from tinygrad.loops.roles import own_ranges, role_of, size_of
from tinygrad.loops.trims import bounded
from tinygrad.simplify.affine import add
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp


def portions(kernel: UOp, target: Target) -> list[UOp]:
    """The kernel, or several kernels that each do a part of its work."""
    faults = any(node.op is Ops.CHECK for node in nodes_of(kernel))  # with words of their own
    if not target.window_limit or _bindings(kernel, target) + faults <= target.buffer_limit:
        return [kernel]
    if bounded(kernel):  # its bounds are by loops' turns, which would change
        return [kernel]
    if any(memory_of(node) == "GLOBAL" for node in nodes_of(kernel)):
        return [kernel]
    best: tuple[int, tuple[UOp, ...]] = 2 * _bytes(kernel), ()
    for loop in _apart(kernel):
        halves = _halves(kernel, loop)
        need = sum(map(_bytes, halves))
        # lanes that leave their group must see much less, or there would be as many groups as lanes
        is_enough = role_of(loop) != "LANE" or need <= 1.5 * _bytes(kernel)
        if is_enough and need < best[0]:
            best = need, halves
    # else the renderer reports why it can't run
    return [part for half in best[1] for part in portions(half, target)] or [kernel]


def _apart(kernel: UOp) -> list[UOp]:
    """The loops whose turns may be launched separately; lanes are included if they share
    nothing."""
    nodes = nodes_of(kernel)
    is_shared = any(
        n.op is Ops.STAGE or (n.op is Ops.RANGE and role_of(n) == "GROUP") for n in nodes
    )
    roles = ("PARALLEL", "LOOP") if is_shared else ("PARALLEL", "LOOP", "LANE")
    own = own_ranges(kernel.src[0])
    return [r for r in own if role_of(r) in roles and size_of(r) > 1 and len(r.src) == 1]


def _halves(kernel: UOp, loop: UOp) -> tuple[UOp, UOp]:
    """The first half of a loop's turns, and the second."""
    made = []
    for first, end in ((0, size_of(loop) // 2), (size_of(loop) // 2, size_of(loop))):
        turns = UOp(Ops.RANGE, loop.dtype, (number(end - first),), loop.arg)
        made.append(rebuild(kernel, {loop: Replacement(add(turns, number(first)), (turns,))}))
    return made[0], made[1]


def _touched(kernel: UOp) -> dict[UOp, list[Stretch]]:
    """For each array, the stretches of elements that may be touched."""
    found: dict[UOp, list[Stretch]] = {}
    nodes = nodes_of(kernel)
    # lanes beyond a loop's limit touch nothing, but the renderer doesn't know that
    whole = {r: r.with_src(r.src[:1]) for r in nodes if r.op is Ops.RANGE and r.src[1:]}
    for node in nodes:
        if node.op is Ops.INDEX and (array := node.src[0]).op is Ops.PARAM:
            place = node.src[1].substitute(whole)
            stretch = max(0, place.vmin), min(array.arg[1], place.vmax + 1)
            found.setdefault(array, []).append(stretch)
    return found


def _bindings(kernel: UOp, target: Target) -> int:
    return sum(
        len(windows(touched, array.dtype.itemsize, array.arg[1], target.window_limit))
        for array, touched in _touched(kernel).items()
    )


def _bytes(kernel: UOp) -> int:
    return sum(
        (end - begin) * array.dtype.itemsize
        for array, touched in _touched(kernel).items()
        for begin, end in merged(touched)
    )
