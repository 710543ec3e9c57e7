"""Functions under torch.special's names are PyTorch's and SciPy's, values and gradients."""

import math

import numpy as np
import pytest
import scipy.special
import torch
from tensor.check import check, value

from tinygrad.base.errors import ArgumentError, DTypeError
from tinygrad.tensor import Tensor

theirs = torch.special
NAN, INF = math.nan, math.inf
NUMBERS = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-30, 1e30, 100.0, -100.0]

FUNCTIONS = {  # SciPy's, low, high, units of the last place for float32 and float64
    "erfcx": (scipy.special.erfcx, -3, 30, 8, 8),
    "ndtr": (scipy.special.ndtr, -3, 6, 8, 8),
    "log_ndtr": (scipy.special.log_ndtr, -40, 1, 6, 6),
    "ndtri": (scipy.special.ndtri, 1e-6, 0.4, 6, 8),
    "entr": (scipy.special.entr, 0.01, 0.9, 4, 4),
    "i0e": (scipy.special.i0e, -60, 60, 5, 12),
    "i1": (scipy.special.i1, 0.1, 60, 5, 16),
    "i1e": (scipy.special.i1e, 0.1, 200, 5, 12),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name, dtype):
    function, low, high, *most = FUNCTIONS[name]
    x = np.linspace(low, high, 300).astype(dtype)
    wanted = function(x.astype(np.float64))
    found = value(getattr(Tensor(x), name)())
    away = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(dtype))
    assert away.max() <= most[dtype == "float64"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    _, low, high, *_ = FUNCTIONS[name]
    function = getattr(theirs, name)
    check(
        lambda x: getattr(x, name)(), function, (31,), low=low, high=high, dtype="float64",
        rtol=1e-11, atol=1e-13,
    )  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_numbers(name):
    beyond = [INF, -INF] if name == "i1" else []  # PyTorch says NaN
    numbers = [x for x in NUMBERS if x not in beyond]
    function = getattr(theirs, name)
    check(lambda x: getattr(x, name)(), function, numbers, grad=False, rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shapes_and_types(name):
    function = getattr(theirs, name)
    check(lambda x: getattr(x, name)(), function, (), low=0.1, high=0.4)
    check(lambda x: getattr(x, name)(), function, (0, 3))
    check(
        lambda x: getattr(x, name)(), lambda x: function(x.float()).half(), (5,), low=0.1,
        high=0.4, dtype="float16", grad=False,
    )  # fmt: skip
    check(lambda x: getattr(x, name)(), function, [0, 1], dtype="int32", grad=False)


@pytest.mark.parametrize("x, slope", [(0.0, INF), (1.0, INF), (0.5, math.sqrt(2 * math.pi))])
def test_slopes_of_ndtri_at_its_ends(x, slope):
    at = Tensor(np.array([x]), requires_grad=True)
    np.testing.assert_allclose(value(at.ndtri().sum().gradient(at)[0]), [slope])


def test_xlog1py():
    x = [0.0, 0.0, 0.0, 1.0, 2.0, -1.0, NAN, 0.0]
    y = [-1.0, NAN, INF, -1.0, 3.0, -0.5, 1.0, -3.0]
    check(lambda x, y: x.xlog1py(y), theirs.xlog1py, x, y, grad=False)
    check(lambda x, y: x.xlog1py(y), theirs.xlog1py, (4, 3), (3,), low=0.1, high=2)


@pytest.mark.parametrize("p", [1, 2, 5])
def test_mvlgamma(p):
    check(
        lambda x: x.mvlgamma(p), lambda x: torch.mvlgamma(x, p), (20,), low=p / 2, high=9,
        dtype="float64", rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    assert np.isnan(value(Tensor([(p - 1) / 2 - 0.25]).mvlgamma(p))).all()


def test_misuse():
    with pytest.raises(ArgumentError, match="mvlgamma: p=0"):
        Tensor([1.0]).mvlgamma(0)
    with pytest.raises(ArgumentError, match="polygamma: n=-1"):
        Tensor([1.0]).polygamma(-1)
    with pytest.raises(DTypeError, match="ndtr: of .*complex"):
        Tensor([1j]).ndtr()
