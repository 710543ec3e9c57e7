"""Misuses that were once silent: they gave some number, or died in the words of Python."""

from tinygrad import Tensor, TinyJit, Variable, nn
from tinygrad.base.errors import (
    ArgumentError,
    DTypeError,
    IndexCheckError,
    JitError,
    RuntimeCheckError,
    ShapeError,
)


def with_symbolic_axis():
    return Tensor.ones(8).contiguous().realize()[: Variable("n", 1, 8).bind(3)]


def wanting():
    return [Tensor([1.0], requires_grad=True)]


def step_by(gradient):
    (weight,) = wanting()
    weight.grad = gradient
    with Tensor.train():
        nn.optim.SGD([weight], lr=0.1).step()


def jit_that_looks_at_a_variable():
    step = TinyJit(lambda x, n: (x + n.val).realize())
    for k in (1, 2, 3):
        step(Tensor([1.0]).realize(), Variable("n", 1, 8).bind(k))


def jit_with_negative_weights():
    step = TinyJit(lambda w: w.multinomial(2, replacement=True).realize())
    for first in (1.0, 1.0, 1.0, -1.0):
        chosen = step(Tensor([first, 2.0]).realize())
    chosen.tolist()


def gradient_by_what_wants_none():
    x = Tensor([1.0, 2.0]).detach()
    return (x * Tensor([3.0, 4.0], requires_grad=True)).sum().gradient(x)


def gradient_of_what_wants_none():
    x = Tensor([1.0, 2.0], requires_grad=True)
    return (x.detach() * 2).sum().gradient(x)


def writing(kind, number):
    Tensor([1, 2], dtype=kind)[0] = number


# what would have wrapped, or become another number: an integer dtype doesn't hold it
NUMBERS = {
    "Tensor": (lambda: Tensor([1, 300], dtype="uint8"), "300 as dtypes.uchar", "0 to 255"),
    "Tensor of one": (lambda: Tensor(-1, dtype="uint8"), "-1 as dtypes.uchar", "0 to 255"),
    "Tensor of a long": (lambda: Tensor([2**63]), f"{2**63} as dtypes.long", "a wider dtype"),
    "Tensor of no number": (
        lambda: Tensor([1, float("nan"), 2], dtype="int32"),
        "nan as dtypes.int",
        "-2147483648 to",
    ),
    "full": (
        lambda: Tensor.full((2,), 1e20, dtype="int32"),
        "1e+20 as dtypes.int",
        "to 2147483647",
    ),
    "full_like": (lambda: Tensor([1], dtype="uint8").full_like(-1), "-1 as dtypes.uchar", "to 255"),
    "arange": (lambda: Tensor.arange(250, 260, dtype="uint8"), "259 as dtypes.uchar", "to 255"),
    "pad": (lambda: Tensor([1], dtype="int8").pad((1, 1), value=300), "300 as dtypes.char", "127"),
    "scatter": (
        lambda: Tensor([1], dtype="int8").scatter(0, Tensor([0]), 300),
        "300 as dtypes.char",
        "-128 to 127",
    ),
    "index_fill": (
        lambda: Tensor([1], dtype="int8").index_fill(0, Tensor([0]), -129),
        "-129 as dtypes.char",
        "-128 to 127",
    ),
    "setitem": (lambda: writing("uint8", -1), "-1 as dtypes.uchar", "0 to 255"),
    "setitem of no number": (lambda: writing("int32", float("nan")), "nan as dtypes.int", "legal"),
    "fill_": (lambda: Tensor([1], dtype="int8").fill_(300), "300 as dtypes.char", "-128 to 127"),
    "assign": (lambda: Tensor([1], dtype="int8").assign(300), "300 as dtypes.char", "legal"),
}

# name → (what is done, the error, parts of its message)
MISUSES = {
    **{
        f"{name} with what a dtype doesn't hold": (wrong, ArgumentError, parts)
        for name, (wrong, *parts) in NUMBERS.items()
    },
    "gradient by what wants none": (
        gradient_by_what_wants_none,
        ArgumentError,
        ["gradient", "(2,)", "requires_grad=False", "legal are tensors that say True"],
    ),
    "gradient of what wants none": (
        gradient_of_what_wants_none,
        ArgumentError,
        ["backward", "requires_grad=False", "detach", "call backward there"],
    ),
    "shift by a negative number": (
        lambda: Tensor([1, 2]) << -1,
        ArgumentError,
        ["<<", "-1 places", "legal are numbers from 0"],
    ),
    "shift back by a negative number": (
        lambda: Tensor([1, 2]) >> -3,
        ArgumentError,
        [">>", "-3 places", "legal"],
    ),
    "shift by numbers of which one is negative": (
        lambda: (Tensor([1, 2]) << Tensor([1, -1])).tolist(),
        RuntimeCheckError,
        ["<<", "-1 places", "legal are numbers from 0"],
    ),
    "shift of a number by negative ones": (
        lambda: (1 << Tensor([3, -2])).tolist(),
        RuntimeCheckError,
        ["<<", "-2 places", "legal"],
    ),
    "clamp to what a dtype doesn't hold": (
        lambda: Tensor([100], dtype="int8").clamp(0, 1000),
        ArgumentError,
        ["clamp", "1000 as dtypes.char", "holds -128 to 127", "or a wider dtype"],
    ),
    "fill with what a dtype doesn't hold": (
        lambda: Tensor([1, 2], dtype="uint8").masked_fill(Tensor([True, False]), -1),
        ArgumentError,
        ["where", "-1 as dtypes.uchar", "holds 0 to 255"],
    ),
    "remainder by what a dtype doesn't hold": (
        lambda: Tensor([100], dtype="int8") % 1000,
        ArgumentError,
        ["%", "1000 as dtypes.char", "holds -128 to 127"],
    ),
    "shift by what a dtype doesn't hold": (
        lambda: Tensor([1], dtype="uint8") << 256,
        ArgumentError,
        ["<<", "256 as dtypes.uchar", "holds 0 to 255"],
    ),
    "seed as a generator": (
        lambda: Tensor.rand(3, generator=0),
        ArgumentError,
        ["generator 0", "legal are None and a Generator(seed)"],
    ),
    "layer of a negative size": (
        lambda: nn.Linear(-3, 2),
        ShapeError,
        ["size -3", "legal are whole numbers from 0"],
    ),
    "optimizer whose average grows": (
        lambda: nn.optim.Adam(wanting(), b1=1.5),
        ArgumentError,
        ["Adam", "b1 1.5", "legal are numbers from 0 to below 1"],
    ),
    "optimizer whose average is no number": (
        lambda: nn.optim.AdamW(wanting(), b2=float("nan")),
        ArgumentError,
        ["AdamW", "b2 nan", "legal"],
    ),
    "optimizer with a negative rate": (
        lambda: nn.optim.SGD(wanting(), lr=-0.1),
        ArgumentError,
        ["SGD", "lr -0.1", "legal are numbers from 0"],
    ),
    "optimizer with negative momentum": (
        lambda: nn.optim.SGD(wanting(), lr=0.1, momentum=-1.0),
        ArgumentError,
        ["SGD", "momentum -1.0", "legal"],
    ),
    "gradient on another device": (
        lambda: step_by(Tensor([1.0], device="PYTHON")),
        ArgumentError,
        ["SGD.step: parameter 0", "gradient (1,) on PYTHON", "legal is the parameter's"],
    ),
    "gradient that would broadcast": (
        lambda: step_by(Tensor(1.0)),
        ArgumentError,
        ["SGD.step: parameter 0 has shape (1,)", "gradient ()", "legal is the parameter's"],
    ),
    "optimizer with negative weight decay": (
        lambda: nn.optim.Lion(wanting(), weight_decay=-1.0),
        ArgumentError,
        ["Lion", "weight_decay -1.0", "legal"],
    ),
    "option of a float where a bool is meant": (
        lambda: nn.BatchNorm2d(3, 1e-5, 0.1),
        DTypeError,
        ["BatchNorm: affine=0.1 of type float", "legal is bool"],
    ),
    "option of a bool where a number is meant": (
        lambda: nn.functional.leaky_relu(Tensor.ones(2), True),
        DTypeError,
        ["leaky_relu: negative_slope=True of type bool", "legal is float"],
    ),
    "limit that is no number": (
        lambda: Tensor([1.0]).clamp(-1.0, float("nan")),
        ArgumentError,
        ["clamp", "nan as a limit", "legal"],
    ),
    "cross-entropy of other shapes": (
        lambda: nn.functional.binary_cross_entropy(Tensor.ones(2, 3), Tensor.ones(3)),
        ShapeError,
        ["binary_cross_entropy", "(2, 3)", "(3,)", "legal is one shape"],
    ),
    "a target that is no chance": (
        lambda: nn.functional.binary_cross_entropy(Tensor.ones(2) / 2, Tensor([0.5, 1.5])).item(),
        RuntimeCheckError,
        ["binary_cross_entropy", "a target outside 0 to 1"],
    ),
    "length of a symbolic axis": (
        lambda: len(with_symbolic_axis()),
        TypeError,
        ["len", "n[1..8]=3", "legal is a number"],
    ),
    "iteration over a symbolic axis": (
        lambda: list(with_symbolic_axis()),
        TypeError,
        ["len", "n[1..8]=3", "legal is a number"],
    ),
    "a chance that is none": (
        lambda: nn.functional.binary_cross_entropy(Tensor([0.5, 1.5]), Tensor([1.0, 0.0])).item(),
        RuntimeCheckError,
        ["binary_cross_entropy", "a probability outside 0 to 1"],
    ),
    "a chance that is NaN, in a layer's loss that is summed": (
        lambda: nn.BCELoss(reduction="sum")(Tensor([float("nan")]), Tensor([1.0])).item(),
        RuntimeCheckError,
        ["binary_cross_entropy", "a probability outside 0 to 1"],
    ),
    "boundaries in rows": (
        lambda: Tensor.ones(2, 3).bucketize(Tensor([[1, 3], [2, 5]])),
        ShapeError,
        ["bucketize: boundaries (2, 2)", "legal is one axis", "searchsorted"],
    ),
    "batch norm of one value a channel, without averages": (
        lambda: nn.functional.batch_norm(Tensor.ones(1, 2), None, None, training=True),
        ShapeError,
        ["(1, 2) has one value a channel", "legal are two or more"],
    ),
    "group norm of one value a group": (
        lambda: nn.functional.group_norm(Tensor.ones(1, 4), 4),
        ShapeError,
        ["group_norm: x (1, 4) has one value in each of 4 groups", "legal are two or more"],
    ),
    "instance norm of one value a channel, without averages": (
        lambda: nn.InstanceNorm2d(3)(Tensor.ones(2, 3, 1, 1)),
        ShapeError,
        ["instance_norm: x (2, 3, 1, 1) has one value a channel"],
    ),
    "a bool for a size": (
        lambda: Variable("n", 1, 8).bind(True),
        DTypeError,
        ["bind: n to True of type bool", "legal are ints"],
    ),
    "a negative variance": (
        lambda: nn.functional.gaussian_nll_loss(
            Tensor.ones(2), Tensor.ones(2), Tensor([0.5, -1.0])
        ).item(),
        RuntimeCheckError,
        ["gaussian_nll_loss", "a var below 0"],
    ),
    "norm with a negative eps": (
        lambda: nn.functional.group_norm(Tensor.ones(2, 4, 5), 2, eps=-1.0),
        ArgumentError,
        ["group_norm", "eps=-1.0", "legal are numbers from 0"],
    ),
    "optimizer whose share is none": (
        lambda: nn.optim.RMSprop(wanting(), alpha=-0.5),
        ArgumentError,
        ["RMSprop", "alpha -0.5", "legal are numbers from 0 to below 1"],
    ),
    "optimizer with an endless option": (
        lambda: nn.optim.NAdam(wanting(), momentum_decay=float("inf")),
        ArgumentError,
        ["NAdam", "momentum_decay inf", "legal"],
    ),
    "in place of what wants a gradient": (
        lambda: nn.functional.relu(wanting()[0], inplace=True),
        ArgumentError,
        ["in place: this needs a gradient", "legal are a copy of it"],
    ),
    "windows in the padding": (
        lambda: nn.functional.max_pool2d(Tensor.ones(1, 1, 4, 4), 2, 2, 2),
        ShapeError,
        ["max_pool2d: padding (2, 2) of windows (2, 2)", "legal is up to half a window"],
    ),
    "means of padding": (
        lambda: nn.AvgPool1d(3, 1, 2)(Tensor.ones(1, 1, 4)),
        ShapeError,
        ["avg_pool1d: padding (2,) of windows (3,)", "legal"],
    ),
    "padding that cuts windows off": (
        lambda: nn.functional.max_pool1d(Tensor.ones(1, 4), 2, 2, -1),
        ShapeError,
        ["max_pool1d: padding (-1,)", "legal"],
    ),
    "weight of a norm that broadcasts": (
        lambda: nn.functional.layer_norm(Tensor.ones(2, 4), (4,), Tensor.ones(1)),
        ShapeError,
        ["layer_norm: a weight", "(1,); legal is (4,)"],
    ),
    "weight of rms_norm that broadcasts": (
        lambda: nn.functional.rms_norm(Tensor.ones(2, 4), (4,), Tensor.ones(2, 4)),
        ShapeError,
        ["rms_norm", "(2, 4); legal is (4,)"],
    ),
    "bias of groups": (
        lambda: nn.functional.group_norm(Tensor.ones(2, 4, 3), 2, None, Tensor.ones(2, 2)),
        ShapeError,
        ["group_norm", "(2, 2); legal is (4,)"],
    ),
    "average of another number of channels": (
        lambda: nn.functional.batch_norm(Tensor.ones(2, 4, 3), Tensor.ones(1), Tensor.ones(4)),
        ShapeError,
        ["batch_norm: a weight, bias or average (1,); legal is (4,)"],
    ),
    "weight of instances that broadcasts": (
        lambda: nn.functional.instance_norm(Tensor.ones(2, 4, 3), weight=Tensor.ones(1)),
        ShapeError,
        ["instance_norm", "(1,); legal is (4,)"],
    ),
    "places that are a number": (
        lambda: Tensor([1.0]).index_put(float("nan"), 3),
        DTypeError,
        ["index_put: indices=nan of type float", "legal is tuple"],
    ),
    "einsum with a sign that is no letter": (
        lambda: Tensor.einsum("i?->i", Tensor.ones(2, 3)),
        ArgumentError,
        ["einsum", "'i?->i'", "'?' names no axis", "legal are letters"],
    ),
    "einsum with a digit": (
        lambda: Tensor.einsum("i1->i", Tensor.ones(2, 3)),
        ArgumentError,
        ["einsum", "'1' names no axis"],
    ),
    "einsum with two arrows": (
        lambda: Tensor.einsum("ij->i->j", Tensor.ones(2, 3)),
        ArgumentError,
        ["einsum", "'-' names no axis"],
    ),
    "gather beyond the end of a constant": (
        lambda: Tensor.full((4,), 7.0).gather(0, Tensor([9])).tolist(),
        IndexCheckError,
        ["index 9", "axis 0", "legal are -4 to 3"],
    ),
    "index beyond the end of a constant": (
        lambda: Tensor.ones(4, 2)[Tensor([0, 4])].tolist(),
        IndexCheckError,
        ["index 4", "axis 0", "legal"],
    ),
    "index beyond the end of what is repeated": (
        lambda: Tensor([[1.0, 2.0]]).expand(4, 2)[Tensor([0, 4])].tolist(),
        IndexCheckError,
        ["index 4", "axis 0", "legal are -4 to 3"],
    ),
    "index beyond the end of a constant that was computed": (
        lambda: (ones := Tensor.ones(4, 2)).tolist() and ones[Tensor([0, 4])].tolist(),
        IndexCheckError,
        ["index 4", "axis 0", "legal are -4 to 3"],
    ),
    "gather beyond the end of what is repeated": (
        lambda: Tensor([[1.0, 2.0]]).expand(4, 2).gather(0, Tensor([[9]])).tolist(),
        IndexCheckError,
        ["index 9", "axis 0", "legal are -4 to 3"],
    ),
    "index beyond the end of what is counted": (
        lambda: Tensor.arange(4)[Tensor([9])].tolist(),
        IndexCheckError,
        ["index 9", "legal are -4 to 3"],
    ),
    "a variable's value read in a captured step": (
        jit_that_looks_at_a_variable,
        JitError,
        ["variable 'n'", "inside the captured step", "legal is to compute with the variable"],
    ),
    "negative weights in a captured step": (
        jit_with_negative_weights,
        RuntimeCheckError,
        ["multinomial", "negative"],
    ),
    "roll of a symbolic axis": (
        lambda: with_symbolic_axis().roll(2),
        ShapeError,
        ["roll", "by 2", "symbolic size, of 1 to 8", "legal are shifts of up to 1"],
    ),
    "split of a symbolic axis": (
        lambda: with_symbolic_axis().split(2),
        ShapeError,
        ["split", "axis 0", "symbolic size", "legal"],
    ),
    "chunk of a symbolic axis": (
        lambda: with_symbolic_axis().chunk(2),
        ShapeError,
        ["chunk", "axis 0", "symbolic size", "legal"],
    ),
    "unbind of a symbolic axis": (
        lambda: with_symbolic_axis().unbind(),
        ShapeError,
        ["unbind", "axis 0", "symbolic size", "legal"],
    ),
}
