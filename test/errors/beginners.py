"""What beginners do wrong, one row each, as `test_errors` runs it: what is done, the error, and
what its message must hold: the operation, the values, and what would have been legal."""

import importlib

import numpy as np

from tinygrad import Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import (
    ArgumentError,
    DeviceError,
    DivisionCheckError,
    DTypeError,
    IndexCheckError,
    JitError,
    OutOfMemory,
    ShapeCheckError,
    ShapeError,
)


def ones(*shape, **more):
    return Tensor.ones(*shape, **more)


def three():
    return Tensor([1.0, 2.0, 3.0]).realize()


def write(tensor, key, value):
    tensor[key] = value
    return tensor.tolist()


def leaf_plus():
    x = Tensor([1.0, 2.0], requires_grad=True)
    x += 1


def leaf_write():
    x = Tensor([1.0, 2.0], requires_grad=True)
    x[0] = 1


def calls(function, *arguments):
    step = TinyJit(function)
    for each in arguments:
        step(*each)


MISUSES = {
    "pad int": (
        lambda: ones(4).pad(1),
        ShapeError,
        ["pad", "(4,)", "legal are pairs, or a number for each side"],
    ),
    "pad neg too much": (
        lambda: ones(3).pad((-4, 0)).tolist(),
        ShapeError,
        ["pad", "(-4, 0)", "(3,)", "legal are down to -3"],
    ),
    "pad mode": (
        lambda: ones(3).pad((1, 1), mode="foo"),
        ArgumentError,
        ["pad", "'foo'", "legal are constant, reflect, replicate, circular"],
    ),
    "view bad": (
        lambda: ones(6).view(4, 2),
        ShapeError,
        ["reshape", "(6,)", "(4, 2)", "legal are shapes with as many elements"],
    ),
    "view dtype": (
        lambda: ones(6).view("int32"),
        ShapeError,
        ["reshape", "'int32'", "legal are whole numbers, or bitcast(dtype)"],
    ),
    "where of one": (
        lambda: (ones(6) > 0).where(),
        ArgumentError,
        ["where: None and None", "nonzero(as_tuple=True)"],
    ),
    "reshape str": (
        lambda: ones(6).reshape("a"),
        ShapeError,
        ["reshape", "'a'", "legal are whole numbers"],
    ),
    "reshape float": (
        lambda: ones(6).reshape(2.0, 3),
        ShapeError,
        ["reshape", "legal are whole numbers"],
    ),
    "reshape neg": (
        lambda: ones(6).reshape(-2, 3),
        ShapeError,
        ["reshape", "(-2, 3)", "legal are sizes from 0 and one -1"],
    ),
    "reshape zero": (
        lambda: ones(6).reshape(0, -1),
        ShapeError,
        ["reshape", "(6,)", "(0, -1)", "legal are shapes with as many elements"],
    ),
    "permute few": (
        lambda: ones(2, 3).permute(0),
        ArgumentError,
        ["permute", "(0,)", "(2, 3)", "legal is each of 2 axes once"],
    ),
    "permute str": (
        lambda: ones(2, 3).permute("ab"),
        ArgumentError,
        ["permute", "'ab'", "legal are -2 to 1"],
    ),
    "transpose": (
        lambda: ones(2, 3).transpose(0, 5),
        ArgumentError,
        ["transpose", "legal are -2 to 1"],
    ),
    "squeeze axis": (
        lambda: ones(2, 3).squeeze(5),
        ArgumentError,
        ["squeeze", "legal are -2 to 1"],
    ),
    "unsqueeze": (lambda: ones(2).unsqueeze(4), ArgumentError, ["unsqueeze", "legal are -2 to 1"]),
    "flatten": (lambda: ones(2, 3).flatten(3), ArgumentError, ["flatten", "legal are -2 to 1"]),
    "unflatten": (
        lambda: ones(6).unflatten(0, (4, 2)),
        ShapeError,
        ["reshape", "(6,)", "(4, 2)", "legal are shapes with as many elements"],
    ),
    "expand few": (
        lambda: ones(2, 3).expand(3),
        ShapeError,
        ["expand", "(2, 3)", "(3,)", "legal are 2 axes or more"],
    ),
    "expand neg": (
        lambda: ones(2, 1).expand(2, -3),
        ShapeError,
        ["expand", "(2, 1)", "(2, -3)", "legal are sizes from 0"],
    ),
    "repeat": (
        lambda: ones(2, 3).repeat(2),
        ShapeError,
        ["repeat", "(2,)", "(2, 3)", "legal is a number for each axis"],
    ),
    "repeat neg": (
        lambda: ones(2).repeat(-1),
        ShapeError,
        ["repeat", "(-1,)", "legal are numbers from 0"],
    ),
    "stack none": (
        lambda: Tensor.stack([]),
        ArgumentError,
        ["stack", "legal are one tensor or more"],
    ),
    "cat axis": (lambda: ones(2).cat(ones(2), dim=1), ArgumentError, ["cat", "legal are -1 to 0"]),
    "cat dtype": (
        lambda: ones(2).cat("a"),
        ArgumentError,
        ["cat", "'a'", "legal are one tensor or more"],
    ),
    "stack axis": (
        lambda: Tensor.stack(ones(2), ones(2), dim=5),
        ArgumentError,
        ["stack", "legal are -2 to 1"],
    ),
    "split": (lambda: ones(5).split(0), ArgumentError, ["split", "legal are numbers from 1"]),
    "chunk": (lambda: ones(5).chunk(0), ArgumentError, ["chunk", "legal are numbers from 1"]),
    "roll": (lambda: ones(3).roll(1, 4), ArgumentError, ["roll", "legal are -1 to 0"]),
    "gather axes": (
        lambda: ones(3, 3).gather(0, Tensor([0])),
        ShapeError,
        ["gather", "(1,)", "(3, 3)", "legal are as many axes"],
    ),
    "gather dim": (
        lambda: ones(3).gather(4, Tensor([0])),
        ArgumentError,
        ["gather", "legal are -1 to 0"],
    ),
    "gather float": (
        lambda: ones(3).gather(0, Tensor([0.5])).tolist(),
        DTypeError,
        ["gather", "legal are ints"],
    ),
    "scatter float idx": (
        lambda: ones(3).scatter(0, Tensor([0.5]), Tensor([1.0])).tolist(),
        DTypeError,
        ["scatter", "legal are ints"],
    ),
    "scatter oob": (
        lambda: ones(3).scatter(0, Tensor([7]), Tensor([1.0])).tolist(),
        IndexCheckError,
        ["index", "legal are -3 to 2"],
    ),
    "scatter_reduce oob": (
        lambda: ones(3).scatter_reduce(0, Tensor([7]), Tensor([1.0]), "sum").tolist(),
        IndexCheckError,
        ["index", "legal are -3 to 2"],
    ),
    "scatter red": (
        lambda: ones(3).scatter_reduce(0, Tensor([1]), Tensor([1.0]), "foo"),
        ArgumentError,
        ["scatter_reduce", "'foo'", "legal are sum, prod, mean, amax, amin"],
    ),
    "one_hot oob": (
        lambda: Tensor([5]).one_hot(3).tolist(),
        IndexCheckError,
        ["one_hot", "legal are 0 to 2"],
    ),
    "one_hot neg": (
        lambda: Tensor([-1]).one_hot(3).tolist(),
        IndexCheckError,
        ["one_hot", "legal are 0 to 2"],
    ),
    "one_hot classes": (
        lambda: Tensor([1]).one_hot(-5).tolist(),
        ArgumentError,
        ["one_hot", "legal are numbers from 1, or -1"],
    ),
    "ce oob": (
        lambda: ones(2, 3).cross_entropy(Tensor([0, 7])).item(),
        IndexCheckError,
        ["cross_entropy", "legal are 0 to 2"],
    ),
    "ce neg": (
        lambda: ones(2, 3).cross_entropy(Tensor([0, -3])).item(),
        IndexCheckError,
        ["cross_entropy", "legal are 0 to 2"],
    ),
    "ce shape": (
        lambda: ones(2, 3).cross_entropy(Tensor([0, 1, 2])).item(),
        ShapeError,
        ["where", "(3, 3)", "(2, 3)", "legal are equal sizes, or 1"],
    ),
    "sce oob": (
        lambda: ones(2, 3).sparse_categorical_crossentropy(Tensor([0, 7])).item(),
        IndexCheckError,
        ["sparse_categorical_crossentropy", "legal are 0 to 2"],
    ),
    "nll oob": (
        lambda: ones(2, 3).log_softmax().nll_loss(Tensor([0, 7])).item(),
        IndexCheckError,
        ["nll_loss", "legal are 0 to 2"],
    ),
    "ce float targets shape": (
        lambda: ones(2, 3).cross_entropy(ones(2, 4)).item(),
        ShapeError,
        ["cross_entropy", "(2, 4)", "(2, 3)", "legal are a class number for each, or probabiliti"],
    ),
    "emb oob": (
        lambda: nn.Embedding(4, 2)(Tensor([5])).tolist(),
        IndexCheckError,
        ["index", "legal are 0 to 3"],
    ),
    "emb neg": (
        lambda: nn.Embedding(4, 2)(Tensor([-5])).tolist(),
        IndexCheckError,
        ["index", "legal are 0 to 3"],
    ),
    "emb -1": (
        lambda: nn.Embedding(4, 2)(Tensor([-1])).tolist(),
        IndexCheckError,
        ["index", "legal are 0 to 3"],
    ),
    "emb float": (
        lambda: nn.Embedding(4, 2)(Tensor([0.5])).tolist(),
        ArgumentError,
        ["embedding: numbers of dtypes.float", "legal are ints"],
    ),
    "div0": (lambda: Tensor([1]).idiv(0).tolist(), DivisionCheckError, ["//", "by zero"]),
    "mod0": (lambda: (Tensor([1]) % 0).tolist(), DivisionCheckError, ["%", "by zero"]),
    "fmod0": (lambda: Tensor([1]).fmod(0).tolist(), DivisionCheckError, ["//", "by zero"]),
    "rdiv0": (lambda: (5 // Tensor([0])).tolist(), DivisionCheckError, ["//", "by zero"]),
    "trunc0": (
        lambda: Tensor([1]).div(Tensor([0]), rounding_mode="trunc").tolist(),
        DivisionCheckError,
        ["//", "by zero"],
    ),
    "bad rounding": (
        lambda: Tensor([1]).div(Tensor([1]), rounding_mode="foo"),
        ArgumentError,
        ["div", "'foo'", "legal are None, trunc, floor"],
    ),
    "neg pow int": (
        lambda: (Tensor([2, 0]) ** (-1)).tolist(),
        ArgumentError,
        ["pow", "legal are powers from 0"],
    ),
    "setitem shape": (
        lambda: write(three(), slice(0, 2), Tensor([1.0, 2, 3])),
        ShapeError,
        ["setitem", "(3,)", "(2,)", "legal are shapes that broadcast to it"],
    ),
    "setitem oob": (
        lambda: write(three(), 5, 1),
        IndexCheckError,
        ["index", "(3,)", "legal are -3 to 2"],
    ),
    "setitem idx oob": (
        lambda: write(three(), Tensor([9]), 1.0),
        IndexCheckError,
        ["index", "legal are -3 to 2"],
    ),
    "setitem mask n": (
        lambda: write(three(), Tensor([True, False, True]), Tensor([1.0, 2.0, 3.0])),
        ShapeCheckError,
        ["setitem", "legal are as many"],
    ),
    "mask shape": (
        lambda: three()[Tensor([True, False])],
        IndexCheckError,
        ["index", "(2,)", "(3,)", "legal is (3,)"],
    ),
    "setmask shape": (
        lambda: write(three(), Tensor([True, False]), 1),
        IndexCheckError,
        ["index", "(2,)", "(3,)", "legal is (3,)"],
    ),
    "setitem str": (
        lambda: write(three(), 0, "a"),
        DTypeError,
        ["an", "'a'", "legal are tensors, numbers and arrays"],
    ),
    "getitem str": (
        lambda: three()["a"],
        ArgumentError,
        ["index", "'a'", "legal are numbers, slices, None, ..., tensors, li"],
    ),
    "getitem float": (
        lambda: three()[1.5],
        ArgumentError,
        ["index", "legal are numbers, slices, None, ..., tensors, li"],
    ),
    "slice float": (
        lambda: three()[0.5:2],
        ArgumentError,
        ["index", "legal are whole numbers and None"],
    ),
    "setitem complex": (
        lambda: write(three(), 0, 1j),
        DTypeError,
        ["__setitem__", "complex64 to dtypes.float", "legal are complex dtypes and bool"],
    ),
    "iadd shape": (
        lambda: three().__iadd__(ones(2, 3)),
        ShapeError,
        ["add", "(2, 3)", "(3,)", "legal is this shape"],
    ),
    "int /=": (
        lambda: Tensor([1, 2]).realize().__itruediv__(2),
        DTypeError,
        ["truediv", "legal is a float, or an expression instead"],
    ),
    "int += float": (
        lambda: Tensor([1, 2]).realize().__iadd__(0.5),
        DTypeError,
        ["add", "legal is a float, or an expression instead"],
    ),
    "add_ shape": (
        lambda: three().add_(ones(4)),
        ShapeError,
        ["add", "(3,)", "(4,)", "legal are equal sizes, or 1"],
    ),
    "copy_ shape": (
        lambda: three().copy_(ones(4)),
        ShapeError,
        ["copy", "(4,)", "(3,)", "legal are shapes that broadcast to it"],
    ),
    "fill_ str": (
        lambda: three().fill_("a"),
        DTypeError,
        ["an", "'a'", "legal are tensors, numbers and arrays"],
    ),
    "assign self dtype": (
        lambda: three().assign(Tensor([1, 2, 3])),
        DTypeError,
        ["assign", "use .cast(dtypes.float)"],
    ),
    "assign device": (
        lambda: three().assign(ones(3, device="PYTHON")),
        ArgumentError,
        ["assign", "()", "use .to() first"],
    ),
    "leaf +=": (
        leaf_plus,
        ArgumentError,
        ["in", "()", "legal are a copy of it, or with Tensor.no_grad()"],
    ),
    "leaf setitem": (
        leaf_write,
        ArgumentError,
        ["in", "()", "legal are a copy of it, or with Tensor.no_grad()"],
    ),
    "backward int": (
        lambda: Tensor([1]).sum().backward(),
        DTypeError,
        ["backward", "legal are floats"],
    ),
    "backward grad array": (
        lambda: ones(2).backward(np.ones(2)),
        DTypeError,
        ["backward", "ndarray", "(2,)", "legal is a Tensor of shape"],
    ),
    "backward grad shape": (
        lambda: ones(2).backward(ones(3)),
        ShapeError,
        ["backward", "(3,)", "(2,)", "legal is this shape"],
    ),
    "grad of int target": (
        lambda: Tensor([1.0]).sum().gradient(Tensor([1])),
        ArgumentError,
        ["gradient", "(1,)", "materialize_grads=True makes i"],
    ),
    "requires_grad int": (
        lambda: Tensor([1, 2], requires_grad=True),
        DTypeError,
        ["requires_grad", "legal are floats"],
    ),
    "matmul 1d": (
        lambda: ones(3) @ ones(4),
        ShapeError,
        ["matmul", "(3,)", "(4,)", "legal are equal sizes"],
    ),
    "matmul batch": (
        lambda: ones(2, 3, 4) @ ones(3, 4, 5),
        ShapeError,
        ["matmul", "(2,)", "(3,)", "legal are equal sizes, or 1"],
    ),
    "dot": (
        lambda: ones(3).dot(ones(4)),
        ShapeError,
        ["matmul", "(3,)", "(4,)", "legal are equal sizes"],
    ),
    "matmul dtype str": (
        lambda: ones(3) @ "a",
        DTypeError,
        ["an", "'a'", "legal are tensors, numbers and arrays"],
    ),
    "matmul device": (
        lambda: ones(2, 2) @ ones(2, 2, device="PYTHON"),
        ArgumentError,
        ["mul", "or the same several: use .to(device)"],
    ),
    "add device": (
        lambda: ones(2) + ones(2, device="PYTHON"),
        ArgumentError,
        ["add", "or the same several: use .to(device)"],
    ),
    "conv bias": (
        lambda: ones(1, 3, 8, 8).conv2d(ones(4, 3, 3, 3), bias=ones(5)),
        ShapeError,
        ["conv", "(5,)", "legal is one for each of 4"],
    ),
    "conv stride 0": (
        lambda: ones(1, 3, 8, 8).conv2d(ones(4, 3, 3, 3), stride=0),
        ArgumentError,
        ["stride", "legal is a number, or 2 of them, from 1"],
    ),
    "conv pad tuple": (
        lambda: ones(1, 3, 8, 8).conv2d(ones(4, 3, 3, 3), padding=(1, 1, 1)),
        ArgumentError,
        ["padding", "(1, 1, 1)", "legal are one number, 2 numbers, or 4 (before, af"],
    ),
    "pool stride 0": (
        lambda: ones(1, 1, 4, 4).max_pool2d(2, stride=0),
        ArgumentError,
        ["stride", "legal is a number, or 2 of them, from 1"],
    ),
    "conv1d 2d": (
        lambda: nn.Conv2d(3, 4, 3)(ones(1, 2, 8, 8)),
        ShapeError,
        ["conv2d", "(1, 2, 8, 8)", "(4, 3, 3, 3)", "weight (4, 3, 3, 3) with group"],
    ),
    "bn": (
        lambda: nn.BatchNorm2d(3)(ones(1, 4, 2, 2)),
        ShapeError,
        ["BatchNorm", "(1, 4, 2, 2)", "legal is (N, 3, *any)"],
    ),
    "ln": (
        lambda: nn.LayerNorm(3)(ones(2, 4)),
        ShapeError,
        ["layer_norm", "(2, 4)", "(3,)", "legal is (.., *(3,))"],
    ),
    "gn": (lambda: nn.GroupNorm(3, 4), ArgumentError, ["GroupNorm", "legal is what divides"]),
    "rms": (
        lambda: nn.RMSNorm(3)(ones(2, 4)),
        ShapeError,
        ["rms_norm", "(3,)", "legal is (4,)"],
    ),
    "lstm": (
        lambda: nn.LSTMCell(3, 4)(ones(2, 5)),
        ShapeError,
        ["LSTMCell", "(2, 5)", "legal is (batch, 3), or without batch"],
    ),
    "dropout p": (
        lambda: ones(3).dropout(1.5),
        ArgumentError,
        ["dropout", "legal are numbers from 0 to 1"],
    ),
    "softmax axis": (
        lambda: ones(3).softmax(2),
        ArgumentError,
        ["softmax: max: axis 2", "legal are -1 to 0"],
    ),
    "layernorm axis": (lambda: ones(3).layernorm(4), ArgumentError, ["sum", "legal are -1 to 0"]),
    "argmax axis": (lambda: ones(3).argmax(2), ArgumentError, ["argmax", "legal are -1 to 0"]),
    "max empty": (
        lambda: Tensor.zeros(0).max().tolist(),
        ArgumentError,
        ["max", "(0,)", "of no elements: shape (0,), ax"],
    ),
    "argmax empty": (
        lambda: Tensor.zeros(0).argmax().tolist(),
        ArgumentError,
        ["argmax", "(0,)", "of no elements: shape (0,), ax"],
    ),
    "min empty axis": (
        lambda: Tensor.zeros(2, 0).min(1).tolist(),
        ArgumentError,
        ["min", "(2, 0)", "of no elements: shape (2, 0),"],
    ),
    "cumsum axis": (lambda: ones(3).cumsum(3), ArgumentError, ["cumsum", "legal are -1 to 0"]),
    "sort axis": (lambda: ones(3).sort(3), ArgumentError, ["sort", "legal are -1 to 0"]),
    "topk neg": (lambda: ones(3).topk(-1), ArgumentError, ["topk", "legal are 0 to 3"]),
    "einsum missing": (
        lambda: Tensor.einsum("ij,jk", ones(2, 3)),
        ArgumentError,
        ["einsum", "'ij,jk' names 2 operands, 1 gi"],
    ),
    "einsum axes": (
        lambda: Tensor.einsum("ijk->i", ones(2, 3)),
        ShapeError,
        ["einsum", "(2, 3)", "'ijk->i' names 3 axes of (2, 3"],
    ),
    "einsum out": (
        lambda: Tensor.einsum("ij->ik", ones(2, 3)),
        ArgumentError,
        ["einsum", "'k'", "'ij->ik': ['k'] stand in no op"],
    ),
    "tril 1d": (lambda: ones(3).tril(), ShapeError, ["triu", "(3,)", "legal are two axes or more"]),
    "diag": (
        lambda: ones(2, 2, 2).diag(),
        ShapeError,
        ["diag", "(2, 2, 2)", "legal are one axis or two"],
    ),
    "eye neg": (
        lambda: Tensor.eye(-2),
        ShapeError,
        ["eye", "(-2, -2)", "legal are whole numbers from 0"],
    ),
    "full str": (lambda: Tensor.full((2,), "a"), DTypeError, ["full", "'a'", "legal are numbers"]),
    "zeros float": (
        lambda: Tensor.zeros(2.5),
        ShapeError,
        ["full", "legal are whole numbers from 0"],
    ),
    "zeros str": (
        lambda: Tensor.zeros("a"),
        ShapeError,
        ["full", "'a'", "legal are whole numbers from 0"],
    ),
    "arange str": (lambda: Tensor.arange("a"), DTypeError, ["arange", "'a'", "legal are numbers"]),
    "linspace": (
        lambda: Tensor.linspace(0, 1, -2),
        ArgumentError,
        ["linspace", "legal are numbers from 0"],
    ),
    "module function": (
        lambda: importlib.import_module("tinygrad").zeros,
        AttributeError,
        ["module 'tinygrad'", "'zeros'", "legal is Tensor.zeros"],
    ),
    "module dtype": (
        lambda: importlib.import_module("tinygrad").float64,
        AttributeError,
        ["'float64'", "legal is dtypes.float64"],
    ),
    "randint float": (
        lambda: Tensor.randint(2, low=0, high=2**24 + 2, dtype="float32"),
        ArgumentError,
        ["randint", "dtypes.float, which holds -16777216 to 16777216"],
    ),
    "randperm neg": (
        lambda: Tensor.randperm(-1),
        ShapeError,
        ["randperm", "(-1,)", "legal are whole numbers from 0"],
    ),
    "multinomial many": (
        lambda: Tensor([1.0, 2.0]).multinomial(5, replacement=False).tolist(),
        ShapeError,
        ["multinomial", "5 of (2,)", "legal are up to 2, or replacement=True"],
    ),
    "normal int": (
        lambda: Tensor.normal(2, dtype="int32"),
        DTypeError,
        ["randn", "legal are floats"],
    ),
    "manual_seed str": (
        lambda: Tensor.manual_seed("a"),
        DTypeError,
        ["seed", "'a'", "legal is int"],
    ),
    "rand dtype": (lambda: Tensor.rand(2, dtype="int32"), DTypeError, ["rand", "legal are floats"]),
    "where str": (
        lambda: Tensor([True]).where("a", 1),
        DTypeError,
        ["an", "'a'", "legal are tensors, numbers and arrays"],
    ),
    "clamp": (lambda: ones(2).clamp(), ArgumentError, ["clamp", "give min, max or both"]),
    "interp": (
        lambda: ones(1, 1, 4, 4).interpolate((2, 2), mode="foo"),
        ArgumentError,
        ["interpolate", "'foo'", "legal are nearest, nearest-exact, linear"],
    ),
    "cast str": (
        lambda: ones(2).cast("flot"),
        DTypeError,
        ["unknown", "'flot'", "legal are bfloat16, bool, cdouble"],
    ),
    "bitcast": (
        lambda: ones(3).bitcast("int64"),
        DTypeError,
        ["bitcast", "(3,) 12", "legal are dtypes whose size divides that"],
    ),
    "to dev": (
        lambda: ones(2).to("FOO"),
        DeviceError,
        ["device", "'FOO'", "there are CPU, "],
    ),
    "dev default": (
        lambda: ones(2, device="TPU").tolist(),
        DeviceError,
        ["device", "'TPU'", "there are CPU, "],
    ),
    "masked_select": (
        lambda: ones(3).masked_select(Tensor([True, False])),
        ShapeError,
        ["masked_select", "(3,)", "(2,)", "legal are equal sizes, or 1"],
    ),
    "masked_fill": (
        lambda: ones(3).masked_fill(Tensor([True, False]), 0),
        ShapeError,
        ["where", "(2,)", "()", "legal are equal sizes, or 1"],
    ),
    "jit dtype": (
        lambda: calls(
            lambda x: (x + 1).realize(),
            (ones(2).contiguous(),),
            (ones(2).contiguous(),),
            (ones(2, dtype="int32").contiguous(),),
        ),
        JitError,
        ["TinyJit", "()", "call reset() to capture again"],
    ),
    "jit nothing": (
        lambda: calls(
            lambda x: 3, (ones(2).contiguous().realize(),), (ones(2).contiguous().realize(),)
        ),
        JitError,
        ["TinyJit", "nothing was computed, so there"],
    ),
    "load_state missing": (
        lambda: nn.state.load_state_dict(nn.Linear(2, 3), {}),
        ArgumentError,
        ["load_state_dict", "legal are all names of the model, or strict=False"],
    ),
    "load_state shape": (
        lambda: nn.state.load_state_dict(nn.Linear(2, 3), {"weight": ones(3, 3), "bias": ones(3)}),
        ShapeError,
        ["load_state_dict", "(3, 2)", "(3, 3)", "legal is the same"],
    ),
    "optim none": (
        lambda: nn.optim.SGD([], lr=0.1),
        ArgumentError,
        ["SGD", "0 tensors, none wants a gradie"],
    ),
    "optim nongrad": (
        lambda: nn.optim.SGD([Tensor([1])], lr=0.1),
        ArgumentError,
        ["SGD", "1 tensors, none wants a gradie"],
    ),
    "optim not tensor": (
        lambda: nn.optim.SGD([1.0], lr=0.1),
        ArgumentError,
        ["SGD", "legal are tensors"],
    ),
    "optim step no grad": (
        lambda: nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1).step(),
        ArgumentError,
        ["SGD.step", "()", "use it inside `with Tensor.tra"],
    ),
    "neg lr": (
        lambda: nn.optim.SGD([Tensor([1.0], requires_grad=True)], lr=-0.1),
        ArgumentError,
        ["SGD", "legal are numbers from 0"],
    ),
    "linear feats": (
        lambda: nn.Linear(0, -1),
        ShapeError,
        ["rand", "(-1, 0)", "legal are whole numbers from 0"],
    ),
    "conv groups": (
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        ArgumentError,
        ["Conv2d", "legal is what divides both"],
    ),
    "embedding neg": (
        lambda: nn.Embedding(-1, 2),
        ShapeError,
        ["glorot_uniform", "(-1, 2)", "legal are whole numbers from 0"],
    ),
    "mha": (
        lambda: ones(1, 2, 4, 8).scaled_dot_product_attention(ones(1, 2, 4, 7), ones(1, 2, 4, 8)),
        ShapeError,
        ["matmul", "(1, 2, 4, 8)", "(1, 2, 7, 4)", "legal are equal sizes"],
    ),
    "mha mask": (
        lambda: ones(1, 2, 4, 8).scaled_dot_product_attention(
            ones(1, 2, 4, 8), ones(1, 2, 4, 8), attn_mask=ones(3, 3)
        ),
        ShapeError,
        ["add", "(1, 2, 4, 4)", "(3, 3)", "legal are equal sizes, or 1"],
    ),
    "unbound": (
        lambda: ones(8)[: Variable("n", 1, 8)].sum().tolist(),
        ArgumentError,
        ["realize", "(1)", "legal is one with a value from 1 to 8, as .bind("],
    ),
    "float several": (lambda: float(ones(2)), ShapeError, ["item", "(2,)", "legal is one element"]),
    "int several": (lambda: int(ones(2)), ShapeError, ["item", "(2,)", "legal is one element"]),
    "in": (
        lambda: "a" in ones(2),
        DTypeError,
        ["an", "'a'", "legal are tensors, numbers and arrays"],
    ),
    "lt none": (
        lambda: ones(2) < None,
        DTypeError,
        ["an", "legal are tensors, numbers and arrays"],
    ),
    "add none": (
        lambda: ones(2) + None,
        DTypeError,
        ["an", "legal are tensors, numbers and arrays"],
    ),
    "Tensor dict": (
        lambda: Tensor({"a": 1}),
        DTypeError,
        ["Tensor", "'a'", "legal are numbers, nested lists of them, bytes, a"],
    ),
    "Tensor set": (
        lambda: Tensor({1}),
        DTypeError,
        ["Tensor", "legal are numbers, nested lists of them, bytes, a"],
    ),
    "tensor nested none": (
        lambda: Tensor([None]),
        DTypeError,
        ["Tensor", "legal are bool, int, float and arrays"],
    ),
    "order of complex": (lambda: Tensor([1j]).max(), DTypeError, ["max", "complex64"]),
    "huge int": (
        lambda: Tensor([1 << 70]).tolist(),
        DTypeError,
        ["Tensor", "legal are whole numbers of 64 bits, or a float"],
    ),
    "huge int 2": (
        lambda: Tensor(1 << 70).tolist(),
        DTypeError,
        ["Tensor", "legal are whole numbers of 64 bits, or a float"],
    ),
    "np broadcast": (
        lambda: ones(2) + np.ones(3),
        ShapeError,
        ["add", "(2,)", "(3,)", "legal are equal sizes, or 1"],
    ),
    "np object": (
        lambda: ones(2) + np.array([object()]),
        DTypeError,
        ["Tensor", "'object'", "there are bool, int8, uint8, i"],
    ),
    "avg pool": (
        lambda: ones(2, 2).avg_pool2d(3),
        ShapeError,
        ["window", "(2, 2)", "legal are kernels that fit"],
    ),
    "unfold": (
        lambda: ones(3).unfold(0, 5, 1),
        ArgumentError,
        ["unfold", "windows of 5 every 1 of an axi"],
    ),
    "triu axes": (
        lambda: ones(3).triu(),
        ShapeError,
        ["triu", "(3,)", "legal are two axes or more"],
    ),
    "logsumexp axis": (
        lambda: ones(3).logsumexp(2),
        ArgumentError,
        ["logsumexp", "legal are -1 to 0"],
    ),
    "binary_crossentropy shape": (
        lambda: ones(2).binary_crossentropy(ones(3)),
        ShapeError,
        ["mul", "(3,)", "(2,)", "legal are equal sizes, or 1"],
    ),
    "masked empty": (
        lambda: ones(3)[Tensor([False] * 3)].max().tolist(),
        ArgumentError,
        ["max", "(0,)", "of no elements: shape (0,), ax"],
    ),
    "replace shape": (
        lambda: ones(2).replace(ones(3)),
        ShapeError,
        ["replace", "(2,)", "(3,)", "legal is the same shape"],
    ),
    "quantile of complex numbers": (
        lambda: Tensor([1 + 2j, 3]).quantile(0.5),
        DTypeError,
        ["complex64", "legal are real numbers"],
    ),
    "narrow of a number": (
        lambda: Tensor(2).narrow(0, 0, 1),
        ShapeError,
        ["narrow", "()", "legal is one axis"],
    ),
    "geomspace of nan": (
        lambda: Tensor.geomspace(float("nan"), 1, 3),
        ArgumentError,
        ["geomspace", "nan", "legal are numbers of one sign"],
    ),
    "huge": (
        lambda: ones(1 << 40).contiguous().realize(),
        OutOfMemory,
        ["free tensors, or use smaller o"],
    ),
    "huge3": (
        lambda: (ones(1 << 20, 1) * ones(1, 1 << 20)).contiguous().realize(),
        OutOfMemory,
        ["free tensors, or use smaller o"],
    ),
}
