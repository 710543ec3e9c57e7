"""A face: ONNX models under the seeds' path."""

from tinygrad.formats.onnx import OnnxRunner

__all__ = ["OnnxRunner"]
