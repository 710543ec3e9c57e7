"""Floor 7: the face. `Tensor` and what it is made of, one idea a file."""

from tinygrad.tensor.complex import Complex
from tinygrad.tensor.generator import Generator
from tinygrad.tensor.tensor import Tensor

__all__ = ["Complex", "Generator", "Tensor"]
