"""What a kernel means, in NumPy: the oracle for recipes. It reads a graph of stage "kernel", before
or after a recipe, as mathematics: roles don't matter, a value is an array over the loops that it
depends on. Floats are computed as float64, so that a recipe changes a result by rounding only.

It is strict where a recipe can go wrong: a read outside of a buffer or of what a stage was filled
with fails, and so does an output element that is stored twice with different values or not at all.
"""

import numpy as np

from tinygrad.base.dtype import dtypes
from tinygrad.loops.layout import elements, flat_offset, indices, option, strides
from tinygrad.loops.roles import name_of, own_ranges, size_of
from tinygrad.loops.trims import ends_of
from tinygrad.simplify.masks import gate_of
from tinygrad.uop.op import ROW, GroupOp, Ops

REDUCERS = {
    "add": (np.add, 0),
    "mul": (np.multiply, 1),
    "max": (np.maximum, None),
    "min": (np.minimum, None),
}


def kind(dtype):
    if dtypes.is_float(dtype):
        return np.float64
    return np.bool_ if dtypes.is_bool(dtype) else np.int64


def wrap(array, dtype):
    """An integer array as its dtype would hold it."""
    if not dtypes.is_int(dtype) or dtype is dtypes.index:
        return np.asarray(array, kind(dtype))
    low, bits = int(dtypes.min(dtype)), dtype.itemsize * 8
    if bits == 64:
        return np.asarray(array, np.int64)
    return (np.asarray(array, np.int64) - low) % (1 << bits) + low


class Evaluator:
    """The values of one kernel's nodes on given buffers (flat arrays, in order of slot)."""

    def __init__(self, kernel, buffers, variables):
        self.kernel, self.variables = kernel, variables
        self.buffers = [np.asarray(b).reshape(-1) for b in buffers]
        self.values = {}
        self.stops = ends_of(kernel, "trim")
        self.starts = ends_of(kernel, "start")

    def axes(self, loops):
        return tuple(sorted(loops, key=name_of))

    def spread(self, node, axes):
        """The value of `node` as an array that broadcasts over `axes`."""
        own, array = self.values[node]
        array = array.reshape([size_of(a) if a in own else 1 for a in axes])
        return array

    def turns_taken(self, axes, trimmed=True):
        """Which turns of these loops run."""
        taken = np.ones([1] * len(axes), bool)
        for position, loop in enumerate(axes):
            shape = [1] * len(axes)
            shape[position] = size_of(loop)
            count = np.arange(size_of(loop)).reshape(shape)
            for limit in loop.src:
                taken = taken & (count < self.spread(limit, axes))
            for ends, turn in ((self.stops, count), (self.starts, -count - 1)):
                if not trimmed or name_of(loop) not in ends:
                    continue
                terms, d, f = ends[name_of(loop)]
                bound = np.full([1] * len(axes), d)
                known = {name_of(a): a for a in axes}
                if all(outer in known for outer, _ in terms):
                    for outer, k in terms:
                        bound = bound + k * self.spread(known[outer], axes)
                    taken = taken & (turn < -(-bound // f))
        return taken

    def run(self):
        """The stored buffers, a dict from slot to array."""
        for node in self.kernel.toposort():
            if node.op is Ops.SINK:
                continue
            if node.op is Ops.STORE:
                continue
            made = self.evaluate(node)
            if made is not None:
                self.values[node] = made
        return {s.src[0].src[0].arg[0]: self.store(s) for s in self.kernel.src}

    def evaluate(self, node):
        axes = self.axes(node.ranges)
        if node.op is Ops.PARAM:
            return None
        if node.op is Ops.CONST:
            return (), np.asarray(node.arg, kind(node.dtype))
        if node.op is Ops.DEFINE_VAR:
            return (), np.asarray(self.variables[node.arg[0]])
        if node.op is Ops.RANGE:
            array = np.arange(size_of(node))
            shape = [size_of(a) if a is node else 1 for a in axes]
            return axes, np.broadcast_to(array.reshape(shape), [size_of(a) for a in axes]).copy()
        if node.op is Ops.REDUCE:
            return self.reduce(node, axes)
        if node.op is Ops.STAGE:
            return self.stage(node, axes)
        if node.op is Ops.INDEX:
            return self.index(node, axes)
        sources = [self.spread(s, axes) for s in node.src]
        array = wrap(self.compute(node, sources), node.dtype)
        return axes, self.full(array, axes)

    def full(self, array, axes):
        return np.broadcast_to(array, [size_of(a) for a in axes])

    def compute(self, node, s):
        with np.errstate(all="ignore"):
            if node.op in FAST:
                return FAST[node.op](*s)
            if node.op in (Ops.CAST, Ops.CHECK, Ops.BITCAST):
                return s[0]
            assert node.op in GroupOp.ALU, node.op
            meaning = np.vectorize(ROW[node.op].meaning, otypes=[kind(node.dtype)])
            return meaning(*s)

    def reduce(self, node, axes):
        own = own_ranges(node)
        value_axes = self.axes(node.src[0].ranges | frozenset(own))
        value_axes = self.axes(frozenset(value_axes) | node.ranges)
        function, identity = REDUCERS[node.arg]
        if identity is None:
            lowest = dtypes.min if node.arg == "max" else dtypes.max
            identity = lowest(node.dtype)
        taken = self.turns_taken(value_axes)
        array = np.where(taken, self.spread(node.src[0], value_axes), identity)
        array = self.full(array, value_axes)
        array = function.reduce(array, axis=tuple(i for i, a in enumerate(value_axes) if a in own))
        left = [a for a in value_axes if a not in own]
        assert tuple(left) == axes
        return axes, wrap(array, node.dtype)

    def stage(self, node, axes):
        """The memory of a stage: outer loops, then one flat axis. What isn't filled is poison."""
        own = own_ranges(node)
        inner = self.axes(frozenset(own) | node.src[0].ranges | node.ranges)
        taken = self.full(self.turns_taken(inner), inner)
        array = self.full(self.spread(node.src[0], inner), inner)
        poison = np.nan if kind(node.dtype) is np.float64 else 77
        order = [inner.index(a) for a in (*axes, *own)]
        outer_shape = [size_of(a) for a in axes]
        memory = np.full((*outer_shape, elements(node)), poison, kind(node.dtype))
        filled = np.zeros(memory.shape, bool)
        steps = strides(node)
        place = sum(
            np.arange(size_of(a)).reshape([-1 if b is a else 1 for b in own]) * k
            for a, k in zip(own, steps, strict=True)
        )
        place = np.broadcast_to(place, [size_of(a) for a in own]).reshape(-1)
        flat = (*outer_shape, -1)
        taken, array = (x.transpose(order).reshape(flat) for x in (taken, array))
        *outer, at = np.nonzero(taken)
        memory[(*outer, place[at])] = array[(*outer, at)]
        filled[(*outer, place[at])] = True
        self.values[node, "filled"] = (axes, filled)
        return axes, memory

    def index(self, node, axes):
        gate = gate_of(node)
        wanted = self.full(self.turns_taken(axes, trimmed=False), axes)
        live = self.full(self.turns_taken(axes), axes)
        if gate is not None:
            live = live & self.full(self.spread(gate, axes), axes)
            wanted = wanted & self.full(self.spread(gate, axes), axes)
        buffer = node.src[0]
        if buffer.op is Ops.PARAM:
            slot, size = buffer.arg
            offset = self.full(self.spread(node.src[1], axes), axes)
            outside = wanted & ((offset < 0) | (offset >= size))
            assert not outside.any(), f"reads outside of buffer {slot}: {offset[outside][:4]}"
            data = self.buffers[slot].astype(kind(node.dtype))
            return axes, np.where(wanted, data[np.clip(offset, 0, size - 1)], 0)
        outer, memory = self.values[buffer]
        _, filled = self.values[buffer, "filled"]
        offset = np.zeros([1] * len(axes), int)
        for i, loop, k in zip(indices(node), own_ranges(buffer), strides(buffer), strict=True):
            at = self.spread(i, axes)
            outside = self.full(live, axes) & self.full((at < 0) | (at >= size_of(loop)), axes)
            assert not outside.any(), f"reads {name_of(loop)} of {buffer.arg[0]} outside"
            offset = offset + np.clip(at, 0, size_of(loop) - 1) * k
        offset = self.full(offset, axes)
        places = [np.arange(size_of(a)).reshape([-1 if b is a else 1 for b in axes]) for a in outer]
        found = memory[(*places, offset)]
        unfilled = live & ~filled[(*places, offset)]
        assert not unfilled.any(), f"reads what {buffer.arg[0]} was not filled with"
        assert option(buffer, "first") is None or buffer.arg[1] != "GLOBAL"
        return axes, np.where(live, found, 0)

    def store(self, store):
        target, value = store.src[:2]
        own = own_ranges(store)
        axes = self.axes(own)
        assert target.ranges | value.ranges <= frozenset(own), "a loop that nobody closes"
        slot, size = target.src[0].arg
        out = np.zeros(size, kind(value.dtype))
        taken = self.full(self.turns_taken(axes), axes)
        if gate_of(target) is not None:
            taken = taken & self.full(self.spread(gate_of(target), axes), axes)
        offset = self.full(self.spread(target.src[1], axes), axes)[taken]
        assert offset.size == 0 or (offset.min() >= 0 and offset.max() < size)
        values = self.full(self.spread(value, axes), axes)[taken]
        out[offset] = values
        np.testing.assert_array_equal(out[offset], values, "an element is stored twice")
        return out


FAST = {
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.FDIV: np.divide,
    Ops.MAX: np.maximum,
    Ops.CMPLT: np.less,
    Ops.CMPNE: np.not_equal,
    Ops.CMPEQ: np.equal,
    Ops.AND: np.bitwise_and,
    Ops.OR: np.bitwise_or,
    Ops.XOR: np.bitwise_xor,
    Ops.WHERE: np.where,
    Ops.EXP2: np.exp2,
    Ops.LOG2: np.log2,
    Ops.SIN: np.sin,
    Ops.COS: np.cos,
    Ops.SQRT: np.sqrt,
    Ops.RECIP: np.reciprocal,
    Ops.TRUNC: np.trunc,
    Ops.ROUND: np.rint,
}


def evaluate_kernel(kernel, buffers, variables=None):
    """The stored buffers of `kernel` by slot; `buffers` are flat arrays in order of slot."""
    return Evaluator(kernel, buffers, variables or {}).run()


__all__ = ["evaluate_kernel", "flat_offset"]
