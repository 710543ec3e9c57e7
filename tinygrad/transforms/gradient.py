"""Reverse-mode differentiation: one table with a row for each op, and one walk.

A row takes a node and the gradient `g` of its value, and returns one gradient for each source, or
None where no gradient passes. Gradients are graphs of the same ops, so gradients of gradients need
nothing more. An op through which no gradient passes has a row that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from tinygrad.base.dtype import DType, compute_dtype, dtypes
from tinygrad.base.errors import DTypeError
from tinygrad.base.helpers import argsort, garbage_kept, prod
from tinygrad.simplify.movement import constant_under
from tinygrad.transforms.factors import filled_room, of_running_product, other_factors
from tinygrad.uop import Ops, UOp
from tinygrad.uop.verify import STAGES

Gradients = tuple[UOp | None, ...]
Rule = Callable[[UOp, UOp], Gradients]
CallRule = Callable[[UOp, dict[int, UOp]], Gradients]

CALLS: dict[str, CallRule] = {}
"""Of a CALL by its name, or of "SCAN": its gradient from {number of the result: its gradient}."""


# ---- helpers on nodes ----------------------------------------------------------------------------


def reshaped(node: UOp, shape: tuple[Any, ...]) -> UOp:
    """`node` with another shape. Unlike `UOp.reshape` it never looks below `node`, because a
    gradient may be wanted of the very reshape that would be skipped."""
    return node if shape == node.shape else node.moved(Ops.RESHAPE, shape)


def broadcast(node: UOp, shape: tuple[Any, ...]) -> UOp:
    """`node` with new leading axes of size 1, expanded to `shape`."""
    return reshaped(node, (1,) * (len(shape) - node.ndim) + node.shape).expand(shape)


def sum_axes(node: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over `axes`, kept as size 1; narrow floats are added up in float32.

    What is summed may be a product of matrices, a sum of products itself. If both factors differ
    along `axes`, the two sums become one: the gradients of keys that heads share (a sum over the
    heads) are then one product, which finds the scores in rows as the one without that sum does.
    If a factor is repeated along them, as a layer's weight is over a batch, the product is stored
    for others anyway, and the second sum had better read it.
    """
    wide = compute_dtype(node.dtype)
    inner = _unmoved(node, (node.dtype, wide))
    is_sum = inner.op is Ops.REDUCE_AXIS and inner.arg[0] == "add" and inner.src[0].op is Ops.MUL
    if not is_sum or _is_repeated(inner, _spans(node, axes)):
        return node.cast(wide).reduce_axis("add", axes).cast(node.dtype)
    summed = inner.arg[1]
    order = (*(i for i in range(inner.ndim) if i not in summed), *summed)
    shape = (*node.shape, *(inner.src[0].shape[i] for i in summed))  # (axes of node.., summed..)
    first, second = (reshaped(f.moved(Ops.PERMUTE, order), shape) for f in inner.src[0].src)
    total = (first * second).cast(wide).reduce_axis("add", (*axes, *range(node.ndim, len(shape))))
    kept = tuple(1 if i in axes else n for i, n in enumerate(node.shape))
    return reshaped(total, kept).cast(node.dtype)


def _unmoved(node: UOp, dtypes: tuple[DType, ...]) -> UOp:
    """What reshapes, casts to these dtypes, and permutations that undo each other, lie on."""
    while node.dtype in dtypes:
        if node.op in (Ops.RESHAPE, Ops.CAST):
            node = node.src[0]
        elif node.op is Ops.PERMUTE is node.src[0].op and node.arg == argsort(node.src[0].arg):
            node = node.src[0].src[0]
        else:
            break
    return node


def _is_repeated(made: UOp, spans: list[tuple[int, int]]) -> bool:
    """Whether a factor of this sum of products is the same along axes that lie in these spans of
    the result, or its sizes are no numbers."""
    if not all(isinstance(n, int) for n in made.src[0].shape):
        return True
    for factor in made.src[0].src:
        if factor.op is Ops.EXPAND:
            grown = [i for i, n in enumerate(factor.src[0].shape) if n != factor.shape[i]]
            for low, high in _spans(made, [i for i in grown if i not in made.arg[1]]):
                if any(low < end and start < high for start, end in spans):
                    return True
    return False


def _spans(node: UOp, axes: Collection[int]) -> list[tuple[int, int]]:
    """Of each axis: from how far its elements are apart to the size of what it walks over."""
    inner = [prod(node.shape[i + 1 :]) for i in axes]
    return [(step, step * node.shape[i]) for i, step in zip(axes, inner, strict=True)]


def total(parts: list[UOp]) -> UOp:
    """The sum of some nodes of one dtype, at least one; narrow floats are rounded once."""
    if len(parts) == 1:
        return parts[0]
    first, *others = parts
    wide = compute_dtype(first.dtype) if len(others) > 1 else first.dtype  # two are rounded once
    return sum((part.cast(wide) for part in others), start=first.cast(wide)).cast(first.dtype)


MOST_FACTORS = 16
"""Factors and terms that are looked through for those that a sum need not take in."""


def sum_along(g: UOp, axes: tuple[int, ...]) -> UOp:
    """`sum_axes` of a gradient, with the factors that are the same along the axes taken out of the
    sum. So gradients that differ in such factors only, as those of a norm's scale, shift and input,
    share their sums. Narrow floats keep their order: there each factor rounds."""
    apart = [_factors(term, axes) for term in _parts(Ops.ADD, [g])]
    narrow = not dtypes.is_float(g.dtype) or g.dtype.itemsize < 4
    if narrow or not all(outer and inner for outer, inner in apart):
        return sum_axes(g, axes)
    total = None
    for outer, inner in apart:
        alone = len(apart) == len(inner) == 1  # a sum of terms that may have factors of their own
        one = (
            sum_along(inner[0], axes)
            if alone
            else sum_axes(math.prod(inner[1:], start=inner[0]), axes)
        )
        one = math.prod(outer, start=one)
        total = one if total is None else total + one
    assert total is not None
    return total


def _factors(node: UOp, axes: tuple[int, ...]) -> tuple[list[UOp], list[UOp]]:
    """The factors that are the same along `axes`, with these of size 1, and the others."""
    outer, inner = [], []
    for factor in _parts(Ops.MUL, [node]):
        source = factor.src[0] if factor.op is Ops.EXPAND else factor
        if source is not factor and all(source.shape[axis] == 1 for axis in axes):
            kept = tuple(1 if i in axes else n for i, n in enumerate(factor.shape))
            outer.append(source.expand(kept))
        else:
            inner.append(factor)
    return outer, inner


def _parts(op: Ops, nodes: list[UOp]) -> list[UOp]:
    """What a chain of `op` connects, in order; nodes of another op are one part."""
    at = 0
    while at < len(nodes) < MOST_FACTORS:
        if nodes[at].op is op:
            nodes[at : at + 1] = nodes[at].src
        else:
            at += 1
    return nodes


# ---- rules that need more than an expression -----------------------------------------------------


def _max(node: UOp, g: UOp) -> Gradients:
    """The larger source gets the gradient; equal ones get half each."""
    a, b = node.src
    tied = a.eq(b).where(g * 0.5, g)
    return (a < b).where(g.const_like(0), tied), (b < a).where(g.const_like(0), tied)


def _power(node: UOp, g: UOp) -> Gradients:
    """b·a**(b-1), 0 where b is 0; a**b·ln a, 0 where a is 0 and b isn't negative."""
    a, b = node.src
    of_base = b.eq(0).where(g.const_like(0), g * b * a.alu(Ops.POW, b - 1))
    silent = a.eq(0) & (b >= 0)
    safe = silent.where(a.const_like(1), a)
    of_exponent = silent.where(g.const_like(0), g * node * (safe.log2() * math.log(2)))
    return of_base, of_exponent


def _expand(node: UOp, g: UOp) -> Gradients:
    shape = node.src[0].shape
    return (sum_along(g, tuple(i for i, n in enumerate(shape) if n != node.shape[i])),)


def _reduce_axis(node: UOp, g: UOp) -> Gradients:
    (x,), (monoid, axes) = node.src, node.arg
    if monoid == "add":
        return (g.expand(x.shape),)
    if monoid == "max":  # shared by all that reach the maximum
        hit = x.eq(node.expand(x.shape)).cast(x.dtype)
        return (hit * (g / sum_axes(hit, axes)).expand(x.shape),)
    order = tuple(i for i in range(x.ndim) if i not in axes) + axes
    lined = filled_room(x, axes).permute(order)  # (kept.., reduced..)
    kept = lined.shape[: x.ndim - len(axes)]
    count = prod(lined.shape[len(kept) :])
    others = other_factors(lined.reshape((*kept, count))).reshape(lined.shape)
    others = others.permute(argsort(order)).shrink(tuple((0, n) for n in x.shape))
    return (g.expand(x.shape) * others,)


def _running(node: UOp, g: UOp) -> Gradients:
    (x,), (monoid, axis) = node.src, node.arg
    if monoid == "add":
        return (_to_the_end(g, axis),)
    if monoid == "mul":
        return (_running_product(node, g, axis),)
    # the latest of the largest takes it
    at = [UOp.positions(x.shape, i, x.device) for i in range(x.ndim)]
    at[axis] = x.eq(node).where(at[axis], at[axis].const_like(0)).running("max", axis)
    return (x.const_like(0).scatter("add", g, *at),)


def _to_the_end(y: UOp, axis: int) -> UOp:
    """At each place the sum from there on."""
    return y.flip((axis,)).running("add", axis).flip((axis,))


def _running_product(node: UOp, g: UOp, axis: int) -> UOp:
    """By division where that is possible: the first zero's factors are all others, beyond it
    nothing counts. Its own derivative is that of the form without division."""
    (x,) = node.src
    zero = x.eq(0)
    first = zero & zero.cast(dtypes.int32).running("add", axis).eq(1)
    others = first.where(x.const_like(1), x).running("mul", axis)
    of_rest = _to_the_end(g * node, axis) / zero.where(x.const_like(1), x)
    of_first = _to_the_end(g * others, axis)
    fast = first.where(of_first, zero.where(x.const_like(0), of_rest))
    is_known = isinstance(x.shape[axis], int) and prod(x.shape)
    return fast.detach(of_running_product(x, g, axis)) if is_known else fast


def _index(node: UOp, g: UOp) -> Gradients:
    x, indices, gates = node.src[0], node.src[1 : 1 + node.arg], node.src[1 + node.arg :]
    for gate in gates:
        g = gate.broadcast_rows(g.shape).where(g, g.const_like(0))
    of_x = x.const_like(0).scatter("add", g, *indices)
    return (of_x, *(None for _ in node.src[1:]))


def _scatter(node: UOp, g: UOp) -> Gradients:
    target, updates, *indices = node.src
    silent, nothing = (None,) * len(indices), updates.const_like(0)

    def scatter(where: UOp, what: UOp, how: str) -> UOp:
        return where.scatter(how, what, *indices)

    def read(x: UOp) -> UOp:
        return x.index(*indices)

    how = node.arg[0]
    if how == "add":
        return (g, read(g), *silent)
    if how == "set":  # only the last update of an element counts
        turn = UOp.arange(prod(updates.shape), updates.device).reshape(updates.shape)
        last = scatter(UOp.const(turn.dtype, -1, g.device).broadcast_to(g.shape), turn, "set")
        won = read(last).eq(turn)
        return (scatter(g, nothing, "set"), won.where(read(g), nothing), *silent)
    if how == "max":  # shared by all that reach the maximum
        first, later = target.eq(node).cast(g.dtype), updates.eq(read(node)).cast(g.dtype)
        part = g / scatter(first, later, "add")
        return (part * first, read(part) * later, *silent)
    zero = updates.eq(0)
    plain = scatter(target, zero.where(updates.const_like(1), updates), "mul")
    zeros = scatter(target.const_like(0), zero.cast(g.dtype), "add")
    alone = zero.where(updates.const_like(1), nothing)  # zeros that are not this update
    more = read(zeros) - alone
    others = more.eq(0).where(read(plain), nothing)
    # where one other factor is 0, so is the product, but not its derivative by that factor
    only = zero.where(updates, nothing)
    one = read(scatter(target.const_like(0), only, "add")) - only
    others = others.detach(more.eq(1).where(read(plain) * one, others))
    of_updates = read(g) * others / zero.where(updates.const_like(1), updates)
    return (g * scatter(target.const_like(1), updates, "mul"), of_updates, *silent)


def _shrink(node: UOp, g: UOp) -> Gradients:
    sizes = node.src[0].shape
    return (
        g.pad(tuple((begin, n - end) for (begin, end), n in zip(node.sizes, sizes, strict=True))),
    )


def _pad(node: UOp, g: UOp) -> Gradients:
    sizes = node.src[0].shape
    return (g.shrink(tuple((b, b + n) for (b, _), n in zip(node.sizes, sizes, strict=True))),)


def _cast(node: UOp, g: UOp) -> Gradients:
    source = node.src[0].dtype
    return (g.cast(source) if dtypes.is_float(source) else None,)


def _copy(node: UOp, g: UOp) -> Gradients:
    device = node.src[0].device
    return (g if device is None else g.copy_to(device), None)


def _detach(node: UOp, g: UOp) -> Gradients:
    """The gradient goes to the second source, if there is one; if slopes are given, multiplied by
    them."""
    if len(node.src) == 2:
        return (None, g)
    return (None, *(part for slope in node.src[2::2] for part in (g * slope, None)))


def _times(g: UOp, factor: UOp) -> UOp:
    """g * factor; what g was multiplied by last goes where the factor undoes it: an exponential is
    2**(x * log2 e), so its gradient would be multiplied by ln 2 and by log2 e."""
    if g.op is Ops.MUL and (number := constant_under(factor)) is not None:
        last = constant_under(g.src[1])
        if last is not None and g.const_like(last.arg * number.arg) is g.const_like(1):
            return g.src[0]
    return g * factor


def _silent(node: UOp, g: UOp) -> Gradients:
    """Not differentiable, or with a derivative that is zero wherever it exists."""
    return (None,) * len(node.src)


def _refuse(node: UOp, g: UOp) -> Gradients:
    raise DTypeError(f"gradient: {node.op!r} is not part of a tensor's graph, it has no derivative")


_CAST, _DETACH = Ops.CAST, Ops.DETACH  # asked for each node: an enum's members are slow
_SILENT = frozenset(
    (Ops.CONST, Ops.ARANGE, Ops.BUFFER, Ops.PARAM, Ops.DEFINE_VAR, Ops.BIND, Ops.UNIQUE, Ops.DEVICE)
    + (Ops.BITCAST, Ops.TRUNC, Ops.ROUND, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.THREEFRY)
    + (Ops.IDIV, Ops.MOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR)
)
_REFUSED = (frozenset(Ops) - STAGES["tensor"]) | {Ops.SINK, Ops.KERNEL, Ops.LDEXP}

RULES: dict[Ops, Rule] = {
    **dict.fromkeys(_SILENT, _silent),
    **dict.fromkeys(_REFUSED, _refuse),
    # one value
    Ops.ADD: lambda node, g: (g, g),
    Ops.MUL: lambda node, g: (_times(g, node.src[1]), _times(g, node.src[0])),
    Ops.FDIV: lambda node, g: (g / node.src[1], g / node.src[1] * -node),
    Ops.MULACC: lambda node, g: (g * node.src[1], g * node.src[0], g),
    Ops.MAX: _max,
    Ops.POW: _power,
    Ops.RECIP: lambda node, g: (-g * node * node,),
    Ops.SQRT: lambda node, g: (g * 0.5 / node,),
    Ops.EXP2: lambda node, g: (g * node * math.log(2),),
    Ops.LOG2: lambda node, g: (g / (node.src[0] * math.log(2)),),
    Ops.SIN: lambda node, g: (g * node.src[0].cos(),),
    Ops.COS: lambda node, g: (-g * node.src[0].sin(),),
    Ops.WHERE: lambda node, g: (
        None,
        node.src[0].where(g, g.const_like(0)),
        node.src[0].where(g.const_like(0), g),
    ),
    Ops.CAST: _cast,
    Ops.CHECK: lambda node, g: (g, None),
    Ops.DETACH: _detach,
    # the same values elsewhere
    Ops.CONTIGUOUS: lambda node, g: (g,),
    Ops.COPY: _copy,
    Ops.ASSIGN: lambda node, g: (None, node.src[0].viewed(g)),
    Ops.RESHAPE: lambda node, g: (reshaped(g, node.src[0].shape),),
    Ops.EXPAND: _expand,
    Ops.PERMUTE: lambda node, g: (g.permute(argsort(node.arg)),),
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: lambda node, g: (g.flip(node.arg),),
    Ops.WINDOW: lambda node, g: (g.fold(node.arg, node.src[0].shape),),
    Ops.FOLD: lambda node, g: (g.window(node.arg[0]),),
    # many values to one, one to many
    Ops.REDUCE_AXIS: _reduce_axis,
    Ops.RUNNING: _running,
    Ops.INDEX: _index,
    Ops.SCATTER: _scatter,
    # SCAN, CALL and ITEM, of which one has several results, are the walk's
}


# ---- the walk ------------------------------------------------------------------------------------


def followed(root: UOp) -> list[UOp]:
    """The nodes that a gradient of `root` may pass through, and integers beside them, but for those
    that are sizes."""
    nodes, seen = [root], {root}
    for node in nodes:  # it grows meanwhile
        op = node.op
        if op in _SILENT or (op is _CAST and not dtypes.is_float(node.dtype)):
            continue
        for source in node.src[1:] if op is _DETACH else node.operands:
            if source.src and source not in seen:
                seen.add(source)
                nodes.append(source)
    return nodes


@garbage_kept()
def gradient(
    root: UOp, wrt: Sequence[UOp], seed: UOp, order: Sequence[UOp] | None = None
) -> list[UOp | None]:
    """The gradient of sum(root * seed) by each node of `wrt`; None for what root doesn't need.

    `seed` has root's shape and dtype; `order` is root's toposort, where it is known. Takes time and
    memory in proportion to the graph's size, and no recursion. DTypeError for a CALL that has no
    gradient.
    """
    wanted = set(wrt)
    order = root.toposort() if order is None else order
    needed = set(wanted)  # and all that depends on them: nothing else is walked through
    for node in order:
        if not needed.isdisjoint(node.src):
            needed.add(node)
    parts: dict[UOp, list[UOp]] = {root: [seed]} if root in needed else {}  # one for each user
    results: dict[UOp, dict[int, UOp]] = {}  # of a SCAN or CALL: gradients of its ITEMs, by number
    for node in reversed(order):  # users come first, so all parts are there
        if node not in needed or not node.src:
            continue
        rule = RULES.get(node.op)
        if rule is None and node.op is not Ops.ITEM:
            of_sources = _delegate(node, results.pop(node)) if node in results else ()
        elif node not in parts:
            continue
        elif rule is None:
            results.setdefault(node.src[0], {})[node.arg[0]] = total(parts[node])
            continue
        else:
            g = total(parts[node])
            of_sources = rule(node, g)
            if node.op is Ops.ASSIGN and (before := node.src[0].base) in needed:
                parts.setdefault(before, []).append(_not_overwritten(node.src[0], g))
        if node not in wanted:
            parts.pop(node, None)
        for source, part in zip(node.src, of_sources, strict=False):
            if part is not None and source in needed:
                parts.setdefault(source, []).append(part)
    return [total(parts[node]) if node in parts else None for node in wrt]


def _not_overwritten(view: UOp, g: UOp) -> UOp:
    """The part of a version's gradient that is of the version before: what no write to `view`
    overwrote."""
    (written,) = gradient(view, [view.base], view.const_like(1))
    assert written is not None, "a view depends on its base"
    g = reshaped(g, view.base.shape)
    return written.eq(0).where(g, g.const_like(0))


def _delegate(node: UOp, results: dict[int, UOp]) -> Gradients:
    name = "SCAN" if node.op is Ops.SCAN else node.arg[0]
    if name not in CALLS:
        raise DTypeError(f"gradient: {name} has none registered; there are {sorted(CALLS)}")
    return CALLS[name](node, results)
