"""The gradient of a counted loop (SCAN): a reversed loop over the states of the forward one.

The forward loop gets further outputs: its states, and the values that its body reduces. The
backward loop carries the gradients of the states, and sums the gradients of everything else that
the body uses."""

from __future__ import annotations

import itertools

from tinygrad.base.dtype import compute_dtype, dtypes
from tinygrad.transforms.gradient import CALLS, Gradients, gradient
from tinygrad.uop import Ops, UOp
from tinygrad.uop.scan import ScanInfo, placeholder, scan

MOST_KEPT = 8
"""Times the largest state: the gates of an LSTM are four."""


def scan_gradient(node: UOp, grads: dict[int, UOp]) -> Gradients:
    """Gradients of a SCAN's sources from those of its results, by number."""
    info: ScanInfo = node.arg
    n, inputs = info.states, info.inputs
    init, xs, others = node.src[:n], node.src[n : n + inputs], node.src[n + inputs :]
    holes = _placeholders(node)
    reduced = [value for value in info.body.toposort() if _is_kept(value, info)]
    before, kept = _saved(info, holes, node.src, reduced)
    outputs = [i for i in range(n, len(info.body.src)) if i in grads]  # that anybody derived by
    zeros = [o.const_like(0).cast(compute_dtype(o.dtype)) for o in others]

    body = _backward_body(node, holes, zeros, outputs, reduced)
    slices = (*xs, *before, *(grads[i] for i in outputs), *kept)
    backward = ScanInfo(body, info.turns, n + len(others), len(slices), not info.reverse)
    final = [grads.get(i, s.const_like(0)) for i, s in enumerate(init)]
    results = scan(backward, (*final, *zeros, *slices, *others))
    sums_end = n + len(others)
    of_init, sums, of_xs = results[:n], results[n:sums_end], results[sums_end:]
    of_others = [total.cast(o.dtype) for total, o in zip(sums, others, strict=True)]
    return (*of_init, *of_xs, *of_others)


def _backward_body(
    node: UOp, holes: list[UOp], zeros: list[UOp], outputs: list[int], reduced: list[UOp]
) -> UOp:
    """The body of the backward loop.

    It has these arguments. Carried: the gradients of the states after the turn, and the sums so far
    for everything else that the body uses. Slices: the inputs, the states before the turn, the
    gradients of the outputs, and the values that were reduced. Then everything else that is used.
    It returns the gradients of the states before the turn and the new sums, and as outputs the
    gradients of the turn's slices.
    """
    info: ScanInfo = node.arg
    n, inputs, given = info.states, info.inputs, info.body.src
    init, xs, others = node.src[:n], node.src[n : n + inputs], node.src[n + inputs :]
    slots = itertools.count()
    carried = [placeholder(next(slots), s) for s in init]
    sums = [placeholder(next(slots), zero) for zero in zeros]
    slices = [placeholder(next(slots), x, x.shape[1:]) for x in xs]
    states = [placeholder(next(slots), s) for s in init]
    of_outputs = [placeholder(next(slots), given[i], given[i].shape) for i in outputs]
    known = [placeholder(next(slots), value) for value in reduced]
    constants = [placeholder(next(slots), o) for o in others]

    # the forward turn again, over these arguments, and its gradient
    arguments = (*states, *slices, *constants)
    moved = {hole.base: each.base for hole, each in zip(holes, arguments, strict=True)}
    roots = [root.substitute(moved) for root in given]
    values = [*roots[:n], *(roots[i] for i in outputs)]
    total = _weighted_sum(list(zip(values, [*carried, *of_outputs], strict=True)))
    found = gradient(total, arguments, total.const_like(1))
    grown = [a.const_like(0) if g is None else g for a, g in zip(arguments, found, strict=True)]
    next_sums = [s + g.cast(s.dtype) for s, g in zip(sums, grown[n + inputs :], strict=True)]
    body = UOp.sink(*grown[:n], *next_sums, *grown[n : n + inputs])
    again = (value.substitute(moved) for value in reduced)
    return body.substitute(dict(zip(again, known, strict=True)))


def _placeholders(node: UOp) -> list[UOp]:
    """What stands for each source inside the body; of an input a slice."""
    info: ScanInfo = node.arg
    inputs = range(info.states, info.states + info.inputs)
    return [placeholder(i, s, s.shape[1:] if i in inputs else None) for i, s in enumerate(node.src)]


def _saved(
    info: ScanInfo, holes: list[UOp], sources: tuple[UOp, ...], values: list[UOp]
) -> tuple[list[UOp], list[UOp]]:
    """The states before each turn, stacked, and these values of each turn."""
    body = UOp.sink(*info.next_states, *holes[: info.states], *values)
    keeping = ScanInfo(body, info.turns, info.states, info.inputs, info.reverse)
    outputs = scan(keeping, sources)[info.states :]
    return outputs[: info.states], outputs[info.states :]


def _is_kept(node: UOp, info: ScanInfo) -> bool:
    """Whether a turn's value is kept for the backward loop: one that is reduced, as products are,
    if it is at most a fixed multiple of the state's size."""
    largest = max((root.size for root in info.next_states), default=0)
    return node.op is Ops.REDUCE_AXIS and node.size <= MOST_KEPT * largest


def _weighted_sum(pairs: list[tuple[UOp, UOp]]) -> UOp:
    """A sum whose gradients by the values are the weights. It is never computed itself."""
    total = None
    for value, weight in pairs:
        part = (value * weight.reshape(value.shape)).reduce_axis("add", tuple(range(value.ndim)))
        part = part.reshape(()).cast(dtypes.float32)  # values may be of several types
        total = part if total is None else total + part
    assert total is not None
    return total


CALLS["SCAN"] = scan_gradient
