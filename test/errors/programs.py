"""What users of PyTorch and NumPy get wrong around tensors: gradients set by hand, models' states,
other libraries' values in linear algebra, variables, captured steps. One row each, as `test_errors`
runs it: what is done, the error, and what its message must hold."""

import numpy as np

from tinygrad import Device, Tensor, TinyJit, Variable, data, dtypes, fft, linalg, nn
from tinygrad.base.errors import (
    ArgumentError,
    DeviceError,
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


def yields():
    yield Tensor([1.0])


async def waits():
    return Tensor([1.0])


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
        ["clip_grad_norm_: params=3 of type int", "legal is Tensor | Iterable[Tensor]"],
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
    "a variable whose type doesn't hold its end": (
        lambda: Variable("n", 1, 1 << 40),
        ArgumentError,
        ["Variable: n from 1 to 1099511627776 of dtypes.int", "legal", "dtypes.int64"],
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
    "a captured generator": (
        lambda: TinyJit(yields),
        JitError,
        ["TinyJit: <function yields", "is a generator or async function", "legal are functions"],
    ),
    "a captured async function": (
        lambda: TinyJit(waits),
        JitError,
        ["TinyJit: <function waits", "is a generator or async function", "legal are functions"],
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
    "glu of a tensor": (
        lambda: Tensor.ones(2).glu(),
        AttributeError,
        ["'glu'", "legal is nn.functional.glu(t, ..)"],
    ),
    "a size without a value": (
        lambda: Tensor.full(2),
        TypeError,
        ["full: missing a required argument: 'fill_value'", "legal are shape, fill_value"],
    ),
    "a list that sorts": (
        lambda: Tensor.sort([3, 1]),
        DTypeError,
        ["sort: self=[3, 1] of type list", "legal is Tensor"],
    ),
    "a word that splits": (
        lambda: Tensor.split("ab", 1),
        DTypeError,
        ["split: self='ab' of type str", "legal is Tensor"],
    ),
    "nothing to join": (lambda: Tensor.cat(), TypeError, ["cat: missing a required tensor"]),
    "a layer of one size": (
        lambda: nn.Linear(2),
        TypeError,
        ["Linear: missing a required argument: 'out_features'", "legal are in_features"],
    ),
    "three arguments of a maximum": (
        lambda: Tensor.ones(2).max(0, True, 3),
        TypeError,
        ["max: too many positional arguments", "legal are axis, keepdim"],
    ),
    "a device by a number": (
        lambda: Device[3],
        DeviceError,
        ["device 3 of type int", "legal are names"],
    ),
    "averages of a number": (
        lambda: nn.optim.EMA(3),
        ArgumentError,
        ["EMA: 3 holds no tensors of floats", "legal are models"],
    ),
    "a loader's state that is none": (
        lambda: data.DataLoader([1, 2]).load_state_dict(3),
        ArgumentError,
        ["DataLoader: a state 3", "legal is what state_dict() gave"],
    ),
    "a loader's state of other names": (
        lambda: data.DataLoader([1, 2]).load_state_dict({"a": 1}),
        ArgumentError,
        ["DataLoader: a state {'a': 1}", "legal is what state_dict() gave"],
    ),
    "a loader that drops a word": (
        lambda: data.DataLoader([1, 2], drop_last="a"),
        DTypeError,
        ["DataLoader: drop_last='a' of type str", "legal is bool"],
    ),
    "lines of a folder": (
        lambda: data.TextLines("/"),
        FileError,
        ["TextLines: '/' is no file", "legal is one of text"],
    ),
    "a download from nowhere": (
        lambda: data.fetch("nowhere"),
        data.FetchError,
        ["fetch: can't get nowhere", "unknown url type"],
    ),
    "einsum of too few operands": (
        lambda: Tensor.einsum("ij,jk", Tensor.ones(2, 3)),
        ArgumentError,
        ["einsum: 'ij,jk' names 2 operands, 1 given", "legal are as many"],
    ),
    "einsum to an unknown letter": (
        lambda: Tensor.einsum("ij->kk", Tensor.ones(2, 3)),
        ArgumentError,
        ["einsum: 'ij->kk': ['k'] stand in no operand", "legal are letters that do"],
    ),
    "einsum of other axes": (
        lambda: Tensor.einsum("ijk->i", Tensor.ones(2, 3)),
        ShapeError,
        ["einsum: 'ijk->i' names 3 axes of (2, 3)", "legal is each"],
    ),
    "scatter of too little": (
        lambda: Tensor.ones(2, 3).scatter(0, Tensor([[0, 1, 0]]), Tensor([[1.0, 2.0]])),
        ShapeError,
        ["scatter: src of (1, 2) doesn't cover index (1, 3)", "legal are as many axes"],
    ),
    "a mirror longer than the axis": (
        lambda: Tensor.ones(2, 3).pad((5, 5), mode="reflect"),
        ShapeError,
        ["pad: reflect by (5, 5) of an axis of size 3", "legal are numbers up to 2"],
    ),
    "an optimizer of nothing": (
        lambda: nn.optim.SGD([]),
        ArgumentError,
        ["SGD: 0 tensors", "legal are tensors with requires_grad=True"],
    ),
    "a maximum of nothing": (
        lambda: Tensor.zeros(0, 3).max(0),
        ArgumentError,
        ["max: of no elements: shape (0, 3), axis 0", "legal is one"],
    ),
    "more axes than there are": (
        lambda: Tensor.ones(2, 3).tensordot(Tensor.ones(2, 3), 3),
        ArgumentError,
        ["tensordot: 3 axes of (2, 3) and (2, 3)", "legal are as many as both have"],
    ),
    "a part longer than the axis": (
        lambda: Tensor.ones(2, 3).narrow(0, 1, 5),
        ArgumentError,
        ["narrow: 5 from 1 of an axis of size 2", "legal is what it has"],
    ),
    "a place of a number in a matrix": (
        lambda: Tensor.ones(2, 3).searchsorted(3),
        ShapeError,
        ["searchsorted: values () in (2, 3)", "legal are the same axes but the last"],
    ),
    "a diagonal of one axis": (
        lambda: Tensor.ones(2, 3).diagonal(0, 0, 0),
        ShapeError,
        ["diagonal: axes 0 and 0 of (2, 3)", "legal are two"],
    ),
}
