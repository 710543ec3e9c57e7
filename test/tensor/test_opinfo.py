"""PyTorch's own table of operations as the judge: for its samples of each operation that has a
function here, results and gradients are PyTorch's, or the call is refused. A refusal is no silent
wrong answer; what is refused is tested elsewhere."""

import itertools
import warnings

import numpy as np
import pytest
import torch

import tinygrad.nn.functional as F  # noqa: N812
from tinygrad import Tensor, dtypes
from tinygrad.base.errors import TinygradError

KINDS = ("float32", "int64", "bool", "complex64", "uint8")
TOLERANCE = 3e-4  # of results that are no whole numbers

PLACES = {"": Tensor, "linalg": Tensor, "special": Tensor, "nn.functional": F}
"""Where the functions of a module of PyTorch's are."""

OTHERWISE = {
    "is random, or undefined": (
        *("bernoulli", "multinomial", "normal", "uniform", "exponential", "poisson", "randperm"),
        *("rand_like", "randn_like", "randint", "randn", "empty", "empty_like", "new_empty"),
        *(f"nn.functional.{n}dropout" for n in ("", "alpha_", "feature_alpha_")),
        *("nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.rrelu"),
        *("native_dropout", "nn.functional.scaled_dot_product_attention"),  # with dropout
    ),
    "means what tinygrad's means": ("max", "min", "qr", "linalg.qr", "arange"),
    "means what NumPy's means": ("linalg.vander", "linspace", "logspace", "gradient"),
    "is of vectors here": ("linalg.norm",),
    "makes what holds both of bools, whole numbers and a float": (
        "masked_fill",
        *("addmv", "addbmm", "baddbmm", "addmm", "addr", "add", "sub", "rsub"),
        *("nn.functional.hardtanh", "nn.functional.pad", "nn.functional.local_response_norm"),
        *(f"nn.functional.avg_pool{n}d" for n in (1, 2, 3)),
    ),
    "keeps bools, and whole weights whole": ("square", "bincount", "sum_to_size"),
    "may choose among equals, or a sign": (
        *("sort", "argsort", "topk", "kthvalue", "msort", "mode", "median", "nanmedian"),
        *("linalg.eig", "linalg.eigh", "linalg.svd", "svd"),
    ),
    "is more exact, or of numbers in the thousands": ("matrix_exp", "logcumsumexp"),
    "has no gradient of what the result doesn't depend on": (
        *("cholesky_solve", "nn.functional.ctc_loss", "nextafter"),
        *(f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)),
    ),
    "has no axis to be nonzero along": ("nonzero",),
    "has its condition elsewhere in the table": ("where",),
}
"""What gives something else than PyTorch on purpose, by what it does."""

OF_KIND = {
    "uint8": (
        *("sum", "nansum", "prod", "cumsum", "cumprod", "trace", "nn.functional.bilinear"),  # wide
        *("any", "all", "unravel_index"),  # bools, and places
        *("nn.functional.interpolate", "nn.functional.upsample_bilinear"),  # fixed point there
    ),
}
"""The same of one dtype: sums of small whole numbers are of a wider type, as in tinygrad."""

PARTS = 8  # of the table, so that workers share it


def operations(part):
    """Those of PyTorch's operations that have a function here."""
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds

    accepted = {name for names in OTHERWISE.values() for name in names}
    for op in op_db[part::PARTS]:
        place, _, name = op.name.rpartition(".")
        function = getattr(PLACES.get(place), name, None)
        if op.name not in accepted and callable(function):
            yield op, function


def given(x, pairs):
    """A sample's argument for us; `pairs` gets each of PyTorch's tensors with ours."""
    if isinstance(x, torch.Tensor):
        mine = Tensor(array(x).copy())
        mine.requires_grad = True if x.requires_grad else None
        pairs.append((x, mine))
        return mine
    if isinstance(x, (list, tuple)):
        return (list if isinstance(x, list) else tuple)(given(part, pairs) for part in x)
    return str(x).removeprefix("torch.") if isinstance(x, torch.dtype) else x


def flat(x):
    if isinstance(x, (list, tuple)):
        return list(itertools.chain.from_iterable(map(flat, x)))
    return [x]


def array(theirs):
    plain = theirs.detach().resolve_conj().resolve_neg()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()


def difference(mine, theirs):
    """What tells a result from PyTorch's; an empty text if nothing does."""
    if not isinstance(theirs, torch.Tensor):
        value = mine.item() if isinstance(mine, Tensor) else mine
        return "" if value == theirs or isinstance(theirs, torch.dtype) else f"{value}, {theirs}"
    if mine is None:
        return "" if not theirs.abs().max() else f"None, {theirs}"
    if mine.shape != tuple(theirs.shape):
        return f"shape {mine.shape}, {tuple(theirs.shape)}"
    narrow = theirs.dtype is torch.bfloat16 and mine.dtype is dtypes.bfloat16
    found, wanted = (mine.float() if narrow else mine).numpy(), array(theirs)
    tolerance = 0 if wanted.dtype.kind in "iub" else TOLERANCE
    if not np.allclose(found, wanted, tolerance, tolerance, equal_nan=True):
        return f"{found}, {wanted}"
    places = (np.dtype("int32"), np.dtype("int64"))  # ours, theirs
    return "" if found.dtype == wanted.dtype or (found.dtype, wanted.dtype) == places else "dtype"


def gradients(results, leaves):
    """Of a weighted sum of results, by PyTorch and by us."""
    pairs = [(t, m) for t, m in results if isinstance(t, torch.Tensor) and t.requires_grad]
    total, goal = Tensor(0.0), torch.tensor(0.0)
    for theirs, mine in pairs:
        weights = np.sin(np.arange(1, theirs.numel() + 1)).reshape(tuple(theirs.shape))
        weights = weights.astype(array(theirs).real.dtype)
        total = total + (mine * Tensor(weights)).real.sum()
        goal = goal + (theirs * torch.tensor(weights)).real.sum()
    leaves = [(t, m) for t, m in leaves if t.requires_grad]
    if not pairs or not leaves:
        return []
    wanted = torch.autograd.grad(goal, [t for t, _ in leaves], allow_unused=True)
    total.backward()
    found = [mine.grad for _, mine in leaves]
    return [(w, f) for w, f in zip(wanted, found, strict=True) if w is not None and w.numel()]


def problems(op, function, kind, most):
    """What differs in the samples of an operation, at most `most` of them."""
    dtype = getattr(torch, kind)
    if dtype not in op.dtypes or op.name in OF_KIND.get(kind, ()):
        return
    differentiable = dtype.is_floating_point and op.supports_autograd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for sample in itertools.islice(samples, most):
            pairs = []
            try:
                arguments = given((sample.input, *sample.args), pairs)
                named = {name: given(x, pairs) for name, x in sample.kwargs.items()}
                named.pop("device", None)
                mine = flat(function(*arguments, **named))
            except (TinygradError, TypeError):
                continue  # refused
            theirs = flat(op(sample.input, *sample.args, **sample.kwargs))
            if len(mine) != len(theirs):
                yield f"{op.name}{sample.summary()}: {len(mine)} results of {len(theirs)}"
                continue
            results = list(zip(theirs, mine, strict=True))
            for wanted, found in (*results, *gradients(results, pairs)):
                if text := difference(found, wanted):
                    yield f"{op.name}{sample.summary()}: {text}"


@pytest.mark.parametrize("part", [0, 4])  # the others, too, with all their samples: below
def test_one_sample_of_each_operation(part):
    for op, function in operations(part):
        assert not list(problems(op, function, "float32", 1))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_each_operation(kind, part):
    for op, function in operations(part):
        assert not list(problems(op, function, kind, 40))
