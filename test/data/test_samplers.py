"""Samplers, and data sets that are streams, against PyTorch's loader; and where they resume."""

import numpy as np
import pytest
import torch

from tinygrad import Tensor, data
from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.data import DataLoader, IterableDataset, Subset, WeightedRandomSampler


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


class TorchStream(torch.utils.data.IterableDataset):
    __init__, __iter__ = Stream.__init__, Stream.__iter__


def numbers(batches):
    return [batch.tolist() for batch in batches]


AS_TORCHS = {
    "a sampler": (range(9), {"batch_size": 2, "sampler": [3, 8, 0, 3, 1]}),
    "a sampler, whole batches": (
        range(9),
        {"batch_size": 2, "sampler": [3, 8, 0], "drop_last": True},
    ),
    "a sampler of batches": (range(9), {"batch_sampler": [[3, 1], [2], [0, 0, 8]]}),
    "a stream": (7, {"batch_size": 3}),
    "a stream, whole batches": (7, {"batch_size": 3, "drop_last": True}),
    "a stream of whole batches": (6, {"batch_size": 3}),
    "an empty stream": (0, {"batch_size": 3}),
    "names that change nothing": (range(5), {"pin_memory": False, "persistent_workers": False}),
}


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("what", AS_TORCHS)
def test_batches_are_torchs(what, workers):
    """Two epochs."""
    given, options = AS_TORCHS[what]
    is_stream = isinstance(given, int)
    theirs = torch.utils.data.DataLoader(TorchStream(given) if is_stream else given, **options)
    ours = DataLoader(Stream(given) if is_stream else given, num_workers=workers, **options)
    for _ in range(2):
        assert numbers(ours) == numbers(theirs)
    if not is_stream:
        assert len(ours) == len(theirs)


RESUMED = {
    "a sampler": lambda: DataLoader(range(9), 2, sampler=[3, 8, 0, 3, 1]),
    "weights": lambda: DataLoader(range(9), 2, sampler=WeightedRandomSampler(np.arange(9), 20)),
    "batches": lambda: DataLoader(range(9), batch_sampler=[[3, 1], [2], [0, 0, 8]]),
    "a stream": lambda: DataLoader(Stream(11), 3),
    "a stream with a worker": lambda: DataLoader(Stream(11), 3, num_workers=2),
}


@pytest.mark.parametrize("what", RESUMED)
def test_a_loop_goes_on_where_it_was(what):
    loader = RESUMED[what]()
    first, *_ = numbers(loader), next(iter(loader))
    state = loader.state_dict()
    other = RESUMED[what]()
    other.load_state_dict(state)
    whole = RESUMED[what]()
    assert numbers(whole) == first
    assert numbers(other) == numbers(whole)[1:]
    assert numbers(other) == numbers(whole)


def test_weights_are_chances():
    weights = np.array([1.0, 0.0, 3.0, 6.0])
    sampler = WeightedRandomSampler(weights, 10_000)
    counts = np.bincount(list(sampler), minlength=4)
    np.testing.assert_allclose(counts / 10_000, weights / 10, atol=0.02)
    assert counts[1] == 0
    once = WeightedRandomSampler(Tensor([1.0, 0.0, 3.0]), 2, replacement=False)
    assert sorted(once) == [0, 2]
    sampler.set_epoch(1)
    assert np.any(np.bincount(list(sampler), minlength=4) != counts)
    assert list(sampler) != list(sampler)  # each iteration is the next epoch
    first = list(WeightedRandomSampler(weights, 10_000))
    sampler.set_epoch(0)
    assert list(sampler) == first


MISUSES = {
    "an iterator": (lambda: DataLoader(iter([1])), "an iterator .list_iterator., which is over"),
    "both samplers": (
        lambda: DataLoader([1], sampler=[0], batch_sampler=[[0]]), "sampler with a batch_sampler"
    ),
    "shuffled": (lambda: DataLoader([1], shuffle=True, sampler=[0]), "shuffle with a sampler"),
    "sizes": (lambda: DataLoader([1], 2, batch_sampler=[[0]]), "batch_size and drop_last with a b"),
    "a shuffled stream": (lambda: DataLoader(Stream(3), shuffle=True), "shuffle with a stream"),
    "a stream by number": (lambda: DataLoader(Stream(3), sampler=[0]), "sampler with a stream"),
    "no sampler": (lambda: DataLoader([1], sampler=3), "sampler of type int; legal is what has"),
    "no weights": (lambda: WeightedRandomSampler([0.0], 1), "legal are numbers from 0, one a samp"),
    "too many": (lambda: WeightedRandomSampler([1, 0], 2, False), "of 1 with a weight above 0"),
    "a subset of a stream": (lambda: Subset(Stream(3), [0]), "gives samples by number"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISUSES)
def test_misuse(what):
    misuse, message = MISUSES[what]
    with pytest.raises(ArgumentError, match=message):
        misuse()


NO_NUMBERS = {
    "a subset of fractions": lambda: Subset("abc", [0.7, 1.9]),
    "a subset by a mask": lambda: Subset("abc", [True, False, True]),
    "a subset by a tensor's mask": lambda: Subset("abc", Tensor([True, False, True])),
    "a sampler of fractions": lambda: numbers(DataLoader([5, 6, 7], sampler=[0.5, 1.9])),
    "a sampler of digits": lambda: numbers(DataLoader([5, 6, 7], sampler=["0", "1"])),
    "a mask": lambda: numbers(DataLoader([5, 6, 7], sampler=np.array([True, False, True]))),
    "batches by masks": lambda: numbers(DataLoader([5, 6, 7], batch_sampler=[[True, False]])),
    "batches of digits": lambda: numbers(DataLoader([5, 6, 7], batch_sampler=["01"])),
}


@pytest.mark.parametrize("what", NO_NUMBERS)
def test_what_are_no_numbers_of_samples(what):
    with pytest.raises(DTypeError, match="legal are whole numbers of samples"):
        NO_NUMBERS[what]()


def test_whole_numbers_of_other_libraries():
    for order in (np.array([2, 0]), Tensor([2, 0]), torch.tensor([2, 0]), [Tensor(2), np.int8(0)]):
        assert list(Subset("abc", order)) == ["c", "a"]
        assert numbers(DataLoader([5, 6, 7], sampler=order)) == [[7], [5]]


def test_a_stream_that_ends_before_its_cursor_is_told():
    loader = DataLoader(Stream(10), 4)
    for batch in (2, 3):
        loader.load_state_dict({"epoch": 0, "batch": batch, "seed": 0})
        assert len(numbers(loader)) == 3 - batch
    loader.load_state_dict({"epoch": 0, "batch": 4, "seed": 0})
    with pytest.raises(ArgumentError, match="after batch 4 of a stream of 10 samples"):
        numbers(loader)


def test_other_misuse():
    with pytest.raises(TypeError, match="which has no length"):
        len(DataLoader(Stream(3)))
    with pytest.raises(TypeError, match="no argument 'batchsize'.*legal are dataset, batch_size"):
        DataLoader([1], batchsize=2)
    with pytest.raises(AttributeError, match="no 'TensorDataset'; legal is ArrayDataset"):
        _ = data.TensorDataset
