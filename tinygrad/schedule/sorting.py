"""Sorting on devices with groups of lanes, where a copy to the host and back would be slow: CALLs
of the host's sorting functions become graphs. A short row is sorted by counting, for each element,
how many are smaller: two kernels. A long row is sorted by a network (Batcher, "Sorting networks and
their applications", 1968): one kernel, which a SCAN runs log2(n)² / 2 times. That kernel may read
any element of what it sorts. Where that is more than a kernel can bind, the rows are sorted a few
at a time, and longer rows in chunks, which are then merged in pairs."""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv
from tinygrad.base.windows import UNIT, whole_window
from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.in_parts import in_one
from tinygrad.schedule.limits import SPARE
from tinygrad.schedule.plan import Wishes
from tinygrad.uop import Ops, UOp
from tinygrad.uop.scan import ScanInfo, close, placeholder, scan

MOST_COMPARED = 1 << 24  # pairs of elements of a row, over all rows
LONGEST_COUNTED = 1 << 10
SLICE = 16  # elements for the number of a turn: slices of a buffer begin at 64 bytes


def sorted_there(sink: UOp, wishes: Wishes) -> UOp:
    """`sink` with the sorting that devices with groups of lanes do themselves."""
    if not wishes.lanes:
        return sink
    return sink.rebuilt({Ops.ITEM: lambda item: _item(item, wishes)})


def _item(item: UOp, wishes: Wishes) -> UOp:
    """A result of a host function, computed on the device: the first elements of each row, as many
    as are needed."""
    call = item.src[0]
    if call.op is not Ops.CALL or call.arg[0] not in SORTS or not is_concrete(call.src[0]):
        return item
    rows = _in_order(call.src[0], SORTS[call.arg[0]] == "places", wishes).cast(item.dtype)
    return rows.shrink(tuple((0, n) for n in item.shape))


SORTS = {"smallest": "values", "argsort": "places"}
"""For each host function, what it returns of the sorted rows."""


def _in_order(keys: UOp, places: bool, wishes: Wishes) -> UOp:
    """The rows (the last axis) sorted, stably; or the index of each element before, int32."""
    *lead, size = keys.shape
    if keys.size == 0 or size == 1:
        nothing = UOp.const(dtypes.int32, 0, keys.device).broadcast_to(keys.shape)
        return nothing if places else keys.contiguous()
    rows = keys.size // size
    flat = keys.reshape((rows, size))
    counts = size <= LONGEST_COUNTED and rows * size * size <= MOST_COMPARED
    made = _by_counting(flat, places) if counts else _by_network(flat, places, wishes)
    return made.reshape((*lead, size))


def _by_counting(keys: UOp, places: bool) -> UOp:
    """Each element is compared with all of its row; then each place looks for its element."""
    rows, size = keys.shape
    square = (rows, size, size)
    own = keys.reshape((rows, size, 1)).broadcast_to(square)
    other = keys.reshape((rows, 1, size)).broadcast_to(square)
    first, second = (UOp.positions(square, axis, keys.device) for axis in (1, 2))
    is_before = (other < own) | (other.eq(own) & (second < first))
    rank = is_before.cast(dtypes.int32).reduce_axis("add", (2,)).contiguous()  # (rows, size, 1)
    is_there = rank.reshape((rows, 1, size)).broadcast_to(square).eq(first)
    value = second if places else other
    chosen = is_there.where(value, value.const_like(0).broadcast_to(square))
    return chosen.reduce_axis("add", (2,)).reshape((rows, size))


def _by_network(keys: UOp, places: bool, wishes: Wishes) -> UOp:
    """Sorts as many rows at a time as a turn may see; a row that is longer is sorted in chunks."""
    rows, size = keys.shape
    whole = 1 << (size - 1).bit_length()
    itemsize = max(keys.dtype.itemsize, places * dtypes.int32.itemsize)
    most = _most_seen(wishes, 1 + places, itemsize) or rows * whole
    each = max(1, most // whole)
    parts = [keys.sliced(0, i, min(i + each, rows)) for i in range(0, rows, each)]
    return in_one([_network(part, places, min(most, whole)) for part in parts], 0)


def _most_seen(wishes: Wishes, states: int, itemsize: int) -> int:
    """The number of elements, a power of 2, that a turn may access freely in each of its states, so
    that no kernel binds too many windows. 0: any number."""
    if not (wishes.window and wishes.buffers):
        return 0
    seen = (wishes.buffers - SPARE) // states - 2  # what a group writes may lie in two
    room = max(1, seen) * whole_window(wishes.window) - UNIT
    return 1 << ((room // itemsize).bit_length() - 1)


def _network(keys: UOp, places: bool, each: int) -> UOp:
    """A sorting network over columns, (size, rows), so that neighbouring lanes read neighbours; in
    chunks of `each` elements. A level merges sorted sequences: the first element of one is compared
    with the last of the next, and so on to the middle; then the halves of each are compared in
    order, then their halves. Between chunks, whole chunks are compared; the rest of the level takes
    turns inside them."""
    rows, size = keys.shape
    within, device = (each - 1).bit_length(), keys.device
    chunks = ceildiv(size, each)
    shape = (chunks * each, rows)
    column = keys.permute((1, 0)).contiguous()
    numbers = UOp.positions(shape, 0, device)
    last = column.const_like(dtypes.max(keys.dtype)).broadcast_to(shape)
    filled = (numbers < size).where(column.padded(0, 0, shape[0] - size), last)
    states = [filled, numbers] if places else [filled]
    made = []
    for begin in range(0, shape[0], each):
        chunk = [state.sliced(0, begin, begin + each).contiguous() for state in states]
        made.append(_in_turns(chunk, _partners(within, device)))
    for level in range(1, (chunks - 1).bit_length() + 1):
        _meet(made, (1 << level) - 1, is_turned=True)
        for half in reversed(range(level - 1)):
            _meet(made, 1 << half)
        made = [_in_turns(chunk, _partners(within, device, only_halves=True)) for chunk in made]
    found = in_one([chunk[-1] for chunk in made], 0)
    return found.sliced(0, 0, size).permute((1, 0))


def _meet(chunks: list[list[UOp]], bits: int, is_turned: bool = False) -> None:
    """Compares chunks whose numbers differ in these bits: the first one keeps what is smaller.
    Missing chunks would hold only padding, which stays at the end."""
    turned = _flipped if is_turned else list
    for number, low in enumerate(chunks):
        other = number ^ bits
        if number < other < len(chunks):
            smaller, larger = _parted(low, turned(chunks[other]))
            chunks[number] = [state.contiguous() for state in smaller]
            chunks[other] = [state.contiguous() for state in turned(larger)]


def _flipped(states: Sequence[UOp]) -> list[UOp]:
    return [state.flip((0,)) for state in states]


def _parted(some: Sequence[UOp], others: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Of each two elements the states of the smaller one, and of the larger one."""
    changes, pairs = _are_before(others, some), list(zip(some, others, strict=True))
    smaller = [changes.where(two, one) for one, two in pairs]
    return smaller, [changes.where(one, two) for one, two in pairs]


def _in_turns(states: list[UOp], partners: UOp) -> list[UOp]:
    """The states after one turn for each element of `partners`, the bits in which partners
    differ."""
    holes = [placeholder(i, s) for i, s in enumerate(states)]
    holes.append(placeholder(len(states), partners, partners.shape[1:]))
    roots, others = close(_turn(holes[:-1], holes[-1]), holes)
    info = ScanInfo(UOp.sink(*roots), partners.shape[0], len(states), 1)
    return scan(info, [*states, partners, *others])


def _partners(levels: int, device: object, only_halves: bool = False) -> UOp:
    """For each turn, the bits in which the numbers of two elements that are compared differ. Level
    by level, these are all bits below a sequence's length, then single bits, from a quarter of the
    length down to 1. With `only_halves`, the turns of one level alone: single bits, from half the
    length down."""
    turns = levels if only_halves else levels * (levels + 1) // 2
    shape = (turns, SLICE)
    turn = UOp.positions(shape, 0, device)
    one = turn.const_like(1).broadcast_to(shape)
    if only_halves:
        return (one << (levels - 1 - turn)).contiguous()
    level = one  # level q begins at turn q*(q - 1)/2
    for later in range(2, levels + 1):
        level = level + (turn >= later * (later - 1) // 2).cast(dtypes.int32)
    done = turn - level * (level - 1) // 2  # turns of this level
    return done.eq(0).where((one << level) - 1, one << (level - 1 - done)).contiguous()


def _turn(states: list[UOp], bits: UOp) -> list[UOp]:
    """The smaller of two elements goes to the first place. States have the shape (size, rows)."""
    shape = states[0].shape
    number = UOp.arange(shape[0], states[0].device)
    partner = number ^ bits.sliced(0, 0, 1).broadcast_to(shape[:1])
    others = [UOp(Ops.INDEX, s.dtype, (s, partner), 1) for s in states]
    is_first = (number < partner).reshape((shape[0], 1)).broadcast_to(shape)
    takes_other = _are_before(others, states).eq(is_first)
    return [takes_other.where(other, own) for own, other in zip(states, others, strict=True)]


def _are_before(some: Sequence[UOp], others: Sequence[UOp]) -> UOp:
    """Where the first states are smaller, or equal and followed by smaller ones."""
    smaller = some[-1] < others[-1]
    for one, other in zip(some[-2::-1], others[-2::-1], strict=True):
        smaller = (one < other) | (one.eq(other) & smaller)
    return smaller
