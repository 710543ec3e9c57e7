"""Every public name that programs import stands where they look for it."""

import importlib

import pytest

FACES = {
    "tinygrad": "Context Device dtypes fetch function getenv GlobalCounters nn Tensor TinyJit UOp "
    "Variable",
    "tinygrad.tensor": "Tensor",
    "tinygrad.uop": "UOp Ops",
    "tinygrad.uop.ops": "UOp Ops UPat PatternMatcher graph_rewrite GroupOp",
    "tinygrad.codegen": "full_rewrite_to_sink",
    "tinygrad.engine.jit": "TinyJit",
    "tinygrad.dtype": "dtypes DType",
    "tinygrad.device": "Device",
    "tinygrad.nn": "BatchNorm BatchNorm2d Conv1d Conv2d ConvTranspose1d ConvTranspose2d Embedding "
    "GroupNorm InstanceNorm LayerNorm LayerNorm2d Linear LSTMCell RMSNorm",
    "tinygrad.nn.onnx": "OnnxRunner",
    "tinygrad.formats.onnx": "OnnxRunner",
    "tinygrad.nn.optim": "Adam AdamW LAMB LARS Muon Optimizer OptimizerGroup SGD",
    "tinygrad.nn.state": "get_parameters get_state_dict gguf_load load_state_dict "
    "safe_load safe_save tar_extract TensorIO torch_load",
    "tinygrad.helpers": "all_same argfix argsort BEAM cdiv ceildiv CI cmod colored Context "
    "ContextVar count DEBUG dedup DEV diskcache_clear diskcache_get diskcache_put fetch flatten "
    "from_mv fully_flatten get_child getenv GlobalCounters IMAGE JIT merge_dicts OSX polyN prod "
    "Profiling round_up T temp time_to_str Timing to_mv tqdm TRAINING trange unwrap WIN word_wrap",
}


@pytest.mark.parametrize("path", FACES)
def test_names_are_there(path: str) -> None:
    module = importlib.import_module(path)
    missing = [name for name in FACES[path].split() if getattr(module, name, None) is None]
    assert not missing


def test_c_division() -> None:
    from tinygrad.helpers import cdiv, cmod

    assert (cdiv(-7, 2), cmod(-7, 2), cdiv(7, -2), cdiv(1, 0)) == (-3, -1, -3, 0)


def test_polynomial() -> None:
    from tinygrad.helpers import polyN

    assert polyN(2.0, [1, 0, 3]) == 7.0
