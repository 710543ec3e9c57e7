"""Long reductions to few results become partial results and a fixed-order combine, so that many
cores can work on one sum. The partition depends on shapes only, never on the number of cores.

Devices with groups have lanes by the thousand: there products with few results are split, too, and
running reductions of few rows take three steps: within blocks, over what the blocks come to, and
the two together (Blelloch, "Prefix sums and their applications", 1990)."""

from __future__ import annotations

from tinygrad.base.helpers import ceildiv
from tinygrad.schedule.rows import is_product
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

MANY_RESULTS = 32  # with so many there is work for all cores already
LONG = 1 << 15  # elements a reduction must have to be split
PARTIALS = (64, 128, 32, 96, 48, 256, 16)  # preferred numbers of partial results


BLOCK = 256  # elements of a running reduction that one lane takes
FEWEST_BLOCKS = 8
ENOUGH_LANES = 1 << 13  # with so many rows each may be one lane
FEW_RESULTS = 1 << 12  # of a product whose tiles would leave lanes idle
DEEPEST = 256  # terms that a product's lane then adds

COMBINE = {"add": Ops.ADD, "mul": Ops.MUL, "max": Ops.MAX}


def split_reductions(sink: UOp, lanes: bool = False) -> UOp:
    """`sink` with each long REDUCE_AXIS in two steps; with `lanes` for devices with groups."""
    done: dict[UOp, UOp] = {}
    order = sink.toposort()
    if not any(node.op in (Ops.REDUCE_AXIS, Ops.RUNNING) for node in order):
        return sink
    for node in order:
        rebuilt = node.with_src(tuple(done[s] for s in node.src))
        two = None
        if rebuilt.op is Ops.REDUCE_AXIS:
            two = _split_product(rebuilt) if lanes else None
            two = _split(rebuilt) if two is None else two
        elif rebuilt.op is Ops.RUNNING and lanes:
            two = _split_running(rebuilt)
        if two is not None:
            two.origin = rebuilt.origin = node.origin
            rebuilt = two
        done[node] = rebuilt
    return done[sink]


def _split_running(node: UOp) -> UOp | None:
    """Running values within blocks, each with what the blocks before it come to."""
    source, (monoid, axis) = node.src[0], node.arg
    shape = source.shape
    if not all(isinstance(n, int) for n in shape):
        return None
    size = shape[axis]
    blocks = ceildiv(size, BLOCK)
    if blocks < FEWEST_BLOCKS or node.size // size >= ENOUGH_LANES:
        return None
    before, after = shape[:axis], shape[axis + 1 :]
    pads = tuple((0, blocks * BLOCK - size if i == axis else 0) for i in range(node.ndim))
    # what is added comes after all that is wanted: it may be anything
    apart = source.pad(pads).reshape((*before, blocks, BLOCK, *after))
    within = apart.running(monoid, axis + 1)
    ends = tuple((n - 1, n) if i == axis + 1 else (0, n) for i, n in enumerate(apart.shape))
    totals = within.shrink(ends).reshape((*before, blocks, *after)).running(monoid, axis)
    in_three = _split_running(totals)
    totals = totals if in_three is None else in_three
    shifted = tuple((1, -1) if i == axis else (0, 0) for i in range(totals.ndim))
    earlier = totals.pad(shifted).reshape((*before, blocks, 1, *after)).broadcast_to(apart.shape)
    numbers = UOp.arange(blocks, node.device).reshape((blocks, *(1,) * (len(after) + 1)))
    is_later = (numbers > 0).broadcast_to(apart.shape)
    both = is_later.where(earlier.alu(COMBINE[monoid], within), within)
    return both.reshape((*before, blocks * BLOCK, *after)).shrink(tuple((0, n) for n in shape))


def _split_product(node: UOp) -> UOp | None:
    """A product of few results, its longest axis cut into stretches of DEEPEST terms."""
    source, (monoid, axes) = node.src[0], node.arg
    if not all(isinstance(n, int) for n in source.shape) or not is_product(node):
        return None
    axis = max(axes, key=lambda a: source.shape[a])
    size = source.shape[axis]
    if node.size > FEW_RESULTS or size < 4 * DEEPEST:
        return None
    parts = next((p for p in range(size // DEEPEST, 1, -1) if size % p == 0), 1)
    return _in_two(source, monoid, axes, axis, parts) if 4 * parts * DEEPEST > size else None


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
    return first.alu(COMBINE[monoid], tail.reduce_axis(monoid, axes))
