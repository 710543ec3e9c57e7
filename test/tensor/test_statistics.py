"""Order, counting, NaN, differences, integrals, elements by number, against PyTorch and NumPy."""

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from tensor.check import check, close, value

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import (
    ArgumentError,
    DTypeError,
    IndexCheckError,
    RuntimeCheckError,
    ShapeError,
)
from tinygrad.tensor import Tensor

NAN, INF = math.nan, math.inf
HOLES = np.array([[1.0, NAN, 3.0, 2.0], [NAN, NAN, NAN, NAN], [4.0, 4.0, -2.0, 0.5]], np.float32)
TIES = np.array([[3, 1, 2, 1, 3], [5, 5, 4, 4, 4]])


# ---- by order ------------------------------------------------------------------------------------

ORDERED = {
    "median": lambda x: x.median(),
    "median 1": lambda x: x.median(1)[0],
    "median 0 keep": lambda x: x.median(0, True)[0],
    "nanmedian": lambda x: x.nanmedian(),
    "nanmedian 1": lambda x: x.nanmedian(1)[0],
    "kthvalue": lambda x: x.kthvalue(2)[0],
    "kthvalue 0 keep": lambda x: x.kthvalue(3, 0, True)[0],
    "mode": lambda x: x.mode()[0],
    "mode 0": lambda x: x.mode(0, True)[0],
    "msort": lambda x: x.msort(),
    "nansum": lambda x: x.nansum(),
    "nansum 1": lambda x: x.nansum(1, True),
    "nanmean": lambda x: x.nanmean(),
    "nanmean 0": lambda x: x.nanmean(0),
}


@pytest.mark.parametrize("name", ORDERED)
def test_ordered(name):
    check(ORDERED[name], None, (3, 5))
    check(ORDERED[name], None, HOLES.tolist(), grad=False)
    if "nan" not in name:
        check(ORDERED[name], None, (3, 4, 3), dtype="float64")
        check(ORDERED[name], None, [[7, -1, 7, 2]] * 3, dtype="int64", grad=False)


def test_order_of_numbers():
    for name in ("median", "nanmedian", "mode"):
        found, at = getattr(Tensor(2.5), name)(0)
        assert (value(found), value(at), found.shape) == (2.5, 0, ())
    assert value(Tensor(2.5).kthvalue(1)[0]) == 2.5
    assert value(Tensor([NAN, 1.0]).median()) != value(Tensor([NAN, 1.0]).median())
    assert math.isnan(Tensor.zeros(0).median().item())
    for name in ("median", "mode", "nanmedian"):
        found, at = getattr(Tensor(TIES), name)(1)
        there = np.take_along_axis(TIES, value(at)[:, None], 1)[:, 0]
        assert there.tolist() == value(found).tolist()


SHARES = [0.3, [0.0, 0.1, 0.5, 0.9, 1.0]]


HOW = [("quantile", how) for how in ("linear", "lower", "higher", "midpoint", "nearest")]


@pytest.mark.parametrize(
    ("name", "how"), [*HOW, ("nanquantile", "linear"), ("nanquantile", "lower")]
)
def test_quantile(name, how):
    def of(x, q, *more):
        made = torch.tensor(q, dtype=x.dtype) if isinstance(x, torch.Tensor) else q
        return getattr(x, name)(made, *more, interpolation=how)

    for q in SHARES:
        check(lambda x, q=q: of(x, q), None, (7,))
        check(lambda x, q=q: of(x, q, 0, True), None, HOLES.tolist(), grad=False)
    check(lambda x: of(x, SHARES[-1], 1), None, (3, 6), dtype="float64")
    check(lambda x: of(x, SHARES[-1], None, True), None, (3, 6))
    check(lambda x: of(x, 0.25, 1), None, HOLES.tolist(), grad=False)


def test_quantile_beside_infinities():
    x = Tensor([-INF, 1.0, 2.0, INF])
    assert value(x.quantile([0.0, 0.1, 0.5, 0.9, 1.0])).tolist() == [-INF, -INF, 1.5, INF, INF]
    assert value(Tensor([-INF, INF]).quantile([0.0, 1.0])).tolist() == [-INF, INF]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [1, 2, 33, 1000])
def test_sorting_options(size, descending):
    x = np.round(np.random.default_rng(1).normal(size=size).astype(np.float32) * 2)
    x[:: max(2, size // 5)] = NAN
    ours = Tensor(x).sort(stable=True, descending=descending)
    theirs = torch.tensor(x).sort(stable=True, descending=descending)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(value(a), b.numpy())
    at = Tensor(x).argsort(stable=True, descending=descending)
    assert (value(at) == theirs[1].numpy()).all()


@pytest.mark.parametrize("size", [1, 7, 35])
def test_logcumsumexp(size):
    check(lambda x: x.logcumsumexp(-1), None, (2, size), low=-40, high=40)
    special = [
        [-INF, -INF, 1.0, INF, 2.0],
        [0.0, NAN, 1.0, 2.0, 3.0],
        [90.0, -90.0, 90.0, 0.0, 1.0],
    ]
    check(lambda x: x.logcumsumexp(1), None, special, grad=False)
    x = Tensor([-INF, 1.0, 1.0], requires_grad=True)
    x.logcumsumexp().backward(Tensor([5.0, 1.0, 1.0]))
    assert x.grad is not None and x.grad.tolist() == [5.0, 1.5, 0.5]


# ---- counting ------------------------------------------------------------------------------------


def test_counts():
    check(lambda x: x.count_nonzero(), None, [[0.0, 1.0], [NAN, 0.0]], grad=False, same_dtype=False)
    check(lambda x: x.count_nonzero(1), None, [[0, 1], [2, 3]], grad=False, same_dtype=False)
    check(lambda x: x.aminmax()[1], None, (3, 4))
    check(lambda x: x.amax((0, 1)), None, (3, 4, 2))
    check(lambda x: x.amin(1, True), None, (3, 4, 2))
    check(lambda x: x.argwhere(), torch.argwhere, [[0, 1], [2, 0]], dtype="int32", same_dtype=False)
    check(lambda x: x.bincount(), None, [3, 1, 1, 0], dtype="int64", same_dtype=False)
    check(lambda x: x.bincount(minlength=7), None, [3, 1], dtype="int64", same_dtype=False)
    assert value(Tensor.zeros(0, dtype="int").bincount(minlength=2)).tolist() == [0, 0]
    weights = Tensor([0.5, 2.0, 1.0], requires_grad=True)
    sums = Tensor([1, 1, 3]).bincount(weights)
    assert value(sums).tolist() == [0.0, 2.5, 0.0, 1.0]
    assert value(sums[1].gradient(weights)[0]).tolist() == [1.0, 1.0, 0.0]


def test_edges_of_no_elements_are_from_0_to_1():
    counts, edges = Tensor.zeros(0).histogram(2)
    assert [counts.tolist(), edges.tolist()] == [[0, 0], [0, 0.5, 1]]


def test_histograms():
    x = np.append(
        np.random.default_rng(2).normal(size=60).astype(np.float32), np.float32([-1.0, 1.0, 9.0])
    )
    t, ours = torch.tensor(x), Tensor(x)
    close(value(ours.histc(7, -1, 1)), t.histc(7, -1, 1).numpy())
    close(value(ours.histc(5)), t.histc(5).numpy())
    close(value(Tensor([2.0, 2.0]).histc(4)), torch.tensor([2.0, 2.0]).histc(4).numpy())
    for found, wanted in zip(Tensor(2.0).histogram(3), np.histogram(2.0, 3), strict=True):
        close(value(found), wanted.astype("float32"))
    holes = np.append(x, np.float32(NAN))
    close(value(Tensor(holes).histc(4, -2, 2)), torch.tensor(holes).histc(4, -2, 2).numpy())
    for more in ({}, {"density": True}):
        for bins in (6, [-1.0, 0.0, 0.5, 1.0]):
            edges = torch.tensor(bins) if isinstance(bins, list) else bins
            wanted = t.histogram(edges, **more)
            found = ours.histogram(Tensor(bins) if isinstance(bins, list) else bins, **more)
            for a, b in zip(found, wanted, strict=True):
                close(value(a), b.numpy())
    weight = np.arange(63, dtype=np.float32)
    wanted = t.histogram(4, range=(-2.0, 2.0), weight=torch.tensor(weight))[0]
    close(value(ours.histogram(4, (-2.0, 2.0), Tensor(weight))[0]), wanted.numpy())


POINTS = np.random.default_rng(4).normal(size=(40, 3)).astype(np.float32)
LINES = ([-1.0, 0.0, 2.0], [-2.0, 2.0], [-0.5, 0.0, 0.25, 1.0])
GRIDS = [
    (3, {}),
    ([3, 1, 2], {"density": True}),
    ((2, 3, 4), {"range": (-1.0, 1.0, -2.0, 0.5, 0.0, 1.0)}),
    ((2, 2, 2), {"weight": np.arange(40, dtype=np.float32)}),
    (LINES, {}),
    (LINES, {"density": True, "weight": np.arange(40, dtype=np.float32)}),
]


@pytest.mark.parametrize(("bins", "more"), GRIDS)
def test_histograms_of_points(bins, more):
    found = []
    for make in (Tensor, torch.tensor):
        given = [make(line) for line in bins] if bins is LINES else bins
        named = {n: make(v) if n == "weight" else v for n, v in more.items()}
        points = make(POINTS)
        counts, edges = (
            points.histogramdd(given, **named)
            if make is Tensor
            else torch.histogramdd(points, given, **named)
        )
        found.append([np.asarray(t.tolist()) for t in (counts, *edges)])
    for mine, other in zip(*found, strict=True):
        close(mine, other)


def test_histograms_of_points_outside_and_of_pairs():
    points = np.append(POINTS[:, :2], np.float32([[NAN, 0], [INF, 0], [0, -INF]])).reshape(-1, 2)
    ends = ((-2, 2), (0, 1))
    wanted, _ = np.histogramdd(points, (3, 4), ends)
    close(value(Tensor(points).histogramdd((3, 4), ends)[0]), wanted.astype("float32"))
    for given in ((Tensor.ones(3), 2), (Tensor.ones(3, 2), [1, 2, 3]), (Tensor.ones(3, 2), 2, [1])):
        with pytest.raises(ShapeError, match="histogramdd: .* legal are points"):
            given[0].histogramdd(*given[1:])


@pytest.mark.parametrize("right", [False, True])
def test_places_in_order(right):
    row = np.array([-3.0, -1.0, -1.0, 0.0, 2.0, 2.0, 2.0], np.float32)
    wanted = np.array([[-4.0, -3.0, -1.0], [0.5, 2.0, 9.0], [INF, -INF, NAN]], np.float32)
    theirs = torch.searchsorted(torch.tensor(row), torch.tensor(wanted), right=right)
    assert (value(Tensor(row).searchsorted(Tensor(wanted), right)) == theirs.numpy()).all()
    theirs = torch.bucketize(torch.tensor(wanted), torch.tensor(row), right=right)
    assert (value(Tensor(wanted).bucketize(Tensor(row), right)) == theirs.numpy()).all()
    rows = np.stack([row, row * 2, row - 1])
    theirs = torch.searchsorted(torch.tensor(rows), torch.tensor(wanted), right=right)
    assert (value(Tensor(rows).searchsorted(Tensor(wanted), right)) == theirs.numpy()).all()
    assert value(Tensor.zeros(0).searchsorted(Tensor([1.0]), right)).tolist() == [0]
    row = np.array([-INF, 1.0, INF, NAN, NAN], np.float32)  # PyTorch finds nothing behind NaN
    theirs = np.searchsorted(row, row, "right" if right else "left")
    assert (value(Tensor(row).searchsorted(Tensor(row), right)) == theirs).all()
    mixed = Tensor([3, 1, 2])
    assert value(mixed.searchsorted(2, side="left", sorter=mixed.argsort())) == 1


def test_members():
    check(lambda x, y: x.isin(y), torch.isin, [[1, 2], [3, 4]], [4, 2, 2], dtype="int32")
    check(
        lambda x, y: x.isin(y, invert=True),
        lambda x, y: torch.isin(x, y, invert=True),
        [1, 2],
        [2],
        dtype="int32",
    )
    assert value(Tensor([1.0, NAN]).isin(Tensor([NAN, 1.0]))).tolist() == [True, False]
    assert value(Tensor([1, 2]).isin(Tensor.zeros(0, dtype="int"))).tolist() == [False, False]


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_unique(name):
    cases = [[3, 1, 3, 3, 2], [[1, 2], [1, 2], [0, 2]], [1.0, 1.0, -0.0, 0.0]]
    for data in cases:
        for dim in (None, 0, -1):
            ours = getattr(Tensor(data), name)(return_inverse=True, return_counts=True, dim=dim)
            theirs = getattr(torch.tensor(data), name)(
                return_inverse=True, return_counts=True, dim=dim
            )
            for a, b in zip(ours, theirs, strict=True):
                assert value(a).tolist() == b.tolist()
    assert getattr(Tensor([NAN, NAN]), name)().shape == (2,)
    assert getattr(Tensor.zeros(0), name)().shape == (0,)
    assert value(getattr(Tensor([2, 2]).bfloat16(), name)()).tolist() == [2.0]


# ---- differences, integrals, together ------------------------------------------------------------


def test_differences():
    check(lambda x: x.diff(), None, (3, 5))
    check(lambda x: x.diff(2, 0), None, (4, 2))
    check(lambda x: x.diff(9), None, (3, 5), grad=False)
    check(lambda x, y: x.diff(prepend=y, append=y), None, (2, 3), (2, 1))
    check(
        lambda x, y: x.diff(0, prepend=y), lambda x, y: x.diff(0, prepend=y) + 0 * y, (2, 3), (2, 1)
    )
    check(lambda x: x.diff(), None, [5, 2, 9], dtype="uint8")
    check(lambda x: (x > 0).diff(), None, [5.0, -2.0, 9.0], grad=False)


def test_integrals():
    check(lambda x: x.trapezoid(), torch.trapezoid, (3, 5))
    check(lambda x: x.trapz(dx=0.5, dim=0), lambda x: torch.trapezoid(x, dx=0.5, dim=0), (3, 5))
    check(
        lambda y, x: y.trapezoid(x, dim=1), lambda y, x: torch.trapezoid(y, x, dim=1), (3, 5), (5,)
    )
    check(lambda y, x: y.trapezoid(x), torch.trapezoid, (3, 5), (3, 5))
    check(lambda x: x.cumulative_trapezoid(), torch.cumulative_trapezoid, (3, 5))
    x, y = np.random.default_rng(0).random((2, 4, 3))
    wanted = scipy.integrate.cumulative_trapezoid(y, x, axis=0)
    close(value(Tensor(y).cumulative_trapezoid(Tensor(x), dim=0)), wanted)


def test_covariance():
    check(lambda x: x.cov(), None, (3, 6))
    check(lambda x: x.cov(correction=0), None, (6,))
    check(lambda x: x.corrcoef(), None, (3, 6), atol=1e-4)
    f, a = [1, 2, 3, 1], [0.5, 1.0, 2.0, 0.1]
    x = np.random.default_rng(0).random((3, 4))
    for kept in ({"fweights": f}, {"aweights": a}, {"fweights": f, "aweights": a}):
        wanted = torch.tensor(x).cov(**{k: torch.tensor(v) for k, v in kept.items()})
        close(value(Tensor(x).cov(**{k: Tensor(v) for k, v in kept.items()})), wanted.numpy())
    x = Tensor([1.0, 2.0], dtype="half")
    assert x.cov(aweights=Tensor([0.5, 1.0])).dtype == dtypes.float32
    assert x.cov(fweights=Tensor([1, 2])).dtype == dtypes.half


def test_spread():
    check(lambda x: x.var(1, correction=0), None, (3, 5))
    check(lambda x: x.std(correction=2), None, (3, 5))
    check(lambda x: x.std(correction=None), None, (3, 5))
    assert value(Tensor([1.0, 2.0]).var(correction=2.5)) == math.inf
    check(lambda x: x.std((0, 2), keepdim=True), None, (3, 5, 2))


# ---- by number -----------------------------------------------------------------------------------

INDEX = [0, 2, 0, -1]


def test_taken():
    index = np.array([[0, 5], [-1, 2]])
    check(lambda x: x.take(_like(x, index)), None, (3, 4))
    check(lambda x: x.index_select(1, _like(x, [0, 2, 0])), None, (2, 3, 2))
    check(lambda x: x.index_select(0, _like(x, [0])), None, ())
    for dim, shape in ((0, (1, 4)), (1, (3, 1)), (None, (2, 2))):
        at = np.zeros(shape, np.int64)
        check(lambda x, dim=dim, at=at: x.take_along_dim(_like(x, at), dim), None, (3, 4))
    assert Tensor(3.0).take_along_dim(Tensor(0), 0).item() == 3


def _like(x, data):
    data = np.asarray(data)
    return torch.tensor(data) if isinstance(x, torch.Tensor) else Tensor(data)


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_written():
    at = [0, 2, 0]
    check(lambda x, y: x.index_add(0, _like(x, at), y), None, (4, 2), (3, 2))
    check(lambda x, y: x.index_add(1, _like(x, at), y, alpha=2), None, (2, 4), (2, 3))
    check(lambda x, y: x.index_copy(1, _like(x, [3, 1]), y), None, (2, 4), (2, 2))
    check(lambda x: x.index_fill(1, _like(x, at), 7.0), None, (2, 4))
    check(lambda x, y: x.index_copy(0, _like(x, [0]), y), None, (), ())
    for how in ("prod", "amax", "amin", "mean"):
        for include in (True, False):
            check(
                lambda x, y, h=how, i=include: x.index_reduce(0, _like(x, at), y, h,
                include_self=i),
                None, (4, 2), (3, 2), grad=False,
            )  # fmt: skip
    check(lambda x, y: x.scatter_add(0, _like(x, [[0, 1], [0, 2]]), y), None, (3, 2), (2, 2))
    for add in (True, False):
        check(lambda x, y, a=add: x.put(_like(x, [1, 4]), y, accumulate=a), None, (2, 3), (2,))


@pytest.mark.parametrize("shape", [(2, 3), (3,), (2, 1)])
def test_masks(shape):
    mask = np.arange(int(np.prod(shape))).reshape(shape) % 2 == 0
    check(lambda x, y: x.masked_scatter(_like(x, mask), y), None, (2, 3), (6,))
    check(lambda x: x.masked_select(_like(x, mask)), None, (2, 3))
    whole = np.broadcast_to(mask, (2, 3)).copy()
    check(lambda x: x[_like(x, whole)], None, (2, 3, 2))
    check(lambda x: x[:, _like(x, whole[0])], None, (2, 3, 2))
    check(lambda x: x[_like(x, whole[:, 0]), 1:], None, (2, 3, 2))
    none = np.zeros_like(whole)
    assert Tensor.ones(2, 3, 4)[Tensor(none)].shape == (0, 4)
    assert Tensor.ones(2, 3)[Tensor(none)].sum().item() == 0


MISUSES = [
    (IndexCheckError, "no elements", lambda: Tensor.ones(0, 2).index_fill(0, Tensor([0]), 1)),
    (IndexCheckError, "out of range", lambda: Tensor([1, 2]).take(Tensor([2]))),
    (
        IndexCheckError,
        "out of range",
        lambda: Tensor([1, 2]).index_add(0, Tensor([2]), Tensor([1])),
    ),
    (IndexCheckError, "out of range", lambda: Tensor([1, 2]).masked_scatter(True, Tensor([5]))),
    (ShapeError, "legal is", lambda: Tensor.ones(3).index_copy(0, Tensor([0]), Tensor.ones(2))),
    (DTypeError, "the same", lambda: Tensor([1]).index_add(0, Tensor([0]), Tensor([1.0]))),
    (ShapeError, "vector of ints", lambda: Tensor([1]).index_select(0, Tensor([0.0]))),
    (ArgumentError, "interpolation", lambda: Tensor([1.0]).quantile(0.5, interpolation="x")),
    (ArgumentError, "from 0 to 1", lambda: Tensor([1.0]).quantile(1.5)),
    (ArgumentError, "no elements", lambda: Tensor.ones(0, 2).median(0)),
    (ArgumentError, "legal are numbers from 1 to 2", lambda: Tensor([1, 2]).kthvalue(3)),
    (ArgumentError, "from 0", lambda: Tensor([-1]).bincount()),
    (ArgumentError, "bins", lambda: Tensor([1.0]).histc(0)),
]


@pytest.mark.parametrize(("error", "words", "function"), MISUSES)
def test_misuse(error, words, function):
    with pytest.raises(error, match=words):
        value(function())


def test_one_variable_varies_by_a_number():
    check(lambda x: x.cov(), None, (1, 5))
    check(lambda x: x.corrcoef(), None, (1, 5), grad=False)


# ---- without NaN, and between points -------------------------------------------------------------

GAPS = np.array([[1.0, NAN, 3.0, 4.5], [NAN, 2.0, NAN, NAN], [NAN] * 4])


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize("correction", [0, 1])
def test_spread_without_nan(dim, correction):
    x, options = Tensor(GAPS), {"correction": correction}
    found = value(x.nanvar(dim, **options)), value(x.nanstd(dim, **options))
    wanted = [f(GAPS, dim, ddof=correction) for f in (np.nanvar, np.nanstd)]
    np.testing.assert_allclose(found, wanted)
    assert x.nanvar(dim, keepdim=True).ndim == 2


def test_gradients_of_a_spread_without_nan():
    x = Tensor(GAPS[:1], requires_grad=True)
    known = torch.tensor([1.0, 3.0, 4.5], dtype=torch.float64, requires_grad=True)
    known.var().backward()
    np.testing.assert_allclose(value(x.nanvar().gradient(x)[0])[0, [0, 2, 3]], known.grad)


PLACES = np.array([-1, 0, 0.5, 1, 1.5, 2, 4, 5, 9, np.inf, -np.inf, NAN])


@pytest.mark.parametrize("ends", [{}, {"left": -7.0}, {"left": -7.0, "right": 8.0}])
@pytest.mark.parametrize("count", [5, 2, 1])
def test_between_points(count, ends):
    xp, fp = np.array([0.0, 1, 1, 2, 5])[:count], np.array([1.0, 3, 4, 0, 2])[:count]
    found = value(Tensor(PLACES).interp(Tensor(xp), Tensor(fp), **ends))
    np.testing.assert_allclose(found[:-1], np.interp(PLACES[:-1], xp, fp, **ends))
    assert np.isnan(found[-1])


def test_slopes_between_points():
    x, xp, fp = (Tensor(v, requires_grad=True) for v in ([0.5, 3.0], [0.0, 2.0, 4.0], [1.0, 5, 3]))
    dx, dfp = x.interp(xp, fp).sum().gradient(x, fp)
    assert value(dx).tolist() == [2.0, -1.0] and value(dfp).tolist() == [0.75, 0.75, 0.5]


@pytest.mark.parametrize("where", [(0, 0, 1), (1, 1, 2), (-1, 0, 2), (2, 0, 2)])
def test_diagonals_are_written(where):
    x = torch.arange(24.0).reshape(2, 3, 4)
    source = -torch.ones_like(x.diagonal(*where))
    found = Tensor(x.numpy()).diagonal_scatter(Tensor(source.numpy()), *where)
    assert value(found).tolist() == x.diagonal_scatter(source, *where).tolist()


def test_numbers_of_elements_as_indices():
    flat = np.array([[0, 23], [7, 11]])
    found = Tensor(flat).unravel_index((2, 3, 4))
    for ours, theirs in zip(found, np.unravel_index(flat, (2, 3, 4)), strict=True):
        assert value(ours).tolist() == theirs.tolist()
    for wrong in (24, -1):
        with pytest.raises(IndexCheckError, match=f"unravel_index: {wrong} of shape"):
            Tensor([wrong]).unravel_index((2, 3, 4))[0].numpy()


def test_parts_of_a_number():
    x = np.array([2.5, -2.5, np.inf, -np.inf, NAN, -0.0, 3])
    for ours, theirs in zip(Tensor(x).modf(), np.modf(x), strict=True):
        np.testing.assert_array_equal(value(ours), theirs)
        np.testing.assert_array_equal(np.signbit(value(ours)[:4]), np.signbit(theirs[:4]))


@pytest.mark.parametrize(
    "misuse, error, told",
    [
        (lambda x: x.interp(Tensor([0.0, 1.0]), Tensor([1.0])), ShapeError, r"legal are \(n,\)"),
        (lambda x: x.diagonal_scatter(x), ShapeError, "diagonal_scatter"),
        (lambda x: x.unravel_index((2, 2)), DTypeError, "legal are ints"),
        (lambda x: x.union1d, AttributeError, r"legal is cat\(other\).unique\(\)"),
        (lambda x: x.isreal, AttributeError, "imag.eq"),
    ],
)
def test_misuse_of_fewer(misuse, error, told):
    with pytest.raises(error, match=told):
        misuse(Tensor.ones(2, 2))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("name", ["nanmax", "nanmin", "nanprod"])
@pytest.mark.filterwarnings("ignore:All-NaN")
def test_extremes_without_nan(name, axis):
    x = np.cos(np.arange(12.0)).astype(np.float32).reshape(3, 4)
    x[0, 1] = x[2] = np.nan
    wanted = getattr(np, name)(x, axis=axis)
    np.testing.assert_allclose(value(getattr(Tensor(x), name)(axis)), wanted, rtol=1e-6)
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    wanted = getattr(np, name)(whole, axis=axis)
    np.testing.assert_array_equal(value(getattr(Tensor(whole), name)(axis)), wanted)


@pytest.mark.parametrize("name", ["nancumsum", "nancumprod"])
def test_running_without_nan(name):
    x = np.array([[1.5, np.nan], [2, 3], [np.nan, 4]], np.float32)
    for axis in (0, 1):
        wanted = getattr(np, name)(x, axis=axis)
        np.testing.assert_allclose(value(getattr(Tensor(x), name)(axis)), wanted)


def test_percentiles():
    x = np.cos(np.arange(20.0)).astype(np.float32).reshape(5, 4)
    found = value(Tensor(x).percentile([10, 50], 0))
    np.testing.assert_allclose(found, np.percentile(x, [10, 50], axis=0), atol=1e-6)
    x[0] = np.nan
    np.testing.assert_allclose(value(Tensor(x).nanpercentile(30)), np.nanpercentile(x, 30), 1e-5)
    with pytest.raises(ArgumentError, match="percentile: q=101; legal are numbers from 0 to 100"):
        Tensor(x).percentile(101)


@pytest.mark.parametrize("weight", [[1.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_histograms_take_one_weight_for_each(weight):
    with pytest.raises(ShapeError, match="histogram: weight .* of 3; legal is one for each"):
        Tensor([1.0, 2.0, 4.0]).histogram(2, weight=Tensor(weight))


@pytest.mark.parametrize("q", [-0.1, 1.2, NAN])
def test_shares_of_a_tensor_are_shares(q):
    x = Tensor([1.0, 2.0, 4.0])
    assert x.quantile(Tensor([0.0, 0.5, 1.0])).tolist() == [1, 2, 4]
    for name, whole in (("quantile", 1), ("percentile", 100)):
        with pytest.raises(RuntimeCheckError, match=f"{name}: q outside 0 to {whole}"):
            getattr(x, name)(Tensor([0.5, q * whole])).tolist()


def test_an_order_is_that_of_all():
    row = Tensor([3.0, 2.0, 1.0])
    assert row.searchsorted(Tensor([2.0]), sorter=Tensor([2, 1, 0])).tolist() == [1]
    with pytest.raises(ShapeError, match=r"searchsorted: sorter \(2,\) of \(3,\); legal"):
        row.searchsorted(Tensor([2.0]), sorter=Tensor([2, 1]))
