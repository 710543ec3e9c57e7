"""What users of PyTorch and NumPy get wrong around tensors: gradients set by hand, models' states,
other libraries' values in linear algebra, variables, captured steps. One row each, as `test_errors`
runs it: what is done, the error, and what its message must hold."""

import numpy as np

from tinygrad import Tensor, TinyJit, Variable, dtypes, fft, linalg, nn
from tinygrad.base.errors import (
    ArgumentError,
    DTypeError,
    FileError,
    JitError,
    ShapeError,
)


def with_gradient(gradient, then):
    weight = Tensor([1.0, 2.0], requires_grad=True)
    weight.grad = gradient
    with Tensor.train():
        then(weight)


def moved(weight):
    nn.optim.SGD([weight], lr=0.1).step()


def passed_back(weight):
    (weight * 2).sum().backward()


def optimizer():
    return nn.optim.SGD([Tensor([1.0], requires_grad=True)])


def written(value):
    tensor = Tensor.ones(2, 3).contiguous()
    tensor[0] = value


MISUSES = {
    "a number as a gradient, and a step": (
        lambda: with_gradient(3, moved),
        DTypeError,
        ["SGD.step: 3 of type int", "legal are tensors as .grad"],
    ),
    "an array as a gradient, and a step": (
        lambda: with_gradient(np.ones(2), moved),
        DTypeError,
        ["SGD.step: array", "ndarray", "legal are tensors"],
    ),
    "a number as a gradient, and another pass": (
        lambda: with_gradient(3, passed_back),
        ArgumentError,
        ["backward", ".grad of a tensor of shape (2,)", "3", "legal are None and a tensor of its"],
    ),
    "a gradient of another shape, and another pass": (
        lambda: with_gradient(Tensor.ones(1), passed_back),
        ArgumentError,
        ["backward", "shape (2,)", "(1,)", "legal are None and a tensor of its shape"],
    ),
    "a state that is none": (
        lambda: nn.state.load_state_dict(nn.Linear(2, 2), None),
        DTypeError,
        ["load_state_dict: state_dict=None of type NoneType", "legal is dict"],
    ),
    "an optimizer's state that is none": (
        lambda: optimizer().load_state_dict(None),
        DTypeError,
        ["SGD: state=None of type NoneType", "legal is dict"],
    ),
    "norms of a number": (
        lambda: nn.utils.clip_grad_norm_(3, 1),
        DTypeError,
        ["clip_grad_norm_: params=3 of type int", "legal is Iterable[Tensor]"],
    ),
    "parameters of a number": (
        lambda: nn.utils.parameters_to_vector(3),
        DTypeError,
        ["parameters_to_vector: parameters=3", "legal is Iterable[Tensor]"],
    ),
    "a file by a number": (
        lambda: nn.state.safe_load(3),
        DTypeError,
        ["load: 3 of type int", "legal are paths, and tensors of bytes"],
    ),
    "a number in a file": (
        lambda: nn.state.safe_save(3, "/tmp/never.safetensors"),
        DTypeError,
        ["safe_save: tensors=3 of type int", "legal is dict"],
    ),
    "eigenvalues of a word": (
        lambda: linalg.eigh("a"),
        DTypeError,
        ["eigh: a='a' of type str", "legal is Tensor"],
    ),
    "determinant of an array": (
        lambda: linalg.det(np.eye(2)),
        DTypeError,
        ["det: self=array", "ndarray", "legal is Tensor"],
    ),
    "transform of a word": (
        lambda: fft.fft("a"),
        DTypeError,
        ["fft: x='a' of type str", "legal is Tensor"],
    ),
    "transform of a number without axes": (
        lambda: fft.irfft(Tensor(1.0)),
        ShapeError,
        ["irfft: a tensor of ()", "legal are one axis or more"],
    ),
    "a variable without a name": (
        lambda: Variable(3, 1, 5),
        DTypeError,
        ["Variable: 3 from 1 to 5", "legal are a name and ints"],
    ),
    "a variable to a word": (
        lambda: Variable("n", "a", 5),
        DTypeError,
        ["Variable: 'n' from 'a' to 5", "legal are a name and ints"],
    ),
    "a variable bound to a word": (
        lambda: Variable("n", 1, 5).bind("a"),
        DTypeError,
        ["bind: n to 'a' of type str", "legal are ints"],
    ),
    "a variable bound beyond its end": (
        lambda: Variable("n", 1, 5).bind(9),
        ArgumentError,
        ["bind: n takes 1 to 5, not 9"],
    ),
    "an address that is none": (
        lambda: Tensor.from_url("nowhere"),
        FileError,
        ["from_url: 'nowhere'", "legal is what can be read"],
    ),
    "an address that holds no gzip": (
        lambda: Tensor.from_url("data:,abc", gunzip=True),
        FileError,
        ["from_url: 'data:,abc'", "legal is what can be read"],
    ),
    "a dtype of a word": (
        lambda: dtypes.from_py("a"),
        DTypeError,
        ["from_py: 'a' of type str", "legal are numbers"],
    ),
    "a captured number": (
        lambda: TinyJit(3),
        JitError,
        ["TinyJit: 3 of type int", "legal are functions"],
    ),
    "a word written": (
        lambda: written("a"),
        DTypeError,
        ["setitem: an operand 'a' of type str", "legal are tensors, numbers and arrays"],
    ),
    "median of no whole numbers": (
        lambda: Tensor.zeros(0, dtype="int32").median(),
        ArgumentError,
        ["median: of no elements", "(0,)", "int"],
    ),
    "median of no whole numbers that are numbers": (
        lambda: Tensor.zeros(2, 0, dtype="int32").nanmedian(),
        ArgumentError,
        ["nanmedian: of no elements", "(2, 0)", "int"],
    ),
    "a limit that is no number": (
        lambda: Tensor([1.0]).hardtanh(float("nan"), 1),
        ArgumentError,
        ["hardtanh: from nan to 1", "legal is up to max_val"],
    ),
}
