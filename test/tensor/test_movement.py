"""Shapes, order, boxes, repetition against PyTorch, and what each refuses."""

import math
from array import array
from collections import deque

import einops
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tensor.check import check, close, value

from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.tensor import Tensor

SAME = {  # the same expression in both, of x with shape (2, 3, 4)
    "reshape": lambda x: x.reshape(6, 4),
    "reshape -1": lambda x: x.reshape(-1, 2),
    "view": lambda x: x.view(4, 6),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, 2),
    "movedim": lambda x: x.movedim(0, -1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "expand": lambda x: x.unsqueeze(1).expand(2, 5, 3, 4),
    "expand -1": lambda x: x.expand(7, -1, -1, -1),
    "repeat": lambda x: x.repeat(2, 1, 3),
    "repeat more": lambda x: x.repeat(2, 1, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "roll": lambda x: x.roll(1, 2),
    "roll flat": lambda x: x.roll(5),
    "roll two": lambda x: x.roll((1, -1), (0, 1)),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diagonal above": lambda x: x.diagonal(1, 1, 2),
    "diagonal below": lambda x: x.diagonal(-1, 1, 2),
    "split": lambda x: x.split(2, 1)[1],
    "split sizes": lambda x: x.split([1, 3], 2)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "triu": lambda x: x.triu(1),
    "tril": lambda x: x.tril(-1),
}


@pytest.mark.parametrize("name", SAME)
def test_same(name):
    check(SAME[name], None, (2, 3, 4))


def test_flip_transposed_and_diag():
    check(lambda x: x.flip(0, 2), lambda x: x.flip((0, 2)), (2, 3, 4))
    check(lambda x: x.T, lambda x: x.transpose(0, 1), (2, 3, 4))  # tinygrad's meaning
    check(lambda x: x.diag(), None, (4,))
    ours, theirs = lambda x: x.repeat_interleave([2, 0, 1], 0), lambda x: x[[0, 0, 2]]
    check(ours, theirs, (3, 2))
    for k in (-2, 0, 1):
        check(lambda x, k=k: x.diag(k), None, (3,), grad=False)
        check(lambda x, k=k: x.diag(k), None, (3, 4), grad=False)


def test_cat_and_stack():
    check(lambda a, b: a.cat(b, dim=1), lambda a, b: torch.cat([a, b], 1), (2, 3), (2, 5))
    check(lambda a, b: Tensor.cat(a, b), lambda a, b: torch.cat([a, b]), (2, 3), (0, 3))
    check(lambda a, b: Tensor.stack(a, b, dim=-1), lambda a, b: torch.stack([a, b], -1), (3,), (3,))
    assert np.signbit(value(Tensor([-0.0]).cat(Tensor([1.0])))).tolist() == [True, False]


@pytest.mark.parametrize("count", [16, 17, 40])
def test_many_parts(count):
    """More than one kernel puts together, in equal groups and others, along both axes."""
    shapes = [(2, 1 + i % 3) for i in range(count)]
    check(lambda *all: Tensor.cat(*all, dim=1), lambda *all: torch.cat(all, 1), *shapes)
    check(lambda *all: Tensor.stack(*all), lambda *all: torch.stack(all), *[(3,)] * count)


PADS = {
    "flat": ((1, 2, 3, 0), "constant", 0),
    "value": ((1, 2), "constant", 1.5),
    "negative": ((-1, 2), "constant", 3.0),
    "reflect": ((1, 2, 0, 1), "reflect", 0),
    "replicate": ((1, 2, 3, 1), "replicate", 0),
    "circular": ((1, 2, 2, 1), "circular", 0),
    "reflect one": ((3, 2, 0, 0), "reflect", 0),
    "replicate less": ((-1, 3, 1, -2), "replicate", 0),
    "replicate past the end": ((-5, 6, 2, -4), "replicate", 0),
    "reflect past the end": ((-4, 3, 0, 0), "reflect", 0),
    "circular less": ((-2, 3, 0, 0), "circular", 0),
    "circular, both": ((2, -2, -1, 3), "circular", 0),
}


@pytest.mark.parametrize("name", PADS)
def test_pad(name):
    pads, mode, fill = PADS[name]
    theirs = {} if mode != "constant" else {"value": fill}
    check(
        lambda x: x.pad(pads, mode=mode, value=fill),
        lambda x: F.pad(x, pads, mode=mode, **theirs),
        (1, 2, 4, 5),
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: a * float("inf"),
        lambda a, b: a * b,
        lambda a, b: a * b[:1],
        lambda a, b: a * (a + 200).exp(),
        lambda a, b: a * a.log(),
        lambda a, b: a * b.sum(),
        lambda a, b: a * (a - 1).sqrt(),
        lambda a, b: a * ((a + 3e38) * 3e38),
        lambda a, b: a * (a + 70000.0).half(),
    ],
)
def test_what_is_padded_is_zero_there_whatever_its_factors(make):
    a, b = np.float32([1, 2]), np.float32([np.inf, 3])
    theirs = F.pad(make(torch.tensor(a), torch.tensor(b)), (1, 2))
    close(value(make(Tensor(a), Tensor(b)).pad((1, 2))), theirs.numpy())
    whole = [Tensor(x).contiguous().realize() for x in (a, b)]
    close(value(make(*whole).pad((1, 2))), theirs.numpy())


@pytest.mark.parametrize(
    "make",
    [
        lambda a, b: -a,
        lambda a, b: a * -3,
        lambda a, b: a * (b - 9),
        lambda a, b: (a - b * a).maximum(-a),
        lambda a, b: (b > 1).where(-a, b),
    ],
)
def test_what_is_padded_is_no_negative_zero(make):
    a, b = (Tensor(x).contiguous().realize() for x in ([1.0, 2.0], [0.5, 3.0]))
    signs = np.signbit(make(a, b).pad((1, 2)).numpy())
    assert [signs[0], *signs[3:]] == [False] * 3


def test_pad_by_axis():
    x = np.ones((2, 3), np.float32)
    close(value(Tensor(x).pad(((1, 0), None))), np.pad(x, ((1, 0), (0, 0))))


def test_shrink():
    check(lambda x: x.shrink(((0, 2), (1, 3))), lambda x: x[0:2, 1:3], (3, 4))


def test_what_is_cut_off_is_not_gone_around():
    with pytest.raises(ShapeError, match="circular by .5, 0. of an axis of size 3"):
        Tensor.arange(8).pad((5, -5), mode="circular")


def test_meshgrid():
    assert [t.shape for t in Tensor(1).meshgrid(Tensor([1, 2]))] == [(1, 2), (1, 2)]
    for indexing in ("ij", "xy"):
        ours = Tensor([1, 2, 3]).meshgrid(Tensor([4, 5]), indexing=indexing)
        theirs = torch.meshgrid(torch.tensor([1, 2, 3]), torch.tensor([4, 5]), indexing=indexing)
        for a, b in zip(ours, theirs, strict=True):
            assert value(a).tolist() == b.tolist()


REARRANGE = [  # formula, shape, sizes
    ("b h w -> w b h", (2, 3, 4), {}),
    ("b h w -> b (h w)", (2, 3, 4), {}),
    ("b (h p) w -> h (b w) p", (2, 3, 4), {"p": 3}),
    ("... w -> w ...", (2, 3, 4), {}),
    ("b ... -> b (...)", (2, 3, 4), {}),
    ("b h w -> b 1 h w", (2, 3, 4), {}),
    ("b () h -> b h ()", (2, 1, 4), {}),
    ("b (h1 h2) (w1 w2) c -> (b h1 w1) h2 w2 c", (2, 4, 6, 3), {"h2": 2, "w2": 3}),
    ("b ... c -> (b ...) c", (2, 4, 6, 3), {}),
    ("(h 1) w -> h w", (2, 3), {}),
    (" -> 1", (), {}),
    ("... -> (...)", (2, 3), {}),
    ("(h p) -> h p", (0,), {"p": 2}),
    ("(a b) (c d) -> (d a) (b c)", (6, 10), {"a": 2, "d": 5}),
    ("a b ... -> (b a) ...", (2, 3), {}),
]
NOT_REARRANGE = [
    ("a a -> a", (2, 2), {}),
    ("a b -> a", (2, 3), {}),
    ("a b -> a b c", (2, 3), {}),
    ("(a b) -> a b", (6,), {}),
    ("(a b) -> a b", (7,), {"a": 2}),
    ("a b -> b a", (2, 3), {"a": 5}),
    ("a b -> b a", (2, 3), {"z": 5}),
    ("a (b -> a b", (2, 3), {}),
    ("((a) b) -> a b", (6,), {"a": 2}),
    ("... a ... -> a", (2, 3), {}),
    ("a b -> ... a b", (2, 3), {}),
    ("(... a) b -> a b", (2, 3), {}),
]


@pytest.mark.parametrize(("formula", "shape", "sizes"), REARRANGE)
def test_rearrange(formula, shape, sizes):
    x = np.arange(math.prod(shape)).reshape(shape)
    close(value(Tensor(x).rearrange(formula, **sizes)), einops.rearrange(x, formula, **sizes))


@pytest.mark.parametrize(("formula", "shape", "sizes"), NOT_REARRANGE)
def test_what_einops_refuses_is_refused(formula, shape, sizes):
    with pytest.raises(einops.EinopsError):
        einops.rearrange(np.zeros(shape), formula, **sizes)
    with pytest.raises((ShapeError, ArgumentError), match="rearrange"):
        Tensor.zeros(shape).rearrange(formula, **sizes)


def test_creation():
    assert value(Tensor.eye(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert value(Tensor.arange(2, 10, 3)).tolist() == [2, 5, 8]
    assert value(Tensor.arange(5, 0, -2)).tolist() == [5, 3, 1]
    assert value(Tensor.arange(3, 3)).tolist() == []
    close(value(Tensor.arange(0, 1, 0.25)), np.arange(0, 1, 0.25, np.float32))
    close(value(Tensor.linspace(-1, 2, 7)), np.linspace(-1, 2, 7, dtype=np.float32))
    assert value(Tensor.full((2,), 3)).tolist() == [3, 3]
    assert value(Tensor([[1, 2], [3, 4]])).tolist() == [[1, 2], [3, 4]]
    assert value(Tensor(2.5)).shape == ()
    assert value(Tensor([])).shape == (0,)
    assert Tensor(np.float64([1])).dtype.name == "double"
    assert value(Tensor([1.0, 1e300]))[1] == np.inf
    assert Tensor([2**40]).dtype.name == "long"
    assert value(Tensor(b"ab")).tolist() == [97, 98]
    assert value(Tensor([1.5], dtype="bfloat16")).astype("f").tolist() == [1.5]
    assert Tensor.full((2,), 2**40).tolist() == [2**40] * 2


LISTS = [  # what NumPy, or PyTorch, makes an array of
    (range(3), [0, 1, 2]),
    ([range(2), (2, 3)], [[0, 1], [2, 3]]),
    (deque([1, 2]), [1, 2]),
    (array("d", [1.5]), [1.5]),
    ([np.float32(1), 2], [1.0, 2.0]),
    ([Tensor(1.5), 2], [1.5, 2.0]),
    ([[Tensor(1), np.int32(2)], [3, 4]], [[1, 2], [3, 4]]),
    ([[torch.arange(2), np.arange(2)]], [[[0, 1], [0, 1]]]),
    (np.array([300]).astype("uint8"), [44]),
]


@pytest.mark.parametrize("data, values", LISTS)
def test_lists_of_all_kinds(data, values):
    assert Tensor(data).tolist() == values


def test_numbers_beside_arrays_take_their_dtype():
    assert Tensor([Tensor(1.5), 2]).dtype.name == "float"
    assert Tensor([np.float64(1.5), 2]).dtype.name == "double"
    assert Tensor(array("d", [1.5])).dtype.name == "double"


MISUSES = [
    (ShapeError, "6 elements", lambda: Tensor.ones(2, 3).reshape(5)),
    (ShapeError, "one -1", lambda: Tensor.ones(2, 3).reshape(-1, -1)),
    (ShapeError, "size 1", lambda: Tensor.ones(2, 3).expand(2, 4)),
    (ArgumentError, "once", lambda: Tensor.ones(2, 3).permute(0, 0)),
    (ArgumentError, "-2 to 1", lambda: Tensor.ones(2, 3).transpose(0, 2)),
    (ShapeError, "shrink", lambda: Tensor.ones(2).shrink(((0, 3),))),
    (ShapeError, "ragged", lambda: Tensor([[1, 2], [3]])),
    (ShapeError, "ragged", lambda: Tensor([[1, 2], 3])),
    (ShapeError, "cat", lambda: Tensor.ones(2, 3).cat(Tensor.ones(2, 4))),
    (ShapeError, "stack", lambda: Tensor.ones(2).stack(Tensor.ones(3))),
    (ShapeError, "split", lambda: Tensor.ones(4).split([1, 2])),
    (ShapeError, "-1", lambda: Tensor.ones(-1)),
    (ArgumentError, "step 0", lambda: Tensor.arange(0, 3, 0)),
    (ArgumentError, "mode", lambda: Tensor.ones(3).pad((1, 1), mode="wrap")),
    (ShapeError, "rearrange", lambda: Tensor.ones(2, 3).rearrange("a b c -> a")),
    (TypeError, "can't hold", lambda: Tensor({1, 2})),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        function()


def test_triangles_beyond_all_diagonals():
    x = Tensor([[1, 2], [3, 4]])
    for far in (1 << 31, (1 << 63) - 1):
        assert x.triu(far).tolist() == x.tril(-far).tolist() == [[0, 0], [0, 0]]
        assert x.triu(-far).tolist() == x.tril(far).tolist() == x.tolist()


LISTS = {  # the tensors as one list, and nothing behind it
    "cat": lambda at, x: at.cat([x, x]),
    "cat of a tuple": lambda at, x: at.cat((x, x)),
    "cat along": lambda at, x: at.cat([x, x], 1),
    "cat along NumPy's number": lambda at, x: at.cat([x, x], dim=np.int64(1)),
    "stack": lambda at, x: at.stack([x, x]),
    "stack along": lambda at, x: at.stack([x, x], dim=-1),
    "meshgrid": lambda at, x: at.meshgrid([x[0], x[1]], indexing="xy")[0],
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_tensors(name):
    for ready in (lambda x: x, lambda x: x * 2 / 2, lambda x: x.contiguous()):
        x = torch.arange(6.0).reshape(2, 3)
        ours = LISTS[name](Tensor, ready(Tensor.arange(6.0).reshape(2, 3)))
        close(value(ours), LISTS[name](torch, x).numpy())


def test_the_end_of_a_range_by_name():
    assert Tensor.arange(end=3).tolist() == Tensor.arange(stop=3).tolist() == [0, 1, 2]
    with pytest.raises(DTypeError, match="arange: None"):
        Tensor.arange()


def test_nothing_joins_anything():
    check(lambda x: Tensor([]).cat(x), lambda x: torch.cat([torch.tensor([]), x]), (2, 3))
    check(lambda x: x.cat(Tensor([]), dim=1), lambda x: torch.cat([x, torch.tensor([])], 1), (2, 3))
    check(lambda x: Tensor([]).cat(x), lambda x: torch.cat([torch.tensor([]), x]), [[1]],
        dtype="int32", grad=False)  # fmt: skip
    with pytest.raises(ShapeError):
        Tensor.zeros(0, 2).cat(Tensor.ones(2, 3))
