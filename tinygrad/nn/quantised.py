"""Linear layers whose weights are integers of 8 or 4 bits.

    quantise(model, bits=4)                 # every Linear in it, in place
    quantise(model, bits=4, inputs=8)       # and inputs are rounded too: faster, less exact

A row of a weight is divided into groups. Each group has one float scale, chosen so that its largest
number is the largest that the bits can hold. (Gholami and others, "A Survey of Quantization
Methods", 2021.) The weight becomes floats inside the product, or the product is done in integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import prod
from tinygrad.nn.experts import ChosenLinear
from tinygrad.nn.layers import Linear
from tinygrad.tensor import Tensor

PANEL = 64
"""Outputs whose numbers lie side by side: a cache line of bytes."""

FEW_ROWS = 8
"""Inputs at once that hardly share the work of making a weight."""

SEVERAL_ROWS = 32
"""Inputs at once for which sums of whole numbers, each for itself, are faster than a product of
floats, whose matrices are laid out for it first."""


class Rounded:
    """A layer whose weight is whole numbers and the scales of their groups."""

    numbers: Tensor
    scales: Tensor

    def _fix(self) -> None:
        """Computes them, now that they are there: no gradient moves them."""
        for tensor in (self.numbers, self.scales):
            tensor.requires_grad_(False)
        self.numbers.realize(self.scales)

    def nbytes(self) -> int:
        """Memory of the weight."""
        return int(self.numbers.nbytes() + self.scales.nbytes())


class QuantisedLinear(Rounded):
    """A `Linear`, or a `ChosenLinear`, with its weight rounded to integers.

    The numbers of a weight are stored in panels of up to `PANEL` outputs: first those of the first
    input for all outputs of the panel, then those of the next input. So a product of few inputs
    reads memory in order, a vector of outputs for each input, and a product of many inputs finds
    its panels packed.

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

    def __init__(self, linear: Linear | ChosenLinear, bits: int = 8, group: int = 32) -> None:
        inputs = linear.weight.shape[-1]
        if bits not in (4, 8) or group < 2 or inputs % group or group % 2:
            raise ArgumentError(
                f"QuantisedLinear: {bits} bits in groups of {group} of {inputs} inputs; legal are "
                "4 or 8 bits, and an even group that divides the inputs"
            )
        self.bias = linear.bias if isinstance(linear, Linear) else None
        self._bits, self._shape = bits, linear.weight.shape
        weight = linear.weight.detach().reshape(-1, *linear.weight.shape[-2:])
        whole, scales = _rounded(weight.flatten(0, 1), bits, group)  # (layers * out, groups, group)
        scales = _panels(scales, len(weight))  # (layers, panels, groups, n)
        self.scales = scales.cast(weight.dtype).contiguous()
        whole = _panels(whole, len(weight))  # (layers, panels, groups, group, n)
        if bits == 8:
            self.numbers = whole.cast(dtypes.int8).contiguous()
        else:  # two numbers a byte, each 8 more than it is: of the halves of a group
            first, second = (whole + 8).cast(dtypes.uint8).chunk(2, dim=3)
            self.numbers = (first + second * 16).contiguous()
        self._fix()

    @property
    def weight(self) -> Tensor:
        """(out, inputs), or (layers, out, inputs): the rounded weight, as an expression."""
        return self._weight(self.numbers, self.scales).reshape(self._shape)

    def _weight(self, numbers: Tensor, scales: Tensor) -> Tensor:
        """(layers, out, inputs) of their panels."""
        out, inputs = self._shape[-2:]
        if self._bits == 4:
            numbers = (numbers & 15).cat(numbers >> 4, dim=3).cast(dtypes.int8) - 8
        panels = numbers.cast(scales.dtype) * scales.unsqueeze(3)
        return panels.permute(0, 1, 4, 2, 3).reshape(len(numbers), -1, inputs)[:, :out]

    def __call__(self, x: Tensor, which: Tensor | None = None) -> Tensor:
        """(.., inputs) → (.., out), or as `ChosenLinear` says. For few rows in float32: rounding
        each weight to a narrower type would take longer than reading it."""
        given = x if which is not None else x.reshape(1, -1, x.shape[-1])  # (layers, rows, inputs)
        numbers, scales = self.numbers, self.scales
        if which is not None:
            numbers, scales = numbers[which], scales[which]
        if dtypes.is_float(x.dtype) and x.dtype.itemsize <= 4 and given.shape[1] <= FEW_ROWS:
            y = self._few(given.cast(dtypes.float32), numbers, scales).cast(x.dtype)
        else:
            y = given.matmul(self._weight(numbers, scales).transpose(1, 2))
        y = y.reshape(*x.shape[:-1], self._shape[-2])
        return y if self.bias is None else y + self.bias

    def _few(self, x: Tensor, numbers: Tensor, scales: Tensor) -> Tensor:
        """A scale is applied to the sum of its group, and so is the offset of 4-bit numbers."""
        layers, rows, inputs = x.shape
        groups = scales.shape[2]
        given = x.contiguous().reshape(layers, rows, 1, groups, inputs // groups, 1)
        if self._bits == 8:
            sums = _sums(given, numbers)  # (layers, rows, panels, groups, n)
        else:
            low, high = given.chunk(2, dim=4)
            above = (given.sum(4) * 8).contiguous()
            sums = _sums(low, numbers & 15) + _sums(high, numbers >> 4) - above
        y: Tensor = (sums * scales.cast(dtypes.float32).unsqueeze(1)).sum(3)
        return y.reshape(layers, rows, -1)[:, :, : self._shape[-2]]


def _panels(rows: Tensor, layers: int) -> Tensor:
    """(layers * out, ..) → (layers, panels, .., n): rows side by side, so many that few are added
    to fill the last panel."""
    out, *inner = rows.shape[0] // layers, *rows.shape[1:]
    n = next(n for n in (PANEL, 32, 16, 8, 4, 2, 1) if out % n == 0 or 16 * n <= out)
    parts = rows.reshape(layers, out, *inner)
    parts = parts.pad((None, (0, -out % n), *(None for _ in inner)))
    parts = parts.reshape(layers, -1, n, *inner)
    return parts.permute(0, 1, *range(3, parts.ndim), 2)


def _sums(x: Tensor, numbers: Tensor) -> Tensor:
    """Products of the inputs of each group, summed, in float32."""
    return (x * numbers.cast(dtypes.float32).unsqueeze(1)).sum(4)


class IntegerLinear(Rounded):
    """A `Linear` with its weight rounded to 8 or 4 bits and its inputs to 8.

    Each group of inputs gets its own scale when it arrives. Sums within a group are exact; they are
    scaled and added as float32. Besides the error of the rounded weight, a result is off by at most
    about 1/250 of what the largest products of each group can add up to.

    The numbers of a weight are stored in the order in which vectors of integers are multiplied:
    four neighbours of one group (a word), then a word of the next group, for up to `LANES` groups.
    Rows are divided into parts, so that the inputs stay in the nearest cache while all rows of a
    part pass. With 4 bits, `ROWS` rows alternate, since that many more sums fit beside one stream
    of memory.

    Args:
        linear: the layer to stand for.
        bits: 8 or 4, of a number of the weight.
        group: numbers that share a scale; must divide the inputs; a multiple of 4, of 8 for 4 bits.

    Raises:
        ArgumentError: other bits, or another group.

    >>> layer = Linear(64, 4)
    >>> error = (IntegerLinear(layer)(Tensor.ones(1, 64)) - layer(Tensor.ones(1, 64))).abs().max()
    >>> error.item() < 0.05
    True
    """

    def __init__(self, linear: Linear, bits: int = 8, group: int = 32) -> None:
        out, inputs = linear.weight.shape
        if bits not in (4, 8) or group < 4 or inputs % group or group % (32 // bits):
            raise ArgumentError(
                f"IntegerLinear: {bits} bits in groups of {group} of {inputs} inputs; legal are 4 "
                "or 8 bits, and a group that divides the inputs and is a multiple of 8 or 4"
            )
        self.bias = linear.bias
        self._bits, self._group = bits, group
        lanes = next(n for n in (LANES, 8, 4, 2, 1) if inputs // group % n == 0)
        blocks = inputs // group // lanes
        most = max(1, NEAR_INPUTS // (group * lanes))
        near = next((n for n in range(most, most // 2, -1) if blocks % n == 0), blocks)
        self._sizes = blocks // near, near, lanes  # parts, blocks of a part, groups of a block
        rows = next(n for n in (ROWS, 2, 1) if out % n == 0) if bits == 4 else 1
        whole, scales = _rounded(linear.weight.detach(), bits, group)
        words = self._words(whole + (1 << bits - 1), dtypes.uint8)
        if bits == 4:  # two numbers a byte: of a word, and of the next
            words = words[:, :, :, 0::2] + words[:, :, :, 1::2] * 16
        words = words.reshape(rows, -1, *words.shape[1:])
        # (parts, out / rows, blocks, words, rows, lanes, 4)
        self.numbers = words.permute(2, 1, 3, 4, 0, 5, 6).contiguous()
        scales = scales.reshape(rows, -1, *self._sizes).permute(2, 1, 3, 0, 4)
        self.scales = scales.cast(linear.weight.dtype).contiguous()
        self._fix()

    def _words(self, whole: Tensor, dtype: DType) -> Tensor:
        """(n, groups, group) → (n, parts, blocks, words of a group, lanes, 4)."""
        shape = (whole.shape[0], *self._sizes, self._group // 4, 4)
        return whole.cast(dtype).reshape(*shape).transpose(3, 4)

    def __call__(self, x: Tensor) -> Tensor:
        """(.., inputs) → (.., out)."""
        *before, inputs = x.shape
        if prod(before) > SEVERAL_ROWS:
            return self._many(x)
        whole, scales = _rounded(x.reshape(-1, inputs), 8, self._group)  # (rows, groups, ..)
        whole = whole.cast(dtypes.int8).contiguous()  # vectors along memory, words after that
        given = self._words(whole, dtypes.int8).contiguous().unsqueeze(2).unsqueeze(2)
        parts, blocks, lanes = self._sizes
        scales = scales.reshape(-1, parts, 1, 1, blocks, lanes).contiguous()
        products = given.cast(dtypes.int32) * self._bytes().cast(dtypes.int32)
        summed = products.sum((5, 7))  # (n, parts, rows, out / rows, blocks, lanes)
        above = (given.cast(dtypes.int32).sum((5, 7)) * (1 << self._bits - 1)).contiguous()
        terms = (summed - above).cast(dtypes.float32) * (self._scales() * scales)
        sums = terms.sum((4, 5))  # (n, parts, rows, out / rows)
        sums = sums.contiguous() if parts > 1 else sums
        y: Tensor = sums.sum(1).cast(x.dtype).reshape(*before, -1)
        return y if self.bias is None else y + self.bias

    def _many(self, x: Tensor) -> Tensor:
        """For many rows, which share the making of floats: inputs aren't rounded."""
        inputs = x.shape[-1]
        words = x.reshape(-1, *self._sizes, self._group // 4, 4).transpose(3, 4)
        numbers = self._bytes().cast(dtypes.int8) - (1 << self._bits - 1)
        weight = numbers.cast(x.dtype) * self._scales().cast(x.dtype).unsqueeze(4).unsqueeze(-1)
        weight = weight.permute(1, 2, 0, 3, 4, 5, 6).reshape(-1, inputs)  # in the order of words
        y: Tensor = words.reshape(-1, inputs).contiguous().linear(weight.T, self.bias)
        return y.reshape(*x.shape[:-1], -1)

    def _bytes(self) -> Tensor:
        """(parts, rows, out / rows, blocks, words, lanes, 4): the numbers, each a byte."""
        numbers = self.numbers
        if self._bits == 4:
            numbers = Tensor.stack(numbers & 15, numbers >> 4, dim=4).flatten(3, 4)
        return numbers.permute(0, 4, 1, 2, 3, 5, 6)

    def _scales(self) -> Tensor:
        """(parts, rows, out / rows, blocks, lanes)."""
        return self.scales.permute(0, 3, 1, 2, 4)


NEAR_INPUTS = 2048
"""Inputs of a part: what is left of them in the nearest cache when rows that are read side by side
have gone through it."""

ROWS = 4
"""Rows of 4 bits that take turns: memory has a word of each, then the next word of each."""

LANES = 16
"""Groups whose sums are made side by side: 32-bit numbers of a vector of 64 bytes."""


def _rounded(x: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Rows (rows, n) as whole numbers (rows, groups, group), in float32, and scales (rows,
    groups)."""
    groups = x.cast(dtypes.float32).reshape(x.shape[0], -1, group)
    scales = groups.abs().max(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    whole: Tensor = (groups / (scales == 0).where(1, scales)).round()
    return whole, scales.squeeze(-1)


def quantise(
    model: Any,
    bits: int = 8,
    group: int = 32,
    which: Callable[[str], bool] | None = None,
    inputs: int | None = None,
) -> list[str]:
    """Replaces each `Linear` and `ChosenLinear` in `model` by a `QuantisedLinear`.

    Args:
        model: an object whose attributes, lists and dicts lead to the layers.
        bits: 8 or 4, of a number.
        group: numbers that share a scale; layers whose inputs it doesn't divide stay as they are.
        which: whether the layer of this name is meant; None: all.
        inputs: 8: inputs of a `Linear` are rounded to so many bits too (`IntegerLinear`); None:
            they are not.

    Returns:
        The names of the layers that were replaced.

    >>> net = {"first": Linear(64, 8), "last": Linear(8, 2)}
    >>> quantise(net, bits=4)
    ['first']
    """
    if inputs not in (None, 8):
        raise ArgumentError(f"quantise: inputs of {inputs} bits; legal are 8, or None")
    names: list[str] = []

    def visit(holder: Any, prefix: str, above: tuple[Any, ...]) -> None:
        places = _places(holder)
        if places is None or any(holder is other for other in above):
            return
        for key, part in list(places.items() if isinstance(places, dict) else enumerate(places)):
            name = f"{prefix}{key}"
            if not isinstance(part, Linear | ChosenLinear):
                visit(part, f"{name}.", (*above, holder))
            elif part.weight.shape[-1] % group == 0 and (which is None or which(name)):
                if inputs is not None and isinstance(part, Linear):
                    places[key] = IntegerLinear(part, bits, group)
                else:
                    places[key] = QuantisedLinear(part, bits, group)
                names.append(name)

    visit(model, "", ())
    return names


def _places(holder: Any) -> dict[Any, Any] | list[Any] | None:
    """What an object holds, to be replaced in place; None for what holds nothing."""
    if isinstance(holder, (dict, list)):
        return holder
    return None if isinstance(holder, (type, Tensor)) else getattr(holder, "__dict__", None)
