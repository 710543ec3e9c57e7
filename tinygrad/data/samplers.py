"""Which samples an epoch has, in which order, for a `DataLoader`."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from, check_types


@runtime_checkable
class Sampler(Protocol):
    """The numbers of an epoch's samples: anything that has a length and begins anew each time it
    is iterated over, such as a list.

    >>> from tinygrad.data import DataLoader
    >>> [x.tolist() for x in DataLoader([5, 6, 7], batch_size=2, sampler=[2, 0])]
    [[7, 5]]
    """

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


def sample_numbers(who: str, given: Any) -> list[int]:
    """The numbers of samples in what can be iterated over. DTypeError for fractions, digits and
    masks, which `int` would take."""
    numbers = given.tolist() if hasattr(given, "tolist") else given
    check_types(who, [numbers], Iterable, "several numbers")
    return [_sample_number(who, number) for number in numbers]


def _sample_number(who: str, number: Any) -> int:
    if not isinstance(number, bool):
        with suppress(TypeError):
            return operator.index(number)
    raise DTypeError(f"{who}: {number!r:.80}; legal are whole numbers of samples")


class WeightedRandomSampler:
    """Samples drawn with a chance that is proportional to their weights, in another order each
    epoch, which is each iteration.

    Args:
        weights: one a sample, none below 0.
        num_samples: how many an epoch has.
        replacement: whether one may come several times in an epoch.
        seed: fixes all epochs.

    Raises:
        ArgumentError: weights that are no chances; more samples than there are, without
            replacement.

    >>> list(WeightedRandomSampler([0.0, 1.0, 0.0], num_samples=3))
    [1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, seed: int = 0
    ) -> None:
        who = "WeightedRandomSampler"
        check_types(who, [num_samples, seed], int, "whole numbers for num_samples and seed")
        check_number_from(who, "num_samples", num_samples, 1)
        check_number_from(who, "seed", seed, 0)
        given = weights.numpy() if isinstance(weights, Tensor) else weights
        self.weights = np.asarray(given, dtype=np.float64)
        known = self.weights.ndim == 1 and self.weights.size > 0 and np.all(self.weights >= 0)
        if not known or not 0 < self.weights.sum() < math.inf:
            raise ArgumentError(
                f"{who}: weights {given!r:.80}; legal are numbers from 0, one a sample, not all 0"
            )
        if not replacement and num_samples > (there := np.count_nonzero(self.weights)):
            raise ArgumentError(
                f"{who}: {num_samples} samples without replacement, of {there} with a weight above "
                f"0; legal are at most {there}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration is; a `DataLoader` says so.

        >>> sampler = WeightedRandomSampler([1.0, 2.0, 3.0], num_samples=8)
        >>> first = list(sampler)
        >>> sampler.set_epoch(0); list(sampler) == first
        True
        """
        self._epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng([self.seed, self._epoch])
        self._epoch += 1
        chances = self.weights / self.weights.sum()
        size, count = len(chances), self.num_samples
        yield from random.choice(size, count, replace=self.replacement, p=chances).tolist()


__all__ = ["Sampler", "WeightedRandomSampler"]
