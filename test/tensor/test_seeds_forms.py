"""Forms of calls that programs for the seeds' system have, and what they mean there."""

import ctypes
import pickle
import pstats

import numpy as np
import pytest

from tinygrad import Device, Tensor, TinyJit, UOp, Variable, dtypes, helpers, nn
from tinygrad.base.errors import DTypeError
from tinygrad.helpers import get_child, time_to_str, word_wrap

X = [[1.0, 0.0, 3.0], [0.0, 2.0, 4.0]]


@pytest.mark.parametrize("axis", [None, (0, 1), (-1, 0), [1, 0]], ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_softmax_of_several_axes_is_that_of_one_long_row(name, axis):
    whole = getattr(Tensor(X).flatten(), name)().reshape(2, 3)
    np.testing.assert_allclose(
        getattr(Tensor(X), name)(axis).numpy(), whole.numpy(), rtol=1e-6, atol=1e-7
    )


PLACES = [[0, 0], [0, 2], [1, 1], [1, 2]]


@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_nonzero_of_a_size(size):
    wanted = (PLACES + [[-1, -1]] * 2)[:size]
    assert Tensor(X).nonzero(size, -1).tolist() == wanted
    rows = [row for row, _ in wanted]
    assert Tensor(X).nonzero(size=size, fill_value=-1, as_tuple=True)[0].tolist() == rows


@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_masked_select_of_a_size(size):
    wanted = [1.0, 3.0, 2.0, 4.0, 9.0, 9.0][:size]
    assert Tensor(X).masked_select(Tensor(X) > 0, size, 9).tolist() == wanted


def test_a_size_reads_nothing_so_a_captured_step_may_have_it():
    step = TinyJit(lambda x: x.nonzero(2, -1).realize())
    rows = ([0, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1])
    got = [step(Tensor(row).realize()).tolist() for row in rows]
    assert got == [[[1], [-1]], [[0], [2]], [[-1], [-1]], [[0], [1]]]


def test_nothing_to_select_from():
    assert Tensor([]).masked_select(Tensor([], dtype="bool"), 2, 7).tolist() == [7.0, 7.0]
    assert Tensor([]).nonzero(1).tolist() == [[0]]
    assert Tensor(1.0).nonzero(2).shape == (2, 0)


MADE = {
    "full": lambda: Tensor.full((2,), 3, dtypes.half),
    "full_like": lambda: Tensor(X).full_like(3, dtypes.half),
    "zeros_like": lambda: Tensor(X).zeros_like(dtypes.half),
    "empty_like": lambda: Tensor(X).empty_like(dtypes.half),
    "const_like": lambda: Tensor(X).const_like(3, dtypes.half),
    "rand_like": lambda: Tensor(X).rand_like(dtypes.half),
    "randn_like": lambda: Tensor(X).randn_like(dtypes.half),
    "linspace": lambda: Tensor.linspace(0, 1, 3, dtypes.half),
    "softmin": lambda: Tensor(X).softmin(-1, dtypes.half),
}


@pytest.mark.parametrize("name", MADE)
def test_dtype_without_its_name(name):
    assert MADE[name]().dtype is dtypes.half


def test_clone_on_another_device():
    copy = Tensor([1, 2]).clone("CPU:1")
    assert copy.device == "CPU:1" and copy.tolist() == [1, 2]


def test_options_of_a_captured_step():
    step = TinyJit(prune=True)(lambda x: (x + 1).realize())
    assert [step(Tensor([i]).realize()).item() for i in range(4)] == [1, 2, 3, 4]


def test_optimizers_take_a_device():
    w = Tensor([2.0], requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.5, device="CPU", fused=True)
    assert optimizer.lr.item() == 0.5
    with pytest.raises(TypeError, match="no argument 'device'"):
        nn.Linear(2, 3, device="CPU")


# ---- whole numbers -------------------------------------------------------------------------------


def test_whole_numbers_beside_uint64_keep_their_sign():
    """-1 was 2**64 - 1: greater than 1, and a quotient of 1.8e19."""
    a, b = Tensor([-1, 2], dtype="int64"), Tensor([1, 3], dtype="uint64")
    assert (a < b).tolist() == [True, True]
    assert (a / b).tolist() == pytest.approx([-1.0, 2 / 3])
    assert a.maximum(b).tolist() == [1, 3]
    with pytest.raises(DTypeError, match="ints and bools of which one type holds both"):
        b >> a


def test_convolution_of_small_whole_numbers_does_not_wrap():
    x, w = Tensor.full((1, 1, 3, 3), 100, dtype="int8"), Tensor.full((1, 1, 2, 2), 2, dtype="int8")
    out = x.conv2d(w)
    assert out.dtype is dtypes.int32 and out.tolist() == [[[[800, 800], [800, 800]]]]


# ---- variables -----------------------------------------------------------------------------------

N = Variable("n", min_val=1, max_val=8)


def test_a_fraction_beside_a_variable_stays_one():
    """n * 0.5 was n * 0."""
    sums = (N * 0.5, N + 0.5, N - 0.5, 0.5 - N, N.minimum(0.5), N.maximum(0.5))
    assert all(each.dtype is dtypes.float32 for each in sums)
    assert (N < 1.5).src[1].arg == 1.5
    assert Tensor.full((2,), N.bind(3) * 0.5).tolist() == [1.5, 1.5]


def test_a_variable_says_its_name_and_its_value():
    assert N.expr == N.bind(3).expr == "n"
    assert N.bind(3).unbind() == (N, 3)


def test_rendered_formula_has_no_bounds():
    assert (N * 4 + 3).render() == "(n*4 + 3)" and N.render() == "n"


# ---- helpers -------------------------------------------------------------------------------------


def test_helpers_by_their_arguments_names():
    assert get_child({"a": [{"1": 2}]}, "a.0.1") == 2
    times = [time_to_str(t, w=7) for t in (0.0015, 0.015, 1.5, 15)]
    assert times == ["1500.00us", "  15.00ms", "1500.00ms", "  15.00s "]
    assert word_wrap("abcdef", wrap=4) == "abcd\nef"


def test_nothing_is_divided_by_a_size_of_nothing():
    """Whatever else a process has computed, so that constants of the graph are in memory."""
    empty = Tensor([]).bool()
    count = (Tensor.arange(1) < empty.sum()).realize()
    assert Tensor([]).nonzero(1).tolist() == [[0]]
    assert Tensor(np.zeros((3, 0))).nonzero(1, -1).tolist() == [[-1, -1]]
    assert count.tolist() == [False]


def test_bits_of_a_key_and_a_counter():
    key, counter = Tensor([3, 1337], dtype="uint32"), Tensor([4, 2], dtype="uint32")
    wanted = [3758492952, 277112334, 2775727877, 1116962963, 1006534387]  # tinygrad 0.14's
    assert Tensor.random_bits(key, counter, 5).tolist() == wanted
    assert Tensor.random_bits(key=key, counter=counter, num=0).shape == (0,)


def test_an_error_is_what_either_library_raises():
    for wrong, kinds in (
        (lambda x: x @ x, (ValueError, RuntimeError)),
        (lambda x: x.sum(2), (IndexError, ValueError, RuntimeError)),
        (lambda x: x & 1, (TypeError, RuntimeError)),
    ):
        for kind in kinds:
            with pytest.raises(kind):
                wrong(Tensor(X))


def test_what_nothing_depends_on_has_gradients_of_zeros():
    x = Tensor(X)
    for made in (x.sign(), x**0, x[:0], x[:, :1].expand(2, 0), Tensor([1.0])):
        found = made.sum().gradient(x, materialize_grads=True)
        assert found[0].tolist() == [[0.0] * 3] * 2


def test_copysign_has_no_slope_at_zero():
    x = Tensor([0.0, 0.0, 1.0, -1.0])
    signed = x.copysign(Tensor([-1.0, 1.0, -1.0, -1.0]))
    assert signed.sum().gradient(x)[0].tolist() == [0, 0, -1, 1]


def test_names_of_arguments():
    raw = (ctypes.c_char * 2)(b"a", b"b")
    assert helpers.prod(x=[2, 3]) == helpers.ceildiv(num=11, amt=2) == 6
    assert helpers.round_up(num=5, amt=4) == 8 and helpers.getenv(key="NO_ONE", default=3) == 3
    assert helpers.flatten(l=[[1], [2]]) == helpers.fully_flatten(l=[1, [2]]) == [1, 2]
    assert helpers.to_mv(ptr=ctypes.addressof(raw), sz=2).tobytes() == b"ab"
    assert helpers.cdiv(x=-7, y=2) == -3 and helpers.cmod(x=-7, y=2) == -1
    assert next(helpers.count(3, step=2)) == 3 and helpers.polyN(x=2, p=[1, 0]) == 2
    assert helpers.all_same(items=[1, 1]) and helpers.argsort(x=[2, 1]) == [1, 0]
    assert "CPU" in Device.get_available_devices()
    assert UOp.const(3, dtypes.int) is UOp.const(dtypes.int, 3)


def test_the_cache_keeps_what_can_be_pickled():
    kept = {"sizes": (1, 2)}
    assert helpers.diskcache_put("test", {"key": 1}, kept) is kept
    assert helpers.diskcache_get("test", {"key": 1}) == kept
    assert helpers.diskcache_get("test", {"key": 2}) is None
    helpers.diskcache_put("test", "raw", pickle.dumps(kept), prepickled=True)
    assert helpers.diskcache_get("test", "raw") == kept


def test_a_profile_as_a_file(tmp_path, capsys):
    with helpers.Profiling(fn=str(tmp_path / "profile")):
        sum(range(3))
    assert pstats.Stats(str(tmp_path / "profile")).total_calls
