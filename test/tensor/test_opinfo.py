"""PyTorch's own table of operations as the judge: for its samples of each operation that has a
function here, results and gradients are PyTorch's, or the call is refused. A refusal is no silent
wrong answer; what is refused is tested elsewhere."""

import contextlib
import itertools
import re
import warnings

import numpy as np
import pytest
import torch

import tinygrad.nn.functional as F  # noqa: N812
from tinygrad import Tensor, dtypes
from tinygrad.base.errors import TinygradError

KINDS = ("float32", "int64", "bool", "complex64", "uint8", "float16", "bfloat16")
TOLERANCE = 3e-4  # of results that are no whole numbers

NARROW = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""Types of which PyTorch in float64 is a judge, too: in their own it rounds and overflows elsewhere
on the way. Each with the unit of its last place."""
UNITS = 4
"""How many such units a result may be off, of the largest number beside it: in its own tensor, or,
if it may be a sum (gradients are), in all arguments, results and gradients."""

PLACES = {"": Tensor, "linalg": Tensor, "special": Tensor, "nn.functional": F}
"""Where the functions of a module of PyTorch's are."""

OTHERWISE = {
    "is random, or undefined": (
        *("bernoulli", "multinomial", "normal", "uniform", "exponential", "poisson", "randperm"),
        *("rand_like", "randn_like", "randint", "randn", "empty", "empty_like", "new_empty"),
        *(f"nn.functional.{n}dropout" for n in ("", "alpha_", "feature_alpha_")),
        *("nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.rrelu"),
        *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
        *("native_dropout", "nn.functional.scaled_dot_product_attention"),  # with dropout
        "nn.functional.multi_head_attention_forward",  # the same, where a gradient is wanted
    ),
    "means what tinygrad's means": ("max", "min", "qr", "linalg.qr", "arange"),
    "means what NumPy's means": ("linalg.vander", "linspace", "logspace", "gradient"),
    "is of vectors here": ("linalg.norm",),
    "gives all results, whatever a driver leaves out": ("linalg.lstsq",),
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
    "is given a function of PyTorch's": ("nn.functional.triplet_margin_with_distance_loss",),
}
"""What gives something else than PyTorch on purpose, by what it does."""

POOLS = tuple(f"nn.functional.{n}max_pool{axes}d" for n in ("", "adaptive_") for axes in (1, 2, 3))
OF_KIND = {
    "uint8": (
        "einsum",  # as NumPy's, where PyTorch sums without a product
        *("sum", "nansum", "prod", "cumsum", "cumprod", "trace", "nn.functional.bilinear"),  # wide
        *("any", "all", "unravel_index"),  # bools, and places
        *("nn.functional.interpolate", "nn.functional.upsample_bilinear"),  # fixed point there
    ),
    "float16": POOLS,
    "bfloat16": (*POOLS, "nn.functional.grid_sample", "special.ndtr"),
}
"""The same of one dtype: sums of small whole numbers are of a wider type, as in tinygrad; equal
numbers, of which narrow types have more, share the gradient of their maximum, and more of them lie
where a border has no slope, or another one; what is 0 in PyTorch may be less."""

SWAPPED = {"einsum", "nn.functional.embedding", "nn.functional.embedding_bag"}
"""What has its first two arguments the other way round in the table."""

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


def mapped(x, change):
    """Arguments, with `change` of each tensor and dtype among them."""
    if isinstance(x, (list, tuple)):
        return (list if isinstance(x, list) else tuple)(mapped(part, change) for part in x)
    if isinstance(x, dict):
        return {name: mapped(part, change) for name, part in x.items()}
    return change(x) if isinstance(x, (torch.Tensor, torch.dtype)) else x


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def ours(x):
    if isinstance(x, torch.dtype):
        return name_of(x)
    mine = Tensor(array(x).copy())
    if x.dtype is torch.bfloat16:
        mine = mine.cast("bfloat16").realize()
    mine.requires_grad = True if x.requires_grad else None
    return mine


def wide(x):
    """In float64, if it is narrow."""
    if isinstance(x, torch.dtype):
        return torch.float64 if x in NARROW else x
    return x.detach().double().requires_grad_(x.requires_grad) if x.dtype in NARROW else x


def flat(x):
    if isinstance(x, (list, tuple, dict)):
        parts = x.values() if isinstance(x, dict) else x
        return list(itertools.chain.from_iterable(map(flat, parts)))
    return [x]


def array(theirs):
    plain = theirs.detach().resolve_conj().resolve_neg()
    return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy(force=True)


def difference(mine, judges, dtype, tolerance):
    """What tells a result from all of PyTorch's, that has this dtype; an empty text if nothing
    does."""
    theirs = judges[0]
    if not isinstance(theirs, torch.Tensor):
        value = mine.item() if isinstance(mine, Tensor) else mine
        return "" if value == theirs or isinstance(theirs, torch.dtype) else f"{value}, {theirs}"
    if mine is None:
        return "" if not theirs.abs().max() else f"None, {theirs}"
    if mine.shape != tuple(theirs.shape):
        return f"shape {mine.shape}, {tuple(theirs.shape)}"
    found = (mine.float() if mine.dtype is dtypes.bfloat16 else mine).numpy()
    right = False
    for judge in judges:
        wanted = array(judge.to(dtype))  # infinite where that overflows
        near = 0 if wanted.dtype.kind in "iub" else tolerance
        relative = 0 if dtype in NARROW else near
        right |= np.isclose(found, wanted, relative, near, equal_nan=True)
    if not np.all(right):
        return f"{found}, {wanted}"
    places = mine.dtype is dtypes.int32 and dtype is torch.int64
    return "" if places or mine.dtype is getattr(dtypes, name_of(dtype)) else f"dtype {mine.dtype}"


def weights_of(theirs, dtype):
    """What the elements of a result count in the sum whose gradient is compared."""
    weights = torch.tensor(np.sin(np.arange(1, theirs.numel() + 1)).astype(np.float32))
    return weights.reshape(theirs.shape).to(dtype if dtype in NARROW else torch.float32)


def gradients(results, kinds, leaves):
    """Of a weighted sum of PyTorch's results; those of a number that doesn't matter are None."""
    goal = torch.tensor(0.0)
    for theirs, dtype in zip(results, kinds, strict=True):
        if isinstance(theirs, torch.Tensor) and theirs.requires_grad:
            goal = goal + (theirs * weights_of(theirs, dtype)).real.sum()
    if not goal.requires_grad or not leaves:
        return [None] * len(leaves)
    return torch.autograd.grad(goal, leaves, allow_unused=True)


def our_gradients(results, theirs, kinds, leaves):
    """The same of ours."""
    total = Tensor(0.0)
    for mine, their, dtype in zip(results, theirs, kinds, strict=True):
        if isinstance(their, torch.Tensor) and their.requires_grad:
            total = total + (mine * ours(weights_of(their, dtype))).real.sum()
    total.backward()
    return [mine.grad for mine in leaves]


def is_refusal(error, function):
    """Whether an error says that a call isn't legal here."""
    said = rf"{function.__name__}(\(\) (got|takes|missing)|: .*legal)"
    return isinstance(error, TinygradError) or bool(re.search(said, str(error)))


def largest(x):
    """The largest finite magnitude of a result."""
    x = np.abs(array(x)) if isinstance(x, torch.Tensor) else np.zeros(())
    return x.max(initial=0, where=np.isfinite(x))


def tolerance(wanted, dtype, beside, is_sum):
    """How far from PyTorch's a result or gradient may be, among these tensors of the sample."""
    if dtype not in NARROW or not isinstance(wanted, torch.Tensor):
        return TOLERANCE
    beside = [t for t in beside if isinstance(t, torch.Tensor)]
    is_sum = is_sum or any(t.numel() > wanted.numel() for t in beside)
    number = max(map(largest, beside)) if is_sum else largest(wanted)
    return UNITS * NARROW[dtype] * max(number, torch.finfo(dtype).tiny)


def started(x):
    """The tensors among arguments that want gradients."""
    return [t for t in flat(x) if isinstance(t, (torch.Tensor, Tensor)) and t.requires_grad]


def unlike(op, function, given, dtype):
    """What differs in a sample; nothing where it is refused."""
    (arguments, named), exact = mapped(given, ours), mapped(given, wide)
    leaves = started([arguments, named])
    if op.name in SWAPPED:
        arguments = (arguments[1], arguments[0], *arguments[2:])
    named.pop("device", None)
    try:
        mine = flat(function(*arguments, **named))
    except (TinygradError, TypeError) as error:
        if not is_refusal(error, function):
            raise
        return
    judged = [exact, given] if dtype in NARROW else [given]
    judges = [flat(op(*each[0], **each[1])) for each in judged]
    kinds = [getattr(t, "dtype", None) for t in judges[-1]]
    if len(mine) != len(kinds):
        yield f"{len(mine)} results of {len(kinds)}"
        return
    slopes = []
    for results, each in zip(judges, judged, strict=True):
        with contextlib.suppress(NotImplementedError):  # of narrow numbers
            slopes.append(gradients(results, kinds, started(each)))
    rows = list(zip(mine, zip(*judges, strict=True), kinds, strict=True))
    if any(slope is not None for slope in slopes[0]):
        found = our_gradients(mine, judges[0], kinds, leaves)
        kinds = [t.dtype for t in started(given)]
        every = zip(found, zip(*slopes, strict=True), kinds, strict=True)
        rows += [row for row in every if row[1][0] is not None and row[1][0].numel()]
    beside = [*flat(exact), *(row[1][0] for row in rows)]
    for place, (found, wanted, kind) in enumerate(rows):
        near = tolerance(wanted[0], kind, beside, is_sum=place >= len(mine))
        yield difference(found, wanted, kind, near)


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
            given = [(sample.input, *sample.args), sample.kwargs]
            for text in filter(None, unlike(op, function, given, dtype)):
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
        assert not list(problems(op, function, kind, 6 if getattr(torch, kind) in NARROW else 40))
