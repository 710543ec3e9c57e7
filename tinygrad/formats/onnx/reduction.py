"""Operators along axes: reductions, running sums, positions of the largest element, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.formats.onnx.casts import wide_enough
from tinygrad.formats.onnx.host import axes_of
from tinygrad.formats.onnx.registry import Function, Row, Table, one
from tinygrad.tensor import Tensor
from tinygrad.tensor.shapes import axis_of

Axes = tuple[int, ...]


def _reduction(function: Callable[[Tensor, Axes], Tensor], empty: float | None = None) -> Row:
    """`function` reduces axes and keeps them as size 1. `empty`: of no elements."""

    def reduce(
        x: Tensor, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        given = axes is not None and np.size(axes) > 0
        if not given and noop_with_empty_axes:
            return function(x, ()) if function in STILL_APPLIED else x
        gone = axes_of(axes, x.ndim) if given else tuple(range(x.ndim))
        kept = [1 if i in gone else n for i, n in enumerate(x.shape)]
        if 0 in x.shape and empty is not None:
            out = Tensor.full(tuple(kept), _bound(x, empty), dtype=x.dtype, device=x.device)
        else:
            out = function(x, gone).cast(x.dtype).reshape(kept)
        return out if keepdims else out.reshape([n for i, n in enumerate(kept) if i not in gone])

    return Row(reduce, (1,))


def _bound(x: Tensor, value: float) -> Any:
    """An infinity in the dtype of `x`."""
    if not math.isinf(value) or dtypes.is_float(x.dtype):
        return value
    return dtypes.max(x.dtype) if value > 0 else dtypes.min(x.dtype)


def _sum(x: Tensor, axes: Axes) -> Tensor:
    return x.sum(axes, keepdim=True)


def _square_sum(x: Tensor, axes: Axes) -> Tensor:
    return x.square().sum(axes, keepdim=True)


def _l1(x: Tensor, axes: Axes) -> Tensor:
    return x.abs().sum(axes, keepdim=True)


def _l2(x: Tensor, axes: Axes) -> Tensor:
    return x.cast(wide_enough(x.dtype)).square().sum(axes, keepdim=True).sqrt()


def _log_sum(x: Tensor, axes: Axes) -> Tensor:
    return x.sum(axes, keepdim=True).log()


def _log_sum_exp(x: Tensor, axes: Axes) -> Tensor:
    return x.cast(wide_enough(x.dtype)).logsumexp(axes, keepdim=True) if axes else x


STILL_APPLIED = (_square_sum, _l1, _l2, _log_sum, _log_sum_exp)


def _places(largest: bool) -> Function:
    def find(x: Tensor, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        source = x.flip(axis) if select_last_index else x
        found = (
            source.argmax(axis, bool(keepdims)) if largest else source.argmin(axis, bool(keepdims))
        )
        return (x.shape[axis] - 1 - found if select_last_index else found).cast(dtypes.int64)

    return find


def _running(name: str) -> Function:
    def run(x: Tensor, axis: Any, exclusive: int = 0, reverse: int = 0) -> Tensor:
        at = axis_of(int(one(axis)), x.ndim, "axis")
        source = x.flip(at) if reverse else x
        out = (source.cumsum(at) if name == "sum" else source.cumprod(at)).cast(x.dtype)
        if exclusive:
            pairs = [(1, -1) if i == at else (0, 0) for i in range(x.ndim)]
            out = out.pad(pairs, value=0 if name == "sum" else 1).cast(x.dtype)
        return out.flip(at) if reverse else out

    return run


def _hardmax(x: Tensor, axis: int = -1) -> Tensor:
    axis = axis_of(axis, x.ndim, "axis")
    if 0 in x.shape:
        return x
    return x.argmax(axis)._one_hot_along(axis, x.shape[axis]).cast(x.dtype)


def _as_rows(function: Function) -> Function:
    """Before version 13 all axes from `axis` on count as one."""

    def apply(x: Tensor, axis: int = 1) -> Tensor:
        axis = axis_of(axis, x.ndim, "axis")
        rows = x.reshape(prod(x.shape[:axis]), -1)
        made: Tensor = function(rows, axis=1)
        return made.reshape(x.shape)

    return apply


def _top_k(
    x: Tensor,
    k: Any,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,  # noqa: A002
) -> tuple[Tensor, Tensor]:
    count = int(one(k))
    values, places = x.topk(count, axis, bool(largest))
    return values, places.cast(dtypes.int64)


ROWS: Table = {
    "ArgMax": _places(True),
    "ArgMin": _places(False),
    "CumProd": Row(_running("prod"), (1,)),
    "CumSum": Row(_running("sum"), (1,)),
    "Hardmax": {1: _as_rows(_hardmax), 13: _hardmax},
    "LogSoftmax": {1: _as_rows(Tensor.log_softmax), 13: Tensor.log_softmax},
    "ReduceL1": _reduction(_l1, 0),
    "ReduceL2": _reduction(_l2, 0),
    "ReduceLogSum": _reduction(_log_sum, -math.inf),
    "ReduceLogSumExp": _reduction(_log_sum_exp, -math.inf),
    "ReduceMax": _reduction(lambda x, axes: x.max(axes, keepdim=True), -math.inf),
    "ReduceMean": _reduction(lambda x, axes: x.mean(axes, keepdim=True)),
    "ReduceMin": _reduction(lambda x, axes: x.min(axes, keepdim=True), math.inf),
    "ReduceProd": _reduction(lambda x, axes: x.prod(axes, keepdim=True), 1),
    "ReduceSum": _reduction(_sum, 0),
    "ReduceSumSquare": _reduction(_square_sum, 0),
    "Softmax": {1: _as_rows(Tensor.softmax), 13: Tensor.softmax},
    "TopK": Row(_top_k, (1,)),
}
