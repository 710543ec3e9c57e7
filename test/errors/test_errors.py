"""One row a misuse: the class of the error, and what its message must hold: the operation, the
values, and what would have been legal. After each the next operation works."""

import re

import numpy as np
import pytest
from errors.beginners import MISUSES as OF_BEGINNERS
from errors.programs import MISUSES as OF_PROGRAMS
from errors.silent import MISUSES as ONCE_SILENT
from errors.unfit import MISUSES as OF_WHAT_DOES_NOT_FIT
from fuzz_misuse import finds

from tinygrad import Context, Device, Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import (
    ArgumentError,
    DeviceError,
    DivisionCheckError,
    DTypeError,
    IndexCheckError,
    JitError,
    OutOfMemory,
    RuntimeCheckError,
    ShapeError,
    TinygradError,
)


def ones(*shape: int) -> Tensor:
    return Tensor.ones(*shape)


def write_three_into_two():
    t = Tensor.zeros(4).contiguous().realize()
    t[0:2] = Tensor([1.0, 2.0, 3.0])


def read_overwritten():
    x = Tensor([1.0, 2.0]).realize()
    node = (x * 3).uop
    x.assign(Tensor([7.0, 8.0])).realize()
    Tensor(node).tolist()


def jit_of_other_shapes():
    step = TinyJit(lambda x: (x + 1).realize())
    for size in (2, 2, 2, 3):
        step(ones(size).contiguous())


# name → (what is done, the error, parts of its message)
MISUSES = {
    # shapes
    "matmul of other sizes": (
        lambda: ones(2, 3) @ ones(4, 5),
        ShapeError,
        ["matmul", "(2, 3)", "(4, 5)", "3", "4", "legal"],
    ),
    "matmul of a number": (
        lambda: ones(2, 3) @ Tensor(1.0),
        ShapeError,
        ["matmul", "(2, 3)", "()", "legal is one axis or more"],
    ),
    "linear layer of another size": (
        lambda: nn.Linear(3, 4)(ones(2, 5)),
        ShapeError,
        ["matmul", "(2, 5)", "(3, 4)", "legal"],
    ),
    "convolution of other channels": (
        lambda: ones(1, 3, 8, 8).conv2d(ones(4, 2, 3, 3)),
        ShapeError,
        ["conv2d", "(1, 3, 8, 8)", "3 channels", "(4, 2, 3, 3)", "takes 2"],
    ),
    "convolution with a larger kernel": (
        lambda: ones(1, 3, 2, 2).conv2d(ones(4, 3, 3, 3)),
        ShapeError,
        ["3 wide", "axis 2", "(1, 3, 2, 2)", "legal are kernels that fit"],
    ),
    "convolution with groups that don't divide": (
        lambda: ones(1, 4, 8, 8).conv2d(ones(3, 2, 3, 3), groups=2),
        ShapeError,
        ["conv2d", "groups=2", "gives 3", "divide"],
    ),
    "convolution of too few axes": (
        lambda: ones(3, 8, 8).conv2d(ones(4, 3, 3, 3)),
        ShapeError,
        ["conv2d", "(3, 8, 8)", "(4, 3, 3, 3)", "legal"],
    ),
    "pool larger than the image": (
        lambda: ones(1, 1, 2, 2).max_pool2d(3),
        ShapeError,
        ["max_pool2d: window: 3 wide", "(1, 1, 2, 2)", "legal"],
    ),
    "gradient wanted of whole numbers": (
        lambda: Tensor([1, 2]).requires_grad_(),
        DTypeError,
        ["requires_grad: of dtypes.int; legal are floats"],
    ),
    "pool of fewer axes than its windows have": (
        lambda: ones(4).max_pool2d(),
        ShapeError,
        ["max_pool2d: window: (2, 2) over (4,)", "legal is an axis for each"],
    ),
    "reduction along an axis that isn't there, found by another": (
        lambda: ones(2, 3).std(7),
        ArgumentError,
        ["std: sum: axis 7", "legal are -2 to 1"],
    ),
    "two corrections of a variance": (
        lambda: ones(2, 3).std(True, correction=0),
        ArgumentError,
        ["std: var: True in the place of the axes", "correction=0", "legal is one"],
    ),
    "sum of shapes that don't broadcast": (
        lambda: ones(2, 3) + ones(2, 4),
        ShapeError,
        ["add", "(2, 3)", "(2, 4)", "axis -1", "legal are equal sizes, or 1"],
    ),
    "choice of shapes that don't broadcast": (
        lambda: Tensor([True, False]).where(ones(3), 0),
        ShapeError,
        ["where", "(2,)", "(3,)", "legal"],
    ),
    "reshape to another size": (
        lambda: ones(6).reshape(4, 2),
        ShapeError,
        ["reshape", "(6,)", "6 elements", "(4, 2)", "8", "legal"],
    ),
    "reshape to two unknown sizes": (
        lambda: ones(6).reshape(-1, -1),
        ShapeError,
        ["reshape", "(-1, -1)", "legal", "one -1"],
    ),
    "expand of a size that is not 1": (
        lambda: ones(2, 3).expand(4, 3),
        ShapeError,
        ["expand", "(2, 3)", "(4, 3)", "axis 0: legal is 2, only axes of size 1"],
    ),
    "shrink beyond the end": (
        lambda: ones(4).shrink(((2, 9),)),
        ShapeError,
        ["shrink", "(2, 9)", "size 4", "legal are 0 to 4"],
    ),
    "pad by a single number": (lambda: ones(4).pad((1,)), ShapeError, ["pad", "(1,)", "legal"]),
    "concatenation of other sizes": (
        lambda: ones(2, 3).cat(ones(2, 4)),
        ShapeError,
        ["cat", "(2, 3)", "(2, 4)", "axis 0", "legal"],
    ),
    "stack of other sizes": (
        lambda: Tensor.stack(ones(2), ones(3)),
        ShapeError,
        ["stack", "(2,)", "(3,)", "legal are equal shapes"],
    ),
    "split that leaves a rest": (
        lambda: ones(5).split([2, 2]),
        ShapeError,
        ["split", "[2, 2]", "size 5", "must be its size"],
    ),
    "einsum of two sizes of a letter": (
        lambda: Tensor.einsum("ij,jk->ik", ones(2, 3), ones(4, 5)),
        ShapeError,
        ["einsum", "j has sizes 3 and 4", "legal"],
    ),
    "negative size": (
        lambda: Tensor.zeros(2, -1),
        ShapeError,
        ["size -1", "(2, -1)", "legal are whole numbers from 0"],
    ),
    "negative size of random numbers": (
        lambda: Tensor.rand(-3),
        ShapeError,
        ["rand", "size -3", "legal"],
    ),
    "ragged list": (lambda: Tensor([[1, 2], [3]]), ShapeError, ["ragged", "depth 1", "legal"]),
    "assign of another shape": (
        lambda: ones(2).contiguous().realize().assign(ones(3)),
        ShapeError,
        ["assign", "(3,)", "(2,)", "legal"],
    ),
    "write of another shape": (
        write_three_into_two,
        ShapeError,
        ["setitem", "(3,)", "(2,)", "legal"],
    ),
    "item of several": (
        lambda: Tensor([1, 2]).item(),
        ShapeError,
        ["item", "(2,)", "legal is one element"],
    ),
    "backward of several": (
        lambda: Tensor([1.0, 2.0], requires_grad=True).backward(),
        ShapeError,
        ["backward", "(2,)", "legal is one element", "gradient="],
    ),
    # axes and other arguments
    "sum over an axis that is not there": (
        lambda: ones(2, 3).sum(2),
        ArgumentError,
        ["sum", "axis 2", "2 axes", "legal are -2 to 1"],
    ),
    "sum over an axis twice": (
        lambda: ones(2, 3).sum((0, 0)),
        ArgumentError,
        ["sum", "twice", "(0, 0)"],
    ),
    "permutation that is none": (
        lambda: ones(2, 3).permute(0, 0),
        ArgumentError,
        ["permute", "(0, 0)", "(2, 3)", "each of 2 axes once"],
    ),
    "transpose of an axis that is not there": (
        lambda: ones(2).transpose(0, 1),
        ArgumentError,
        ["transpose", "axis 1", "legal are -1 to 0"],
    ),
    "flip of an axis that is not there": (
        lambda: ones(2).flip(1),
        ArgumentError,
        ["flip", "axis 1", "legal are -1 to 0"],
    ),
    "arange of step 0": (
        lambda: Tensor.arange(0, 5, 0),
        ArgumentError,
        ["arange", "step 0", "legal"],
    ),
    "randint of an empty range": (
        lambda: Tensor.randint(3, low=5, high=2),
        ArgumentError,
        ["randint", "5", "2", "legal", "low below high"],
    ),
    "slice of step 0": (lambda: ones(5)[::0], ArgumentError, ["index", "step 0", "legal"]),
    "topk of too many": (
        lambda: Tensor([1.0, 2.0]).topk(5),
        ArgumentError,
        ["topk", "5", "size 2", "legal are 0 to 2"],
    ),
    "gradient by a stranger": (
        lambda: ones(1).sum().gradient(Tensor([2.0]), materialize_grads=False),
        ArgumentError,
        ["gradient", "(1,)", "materialize_grads=True"],
    ),
    "several devices": (
        lambda: ones(2).shard(("CPU", "CPU:1"), 0) + ones(2),
        ArgumentError,
        ["add", "('CPU', 'CPU:1')", "or the same several", ".shard(devices)"],
    ),
    "variable beyond its bounds": (
        lambda: Variable("n", 1, 8).bind(9),
        ValueError,
        ["bind", "n takes 1 to 8", "9"],
    ),
    "a version that was overwritten": (
        read_overwritten,
        ArgumentError,
        ["2 float", "assign has since overwritten", "realize it before the assign, or clone it"],
    ),
    "unknown setting": (lambda: Context(DEBGU=1), KeyError, ["DEBGU", "DEBUG"]),
    # dtypes
    "unknown dtype": (
        lambda: Tensor([1], dtype="flot32"),
        DTypeError,
        ["flot32", "legal are", "float32"],
    ),
    "cast to an unknown dtype": (
        lambda: Tensor([1]).cast("nope"),
        DTypeError,
        ["nope", "legal are"],
    ),
    "bitcast to another size": (
        lambda: Tensor([1, 2, 3], dtype="uint8").bitcast("int32"),
        DTypeError,
        ["bitcast", "1 byte", "4", "legal"],
    ),
    "list of texts": (lambda: Tensor(["a"]), DTypeError, ["'a'", "str", "legal are bool, int"]),
    "array of texts": (lambda: Tensor(np.array(["a"])), DTypeError, ["there are bool"]),
    "array with a mask": (
        lambda: Tensor(np.ma.masked_equal([1, 2], 2)),
        DTypeError,
        ["1 elements of an array are masked", "legal are .filled"],
    ),
    "array of complex numbers with a mask": (
        lambda: Tensor(np.ma.masked_equal([1j, 2], 2)),
        DTypeError,
        ["1 elements of an array are masked", "legal are .filled"],
    ),
    "list of complex arrays, one with a mask": (
        lambda: Tensor([np.array([1j]), np.ma.masked_equal([2j], 2j)]),
        DTypeError,
        ["1 elements of an array are masked", "legal are .filled"],
    ),
    "operand with a mask": (
        lambda: Tensor([1.0, 2.0]) + np.ma.masked_equal([1.0, 2.0], 2),
        DTypeError,
        ["add", "masked"],
    ),
    "some object": (lambda: Tensor(object()), DTypeError, ["object", "legal are numbers"]),
    "sum with a text": (lambda: ones(1) + "a", DTypeError, ["'a'", "str", "legal are tensors"]),
    "index by floats": (
        lambda: ones(3)[Tensor([0.5])],
        DTypeError,
        ["index", "float", "legal are ints and bools"],
    ),
    "bits of floats": (
        lambda: Tensor([1.0]) & 2,
        DTypeError,
        ["&", "float", "legal are ints and bools"],
    ),
    "shift of floats": (
        lambda: Tensor([1.0]) << 2,
        DTypeError,
        ["<<", "float", "legal are ints and bools"],
    ),
    "backward of whole numbers": (
        lambda: Tensor([1]).backward(),
        DTypeError,
        ["backward", "int", "legal are floats"],
    ),
    "assign of another dtype": (
        lambda: ones(1).contiguous().realize().assign(Tensor([1])),
        DTypeError,
        ["assign", "int", "float", ".cast("],
    ),
    "one_hot of floats": (
        lambda: Tensor([1.0]).one_hot(3),
        DTypeError,
        ["one_hot", "float", "legal are ints"],
    ),
    "one_hot of as many classes as a tensor says": (
        lambda: Tensor([1]).one_hot(Tensor(4)),
        DTypeError,
        ["one_hot", "Tensor", "legal"],
    ),
    "bytes of bfloat16": (
        lambda: ones(1).cast("bfloat16").data(),
        DTypeError,
        ["data", "bfloat16", ".float()"],
    ),
    # truth and length
    "truth of several": (
        lambda: bool(Tensor([1, 2])),
        TypeError,
        ["truth", "(2,)", ".any() or .all()"],
    ),
    "length of a number": (lambda: len(Tensor(1.0)), TypeError, ["len", "()"]),
    "iteration over a number": (lambda: iter(Tensor(1.0)), TypeError, ["iter", "()"]),
    # devices and memory
    "unknown device": (
        lambda: Tensor([1], device="TPU"),
        DeviceError,
        ["'TPU'", "not known", "there are CPU, "],
    ),
    "device without a number": (
        lambda: Tensor([1], device="CPU:x"),
        DeviceError,
        ["'CPU:x'", "a number", "CPU:1"],
    ),
    "device number beyond the last": (
        lambda: Tensor([1.0], device="CL:99").tolist(),
        DeviceError,
        ["CL", "99"],
    ),
    "out of memory": (
        lambda: ones(1 << 46).contiguous().realize(),
        OutOfMemory,
        ["allocate", "281,474,976,710,656 bytes", "CPU", "in use", "free tensors"],
    ),
    "out of memory is a MemoryError": (
        lambda: ones(1 << 50).contiguous().realize(),
        MemoryError,
        ["allocate"],
    ),
    # indices
    "index beyond the end": (
        lambda: Tensor([1, 2, 3])[5],
        IndexCheckError,
        ["index", "5", "axis 0", "(3,)", "legal are -3 to 2"],
    ),
    "index before the start": (
        lambda: Tensor([1, 2, 3])[-4],
        IndexError,
        ["index", "-4", "legal are -3 to 2"],
    ),
    "too many indices": (
        lambda: Tensor([1, 2, 3])[0, 0],
        IndexError,
        ["2 indices", "(3,)", "legal"],
    ),
    "index tensor beyond the end": (
        lambda: Tensor([1, 2, 3])[Tensor([0, 7])].tolist(),
        IndexCheckError,
        ["index", "7", "axis 0", "legal are -3 to 2"],
    ),
    "index tensor before the start": (
        lambda: Tensor([1, 2, 3])[Tensor([0, -9])].tolist(),
        IndexError,
        ["index", "-9", "axis 0", "legal are -3 to 2"],
    ),
    "index beyond the end, far inside an expression": (
        lambda: (Tensor.arange(1000)[Tensor([0] * 500 + [5000])] * 2).sum().item(),
        IndexError,
        ["index", "5000", "legal are -1000 to 999"],
    ),
    "gather beyond the end": (
        lambda: Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0], [5]])).tolist(),
        IndexError,
        ["index", "5", "axis 1", "legal are -2 to 1"],
    ),
    # division
    "whole numbers divided by zero": (
        lambda: (Tensor([1, 2]) // Tensor([1, 0])).tolist(),
        DivisionCheckError,
        ["//", "by zero"],
    ),
    "remainder by zero": (
        lambda: (Tensor([1, 2]) % Tensor([1, 0])).tolist(),
        ZeroDivisionError,
        ["%", "by zero"],
    ),
    "division by a constant zero": (
        lambda: (Tensor([1, 2]) // 0).tolist(),
        ZeroDivisionError,
        ["//", "by zero"],
    ),
    "division by zero whose result is multiplied by zero": (
        lambda: ((Tensor([1, 2]) // Tensor([1, 0])) * 0).tolist(),
        ZeroDivisionError,
        ["//", "by zero"],
    ),
    # captured steps
    "captured step of another shape": (
        jit_of_other_shapes,
        JitError,
        ["float[2]", "float[3]", "reset()"],
    ),
}

MISUSES |= OF_BEGINNERS | ONCE_SILENT | OF_PROGRAMS | OF_WHAT_DOES_NOT_FIT

OF_PYTHON = {"unknown setting", *(n for n in MISUSES if "truth" in n)}
OF_PYTHON |= {"length of a number", "iteration over a number", "out of memory is a MemoryError"}
OF_PYTHON |= {
    n for n, (_, error, _) in MISUSES.items() if error in (UserWarning, TypeError, AttributeError)
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(name):
    misuse, error, parts = MISUSES[name]
    with pytest.raises(error) as caught:
        misuse()
    message = str(caught.value)
    assert [part for part in parts if part not in message] == [], message
    if name not in OF_PYTHON:
        assert isinstance(caught.value, TinygradError)
    assert (Tensor([1, 2]) + 1).tolist() == [2, 3]


def test_a_failed_check_is_told_once():
    """The read after it is of other tensors: they are right, and nobody hears of it again."""
    wrong = Tensor([1, 2]) // Tensor([1, 0])
    with pytest.raises(RuntimeCheckError):
        wrong.tolist()
    assert (Tensor([4, 6]) // Tensor([2, 3])).tolist() == [2, 2]


def test_a_check_that_holds_costs_no_error():
    picked = Tensor([1, 2, 3])[Tensor([2, -1, 0])]
    assert picked.tolist() == [3, 3, 1]


@pytest.mark.parametrize("device", ["CPU", "CL", "WEBGPU", "PYTHON"])
def test_checks_are_told_on_every_device(device):
    a, b = Tensor([1, 2], device=device), Tensor([1, 0], device=device)
    with pytest.raises(ZeroDivisionError, match="by zero"):
        (a // b).tolist()
    with pytest.raises(IndexError, match="legal are -2 to 1"):
        a[Tensor([0, 2], device=device)].tolist()
    assert (a + b).tolist() == [2, 2]


def test_a_check_inside_a_captured_step_is_told():
    divide = TinyJit(lambda a, b: (a // b).realize())
    two = Tensor([2]).realize()
    for _ in range(3):
        assert divide(two, Tensor([1]).realize()).item() == 2
    with pytest.raises(ZeroDivisionError):
        divide(two, Tensor([0]).realize()).item()
    assert divide(two, Tensor([2]).realize()).item() == 1


def test_a_failed_check_names_the_line_that_made_it():
    """It is told at the read, which may be far away."""
    wrong = Tensor([1, 2]) // Tensor([1, 0])
    with pytest.raises(ZeroDivisionError, match=r"test_errors\.py:\d+"):
        wrong.tolist()


def test_out_of_memory_loses_nothing():
    kept = Tensor([1.0, 2.0]).realize()
    with pytest.raises(OutOfMemory):
        (ones(1 << 46) + kept[0]).contiguous().realize()
    assert kept.tolist() == [1.0, 2.0]


def test_absent_devices_say_why():
    from tinygrad.backends import DEVICES, why_absent

    assert why_absent("CPU") is None
    for name in DEVICES:
        reason = why_absent(name)
        assert reason is None or re.search(r"no backend|driver|librar", reason), name


def test_default_device_must_be_known():
    before = Device.DEFAULT
    try:
        with pytest.raises(DeviceError, match="TPU"):
            Device.DEFAULT = "TPU"
            Tensor([1]).tolist()
    finally:
        Device.DEFAULT = before


def test_every_error_is_in_the_tree():
    """Each class is drawn in the docstring of its file, and is Python's own class too."""
    import tinygrad.base.errors as errors

    classes = [c for c in vars(errors).values() if isinstance(c, type)]
    for made in classes:
        assert made.__name__ in (errors.__doc__ or "")
        if made not in (TinygradError, RuntimeCheckError):
            assert any(base.__module__ == "builtins" for base in made.__mro__[1:-3])


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_what_the_machine_cannot_give_is_refused_before_it_is_touched(device, monkeypatch):
    """More than is free, though less than there is."""
    import tinygrad.backends.cpu.memory
    import tinygrad.backends.interpreter.runtime

    for module in (tinygrad.backends.cpu.memory, tinygrad.backends.interpreter.runtime):
        monkeypatch.setattr(module, "free_memory", lambda: 1 << 20)
    with pytest.raises(OutOfMemory, match="268,435,456 bytes"):
        Tensor.empty(1 << 26, device=device).realize()
    assert (Tensor([1, 2], device=device) + 1).tolist() == [2, 3]


@pytest.mark.parametrize("seed", [1, 2])
def test_no_call_fails_in_pythons_words(seed):
    """Every public method, function, layer and optimizer, with arguments of all kinds."""
    assert list(finds(seed, 1)) == []


TYPES = {  # a call with an argument of a wrong type, and what is said of it
    "method": (lambda: ones(3).gather(0, 3), "gather: index=3 of type int; legal is Tensor"),
    "function": (lambda: nn.functional.gelu("a"), "gelu: x='a' of type str; legal is Tensor"),
    "method as a function": (lambda: nn.functional.relu(None), "relu: self=None of type NoneType"),
    "layer": (lambda: nn.Linear("a", 3), "Linear: in_features='a' of type str; legal is int"),
    "call": (lambda: nn.Linear(2, 3)([1.0]), r"Linear: x=\[1.0\] of type list; legal is Tensor"),
    "number": (lambda: ones(3).narrow(0, (1,), 2), r"narrow: start=\(1,\) of type tuple"),
    "one of several": (lambda: Tensor.broadcast_tensors(ones(3), 2), "legal are tensors"),
    "held": (lambda: nn.HuberLoss(delta=[1])(ones(3), ones(3)), "delta=.* of type list"),
}


@pytest.mark.parametrize("name", TYPES)
def test_an_argument_of_a_wrong_type_is_named(name):
    misuse, message = TYPES[name]
    with pytest.raises((DTypeError, ArgumentError), match=message):
        misuse()


def test_errors_of_a_users_function_are_his():
    def wrong(x):
        return x.nonsense

    with pytest.raises(AttributeError, match="nonsense"):
        ones(3).sequential([wrong])
