"""What an array's bytes are."""

import mmap
from typing import Any

import numpy as np


def is_mapped(array: Any) -> bool:
    """Whether they are a file's, mapped into memory, and not a copy."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, memoryview) and isinstance(array.obj, mmap.mmap)
