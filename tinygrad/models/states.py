"""What a recurrent model keeps of a text: a few tensors of fixed size a layer."""

from __future__ import annotations

from tinygrad.tensor import Tensor

States = tuple[Tensor, ...]


def empty_states(shapes: tuple[tuple[int, ...], ...]) -> States:
    """Zeros of these shapes."""
    return tuple(Tensor.zeros(*shape) for shape in shapes)
