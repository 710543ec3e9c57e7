"""The handwritten digits that the demo learns: 1,797 real images of 8x8 pixels.

The file beside this one holds the test part of the UCI set "Optical Recognition of Handwritten
Digits" (E. Alpaydin and C. Kaynak, 1998, CC BY 4.0; see `DIGITS_LICENSE.md`), unchanged.
"""

import math
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def load_digits() -> tuple[Bytes, Bytes]:
    """Read the images and their labels.

    Returns:
        images: uint8 of shape (1797, 8, 8); each pixel counts ink, from 0 (none) to 16.
        labels: uint8 of shape (1797,), the digit from 0 to 9.

    >>> images, labels = load_digits()
    >>> images.shape, int(images.max()), labels[:10].tolist()
    ((1797, 8, 8), 16, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    with files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["images"], arrays["labels"]


def train_test_split(
    images: Bytes, labels: Bytes, seed: int = 0, held_out: float = 0.2
) -> tuple[Bytes, Bytes, Bytes, Bytes]:
    """Shuffle the samples and hold a part of them out for the test.

    Args:
        images: n samples along the first axis.
        labels: the n labels that go with them.
        seed: the same seed gives the same split on every machine.
        held_out: the share of the samples to test on, rounded up to a whole sample.

    Returns:
        train images, train labels, test images, test labels.

    Raises:
        ValueError: when the two lengths differ, or a part would be empty.

    >>> train_images, train_labels, test_images, test_labels = train_test_split(*load_digits())
    >>> len(train_images), len(train_labels), len(test_images), len(test_labels)
    (1437, 1437, 360, 360)
    """
    n = len(images)
    if len(labels) != n:
        raise ValueError(f"train_test_split: {n} images but {len(labels)} labels; give one each")
    n_test = math.ceil(n * held_out)
    if not 0 < n_test < n:
        raise ValueError(
            f"train_test_split: held_out={held_out} of {n} samples leaves a part empty; "
            "give a share between 0 and 1"
        )
    order = np.random.default_rng(seed).permutation(n)
    test, train = order[:n_test], order[n_test:]
    return images[train], labels[train], images[test], labels[test]
