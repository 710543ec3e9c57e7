"""Sorting on devices with groups, where the host would be a way there and back: CALLs of the host's
functions become graphs. A short row is sorted by counting how many are smaller (one kernel, and one
that puts each in its place), a long one by a network (Batcher, "Sorting networks and their
applications", 1968): one kernel, run log2(n)² / 2 times by a SCAN."""

from __future__ import annotations

from tinygrad.base.dtype import dtypes
from tinygrad.schedule.bases import is_concrete
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.scan import ScanInfo, close, placeholder, scan

MOST_COMPARED = 1 << 24  # pairs of a row's elements, of all rows
LONGEST_COUNTED = 1 << 10
SLICE = 16  # elements of a turn's numbers: slices of a buffer begin at 64 bytes


def sorted_there(sink: UOp) -> UOp:
    """`sink` with what the device sorts itself."""
    return sink.rebuilt({Ops.ITEM: _item})


def _item(item: UOp) -> UOp:
    """A result of a function of the host, as the device makes it: the first of each row, as many as
    are asked for."""
    call = item.src[0]
    if call.op is not Ops.CALL or call.arg[0] not in SORTS or not is_concrete(call.src[0]):
        return item
    rows = _in_order(call.src[0], SORTS[call.arg[0]] == "places").cast(item.dtype)
    return rows.shrink(tuple((0, n) for n in item.shape))


SORTS = {"smallest": "values", "argsort": "places"}
"""By the name of the host's function, what it gives of the sorted rows."""


def _in_order(keys: UOp, places: bool) -> UOp:
    """The rows (the last axis) in order, equal ones as they came; or where each was, int32."""
    *lead, size = keys.shape
    if keys.size == 0 or size == 1:
        nothing = UOp.const(dtypes.int32, 0, keys.device).broadcast_to(keys.shape)
        return nothing if places else keys.contiguous()
    rows = keys.size // size
    flat = keys.reshape((rows, size))
    counts = size <= LONGEST_COUNTED and rows * size * size <= MOST_COMPARED
    made = _by_counting(flat, places) if counts else _by_network(flat, places)
    return made.reshape((*lead, size))


def _numbers(size: int, device: object, *shape: int) -> UOp:
    return UOp.arange(size, device).reshape(shape)


def _by_counting(keys: UOp, places: bool) -> UOp:
    rows, size = keys.shape
    square = (rows, size, size)
    own = keys.reshape((rows, size, 1)).broadcast_to(square)
    other = keys.reshape((rows, 1, size)).broadcast_to(square)
    here = _numbers(size, keys.device, 1, size, 1).broadcast_to(square)
    there = _numbers(size, keys.device, 1, 1, size).broadcast_to(square)
    is_before = (other < own) | (other.eq(own) & (there < here))
    rank = is_before.cast(dtypes.int32).reduce_axis("add", (2,)).contiguous()  # (rows, size, 1)
    is_there = rank.reshape((rows, 1, size)).broadcast_to(square).eq(here)
    value = there if places else other
    chosen = is_there.where(value, value.const_like(0).broadcast_to(square))
    return chosen.reduce_axis("add", (2,)).reshape((rows, size))


def _by_network(keys: UOp, places: bool) -> UOp:
    """Rows lie side by side, (size, rows), so that neighbouring lanes read neighbours."""
    rows, size = keys.shape
    levels = (size - 1).bit_length()
    whole, device = 1 << levels, keys.device
    shape = (whole, rows)
    column = keys.permute((1, 0)).contiguous()
    real = _numbers(whole, device, whole, 1).broadcast_to(shape) < size
    last = column.const_like(dtypes.max(keys.dtype)).broadcast_to(shape)
    column = real.where(column.pad(((0, whole - size), (0, 0))), last).contiguous()
    states = [column]
    if places:
        states.append(_numbers(whole, device, whole, 1).broadcast_to(shape).contiguous())
    inputs = _distances(levels, device)
    holes = [placeholder(i, s) for i, s in enumerate(states)]
    holes += [placeholder(len(states) + i, x, x.shape[1:]) for i, x in enumerate(inputs)]
    roots, others = close(_turn(holes[: len(states)], *holes[len(states) :]), holes)
    turns = inputs[0].shape[0]
    info = ScanInfo(UOp.sink(*roots), turns, len(states), len(inputs))
    found = scan(info, [*states, *inputs, *others])
    return found[len(states) - 1].shrink(((0, size), (0, rows))).permute((1, 0))


def _distances(levels: int, device: object) -> list[UOp]:
    """For each turn how long the sequences are that are merged, and how far those lie apart that
    change places: level by level, and in each the distances from half a sequence down to 1."""
    turns = levels * (levels + 1) // 2
    shape = (turns, SLICE)
    turn = _numbers(turns, device, turns, 1).broadcast_to(shape)
    level = sum(
        ((turn >= q * (q - 1) // 2).cast(dtypes.int32) for q in range(2, levels + 1)),
        start=turn.const_like(1).broadcast_to(shape),
    )
    done = turn - level * (level - 1) // 2
    one = turn.const_like(1).broadcast_to(shape)
    return [(one << level).contiguous(), (one << (level - 1 - done)).contiguous()]


def _turn(states: list[UOp], length: UOp, distance: UOp) -> list[UOp]:
    """The smaller of two in the first place, where the sequence is one that rises."""
    shape = states[0].shape
    length, distance = (x.shrink(((0, 1),)).broadcast_to(shape[:1]) for x in (length, distance))
    number = UOp.arange(shape[0], states[0].device)
    partner = number ^ distance
    wants_smaller = (number & length).eq(0).eq((number & distance).eq(0))
    others = [UOp(Ops.INDEX, s.dtype, (s, partner), 1) for s in states]
    smaller = others[-1] < states[-1]
    for own, other in zip(states[-2::-1], others[-2::-1], strict=True):
        smaller = (other < own) | (other.eq(own) & smaller)
    takes = smaller.eq(wants_smaller.reshape((shape[0], 1)).broadcast_to(shape))
    return [takes.where(other, own) for own, other in zip(states, others, strict=True)]
