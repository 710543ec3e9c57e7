"""Reductions, running reductions, gathers and scatters of which a single element of the result
needs more of an array than a kernel may bind (`base/windows`), and loops in order that turn more
often than a lane may. They are computed in parts, each of which adds to the result so far or goes
on from it. Where only the kernel as a whole needs too much, but no single element does,
`codegen/portions` launches its groups in several portions instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv, prod
from tinygrad.base.windows import Stretch, windows
from tinygrad.schedule.bases import COMPUTED, is_concrete, memory_base, reached, storage_home
from tinygrad.schedule.demand import Kernel, ordered_axes
from tinygrad.schedule.in_parts import continued, in_one
from tinygrad.schedule.movement import ZERO, turns_of, view_offset
from tinygrad.schedule.plan import Wishes
from tinygrad.schedule.ranges import Expressions
from tinygrad.schedule.redo import FREE_LEAVES
from tinygrad.schedule.walk import Demands, demands_within
from tinygrad.simplify.affine import simplify_index
from tinygrad.simplify.forms import number
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, Ops

ROUNDS = 3  # after a cut a kernel may still see too much of another array


class AxisCut(NamedTuple):
    """This many `parts` of an axis of a node's source. In a SCATTER, all counted axes count as one:
    those of its target, or those of its `updates`."""

    axis: int
    parts: int
    updates: bool = False


def demands_in_windows(sink: UOp, wishes: Wishes) -> tuple[UOp, Demands]:
    """An equivalent graph, and its demands, in which no kernel sees too much of an array, as far as
    possible."""
    found = demands_within(sink, wishes)
    is_bound = wishes.window and wishes.buffers
    for _ in range(ROUNDS if is_bound or wishes.turns else 0):
        cuts = dict[UOp, AxisCut]()
        for kernel in found.kernels:
            own = _cuts_of_turns(found, kernel, wishes.turns) if wishes.turns else {}
            cuts |= own | _cuts(found, kernel, wishes) if is_bound else own
        if not cuts:
            break
        sink = _with_parts(sink, cuts)
        found = demands_within(sink, wishes)
    return sink, found


# ---- what is cut ---------------------------------------------------------------------------------


def _cuts(demands: Demands, kernel: Kernel, wishes: Wishes) -> dict[UOp, AxisCut]:
    """Cuts for a kernel of which even one group needs more windows than it can bind."""
    arrays = dict.fromkeys(map(storage_home, [*kernel.stores, *kernel.reads]))

    def bindings(array: UOp, touched: list[Stretch]) -> int:
        return len(windows(touched, array.dtype.itemsize, array.size, wishes.window))

    whole = {array: bindings(array, [(0, array.size)]) for array in arrays}
    if sum(whole.values()) <= wishes.buffers:
        return {}
    places = _places(demands, kernel, list(arrays))
    touched = {array: [_stretch(array, place) for place in places[array]] for array in arrays}
    needed = {array: bindings(array, touched[array]) for array in arrays}
    # a group may reach the next window of each
    if sum(max(needed[array], min(whole[array], 2)) for array in arrays) <= wishes.buffers:
        return {}
    cuts = dict[UOp, AxisCut]()
    for array in arrays:
        most = max((end - begin for begin, end in touched[array]), default=0)
        parts = ceildiv(most * array.dtype.itemsize, wishes.window)
        if parts > 1:
            more = _cut_along(demands, kernel, array, places[array], parts, wishes.window)
            # the target before its updates, whose stretches go on in a part's memory
            cuts |= {node: cut for node, cut in more.items() if not (cut.updates and node in cuts)}
    return cuts


def _cuts_of_turns(demands: Demands, kernel: Kernel, most: int) -> dict[UOp, AxisCut]:
    """Cuts for what a lane does in loops that run in order, including the reductions inside."""
    in_order = _in_order(kernel)
    count = turns_of(in_order)
    if count <= 1:
        return {}
    stores = Expressions(demands, kernel, lambda n: UOp(Ops.PARAM, n.dtype, arg=(0, n.size)))
    inside = [n for n in UOp.sink(*stores.stores()).toposort() if n.op is Ops.REDUCE]
    lanes = set(kernel.ranges) - in_order.keys()
    total = count + sum(turns_of(node.src[0].ranges - lanes) for node in inside)
    if total <= most:
        return {}
    node, axis = next(iter(in_order.values()))
    each = max(1, most // ceildiv(total, count))
    return {node: AxisCut(axis, ceildiv(count, each), True)} if is_concrete(node) else {}


def _places(demands: Demands, kernel: Kernel, arrays: list[UOp]) -> dict[UOp, list[UOp]]:
    """For each array the places that one turn of the kernel's loops touches."""

    def storage(node: UOp) -> UOp:
        home = storage_home(node)
        return UOp(Ops.PARAM, home.dtype, arg=(arrays.index(home), home.size))

    still = {loop: number(0) for loop in kernel.ranges if loop not in _in_order(kernel)}
    found = {array: list[UOp]() for array in arrays}
    for node in UOp.sink(*Expressions(demands, kernel, storage).stores()).toposort():
        if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
            place = simplify_index(node.src[1].substitute(still))
            found[arrays[node.src[0].arg[0]]].append(place)
    return found


def _in_order(kernel: Kernel) -> dict[UOp, tuple[UOp, int]]:
    """The loops in order, all turns of which one lane runs, with the RUNNING or SCATTER that needs
    them, and the axis."""
    found = dict[UOp, tuple[UOp, int]]()
    for node in kernel.stores:
        for axis in ordered_axes(node):
            if kernel.index[axis] is not ZERO:
                found[kernel.index[axis]] = (node, 0 if node.op is Ops.SCATTER else axis)
    return found


def _stretch(array: UOp, place: UOp) -> Stretch:
    return max(0, int(place.vmin)), min(array.size, int(place.vmax) + 1)


def _cut_along(
    demands: Demands, kernel: Kernel, array: UOp, places: list[UOp], parts: int, window: int
) -> dict[UOp, AxisCut]:
    """A cut of the node that goes through most of the array: of the reduction whose loop does, or
    of the gather or scatter that indexes it."""
    found = _loop_through(demands, kernel, places)
    if found is not None:
        node, axis = found
        if node.op is Ops.SCATTER and is_concrete(node.src[1]) and storage_home(node) is not array:
            return {node: AxisCut(0, parts, True)}
        if node.op in (Ops.REDUCE_AXIS, Ops.RUNNING) and is_concrete(node.src[0]):
            return {node: AxisCut(axis, min(parts, node.src[0].shape[axis]))}
    cuts = dict[UOp, AxisCut]()
    for node, _ in kernel.inlined:
        if node.op not in (Ops.INDEX, Ops.SCATTER) or not is_concrete(node.src[0]):
            continue
        if storage_home(memory_base(node.src[0])) is array:
            cuts[node] = AxisCut(0, parts) if node.op is Ops.SCATTER else _cut_of_rows(node, window)
    return cuts


def _loop_through(demands: Demands, kernel: Kernel, places: list[UOp]) -> tuple[UOp, int] | None:
    """The node whose loop goes through most of an array that is touched at these places, and the
    axis that this loop counts."""
    widest = max(places, key=lambda place: place.vmax - place.vmin)
    loop = max(widest.ranges, key=lambda r: _reach(widest, r), default=None)
    if loop is None or _reach(widest, loop) <= 0:
        return None
    counted = {name: node_and_axis for node_and_axis, name in demands.counters.items()}
    return _in_order(kernel).get(loop) or counted.get(loop.arg[0])


def _cut_of_rows(gather: UOp, window: int) -> AxisCut:
    """Parts of the axis with the largest steps. A single part means that bounds of the indices show
    that no element needs more."""
    source = gather.src[0]
    shape = source.shape
    counters = tuple(UOp.range(n, f"i{i}") if n > 1 else ZERO for i, n in enumerate(shape))
    place, _ = view_offset(source, memory_base(source), counters)
    reach = [_reach(place, loop) for loop in counters[: gather.arg]]
    steps = [far // max(1, size - 1) for far, size in zip(reach, shape, strict=False)]
    axis = steps.index(max(steps))
    parts = ceildiv((sum(reach) + 1) * source.dtype.itemsize, window)
    return AxisCut(axis, min(parts, shape[axis]))


def _reach(place: UOp, loop: UOp) -> int:
    """How far apart the places in a loop's turns are."""
    first = simplify_index(place.substitute({loop: number(0)}))
    return int((place.vmax - place.vmin) - (first.vmax - first.vmin))


# ---- how -----------------------------------------------------------------------------------------


def _with_parts(sink: UOp, cuts: dict[UOp, AxisCut]) -> UOp:
    return sink.remade(lambda old, node: PARTS[node.op](node, cuts[old]) if old in cuts else node)


def _reduced_in_parts(node: UOp, cut: AxisCut) -> UOp:
    """Each part is combined with the stored result of those before it."""
    monoid, axes = node.arg
    source = _wide(node.src[0])
    made: UOp | None = None
    for begin, end in _stretches(source.shape[cut.axis], cut.parts):
        new = source.sliced(cut.axis, begin, end).reduce_axis(monoid, axes)
        made = new if made is None else made.alu(MONOIDS[monoid].combine, new)
        made = made.contiguous()
    assert made is not None
    return made if made.dtype is node.dtype else made.cast(node.dtype)


def _gathered_in_parts(node: UOp, cut: AxisCut) -> UOp:
    """All elements are read from each part in turn; those that are not in it keep their value."""
    source, *sources = node.src
    kept = _kept(sources)
    indices, gates = kept[: node.arg], kept[node.arg :]
    made: UOp | None = None
    for begin, end in _stretches(source.shape[cut.axis], cut.parts):
        spans = [(0, n) for n in source.shape[: node.arg]]
        spans[cut.axis] = begin, end
        at = [_within(index, *span) for index, span in zip(indices, spans, strict=True)]
        new = node.with_src((source.sliced(cut.axis, begin, end), *at, *gates))
        if made is None:
            made = new.contiguous()
            continue
        is_here: UOp = indices[cut.axis] >= begin
        made = is_here.broadcast_rows(new.shape).where(new, made).contiguous()
    assert made is not None
    return made


def _running_in_parts(node: UOp, cut: AxisCut) -> UOp:
    """Each part starts from the last value of the one before."""
    monoid, axis = node.arg
    made: list[UOp] = []
    for begin, end in _stretches(node.shape[axis], cut.parts):
        part = node.src[0].sliced(axis, begin, end)
        if not made:
            made.append(part.running(monoid, axis))
            continue
        before = made[-1].shape[axis]
        last = made[-1].sliced(axis, before - 1, before).contiguous()
        made.append(continued(part, monoid, axis, last))
    return in_one(made, axis)


def _scatter_in_parts(node: UOp, cut: AxisCut) -> UOp:
    return _updates_in_parts(node, cut) if cut.updates else _target_in_parts(node, cut)


def _updates_in_parts(node: UOp, cut: AxisCut) -> UOp:
    """Applies the updates in turn to the same memory."""
    target, updates, *indices = node.src
    lead = indices[0].ndim
    count = prod(updates.shape[:lead])
    flat = [updates.reshape((count, *updates.shape[lead:]))]
    flat += [index.reshape((count,)) for index in indices]
    made = target
    for span in _stretches(count, cut.parts):
        made = node.with_src((made, *(each.sliced(0, *span) for each in flat)))
    return made


def _target_in_parts(node: UOp, cut: AxisCut) -> UOp:
    """Applies all updates to each part of the target, which has an additional row for those that
    belong to other parts."""
    target, updates, *indices = node.src
    sizes = target.shape[: len(indices)]
    count = prod(sizes)
    given = target.src[0] if target.op is Ops.CONTIGUOUS else target  # avoids a copy of the copy
    rows = given.reshape((count, *target.shape[len(indices) :]))
    kind = dtypes.int32 if count < 1 << 31 else dtypes.int64
    row, *inner = [index.cast(kind) for index in indices]
    for at, size in zip(inner, sizes[1:], strict=True):
        row = row * size + at
    updates, row = _kept([updates, row])
    parts = []
    for begin, end in _stretches(count, cut.parts):
        mine = rows.sliced(0, begin, end).padded(0, 0, 1)
        tag = ("target", begin, node.key.hex())
        own = UOp(Ops.CONTIGUOUS, node.dtype, (mine,), tag=tag)
        is_here = (row >= begin) & (row < end)
        here = is_here.where(row - begin, end - begin)
        made = node.with_src((own, updates, here))
        parts.append(made.sliced(0, 0, end - begin))
    return in_one(parts, 0).reshape(node.shape)


PARTS: dict[Ops, Callable[[UOp, AxisCut], UOp]] = {
    Ops.REDUCE_AXIS: _reduced_in_parts,
    Ops.INDEX: _gathered_in_parts,
    Ops.RUNNING: _running_in_parts,
    Ops.SCATTER: _scatter_in_parts,
}


def _stretches(size: int, parts: int) -> list[tuple[int, int]]:
    each = ceildiv(size, parts)
    return [(begin, min(begin + each, size)) for begin in range(0, size, each)]


def _kept(sources: Sequence[UOp]) -> list[UOp]:
    """The sources that each part needs, stored once, except those that are counted."""
    return [each if _is_counted(each) else each.contiguous() for each in sources]


def _is_counted(index: UOp) -> bool:
    """Whether the index is computed without reading anything."""
    below = reached(index, through=lambda node: node.op in COMPUTED)
    return all(node.op in COMPUTED or node.op in FREE_LEAVES for node in below)


def _wide(terms: UOp) -> UOp:
    """Terms whose partial sums can be stored: narrow floats are summed as float32 here, too."""
    if not dtypes.is_float(terms.dtype) or terms.dtype.itemsize >= 4:
        return terms
    wide = dtypes.float32
    if terms.op is Ops.MUL:
        return terms.with_src(tuple(factor.cast(wide) for factor in terms.src))
    return terms.cast(wide)


def _within(index: UOp, begin: int, end: int) -> UOp:
    """The place in a part, for indices inside it. It is written so that its bounds are visible,
    also where 64 bits are two words."""
    if begin == 0 and end == 1:
        return index.const_like(0)
    at = index.cast(dtypes.int32 if end < 1 << 31 else dtypes.int64)
    return -((-(at - begin).maximum(0)).maximum(begin + 1 - end))
