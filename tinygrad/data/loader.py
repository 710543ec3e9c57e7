"""Batches of samples, in an order that a seed fixes and a run can go on from.

A dataset is anything with a length and items. Workers are threads: reading files and decoding
images wait, or leave the interpreter to others, and nothing has to be sent to another process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tinygrad.base.errors import ArgumentError
from tinygrad.base.later import later
from tinygrad.tensor import Tensor

futures = later("concurrent.futures")


class Dataset(Protocol):
    """Samples by number: whatever has a length and gives a sample for each number below it.

    >>> [x.tolist() for x in DataLoader([1.0, 2.0, 3.0], batch_size=2)]
    [[1.0, 2.0], [3.0]]
    """

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


class ArrayDataset:
    """Arrays of one length as a dataset of tuples: a row of each.

    >>> len(ArrayDataset(np.zeros((5, 2)), np.zeros(5)))
    5
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(a.numpy() if isinstance(a, Tensor) else np.asarray(a) for a in arrays)
        shapes = [array.shape for array in self.arrays]
        if () in shapes or len({shape[0] for shape in shapes}) != 1:
            raise ArgumentError(f"ArrayDataset: arrays of shapes {shapes}; legal is one length")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        return tuple(array[number] for array in self.arrays)


class TextLines:
    """The lines of a text file as a dataset; only where they begin is kept in memory.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "lines.txt")
    >>> with open(path, "w") as file:
    ...     print("one", "two", sep=chr(10), file=file)
    >>> lines = TextLines(path)
    >>> len(lines), lines[1]
    (2, 'two')
    """

    def __init__(self, path: str | Path, encoding: str = "utf-8") -> None:
        self.path, self.encoding = Path(path), encoding
        self.starts = [0]
        with self.path.open("rb") as file:
            for line in file:
                self.starts.append(self.starts[-1] + len(line))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> str:
        if not -len(self) <= number < len(self):
            raise IndexError(f"line {number} of {len(self)}")
        number %= len(self)
        with self.path.open("rb") as file:
            file.seek(self.starts[number])
            raw = file.read(self.starts[number + 1] - self.starts[number])
        return raw.decode(self.encoding).rstrip("\r\n")


def collate(samples: Sequence[Any]) -> Any:
    """Samples as one batch: numbers and arrays become tensors with a new first axis; tuples, lists
    and dicts stay what they are, of batches; all else is a list.

    >>> collate([(1, "a"), (2, "b")])[0].tolist()
    [1, 2]
    """
    first = samples[0]
    if isinstance(first, Tensor):
        return Tensor.stack(*samples)
    if isinstance(first, (tuple, list)):
        return type(first)(collate(parts) for parts in zip(*samples, strict=True))
    if isinstance(first, dict):
        return {name: collate([sample[name] for sample in samples]) for name in first}
    if isinstance(first, (bool, int, float)):
        return Tensor(list(samples))
    if isinstance(first, (np.ndarray, np.generic)):
        return Tensor(np.stack(samples))
    return list(samples)


class DataLoader:
    """Batches of a dataset. Each `for` is one epoch, with an order of its own if it shuffles.

    Args:
        dataset: samples by number.
        batch_size: samples a batch.
        shuffle: whether each epoch has another order.
        seed: fixes all orders.
        drop_last: leave out a last batch that is not full.
        num_workers: threads that read samples; 0: the loop itself does.
        prefetch: batches that workers are ahead.
        collate_fn: what makes a batch of a list of samples; `collate` if None.

    `state_dict` says where the loop is; a loader that loads it goes on with the next batch.

    >>> loader = DataLoader(range(5), batch_size=2)
    >>> [batch.tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        num_workers: int = 0,
        prefetch: int = 2,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        for name, number, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 0),
            ("prefetch", prefetch, 1),
            ("seed", seed, 0),
            ("shuffle", shuffle, 0),
        ):
            if not isinstance(number, (int, np.integer)) or number < least:
                raise ArgumentError(
                    f"DataLoader: {name}={number!r}; legal are whole numbers from {least}"
                )
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise ArgumentError(
                f"DataLoader: a dataset of type {type(dataset).__name__}; legal is what has a "
                "length and gives samples by number, as a list does"
            )
        if not (collate_fn is None or callable(collate_fn)):
            raise ArgumentError(f"DataLoader: collate_fn={collate_fn!r}; legal is a function")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.prefetch = prefetch
        self.collate_fn = collate if collate_fn is None else collate_fn
        self.epoch = 0
        self.batch = 0  # of this epoch, the next one
        self._resumed = False

    def __len__(self) -> int:
        """Batches of an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Any]:
        if self.batch and not self._resumed:  # the last loop was left early
            self.epoch, self.batch = self.epoch + 1, 0
        self._resumed = False
        batches = self._batches()[self.batch :]
        for made in self._loaded(batches):
            self.batch += 1
            yield made
        self.epoch, self.batch = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Where the loop is: after which batch of which epoch.

        >>> loader = DataLoader([1, 2, 3, 4], batch_size=2)
        >>> _ = next(iter(loader))
        >>> loader.state_dict()["batch"]
        1
        """
        return {"epoch": self.epoch, "batch": self.batch, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next `for` goes on where `state` was taken.

        >>> loader = DataLoader([1, 2, 3, 4], batch_size=2)
        >>> loader.load_state_dict({"epoch": 0, "batch": 1, "seed": 0})
        >>> len(list(loader))
        1
        """
        self.epoch, self.batch, self.seed = (int(state[k]) for k in ("epoch", "batch", "seed"))
        self._resumed = True

    def _batches(self) -> list[list[int]]:
        """The numbers of the samples of each batch of this epoch."""
        order = np.arange(len(self.dataset))
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
        size = self.batch_size
        return [order[i * size : (i + 1) * size].tolist() for i in range(len(self))]

    def _loaded(self, batches: list[list[int]]) -> Iterator[Any]:
        if not self.num_workers:
            yield from (self.collate_fn(self._samples(numbers)) for numbers in batches)
            return
        waiting = iter(batches)
        with futures.ThreadPoolExecutor(self.num_workers) as pool:
            ahead: deque[Any] = deque()
            first = self.prefetch + self.num_workers - 1
            ahead.extend(pool.submit(self._samples, n) for n in islice(waiting, first))
            try:
                while ahead:
                    samples = ahead.popleft().result()
                    ahead.extend(pool.submit(self._samples, n) for n in islice(waiting, 1))
                    yield self.collate_fn(samples)
            finally:
                for future in ahead:
                    future.cancel()

    def _samples(self, numbers: list[int]) -> list[Any]:
        return [self.dataset[number] for number in numbers]


__all__ = ["ArrayDataset", "DataLoader", "Dataset", "TextLines", "collate"]
