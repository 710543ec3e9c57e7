"""Complex numbers, the one class above `Tensor`: `numbers` has `Complex`, `functions` what exp, log
and the like do to a pair of floats."""

from tinygrad.tensor.complex.numbers import Complex

__all__ = ["Complex"]
