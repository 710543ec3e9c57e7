"""Kernels whose arrays lie in more windows (`base/windows`) than a device can bind. Their groups
are launched in portions, each of which sees a smaller part of the arrays."""

from __future__ import annotations

from tinygrad.base.target import Target
from tinygrad.base.windows import windows
from tinygrad.loops.layout import nodes_of, own_ranges, role_of, size_of
from tinygrad.loops.rebuild import Replacement, rebuild
from tinygrad.loops.trims import bounded
from tinygrad.simplify.affine import add
from tinygrad.simplify.forms import number
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops


def portions(kernel: UOp, target: Target) -> list[UOp]:
    """The kernel, or several that do a part of its work each."""
    faults = any(node.op is Ops.CHECK for node in nodes_of(kernel))  # words of their own
    if not target.window_limit or _bindings(kernel, target) + faults <= target.buffer_limit:
        return [kernel]
    if bounded(kernel):  # by loops' turns, which are others then
        return [kernel]
    if any(node.op is Ops.STAGE and node.arg[1] == "GLOBAL" for node in nodes_of(kernel)):
        return [kernel]
    own = own_ranges(kernel.src[0])
    loops = [r for r in own if role_of(r) in ("PARALLEL", "LOOP") and size_of(r) > 1]
    halves = [_halves(kernel, loop) for loop in loops if len(loop.src) == 1]
    best = min(halves, key=lambda pair: sum(map(_bytes, pair)), default=None)
    if best is None or sum(map(_bytes, best)) >= 2 * _bytes(kernel):
        return [kernel]  # whoever renders it says why it can't be
    return [part for half in best for part in portions(half, target)]


def _halves(kernel: UOp, loop: UOp) -> tuple[UOp, UOp]:
    """The first turns of a loop, and the others."""
    made = []
    for first, end in ((0, size_of(loop) // 2), (size_of(loop) // 2, size_of(loop))):
        turns = UOp(Ops.RANGE, loop.dtype, (number(end - first),), loop.arg)
        made.append(rebuild(kernel, {loop: Replacement(add(turns, number(first)), (turns,))}))
    return made[0], made[1]


def _spans(kernel: UOp) -> dict[UOp, tuple[int, int]]:
    """For each array the first element that may be touched, and the one after the last."""
    found: dict[UOp, tuple[int, int]] = {}
    nodes = nodes_of(kernel)
    # lanes beyond a loop's limit touch nothing, but whoever renders their places doesn't know
    whole = {r: r.with_src(r.src[:1]) for r in nodes if r.op is Ops.RANGE and r.src[1:]}
    for node in nodes:
        if node.op is Ops.INDEX and (array := node.src[0]).op is Ops.PARAM:
            place = node.src[1].substitute(whole)
            low, high = found.get(array, (array.arg[1], 0))
            begin, end = max(0, place.vmin), min(array.arg[1], place.vmax + 1)
            found[array] = min(low, begin), max(high, end)
    return found


def _bindings(kernel: UOp, target: Target) -> int:
    total = 0
    for array, span in _spans(kernel).items():
        begin, end, whole = (n * array.dtype.itemsize for n in (*span, array.arg[1]))
        total += len(windows(begin, end, whole, target.window_limit))
    return total


def _bytes(kernel: UOp) -> int:
    return sum((end - begin) * a.dtype.itemsize for a, (begin, end) in _spans(kernel).items())
