"""ONNX models: `OnnxRunner(path)({"x": tensor})["y"]`. Needs the package `onnx`, extra `onnx`."""

try:
    import onnx  # noqa: F401
except ImportError as error:
    raise ImportError(f"ONNX models need the package onnx: pip install onnx ({error})") from error

from tinygrad.formats.onnx.runner import OnnxRunner

__all__ = ["OnnxRunner"]
