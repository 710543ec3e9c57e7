"""The bundled digits are whole, and a split loses and repeats no sample."""

import doctest
import hashlib

import numpy as np
import pytest

from tinygrad.data import digits
from tinygrad.data.digits import load_digits, train_test_split


def test_content_is_the_published_one():
    images, labels = load_digits()
    assert images.dtype == labels.dtype == np.uint8
    assert images.shape == (1797, 8, 8)
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    assert digest == "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"


def test_each_class_has_its_share():
    _, labels = load_digits()
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_split_keeps_every_sample_once_with_its_label():
    images = np.arange(10, dtype=np.uint8)
    train, train_labels, test, test_labels = train_test_split(images, images + 100, held_out=0.3)
    assert len(test) == 3
    assert sorted([*train, *test]) == images.tolist()
    assert (train_labels == train + 100).all()
    assert (test_labels == test + 100).all()


def test_split_depends_on_the_seed_only():
    images, labels = load_digits()
    first, again, other = (train_test_split(images, labels, seed)[3] for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()


def test_split_refuses_lengths_that_differ():
    images, labels = load_digits()
    with pytest.raises(ValueError, match="1797 images but 1796 labels"):
        train_test_split(images, labels[1:])


@pytest.mark.parametrize("held_out", [0.0, 1.0, -0.5])
def test_split_refuses_an_empty_part(held_out):
    with pytest.raises(ValueError, match="leaves a part empty"):
        train_test_split(*load_digits(), held_out=held_out)


def test_examples_in_docstrings():
    assert doctest.testmod(digits).failed == 0
