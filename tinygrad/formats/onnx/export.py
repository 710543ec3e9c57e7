"""ONNX export: a graph of tensors as a model, node by node.

A tensor's graph consists of few kinds of operations, and each is a row here. Two things keep the
model small: operands are not expanded where the operator broadcasts, and compound expressions are
recognised: a sum over a product becomes one MatMul or Conv (`contractions`), a reduction of windows
becomes a pool (`pools`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import prod
from tinygrad.engine.storage import as_array, buffer_of, numpy_dtype
from tinygrad.engine.structure import nodes_below, resolved
from tinygrad.formats.onnx.contractions import thin
from tinygrad.formats.onnx.pools import operator_of
from tinygrad.formats.onnx.registry import Array
from tinygrad.formats.onnx.values import kind_of
from tinygrad.uop import GroupOp, Ops, UOp

OPSET, IR = 20, 9  # what is widely run
NEWER, NEWER_IR = 26, 12  # has BitCast


Weights = Mapping[UOp, tuple[str, tuple[int, ...]]]


class Exporter:
    """Collects the nodes and constants of one model, whose inputs and weights are buffers."""

    def __init__(self, inputs: Mapping[UOp, str], weights: Weights) -> None:
        self.nodes: list[Any] = []
        self.values: dict[str, Array] = {}
        self.known: dict[UOp, str] = dict(inputs)
        self.weights = weights
        self.results: dict[UOp, list[str]] = {}  # of host functions and loops
        self.count = 0  # of values with a name, in all graphs
        self.shapes: dict[str, tuple[int, ...]] = {}  # of values, where they are known
        self._constants: dict[tuple[Any, ...], str] = {}
        self._reshaped: dict[str, str] = {}  # from what values were made by a Reshape
        self.newer = False  # whether it takes the newer operator set

    # ---- words for the rows ----------------------------------------------------------------------

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of an operator's one result."""
        return self.emit_several(operator, inputs, 1, **attributes)[0]

    def emit_several(
        self, operator: str, inputs: Sequence[str], count: int, **attributes: Any
    ) -> list[str]:
        """The names of an operator's results."""
        names = [f"v{self.count + i}" for i in range(count)]
        self.count += count
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """The name of a constant; equal ones are one."""
        array = np.asarray(value, dtype)
        key = (array.tobytes(), str(array.dtype), array.shape)
        if key not in self._constants:
            self._constants[key] = f"c{len(self._constants)}"
            self.values[self._constants[key]] = array
        return self._constants[key]

    def reshaped(self, name: str, shape: Sequence[Any]) -> str:
        """The same elements in another shape."""
        shape = _sizes(shape)
        source = self._reshaped.get(name, name)
        for known in (name, source):
            if self.shapes.get(known) == shape:
                return known
        made = self.emit("Reshape", source, self.constant(shape), allowzero=1)
        self.shapes[made], self._reshaped[made] = shape, source
        return made

    def cast(self, name: str, dtype: DType) -> str:
        """Converted."""
        return self.emit("Cast", name, to=kind_of(numpy_dtype(dtype)))

    def of(self, node: UOp) -> str:
        """The name of a node's value."""
        return self.known[resolved(node)]

    def operands(self, node: UOp) -> list[str]:
        """The sources of an elementwise operation, not expanded where they need not be."""
        return [self.of(source) for source in operands_of(node)]

    # ---- the walk --------------------------------------------------------------------------------

    def add(self, roots: Sequence[UOp]) -> list[str]:
        """The names of the roots' values."""
        nodes = nodes_below(roots)
        wanted = _wanted(nodes, roots)
        for node in nodes:
            if node in wanted and node not in self.known:
                self.known[node] = self._made(node)
        return [self.of(root) for root in roots]

    def _made(self, node: UOp) -> str:
        row = ROWS.get(node.op)
        if row is None:
            where = f" (made at {node.origin})" if node.origin else ""
            why = REFUSED.get(node.op, "has no ONNX operator")
            raise ArgumentError(f"export_onnx: {node.op!r}{where} {why}")
        if node.has_shape and any(not isinstance(n, int) for n in node.shape):
            raise ArgumentError(
                f"export_onnx: a value of shape {node.shape}; legal are whole sizes"
            )
        operator = operator_of(node)
        name = row(self, node) if operator is None else operator.emitted(self)
        if name and node.has_shape:
            self.shapes[name] = _sizes(node.shape)
        return name


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(n) for n in shape)


def operands_of(node: UOp) -> list[UOp]:
    """The sources of an elementwise operation, not expanded where it broadcasts."""
    found = [thin(source) for source in node.src]
    fits = np.broadcast_shapes(*(_sizes(source.shape) for source in found)) == node.shape
    return found if fits else [resolved(source) for source in node.src]


def _wanted(nodes: Sequence[UOp], roots: Sequence[UOp]) -> set[UOp]:
    """What must have a name: not an EXPAND that only broadcasting operations read, nor the terms
    of a sum that becomes one operator."""
    wanted = {resolved(root) for root in roots}
    for node in reversed(nodes):
        if node not in wanted or node.op in (Ops.BUFFER, Ops.CONST, Ops.ARANGE):
            continue
        if (operator := operator_of(node)) is not None:
            wanted.update(operator.operands)
        elif node.op in GroupOp.ALU:
            wanted.update(operands_of(node))
        else:
            wanted.update(s for s in map(resolved, node.src) if s.op is not Ops.DEVICE)
    return wanted


# ---- leaves --------------------------------------------------------------------------------------


def _buffer(made: Exporter, node: UOp) -> str:
    name, shape = made.weights.get(node, (f"w{len(made.values)}", node.shape))
    made.values[name] = as_array(buffer_of(node), node.dtype).reshape(_sizes(shape))
    made.shapes[name] = _sizes(shape)
    return made.reshaped(name, node.shape)


def _number(made: Exporter, node: UOp) -> str:
    return made.constant(node.arg, numpy_dtype(node.dtype))


def _counting(made: Exporter, node: UOp) -> str:
    return made.constant(np.arange(node.arg), numpy_dtype(node.dtype))


def _same(made: Exporter, node: UOp) -> str:
    return made.of(node.src[0])


# ---- movement ------------------------------------------------------------------------------------


def _reshape(made: Exporter, node: UOp) -> str:
    return made.reshaped(made.of(node.src[0]), node.shape)


def _expand(made: Exporter, node: UOp) -> str:
    return made.emit("Expand", made.of(node.src[0]), made.constant(_sizes(node.shape)))


def _permute(made: Exporter, node: UOp) -> str:
    return made.emit("Transpose", made.of(node.src[0]), perm=list(node.arg))


def padded(made: Exporter, name: str, dtype: DType, pairs: Sequence[tuple[int, int]]) -> str:
    """Zeros around, of types that Pad may lack as well."""
    if not any(before or after for before, after in pairs):
        return name
    narrow = dtype is dtypes.bool or dtype.itemsize < 4
    wide = made.cast(name, dtypes.float32) if narrow else name
    pads = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    out = made.emit("Pad", wide, made.constant(pads), mode="constant")
    return made.cast(out, dtype) if narrow else out


def _pad(made: Exporter, node: UOp) -> str:
    return padded(made, made.of(node.src[0]), node.dtype, node.arg)


def _shrink(made: Exporter, node: UOp) -> str:
    source = made.of(node.src[0])
    box = [(i, *pair) for i, pair in enumerate(node.arg) if pair != (0, node.src[0].shape[i])]
    axes, starts, ends = (made.constant(list(part)) for part in zip(*box, strict=True))
    return made.emit("Slice", source, starts, ends, axes)


def _flip(made: Exporter, node: UOp) -> str:
    axes = list(node.arg)
    ends = made.constant([-(1 << 62)] * len(axes))
    starts, steps = (made.constant([-1] * len(axes)) for _ in range(2))
    return made.emit("Slice", made.of(node.src[0]), starts, ends, made.constant(axes), steps)


def _window(made: Exporter, node: UOp) -> str:
    """Padded, then each axis gathered as (positions, taps), the taps moved to the end."""
    source, shape = node.src[0], list(node.src[0].shape)
    pairs, places = [(0, 0)] * len(shape), []
    for axis, size, stride, dilation, before, _ in node.arg:
        at = np.arange(node.shape[axis])[:, None] * stride + np.arange(size) * dilation
        pairs[axis] = before, max(0, int(at.max()) + 1 - shape[axis] - before)
        places.append((axis, at))
    out, ndim = padded(made, made.of(source), node.dtype, pairs), len(shape)
    for axis, at in places:
        out = made.emit("Gather", out, made.constant(at), axis=axis)
        order = [*range(axis + 1), *range(axis + 2, ndim + 1), axis + 1]
        out = made.emit("Transpose", out, perm=order)
        ndim += 1
    return out


def _fold(made: Exporter, node: UOp) -> str:
    """What windows read, added up where they read it."""
    windows, shape = node.arg
    source = node.src[0].shape
    count, ndim = len(windows), len(shape)
    axes = [window[0] for window in windows]
    others = [i for i in range(ndim) if i not in axes]
    taps = list(range(ndim, ndim + count))
    rows, sizes = prod(shape[i] for i in others), []
    flat = np.zeros((1,) * 2 * count, np.int64)
    for i, (axis, size, stride, dilation, before, after) in enumerate(windows):
        full = shape[axis] + before + after
        at = np.arange(source[axis])[:, None] * stride + np.arange(size) * dilation
        full = max(full, int(at.max()) + 1)
        along = [1] * 2 * count
        along[i], along[count + i] = at.shape
        flat = flat * full + at.reshape(along)
        sizes.append(full)
    moved = made.emit("Transpose", made.of(node.src[0]), perm=[*others, *axes, *taps])
    updates = made.reshaped(moved, (rows, flat.size))
    zeros = made.emit("Expand", made.constant(0, numpy_dtype(node.dtype)),
                      made.constant([rows, prod(sizes)]))  # fmt: skip
    index = made.constant(np.broadcast_to(flat.reshape(1, -1), (rows, flat.size)))
    out = made.emit("ScatterElements", zeros, index, updates, axis=1, reduction="add")
    out = made.reshaped(out, [*(shape[i] for i in others), *sizes])
    starts = made.constant([window[4] for window in windows])
    ends = made.constant([window[4] + shape[window[0]] for window in windows])
    where = made.constant(list(range(len(others), ndim)))
    out = made.emit("Slice", out, starts, ends, where)
    back = [*others, *axes]
    return made.emit("Transpose", out, perm=[back.index(i) for i in range(ndim)])


# ---- reductions ----------------------------------------------------------------------------------

REDUCTIONS = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax"}


def _reduce(made: Exporter, node: UOp) -> str:
    monoid, axes = node.arg
    source, kind = made.of(node.src[0]), node.dtype
    narrow = kind is dtypes.bool or (not dtypes.is_float(kind) and kind.itemsize < 4)
    source = made.cast(source, dtypes.int32) if narrow else source
    out = made.emit(REDUCTIONS[monoid], source, made.constant(list(axes)), keepdims=1)
    return made.cast(out, kind) if narrow else out


def _running(made: Exporter, node: UOp) -> str:
    monoid, axis = node.arg
    if monoid != "add":
        raise ArgumentError(f"export_onnx: a running {monoid} has no ONNX operator")
    return made.emit("CumSum", made.of(node.src[0]), made.constant(axis))


# ---- by position ---------------------------------------------------------------------------------


def _places(made: Exporter, indices: Sequence[UOp]) -> str:
    """Index nodes of one shape S as one array of S + (number of them,)."""
    shape = (*indices[0].shape, 1)
    columns = [made.reshaped(made.cast(made.of(i), dtypes.int64), shape) for i in indices]
    return made.emit("Concat", *columns, axis=-1) if len(columns) > 1 else columns[0]


def _index(made: Exporter, node: UOp) -> str:
    indices = node.src[1 : 1 + node.arg]
    if not indices:
        return made.of(node.src[0])
    out = made.emit("GatherND", made.of(node.src[0]), _places(made, indices))
    if len(node.src) == 1 + node.arg:
        return out
    gate = node.src[-1]
    shape = (*gate.shape, *[1] * (len(node.shape) - len(gate.shape)))
    zero = made.constant(0, numpy_dtype(node.dtype))
    return made.emit("Where", made.reshaped(made.of(gate), shape), out, zero)


def _scatter(made: Exporter, node: UOp) -> str:
    target, updates, *indices = node.src
    how = {"set": "none", "add": "add", "mul": "mul", "max": "max"}[node.arg[0]]
    places = _places(made, indices)
    return made.emit("ScatterND", made.of(target), places, made.of(updates), reduction=how)


# ---- host functions and loops --------------------------------------------------------------------


def _sorted(made: Exporter, node: UOp, count: int | None, which: int) -> list[str]:
    """The least `count` of the last axis in order, or all: their values, or where they are."""
    k = made.constant([node.src[0].shape[-1] if count is None else count])
    found = made.emit_several("TopK", [made.of(node.src[0]), k], 2, axis=-1, largest=0, sorted=1)
    return [made.cast(found[1], dtypes.int32) if which else found[0]]


CALLS: Mapping[str, Callable[..., list[str]]] = {
    "argsort": lambda made, node: _sorted(made, node, None, 1),
    "smallest": lambda made, node, count=None: _sorted(made, node, count, 0),
}


def _call(made: Exporter, node: UOp) -> str:
    name, *parameters = node.arg
    if name not in CALLS:
        raise ArgumentError(
            f"export_onnx: host function {name!r} has no ONNX operator; legal are {list(CALLS)}"
        )
    made.results[node] = CALLS[name](made, node, *parameters)
    return ""


def _scan(made: Exporter, node: UOp) -> str:
    """A Scan, whose body reads what else it needs from around it."""
    info, sources = node.arg, [made.of(source) for source in node.src]
    outer, known, given = made.nodes, dict(made.known), info.states + info.inputs
    made.nodes, number = [], made.count
    inputs = []
    for slot, source in enumerate(node.src[:given]):
        shape = source.shape if slot < info.states else source.shape[1:]
        inputs.append(_value_info(f"s{number}_{slot}", source.dtype, shape))
    for hole in info.body.toposort():
        if hole.op is Ops.PARAM and hole.tag == "scan":
            slot, size = hole.arg
            name = inputs[slot].name if slot < given else sources[slot]
            made.known[hole] = made.reshaped(name, (size,))
    results = [made.emit("Identity", name) for name in made.add(info.body.src)]
    outputs = [
        _value_info(name, root.dtype, root.shape)
        for name, root in zip(results, info.body.src, strict=True)
    ]
    body = helper.make_graph(made.nodes, "body", inputs, outputs)
    made.nodes, made.known = outer, known
    way = int(info.reverse)
    made.results[node] = made.emit_several(
        "Scan",
        sources[:given],
        len(outputs),
        body=body,
        num_scan_inputs=info.inputs,
        scan_input_directions=[way] * info.inputs,
        scan_output_directions=[way] * (len(outputs) - info.states),
    )
    return ""


def _item(made: Exporter, node: UOp) -> str:
    results = made.results[resolved(node.src[0])]
    return results[int(node.arg[0])]


# ---- elementwise ---------------------------------------------------------------------------------

Elementwise = Callable[[Exporter, UOp, list[str]], str]


def _operator(name: str, for_bool: str = "") -> Elementwise:
    def row(made: Exporter, node: UOp, operands: list[str]) -> str:
        is_bool = node.src[-1].dtype is dtypes.bool
        return made.emit(for_bool if for_bool and is_bool else name, *operands)

    return row


def _exp2(made: Exporter, node: UOp, operands: list[str]) -> str:
    factor = made.constant(math.log(2), numpy_dtype(node.dtype))
    return made.emit("Exp", made.emit("Mul", operands[0], factor))


def _log2(made: Exporter, node: UOp, operands: list[str]) -> str:
    factor = made.constant(1 / math.log(2), numpy_dtype(node.dtype))
    return made.emit("Mul", made.emit("Log", operands[0]), factor)


def _trunc(made: Exporter, node: UOp, operands: list[str]) -> str:
    whole = made.emit("Floor", made.emit("Abs", operands[0]))
    return made.emit("Mul", made.emit("Sign", operands[0]), whole)


def _idiv(made: Exporter, node: UOp, operands: list[str]) -> str:
    """Rounded down: one less than ONNX's, whose remainder has the sign of what is divided, where
    the two remainders differ."""
    quotient = made.emit("Div", *operands)
    if dtypes.is_unsigned(node.dtype):
        return quotient
    same = made.emit("Equal", made.emit("Mod", *operands), made.emit("Mod", *operands, fmod=1))
    return made.emit("Sub", quotient, made.cast(made.emit("Not", same), node.dtype))


def _less(made: Exporter, node: UOp, operands: list[str]) -> str:
    if node.src[0].dtype is dtypes.bool:
        return made.emit("And", made.emit("Not", operands[0]), operands[1])
    return made.emit("Less", *operands)


def _not_equal(made: Exporter, node: UOp, operands: list[str]) -> str:
    if node.src[0].dtype is dtypes.bool:
        return made.emit("Xor", *operands)
    return made.emit("Not", made.emit("Equal", *operands))


def _shift_left(made: Exporter, node: UOp, operands: list[str]) -> str:
    """In 64 bits without a sign, which loses what the narrower type would."""
    a, b = (made.cast(name, dtypes.uint64) for name in operands)
    return made.cast(made.emit("BitShift", a, b, direction="LEFT"), node.dtype)


def _shift_right(made: Exporter, node: UOp, operands: list[str]) -> str:
    """Of a negative number its complement is shifted, and what comes is complemented again."""
    x, count = operands[0], made.cast(operands[1], dtypes.uint64)
    sign = ""
    if not dtypes.is_unsigned(node.dtype):
        is_negative = made.emit("Less", x, made.constant(0, numpy_dtype(node.dtype)))
        sign = made.emit("Neg", made.cast(is_negative, dtypes.int64))
        x = made.emit("BitwiseXor", made.cast(x, dtypes.int64), sign)
    shifted = made.emit("BitShift", made.cast(x, dtypes.uint64), count, direction="RIGHT")
    if sign:
        shifted = made.emit("BitwiseXor", made.cast(shifted, dtypes.int64), sign)
    return made.cast(shifted, node.dtype)


def _bits(made: Exporter, node: UOp) -> str:
    made.newer = True
    return made.emit("BitCast", made.of(node.src[0]), to=kind_of(numpy_dtype(node.dtype)))


def _multiply_add(made: Exporter, node: UOp, operands: list[str]) -> str:
    return made.emit("Add", made.emit("Mul", *operands[:2]), operands[2])


CHOSEN = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint8)


def _where(made: Exporter, node: UOp, operands: list[str]) -> str:
    """By way of a wider type where runtimes have no Where."""
    if node.dtype in CHOSEN:
        return made.emit("Where", *operands)
    wide = dtypes.float32 if dtypes.is_float(node.dtype) else dtypes.int64
    choices = [made.cast(name, wide) for name in operands[1:]]
    return made.cast(made.emit("Where", operands[0], *choices), node.dtype)


ELEMENTWISE: Mapping[Ops, Elementwise] = {
    Ops.ADD: _operator("Add", for_bool="Or"),
    Ops.AND: _operator("BitwiseAnd", for_bool="And"),
    Ops.CMPEQ: _operator("Equal"),
    Ops.CMPLT: _less,
    Ops.CMPNE: _not_equal,
    Ops.COS: _operator("Cos"),
    Ops.EXP2: _exp2,
    Ops.FDIV: _operator("Div"),
    Ops.IDIV: _idiv,
    Ops.LOG2: _log2,
    Ops.MAX: _operator("Max", for_bool="Or"),
    Ops.MOD: _operator("Mod"),
    Ops.MUL: _operator("Mul", for_bool="And"),
    Ops.MULACC: _multiply_add,
    Ops.OR: _operator("BitwiseOr", for_bool="Or"),
    Ops.POW: _operator("Pow"),
    Ops.RECIP: _operator("Reciprocal"),
    Ops.ROUND: _operator("Round"),
    Ops.SHL: _shift_left,
    Ops.SHR: _shift_right,
    Ops.SIN: _operator("Sin"),
    Ops.SQRT: _operator("Sqrt"),
    Ops.TRUNC: _trunc,
    Ops.WHERE: _where,
    Ops.XOR: _operator("BitwiseXor", for_bool="Xor"),
}


def _elementwise(row: Elementwise) -> Callable[[Exporter, UOp], str]:
    return lambda made, node: row(made, node, made.operands(node))


ROWS: Mapping[Ops, Callable[[Exporter, UOp], str]] = {
    **{op: _elementwise(row) for op, row in ELEMENTWISE.items()},
    Ops.ARANGE: _counting,
    Ops.BITCAST: _bits,
    Ops.BUFFER: _buffer,
    Ops.CALL: _call,
    Ops.CAST: lambda made, node: made.cast(made.of(node.src[0]), node.dtype),
    Ops.CHECK: _same,
    Ops.CONST: _number,
    Ops.CONTIGUOUS: _same,
    Ops.COPY: _same,
    Ops.DETACH: _same,
    Ops.EXPAND: _expand,
    Ops.FLIP: _flip,
    Ops.FOLD: _fold,
    Ops.INDEX: _index,
    Ops.ITEM: _item,
    Ops.PAD: _pad,
    Ops.PERMUTE: _permute,
    Ops.REDUCE_AXIS: _reduce,
    Ops.RESHAPE: _reshape,
    Ops.RUNNING: _running,
    Ops.SCAN: _scan,
    Ops.SCATTER: _scatter,
    Ops.SHRINK: _shrink,
    Ops.WINDOW: _window,
}

_RANDOM = "is of random numbers; realize() weights first, and leave dropout to training"
REFUSED: Mapping[Ops, str] = {Ops.BIND: _RANDOM, Ops.THREEFRY: _RANDOM}
"""Why some of what has no row is refused."""


# ---- a whole model -------------------------------------------------------------------------------


def model_of_graph(inputs: Mapping[str, UOp], outputs: Mapping[str, UOp], weights: Weights) -> Any:
    """The ModelProto that computes the outputs from inputs, each a BUFFER or a RESHAPE of one.

    Args:
        inputs: by name.
        outputs: by name.
        weights: names and shapes of BUFFERs that are constants of the model; others get a name.
    """
    made = Exporter({}, weights)
    for name, node in inputs.items():
        made.shapes[name] = _sizes(node.shape)
        made.known[node.base] = made.reshaped(name, (prod(node.shape),))
    results = made.add(list(outputs.values()))
    for name, result in zip(outputs, results, strict=True):
        made.nodes.append(helper.make_node("Identity", [result], [name]))
    made.nodes = _needed(made.nodes, outputs)
    used = _names_in(made.nodes)
    graph = helper.make_graph(
        made.nodes,
        "tinygrad",
        [_value_info(name, node.dtype, node.shape) for name, node in inputs.items()],
        [_value_info(name, node.dtype, node.shape) for name, node in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in made.values.items() if n in used],
    )
    model: ModelProto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", NEWER if made.newer else OPSET)],
        producer_name="tinygrad",
    )
    model.ir_version = NEWER_IR if made.newer else IR
    return model


def _value_info(name: str, dtype: DType, shape: Sequence[Any]) -> Any:
    return helper.make_tensor_value_info(name, kind_of(numpy_dtype(dtype)), list(_sizes(shape)))


def _needed(nodes: Sequence[Any], outputs: Iterable[str]) -> list[Any]:
    """Nodes that the outputs depend on."""
    found, names = [], set(outputs)
    for node in reversed(nodes):
        if names.intersection(node.output):
            found.append(node)
            names |= _names_in([node])
    return found[::-1]


def _names_in(nodes: Sequence[Any]) -> set[str]:
    """What nodes read, also inside loops."""
    found = {name for node in nodes for name in node.input}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name == "body":
                found |= _names_in(attribute.g.node)
    return found
