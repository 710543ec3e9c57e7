"""Datasets made of other datasets: some samples of one, or all samples of several."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.data.loader import Dataset, check_dataset
from tinygrad.data.samplers import sample_numbers
from tinygrad.tensor import Tensor
from tinygrad.tensor.arguments import check_number_from, check_types


class Subset:
    """Some samples of a dataset, given by their numbers.

    >>> list(Subset("abc", [2, 0]))
    ['c', 'a']
    """

    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        check_dataset("Subset", dataset)
        self.dataset = dataset
        self.indices = sample_numbers("Subset", indices)
        size = len(dataset)
        if wrong := [number for number in self.indices if not -size <= number < size]:
            raise ArgumentError(f"Subset: sample {wrong[0]} of {size}; legal are 0 to {size - 1}")

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, number: int) -> Any:
        return self.dataset[self.indices[number]]


class ConcatDataset:
    """The samples of several datasets, one after the other.

    >>> list(ConcatDataset(["ab", "c"]))
    ['a', 'b', 'c']
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        check_types("ConcatDataset", [datasets], Iterable, "several datasets")
        self.datasets = list(datasets)
        for each in self.datasets:
            check_dataset("ConcatDataset", each)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: no datasets; legal are one or more")
        self.ends = list(itertools.accumulate(map(len, self.datasets)))

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, number: int) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        number %= len(self)
        part = bisect_right(self.ends, number)
        return self.datasets[part][number - (self.ends[part - 1] if part else 0)]


def random_split(dataset: Dataset, lengths: Sequence[float], seed: int = 0) -> list[Subset]:
    """A dataset's samples in disjoint parts, in an order that the seed determines.

    Args:
        dataset: the samples.
        lengths: how many each part has, all together; or which share, together 1: what rounding
            leaves over goes to the first parts, one each.
        seed: fixes the order.

    Raises:
        ArgumentError: the lengths are not all samples.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25])]
    [8, 2]
    """
    check_dataset("random_split", dataset)
    check_types("random_split", [seed], int, "whole numbers for the seed")
    check_number_from("random_split", "seed", seed, 0)
    size, given = len(dataset), lengths.tolist() if isinstance(lengths, Tensor) else lengths
    check_types("random_split", [given], Iterable, "several numbers")
    lengths = list(given)
    check_types("random_split", lengths, (int, float, np.integer, np.floating), "numbers")
    counts = [int(n) if math.isfinite(n) else -1 for n in lengths]
    if min(lengths, default=-1) >= 0 and abs(sum(lengths) - 1) < 1e-6:
        counts = [int(size * share) for share in lengths]
        for number in range(size - sum(counts)):
            counts[number % len(counts)] += 1
    elif counts != list(lengths) or sum(counts) != size or min(counts, default=-1) < 0:
        raise ArgumentError(
            f"random_split: {list(lengths)} of {size} samples; legal are numbers that add up to "
            f"{size}, or shares that add up to 1"
        )
    order = np.random.default_rng(seed).permutation(size).tolist()
    ends = list(itertools.accumulate(counts))
    return [Subset(dataset, order[end - n : end]) for n, end in zip(counts, ends, strict=True)]


__all__ = ["ConcatDataset", "Subset", "random_split"]
