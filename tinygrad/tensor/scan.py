"""A loop of tensors that compiles once whatever its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tinygrad.transforms.scan  # noqa: F401  registers the gradient
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor.modes import recording
from tinygrad.tensor.tensor import Tensor
from tinygrad.uop.node import UOp
from tinygrad.uop.scan import ScanInfo, close, placeholder
from tinygrad.uop.scan import scan as scan_nodes

Body = Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]]


def scan(
    body: Body, init: Sequence[Tensor], xs: Sequence[Tensor], reverse: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """Carries `init` through `body` along the first axis of `xs`.

    Args:
        body: takes the states and one slice of each input, `body(*states, *slices)`, and returns
            (next states, outputs of this turn); states keep their shapes and dtypes.
        init: the first states.
        xs: inputs, shape (turns, ...) each; at least one.
        reverse: from the last slice to the first.

    Returns:
        The final states, and the outputs stacked, shape (turns, ...) each. Differentiable.

    Raises:
        ShapeError: inputs of different lengths, or a state that changes its shape.

    >>> total, sums = scan(lambda s, x: ([s + x], [s + x]), [Tensor(0.0)], [Tensor([1.0, 2.0])])
    >>> total[0].item(), sums[0].tolist()
    (3.0, [1.0, 3.0])
    """
    lengths = {x.shape[0] for x in xs if x.ndim}
    if len(lengths) != 1 or any(x.ndim == 0 for x in xs):
        raise ShapeError(f"scan: inputs of shapes {[x.shape for x in xs]} have no common length")
    (turns,) = lengths
    if any(isinstance(n, UOp) for each in (*init, *xs) for n in each.shape):
        raise ShapeError(
            f"scan: states of shapes {[s.shape for s in init]}, inputs {[x.shape for x in xs]}; "
            "legal are numbers as sizes: reshape a tensor to the sizes that it has now"
        )
    sources = [*(s._held for s in init), *(x._held for x in xs)]
    holes = [placeholder(i, s._held) for i, s in enumerate(init)]
    holes += [placeholder(len(init) + i, x._held, x.shape[1:]) for i, x in enumerate(xs)]
    with recording.body():
        states, outputs = body(*(Tensor(hole) for hole in holes))
    if len(states) != len(init):
        raise ArgumentError(f"scan: body returns {len(states)} states for {len(init)}")
    for number, (before, after) in enumerate(zip(init, states, strict=True)):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise ShapeError(
                f"scan: state {number} goes in as {before.dtype.name}{list(before.shape)} and "
                f"comes out as {after.dtype.name}{list(after.shape)}"
            )
    roots, others = close([t._held for t in (*states, *outputs)], holes)
    info = ScanInfo(UOp.sink(*roots), turns, len(init), len(xs), reverse)
    tensors = (*init, *xs)
    results = [
        tensors[0]._from(node, *tensors[1:]) for node in scan_nodes(info, [*sources, *others])
    ]
    return results[: len(init)], results[len(init) :]
