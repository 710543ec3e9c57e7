"""Sums over products, exported as the operators that runtimes have kernels for: Conv if possible,
else MatMul.

The axes of a product are classified by which factors have them and whether they are summed; MatMul
needs nothing else. If one factor consists of windows of a tensor, and the other factor shares the
taps with it, the product is a Conv of that tensor, and no windows have to be gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import prod
from tinygrad.engine.storage import numpy_dtype
from tinygrad.engine.structure import resolved
from tinygrad.uop import Ops, UOp

MULTIPLIED = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64)
SPATIAL = 3  # axes that runtimes convolve over, at most


Part = tuple[int, ...]
"""Axes; or one, and which part of it, of that part, and so on; of an axis of size 1 nothing."""


class Emits(Protocol):
    """What writes the nodes of a model."""

    shapes: dict[str, tuple[int, ...]]  # of values, where they are known

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str: ...
    def constant(self, value: Any, dtype: Any = np.int64) -> str: ...
    def reshaped(self, name: str, shape: Sequence[Any]) -> str: ...
    def of(self, node: UOp) -> str: ...


def thin(node: UOp) -> UOp:
    """What broadcasts to a node's value."""
    node = resolved(node)
    below = node
    while below.op is Ops.EXPAND or (below.op is Ops.RESHAPE and prod(below.shape) == 1):
        below = resolved(below.src[0])
    if below.op is Ops.CONST:
        return below
    while node.op is Ops.EXPAND:
        node = resolved(node.src[0])
    return node


@dataclass(frozen=True)
class Arranged:
    """A factor's own axes, numbered as the product's: which of them are summed before."""

    node: UOp
    axes: tuple[int, ...]
    alone: tuple[int, ...] = ()  # axes that are summed and that the other factor lacks

    def emitted(self, made: Emits, order: Sequence[int], shape: Sequence[int]) -> str:
        """Its value with axes in `order`, in another shape."""
        if not self.alone and (source := self._in_order(order)) is not None:
            return made.reshaped(made.of(source), shape)
        sizes = {axis: self.node.shape[axis] for axis in self.axes}
        name, axes = made.of(self.node), list(self.axes)
        if self.alone:
            name = made.emit("ReduceSum", name, made.constant(self.alone), keepdims=1)
            axes = [axis for axis in axes if axis not in self.alone]
        if list(order) != axes:
            name = made.reshaped(name, [sizes[axis] for axis in axes])
            name = made.emit("Transpose", name, perm=[axes.index(axis) for axis in order])
        return made.reshaped(name, shape)

    def _in_order(self, order: Sequence[int]) -> UOp | None:
        """The lowest of what the value is a permutation of whose elements lie in `order`."""
        node, found = self.node, None
        # the axes that each axis holds
        held: list[Part] = [(i,) if i in self.axes else () for i in range(len(node.shape))]
        while True:
            if [axis for part in held for axis in part] == list(order):
                found = node
            if node.op not in (Ops.PERMUTE, Ops.RESHAPE):
                return found
            below = resolved(node.src[0])
            if node.op is Ops.PERMUTE:
                held = [held[node.arg.index(i)] for i in range(len(held))]
            else:
                merged = _merged([a for part in held for a in part], self.node.shape, below.shape)
                if merged is None:
                    return found
                held = merged
            node = below


def _merged(axes: Sequence[int], sizes: Sequence[int], shape: Sequence[int]) -> list[Part] | None:
    """Which axes each axis of a shape holds; None where one holds a part of an axis."""
    left, found = list(axes), list[Part]()
    for size in shape:
        part: Part = ()
        while left and prod(sizes[i] for i in part) < size:
            part = (*part, left.pop(0))
        if prod(sizes[i] for i in part) != size:
            return None
        found.append(part)
    return found


@dataclass(frozen=True)
class Product:
    """A sum over left * right. Axes longer than 1 that both factors have and the sum keeps; that
    only the left one has; only the right one; that are summed. `repeats`: what summed axes that
    neither has multiply by."""

    node: UOp
    left: Arranged
    right: Arranged
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    summed: tuple[int, ...]
    repeats: int

    @property
    def operands(self) -> tuple[UOp, UOp]:
        """What must have a name."""
        return self.left.node, self.right.node

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the axes before the sum."""
        return tuple(int(n) for n in _summed(self.node)[0].shape)

    def count(self, axes: Sequence[int]) -> int:
        """Elements along some axes."""
        return int(prod(self.sizes[axis] for axis in axes))

    def emitted(self, made: Emits) -> str:
        """MatMul; without a batch, rows stay the axes that they are."""
        batch = [self.sizes[axis] for axis in self.batch]
        rows = [self.count(self.rows)]
        if not batch:
            rows = [self.sizes[axis] for axis in self.rows] or rows
        deep, wide = self.count(self.summed), self.count(self.columns)
        a = self.left.emitted(made, self.batch + self.rows + self.summed, [*batch, *rows, deep])
        b = self.right.emitted(made, self.batch + self.summed + self.columns, [*batch, deep, wide])
        out = made.emit("MatMul", a, b)
        if self.repeats != 1:
            out = made.emit("Mul", out, made.constant(self.repeats, numpy_dtype(self.node.dtype)))
        return self.placed(made, out, self.batch + self.rows + self.columns)

    def placed(self, made: Emits, name: str, order: Sequence[int]) -> str:
        """A result whose axes are in this order, as the sum has them."""
        kept = sorted(order)
        if list(order) != kept:
            name = made.reshaped(name, [self.sizes[axis] for axis in order])
            name = made.emit("Transpose", name, perm=[order.index(axis) for axis in kept])
        return made.reshaped(name, self.node.shape)


def _summed(node: UOp) -> tuple[UOp, tuple[int, ...]]:
    """What a node is the sum of, and along which axes; of anything else, itself along none."""
    is_sum = node.op is Ops.REDUCE_AXIS and node.arg[0] == "add"
    return (resolved(node.src[0]), node.arg[1]) if is_sum else (node, ())


def product_of(node: UOp) -> Product | None:
    """What a node is the sum over the product of, if it is one; a product alone is one of a sum
    over no axis."""
    product, over = _summed(node)
    if product.op is not Ops.MUL or node.dtype not in MULTIPLIED:
        return None
    factors = [thin(source) for source in product.src]
    if any(factor.op is Ops.CONST for factor in factors):
        return None
    long = [i for i, n in enumerate(product.shape) if n > 1]
    gone, own = set(over), [tuple(i for i in long if f.shape[i] > 1) for f in factors]
    alone = [tuple(gone & set(a) - set(b)) for a, b in (own, own[::-1])]
    free = [tuple(i for i in a if i not in {*b, *gone}) for a, b in (own, own[::-1])]
    a, b = (Arranged(*each) for each in zip(factors, own, alone, strict=True))
    both = [i for i in own[0] if i in own[1]]
    if free[1] and (not free[0] or free[1] < free[0]):  # rows come first
        a, b, free = b, a, free[::-1]
    return Product(
        node,
        a,
        b,
        batch=tuple(i for i in both if i not in gone),
        rows=free[0],
        columns=free[1],
        summed=tuple(i for i in both if i in gone),
        repeats=prod(product.shape[i] for i in long if i not in {*own[0], *own[1]} and i in gone),
    )


def contraction_of(node: UOp) -> Product | Convolution | None:
    """The operator that a node is, if factors of different axes are multiplied and summed."""
    product = product_of(node) if node.op is Ops.REDUCE_AXIS else None
    if product is None:
        return None
    return convolution_of(product) or (product if product.rows or product.columns else None)


# ---- convolutions --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convolution:
    """A Product whose factor `image` is windows of `source`. `parts`: for each axis of the source
    the product's axes that it became; of kinds, the images', channels' in groups, in one."""

    product: Product
    source: UOp
    windows: tuple[tuple[int, ...], ...]
    weight: Arranged
    parts: tuple[tuple[int, ...], ...]
    images: tuple[int, ...]
    groups: tuple[int, ...]
    channels: tuple[int, ...]
    taps: tuple[int, ...]
    outputs: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def operands(self) -> tuple[UOp, UOp]:
        """What must have a name."""
        return self.source, self.weight.node

    def emitted(self, made: Emits) -> str:
        """Conv, of (images, channels, ..) by (outputs, channels of a group, taps ..)."""
        whole, places = self.product, [window[0] for window in self.windows]
        image = [self.source.shape[axis] for axis in places]
        count, split = whole.count, [axis for part in self.parts for axis in part]
        order = [*self.images, *self.groups, *self.channels, *(-1 - axis for axis in places)]
        name = made.of(self.source)
        if split != order:
            sizes = [whole.sizes[i] if i >= 0 else self.source.shape[-1 - i] for i in split]
            name = made.reshaped(name, sizes)
            name = made.emit("Transpose", name, perm=[split.index(axis) for axis in order])
        inner = count(self.groups) * count(self.channels)
        name = made.reshaped(name, [count(self.images), inner, *image])
        taps = [window[1] for window in self.windows]
        outer = count(self.groups) * count(self.outputs)
        shape = [outer, count(self.channels), *taps]
        axes = self.groups + self.outputs + self.channels + self.taps
        out = made.emit(
            "Conv",
            name,
            self.weight.emitted(made, axes, shape),
            kernel_shape=taps,
            strides=[window[2] for window in self.windows],
            dilations=[window[3] for window in self.windows],
            pads=[w[4] for w in self.windows] + [w[5] for w in self.windows],
            group=count(self.groups),
        )
        made.shapes[out] = (count(self.images), outer, *places_of(self.windows, self.source.shape))
        return whole.placed(made, out, self.images + self.groups + self.outputs + self.positions)


def places_of(windows: Sequence[tuple[int, ...]], shape: Sequence[int]) -> list[int]:
    """How many places windows (axis, taps, stride, dilation, before, after) have on each axis."""
    return [
        int(shape[axis] + before + after - dilation * (taps - 1) - 1) // stride + 1
        for axis, taps, stride, dilation, before, after in windows
    ]


def convolution_of(product: Product) -> Convolution | None:
    """The Conv that a product is, if one factor is windows."""
    if product.node.dtype is not dtypes.float32 or product.repeats != 1:
        return None
    pairs = (product.left, product.right), (product.right, product.left)
    return next((c for a, b in pairs if (c := _convolution(product, a, b)) is not None), None)


def _convolution(product: Product, image: Arranged, weight: Arranged) -> Convolution | None:
    found = _window_axes(image)
    if found is None or image.alone or weight.alone:
        return None
    window, origins = found
    source, shape = resolved(window.src[0]), window.shape
    ndim = len(shape) - len(window.arg)
    places = [each[0] for each in window.arg]
    positions = tuple(a for axis in places for a in origins.get(axis, ()))
    taps = tuple(a for axis in range(ndim, len(shape)) for a in origins.get(axis, ()))
    rest = [a for axis in range(ndim) if axis not in places for a in origins.get(axis, ())]
    gone, own = set(product.summed), set(weight.axes)
    windows = tuple(
        padded_window(each, source.shape[each[0]], shape[each[0]]) for each in window.arg
    )
    if (
        len(windows) > SPATIAL
        or None in windows
        or any(len(origins.get(axis, ())) > 1 for axis in (*places, *range(ndim, len(shape))))
        or own & set(positions)
        or not set(taps) <= own & gone
    ):
        return None
    return Convolution(
        product,
        source,
        tuple(each for each in windows if each is not None),
        weight,
        tuple((-1 - a,) if a in places else origins.get(a, ()) for a in range(ndim)),
        images=tuple(a for a in rest if a not in own),
        groups=tuple(a for a in rest if a in own - gone),
        channels=tuple(a for a in rest if a in own & gone),
        taps=taps,
        outputs=tuple(a for a in weight.axes if a not in image.axes),
        positions=positions,
    )


def padded_window(window: tuple[int, ...], size: int, count: int) -> tuple[int, ...] | None:
    """A window (axis, taps, stride, dilation, zeros before, zeros after) with as many zeros after
    as its places need; None where a Conv would have other places."""
    axis, taps, stride, dilation, before, _ = window
    reach = (count - 1) * stride + (taps - 1) * dilation + 1
    after = max(0, reach - size - before)
    same = (size + before + after - (taps - 1) * dilation - 1) // stride + 1 == count
    return (axis, taps, stride, dilation, before, after) if same and before >= 0 else None


def _window_axes(factor: Arranged) -> tuple[UOp, dict[int, tuple[int, ...]]] | None:
    """The WINDOW that a factor shows, and for each of its axes the factor's that it became."""
    steps, node = [], factor.node
    while node.op in (Ops.RESHAPE, Ops.PERMUTE):
        steps.append(node)
        node = resolved(node.src[0])
    if node.op is not Ops.WINDOW:
        return None
    parts: list[Part] = [(i,) if n > 1 else () for i, n in enumerate(node.shape)]
    sizes = list(node.shape)
    for step in reversed(steps):
        if step.op is Ops.PERMUTE:
            parts, sizes = [parts[i] for i in step.arg], [sizes[i] for i in step.arg]
            continue
        split = split_parts(parts, sizes, step.shape)
        if split is None:
            return None
        parts, sizes = split, list(step.shape)
    found: dict[int, tuple[int, ...]] = {}
    for part, axis in sorted((part, axis) for axis, part in enumerate(parts) if part):
        found[part[0]] = (*found.get(part[0], ()), axis)
    return node, found


def split_parts(
    parts: Sequence[Part], sizes: Sequence[int], shape: Sequence[int]
) -> list[Part] | None:
    """What the axes of a reshape are parts of; None if one is of several axes."""
    left = [(part, size) for part, size in zip(parts, sizes, strict=True) if size != 1]
    found: list[Part] = []
    for size in shape:
        if size == 1:
            found.append(())
            continue
        part, rest = left.pop(0)
        if rest % size:
            return None
        found.append((*part, 0) if rest > size else part)
        if rest > size:
            left.insert(0, ((*part, 1), rest // size))
    return found
