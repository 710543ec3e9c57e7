"""Every name in api_names.txt exists where programs look for it, and takes the arguments that they
give it. The list's paragraphs are headed `## place`."""

import inspect
import re
from pathlib import Path

import pytest

import tinygrad
from tinygrad import Device, GlobalCounters, Tensor, TinyJit, dtypes, helpers, nn
from tinygrad.base.settings import Context
from tinygrad.nn import datasets, optim, state
from tinygrad.uop import Ops, UOp
from tinygrad.uop.ops import GroupOp, UPat

LIST = (Path(__file__).parent / "api_names.txt").read_text()
PLACES = {
    "Tensor": Tensor,
    "imported from tinygrad": tinygrad,
    "nn": nn,
    "optim": optim,
    "state": state,
    "datasets": datasets,
    "dtypes": dtypes,
    "DType": dtypes.float32,
    "imported from tinygrad.helpers": helpers,
    "UOp": UOp,
    "Ops": Ops,
    "GroupOp": GroupOp,
    "UPat": UPat,
    "TinyJit": TinyJit,
    "Device": Device,
    "GlobalCounters": GlobalCounters,
}
INSTANCES = {"TinyJit": TinyJit(lambda x: x), "UOp": UOp.const(dtypes.int32, 1)}
WORD = re.compile(r"[A-Za-z_]\w*")


def paragraphs():
    for part in re.split(r"^## ", LIST, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        names = re.sub(r"\([^)]*\)|, and the arithmetic operators", "", body)
        yield re.sub(r" \(.*", "", title), names


def names():
    for place, body in paragraphs():
        if place != "Context variables":
            yield from ((place, name) for name in WORD.findall(body))


def test_the_list_is_read_whole():
    assert {place for place, _ in paragraphs()} == {*PLACES, "Context variables"}
    assert len(list(names())) > 450


LATER = {"gguf_load", "tar_extract", "TensorIO", "torch_load"}  # with the other file formats


def test_names_are_there():
    missing = []
    for place, name in names():
        where = INSTANCES.get(place, PLACES[place])
        if name not in LATER and not hasattr(where, name) and not hasattr(PLACES[place], name):
            missing.append(f"{place}.{name}")
    assert not missing


@pytest.mark.filterwarnings("ignore:.* has no effect")
def test_settings_are_there():
    body, *_ = dict(paragraphs())["Context variables"].splitlines()
    for name in WORD.findall(body):
        with Context(**{name: 0}):
            pass


# What programs give, by name; PyTorch's and tinygrad's words. A parameter that is called otherwise
# is a program that doesn't run.
ARGUMENTS = {
    "sum max min mean any all prod": "axis keepdim",
    "var std var_mean std_mean": "axis keepdim correction",
    "argmax argmin logsumexp": "axis keepdim",
    "softmax log_softmax softmin cumsum cumprod cummax cummin logcumsumexp": "axis",
    "sort argsort": "dim descending",
    "topk": "k dim largest sorted_",
    "conv2d": "weight bias groups stride dilation padding dtype",
    "conv_transpose2d": "weight bias groups stride dilation padding output_padding",
    "avg_pool2d": "kernel_size stride dilation padding ceil_mode count_include_pad",
    "max_pool2d": "kernel_size stride dilation padding ceil_mode return_indices",
    "max_unpool2d": "indices kernel_size stride dilation padding output_size",
    "interpolate": "size mode align_corners",
    "scatter": "dim index src reduce",
    "scatter_reduce": "dim index src reduce include_self",
    "gather": "dim index",
    "pad": "padding mode value",
    "layernorm": "axis eps",
    "batchnorm": "weight bias mean invstd axis",
    "scaled_dot_product_attention": "key value attn_mask dropout_p is_causal enable_gqa",
    "cross_entropy": "Y reduction label_smoothing",
    "sparse_categorical_crossentropy": "Y ignore_index label_smoothing reduction",
    "binary_crossentropy_logits": "Y reduction pos_weight",
    "nll_loss": "Y weight ignore_index reduction",
    "backward": "gradient",
    "gradient": "gradient materialize_grads",
    "multinomial": "num_samples replacement",
    "div": "x reverse rounding_mode",
    "isclose allclose": "other rtol atol equal_nan",
    "isinf": "detect_positive detect_negative",
    "one_hot": "num_classes",
    "squeeze unsqueeze unbind": "dim",
    "stack cat": "dim",
    "split": "sizes dim",
    "chunk": "chunks dim",
    "repeat_interleave": "repeats dim",
    "unfold": "dim size step",
    "roll": "shifts dims",
    "transpose": "dim0 dim1",
    "flatten": "start_dim end_dim",
    "unflatten": "dim sizes",
    "diagonal": "offset dim1 dim2",
    "linspace": "start stop steps",
    "eye": "n m",
    "full": "shape fill_value",
    "randint": "low high",
    "normal": "mean std",
    "uniform": "low high",
    "elu celu": "alpha",
    "selu": "alpha gamma",
    "hardtanh": "min_val max_val",
    "leaky_relu": "neg_slope",
    "softplus": "beta",
    "normalize": "p dim eps",
    "svd": "full_matrices",
    "keccak": "cfg",
    "dropout": "p",
    "lerp": "end weight",
    "masked_select": "mask",
    "masked_fill": "mask value",
    "meshgrid": "indexing",
    "tril triu": "diagonal",
    "dot matmul": "dtype",
    "einsum": "formula dtype",
    "quantile nanquantile": "q dim keepdim interpolation",
    "median nanmedian mode": "dim keepdim",
    "unique": "return_inverse return_counts dim",
    "histogram": "bins range weight density",
    "histogramdd": "bins range weight density",
    "searchsorted": "right side sorter",
    "norm": "p dim keepdim dtype",
    "nan_to_num": "nan posinf neginf",
    "index_add": "dim index source alpha",
    "addmm": "mat1 mat2 beta alpha",
    "tensordot": "dims",
    "diff": "n dim prepend append",
    "cov": "correction fweights aweights",
    "cdist": "x2 p",
}
CASES = [(name, words) for group, words in ARGUMENTS.items() for name in group.split()]


@pytest.mark.parametrize(("name", "words"), CASES)
def test_arguments(name, words):
    taken = inspect.signature(getattr(Tensor, name)).parameters
    free = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    missing = [w for w in words.split() if w not in taken]
    assert not missing or (free and name not in ("sum",)), missing


def test_every_method_of_tensor_says_what_it_does():
    silent = [
        name
        for name, member in inspect.getmembers(Tensor)
        if not name.startswith("_") and callable(member) and not (member.__doc__ or "").strip()
    ]
    assert not silent
