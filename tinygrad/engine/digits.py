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
from tinygrad.schedule.plan import variable_name
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

BITS = 8  # of a digit: its 256 counters stay in the first cache
PLACE_BITS = 32  # of a word: the low ones hold the original position, those above the key
DIGITS = (64 - PLACE_BITS) // BITS
LONGEST = 1 << PLACE_BITS - 1
LIMITS = int(dtypes.min(dtypes.int64)), int(dtypes.max(dtypes.int64))

Array = np.ndarray[Any, Any]
Run = Callable[..., None]


def places_in_order(row: Array) -> Array:
    """The indices that sort a row of int32 or int64, stably; int32.

    >>> places_in_order(np.array([30, 10, 20, 10]))
    array([1, 3, 2, 0], dtype=int32)
    """
    low = int(row.min())
    order: Array | None = None
    for shift in range(0, (int(row.max()) - low).bit_length(), PLACE_BITS):
        moved = _in_order(row if order is None else row[order], low, shift)
        order = moved if order is None else order[moved]
    return np.arange(len(row), dtype=np.int32) if order is None else order


def _in_order(row: Array, low: int, shift: int) -> Array:
    """The same, by 32 bits of the difference from `low`, from bit `shift` on."""
    counts = np.zeros((DIGITS, 1 << BITS), np.int32)
    words, other = (np.empty(len(row), np.int64) for _ in range(2))
    count, deal = _kernels(row.dtype.name)
    count((counts, words, np.ascontiguousarray(row)), len(row), low, shift)
    for digit, found in enumerate(counts):
        if found.max() == len(row):
            continue  # all elements have the same digit
        starts = (found.cumsum() - found).astype(np.int32)
        deal((other, starts, words), len(row), PLACE_BITS + digit * BITS)
        words, other = other, words
    return words.astype(np.int32)  # the lower half


@functools.cache
def _kernels(name: str) -> tuple[Run, Run]:
    return _loaded(_counting(dtypes.int64 if name == "int64" else dtypes.int32)), _loaded(
        _dealing()
    )


def _counting(dtype: DType) -> UOp:
    """Builds the words of a row, and counts all digits."""
    turn, low = _turn(), UOp.variable(variable_name(1), *LIMITS, dtypes.int64)
    shift = UOp.variable(variable_name(2), 0, PLACE_BITS, dtypes.int64)
    row, words = _parameter(2, dtype, LONGEST), _parameter(1, dtypes.int64, LONGEST)
    beyond = (row.index(turn).cast(dtypes.int64) - low) >> shift
    stores = [words.index(turn).store((beyond << PLACE_BITS) | turn.cast(dtypes.int64), turn)]
    counts = _parameter(0, dtypes.int32, DIGITS << BITS)
    for number in range(DIGITS):
        place = counts.index(_digit(beyond, number * BITS) + (number << BITS))
        stores.append(place.store(place + 1, turn))
    return UOp.sink(*stores)


def _dealing() -> UOp:
    to, words = (_parameter(slot, dtypes.int64, LONGEST) for slot in (0, 2))
    starts, turn = _parameter(1, dtypes.int32, 1 << BITS), _turn()
    word = words.index(turn)
    shift = UOp.variable(variable_name(1), PLACE_BITS, 63, dtypes.int64)
    start = starts.index(_digit(word, shift))
    return UOp.sink(
        to.index(start.cast(dtypes.index)).store(word, turn),
        start.store(start + 1, turn),
    )


def _parameter(slot: int, dtype: DType, size: int) -> UOp:
    return UOp(Ops.PARAM, dtype, arg=(slot, size))


def _turn() -> UOp:
    """A loop over a variable number of words."""
    limit = UOp.variable(variable_name(0), 1, LONGEST, dtypes.index)
    sizes = (UOp.const(dtypes.index, LONGEST), limit)
    return UOp(Ops.RANGE, dtypes.index, sizes, ("word", "ORDERED"))


def _digit(word: UOp, shift: UOp | int) -> UOp:
    return ((word >> shift) & ((1 << BITS) - 1)).cast(dtypes.index)


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
