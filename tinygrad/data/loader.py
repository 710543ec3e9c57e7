"""Batches of samples, in an order that a seed determines and at which a run can resume.

A dataset is anything with a length and items. Workers are threads: reading files and decoding
images mostly wait, or release the interpreter's lock, and nothing has to be sent between processes.
"""

from __future__ import annotations

import codecs
import dataclasses
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tinygrad.base.errors import ArgumentError, FileError, ShapeError
from tinygrad.base.later import later
from tinygrad.data.samplers import Sampler, sample_numbers
from tinygrad.tensor import Tensor
from tinygrad.tensor.creation import as_numpy
from tinygrad.tensor.spellings import spelled

futures = later("concurrent.futures")

OTHERS = {
    "prefetch": ("prefetch_factor",),
    "": ("pin_memory", "pin_memory_device", "persistent_workers", "multiprocessing_context")
    + ("timeout",),
}
"""PyTorch's names for arguments; those behind "" change nothing of what a loader yields."""

PIECE = 1 << 20  # so many characters of a file are read at a time
_ORDER = "le" if sys.byteorder == "little" else "be"
MARKED = {
    "utf-8-sig": ("utf-8", {codecs.BOM_UTF8: "utf-8"}),
    "utf-16": (
        f"utf-16-{_ORDER}",
        {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"},
    ),
    "utf-32": (
        f"utf-32-{_ORDER}",
        {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"},
    ),
}
"""Encodings whose files may begin with a mark: what they are without one, and by their marks."""


@runtime_checkable
class Dataset(Protocol):
    """Samples by number: anything that has a length and returns a sample for each number below it.

    >>> [x.tolist() for x in DataLoader([1.0, 2.0, 3.0], batch_size=2)]
    [[1.0, 2.0], [3.0]]
    """

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


@runtime_checkable
class IterableDataset(Protocol):
    """Samples in a stream: anything that begins anew each time it is iterated over.

    >>> class Squares(IterableDataset):
    ...     def __iter__(self): return (i * i for i in range(3))
    >>> [x.tolist() for x in DataLoader(Squares(), batch_size=2)]
    [[0, 1], [4]]
    """

    def __iter__(self) -> Iterator[Any]: ...


def is_stream(dataset: Any) -> bool:
    """Whether its samples can only be had one after the other, again and again."""
    has_numbers = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    begins_anew = hasattr(dataset, "__iter__") and not hasattr(dataset, "__next__")
    return begins_anew and not has_numbers


def check_dataset(who: str, dataset: Any) -> None:
    """ArgumentError for what has no length or gives no samples by number."""
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise ArgumentError(
            f"{who}: a dataset of type {type(dataset).__name__}; legal is what has a length and "
            "gives samples by number, as a list does"
        )


class ArrayDataset:
    """Arrays of one length as a dataset of tuples, with one row of each array.

    >>> len(ArrayDataset(np.zeros((5, 2)), np.zeros(5)))
    5
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(a.numpy() if isinstance(a, Tensor) else as_numpy(a) for a in arrays)
        shapes = [array.shape for array in self.arrays]
        if () in shapes or len({shape[0] for shape in shapes}) != 1:
            raise ArgumentError(f"ArrayDataset: arrays of shapes {shapes}; legal is one length")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, number: int) -> tuple[Any, ...]:
        return tuple(array[number] for array in self.arrays)


class TextLines:
    """The lines of a text file, which end as those of `open` do, as a dataset; memory holds only
    the positions at which they begin. A file that has changed since is an error.

    Args:
        path: the file.
        encoding: of the text; of "utf-16" and "utf-32" the file's first bytes tell the order.

    Raises:
        ArgumentError: there is no such encoding.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "lines.txt")
    >>> with open(path, "w") as file:
    ...     print("one", "two", sep=chr(10), file=file)
    >>> lines = TextLines(path)
    >>> len(lines), lines[1]
    (2, 'two')
    """

    def __init__(self, path: str | Path, encoding: str = "utf-8") -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileError(f"TextLines: {str(path)!r} is no file; legal is one of text")
        self._version = _version(self.path)
        self.encoding, begin = _encoding_of(self.path, encoding)
        self._starts = [begin, *_line_ends(self.path, self.encoding, begin)]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> str:
        if not -len(self) <= number < len(self):
            raise IndexError(f"line {number} of {len(self)}")
        number %= len(self)
        with self.path.open("rb") as file:
            if _version(file.fileno()) != self._version:
                raise FileError(
                    f"TextLines: {str(self.path)!r} has changed since its lines were counted; "
                    "legal is a TextLines of its own"
                )
            file.seek(self._starts[number])
            raw = file.read(self._starts[number + 1] - self._starts[number])
        return raw.decode(self.encoding).removesuffix("\n").removesuffix("\r")


def _version(file: Path | int) -> tuple[int, int]:
    """What is another when a file has changed: its size and when it was written."""
    facts = os.stat(file)
    return facts.st_size, facts.st_mtime_ns


def _encoding_of(path: Path, encoding: str) -> tuple[str, int]:
    """The encoding with the order of its bytes in it, and where the text begins."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise ArgumentError(f"TextLines: {error}; legal are Python's encodings") from error
    unmarked, marks = MARKED.get(name, (name, {}))
    with path.open("rb") as file:
        head = file.read(4)
    found = [(own, len(mark)) for mark, own in marks.items() if head.startswith(mark)]
    return found[0] if found else (unmarked, 0)


def _line_ends(path: Path, encoding: str, begin: int) -> Iterator[int]:
    """Where lines end in a file: behind a newline, behind a carriage return without one, and at the
    end of a last line without either."""
    newline, back = "\n".encode(encoding), "\r".encode(encoding)
    unit = len(newline)  # of which a character is a multiple
    size, last, at, held = path.stat().st_size, begin, begin, 0
    with path.open("rb") as file:
        file.seek(begin)
        while piece := file.read(unit * PIECE):
            whole = len(piece) - len(piece) % unit
            characters = np.frombuffer(piece[:whole], f"V{unit}")
            ends, backs = characters == np.void(newline), characters == np.void(back)
            if held and not ends[:1].any():
                yield (last := held)
            held = at + whole if backs[-1:].any() else 0  # what is behind it is not known yet
            ends[:-1] |= backs[:-1] & ~ends[1:]
            for number in np.flatnonzero(ends).tolist():
                yield (last := at + (number + 1) * unit)
            at += len(piece)
    if held:
        yield (last := held)
    if last < size:
        yield size


def collate(samples: Sequence[Any]) -> Any:
    """Samples as one batch: numbers and arrays, also other libraries', become tensors with a new
    first axis; tuples (also named ones), lists, dicts and dataclasses keep their form and contain
    batches; everything else, such as strings, becomes a list.

    Raises:
        ArgumentError: samples of several kinds, lengths or keys.
        ShapeError: arrays of several shapes.

    >>> collate([(1, "a"), (2, "b")])[0].tolist()
    [1, 2]
    """
    if not samples:
        raise ArgumentError("collate: no samples; legal are one or more")
    first = samples[0]
    if isinstance(first, Tensor):
        return Tensor.stack(*samples)
    if isinstance(first, (tuple, list)):
        _check_one("lengths", [len(sample) for sample in samples])
        parts = [collate(part) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if isinstance(first, dict):
        keys = [list(sample) for sample in samples]
        _check_one("keys", [keys[0] if set(each) == set(keys[0]) else each for each in keys])
        return {name: collate([sample[name] for sample in samples]) for name in first}
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        _check_one("kinds", [type(sample).__name__ for sample in samples])
        names = [field.name for field in dataclasses.fields(first) if field.init]
        made = {name: collate([getattr(sample, name) for sample in samples]) for name in names}
        return type(first)(**made)
    if isinstance(first, (bool, int, float, complex)):
        return Tensor(list(samples))
    if isinstance(first, (np.ndarray, np.generic)):
        return _stacked(samples)
    if hasattr(first, "__dlpack__"):
        return Tensor.stack(*[Tensor(sample) for sample in samples])
    return list(samples)


def _stacked(samples: Sequence[Any]) -> Any:
    """Arrays as a tensor; a list, if their elements are no numbers."""
    arrays = [as_numpy(sample) for sample in samples]
    if any(array.dtype.kind not in "biufc" for array in arrays):
        return list(samples)
    _check_one("shapes", [array.shape for array in arrays], ShapeError)
    return Tensor(np.stack(arrays))


def _check_one(
    what: str, found: list[Any], error: type[ArgumentError | ShapeError] = ArgumentError
) -> None:
    if other := [each for each in found if each != found[0]]:
        raise error(
            f"collate: {what} {found[0]} and {other[0]} in a batch; legal are samples of one form, "
            "or a collate_fn of your own"
        )


class DataLoader:
    """Batches of a dataset. Each `for` loop is one epoch, with its own order if it shuffles.

    Args:
        dataset: samples by number; or a stream, of which nothing knows the length.
        batch_size: samples a batch.
        shuffle: whether each epoch has another order.
        seed: fixes all orders.
        drop_last: leave out a last batch that is not full.
        num_workers: threads that read samples (one, of a stream); 0: the loop itself does.
        prefetch: batches that workers are ahead.
        collate_fn: what makes a batch of a list of samples; `collate` if None.
        sampler: the numbers of an epoch's samples, in order, instead of all of them: anything that
            has a length and begins anew each time it is iterated over. One with `set_epoch` is
            told the epoch first.
        batch_sampler: the same with lists of numbers, one a batch, instead of `batch_size`.

    `state_dict` says where the loop is, of several the one that moved last; a loader that loads it
    goes on with the next batch. A sampler must give the same numbers again then, and a stream the
    same samples: those before are read and dropped.

    Raises:
        ArgumentError: options that exclude each other; an iterator, which is over after one epoch.

    >>> loader = DataLoader(range(5), batch_size=2)
    >>> [batch.tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        dataset: Dataset | IterableDataset,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        num_workers: int = 0,
        prefetch: int = 2,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        sampler: Sampler | None = None,
        batch_sampler: Sampler | None = None,
    ) -> None:
        for name, number, least in (
            ("batch_size", batch_size, 1),
            ("num_workers", num_workers, 0),
            ("prefetch", prefetch, 1),
            ("seed", seed, 0),
            ("shuffle", shuffle, 0),
            ("drop_last", drop_last, 0),
        ):
            if not isinstance(number, (int, np.integer)) or number < least:
                raise ArgumentError(
                    f"DataLoader: {name}={number!r}; legal are whole numbers from {least}"
                )
        self._is_stream = is_stream(dataset)
        if hasattr(dataset, "__next__"):
            raise ArgumentError(
                f"DataLoader: an iterator ({type(dataset).__name__}), which is over after one "
                "epoch; legal is an object whose __iter__ begins anew, or samples by number"
            )
        if not self._is_stream:
            check_dataset("DataLoader", dataset)
        self._check_samplers(sampler, batch_sampler, bool(shuffle), batch_size != 1 or drop_last)
        if not (collate_fn is None or callable(collate_fn)):
            raise ArgumentError(f"DataLoader: collate_fn={collate_fn!r}; legal is a function")
        self.dataset: Any = dataset
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.batch_size = int(batch_size)
        self.shuffle = shuffle
        self.seed = int(seed)
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.prefetch = prefetch
        self.collate_fn = collate if collate_fn is None else collate_fn
        self._epoch = 0
        self._batch = 0  # of this epoch, the next one
        self._fresh = 0  # the epoch of a loop that begins
        self._resumed = False

    @property
    def epoch(self) -> int:
        """The epoch in which the loop is.

        >>> DataLoader([1, 2, 3]).epoch
        0
        """
        return self._epoch

    @property
    def batch(self) -> int:
        """The number of its next batch.

        >>> DataLoader([1, 2, 3]).batch
        0
        """
        return self._batch

    def _check_samplers(self, one: Any, batches: Any, shuffle: bool, has_size: bool) -> None:
        """ArgumentError for what isn't one, or what excludes something else."""
        for name, given in (("sampler", one), ("batch_sampler", batches)):
            if given is None:
                continue
            if not (hasattr(given, "__len__") and hasattr(given, "__iter__")):
                raise ArgumentError(
                    f"DataLoader: {name} of type {type(given).__name__}; legal is what has a "
                    "length and can be iterated over again and again, as a list"
                )
        whole = "a batch_sampler" if batches is not None else "a sampler" if one is not None else ""
        whole = "a stream" if self._is_stream else whole
        with_it = {
            "shuffle": shuffle and bool(whole),
            "sampler": one is not None and whole != "a sampler",
            "batch_sampler": batches is not None and self._is_stream,
            "batch_size and drop_last": has_size and batches is not None,
        }
        if wrong := [name for name, is_there in with_it.items() if is_there]:
            raise ArgumentError(f"DataLoader: {wrong[0]} with {whole}; legal is one of them")

    def __len__(self) -> int:
        """Batches of an epoch; TypeError for a stream."""
        if self._is_stream:
            raise TypeError("DataLoader: of a stream of samples, which has no length")
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        samples = len(self.dataset if self.sampler is None else self.sampler)
        full, rest = divmod(samples, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def _laid_out(self) -> dict[str, Any]:
        """What an epoch consists of, which whoever goes on in its middle must know."""
        given = self.batch_sampler if self.batch_sampler is not None else self.sampler
        order = "shuffled" if self.shuffle else "in order" if given is None else "by a sampler"
        samples = None if self._is_stream else len(self.dataset if given is None else given)
        return {"batch_size": self.batch_size, "samples": samples, "order": order}

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self._fresh, 0
        if self._resumed:
            epoch, start = self._epoch, self._batch
            self._check_cursor(start, {})
        self._resumed, self._fresh = False, epoch + 1
        for number, made in enumerate(self._loaded(self._reads(epoch, start)), start + 1):
            self._epoch, self._batch = epoch, number
            yield made
        self._epoch, self._batch = self._fresh, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the loop is: after which batch of which epoch, of which batches.

        >>> loader = DataLoader([1, 2, 3, 4], batch_size=2)
        >>> _ = next(iter(loader))
        >>> loader.state_dict()["batch"]
        1
        """
        place = {"epoch": self._epoch, "batch": self._batch, "seed": self.seed}
        return place | self._laid_out()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `for` resumes where `state` was taken.

        >>> loader = DataLoader([1, 2, 3, 4], batch_size=2)
        >>> loader.load_state_dict({"epoch": 0, "batch": 1, "seed": 0})
        >>> len(list(loader))
        1

        Raises:
            ArgumentError: in the middle of an epoch of other batches, or beyond the data.
        """
        names = ("epoch", "batch", "seed")
        if not isinstance(state, dict) or not all(isinstance(state.get(n), int) for n in names):
            raise ArgumentError(f"DataLoader: a state {state!r}; legal is what state_dict() gave")
        epoch, batch, seed = (state[name] for name in names)
        if min(epoch, batch, seed) < 0:
            raise ArgumentError(f"DataLoader: {state}; legal are numbers from 0")
        self._check_cursor(batch, state)
        self._epoch, self._batch, self.seed = epoch, batch, seed
        self._resumed = True

    def _check_cursor(self, batch: int, state: dict[str, Any]) -> None:
        own = self._laid_out()
        there = {name: state.get(name, value) for name, value in own.items()}
        most = batch if self._is_stream else len(self)
        if batch > most or (batch and own != there):
            text = "{samples} samples by {batch_size}, {order}"
            its, this = text.format(**there), text.format(**own)
            raise ArgumentError(
                f"DataLoader: to go on after batch {batch} of {its}, with {this}, {most} batches; "
                "legal are the same, or batch 0"
            )

    def _batches(self, epoch: int) -> list[list[int]]:
        """The numbers of the samples of each batch of an epoch."""
        given: Any = self.batch_sampler if self.batch_sampler is not None else self.sampler
        if hasattr(given, "set_epoch"):
            given.set_epoch(epoch)
        if self.batch_sampler is not None:
            who = "DataLoader: batch_sampler"
            return [sample_numbers(who, numbers) for numbers in self.batch_sampler]
        order = np.arange(len(self.dataset))
        if self.sampler is not None:
            order = np.array(sample_numbers("DataLoader: sampler", self.sampler), dtype=np.int64)
        elif self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        size = self.batch_size
        whole = len(order) - (len(order) % size if self.drop_last else 0)
        return [order[at : at + size].tolist() for at in range(0, whole, size)]

    def _reads(self, epoch: int, start: int) -> Iterator[Callable[[], list[Any]]]:
        """For each batch from the number `start` on what reads its samples, in order."""
        if not self._is_stream:
            yield from (partial(self._samples, each) for each in self._batches(epoch)[start:])
            return
        stream, size = iter(self.dataset), self.batch_size
        dropped = sum(1 for _ in islice(stream, start * size))
        if start and dropped <= (start - 1) * size:
            raise ArgumentError(
                f"DataLoader: to go on after batch {start} of a stream of {dropped} samples by "
                f"{size}; legal is the stream that it was"
            )
        yield from repeat(lambda: list(islice(stream, size)))

    def _loaded(self, reads: Iterator[Callable[[], list[Any]]]) -> Iterator[Any]:
        least = self.batch_size if self.drop_last else 1
        for samples in self._read_ahead(reads) if self.num_workers else (read() for read in reads):
            if self._is_stream and len(samples) < least:
                return
            yield self.collate_fn(samples)

    def _read_ahead(self, reads: Iterator[Callable[[], list[Any]]]) -> Iterator[list[Any]]:
        workers = 1 if self._is_stream else self.num_workers
        with futures.ThreadPoolExecutor(workers) as pool:
            ahead = deque(pool.submit(read) for read in islice(reads, self.prefetch + workers - 1))
            try:
                while ahead:
                    samples = ahead.popleft().result()
                    ahead.extend(pool.submit(read) for read in islice(reads, 1))
                    yield samples
            finally:
                for future in ahead:
                    future.cancel()

    def _samples(self, numbers: list[int]) -> list[Any]:
        return [self.dataset[number] for number in numbers]


DataLoader.__init__ = spelled(  # type: ignore[method-assign]
    DataLoader.__init__, OTHERS, "DataLoader"
)

__all__ = ["ArrayDataset", "DataLoader", "Dataset", "IterableDataset", "TextLines", "collate"]
