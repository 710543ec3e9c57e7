"""Data: the handwritten digits that ship with the package, sets that are downloaded once, and
loaders that make batches. Arrays are NumPy's; what a `DataLoader` yields are tensors.
"""

from tinygrad.data.download import FetchError, fetch
from tinygrad.data.loader import ArrayDataset, DataLoader, Dataset, TextLines, collate

__all__ = [
    "ArrayDataset",
    "DataLoader",
    "Dataset",
    "FetchError",
    "TextLines",
    "collate",
    "fetch",
]
