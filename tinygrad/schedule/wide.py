"""Reductions, running reductions and gathers of which a single element of the result needs more of
an array than a kernel may bind (`base/windows`). They are computed in parts, each of which adds to
the result so far or goes on from it. Where only the kernel as a whole needs too much, but no single
element does, `codegen/portions` launches its groups in several portions instead."""

from __future__ import annotations

from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv
from tinygrad.base.windows import windows
from tinygrad.schedule.bases import COMPUTED, is_concrete, memory_base, reached, storage_home
from tinygrad.schedule.demand import Kernel
from tinygrad.schedule.in_parts import in_one, sliced
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.ranges import Expressions
from tinygrad.schedule.redo import FREE_LEAVES
from tinygrad.schedule.walk import Demands, demands_within
from tinygrad.simplify.affine import simplify_index
from tinygrad.simplify.forms import number
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops

ROUNDS = 3  # what was cut may still see too much of another array


class Cut(NamedTuple):
    """So many `parts` of an axis of a node's source."""

    axis: int
    parts: int


def demands_in_windows(sink: UOp, wishes: Wishes) -> tuple[UOp, Demands]:
    """A graph that means the same, and its demands, none of which sees too much if it can be cut
    so."""
    found = demands_within(sink, wishes)
    for turn in range(ROUNDS if wishes.window and wishes.buffers else 0):
        cuts = dict[UOp, Cut]()
        for kernel in found.kernels:
            cuts |= _cuts(found, kernel, wishes)
        if turn > 0:  # a gather's parts are as small as they get, but those of single rows
            cuts = {node: c for node, c in cuts.items() if node.op is not Ops.INDEX or c.axis > 0}
        if not cuts:
            break
        sink = _with_parts(sink, cuts)
        found = demands_within(sink, wishes)
    return sink, found


# ---- what is cut ---------------------------------------------------------------------------------


def _cuts(demands: Demands, kernel: Kernel, wishes: Wishes) -> dict[UOp, Cut]:
    arrays = dict.fromkeys(map(storage_home, [*kernel.stores, *kernel.reads]))

    def bindings(array: UOp, begin: int, end: int) -> int:
        each = array.dtype.itemsize
        return len(windows(begin * each, end * each, array.size * each, wishes.window))

    whole = {array: bindings(array, 0, array.size) for array in arrays}
    if sum(whole.values()) <= wishes.buffers:
        return {}
    spans = _spans(demands, kernel, list(arrays))
    needed = {array: bindings(array, *_span(array, spans[array])) for array in arrays}
    # a group may come to the next window of each
    if sum(max(needed[array], min(whole[array], 2)) for array in arrays) <= wishes.buffers:
        return {}
    cuts = dict[UOp, Cut]()
    for array in arrays:
        begin, end = _span(array, spans[array])
        parts = ceildiv((end - begin) * array.dtype.itemsize, wishes.window)
        if parts > 1:
            cuts |= _cut_along(demands, kernel, array, spans[array], parts)
    return cuts


def _spans(demands: Demands, kernel: Kernel, arrays: list[UOp]) -> dict[UOp, list[UOp]]:
    """For each array the places that one turn of the kernel's loops touches."""

    def storage(node: UOp) -> UOp:
        home = storage_home(node)
        return UOp(Ops.PARAM, home.dtype, arg=(arrays.index(home), home.size))

    still = {loop: number(0) for loop in kernel.ranges if loop not in _running(kernel)}
    found = {array: list[UOp]() for array in arrays}
    for node in UOp.sink(*Expressions(demands, kernel, storage).stores()).toposort():
        if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
            place = simplify_index(node.src[1].substitute(still))
            found[arrays[node.src[0].arg[0]]].append(place)
    return found


def _running(kernel: Kernel) -> dict[UOp, tuple[UOp, int]]:
    """The loops of running reductions, all of whose turns are a lane's, with node and axis."""
    nodes = [node for node in kernel.stores if node.op is Ops.RUNNING]
    return {kernel.index[node.arg[1]]: (node, node.arg[1]) for node in nodes}


def _span(array: UOp, places: list[UOp]) -> tuple[int, int]:
    """The first element that is touched, and the one after the last."""
    low = min((place.vmin for place in places), default=0)
    high = max((place.vmax + 1 for place in places), default=0)
    return max(0, low), min(array.size, high)


def _cut_along(
    demands: Demands, kernel: Kernel, array: UOp, places: list[UOp], parts: int
) -> dict[UOp, Cut]:
    """What goes through most of the array: the reduction whose loop does, or gathers from it."""
    running = _running(kernel)
    widest = max(places, key=lambda place: place.vmax - place.vmin)
    loops = sorted(widest.ranges, key=lambda r: -_reach(widest, r))
    names = {name: counted for counted, name in demands.counters.items()}
    if loops and _reach(widest, loops[0]) > 0:
        node, axis = running.get(loops[0]) or names.get(loops[0].arg[0], (widest, 0))
        if node.op in (Ops.REDUCE_AXIS, Ops.RUNNING) and is_concrete(node.src[0]):
            return {node: Cut(axis, min(parts, node.src[0].shape[axis]))}
    gathers = [
        node
        for node in dict.fromkeys(node for node, _ in kernel.inlined)
        if node.op is Ops.INDEX and storage_home(memory_base(node.src[0])) is array
    ]
    if len(gathers) != 1 or not is_concrete(source := gathers[0].src[0]):
        return {}  # a search, whose steps would each be as many kernels as there are parts
    sizes = enumerate(source.shape[: gathers[0].arg])
    axis, size = next(((axis, size) for axis, size in sizes if size > 1), (0, 1))
    return {gathers[0]: Cut(axis, min(parts, size))} if size > 1 else {}


def _reach(place: UOp, loop: UOp) -> int:
    """How much further a loop goes than its first turn."""
    first = simplify_index(place.substitute({loop: number(0)}))
    return int((place.vmax - place.vmin) - (first.vmax - first.vmin))


# ---- how -----------------------------------------------------------------------------------------


def _with_parts(sink: UOp, cuts: dict[UOp, Cut]) -> UOp:
    done = dict[UOp, UOp]()
    for node in sink.toposort():
        made = node.with_src(tuple(done[s] for s in node.src))
        if node in cuts:
            in_parts = _running_in_parts if node.op is Ops.RUNNING else _in_parts
            made = in_parts(made, *cuts[node])
            made.origin = made.origin or node.origin
        done[node] = made
    return done[sink]


def _in_parts(node: UOp, axis: int, parts: int) -> UOp:
    """The node made part by part, each stored with those before it."""
    source, *indices = node.src
    source = _wide(source) if node.op is Ops.REDUCE_AXIS else source
    # each part wants them
    indices = [index if _is_counted(index) else index.contiguous() for index in indices]
    size = source.shape[axis]
    each = ceildiv(size, parts)
    made: UOp | None = None
    for begin in range(0, size, each):
        end = min(begin + each, size)
        part = sliced(source, axis, begin, end)
        if node.op is Ops.REDUCE_AXIS:
            new = part.reduce_axis(*node.arg)
            made = new if made is None else made.alu(MONOIDS[node.arg[0]].combine, new)
        else:
            spans = [(begin, end) if i == axis else (0, n) for i, n in enumerate(source.shape)]
            at = [_within(index, *span) for index, span in zip(indices, spans, strict=False)]
            new = node.with_src((part, *at, *indices[node.arg :]))
            made = new if made is None else _chosen(indices[axis] >= begin, new, made)
        made = made.contiguous()
    assert made is not None
    return made if made.dtype is node.dtype else made.cast(node.dtype)


def _running_in_parts(node: UOp, axis: int, parts: int) -> UOp:
    """Each part begins with what the last one came to."""
    size, (monoid, _) = node.shape[axis], node.arg
    each = ceildiv(size, parts)
    made: list[UOp] = []
    for begin in range(0, size, each):
        part = sliced(node.src[0], axis, begin, min(begin + each, size)).running(monoid, axis)
        if made:
            last = sliced(made[-1], axis, each - 1, each).contiguous()
            part = last.broadcast_to(part.shape).alu(MONOIDS[monoid].combine, part)
        made.append(part)
    return in_one(made, axis)


def _is_counted(index: UOp) -> bool:
    """Whether nothing is read to compute it."""
    below = reached(index, through=lambda node: node.op in COMPUTED)
    return all(node.op in COMPUTED or node.op in FREE_LEAVES for node in below)


def _wide(terms: UOp) -> UOp:
    """Terms whose partial sums may be kept: narrow floats are summed as float32 here, too."""
    if not dtypes.is_float(terms.dtype) or terms.dtype.itemsize >= 4:
        return terms
    wide = dtypes.float32
    if terms.op is Ops.MUL:
        return terms.with_src(tuple(factor.cast(wide) for factor in terms.src))
    return terms.cast(wide)


def _within(index: UOp, begin: int, end: int) -> UOp:
    """The place in a part, for what lies there; so that its bounds say that it is one, also where
    64 bits are two words."""
    if begin == 0 and end == 1:
        return index.const_like(0)
    at = index.cast(dtypes.int32 if end < 1 << 31 else dtypes.int64)
    return -((-(at - begin).maximum(0)).maximum(begin + 1 - end))


def _chosen(condition: UOp, one: UOp, other: UOp) -> UOp:
    """Rows of one where the condition of a row holds, else of the other."""
    ones = (1,) * (one.ndim - condition.ndim)
    return condition.reshape((*condition.shape, *ones)).broadcast_to(one.shape).where(one, other)
