"""Decompositions and hashes against NumPy and hashlib."""

import hashlib

import numpy as np
import pytest
from tensor.check import close, value

from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.tensor import Tensor


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 3)])
def test_decompositions(shape):
    x = np.random.default_rng(0).random(shape, np.float32)
    q, r = Tensor(x).qr()
    close(value(q @ r), x, atol=1e-5)
    close(value(r), value(r.triu()))
    close(value(q @ q.transpose(-1, -2)), np.broadcast_to(np.eye(shape[-2]), q.shape), atol=1e-5)
    for full in (True, False):
        u, s, v = Tensor(x).svd(full)
        close(value(s), np.linalg.svd(x, compute_uv=False), atol=1e-5)
        n = min(shape[-2:])
        close(value(u[..., :n] * s.unsqueeze(-2) @ v[..., :n, :]), x, atol=1e-5)


def test_decompositions_have_no_gradient_and_say_so():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with pytest.raises(DTypeError, match="qr has none"):
        x.qr()[1].sum().backward()


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
    (ShapeError, "two axes", lambda: Tensor([1.0]).qr()),
    (DTypeError, "uint8", lambda: Tensor([1.0]).keccak()),
    (ArgumentError, "sha3_256", lambda: Tensor(b"a").keccak("md5")),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()
