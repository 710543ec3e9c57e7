"""Values on several devices mean what they mean on one: each operation at each way to lie, with its
gradients; and which copies that takes."""

from collections import Counter

import numpy as np
import pytest

from tinygrad import Tensor, Variable, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.settings import Context
from tinygrad.engine.making import plan_of
from tinygrad.engine.structure import structure_of
from tinygrad.schedule.shard_rules import RULES
from tinygrad.uop.op import ROW, Ops
from tinygrad.uop.placement import Cut
from tinygrad.uop.verify import STAGES

D = ("PYTHON", "PYTHON:1", "PYTHON:2")
rng = np.random.default_rng(0)
X, Y = (rng.standard_normal((6, 5, 4)).astype(np.float32) for _ in range(2))


def whole(like: Tensor, size: int) -> Tensor:
    """Whole numbers below `size` in the shape of `like`."""
    return (like.detach().abs() * 2).cast(dtypes.int32).clamp(0, size - 1)


def image(x: Tensor) -> Tensor:
    return x.reshape(6, 1, 5, 4)


def taps(y: Tensor, *shape: int) -> Tensor:
    return y.reshape(-1)[:18].reshape(*shape)


def at(x: Tensor, *index: int) -> Tensor:
    return Tensor(list(index), device=x.device)


OPERATIONS = {
    "reshape, axes merged": lambda x, y: x.reshape(30, 4) * 2,
    "reshape, an axis split": lambda x, y: x.reshape(3, 2, 5, 4) + 1,
    "reshape to a line": lambda x, y: x.reshape(-1) * 2,
    "permute": lambda x, y: x.permute(2, 0, 1) + 1,
    "expand": lambda x, y: x.unsqueeze(1).expand(6, 3, 5, 4) + 1,
    "a part of all": lambda x, y: x[1:6, 1:5] * 2,
    "a part of some": lambda x, y: x[2:4, :, 1:2] + 1,
    "one row": lambda x, y: x[3] * x[-1],
    "every second": lambda x, y: x[::2],
    "pad": lambda x, y: x.pad(((1, 2), (0, 1), (2, 0))) + 1,
    "flip": lambda x, y: x.flip((0, 1)) + y,
    "cat": lambda x, y: x.cat(y, dim=0).sum(0) + x.cat(y, dim=1)[0, 5:],
    "two cuts": lambda x, y: x[:4, :4] + y[:4, :4].transpose(0, 1),
    "sums": lambda x, y: x.sum(0) + y.sum(1)[:5] * x.mean(),
    "max": lambda x, y: x.max(0) * y.max(1)[:5],
    "prod": lambda x, y: x.prod(0),
    "variance": lambda x, y: x.var(0),
    "argmax": lambda x, y: x.argmax(0) + y.argmax(2)[0].reshape(5, 1),
    "softmax": lambda x, y: x.softmax(0) + y.softmax(1) + x.softmax(2),
    "cumsum": lambda x, y: x.cumsum(0) + x.cumsum(1),
    "batched product": lambda x, y: x @ y.transpose(1, 2),
    "product over the cut": lambda x, y: x.reshape(6, 20).T @ y.reshape(6, 20),
    "product to the cut": lambda x, y: x.reshape(6, 20) @ y.reshape(20, 6),
    "sort": lambda x, y: x.sort(0)[0] + x.sort(1)[0],
    "topk": lambda x, y: x.topk(3, 0)[0] * y.topk(3, 1)[0][:3, :1],
    "rows by index": lambda x, y: x[at(x, 0, 2, 5, 1)] * y[whole(x, 6)[:4, 0, 0]],
    "columns by index": lambda x, y: x[:, at(x, 0, 2, 4)],
    "elements by index": lambda x, y: x[at(x, 0, 2, 5), at(x, 0, 2, 4)],
    "gather": lambda x, y: x.gather(0, whole(y, 6)),
    "scatter": lambda x, y: x.scatter(0, (whole(y, 1) + 1)[:2], y[:2]),
    "scatter sum": lambda x, y: x.scatter_reduce(0, whole(y, 6), y, "sum"),
    "scatter sum aside": lambda x, y: x.scatter_reduce(1, whole(y, 5), y, "sum"),
    "scatter product": lambda x, y: x.scatter_reduce(0, whole(y, 6), y, "prod"),
    "scatter max": lambda x, y: x.scatter_reduce(1, whole(y, 5), y, "amax"),
    "where": lambda x, y: (x > 0).where(x, y),
    "convolution": lambda x, y: image(x).conv2d(taps(y, 2, 1, 3, 3), padding=1),
    "strides": lambda x, y: image(x).conv2d(taps(y, 2, 1, 3, 3), stride=2),
    "transposed": lambda x, y: image(x).conv_transpose2d(taps(y, 1, 2, 3, 3), stride=2),
    "pooling": lambda x, y: image(x).max_pool2d(2) + image(y).avg_pool2d(2),
    "attention": lambda x, y: x.scaled_dot_product_attention(y, y),
    "cross entropy": lambda x, y: x.reshape(30, 4).sparse_categorical_crossentropy(
        whole(y, 4)[..., 0].reshape(30)
    ),
    "half": lambda x, y: (x.half() @ y.half().transpose(1, 2)).sum().float(),
    "by the host": lambda x, y: (x[0, :4, :4] + Tensor.eye(4, device=x.device) * 9).inverse(),
}
# the axes along which both are cut, and the sizes of the parts if not even: some have nothing
EVEN, SHORT = (None,) * 3, ((4, 0, 2), (0, 5, 0), (1, 3, 0))
WAYS = [(0, 1, EVEN), (1, 1, EVEN), (2, None, EVEN), (None, 0, EVEN), (0, 1, SHORT), (2, 0, SHORT)]


def results(operation, place):
    """The value and both gradients."""
    x, y = (place(Tensor(v, device="PYTHON"), n).realize() for n, v in enumerate((X, Y)))
    x.requires_grad_()
    y.requires_grad_()
    out = operation(x, y)
    found = [out.numpy()]
    if dtypes.is_float(out.dtype):
        weight = np.random.default_rng(1).standard_normal(out.shape).astype(np.float32)
        (out * Tensor(weight, device=x.device)).sum().backward()
        found += [t.grad.numpy() for t in (x, y) if t.grad is not None]
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_means_the_same_on_several_devices(name):
    wanted = results(OPERATIONS[name], lambda tensor, n: tensor)
    for way in WAYS:

        def place(tensor, n, way=way):
            return tensor.shard(D, way[n], splits=None if way[n] is None else way[2][way[n]])

        found = results(OPERATIONS[name], place)
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=str(way))


def test_every_operation_of_a_tensor_has_a_rule():
    none = {Ops.SINK, Ops.UNIQUE, Ops.DEVICE, Ops.KERNEL, Ops.DEFINE_VAR, Ops.BIND}
    assert {op for op in STAGES["tensor"] if op in ROW} - none == set(RULES)


# ---- where results lie ---------------------------------------------------------------------------


def axis(tensor: Tensor) -> int | None:
    return tensor.uop.axis


@pytest.fixture
def x():
    return Tensor(X, device="PYTHON").shard(D, 0).realize()


@pytest.fixture
def y():
    return Tensor(Y, device="PYTHON").shard(D, 1).realize()


LIES = [
    (0, lambda x, y: x + 1),
    (0, lambda x, y: x.sum(1)),
    (1, lambda x, y: x.permute(1, 0, 2)),
    (0, lambda x, y: x.reshape(30, 4)),
    (None, lambda x, y: x.reshape(2, 15, 4)),
    (None, lambda x, y: x.sum(0)),
    (0, lambda x, y: x[1:]),
    (0, lambda x, y: x[:1]),
    (2, lambda x, y: y.unsqueeze(0)),
    (0, lambda x, y: x @ Tensor.ones(4, 7, device=D)),
    (1, lambda x, y: Tensor.ones(2, 4, device=D) @ x.reshape(30, 4).T),
    (0, lambda x, y: x.zeros_like()),
    (1, lambda x, y: y.rand_like()),
    (0, lambda x, y: y.shard_like(x)),
    (0, lambda x, y: x.contiguous()),
]


@pytest.mark.parametrize("number", range(len(LIES)))
def test_a_result_is_cut_where_its_operands_are(number, x, y):
    wanted, operation = LIES[number]
    found = operation(x, y)
    assert axis(found) == wanted and axis(found.realize()) == wanted


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 10])
@pytest.mark.parametrize("where", [0, 1])
def test_uneven_parts_are_right(rows, where):
    values = np.arange(rows * 5, dtype=np.float32).reshape(rows, 5)
    x = Tensor(values, device="PYTHON").shard(D, where)
    np.testing.assert_equal((x + 1).numpy(), values + 1)
    np.testing.assert_equal(x.sum(0).numpy(), values.sum(0))
    assert max(p.nbytes for p in x.realize().uop.base.storage.parts) <= 4 * 5 * -(-rows // 3) * 2


def written(x: Tensor, key: object, value: object) -> Tensor:
    x[key] = value
    return x


def flipped(x: Tensor) -> Tensor:
    x.flip(0)[::2] = 1
    return x


WRITES = {
    "a row": lambda x: written(x, 1, x[5]),
    "rows": lambda x: written(x, slice(2, 5), 3),
    "a column": lambda x: written(x, (slice(None), 1), x[:, 0]),
    "by index": lambda x: written(x, at(x, 6, 0), 1),
    "by mask": lambda x: written(x, x > 5, -1),
    "through a view": lambda x: flipped(x),
    "all": lambda x: x.assign(x * 2 - 1),
    "twice": lambda x: written(x.assign(x.flip(0) + 0), 0, 9).repeat((3, 1)),
}
NOTHING = [(0, (7, 0, 0)), (0, (0, 3, 4)), (0, (3, 0, 4)), (0, (0, 0, 7)), (1, (0, 1, 3))]


@pytest.mark.parametrize(("where", "splits"), NOTHING)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_right_where_a_device_has_nothing(name, where, splits):
    values = np.arange(28, dtype=np.float32).reshape(7, 4)
    wanted = WRITES[name](Tensor(values, device="PYTHON").realize()).numpy()
    x = Tensor(values, device="PYTHON").shard(D, where, splits=splits).realize()
    np.testing.assert_equal(WRITES[name](x).numpy(), wanted)


def test_a_write_to_one_part_copies_nothing():
    x = Tensor(X, device="PYTHON").shard(D, 0).realize()
    assert copies(written(x, 1, 3)) == 0


def test_a_value_that_is_asked_for_twice_is_right_where_a_device_has_nothing():
    x = Tensor(X, device="PYTHON").shard(D, 0, splits=(0, 2, 4)).realize() + 1
    Tensor.realize(x, same := x.expand(6, 5, 4))
    np.testing.assert_equal([x.numpy(), same.numpy()], [X + 1, X + 1])


def test_tensors_are_made_on_several_devices():
    for made in (Tensor.zeros, Tensor.ones, Tensor.empty, Tensor.rand, Tensor.eye):
        assert made(3, 3, device=D).realize().device == D
    assert Tensor.arange(4, device=D).tolist() == Tensor([0, 1, 2, 3], device=D).tolist()
    assert Tensor.zeros(0, 4, device=D).sum().item() == 0
    assert Tensor.ones(3, device=("PYTHON:1",)).device == "PYTHON:1"  # one is no several


def test_parts_of_given_sizes():
    x = Tensor(X, device="PYTHON").shard(D, 0, splits=(1, 4, 1)).realize()
    assert [part.nbytes for part in x.uop.base.storage.parts] == [80, 320, 80]
    np.testing.assert_equal(x.numpy(), X)


def test_a_cut_is_a_fact_of_the_order_of_elements():
    assert Cut(1, (0, 4, 12)).on((6, 2)) == (0, (0, 2, 6))
    assert Cut(1, (0, 4, 12)).on((2, 6)) is None
    assert Cut(3, (0, 1, 4)).on((3, 4)) == (1, (0, 1, 4))


# ---- what it takes -------------------------------------------------------------------------------


def copies(*tensors: Tensor) -> int:
    return Counter(step.op for step in tensors[0].schedule(*tensors[1:]))[Ops.COPY]


def test_columns_of_a_product_take_no_copy():
    x = Tensor.ones(2, 4, device=D).contiguous().realize()
    w = Tensor.ones(4, 6, device="PYTHON").shard(D, 1).realize()
    assert copies(x @ w) == 0 and axis(x @ w) == 1


def test_rows_of_a_product_are_summed_once_over_the_devices():
    x = Tensor.ones(2, 6, device=D).contiguous().realize()
    w = Tensor.ones(6, 4, device="PYTHON").shard(D, 0).realize()
    assert copies(x @ w) == 4 and axis(x @ w) is None  # two up, two down


def test_a_sum_that_is_wanted_in_parts_is_not_made_whole(x):
    total = x.sum(0)  # (5, 4)
    whole, parts = copies(total), copies(total.shard(D, 0))
    assert whole == 4 and parts == 6
    moved = [s for s in total.shard(D, 0).schedule() if s.op is Ops.COPY]
    assert len(moved) == 6  # each of 3 parts goes by the 2 others
    np.testing.assert_allclose(total.shard(D, 0).numpy(), X.sum(0), rtol=1e-5)


TAKES = [
    (2, 2 * 20, lambda x: x.cumsum(0)),  # where a part ended
    (2, 2 * 20, lambda x: x.cummax(0)[0]),
    (4, 4 * 20, lambda x: x.argmax(0)),  # two up, two down
    (0, 0, lambda x: x.cumsum(1)),
    (0, 0, lambda x: x[2:3] * 2),
]


@pytest.mark.parametrize("number", range(len(TAKES)))
def test_what_is_taken_along_the_cut_copies_a_row(number, x):
    steps, elements, operation = TAKES[number]
    found = [s.arg[0].src[0].size for s in operation(x).schedule() if s.op is Ops.COPY]
    assert (len(found), sum(found)) == (steps, elements)


SORTS = {
    "sort": (lambda x: x.sort(0)[0][:2], lambda a: np.sort(a, 0)[:2]),
    "the last": (lambda x: x.topk(2, 0)[0], lambda a: np.sort(a, 0)[::-1][:2]),
    "places": (lambda x: x.argsort(0)[:2], lambda a: np.argsort(a, 0, kind="stable")[:2]),
}


@pytest.mark.parametrize("what", SORTS)
@pytest.mark.parametrize("cut", [None, 1])
@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8])
def test_rows_of_symbolic_size_are_sorted(what, cut, kind):
    values = (rng.standard_normal((9, 6)) * 50).astype(kind)
    x = Tensor(values).shard(("CPU:1", "CPU:2"), cut).realize()
    ours, theirs = SORTS[what]
    for size in (4, 9):
        n = Variable("n", 2, 9).bind(size)
        np.testing.assert_array_equal(ours(x[:n]).numpy(), theirs(values[:size]))


def test_a_large_sum_goes_around_a_ring():
    values = np.random.default_rng(2).standard_normal((3, 40)).astype(np.float32)
    x = Tensor(values, device="PYTHON").shard(D, 0).realize()
    with Context(RING_BYTES=64):
        total = x.sum(0)
        assert copies(total) == 12  # 3 chunks go to 2 others, twice
        np.testing.assert_allclose(total.numpy(), values.sum(0), rtol=1e-5)
        np.testing.assert_allclose(x.max(0).numpy(), values.max(0))


RINGS = [(0, D, 4), (1, D, 12), (2, D, 12), (0, D[:2], 2), (1, D[:2], 2), (2, D[:2], 4)]


@pytest.mark.parametrize(("ring", "names", "expected"), RINGS)
def test_a_setting_says_which_sums_go_around_a_ring(ring, names, expected):
    x = Tensor(rng.standard_normal((6, 40)).astype(np.float32), device="PYTHON").shard(names, 0)
    with Context(RING=ring, RING_BYTES=64):
        total = x.realize().sum(0)
        assert copies(total) == expected
        np.testing.assert_allclose(total.numpy(), x.numpy().sum(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("names", "copies_of_one"), [(D, 4), (D[:2], 2)])
def test_many_small_sums_share_their_copies(names, copies_of_one):
    """Those that need none of each other, of one dtype; two devices exchange what they have."""
    values = [rng.standard_normal((6, n)).astype(np.float32) for n in (5, 1, 40, 7)]
    xs = [Tensor(v, device="PYTHON").shard(names, 0).realize() for v in values]
    sums = [x.sum(0) for x in xs]
    assert copies(*sums) == copies_of_one
    wholes = [x.cast(dtypes.int32).sum(0) for x in xs]
    assert copies(*sums, *wholes, xs[0].max(0)) == 3 * copies_of_one
    apart = [float(((x - x.sum(0)).sum(0) * 2).sum().item()) for x in xs]
    joined = [(x - total).sum(0) * 2 for x, total in zip(xs, sums, strict=True)]
    assert copies(*joined) == 2 * copies_of_one  # each needs one of the others
    Tensor.realize(*sums, *joined)
    for value, total, below, alone in zip(values, sums, joined, apart, strict=True):
        np.testing.assert_allclose(total.numpy(), value.sum(0), rtol=1e-5, atol=1e-6)
        assert float(below.sum().item()) == pytest.approx(alone, rel=1e-5)


def test_large_sums_are_on_their_way_alone():
    xs = [Tensor.full((2, 5000), n, device="PYTHON").shard(D[:2], 0).contiguous() for n in (1, 2)]
    assert copies(*(x.realize().sum(0) for x in xs)) == 4


def test_all_devices_get_the_same_bits():
    values = np.random.default_rng(3).standard_normal((9, 50)).astype(np.float32)
    for size in (1 << 18, 16):
        with Context(RING_BYTES=size):
            total = Tensor(values, device="PYTHON").shard(D, 0).sum(0).realize()
            parts = [bytes(part.read()) for part in total.uop.base.storage.parts]
            assert parts[0] == parts[1] == parts[2]


def test_products_after_a_zero_are_zero_on_the_next_device():
    x = np.full((6, 3), 1e30, np.float32)
    x[1, 0] = x[4, 1] = 0
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.cumprod(x, 0)
    found = Tensor(x).shard(D, 0).cumprod(0).to("PYTHON").numpy()
    assert np.array_equal(found, wanted, equal_nan=True)


# ---- misuse --------------------------------------------------------------------------------------

MISUSES = [
    ("each once", lambda x: x.shard(("CPU", "CPU"))),
    ("a tuple of names", lambda x: x.shard("CPU")),
    ("axis 3 of a tensor", lambda x: x.shard(D, 3)),
    ("parts (1, 2)", lambda x: x.shard(D, 0, splits=(1, 2))),
    ("runs nothing, so its part of a value would be zeros", lambda x: x.shard(("CPU", "NULL"))),
    ("parts (7, -1, 0)", lambda x: x.shard(D, 0, splits=(7, -1, 0))),
    ("of no axis", lambda x: x.shard(D, splits=(1, 2, 3))),
    ("shape ()", lambda x: x.sum().shard(D, 0)),
    ("add: operands are on ('PYTHON', 'PYTHON:1', 'PYTHON:2') and PYTHON", lambda x: cut(x) + x),
    ("matmul: operands", lambda x: cut(x) @ x.transpose(1, 2)),
    ("('PYTHON', 'PYTHON:1')", lambda x: cut(x) * x.shard(D[:2], 0)),
    ("cat: operands", lambda x: x.cat(cut(x))),
    ("where: operands", lambda x: (x > 0).where(cut(x), 1)),
    ("index: operands", lambda x: cut(x)[Tensor([0], device="PYTHON")]),
    ("gather: operands", lambda x: x.gather(0, whole(cut(x), 6))),
    ("scatter: operands", lambda x: x.scatter(0, whole(x, 6), cut(x))),
    ("scatter_reduce: operands", lambda x: x.scatter_reduce(0, whole(x, 6), x.to("CPU"), "sum")),
    ("operands are on", lambda x: x.index_copy(0, at(x, 1), cut(x)[:1]).realize()),
    ("backward: operands", lambda x: x.requires_grad_().exp().backward(x.to("CPU"))),
    ("parts (1.5, 2.5, 2)", lambda x: x.shard(D, 0, splits=(1.5, 2.5, 2))),
    ("assign: from PYTHON", lambda x: cut(x).assign(x)),
    ("shard_like: (6, 5) like (6, 5, 4)", lambda x: x.sum(2).shard_like(cut(x))),
]


def cut(x: Tensor) -> Tensor:
    return x.shard(D, 0)


@pytest.mark.parametrize("number", range(len(MISUSES)))
def test_a_misuse_says_what_would_be_legal(number):
    words, misuse = MISUSES[number]
    with pytest.raises((ArgumentError, ValueError)) as caught:
        misuse(Tensor(X, device="PYTHON"))
    assert words in str(caught.value), str(caught.value)


ROWS = {
    "ties, both zeros and NaN": np.array(
        [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1, 1, 1, 2, -3, np.nan, 0.0, -0.0], np.float32
    ),
    "many": np.random.default_rng(0).integers(-40, 40, (2, 600)).astype(np.float16),
    "64 bits": np.random.default_rng(0).integers(-9, 9, 37),
    "fewer than devices": np.array([2.0, 1.0]),
}


@pytest.mark.parametrize("splits", (None, "some"))
@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_is_cut_is_in_order_bit_for_bit(name, splits):
    x = ROWS[name]
    size, devices = x.shape[-1], tuple(f"CPU:{i}" for i in range(4))
    parts = None if splits is None else (max(0, size - 3), 0, 1, min(2, size - 1))
    one = Tensor(x, device="CPU")
    many = one.shard(devices, x.ndim - 1, splits=parts)
    for order in (
        lambda t: t.sort(),
        lambda t: t.sort(descending=True),
        lambda t: t.topk(2),
        lambda t: (t.argsort(descending=True), t.topk(size, largest=False)[0]),
    ):
        for ours, theirs in zip(order(many), order(one), strict=True):
            assert ours.numpy().tobytes() == theirs.numpy().tobytes()


def test_no_device_sees_more_of_a_row_than_two_parts():
    x = Tensor.empty(4000, device="CPU").shard([f"CPU:{i}" for i in range(4)], 0).realize()
    for tensor, most in ((x.sort()[0], 2000), (x.topk(5)[0], 1000)):
        made = plan_of(structure_of([tensor.uop]).sink)
        kept = [s.size for s in made.storages if isinstance(s.device, str)]
        assert max(kept) <= most, (kept, most)
