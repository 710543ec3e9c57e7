"""Radix sort of long rows, least significant digit first (Knuth, "The Art of Computer Programming",
volume 3, 5.2.5), on the host's cores. It is made of two kernels, written here in the form that a
recipe would give them: one counts how often each digit occurs, the other moves every word to the
next free place of its digit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.backends.interface import Launch
from tinygrad.base.dtype import DType, dtypes
from tinygrad.engine.devices import Device
from tinygrad.engine.kernels import kernel_key, load_kernels
from tinygrad.engine.storage import Buffer
from tinygrad.schedule.plan import variable_name
from tinygrad.uop import Ops, UOp

# of a digit: with 8 bits a pass is faster by a tenth, but a word of 32 takes one more
BITS = 11
PLACE_BITS = 32  # of a word: the low ones hold the original position, those above the key
DIGITS = -(-(64 - PLACE_BITS) // BITS)
LONGEST = 1 << PLACE_BITS - 1
PIECE = 1 << 12  # places that are made at once
LEAST = int(dtypes.min(dtypes.int64))

Array = np.ndarray[Any, Any]
Run = Callable[..., None]


def sort_by_keys(to: Array, words: Array) -> None:
    """Writes a row of int64 words to `to` in the order of their keys, which are signed; equal keys
    as they come.

    >>> row = np.array([(3 << 32) + 7, -1 << 32, (3 << 32) + 5])
    >>> sorted_row = np.empty_like(row)
    >>> sort_by_keys(sorted_row, row)
    >>> sorted_row >> 32, sorted_row & 7
    (array([-1,  3,  3]), array([0, 7, 5]))
    """
    counts = np.zeros((DIGITS, 1 << BITS), np.int32)
    count, deal = _kernels()
    count((counts, words), len(words))
    digits = [i for i, found in enumerate(counts) if found.max() < len(words)]  # which differ
    spare = np.asarray(Room(len(words))) if len(digits) > 1 else to
    for turn, digit in enumerate(digits):
        starts = (counts[digit].cumsum() - counts[digit]).astype(np.int32)
        target = spare if (len(digits) - turn) % 2 == 0 else to  # the last one is `to`
        deal((target, starts, words), len(words), PLACE_BITS + digit * BITS)
        words = target
    if not digits:
        to[...] = words


def places_in_order(row: Array) -> Array:
    """The indices that sort a row of int32 or int64, stably; int32.

    >>> places_in_order(np.array([30, 10, 20, 10]))
    array([1, 3, 2, 0], dtype=int32)
    """
    low, size = int(row.min()), len(row)
    order: Array | None = None
    words, found = np.asarray(Room(size)), np.asarray(Room(size))
    for shift in range(0, (int(row.max()) - low).bit_length(), PLACE_BITS):
        words[...] = row if order is None else row[order]
        words -= low  # as numbers without a sign, whose lowest one becomes the least of all
        words >>= shift
        words <<= PLACE_BITS
        words ^= LEAST
        for begin in range(0, size, PIECE):
            part = words[begin : begin + PIECE]
            part += np.arange(begin, begin + len(part))
        sort_by_keys(found, words)
        order = found.astype(np.int32) if order is None else order[found.astype(np.int32)]
    return np.arange(size, dtype=np.int32) if order is None else order


class Room:
    """Room for int64 numbers, as NumPy may see it, in memory that the device keeps once it is free
    again: fresh pages take as long as a pass over them."""

    def __init__(self, size: int) -> None:
        self._buffer = Buffer("CPU", 8 * size)
        place = Device["CPU"].backend.memory.address(self._buffer.handle)
        facts = {"shape": (size,), "typestr": "=i8", "data": (place, False), "version": 3}
        self.__array_interface__ = facts


@functools.cache
def _kernels() -> tuple[Run, Run]:
    return _loaded(_counting()), _loaded(_dealing())


def _counting() -> UOp:
    """Counts all digits."""
    turn = _turn()
    word, counts = (
        _parameter(1, dtypes.int64, LONGEST).index(turn),
        _parameter(0, dtypes.int32, DIGITS << BITS),
    )
    stores = []
    for number in range(DIGITS):
        place = counts.index(_digit(word, PLACE_BITS + number * BITS) + (number << BITS))
        stores.append(place.store(place + 1, turn))
    return UOp.sink(*stores)


def _dealing() -> UOp:
    to, words = (_parameter(slot, dtypes.int64, LONGEST) for slot in (0, 2))
    starts, turn = _parameter(1, dtypes.int32, 1 << BITS), _turn()
    word = words.index(turn)
    shift = UOp.variable(variable_name(1), PLACE_BITS, 63, dtypes.int64)
    start = starts.index(_digit(word, shift))
    return UOp.sink(
        to.index(start.cast(dtypes.index)).store(word, turn), start.store(start + 1, turn)
    )


def _parameter(slot: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.PARAM, dtype, arg=(slot, size))


def _turn() -> UOp:
    """A loop over a variable number of words."""
    limit = UOp.variable(variable_name(0), 1, LONGEST, dtypes.index)
    sizes = (UOp.const(dtypes.index, LONGEST), limit)
    return UOp(Ops.RANGE, dtypes.index, sizes, ("word", "ORDERED"))


def _digit(word: UOp, shift: UOp | int) -> UOp:
    """Of negative keys those before: their highest bit is set."""
    return (((word ^ LEAST) >> shift) & ((1 << BITS) - 1)).cast(dtypes.index)


def _loaded(kernel: UOp) -> Run:
    """Compiles and loads it, to be called with arrays and numbers."""
    device = Device["CPU"]
    key = kernel_key(kernel, device)
    found = load_kernels([(kernel, key)], device)
    assert found is not None
    made = found[key]
    (function,), (phase,) = made.functions, made.record.phases
    launch = Launch(function, phase.buffers, phase.variables, phase.grid, phase.block)
    segment = device.backend.queue.segment([launch])

    def run(arrays: tuple[Array, ...], *numbers: int) -> None:
        segment.run([array.ctypes.data for array in arrays], numbers)

    return run
