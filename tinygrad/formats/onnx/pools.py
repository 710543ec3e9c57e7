"""Pools, means, transposed convolutions and Relu, exported as the operators that people expect.

In the graph these are a reduction of windows, a sum divided by a count, a folded product, and a
choice. Nothing else in the graph says what they were, so they are recognised here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.engine.storage import as_array
from tinygrad.engine.structure import resolved
from tinygrad.formats.onnx.contractions import (
    SPATIAL,
    Arranged,
    Convolution,
    Emits,
    Part,
    Product,
    contraction_of,
    padded_window,
    places_of,
    product_of,
    split_parts,
    thin,
)
from tinygrad.uop import Ops, UOp

Windows = tuple[tuple[int, ...], ...]


def operator_of(node: UOp) -> Product | Convolution | Pool | Mean | Spread | Rectified | None:
    """The one operator that a node and what lies below it are, if there is one."""
    if node.op is Ops.WHERE and node.dtype is dtypes.float32:
        return _rectified(node)
    if node.op is Ops.REDUCE_AXIS:
        return contraction_of(node) or _largest(node)
    if node.op is Ops.FDIV and node.dtype is dtypes.float32:
        return _average(node)
    return _spread(node) if node.op is Ops.FOLD and node.dtype is dtypes.float32 else None


@dataclass(frozen=True)
class Rectified:
    """What is not above 0 is 0."""

    source: UOp

    @property
    def operands(self) -> tuple[UOp, ...]:
        """What must have a name."""
        return (self.source,)

    def emitted(self, made: Emits) -> str:
        """Relu."""
        return made.emit("Relu", made.of(self.source))


def _rectified(node: UOp) -> Rectified | None:
    """The Relu that a choice is: of 0, or of the number itself."""
    is_low, zero, x = (resolved(source) for source in node.src)
    if is_low.op is not Ops.OR or not _is_number(thin(zero), 0):
        return None
    tests = [resolved(source) for source in is_low.src]
    if [test.op for test in tests] != [Ops.CMPLT, Ops.CMPEQ]:
        return None
    same = all(resolved(t.src[0]) is x and _is_number(thin(t.src[1]), 0) for t in tests)
    return Rectified(x) if same else None


# ---- pools and means -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """The greatest or the mean of windows of the last axes of `source`: of each (axis, taps,
    stride, dilation, zeros before, zeros after)."""

    node: UOp
    source: UOp
    windows: Windows
    operator: str
    counts_padding: bool = True

    @property
    def operands(self) -> tuple[UOp, ...]:
        """What must have a name."""
        return (self.source,)

    def emitted(self, made: Emits) -> str:
        """MaxPool or AveragePool, of (images, channels, ..)."""
        count, shape = len(self.windows), self.source.shape
        lead = shape[:-count] if len(shape) == count + 2 else (1, prod(shape[:-count]))
        columns = list(zip(*self.windows, strict=True))
        attributes = {"kernel_shape": columns[1], "strides": columns[2]}
        if self.operator == "MaxPool":
            attributes["dilations"] = columns[3]
        options = {} if self.operator == "MaxPool" else {"count_include_pad": self.counts_padding}
        name = made.reshaped(made.of(self.source), [*lead, *shape[-count:]])
        out = made.emit(self.operator, name, pads=columns[4] + columns[5], **attributes, **options)
        made.shapes[out] = (*lead, *places_of(self.windows, shape))
        return made.reshaped(out, self.node.shape)


@dataclass(frozen=True)
class Mean:
    """The mean of a value along some axes."""

    node: UOp
    source: UOp
    axes: tuple[int, ...]

    @property
    def operands(self) -> tuple[UOp, ...]:
        """What must have a name."""
        return (self.source,)

    def emitted(self, made: Emits) -> str:
        """ReduceMean."""
        axes = made.constant(list(self.axes))
        out = made.emit("ReduceMean", made.of(self.source), axes, keepdims=1)
        sizes = [1 if i in self.axes else n for i, n in enumerate(self.source.shape)]
        made.shapes[out] = tuple(map(int, sizes))
        return made.reshaped(out, self.node.shape)


def _largest(node: UOp) -> Pool | None:
    """The MaxPool that a reduction of windows is, zeros around them being as little as can be."""
    window = resolved(node.src[0])
    if node.arg[0] != "max" or window.op is not Ops.WINDOW or node.dtype is not dtypes.float32:
        return None
    source, windows = resolved(window.src[0]), window.arg
    if any(each[4] or each[5] for each in windows):
        return None  # its border counts, as zeros
    if (padded := _below_lowest(source)) is not None:
        outside = {axis for axis, pair in enumerate(padded.arg) if any(pair)}
        if outside <= {each[0] for each in windows}:
            windows = tuple((*each[:4], *padded.arg[each[0]]) for each in windows)
            source = resolved(padded.src[0])
    return _pool(node, node, window, source, windows, "MaxPool")


def _below_lowest(node: UOp) -> UOp | None:
    """The PAD of a value that has the lowest number around it instead of zeros."""
    if node.op is not Ops.WHERE:
        return None
    mask, padded, lowest = (resolved(source) for source in node.src)
    fits = mask.op is padded.op is Ops.PAD and mask.arg == padded.arg
    if not fits or not _is_number(thin(mask.src[0]), True):
        return None
    return padded if _is_number(thin(lowest), -math.inf) else None


def _pool(
    node: UOp, total: UOp, window: UOp, source: UOp, windows: Windows, operator: str
) -> Pool | None:
    """A pool, if all taps are reduced and the windows are over the last axes."""
    count, ndim = len(windows), len(source.shape)
    fitted = [padded_window(w, source.shape[w[0]], window.shape[w[0]]) for w in windows]
    fits = tuple(w for w in fitted if w is not None)
    if (
        count > SPATIAL
        or len(fits) < count
        or [w[0] for w in windows] != list(range(ndim - count, ndim))
        or sorted(total.arg[1]) != list(range(ndim, ndim + count))
        or any(max(w[4:]) >= w[1] for w in fits)
    ):
        return None
    return Pool(node, source, fits, operator)


def _average(node: UOp) -> Pool | Mean | None:
    """The mean that a quotient is, of a sum by how many were added."""
    total, by = _below_reshapes(node.src[0]), thin(node.src[1])
    if total.op is not Ops.REDUCE_AXIS or total.arg[0] != "add" or contraction_of(total):
        return None
    source = resolved(total.src[0])
    if source.op is Ops.WINDOW and all(each[3] == 1 for each in source.arg):
        inner = resolved(source.src[0])
        found = _pool(node, total, source, inner, source.arg, "AveragePool")
        if found is not None and _is_number(by, prod(each[1] for each in source.arg)):
            return found
        if found is not None and _counts(by, source):
            return Pool(node, inner, found.windows, "AveragePool", counts_padding=False)
    if _is_number(by, prod(source.shape[axis] for axis in total.arg[1])):
        return Mean(node, source, tuple(total.arg[1]))
    return None


def _is_number(node: UOp, number: float) -> bool:
    """Whether it is a constant of this value, or somebody's copy of one in memory."""
    base = _below_reshapes(node)
    if base.op is Ops.BUFFER and prod(base.shape) == 1 and base.storage is not None:
        return bool(as_array(base.storage, base.dtype).item() == number)
    return base.op is Ops.CONST and base.arg == number


def _counts(by: UOp, window: UOp) -> bool:
    """Whether it says how many elements of each window are not padding."""
    total = _below_reshapes(by)
    ones = resolved(total.src[0]) if total.op is Ops.REDUCE_AXIS else total
    if ones.op is not Ops.WINDOW or not _is_number(thin(ones.src[0]), 1):
        return False
    same = [each[1:] for each in ones.arg] == [each[1:] for each in window.arg]
    sizes = [ones.src[0].shape[w[0]] for w in ones.arg]
    return same and sizes == [window.src[0].shape[w[0]] for w in window.arg]


def _below_reshapes(node: UOp) -> UOp:
    node = resolved(node)
    while node.op is Ops.RESHAPE:
        node = resolved(node.src[0])
    return node


# ---- transposed convolutions ---------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A Product whose results are added up where windows lie: each element of `image` spreads a
    kernel. The product's axes by kind; of kinds, the images', channels' in groups, in one."""

    node: UOp
    image: Arranged
    weight: Arranged
    product: Product
    images: tuple[int, ...]
    groups: tuple[int, ...]
    outputs: tuple[int, ...]
    positions: tuple[int, ...]
    taps: tuple[int, ...]

    @property
    def operands(self) -> tuple[UOp, ...]:
        """What must have a name."""
        return self.image.node, self.weight.node

    def emitted(self, made: Emits) -> str:
        """ConvTranspose, of (images, channels, ..) by (channels, outputs of a group, taps ..)."""
        count, channels = self.product.count, self.product.summed
        windows, shape = self.node.arg
        inner = count(self.groups) * count(channels)
        places = [self.node.src[0].shape[window[0]] for window in windows]
        order = self.images + self.groups + channels + self.positions
        name = self.image.emitted(made, order, [count(self.images), inner, *places])
        taps = [window[1] for window in windows]
        order = self.groups + channels + self.outputs + self.taps
        weight = self.weight.emitted(made, order, [inner, count(self.outputs), *taps])
        reach = [
            (n - 1) * w[2] + w[3] * (w[1] - 1) + 1 for n, w in zip(places, windows, strict=True)
        ]
        left = [n - w[4] - shape[w[0]] for n, w in zip(reach, windows, strict=True)]
        out = made.emit(
            "ConvTranspose",
            name,
            weight,
            kernel_shape=taps,
            strides=[window[2] for window in windows],
            dilations=[window[3] for window in windows],
            pads=[window[4] for window in windows] + [max(n, 0) for n in left],
            output_padding=[max(-n, 0) for n in left],
            group=count(self.groups),
        )
        made.shapes[out] = tuple(map(int, shape))
        return made.reshaped(out, self.node.shape)


def _spread(node: UOp) -> Spread | None:
    """The ConvTranspose that a fold is: of (images, channels, *positions, *taps)."""
    windows, shape = node.arg
    parts, total = _parts(node.src[0])
    product = product_of(total)
    if product is None or product.repeats != 1 or len(windows) > SPATIAL:
        return None
    if len(shape) != len(windows) + 2 or [w[0] for w in windows] != list(range(2, len(shape))):
        return None
    kinds = [
        tuple(i for i, part in enumerate(parts) if part[:1] == (k,))
        for k in range(2 * len(shape) - 2)
    ]
    images, channels, *others = kinds
    positions = tuple(axis for part in others[: len(windows)] for axis in part)
    taps = tuple(axis for part in others[len(windows) :] for axis in part)
    groups = tuple(axis for axis in channels if axis in product.batch)
    outputs = tuple(axis for axis in channels if axis not in groups)
    image = {*images, *groups, *positions, *product.summed}
    weight = {*groups, *outputs, *taps, *product.summed}
    for a, b in ((product.left, product.right), (product.right, product.left)):
        alone = a.alone or b.alone
        if {*a.axes} == image and {*b.axes} == weight and not alone:
            return Spread(node, a, b, product, images, groups, outputs, positions, taps)
    return None


def _parts(node: UOp) -> tuple[Sequence[Part], UOp]:
    """What lies below reshapes and permutations, and which part of which axis each of its is."""
    node = resolved(node)
    parts: Sequence[Part] = [(i,) if n > 1 else () for i, n in enumerate(node.shape)]
    while node.op in (Ops.RESHAPE, Ops.PERMUTE):
        below = resolved(node.src[0])
        if node.op is Ops.PERMUTE:
            parts = [parts[node.arg.index(i)] for i in range(len(parts))]
        else:
            split = split_parts(parts, node.shape, below.shape)
            if split is None:
                break
            parts = split
        node = below
    return parts, node
