"""Image data sets as tensors: (train images, train labels, test images, test labels)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tinygrad.data.digits import load_digits, train_test_split
from tinygrad.data.download import FetchError
from tinygrad.data.images import Split, load_cifar10, load_mnist
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
    return _tensors(
        (np.expand_dims(x_train, 1), y_train, np.expand_dims(x_test, 1), y_test), device
    )


def mnist(
    device: str | None = None, fashion: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Handwritten digits, or with `fashion` clothes: 28x28 pixels, 10 classes; downloaded once.

    Returns:
        X_train (60000, 1, 28, 28) uint8, Y_train (60000,) uint8, X_test (10000, 1, 28, 28),
        Y_test (10000,).

    Raises:
        FetchError: a file can't be downloaded; `digits` needs no network.
    """
    with _named("mnist"):
        x_train, y_train, x_test, y_test = load_mnist(fashion)
    split = (np.expand_dims(x_train, 1), y_train, np.expand_dims(x_test, 1), y_test)
    return _tensors(split, device)


def cifar(device: str | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """CIFAR-10: 32x32 pixels in colour, 10 classes of things; downloaded once.

    Returns:
        X_train (50000, 3, 32, 32) uint8, Y_train (50000,) uint8, X_test (10000, 3, 32, 32),
        Y_test (10000,).

    Raises:
        FetchError: the file can't be downloaded; `digits` needs no network.
    """
    with _named("cifar"):
        split = load_cifar10()
    return _tensors(split, device)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Says which set could not be downloaded, and which one needs no network."""
    try:
        yield
    except FetchError as error:
        raise FetchError(f"{name}: {error}; nn.datasets.digits() needs no network") from error


def _tensors(split: Split, device: str | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    made = [Tensor(array, device=device) for array in split]
    return made[0], made[1], made[2], made[3]
