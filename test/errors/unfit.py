"""Arguments of another type, sign or shape than is meant: Python would count with most of them."""

import numpy as np

from tinygrad import Tensor, nn
from tinygrad.base.errors import ArgumentError, DTypeError, IndexCheckError, ShapeError

F, init, optim = nn.functional, nn.init, nn.optim
NAN, INF = float("nan"), float("inf")


def x(*shape):
    return Tensor.ones(*shape)


def rates(of, **how):
    return of(optim.SGD([Tensor([1.0], requires_grad=True)]), **how)


# what is done → parts of the message
TYPES = {
    lambda: x(2, 3).addr(x(2), x(3), beta=np.ones(2)): ["addr: beta=", "ndarray", "legal is float"],
    lambda: x(2, 3).sum(keepdim=2): ["sum", "keepdim=2 of type int", "legal is bool"],
    lambda: x(2, 3).sum(0, 1.0): ["sum", "keepdim=1.0 of type float", "legal is bool"],
    lambda: x(2, 3).topk(2.0): ["topk", "k=2.0 of type float", "legal is int"],
    lambda: x(2, 3).topk(True): ["topk", "k=True of type bool", "legal is int"],
    lambda: x(2, 3).topk(np.float32(2)): ["topk", "of type float32", "legal is int"],
    lambda: x(2, 3).topk(np.bool(True)): ["topk", "of type bool", "legal is int"],
    lambda: x(2, 3).topk(Tensor(1.0)): ["topk", "of type Tensor", "legal is int"],
    lambda: x(2, 3).topk(Tensor([1, 2])): ["topk", "of type Tensor", "legal is int"],
    lambda: x(2, 3).round(decimals=1.0): ["round", "decimals=1.0", "legal is int"],
    lambda: x(3, 3).tril(1.5): ["tril", "diagonal=1.5 of type float", "legal is int"],
    lambda: x(2, 3).unsqueeze(True): ["unsqueeze", "dim=True of type bool", "legal is int"],
    lambda: x(2, 3).add(x(3), alpha=True): ["add", "alpha=True of type bool", "legal is float"],
    lambda: x(2, 3).leaky_relu(True): ["leaky_relu", "neg_slope=True", "legal is float"],
    lambda: x(2, 6).split(True, 1): ["split", "True of type bool", "legal are whole numbers"],
    lambda: x(2, 3).roll(1.5, 0): ["roll", "1.5 of type float", "legal are whole numbers"],
    lambda: x(2, 3).masked_select(x(2, 3)): ["masked_select", "float", "legal are bools"],
    lambda: x(3).masked_scatter(x(3), x(3)): ["masked_scatter", "float", "legal are bools"],
    lambda: x(1, 4, 6, 5).conv2d(x(6, 4, 3, 2), padding=True): ["padding", "True", "whole numbers"],
    lambda: x(1, 4, 6, 5).conv2d(x(6, 4, 3, 2), groups=1.0): ["conv2d", "groups=1.0", "is int"],
    lambda: F.max_pool2d(x(1, 4, 6, 5), True): ["max_pool", "True", "legal"],
    lambda: F.avg_pool2d(x(1, 4, 6, 5), (1.5, 2)): ["avg_pool", "1.5", "legal"],
    lambda: F.interpolate(x(1, 4, 6, 5), (True, 2)): ["interpolate", "True", "legal are numbers"],
    lambda: F.linear(x(2, 3), x(4, 3), True): ["linear", "bias=True", "legal is Tensor"],
    lambda: x(2).softmax(0, "int32"): ["softmax", "as dtypes.int", "legal are floats"],
    lambda: x(2).mean(dtype="int32"): ["mean", "as dtypes.int", "legal are floats"],
    lambda: x(2).int().round(decimals=-1): ["round", "decimals=-1 of dtypes.int", "are floats"],
    lambda: init.uniform_(Tensor([1, 2])): ["init", "dtypes.", "legal are floats"],
    lambda: Tensor.manual_seed(1.5): ["manual_seed", "seed=1.5", "legal is int"],
    lambda: Tensor.where(None, x(2), x(2)): ["where", "None as a condition", "legal is a Tensor"],
    lambda: init.calculate_gain("leaky_relu", True): [
        "calculate_gain",
        "param=True",
        "legal is float",
    ],
}
NUMBERS = {
    lambda: x(2, 3).sum(axis=True): ["sum", "axis True", "legal are -2 to 1"],
    lambda: x().sort(1): ["sort", "axis 1", "legal are -1 to 0"],
    lambda: x().argsort(-3): ["sort", "axis -3", "legal are -1 to 0"],
    lambda: x().cummax(3): ["cummax", "axis 3", "legal are -1 to 0"],
    lambda: x().logcumsumexp(1): ["logcumsumexp", "axis 1", "legal are -1 to 0"],
    lambda: x(0, 3).logcumsumexp(2): ["logcumsumexp", "axis 2", "legal are -2 to 1"],
    lambda: x().index_select(3, Tensor([0])): ["index_select", "axis 3", "legal are -1 to 0"],
    lambda: Tensor([True]) + 2**40: ["add", f"{2**40} as dtypes.int", "a wider dtype"],
    lambda: F.interpolate(x(1, 4, 6, 5), scale_factor=INF): ["interpolate", "inf", "legal is a"],
    lambda: x(3).index_put([None], x(3), True): ["index_put: 1 indices", "legal to accumulate are"],
    lambda: x(3).nanquantile([None]): ["nanquantile: q=[None]", "legal are numbers from 0 to 1"],
    lambda: x(1, 4, 6, 5).conv2d(x(6, 4, 3, 2), stride=True): ["stride", "True", "legal"],
    lambda: x(2).isclose(x(2), rtol=-1): ["isclose", "rtol=-1", "legal are numbers from 0"],
    lambda: x(2).isclose(x(2), atol=-1): ["isclose", "atol=-1", "legal are numbers from 0"],
    lambda: x(2).hardtanh(1, -1): ["hardtanh", "from 1 to -1", "legal is up to max_val"],
    lambda: x(3).vander(-1): ["vander", "N=-1", "legal are numbers from 0"],
    lambda: x(2, 3).renorm(2, 0, NAN): ["renorm", "maxnorm nan"],
    lambda: x(3).quantile([0.5, 1.5]): ["quantile", "q=1.5", "legal are numbers from 0 to 1"],
    lambda: x(3).quantile([NAN]): ["quantile", "q=nan", "legal are numbers from 0 to 1"],
    lambda: F.softshrink(x(2), -1): ["softshrink", "lambd=-1", "legal are numbers from 0"],
    lambda: F.huber_loss(x(2), x(2), delta=0): [
        "huber_loss",
        "delta=0",
        "legal are numbers above 0",
    ],
    lambda: F.huber_loss(x(2), x(2), delta=NAN): ["huber_loss", "delta=nan", "legal"],
    lambda: F.triplet_margin_loss(x(2, 3), x(2, 3), x(2, 3), 0.0): ["margin=0.0", "above 0"],
    lambda: nn.MultiheadAttention(0, 1): ["MultiheadAttention", "0 features", "numbers from 1"],
    lambda: optim.Adagrad([x(2)], initial_accumulator_value=-1): ["Adagrad", "=-1", "from 0"],
    lambda: rates(optim.ConstantLR, factor=2): ["ConstantLR", "factor=2", "from 0 to 1"],
    lambda: rates(optim.LinearLR, start_factor=0): ["LinearLR", "start_factor=0", "above 0"],
    lambda: rates(optim.LinearLR, start_factor=2): ["LinearLR", "start_factor=2", "from 0 to 1"],
    lambda: rates(optim.LinearLR, end_factor=-1): ["LinearLR", "end_factor=-1", "from 0 to 1"],
    lambda: x(2, 3).flatten(1, 0): ["flatten", "axes 1 to 0", "legal is up to end_dim"],
    lambda: x(2).logit(0.7): ["logit", "eps=0.7", "legal are numbers from 0 to 0.5"],
    lambda: x(2).celu(0): ["celu", "alpha=0", "legal is any other number"],
    lambda: x(9).histc(4, -1, INF): ["histc", "from -1 to inf", "legal"],
    lambda: x(2, 3).cdist(x(4, 3), -1): ["cdist", "p=-1", "legal are numbers from 0"],
    lambda: x(2, 3).pad((1, 1), "reflect", 0.5): ["pad", "value=0.5", "legal is mode='constant'"],
    lambda: Tensor.tril_indices(-1, 3): ["tril_indices", "row=-1", "legal are numbers from 0"],
    lambda: Tensor.triu_indices(3, -1): ["triu_indices", "col=-1", "legal are numbers from 0"],
    lambda: Tensor.uniform(2, high=INF): ["uniform", "from 0.0 to inf", "legal is low up to high"],
    lambda: init.trunc_normal_(x(2), std=0): [
        "trunc_normal_",
        "std=0",
        "legal are numbers above 0",
    ],
    lambda: F.pdist(x(3, 4), -1): ["pdist", "p=-1", "legal are numbers from 0"],
    lambda: F.lp_pool1d(x(1, 4), INF, 2): ["lp_pool1d", "norm_type inf", "legal is any other"],
    lambda: F.lp_pool1d(x(1, 4), np.ones(2), 2): ["lp_pool1d", "array", "legal are numbers"],
    lambda: F.cosine_similarity(x(2, 3), x(2, 3), 1, -1): ["cosine_similarity", "eps=-1", "from 0"],
    lambda: F.ctc_loss(x(6, 2, 4), x(2, 1).int(), [6, 6], [1, 1], -1): [
        "ctc_loss",
        "blank=-1",
        "0 to 3",
    ],
    lambda: rates(optim.PolynomialLR, power=-1): ["PolynomialLR", "power=-1", "from 0"],
    lambda: optim.Rprop([x(2)], etas=(1,)): ["Rprop", "etas=(1,)", "legal are pairs"],
}
SHAPES = {
    lambda: x(1, 1, 4, 4).interpolate((4, 4), scales=[]): [
        "interpolate: scales []",
        "legal is one",
    ],
    lambda: x(2, 3).pad((True, 1)): ["pad", "True of type bool", "legal are whole numbers"],
    lambda: x(3).cross(x(1)): ["cross", "(1,)", "legal is an axis of size 3"],
    lambda: init.orthogonal_(x(3)): ["orthogonal_", "(3,)", "legal are two axes or more"],
    lambda: F.gaussian_nll_loss(x(2, 3), x(2, 3), x(3)): ["var (3,)", "(2, 3) and (2,)"],
    lambda: F.soft_margin_loss(x(2, 3), x(3)): ["soft_margin_loss", "(3,)", "legal is one shape"],
    lambda: F.cosine_embedding_loss(x(3), x(2, 3), x(2)): ["cosine_embedding", "as many axes"],
    lambda: F.triplet_margin_loss(x(2, 3), x(3), x(3)): ["triplet", "(3,)", "as many axes"],
    lambda: F.margin_ranking_loss(x(3), x(3), x(2, 3)): ["margin_ranking", "as many axes"],
    lambda: nn.MultiheadAttention(4, 2)(x(3, 2, 4), x(5, 4), x(5, 4)): ["key (5, 4)", "legal are"],
    lambda: x(3).cross(x()): ["cross", "()", "legal is an axis of size 3"],
    lambda: x(3, 3).index_fill(0, Tensor([0]), (1, 2)): [
        "index_fill",
        "(2,)",
        "legal is one number",
    ],
    lambda: x(1).expand(-1, 1): ["expand", "(1,) to (-1, 1)", "legal are sizes from 0"],
    lambda: x(1).tile(-1, 1): ["repeat", "(-1, 1)", "legal are numbers from 0"],
    lambda: x(0, 3).reshape(0, -1): ["reshape", "-1 beside (0,)", "any would do"],
    lambda: x(0, 3).unflatten(1, (2, -1)): ["unflatten", "3 as (2, -1)", "legal are its factors"],
    lambda: x().index_add(0, Tensor([0, 0]), x()): ["index_add", "source of ()", "legal is"],
    lambda: Tensor.einsum("ii", x(2, 3)): ["einsum", "'i' twice", "(2, 3)", "legal is one size"],
    lambda: x(0, 3).unflatten(1, (2, 2)): ["unflatten", "3 as (2, 2)", "legal are its factors"],
    lambda: x(1, 4, 6, 5).conv2d(x(6, 4, 0, 2)): [
        "conv2d",
        "(6, 4, 0, 2)",
        "legal are kernels from 1",
    ],
    lambda: F.rms_norm(x(3, 1), (5,), x(5)): ["rms_norm", "(3, 1)", "legal is (.., *(5,))"],
    lambda: F.bilinear(x(2, 3), x(2, 4), x(5, 3, 4), x(1)): [
        "Bilinear",
        "bias (1,)",
        "legal is (5,)",
    ],
    lambda: F.nll_loss(x(3, 5), x(3).int(), x(1)): ["nll_loss", "weight (1,)", "legal is (5,)"],
    lambda: F.cross_entropy(x(3, 5), x(3, 5), x(1)): [
        "cross_entropy",
        "weight (1,)",
        "legal is (5,)",
    ],
    lambda: F.binary_cross_entropy(x(3), x(3), x(2, 1)): ["binary_cross_entropy", "one shape"],
    lambda: F.binary_cross_entropy_with_logits(x(3), x(3), x(2, 1)): ["with_logits", "one shape"],
    lambda: F.binary_cross_entropy_with_logits(x(3), x(3), pos_weight=x(2, 1)): [
        "(2, 3)",
        "one shape",
    ],
    lambda: F.grid_sample(x(1, 2, 4, 4), x()): ["grid_sample", "grid ()", "legal are"],
}
TOLD = {  # by a warning, as in PyTorch: legal, and seldom meant
    lambda: F.mse_loss(x(3, 1), x(3)): ["mse_loss", "(3, 1)", "(3,)", "seldom meant"],
    lambda: F.l1_loss(x(3, 1), x(3)): ["l1_loss", "(3, 1)", "(3,)", "seldom meant"],
    lambda: F.huber_loss(x(3, 1), x(3)): ["huber_loss", "(3, 1)", "(3,)", "seldom meant"],
}

MISUSES = {
    " ".join(parts): (misuse, error, parts)
    for error, rows in (
        (DTypeError, TYPES),
        (ArgumentError, NUMBERS),
        (ShapeError, SHAPES),
        (UserWarning, TOLD),
    )
    for misuse, parts in rows.items()
}
MISUSES["class below 0 in a margin"] = (
    lambda: F.multi_margin_loss(x(3, 5), Tensor([0, -1, 2])).item(),
    IndexCheckError,
    ["multi_margin_loss", "-1", "legal are 0 to 4"],
)
MISUSES["place in one number"] = (
    lambda: x().index_fill(0, Tensor([0, 1]), 2.0).item(),
    IndexCheckError,
    ["index 1 is out of range", "legal are -1 to 0"],
)
