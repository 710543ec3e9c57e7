"""Hashes against hashlib."""

import hashlib

import numpy as np
import pytest
from tensor.check import value

from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor import Tensor


@pytest.mark.parametrize("size", [0, 3, 135, 136, 300])
def test_keccak(size):
    data = bytes(i % 251 for i in range(size))
    x = Tensor(np.frombuffer(data, np.uint8).reshape(1, -1) if size else np.zeros((1, 0), np.uint8))
    assert bytes(value(x.keccak())[0].tolist()) == hashlib.sha3_256(data).digest()
    if size == 3:
        assert bytes(value(x.keccak("shake_128"))[0].tolist()) == hashlib.shake_128(data).digest(16)
        assert bytes(value(x.keccak("sha3_512"))[0].tolist()) == hashlib.sha3_512(data).digest()


def test_schedule_runs_nothing():
    x = (Tensor([1.0, 2.0]) + 1).sum()
    assert len(x.schedule()) >= 1
    assert x.uop.realized is None
    assert x.realize().schedule() == []


MISUSES = [
    (DTypeError, "uint8", lambda: Tensor([1.0]).keccak()),
    (ArgumentError, "sha3_256", lambda: Tensor(b"a").keccak("md5")),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_ldexp_of_infinite_powers():
    infinite = float("inf")
    found = Tensor([0.0, 2.0, 3.0]).ldexp(Tensor([-infinite, infinite, -infinite]))
    assert found.tolist() == [0.0, infinite, 0.0]
