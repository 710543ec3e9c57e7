"""Random counts: how often something happens. They are drawn on the host, by NumPy's exact methods,
from a stream of its own for each call, whose key is made of Threefry's bits: so here, too, neither
the order of computing nor the device changes a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.engine.host import HostFunction, call, register
from tinygrad.tensor.elementwise import float_kind
from tinygrad.tensor.generator import Generator
from tinygrad.tensor.long_tail.sets import Sets

Array = NDArray[Any]


def _source(key: Array) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key.view(np.uint64)))


def _poisson(to: Sequence[Array], rates: Array, key: Array) -> None:
    legal = (rates >= 0) & (rates <= LARGEST)  # what isn't is told by a CHECK
    to[0][...] = _source(key).poisson(np.where(legal, rates, 0))


def _binomial(to: Sequence[Array], trials: Array, chances: Array, key: Array) -> None:
    many = np.where((trials >= 0) & (trials <= LARGEST), trials, 0)
    legal = (chances >= 0) & (chances <= 1)
    to[0][...] = _source(key).binomial(many.astype(np.int64), np.where(legal, chances, 0))


LARGEST = 1e18  # beyond it NumPy has no counts
POISSON = register(HostFunction("poisson", _poisson, lambda rates, key: [rates]))
BINOMIAL = register(HostFunction("binomial", _binomial, lambda trials, chances, key: [trials]))


class Counts(Sets):
    """Draws whose distribution is another for each element."""

    __slots__ = ()

    def poisson(self, generator: Generator | None = None) -> Self:
        """How often something happens that happens so many times on average, for each element, in
        this dtype. A read raises RuntimeCheckError if a rate is below 0, NaN, or above 1e18.

        >>> Tensor([0.0, 0.0]).poisson().tolist()
        [0.0, 0.0]
        """
        return self._how_often("poisson", POISSON, generator, (self, LARGEST, "a rate"))

    def binomial(self, prob: Any, generator: Generator | None = None) -> Self:
        """How many of so many trials succeed, for each element, each with the chance `prob`, in
        this dtype. A read raises RuntimeCheckError if a count is below 0, NaN, or above 1e18, or a
        chance isn't one.

        >>> Tensor([3.0, 4.0]).binomial(Tensor([0.0, 1.0])).tolist()
        [0.0, 4.0]
        """
        trials, chances = self._meet("binomial", prob)
        given = (trials, LARGEST, "a count"), (chances, 1, "a chance")
        return self._how_often("binomial", BINOMIAL, generator, *given)

    def _how_often(
        self, name: str, draw: HostFunction, generator: Generator | None, *given: Any
    ) -> Self:
        """A draw by numbers from 0 to a largest each, which are called so in an error."""
        nodes = []
        for numbers, most, what in given:
            if not dtypes.is_float(numbers.dtype):
                raise DTypeError(f"{name}: {what} of {numbers.dtype!r}; legal are floats")
            node = numbers.detach().cast(float_kind(numbers.dtype))._node
            ok = (numbers >= 0) & (numbers <= most)
            nodes.append(node.check(ok._node, "value", f"{name}: {what} outside 0 to {most:g}"))
        first: Any = given[0][0]
        if not first.numel():
            return first.detach().contiguous()  # type: ignore[no-any-return]
        place = first.device if isinstance(first.device, str) else first.device[0]
        key = first.random_bits(4, device=place, generator=generator).to(first.device)  # uint32
        (node,) = call(draw, *nodes, key._node)
        made: Self = first._from(node, key).cast(first.dtype)
        made.requires_grad = False
        return made
