"""Images to learn from, as tensors: (train images, train labels, test images, test labels)."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from tinygrad.base.errors import TinygradError
from tinygrad.data.digits import load_digits, train_test_split
from tinygrad.tensor import Tensor


def digits(device: str | None = None, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The handwritten digits that ship with the package; a fifth is held out for the test.

    Args:
        device: where to put them.
        seed: which fifth.

    Returns:
        X_train (1437, 1, 8, 8) uint8 from 0 to 16, Y_train (1437,) uint8, X_test (360, 1, 8, 8),
        Y_test (360,).

    >>> [t.shape for t in digits()]
    [(1437, 1, 8, 8), (1437,), (360, 1, 8, 8), (360,)]
    """
    x_train, y_train, x_test, y_test = train_test_split(*load_digits(), seed=seed)
    images = [Tensor(np.expand_dims(x, 1), device=device) for x in (x_train, x_test)]
    labels = [Tensor(y, device=device) for y in (y_train, y_test)]
    return images[0], labels[0], images[1], labels[1]


def mnist(device: str | None = None, fashion: bool = False) -> NoReturn:
    """Not there yet: raises TinygradError. `digits` works without a network."""
    _not_yet("mnist")


def cifar(device: str | None = None) -> NoReturn:
    """Not there yet: raises TinygradError. `digits` works without a network."""
    _not_yet("cifar")


def _not_yet(name: str) -> NoReturn:
    raise TinygradError(
        f"{name}: downloading it is not there yet; use nn.datasets.digits(), which ships with the "
        "package, or load the file and pass its arrays to Tensor"
    )
