"""Losses, normalizations, attention and random numbers."""

import math

import numpy as np
import pytest
import tensor_reference
import torch
import torch.nn.functional as F
from often import one_in
from tensor.check import check, close, value

from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.base.settings import Context
from tinygrad.tensor import Tensor

CLASSES = np.array([1, 0, 3, 2])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(reduction, smoothing):
    more = {"reduction": reduction, "label_smoothing": smoothing}
    y = torch.tensor(CLASSES)
    check(
        lambda x: x.cross_entropy(Tensor(CLASSES), **more),
        lambda x: F.cross_entropy(x, y, **more),
        (4, 5),
        low=-5,
        high=5,
    )
    check(
        lambda x: x.sparse_categorical_crossentropy(Tensor(CLASSES), ignore_index=3, **more),
        lambda x: F.cross_entropy(x, y, ignore_index=3, **more),
        (4, 5),
        low=-5,
        high=5,
    )


def test_cross_entropy_of_probabilities_and_images():
    check(lambda x, p: x.cross_entropy(p), F.cross_entropy, (4, 5), (4, 5))
    y = np.random.default_rng(0).integers(0, 3, (2, 4, 4))
    check(
        lambda x: x.cross_entropy(Tensor(y)),
        lambda x: F.cross_entropy(x, torch.tensor(y)),
        (2, 3, 4, 4),
    )


def test_nll_loss():
    weights = np.float32([0.2, 1.0, 2.0, 0.5, 1.0])
    y = torch.tensor(CLASSES)
    for reduction in ("mean", "sum", "none"):
        check(
            lambda x, r=reduction: x.nll_loss(Tensor(CLASSES), Tensor(weights), 2, r),
            lambda x, r=reduction: F.nll_loss(
                x, y, torch.tensor(weights), ignore_index=2, reduction=r
            ),
            (4, 5),
        )


def test_binary_crossentropy():
    y = np.float32([0, 1, 1, 0, 0.5])
    check(
        lambda x: x.binary_crossentropy(Tensor(y)),
        lambda x: F.binary_cross_entropy(x, torch.tensor(y)),
        (5,),
        low=0.1,
        high=0.9,
    )
    check(
        lambda x: x.binary_crossentropy_logits(Tensor(y)),
        lambda x: F.binary_cross_entropy_with_logits(x, torch.tensor(y)),
        (5,),
        low=-100,
        high=100,
    )
    check(
        lambda x: x.binary_crossentropy_logits(Tensor(y), pos_weight=Tensor([3.0])),
        lambda x: F.binary_cross_entropy_with_logits(
            x, torch.tensor(y), pos_weight=torch.tensor([3.0])
        ),
        (5,),
    )


def test_normalizations():
    check(lambda x: x.layernorm(), lambda x: F.layer_norm(x, (6,)), (4, 6))
    check(lambda x: x.layernorm(axis=(1, 2)), lambda x: F.layer_norm(x, (3, 4)), (2, 3, 4))
    check(
        lambda x, w, b, m, v: x.batchnorm(w, b, m, (v + 1e-5).rsqrt()),
        lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach(), w, b),
        (2, 3, 4, 4),
        (3,),
        (3,),
        (3,),
        (3,),
        low=0.5,
        grad=False,
    )


def test_attention():
    theirs = F.scaled_dot_product_attention
    q, k = (2, 3, 5, 4), (2, 3, 7, 4)
    check(lambda q, k, v: q.scaled_dot_product_attention(k, v), theirs, q, k, k)
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        lambda q, k, v: theirs(q, k, v, is_causal=True),
        q,
        q,
        q,
    )
    check(
        lambda q, k, v, m: q.scaled_dot_product_attention(k, v, attn_mask=m),
        lambda q, k, v, m: theirs(q, k, v, attn_mask=m),
        q,
        k,
        k,
        (5, 7),
    )
    check(
        lambda q, k, v: q.scaled_dot_product_attention(k, v, enable_gqa=True),
        lambda q, k, v: theirs(q, k, v, enable_gqa=True),
        (1, 4, 5, 4),
        (1, 2, 5, 4),
        (1, 2, 5, 4),
    )


def attention(heads, kv_heads, queries, keys, size, mask=None, **options):
    """Attention on these sizes agrees with PyTorch's, gradients too."""
    shapes = (2, heads, queries, size), (2, kv_heads, keys, size), (2, kv_heads, keys, size)
    masks = (mask,) if mask is not None else ()
    check(
        lambda q, k, v, *m: q.scaled_dot_product_attention(k, v, *m, **options),
        lambda q, k, v, *m: F.scaled_dot_product_attention(q, k, v, *m, **options),
        *shapes,
        *masks,
        rtol=1e-4,
        atol=2e-6,
    )


@pytest.mark.parametrize(
    ("size", "causal"), one_in(2, [(3, False), (16, False), (40, False), (3, True), (80, True)])
)
def test_attention_at_odd_sizes(size, causal):
    attention(2, 2, 37, 37, size, is_causal=causal)
    attention(4, 2, 19, 53, size, enable_gqa=True)
    attention(6, 2, 37, 37, size, is_causal=causal, enable_gqa=True)


def test_attention_over_blocks_of_rows():
    attention(1, 1, 131, 131, 64, is_causal=True)
    attention(1, 1, 131, 67, 32)
    attention(2, 1, 1, 300, 32, enable_gqa=True)
    attention(6, 2, 131, 131, 32, is_causal=True, enable_gqa=True)


@pytest.mark.parametrize("half", ["tril", "triu"])
def test_weights_of_masked_attention_are_zero_where_it_is_masked(half):
    """Sums end where the mask does, but who wants the weights themselves reads whole rows."""
    ones, theirs = Tensor.ones(128, 128, dtype="bool"), torch.ones(128, 128, dtype=torch.bool)
    check(
        lambda q, k: getattr(ones, half)().where(q @ k, -math.inf).softmax(-1),
        lambda q, k: torch.where(getattr(theirs, half)(), q @ k, -math.inf).softmax(-1),
        (8, 128, 16),
        (8, 16, 128),
        rtol=1e-4,
    )


def capped(q, k, v):
    """Scores of at most 2, as they are written out."""
    return ((q @ k.transpose(-2, -1) / 2).tanh() * 2).softmax(-1) @ v


def by_letters(of):
    """Attention as two einsums."""

    def attend(q, k, v):
        return of("bhqk,bhkd->bhqd", of("bhqd,bhkd->bhqk", q, k).softmax(-1), v)

    return attend


def test_attention_that_is_written_out():
    shape = (1, 2, 160, 16)
    check(capped, capped, shape, shape, shape, rtol=1e-4, atol=2e-6)
    ours, theirs = by_letters(Tensor.einsum), by_letters(torch.einsum)
    check(ours, theirs, shape, shape, shape, rtol=1e-4, atol=2e-6)


def test_attention_to_what_follows_and_to_neighbours():
    """Loops over keys start late, stop early, or both; some rows see nothing at all."""
    shape = (1, 2, 131, 32)
    row, column = np.arange(131)[:, None], np.arange(131)[None]
    masks = {
        "following": (lambda i, j: j >= i, column >= row),
        "window": (lambda i, j: (j > i - 20) & (j <= i), (column > row - 20) & (column <= row)),
        "few": (lambda i, j: j >= i + 60, column >= row + 60),
    }
    for ours, theirs in masks.values():
        check(
            lambda q, k, v, ours=ours: q.scaled_dot_product_attention(
                k, v, ours(Tensor.arange(131).reshape(131, 1), Tensor.arange(131).reshape(1, 131))
            ),
            lambda q, k, v, theirs=theirs: F.scaled_dot_product_attention(
                q, k, v, torch.tensor(theirs)
            ),
            shape,
            shape,
            shape,
            rtol=1e-4,
            atol=5e-6,
        )


def test_attention_on_parts_of_one_tensor():
    def heads(x, attend):
        parts = x.reshape(2, 150, 3, 2, 32).permute(2, 0, 3, 1, 4)
        mixed = attend(parts[0], parts[1], parts[2], is_causal=True)
        return mixed.transpose(1, 2).reshape(2, 150, 64)

    check(
        lambda x: heads(x, lambda q, *kv, **how: q.scaled_dot_product_attention(*kv, **how)),
        lambda x: heads(x, F.scaled_dot_product_attention),
        (2, 150, 192),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("queries", "keys", "kind"),
    [(5, 5, "causal"), (19, 133, "causal"), (130, 61, "causal"), (130, 61, "full")]
    + [(19, 133, "bool"), (61, 130, "float")],
)
def test_gradients_of_many_heads_are_right(queries, keys, kind):
    """One kernel makes all three, of scores in blocks of keys."""
    mask = np.random.default_rng(0).standard_normal((queries, keys)).astype(np.float32)
    masks = {"bool": {"mask": (mask > -1) | (np.arange(keys) == 0)}, "float": {"mask": mask}}
    attention(4, 4, queries, keys, 20, **masks.get(kind, {"is_causal": kind == "causal"}))


def test_rows_of_attention_that_see_nothing_are_zero():
    seen = np.random.default_rng(0).random((21, 33)) > 0.5
    seen[[0, 7]] = False
    attention(2, 2, 21, 33, 16, mask=seen)
    attention(2, 2, 21, 33, 16, mask=np.where(seen, 0, -np.inf).astype(np.float32))


# ---- random numbers ------------------------------------------------------------------------------


def test_the_seed_decides():
    Tensor.manual_seed(3)
    first, second = Tensor.rand(4), Tensor.rand(4)
    later, earlier = value(second), value(first)  # the order of reading changes nothing
    Tensor.manual_seed(3)
    close(value(Tensor.rand(4)), earlier, rtol=0, atol=0)
    close(value(Tensor.rand(4)), later, rtol=0, atol=0)
    assert (earlier != later).all()


def test_bits_are_the_same_everywhere():
    Tensor.manual_seed(42)
    bits, floats, ints = Tensor.random_bits(5), Tensor.rand(5), Tensor.randint(5, low=-3, high=9)
    for tensor in (bits, floats, ints):
        assert value(tensor).tolist() == tensor_reference.evaluate(tensor._node).tolist()
    Tensor.manual_seed(42)
    assert value(Tensor.random_bits(3)).tolist() == GOLDEN


GOLDEN = [3732534457, 646961260, 2234760234]


def test_distributions():
    Tensor.manual_seed(0)
    n = 20_000
    uniform, normal = value(Tensor.rand(n)), value(Tensor.randn(n))
    assert uniform.min() >= 0 and uniform.max() < 1
    for got, wanted, spread in (
        (uniform.mean(), 0.5, 12**-0.5),
        (normal.mean(), 0, 1),
        ((normal**2).mean(), 1, 2**0.5),
        ((normal**4).mean(), 3, 96**0.5),
        (value(Tensor.uniform(n, low=-2, high=4)).mean(), 1, 6 * 12**-0.5),
        (value(Tensor.normal(n, mean=3, std=2)).mean(), 3, 2),
        (value(Tensor.randint(n, low=0, high=7)).mean(), 3, 2),
    ):
        assert abs(got - wanted) < 5 * spread / math.sqrt(n)
    assert set(value(Tensor.randint(500, low=-2, high=3)).tolist()) == {-2, -1, 0, 1, 2}
    assert sorted(value(Tensor.randperm(20)).tolist()) == list(range(20))


def test_initial_values():
    for name in ("kaiming_uniform", "glorot_uniform", "scaled_uniform", "kaiming_normal"):
        assert getattr(Tensor, name)(4, 3, requires_grad=True).requires_grad is True
    assert np.abs(value(Tensor.glorot_uniform(30, 20))).max() <= (6 / 50) ** 0.5
    assert Tensor.rand(3, dtype="half").dtype.name == "half"
    assert Tensor([1.0, 2.0]).half().randn_like().dtype.name == "half"


def test_multinomial():
    Tensor.manual_seed(1)
    drawn = value(Tensor([1.0, 0.0, 3.0]).multinomial(2000, replacement=True))
    counts = np.bincount(drawn, minlength=3) / 2000
    assert counts[1] == 0 and abs(counts[2] - 0.75) < 0.05
    rows = value(Tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]).multinomial(2))
    assert [sorted(row) for row in rows.tolist()] == [[0, 1], [1, 2]]


def test_dropout():
    x = Tensor.ones(10_000)
    assert x.dropout(0.5) is x
    with Tensor.train():
        kept = value(x.dropout(0.25))
    assert set(np.unique(kept)) == {0.0, np.float32(1 / 0.75)}
    assert abs(kept.mean() - 1) < 0.05


def test_training_is_a_setting_and_a_context():
    assert Tensor.training is False
    with Context(TRAINING=1):
        assert Tensor.training is True
        with Tensor.train(False):
            assert Tensor.training is False
    Tensor.training = True
    assert Tensor.training is True
    with Tensor.train(False):
        assert Tensor.training is False
    assert Tensor.training is True
    del Tensor.training
    assert Tensor.training is False


MISUSES = [
    (ShapeError, "cross_entropy", lambda: Tensor.ones(2, 3).cross_entropy(Tensor.ones(2, 4))),
    (ArgumentError, "reduction", lambda: Tensor.ones(2, 3).cross_entropy(Tensor([0, 1]), "max")),
    (ArgumentError, "0 to 1", lambda: Tensor.ones(2).dropout(2)),
    (DTypeError, "randint", lambda: Tensor.rand(2, dtype="int")),
    (ArgumentError, "low below high", lambda: Tensor.randint(2, low=3, high=3)),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


@pytest.mark.parametrize("name", ["sign", "sgn", "round", "floor", "ceil", "trunc"])
def test_steps_have_a_gradient_of_zeros(name):
    x = Tensor([1.5, -2.3, 0.0], requires_grad=True)
    getattr(x, name)().sum().backward()
    assert x.grad.tolist() == [0.0] * 3


def test_no_gradient_passes_whole_numbers():
    for made in (lambda x: x.int(), lambda x: x.count_nonzero()):
        x = Tensor([1.5, -2.3, 0.0], requires_grad=True)
        with pytest.raises(ArgumentError, match="says requires_grad=False"):
            made(x).float().sum().backward()
        (x * made(x).float()).sum().backward()
        assert x.grad.tolist() == made(x).float().expand(3).tolist()
