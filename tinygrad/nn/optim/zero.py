"""ZeRO: devices that train one model share the computation and the memory of the optimizer's steps.

(Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", 2020.)
"""

from __future__ import annotations

from typing import TypeVar

from tinygrad.base.errors import ArgumentError
from tinygrad.nn.optim.optimizer import Optimizer
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_choice

Kind = TypeVar("Kind", bound=Optimizer)
STAGES = (1, 2, 3)


def zero(optimizer: Kind, stage: int = 1) -> Kind:
    """The optimizer, changed so that devices divide the work that each of them did completely.

    | stage | cut over the devices |
    |--:|---|
    | 1 | the optimizer's state: momentum, averages |
    | 2 | the gradients too: summed up only where they are used, never whole on a device |
    | 3 | the parameters too: layers collect them when they need them, and drop them again |

    Steps compute the same as before. A parameter is cut along its first axis that has an element
    for each device; if there is none, it stays whole. From stage 2 on, `param.grad` is cut after a
    step.

    Args:
        optimizer: one whose parameters are on several devices, each with all of it, as
            `param.to_(devices)` puts them.
        stage: 1, 2 or 3.

    Raises:
        ArgumentError: another stage; a parameter on one device; not an optimizer.

    >>> devices = ("CPU", "CPU:1")
    >>> w = Tensor.ones(4, 2).to_(devices).requires_grad_()
    >>> optimizer = nn.optim.zero(nn.optim.Adam([w], lr=0.1), stage=1)
    >>> optimizer.m[0].uop.axis, w.uop.axis
    (0, None)
    """
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(f"zero: {type(optimizer).__name__}; legal is an optimizer of one group")
    check_choice("zero", "stage", stage, STAGES)
    alone = [param for param in optimizer.params if not isinstance(param.device, tuple)]
    if alone:
        raise ArgumentError(
            f"zero: a parameter of shape {alone[0].shape} on {alone[0].device}; legal are several "
            "devices: use param.to_(devices)"
        )
    optimizer.cuts = [_axis(param) for param in optimizer.params]
    optimizer.keeps_gradients = stage < 2
    for state in _states(optimizer):
        _cut(state, optimizer.cuts)
    if stage == 3:
        _cut(optimizer.params, optimizer.cuts)
    return optimizer


def _axis(param: Tensor) -> int | None:
    """Where a parameter is cut: where it is already, or the first axis that is long enough."""
    own: int | None = param.uop.axis
    if own is not None:
        return own
    return next((i for i, n in enumerate(param.shape) if n >= len(param.device)), None)


def _states(optimizer: Optimizer) -> list[list[Tensor]]:
    """The lists of the optimizer that hold a tensor like it for each parameter."""
    shapes = [param.shape for param in optimizer.params]
    return [
        found
        for found in vars(optimizer).values()
        if isinstance(found, list)
        and found is not optimizer.params
        and [getattr(each, "shape", None) for each in found] == shapes
    ]


def _cut(tensors: list[Tensor], axes: list[int | None]) -> None:
    for tensor, axis in zip(tensors, axes, strict=True):
        if axis is not None and tensor.uop.axis != axis:
            tensor.shard_(tensor.device, axis).realize()
