"""Long reductions to few results become partial results and a fixed-order combine, so that many
cores can work on one sum. The partition depends on shapes only, never on the number of cores."""

from __future__ import annotations

from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

MANY_RESULTS = 32  # with so many there is work for all cores already
LONG = 1 << 15  # elements a reduction must have to be split
PARTIALS = (64, 128, 32, 96, 48, 256, 16)  # preferred numbers of partial results


def split_reductions(sink: UOp) -> UOp:
    """`sink` with each long REDUCE_AXIS in two steps."""
    done: dict[UOp, UOp] = {}
    order = sink.toposort()
    if not any(node.op is Ops.REDUCE_AXIS for node in order):
        return sink
    for node in order:
        rebuilt = node.with_src(tuple(done[s] for s in node.src))
        if rebuilt.op is Ops.REDUCE_AXIS and (two := _split(rebuilt)) is not None:
            two.origin = rebuilt.origin = node.origin
            rebuilt = two
        done[node] = rebuilt
    return done[sink]


def _split(node: UOp) -> UOp | None:
    source, (monoid, axes) = node.src[0], node.arg
    shape = source.shape
    if not all(isinstance(n, int) for n in shape):
        return None
    results = node.size
    if results == 0 or results >= MANY_RESULTS or source.size // results < LONG:
        return None
    axis = next((a for a in axes if shape[a] >= min(PARTIALS)), None)
    if axis is None:
        return None
    parts = next((p for p in PARTIALS if shape[axis] % p == 0), None)
    if parts is None:
        return _split_with_tail(source, monoid, axes, axis)
    return _in_two(source, monoid, axes, axis, parts)


def _in_two(source: UOp, monoid: str, axes: tuple[int, ...], axis: int, parts: int) -> UOp:
    """`axis` becomes (parts, rest); all is reduced but the parts, then the parts."""
    shape = source.shape
    apart = (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :])
    inner = tuple(a + 1 if a >= axis else a for a in axes)
    partial = source.reshape(apart).reduce_axis(monoid, inner).contiguous()
    whole = partial.reduce_axis(monoid, (axis,))
    return whole.reshape(tuple(1 if a in axes else n for a, n in enumerate(shape)))


def _split_with_tail(source: UOp, monoid: str, axes: tuple[int, ...], axis: int) -> UOp | None:
    """An axis that no number of parts divides: what is left over is reduced on its own."""
    size = source.shape[axis]
    main = size // PARTIALS[0] * PARTIALS[0]
    if main == 0:
        return None
    box = [(0, n) for n in source.shape]
    head = source.shrink((*box[:axis], (0, main), *box[axis + 1 :]))
    tail = source.shrink((*box[:axis], (main, size), *box[axis + 1 :]))
    first = _in_two(head, monoid, axes, axis, PARTIALS[0])
    combine = {"add": Ops.ADD, "mul": Ops.MUL, "max": Ops.MAX}[monoid]
    return first.alu(combine, tail.reduce_axis(monoid, axes))
