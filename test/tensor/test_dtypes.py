"""Each operation on each dtype on each device against NumPy (ml_dtypes for what NumPy lacks): the
value, and the dtype of the result. Casts too: a float that is too large for an 8-bit float becomes
what ml_dtypes and PyTorch make of it, NaN in e4m3 and infinity in e5m2; nothing saturates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tinygrad.base.dtype import DType, dtypes, to_numpy_name
from tinygrad.engine.devices import Device
from tinygrad.engine.storage import numpy_dtype
from tinygrad.tensor import Tensor

DEVICES = ("CPU", "PYTHON", "CL", "WEBGPU")
LACKING = {("WEBGPU", dtypes.float64)}  # it moves and converts these, and says so if asked for more
ALL = (dtypes.bool, *dtypes.ints, *dtypes.floats)
FLOATS = dtypes.floats

ON_ALL: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda m, x, y: x + y,
    "multiply": lambda m, x, y: x * y,
    "less": lambda m, x, y: x < y,
    "equal": lambda m, x, y: x == y,
    "where": lambda m, x, y: m.where(y != 0, x, y),
    "maximum": lambda m, x, y: m.maximum(x, y),
    "largest": lambda m, x, y: m.largest(x),
    "argmax": lambda m, x, y: m.argmax(x),
    "flip": lambda m, x, y: x[::-1],
    "gather": lambda m, x, y: x[[3, 0, -1]],
}
ON_NUMBERS = {
    "subtract": lambda m, x, y: x - y,
    "sum": lambda m, x, y: m.total(x),
    "running sum": lambda m, x, y: m.running(x),
    "product": lambda m, x, y: m.product(x[:4]),
    "matrix product": lambda m, x, y: m.product_of_matrices(x),
}
ON_INTS = {
    "floor division": lambda m, x, y: x // m.nonzero(y),
    "remainder": lambda m, x, y: x % m.nonzero(y),
    "and": lambda m, x, y: x & y,
    "or": lambda m, x, y: x | y,
    "xor": lambda m, x, y: x ^ y,
    "not": lambda m, x, y: ~x,
    "left": lambda m, x, y: x << 2,
    "right": lambda m, x, y: x >> 1,
}
ON_SIGNED = {"negative": lambda m, x, y: -x, "absolute": lambda m, x, y: abs(x)}
ON_FLOATS = {
    "division": lambda m, x, y: x / m.nonzero(y),
    "exponential": lambda m, x, y: m.exp(x),
    "root": lambda m, x, y: m.sqrt(abs(x)),
    "floor": lambda m, x, y: m.floor(x),
    "mean": lambda m, x, y: m.mean(x),
}


class Theirs:
    """NumPy's names; sums in float32 as in PyTorch, small ints as the front end promotes them."""

    where, maximum, argmax = np.where, np.maximum, staticmethod(lambda x: np.argmax(x).astype("i4"))
    largest = staticmethod(np.max)
    floor = staticmethod(np.floor)

    @staticmethod
    def nonzero(x: Any) -> Any:
        return np.where(x == 0, np.ones_like(x), x)

    @staticmethod
    def total(x: Any) -> Any:
        return _widened(x).sum(dtype=_wide(x)).astype(_sum_dtype(x))

    @staticmethod
    def running(x: Any) -> Any:
        return np.cumsum(x, dtype=_wide(x)).astype(_sum_dtype(x))

    @staticmethod
    def product(x: Any) -> Any:
        return np.prod(_widened(x)).astype(_sum_dtype(x))

    @staticmethod
    def product_of_matrices(x: Any) -> Any:
        wide = _widened(x)[:4].reshape(2, 2)
        return (wide @ wide).astype(x.dtype)

    @staticmethod
    def exp(x: Any) -> Any:
        return np.exp(x.astype(np.float64)).astype(x.dtype)

    @staticmethod
    def sqrt(x: Any) -> Any:
        return np.sqrt(x.astype(np.float64)).astype(x.dtype)

    @staticmethod
    def mean(x: Any) -> Any:
        return _widened(x).mean().astype(x.dtype)


class Ours:
    """The same of tensors."""

    where = staticmethod(Tensor.where)
    maximum, argmax, largest = map(staticmethod, (Tensor.maximum, Tensor.argmax, Tensor.max))
    floor, exp, sqrt, mean = map(staticmethod, (Tensor.floor, Tensor.exp, Tensor.sqrt, Tensor.mean))
    total, running, product = map(staticmethod, (Tensor.sum, Tensor.cumsum, Tensor.prod))

    @staticmethod
    def nonzero(x: Tensor) -> Tensor:
        return (x == 0).where(x.ones_like(), x)

    @staticmethod
    def product_of_matrices(x: Tensor) -> Tensor:
        return x[:4].reshape(2, 2) @ x[:4].reshape(2, 2)


def _wide(x: Any) -> Any:
    return np.float64 if x.dtype.kind not in "iub" else np.int64


def _widened(x: Any) -> Any:
    return x.astype(_wide(x))


def _sum_dtype(x: Any) -> Any:
    """Small ints widen to 32 bits in sums, so that a count doesn't wrap."""
    small = {"int8": "i4", "int16": "i4", "uint8": "u4", "uint16": "u4"}
    return np.dtype(small.get(x.dtype.name, x.dtype))


def values(dtype: DType, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if dtype is dtypes.bool:
        return draw.integers(0, 2, 9).astype(bool)
    low = 0 if dtypes.is_unsigned(dtype) else -7
    return draw.integers(low, 8, 9).astype(np.float64).astype(numpy_dtype(dtype))


def operations(dtype: DType) -> dict[str, Any]:
    table = dict(ON_ALL)
    if dtype is not dtypes.bool:
        table |= ON_NUMBERS
    if dtypes.is_int(dtype):
        table |= ON_INTS
    if dtypes.is_float(dtype):
        table |= ON_FLOATS
    if not dtypes.is_unsigned(dtype) and dtype is not dtypes.bool:
        table |= ON_SIGNED
    return table


def same(got: np.ndarray, wanted: Any, what: str, ulps: float = 0) -> None:
    wanted = np.asarray(wanted)
    assert got.dtype == wanted.dtype, f"{what}: {got.dtype}, should be {wanted.dtype}"
    assert got.shape == wanted.shape, f"{what}: {got.shape}, should be {wanted.shape}"
    a, b = (x.astype(np.float64) for x in (got, wanted))
    exact = wanted.dtype.kind in "iub"
    eps = 0.0 if exact else float(ml_dtypes.finfo(wanted.dtype).eps)
    np.testing.assert_allclose(a, b, rtol=max(ulps, 4) * eps, atol=eps, err_msg=what)


@pytest.fixture(params=DEVICES)
def device(request):
    before = Device.DEFAULT
    Device.DEFAULT = request.param
    yield request.param
    Device.DEFAULT = before


FEW = (dtypes.bool, dtypes.int8, dtypes.uint64, dtypes.fp8e4m3, dtypes.half, dtypes.bfloat16)
"""What the slower devices try each time; `make test-all` has all."""

EACH = [
    pytest.param(name, dtype, id=f"{name}-{dtype.name}", marks=[] if quick else [pytest.mark.slow])
    for name in DEVICES
    for dtype in ALL
    if (name, dtype) not in LACKING
    for quick in [name == "CPU" or dtype in FEW[: None if name == "PYTHON" else 3]]
]


@pytest.mark.parametrize(("device", "dtype"), EACH, indirect=["device"])
def test_operations(dtype, device):
    x, y = values(dtype, 1), values(dtype, 2)
    a, b = Tensor(x).realize(), Tensor(y).realize()
    table = operations(dtype)
    results = {name: function(Ours, a, b) for name, function in table.items()}
    first, *rest = results.values()
    first.realize(*rest)
    for name, function in table.items():
        if name == "where":
            wanted = np.where(y != 0, x, y)
        else:
            with np.errstate(all="ignore"):
                wanted = function(Theirs, x, y)
        same(results[name].numpy(), wanted, f"{name} of {dtype.name} on {device}")


@pytest.mark.parametrize(("device", "dtype"), EACH, indirect=["device"])
def test_casts(dtype, device):
    x = values(dtype, 3)
    a = Tensor(x).realize()
    results = {other: a.cast(other) for other in ALL}
    a.realize(*results.values())
    for other, result in results.items():
        clamped = dtypes.is_unsigned(other) and dtypes.is_float(dtype)  # negatives become 0
        wanted = np.maximum(x.astype(np.float64), 0) if clamped else x
        what = f"{dtype.name} to {other.name} on {device}"
        same(result.numpy(), wanted.astype(numpy_dtype(other)), what)


EDGES = np.array([0.0, -0.0, 1e-9, 0.0019, 1.1, 15.5, 448, 463, 464.5, 480, 57344, 61439, 61441])
EDGES = np.concatenate([EDGES, -EDGES, [1e30, -1e30, np.inf, -np.inf, np.nan, 65504, 65519, 65520]])


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.itemsize <= 2], ids=to_numpy_name)
def test_rounding_and_overflow_are_those_of_ml_dtypes(dtype, device):
    draw = np.random.default_rng(0)
    many = [draw.standard_normal(40) * s for s in (1e-6, 1e-3, 1, 100, 3e4)]
    x = np.concatenate([EDGES, *many]).astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = x.astype(numpy_dtype(dtype)).astype(np.float32)
    got = Tensor(x).cast(dtype).float().numpy()
    np.testing.assert_array_equal(got, wanted)
    listed = np.array(Tensor(x.tolist(), dtype=dtype).tolist(), np.float32)
    np.testing.assert_array_equal(listed, wanted)


@pytest.mark.parametrize("dtype", [d for d in FLOATS if d.itemsize == 1], ids=to_numpy_name)
def test_all_numbers_of_8_bits(dtype, device):
    bits = np.arange(256, dtype=np.uint8)
    got = Tensor(bits).bitcast(dtype).float().numpy()
    np.testing.assert_array_equal(got, bits.view(numpy_dtype(dtype)).astype(np.float32))
    again = Tensor(bits).bitcast(dtype).bitcast("uint8").numpy()
    numbers = ~np.isnan(got)  # the interpreter has one NaN
    np.testing.assert_array_equal(again[numbers], bits[numbers])


def test_promotion_is_the_lattice():
    """Each pair of tensors: the least dtype that is above both."""
    pairs = {
        ("bool", "int8"): "int8",
        ("int8", "uint8"): "int16",
        ("uint8", "int16"): "int16",
        ("int32", "uint32"): "int64",
        ("int64", "uint64"): "float32",
        ("int8", "uint64"): "float32",
        ("uint32", "uint64"): "uint64",
        ("int64", "fp8e4m3"): "fp8e4m3",
        ("uint64", "float16"): "float16",
        ("fp8e4m3", "fp8e5m2"): "float16",
        ("fp8e5m2", "bfloat16"): "bfloat16",
        ("float16", "bfloat16"): "float32",
        ("int64", "float32"): "float32",
        ("float32", "float64"): "float64",
    }
    for (one, other), wanted in pairs.items():
        for a, b in ((one, other), (other, one)):
            got = (Tensor.ones(1, dtype=a) + Tensor.ones(1, dtype=b)).dtype
            assert got is dtypes.fields()[wanted], f"{a} and {b}: {got}"


def test_numbers_of_python_take_the_dtype_of_the_tensor():
    for dtype in ALL:
        x = Tensor.ones(2, dtype=dtype)
        whole = dtype if dtype is not dtypes.bool else dtypes.int32
        assert (x + 1).dtype is whole
        assert (x + 1.5).dtype is (dtype if dtypes.is_float(dtype) else dtypes.float32)
        assert (x + True).dtype is dtype


def test_defaults_can_be_set():
    try:
        dtypes.default_float, dtypes.default_int = dtypes.float64, dtypes.int64
        assert Tensor([1.5]).dtype is dtypes.float64
        assert Tensor([1]).dtype is dtypes.int64
        assert (Tensor([1]) / 2).dtype is dtypes.float64
        assert Tensor.rand(2).dtype is dtypes.float64
        assert Tensor.arange(3).dtype is dtypes.int64
        assert Tensor.zeros(3).dtype is dtypes.float64
    finally:
        dtypes.default_float, dtypes.default_int = dtypes.float32, dtypes.int32


def test_no_dtype_of_the_compiler_leaks():
    from tinygrad import Variable

    n = Variable("n", 1, 8).bind(3)
    made = [
        Tensor.arange(4),
        Tensor([1.0, 2.0]).argmax(),
        Tensor([1.0, 2.0]).argsort(),
        Tensor([1, 0]).nonzero(),
        Tensor([3, 1]).sort()[1],
        Tensor([3, 1]).topk(1)[1],
        Tensor([1, 2, 3])[Tensor([0, 1])],
        Tensor(n),
        Tensor.ones(8)[:n].sum().cast("int32") + n,
        Tensor([1]).one_hot(3),
    ]
    for t in made:
        assert t.dtype in ALL, t.dtype
        assert t.realize().dtype in ALL
    assert "index" not in dtypes.fields()


ABOVE_A_TIE = 2**60 + 2**36 + 1  # of two neighbours in float32; as a float64 it is the tie itself


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [ABOVE_A_TIE, -ABOVE_A_TIE, 2**63 - 1])
def test_a_whole_number_is_rounded_once_whatever_holds_it(device, value):
    wanted = float(np.int64(value).astype(np.float32))
    assert Tensor(value, dtype="int64", device=device).float().item() == wanted
    assert Tensor([value], dtype="int64", device=device).float().item() == wanted
    assert Tensor(value, dtype="float32", device=device).item() == wanted
    assert Tensor([value, 0.5], dtype="float32", device=device)[0].item() == wanted


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.bfloat16, *dtypes.fp8s])
def test_a_list_of_floats_is_rounded_once(dtype):
    last = 2.0 ** -dtypes.finfo(dtype)[1]
    above = 1 + last / 2 + 2**-40  # as a float32 it is the tie between 1 and the next
    assert Tensor([above], dtype=dtype).item() == Tensor(above, dtype=dtype).item() == 1 + last


def test_a_whole_number_beyond_all_floats_is_infinite_beside_floats():
    assert (Tensor([1.0]) * -(10**400)).tolist() == [-np.inf]
