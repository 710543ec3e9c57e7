"""Sequences and optional values: lists, and None."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.control import stacked
from tinygrad.formats.onnx.host import split_sizes
from tinygrad.formats.onnx.registry import Row, Table, Value, one
from tinygrad.formats.onnx.values import to_tensor
from tinygrad.tensor.shapes import axis_of


def _place(place: Any, size: int) -> int:
    at = int(one(place))
    if not -size <= at < max(size, 1):
        raise ArgumentError(f"place {at} of a sequence of {size}")
    return at + size if at < 0 else at


def _insert(sequence: list[Value], value: Value, place: Any = None) -> list[Value]:
    made = list(sequence)
    at = len(made) if place is None else int(one(place))
    if not -len(made) <= at <= len(made):
        raise ArgumentError(f"place {at} of a sequence of {len(made)}")
    made.insert(at + len(made) if at < 0 else at, value)
    return made


def _erase(sequence: list[Value], place: Any = None) -> list[Value]:
    at = _place(-1 if place is None else place, len(sequence))
    return sequence[:at] + sequence[at + 1 :]


def _concat(sequence: list[Value], axis: int, new_axis: int = 0) -> Value:
    if new_axis:
        return stacked(sequence, axis)
    if all(isinstance(item, np.ndarray) for item in sequence):
        return np.concatenate(sequence, axis)
    parts = [to_tensor(item) for item in sequence]
    return parts[0].cat(*parts[1:], dim=axis)


def _split(x: Value, split: Any = None, axis: int = 0, keepdims: int = 1) -> list[Value]:
    axis = axis_of(axis, x.ndim, "axis")
    size = x.shape[axis]
    given = None if split is None else np.asarray(split)
    if given is None or given.ndim == 0:
        each = 1 if given is None else int(given)
        sizes = [min(each, size - start) for start in range(0, size, each)]
    else:
        sizes = split_sizes(size, given, None, 1)
    ends = np.cumsum(sizes).tolist()
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    parts = [x[(slice(None),) * axis + (slice(start, end),)] for start, end in cuts]
    if given is None and not keepdims:
        parts = [part[(slice(None),) * axis + (0,)] for part in parts]
    return parts


def _optional(value: Value = None, type: Any = None) -> Value:  # noqa: A002
    return value


def _value_of(value: Value) -> Value:
    if value is None:
        raise ArgumentError("an optional without a value")
    return value


ROWS: Table = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _value_of,
    "OptionalHasElement": lambda value=None: np.array(value is not None),
    "SequenceAt": Row(lambda sequence, place: sequence[_place(place, len(sequence))], (1,)),
    "SequenceConstruct": lambda *values: list(values),
    "SequenceEmpty": lambda dtype=1: [],
    "SequenceErase": Row(_erase, (1,)),
    "SequenceInsert": Row(_insert, (2,)),
    "SequenceLength": lambda sequence: np.array(len(sequence), np.int64),
    "SplitToSequence": Row(_split, (1,)),
}
