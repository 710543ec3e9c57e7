"""The official backend tests of the installed `onnx` package, as cases that give a reason when
they fail, and the list of those that can't pass."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tinygrad import Tensor
from tinygrad.formats.onnx import OnnxRunner

EXCLUDED = {
    "test_bernoulli": "random numbers of another generator",
    "test_bernoulli_double": "random numbers of another generator",
    "test_bernoulli_double_expanded": "random numbers of another generator",
    "test_bernoulli_expanded": "random numbers of another generator",
    "test_bernoulli_seed": "random numbers of another generator",
    "test_bernoulli_seed_expanded": "random numbers of another generator",
    "test_gradient_of_add": "gradients are Tensor's, not a node's",
    "test_gradient_of_add_and_mul": "gradients are Tensor's, not a node's",
}
NARROW = {"float16": 2e-3, "bfloat16": 2e-2}  # two units in the last place
NOISE = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}  # zeros that aren't, there


def cases(kind: str) -> list[Any]:
    """The cases of a kind that are not excluded."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in load_model_tests(kind=kind) if case.name not in EXCLUDED]


def light_model(name: str) -> tuple[Any, dict[str, Any], Any]:
    """Model, inputs and output of a network that comes with the package; its weights are
    constants."""
    from onnx.backend.test.runner import Runner

    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    model = onnx.load(os.path.join(folder, f"light_{name}.onnx"))
    values = {item.name for item in model.graph.initializer}
    inputs = {
        item.name: Runner.generate_dummy_data(item, seed=0, name=f"test_{name}", random=False)
        for item in model.graph.input
        if item.name not in values
    }
    proto = onnx.TensorProto()
    with open(os.path.join(folder, f"light_{name}_output_0.pb"), "rb") as file:
        proto.ParseFromString(file.read())
    return model, inputs, numpy_helper.to_array(proto)


def failures(found: list[Any], constant: bool = False) -> list[str]:
    """Name and reason of each case that fails; see `failure`."""
    return [f"{case.name}: {reason}" for case in found if (reason := failure(case, constant))]


def failure(case: Any, constant: bool = False) -> str:
    """Why a case fails; empty if it passes. `constant`: its inputs are constants of the model."""
    try:
        model = case.model or onnx.load(os.path.join(case.model_dir, "model.onnx"))
        runner = OnnxRunner(model)
        names = [item.name for item in model.graph.input]
        for inputs, wanted in case.data_sets or _files(case.model_dir, model):
            given = dict(zip(names, map(plain, inputs), strict=False))
            if constant:
                runner = OnnxRunner(_with_constants(model, given))
                given = {name: given[name] for name in runner.graph_inputs if name in given}
            found = runner(given).values()
            atol = NOISE.get(case.name, case.atol)
            for one, other in zip(found, map(plain, wanted), strict=True):
                same(one, other, case.rtol, atol)
    except Exception as error:  # any kind of failure is one line of the report
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def _with_constants(model: Any, given: dict[str, Any]) -> Any:
    """The model with the arrays among its inputs as constants."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    arrays = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
    made.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in arrays.items())
    return made


def plain(value: Any) -> Any:
    """A case's value as arrays, lists and None."""
    readers = {
        onnx.TensorProto: numpy_helper.to_array,
        onnx.SequenceProto: numpy_helper.to_list,
        onnx.OptionalProto: numpy_helper.to_optional,
    }
    reader = readers.get(type(value))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value if reader is None else reader(value)


def same(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Same kind, dtype and shape, and close; narrow floats to two units in the last place."""
    if isinstance(wanted, list) or wanted is None:
        assert type(found) is type(wanted), f"{found} for {wanted}"
        for one, other in zip(found or [], wanted or [], strict=True):
            same(one, other, rtol, atol)
        return
    found = found.numpy() if isinstance(found, Tensor) else found
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape, f"shape {found.shape} for {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        assert found.tolist() == wanted.tolist()
        return
    assert found.dtype == wanted.dtype, f"dtype {found.dtype} for {wanted.dtype}"
    rtol = max(rtol, NARROW.get(wanted.dtype.name, 0))
    if wanted.dtype.kind not in "biuf":
        found, wanted = found.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def _files(folder: str, model: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The data sets that lie in files beside a model; inputs that have a value may be left out."""

    def read(path: str, name: str, items: Any) -> list[Any]:
        files = [os.path.join(path, f"{name}_{i}.pb") for i in range(len(items))]
        there = zip(files, items, strict=True)
        return [_read(file, item.type) for file, item in there if os.path.exists(file)]

    for path in sorted(glob.glob(os.path.join(folder, "test_data_set*"))):
        yield read(path, "input", model.graph.input), read(path, "output", model.graph.output)


def _read(path: str, kind: Any) -> Any:
    protos = {
        "tensor_type": onnx.TensorProto,
        "sequence_type": onnx.SequenceProto,
        "optional_type": onnx.OptionalProto,
    }
    proto = protos[kind.WhichOneof("value")]()
    with open(path, "rb") as file:
        proto.ParseFromString(file.read())
    return proto
