"""`function`: functions of tensors with hand-written gradients.

The value of such a function is detached, and its history is a CALL node. A gradient that arrives at
the CALL is replaced by the expression that the gradient function returns. Plans and kernels never
see the CALL.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.autograd import is_differentiable
from tinygrad.tensor.modes import recording
from tinygrad.transforms.gradient import CALLS, Gradients
from tinygrad.uop import Ops, UOp

P = ParamSpec("P")
R = TypeVar("R")


@overload
def function(wrapped: Callable[P, R], *, gradient: Any = None) -> Callable[P, R]: ...
@overload
def function(*, gradient: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def function(wrapped: Any = None, *, gradient: Any = None) -> Any:
    """Decorates a function of tensors with a gradient of your own, given by `gradient`. The
    function may round, read from a table, or be one whose gradient is to be clipped.

    `gradient` gets the gradient of the result (for several results a tuple), then the function's
    arguments. It returns, for each tensor among the arguments in order, a gradient of its shape, or
    None for no gradient. Both functions only build expressions: what they make of the same tensors
    is computed once, and gradients have gradients. Tensors that the function uses without getting
    them as arguments have no gradient; ArgumentError for those in a list or a dict that may want
    one. ArgumentError for another number of gradients, ShapeError for another shape.

    Without `gradient`, it marks a function that only builds an expression.

    >>> @function(gradient=lambda grad_out, x, most: grad_out.clip(-most, most))
    ... def gently(x, most): return x
    >>> x = Tensor([1.0, 2.0])
    >>> gently(x, 3.0).square().sum().gradient(x)[0].tolist()
    [2.0, 3.0]
    """
    if wrapped is None:
        return functools.partial(function, gradient=gradient)
    if gradient is None:
        return wrapped
    signature = inspect.signature(wrapped)

    @functools.wraps(wrapped)
    def by_hand(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        if named := {key: each for key, each in bound.kwargs.items() if isinstance(each, Tensor)}:
            raise ArgumentError(
                f"{wrapped.__name__}: tensors named {list(named)} with a gradient by hand; legal "
                "are parameters that may be given by place"
            )
        tensors = {i: each for i, each in enumerate(bound.args) if isinstance(each, Tensor)}
        if any(map(_may_want_gradients, bound.args)) and recording.on:
            raise ArgumentError(
                f"{wrapped.__name__}: tensors inside a container with a gradient by hand, none of "
                "which would have one; legal are arguments of their own, or their .detach()"
            )
        nodes = tuple([tensor._held for tensor in tensors.values()])
        args = list(bound.args)
        for place, node in zip(tensors, nodes, strict=True):
            args[place] = _inside(tensors[place], node)
        with Tensor.no_grad():
            made = wrapped(*args, **bound.kwargs)
        results = made if isinstance(made, tuple) else (made,)
        if not all(isinstance(each, Tensor) for each in results):
            raise ArgumentError(
                f"{wrapped.__name__}: gave {type(made).__name__}; legal, with a gradient by hand, "
                "are a tensor, or a tuple of them"
            )
        if not tensors:
            return made
        rule = (_Rule if bound.kwargs or len(tensors) < len(bound.args) else _one_rule)(
            gradient,
            wrapped.__name__,
            tuple([None if i in tensors else each for i, each in enumerate(bound.args)]),
            tuple(bound.kwargs.items()),
            tuple([(i, type(each)) for i, each in tensors.items()]),
            tuple([(type(each), each._value.const_like(0)) for each in results]),
        )
        call = UOp(Ops.CALL, src=nodes, arg=(_NAME, rule))
        recorded = []
        for number, each in enumerate(results):
            value = each._value
            history = UOp(Ops.ITEM, value.dtype, (call,), (number, value.shape))
            recorded.append(each._from(value.detach(history), *tensors.values()))
        return tuple(recorded) if isinstance(made, tuple) else recorded[0]

    return by_hand


def _may_want_gradients(argument: Any) -> bool:
    """Whether a container has tensors whose gradients would be lost."""
    parts = argument.values() if isinstance(argument, dict) else argument
    return isinstance(argument, (dict, list, tuple)) and any(
        (part.requires_grad is not False and is_differentiable(part.dtype))
        if isinstance(part, Tensor)
        else _may_want_gradients(part)
        for part in parts
    )


_NAME = "function with a gradient by hand"


@dataclass(frozen=True, eq=False)
class _Rule:
    """A call of `name`, with `kinds` of tensors at their places among what was `given`; `results`
    has the kind of each, and a gradient of zeros."""

    gradient: Callable[..., Any]
    name: str
    given: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    kinds: tuple[tuple[int, type[Tensor]], ...]
    results: tuple[tuple[type[Tensor], UOp], ...]

    def gradients(self, sources: tuple[UOp, ...], found: dict[int, UOp]) -> Gradients:
        """Those of the sources, from those of the results by number."""
        of_results = tuple(
            [_taped(kind, found.get(i, zero)) for i, (kind, zero) in enumerate(self.results)]
        )
        given, tensors = list(self.given), []
        for (place, kind), source in zip(self.kinds, sources, strict=True):
            given[place] = _taped(kind, source)
            tensors.append(given[place])
        first = of_results if len(of_results) > 1 else of_results[0]
        made = self.gradient(first, *given, **dict(self.named))
        parts = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        if len(parts) != len(tensors):
            raise ArgumentError(
                f"{self.name}: {len(parts)} gradients by hand for {len(tensors)} tensors; legal is "
                "one for each, or None"
            )
        return tuple(map(self._checked, parts, tensors))

    def _checked(self, part: Any, tensor: Tensor) -> UOp | None:
        if part is None or not is_differentiable(tensor.dtype):
            return None
        if not isinstance(part, Tensor):
            raise ArgumentError(
                f"{self.name}: a gradient by hand is {part!r}; legal are a tensor and None"
            )
        if part.shape != tensor.shape:
            raise ShapeError(
                f"{self.name}: a gradient by hand of shape {part.shape} for a tensor of shape "
                f"{tensor.shape}; legal is that shape"
            )
        return part.cast(tensor.dtype)._held


_one_rule = functools.lru_cache(64)(_Rule)
"""Of tensors alone: equal calls are one, so that what an expression makes is the same each time."""


def _inside(tensor: Tensor, node: UOp) -> Tensor:
    """The tensor as its function sees it: gradients begin at it, though none are recorded."""
    made = tensor.alike(node, tensor.requires_grad)
    made._taped = True
    return made


def _taped(kind: type[Tensor], node: UOp) -> Tensor:
    """A tensor that gradients of gradients go on from."""
    made = kind.of(node, True)
    made._taped = True
    return made


CALLS[_NAME] = lambda node, found: node.arg[1].gradients(node.src, found)
