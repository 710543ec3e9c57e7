"""ONNX models: `OnnxRunner(path)({"x": tensor})["y"]` runs one, `export_onnx(model, inputs)` writes
one. Needs the package `onnx`, extra `onnx`."""

import importlib
from typing import Any

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise ImportError(f"ONNX models need the package onnx: pip install onnx ({error})") from error

from tinygrad.formats.onnx.runner import OnnxRunner

__all__ = ["OnnxRunner", "export_onnx"]


def __getattr__(name: str) -> Any:
    """`export_onnx` reads layers' parameters, so it stands above, and is imported when named."""
    if name != "export_onnx":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("tinygrad.nn.onnx").export_onnx
