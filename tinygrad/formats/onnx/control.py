"""Control flow: graphs inside nodes, run turn by turn in the scope of the node. Conditions and
counts are read on the host, so in a captured step they must be constants or shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.onnx.registry import Row, Table, Value, one
from tinygrad.formats.onnx.values import numpy_dtype_of, to_host, to_tensor
from tinygrad.tensor.shapes import axis_of

Run = Callable[[Any, dict[str, Value]], list[Value]]


def _truth(value: Value, where: str) -> bool:
    return bool(np.asarray(to_host(value, where)).reshape(-1)[0])


def _if(condition: Value, then_branch: Any, else_branch: Any, graph: Run) -> tuple[Value, ...]:
    chosen = then_branch if bool(one(condition)) else else_branch
    return tuple(graph(chosen, {}))


def _loop(
    trips: Value, condition: Value, *states: Value, body: Any, graph: Run
) -> tuple[Value, ...]:
    """Runs `body` while the condition holds, at most `trips` times; what a turn gives beside the
    states is stacked over the turns."""
    most = None if trips is None else int(one(trips))
    goes_on = condition is None or _truth(condition, "onnx Loop")
    names = [item.name for item in body.input]
    kept = list(states)
    seen: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    turn = 0
    while goes_on and (most is None or turn < most):
        given = [np.array(turn, np.int64), np.array(True), *kept]
        out = graph(body, dict(zip(names, given, strict=True)))
        goes_on = _truth(out[0], "onnx Loop")
        kept = out[1 : 1 + len(kept)]
        for rows, value in zip(seen, out[1 + len(kept) :], strict=True):
            rows.append(value)
        turn += 1
    items = body.output[1 + len(kept) :]
    return (*kept, *(_joined(rows, 0, item) for rows, item in zip(seen, items, strict=True)))


def _joined(rows: list[Value], axis: int, item: Any) -> Value:
    """What the turns gave as one; of no turn, none of what the graph's output `item` says."""
    if rows:
        return stacked(rows, axis)
    kind = item.type.tensor_type
    sizes = [each.dim_value for each in kind.shape.dim]
    sizes.insert(axis_of(axis, len(sizes) + 1, "axis"), 0)
    return np.zeros(sizes, numpy_dtype_of(kind.elem_type or 1))


def stacked(rows: list[Value], axis: int) -> Value:
    """Values as one along a new axis."""
    if not rows:
        raise ArgumentError("no values to stack; legal are one or more")
    if all(isinstance(row, np.ndarray) for row in rows):
        return np.stack(rows, axis)
    values = [to_tensor(row) for row in rows]
    return values[0].stack(*values[1:], dim=axis)


def _scan(
    *values: Value,
    body: Any,
    graph: Run,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> tuple[Value, ...]:
    """Runs `body` along an axis of each of the last `num_scan_inputs` inputs."""
    states, scanned = list(values[:-num_scan_inputs]), values[-num_scan_inputs:]
    axes = scan_input_axes or [0] * num_scan_inputs
    turned = scan_input_directions or [0] * num_scan_inputs
    names = [item.name for item in body.input]
    count = len(body.output) - len(states)
    sizes = {x.shape[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(sizes) != 1:
        raise ArgumentError(f"scanned axes of sizes {sorted(sizes)}; legal is one size")
    (size,) = sizes
    seen: list[list[Value]] = [[] for _ in range(count)]
    for turn in range(size):
        rows = [
            _row(x, axis_of(axis, x.ndim, "axis"), size - 1 - turn if backward else turn)
            for x, axis, backward in zip(scanned, axes, turned, strict=True)
        ]
        out = graph(body, dict(zip(names, [*states, *rows], strict=True)))
        states = out[: len(states)]
        for kept, value in zip(seen, out[len(states) :], strict=True):
            kept.append(value)
    axes_out = scan_output_axes or [0] * count
    turned_out = scan_output_directions or [0] * count
    joined = [
        _joined(rows[::-1] if backward else rows, axis, item)
        for rows, axis, backward, item in zip(
            seen, axes_out, turned_out, body.output[len(states) :], strict=True
        )
    ]
    return (*states, *joined)


def _row(x: Value, axis: int, place: int) -> Value:
    return x[(slice(None),) * axis + (place,)]


def _batched_scan(
    lengths: Value,
    *values: Value,
    body: Any,
    graph: Run,
    num_scan_inputs: int,
    directions: list[int] | None = None,
) -> tuple[Value, ...]:
    """Version 8: each input has batches first, and each batch is scanned by itself."""
    if lengths is not None:
        raise ArgumentError("sequence_lens is given; legal is none")
    batches = values[0].shape[0]
    outs = [
        _scan(
            *(_row(value, 0, i) for value in values),
            body=body,
            graph=graph,
            num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )
        for i in range(batches)
    ]
    return tuple(stacked(list(group), 0) for group in zip(*outs, strict=True))


def _sequence_map(sequence: list[Value], *more: Value, body: Any, graph: Run) -> tuple[Value, ...]:
    """`body` on each item, beside the items at its place in other sequences."""
    names = [item.name for item in body.input]
    outs: list[list[Value]] = [[] for _ in body.output]
    for place, item in enumerate(sequence):
        given = [item, *(other[place] if isinstance(other, list) else other for other in more)]
        for kept, value in zip(
            outs, graph(body, dict(zip(names, given, strict=True))), strict=True
        ):
            kept.append(value)
    return tuple(outs)


ROWS: Table = {
    "If": Row(_if, (0,), ("graph",)),
    "Loop": Row(_loop, (0, 1), ("graph",)),
    "Scan": {1: Row(_batched_scan, (), ("graph",)), 9: Row(_scan, (), ("graph",))},
    "SequenceMap": Row(_sequence_map, (), ("graph",)),
}
