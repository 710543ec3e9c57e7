"""Data: the handwritten digits that ship with the package, data sets that are downloaded once, and
loaders that make batches. Data sets are NumPy arrays; a `DataLoader` yields tensors.
"""

from typing import TYPE_CHECKING

from tinygrad.base.helpers import no_such_name
from tinygrad.data.download import FetchError, fetch
from tinygrad.data.loader import (
    ArrayDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    TextLines,
    collate,
)
from tinygrad.data.parts import ConcatDataset, Subset, random_split
from tinygrad.data.printed import print_as_described
from tinygrad.data.samplers import Sampler, WeightedRandomSampler

__all__ = [
    "ArrayDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "FetchError",
    "IterableDataset",
    "Sampler",
    "Subset",
    "TextLines",
    "WeightedRandomSampler",
    "collate",
    "fetch",
    "random_split",
]

print_as_described(globals()[name] for name in __all__)


INSTEAD = {
    "BatchSampler": "DataLoader(batch_sampler=..) of any list of lists of numbers",
    "ChainDataset": "a class whose __iter__ goes through all of them",
    "ImageFolder": "data.images.image_folder(path), which lists paths and classes",
    "RandomSampler": "DataLoader(shuffle=True)",
    "SequentialSampler": "DataLoader(shuffle=False)",
    "StackDataset": "ArrayDataset, or a class of your own",
    "SubsetRandomSampler": "DataLoader(Subset(dataset, indices), shuffle=True)",
    "TensorDataset": "ArrayDataset",
    "default_collate": "collate",
}
"""What PyTorch's programs look for: what does the same here."""


if not TYPE_CHECKING:  # which knows what there is
    __getattr__ = no_such_name("data", INSTEAD)
