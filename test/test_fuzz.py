"""What the fuzzer of graphs once found, one program each, and a few fresh seeds.

`python test/fuzz_graphs.py --minutes 10 --seed 1` looks for more.
"""

import subprocess
import sys
from collections import Counter

import fuzz_between
import fuzz_captures
import fuzz_copies
import fuzz_training
import numpy as np
import pytest
from devices import present
from fuzz_graphs import DEVICES, INTERPRETED, Program, check, expected, fuzz
from fuzz_lines import derivative_program
from fuzz_methods import TABLE, Call, Draw, drawn, wrong
from fuzz_silent import verdict
from fuzz_slopes import check as check_slopes
from fuzz_slopes import check_captured
from fuzz_steps import check as check_steps
from silent_calls import CALLS
from tensor_reference import evaluate

from tinygrad import Context
from tinygrad.backends import why_absent
from tinygrad.tensor import Tensor

FOUND = [  # lines; the last names the outputs
    # a read that may go anywhere wants its source whole before the kernel runs
    "a = given(1, (7, 2), 'float32').gelu()\n"
    "b = a.gather(1, given(2, (7, 5), 'int32') % 2).max(axis=(1,), keepdim=True)\n"
    "c = a.maximum(b)\nb c",
    "a = given(1, (3, 5, 4), 'float32')\n"
    "b = -(-a).scatter_reduce(1, given(2, (3, 1, 4), 'int32') % 5, a[:, :1], 'amax')\n"
    "c = b[given(3, (3,), 'int32') % 3] * b\nc",
    # versions of one buffer
    "a = given(1, (2,), 'float32')\na.assign(a * 2 + a)\na.assign(a * 2 + a)\na",
    "a = given(1, (7, 5, 2), 'uint32')\na.assign(a * 2 - 1)\nb = a < 3\na.flip(2)[:, :, ::2] = 1\n"
    "c = kept(b.stack(b, dim=1).repeat((1, 1, 1, 2)))\nb c a",
    # a check does not look at what is not wanted
    "a = given(1, (1, 5), 'uint32') // given(2, (1, 5), 'uint32', 'small')\nb = a.pad((2, 2))\nb",
    "a = given(1, (64,), 'int64') % given(2, (64,), 'int64', 'small')\nb = a.cummax(0)[0]\nb",
    # nor at what a product's loop takes in beyond its end
    "a = given(1, (33,), 'int16') % given(2, (33,), 'int16', 'divisor')\n"
    "b = a @ given(3, (33, 4), 'int16')\nb",
    # staged accumulators of what is computed in another dtype
    "a = given(1, (33, 31), 'bool').cummax(1)[0]\na",
    "a = (given(1, (64, 130), 'float16') * 0.1 + 1).prod(0)\na",
    # a staged row for each copy and lane around it
    "a = given(1, (17, 5), 'float32').softmax(0)\na",
    "a = given(1, (40, 100), 'float32').softmax(0)\na",
    "a = given(1, (3, 17, 16), 'float32').softmax(1)\na",
    # reductions inside reductions
    "a = given(1, (17,), 'bfloat16').cumprod(0).min()\na",
    "a = (given(1, (31,), 'int16') @ given(2, (31, 33), 'int16')).max()\na",
    # an operand that another reduction around the product guards
    "a = given(1, (1, 2, 8, 17), 'uint64')\n"
    "b = a.conv_transpose2d(given(2, (2, 2, 3, 1), 'uint64'), padding=1)\nb",
    # loops that became copies are no columns to split
    "a = given(1, (2, 2, 8, 64), 'int16').sum(axis=(1, 2))\na",
    # masks taken apart, lane by lane
    "a = given(1, (1, 1, 17, 1), 'uint64').conv2d(given(2, (1, 1, 2, 1), 'uint64'), padding=2)\na",
    # a mask of one known lane, where a narrower value is stored
    "a = given(1, (2, 2, 2), 'int8').flip(0) @ given(217, (2, 33), 'int8')\na",
    # a value that is made in a loop, and again behind it
    "a = given(2, (70,), 'bool').cumsum(-1)\na",
    # a product's terms are summed in another sum, whose loop its factors depend on
    "a = given(1, (5, 33), 'float64').relu() @ given(2, (33, 8), 'float64')\n"
    "b = (a * given(3, (8,), 'float64') * given(4, (5, 1), 'float64')).T\n"
    "c = b.unsqueeze(0).fold((1, 16), (1, 8), stride=(1, 2))\nc",
    # a stage that is filled for each element of the row, with a sum over vectors
    "a = given(1, (2, 2, 65), 'float32').relu() @ given(2, (65, 30), 'float32')\n"
    "b = (a * given(3, (30,), 'float32') + 1).transpose(1, 2)\n"
    "c = b.fold((1, 37), (1, 30), stride=(1, 7))\nc",
    # a factor of a product that divides is no address
    "a = (given(1, (1, 1, 5, 31), 'int32') // 3).conv2d(given(2, (3, 1, 5, 5), 'int32'))\na",
    # a sum's loop that is taken apart for a product in it
    "a = given(1, (17, 4), 'float16') @ given(2, (4, 5), 'float16')\n"
    "b = given(3, (1, 289), 'float16') @ (a @ a.T).reshape((1, 289, 1))\nb",
    # two products that share the loop of their sums
    "a = given(1, (31, 4, 5), 'int64') @ given(2, (5, 17), 'int64')\nb = (a << 2).argmax(-2)\nb",
    # a unit's operand that is staged for each copy around it
    "a = given(1, (31, 16), 'bfloat16') @ given(2, (16, 16), 'bfloat16')\n"
    "b = a.reshape(1, 1, 31, 16).avg_pool2d((2, 1), stride=2, dilation=2, padding=0)\nb",
    # a sum that is made for each of the neighbours in a word
    "a = given(1, (1, 1, 4, 13), 'bfloat16').conv_transpose2d(given(2, (1, 2, 3, 1), 'bfloat16'))\n"
    "b = a @ given(3, (13, 8), 'bfloat16')\nb",
    "a = given(1, (1, 1, 4, 13), 'int8')\n"
    "b = a.conv_transpose2d(given(2, (1, 2, 3, 1), 'int8'), stride=2)\n"
    "c = b @ given(3, (25, 8), 'int8')\nc",
    # rows that are lanes, of which each has a sum by vectors
    "a = given(568, (17, 31), 'fp8e5m2') @ given(111, (31, 4), 'fp8e5m2')\n"
    "b = a.reshape(1, 1, 17, 4).conv2d(given(176, (1, 1, 2, 1), 'fp8e5m2'), stride=2)\nb",
    # a gradient by what was written to since it was last looked at
    "a = given(987, (1, 3, 5), 'float32')\nb = a.permute((1, 2, 0))\na[:, :, 0] = a[:, :, 4]\n"
    "c = b.roll(-1, 2).silu().sum().gradient(a)[0]\nc",
    # lanes that all add to one element, each with what those before it left there
    "a = given(1, (1, 1), 'uint64')\nb = given(2, (40, 1), 'uint64')\n"
    "c = a.scatter_reduce(0, given(3, (40, 1), 'int32') % 1, b, 'prod')\n"
    "d = a.scatter_reduce(0, given(3, (40, 1), 'int32') % 1, b, 'sum')\nc d",
    # lanes beyond a staged row that lie further apart than the room behind the stage
    "a = given(1, (2, 7), 'float32') @ given(37, (7, 17), 'float32')\n"
    "b = given(462, (4, 2), 'float32') @ a\nb",
    # windows of a dtype that NumPy has no word for, seen without a kernel
    "a = given(1, (8, 7), 'fp8e5m2')\nb = a[::2, ::3]\nb",
    # no elements
    "a = given(1, (4, 33, 0), 'float32').sin().pad(((1, 0), (1, 2), (0, 2)))\na",
    "a = given(1, (1, 1, 0, 5), 'uint8').conv2d(given(2, (2, 1, 1, 1), 'uint8'), padding=2)\na",
]


ON_SEVERAL = [
    # each device starts a sum where its part does, beyond the size
    "a = given(191, (9, 16), 'int32').gather(1, given(996, (9, 1), 'int32') % 16)\n"
    "b = a[: bound(2, 9)].sum(0)\nb",
    # an old value goes back to where a device has nothing
    "a = given(460, (1,), 'float32')\nb = given(2, (1,), 'float32')\nc = a.cumsum(0)\n"
    "a += given(2, (1,), 'float32')\nb",
]


def program(text: str, together: bool) -> Program:
    *lines, outputs = text.split("\n")
    return Program(tuple(lines), tuple(outputs.split()), together)


COMPILED = [name for name in DEVICES if name not in ("CPU", "NOOPT", *INTERPRETED)]


@pytest.fixture(params=COMPILED)
def compiled(request):
    reason = why_absent(request.param)
    if reason:
        pytest.skip(f"{request.param}: {reason}")
    return request.param


@pytest.mark.parametrize("text", FOUND)
@pytest.mark.parametrize("device", ["CPU", "NOOPT", "PYTHON"])
def test_found(text, device):
    check(program(text, True), (device,))
    check(program(text, False), (device,))


@pytest.mark.parametrize("text", FOUND)
def test_found_on_the_accelerator_of_the_tests(text):
    check(program(text, True), ("TOY",))


@pytest.mark.parametrize("text", ON_SEVERAL)
def test_found_on_several_devices(text):
    check(program(text, False), ("PYTHON*3",))


def test_a_device_without_values_does_not_know_what_a_mask_chooses():
    chosen = "a = given(2, (9, 3), 'float32')\nb = a[given(294, (9,), 'bool'), ::-1]\n"
    check(program(chosen + "b", False), ("NULL", "CPU"))
    check(program(chosen + "c = b + given(3, (6, 3), 'float32')\nc", False), ("NULL", "CPU"))
    check(program(chosen + "c = b.gather(0, given(3, (1, 1), 'int32') % 2)\nc", False), ("NULL",))


def test_the_judge_keeps_its_own_value_of_what_a_write_computed():
    lines = "a = given(1, (9, 9), 'float32')\nb = a @ given(2, (9, 4), 'float32')\nc = a[::2]\n"
    _, room = expected(program(lines + "c += 1\nc *= 2\nb", False))["b"]
    assert (room > 0).all()  # of a product that a device made there would be none


def test_the_judge_has_its_own_value_of_what_a_mask_computes():
    lines = "a = given(1, (9, 9), 'float32')\nb = a @ given(2, (9, 4), 'float32')\n"
    _, room = expected(program(lines + "c = b[given(3, (9,), 'bool')]\nc", False))["c"]
    assert (room > 0).all()


def share(what, name):
    """What a device takes of these, so that all take no longer the more there are: half of them."""
    return what[COMPILED.index(name) :: 2 * len(COMPILED)]


def test_found_where_a_compiler_is_slow(compiled):
    for text in share(FOUND, compiled):
        check(program(text, True), (compiled,))


@pytest.mark.slow
def test_all_found_where_a_compiler_is_slow(compiled):
    for text in FOUND:
        check(program(text, True), (compiled,))


def test_fresh_graphs_on_the_cpu_and_the_interpreter():
    assert fuzz(range(12), ("CPU", "NOOPT", "PYTHON")).failures == []


def test_fresh_graphs_on_the_devices_of_the_tests():
    assert fuzz(range(50, 60), ("CORE", "TOY")).failures == []


def test_fresh_graphs_on_several_devices():
    assert fuzz(range(350, 362), ("PYTHON*3",)).failures == []


def test_fresh_graphs_where_a_compiler_is_slow(compiled):
    assert fuzz(share(range(40, 49), compiled), (compiled,)).failures == []


@pytest.mark.slow
def test_many_fresh_graphs():
    assert fuzz(range(12, 40), ("CPU", "NOOPT", "PYTHON")).failures == []
    assert fuzz(range(1000, 1300), ("NOOPT", *present(), "PYTHON*3", "CPU*2")).failures == []


def slope(function, arrays, directions, step):
    """The derivative of `function` along `directions`, by central differences."""
    values = [
        float(evaluate(function(*(Tensor(a + sign * step * d) for a, d in pairs))._node))
        for sign in (1, -1)
        for pairs in [list(zip(arrays, directions, strict=True))]
    ]
    return (values[0] - values[1]) / (2 * step)


@pytest.mark.parametrize("seed", range(40))
def test_gradient_along_a_random_direction(seed):
    function, arrays = derivative_program(np.random.default_rng(seed))
    draw = np.random.default_rng(seed)
    directions = [draw.standard_normal(a.shape) for a in arrays]
    fine, coarse = (slope(function, arrays, directions, h) for h in (1e-6, 3e-6))
    if not abs(fine - coarse) <= 1e-4 * (1 + abs(fine)):
        return  # a kink within reach, or no number
    xs = [Tensor(a, requires_grad=True) for a in arrays]
    found = function(*xs).gradient(*xs, materialize_grads=True)
    pairs = zip(found, directions, strict=True)
    total = sum(float((evaluate(g._node) * d).sum()) for g, d in pairs)
    np.testing.assert_allclose(total, fine, rtol=2e-4, atol=1e-6)


# ---- methods against PyTorch's -------------------------------------------------------------------

FOUND_OF_METHODS = [
    Call("cov", (np.array([[1.0, 5.0, 2.0]], np.float32),)),  # a number
    Call("corrcoef", (np.array([[1.0, 5.0, 2.0]], np.float32),)),
    Call("floor_divide", (np.array([2.5, -1e30], np.float32), np.array([1e-30, 3], np.float32))),
]


@pytest.mark.parametrize("call", FOUND_OF_METHODS, ids=lambda call: call.name)
def test_methods_that_were_unlike_pytorchs(call):
    assert wrong(call) is None


def test_some_methods_are_as_pytorchs():
    """`python test/fuzz_methods.py --minutes 10 --seed 1` asks many more."""
    draw = Draw(5)
    calls = [drawn(draw, list(TABLE)) for _ in range(40)]
    assert {str(call): problem for call in calls if (problem := wrong(call))} == {}


def test_a_method_that_is_unlike_is_told():
    quotient_beyond_two_mantissas = np.array([1e30], np.float32), np.array([1.0140375], np.float32)
    assert "nan" in (wrong(Call("fmod", quotient_beyond_two_mantissas)) or "")


def test_programs_of_a_line_are_as_pytorchs():
    """`python test/fuzz_silent.py --minutes 10` puts one thing wrong into each, in all ways."""
    assert {call: found for call in CALLS if (found := verdict(call))} == {}


@pytest.mark.parametrize("seed", range(6))
def test_plain_steps_give_what_graphs_give(seed):
    assert check_steps(seed) is None


@pytest.mark.parametrize("seed", range(24))
def test_captured_steps_show_writes_where_plain_ones_do(seed):
    with Context(SPEC=seed % 2):  # 0: as users run, who see it if a plan does less than its graph
        assert fuzz_captures.check(seed) is None


@pytest.mark.parametrize("seed", range(4))
def test_training_programs_are_pytorchs(seed):
    """`python test/fuzz_training.py --minutes 10` draws many more."""
    assert fuzz_training.check(seed, Counter()) is None


@pytest.mark.parametrize("seed", range(5))
def test_writes_that_overlap_what_they_read_are_numpys(seed):
    assert fuzz_copies.wrong(seed, ("CPU", "CPU:1", "PYTHON")) is None


def test_what_another_thread_does_between_two_lines_changes_nothing():
    """In a process of its own, with few tensors to look at; `--minutes 10` draws many more."""
    command = [sys.executable, fuzz_between.__file__, "--minutes", "9", "--most", "60"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (told.stdout, told.returncode) == ("60 programs\n", 0), told.stdout + told.stderr


@pytest.mark.parametrize("seed", range(4))
def test_writes_that_gradients_follow_are_pytorchs(seed):
    assert check_slopes(seed) is None


@pytest.mark.parametrize("seed", [99, 131, 201, 246, 318, 7032, 8351])
def test_writes_to_what_says_nothing_are_pytorchs_or_refused(seed):
    """`python test/fuzz_slopes.py --silent --minutes 10` draws many more."""
    assert check_slopes(seed, None) is None


@pytest.mark.parametrize("seed", range(8))
def test_writes_in_captured_steps_are_pytorchs_or_refused(seed):
    """`python test/fuzz_slopes.py --captured --minutes 10` draws many more."""
    assert check_captured(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 100))
def test_more_writes_that_gradients_follow_are_pytorchs(seed):
    assert check_slopes(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_writes_by_way_of_several_devices_are_numpys(seed):
    devices = tuple(device for device in fuzz_copies.DEVICES if why_absent(device) is None)
    assert fuzz_copies.wrong(100 + seed, devices) is None
