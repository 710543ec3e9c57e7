"""Linear layers whose weights are whole numbers of 8 or 4 bits, made floats inside the product.

    quantise(model, bits=4)        # every Linear in it, in place

A row of a weight falls into groups; each has one float scale, so that the largest number in it is
the largest that the bits hold. (Gholami and others, "A Survey of Quantization Methods", 2021.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.nn.layers import Linear
from tinygrad.tensor import Tensor


class QuantisedLinear:
    """What a `Linear` does, with its weight rounded.

    Args:
        linear: the layer to stand for.
        bits: 8 or 4, of a number.
        group: numbers that share a scale; must divide the inputs, and be even for 4 bits.

    Raises:
        ArgumentError: other bits, or a group that doesn't divide the inputs.

    >>> layer = Linear(64, 4)
    >>> error = (QuantisedLinear(layer)(Tensor.ones(1, 64)) - layer(Tensor.ones(1, 64))).abs().max()
    >>> error.item() < 0.05
    True
    """

    def __init__(self, linear: Linear, bits: int = 8, group: int = 32) -> None:
        out, inputs = linear.weight.shape
        if bits not in (4, 8) or group < 2 or inputs % group or group % 2:
            raise ArgumentError(
                f"QuantisedLinear: {bits} bits in groups of {group} of {inputs} inputs; legal are "
                "4 or 8 bits, and an even group that divides the inputs"
            )
        self.bias = linear.bias
        self._bits, self._shape = bits, (out, inputs)
        groups = linear.weight.detach().cast(dtypes.float32).reshape(out, inputs // group, group)
        most = 2 ** (bits - 1) - 1
        scales = groups.abs().max(-1, keepdim=True) / most  # (out, groups, 1)
        whole = (groups / (scales == 0).where(1, scales)).round().reshape(out, inputs)
        self.scales = scales.squeeze(-1).cast(linear.weight.dtype).contiguous()
        if bits == 8:
            self.numbers = whole.cast(dtypes.int8).contiguous()
        else:  # two numbers a byte, each 8 more than it is: from 1 to 15
            pairs = (whole + 8).cast(dtypes.uint8).reshape(out, inputs // 2, 2)
            self.numbers = (pairs[..., 0] + pairs[..., 1] * 16).contiguous()
        for tensor in (self.numbers, self.scales):
            tensor.requires_grad_(False)
        self.numbers.realize(self.scales)

    @property
    def weight(self) -> Tensor:
        """(out, inputs): the rounded weight, as an expression."""
        numbers, (out, inputs) = self.numbers, self._shape
        if self._bits == 4:
            pairs: Tensor = Tensor.stack(numbers & 15, numbers >> 4, dim=-1).cast(dtypes.int8) - 8
            numbers = pairs.reshape(out, inputs)
        groups = numbers.cast(self.scales.dtype).reshape(out, self.scales.shape[1], -1)
        weight: Tensor = (groups * self.scales.unsqueeze(-1)).reshape(out, inputs)
        return weight

    def __call__(self, x: Tensor) -> Tensor:
        """(.., inputs) → (.., out)."""
        return x.linear(self.weight.T, self.bias)

    def nbytes(self) -> int:
        """Memory of the weight."""
        return int(self.numbers.nbytes() + self.scales.nbytes())


def quantise(
    model: Any, bits: int = 8, group: int = 32, which: Callable[[str], bool] | None = None
) -> list[str]:
    """Puts a `QuantisedLinear` in the place of each `Linear` in `model`.

    Args:
        model: an object whose attributes, lists and dicts lead to the layers.
        bits: 8 or 4, of a number.
        group: numbers that share a scale; layers whose inputs it doesn't divide stay as they are.
        which: whether the layer of this name is meant; None: all.

    Returns:
        The names of the layers that were replaced.

    >>> net = {"first": Linear(64, 8), "last": Linear(8, 2)}
    >>> quantise(net, bits=4)
    ['first']
    """
    names: list[str] = []

    def visit(holder: Any, prefix: str, above: tuple[Any, ...]) -> None:
        places = _places(holder)
        if places is None or any(holder is other for other in above):
            return
        for key, part in list(places.items() if isinstance(places, dict) else enumerate(places)):
            name = f"{prefix}{key}"
            if not isinstance(part, Linear):
                visit(part, f"{name}.", (*above, holder))
            elif part.weight.shape[1] % group == 0 and (which is None or which(name)):
                places[key] = QuantisedLinear(part, bits, group)
                names.append(name)

    visit(model, "", ())
    return names


def _places(holder: Any) -> dict[Any, Any] | list[Any] | None:
    """What an object holds, to be replaced in place; None for what holds nothing."""
    if isinstance(holder, (dict, list)):
        return holder
    return None if isinstance(holder, (type, Tensor)) else getattr(holder, "__dict__", None)
