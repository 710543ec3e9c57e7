"""Data: the handwritten digits that ship with the package, data sets that are downloaded once, and
loaders that make batches. Data sets are NumPy arrays; a `DataLoader` yields tensors.
"""

from tinygrad.data.download import FetchError, fetch
from tinygrad.data.loader import ArrayDataset, DataLoader, Dataset, TextLines, collate
from tinygrad.data.parts import ConcatDataset, Subset, random_split
from tinygrad.data.printed import print_as_described

__all__ = [
    "ArrayDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "FetchError",
    "Subset",
    "TextLines",
    "collate",
    "fetch",
    "random_split",
]

print_as_described(globals()[name] for name in __all__)
