"""How each operation treats values that are cut over devices: a row an op.

A row says which cut of its sources it can use and what then holds of the result. Most operations
keep a cut where it is, or move it as they move axes; what they can't do part by part they do on
whole values, on every device alike. A reduction over the axis that is cut leaves partial results.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.base.dtype import dtypes
from tinygrad.schedule.bases import is_concrete
from tinygrad.schedule.collectives import sent
from tinygrad.schedule.in_parts import continued
from tinygrad.schedule.shard import Along, Nodes, Parts, Rule, Sharding, is_empty
from tinygrad.schedule.shard_loops import item, scan
from tinygrad.schedule.shard_sorting import ROWWISE, sorted_parts
from tinygrad.uop.node import UOp
from tinygrad.uop.op import MONOIDS, GroupOp, Ops
from tinygrad.uop.placement import Cut, Placement

# ---- leaves --------------------------------------------------------------------------------------


def _memory(walk: Sharding, node: UOp) -> Parts:
    if node.tag == "scan":
        return _placeholder(walk, node)
    place: Placement = node.src[-1].arg
    sizes = place.sizes(node.size)
    pairs = enumerate(zip(place.names, sizes, strict=True))
    return Parts(tuple(walk.slot(node, i, name, n) for i, (name, n) in pairs), place.cut)


def _placeholder(walk: Sharding, node: UOp) -> Parts:
    """The placeholder of a source inside a loop: its slot stays the same."""
    slot, size = node.arg
    (cut, partial), names = walk.inside[slot], node.device
    pairs = zip(names, Placement(names, cut).sizes(size), strict=True)
    nodes = (UOp(node.op, node.dtype, (UOp.on(name),), (slot, n), "scan") for name, n in pairs)
    return Parts(tuple(nodes), cut, partial)


def _leaf(walk: Sharding, node: UOp) -> Parts:
    return Parts(tuple(node.with_src((UOp.on(name),)) for name in node.device))


def _copy(walk: Sharding, node: UOp) -> Parts:
    source, place = node.src[0], node.src[1].arg
    where = None if place.cut is None else place.cut.on(node.shape)
    own = walk.parts.get(source)
    if own is not None and source.device == place.names:
        if where is None:
            return own if own.partial is not None else Parts(walk.whole(source))
        along = Along(*where)
        return walk.made(node, walk.nodes(source, along, len(place.names)), along)
    if where is None:
        return Parts(tuple(walk.fetched(source, name) for name in place.names))
    along = Along(*where)
    pieces = [
        walk.fetched(source, name, along.axis, along.box(i)) for i, name in enumerate(place.names)
    ]
    return walk.made(node, pieces, along)


# ---- one element in, one element out -------------------------------------------------------------


def _elementwise(walk: Sharding, node: UOp) -> Parts:
    if node.op is Ops.ADD and (added := _partial_sum(walk, node)) is not None:
        return added
    along = walk.best(node.src)
    count = len(node.device)
    sources = [walk.nodes(s, along, count) for s in node.src]
    return walk.made(node, _each(node, sources), along)


def _partial_sum(walk: Sharding, node: UOp) -> Parts | None:
    """The sum of two partial sums: added on each device before they are reduced over devices."""
    parts = [walk.parts.get(s) for s in node.src]
    if any(p is None or p.partial != "add" for p in parts):
        return None
    return Parts(_each(node, [p.nodes for p in parts if p is not None]), None, "add")


def _each(node: UOp, sources: Sequence[Nodes]) -> Nodes:
    return tuple(node.with_src(src) for src in zip(*sources, strict=True))


# ---- movement ------------------------------------------------------------------------------------


def _on_whole(walk: Sharding, node: UOp) -> Parts:
    return Parts(tuple(node.with_src((s, *node.src[1:])) for s in walk.whole(node.src[0])))


def _reshape(walk: Sharding, node: UOp) -> Parts:
    own = walk.parts[node.src[0]]
    if own.cut is None:
        return Parts(tuple(n.reshape(node.shape) for n in own.nodes), None, own.partial)
    where = own.cut.on(node.shape)
    if where is None:
        return _on_whole(walk, node)
    along = Along(*where)
    nodes = [n.reshape(along.shape(node.shape, i)) for i, n in enumerate(own.nodes)]
    return walk.made(node, nodes, along)


def _expand(walk: Sharding, node: UOp) -> Parts:
    source = node.src[0]
    along = walk.along(source)
    if along is None or source.shape[along.axis] != node.shape[along.axis]:
        return _on_whole(walk, node)
    nodes = walk.nodes(source, along)
    return walk.made(
        node, [n.expand(along.shape(node.shape, i)) for i, n in enumerate(nodes)], along
    )


def _permute(walk: Sharding, node: UOp) -> Parts:
    along = walk.along(node.src[0])
    if along is None:
        return _moved_whole(walk, node)
    nodes = _each(node, [walk.nodes(node.src[0], along)])
    return walk.made(node, nodes, Along(node.arg.index(along.axis), along.bounds))


def _moved_whole(walk: Sharding, node: UOp) -> Parts:
    """The movement of a source that isn't cut along an axis; a partial one stays partial."""
    own = walk.parts[node.src[0]]
    if own.cut is not None:
        return _on_whole(walk, node)
    nodes = tuple(node.with_src((n, *node.src[1:])) for n in own.nodes)
    return Parts(nodes, None, own.partial)


def _beside(walk: Sharding, node: UOp) -> Parts:
    """Movement of other axes than the one that is cut is the same for each part."""
    along = walk.along(node.src[0])
    own = node.arg if node.op is Ops.FLIP else [window[0] for window in node.arg]
    if along is None or along.axis in own:
        return _on_whole(walk, node)
    return walk.made(node, _each(node, [walk.nodes(node.src[0], along)]), along)


def _pad(walk: Sharding, node: UOp) -> Parts:
    """The first device gets the padding before, the last one that after."""
    along, pads = walk.along(node.src[0]), list(node.sizes)
    if along is None or not all(isinstance(n, int) for n in pads[along.axis]):
        return _on_whole(walk, node)
    axis, bounds = along
    (before, after), last = pads[axis], len(bounds) - 2
    nodes = []
    for i, part in enumerate(walk.nodes(node.src[0], along)):
        pads[axis] = (before if i == 0 else 0, after if i == last else 0)
        nodes.append(part.pad(tuple(pads)))
    inner = [bound + before for bound in bounds[1:-1]]
    return walk.made(node, nodes, Along(axis, (0, *inner, bounds[-1] + before + after)))


def _shrink(walk: Sharding, node: UOp) -> Parts:
    """Each device keeps its part of the box, which may be empty."""
    source, box = node.src[0], list(node.sizes)
    along = walk.along(source)
    if along is None:
        return _moved_whole(walk, node)
    begin, end = box[along.axis]
    if not isinstance(begin, int) or not isinstance(end, int):
        return _on_whole(walk, node)
    clipped = [min(max(b, begin), end) - begin for b in along.bounds]
    nodes = []
    for i, part in enumerate(walk.nodes(source, along)):
        first = along.bounds[i]
        some = clipped[i + 1] - clipped[i]
        start = clipped[i] + begin - first if some else 0
        box[along.axis] = (start, start + some)
        nodes.append(part.shrink(tuple(box)))
    return walk.made(node, nodes, Along(along.axis, tuple(clipped)))


def _fold(walk: Sharding, node: UOp) -> Parts:
    along, (windows, shape) = walk.along(node.src[0]), node.sizes
    own = (window[0] for window in windows)
    if along is None or along.axis in own or along.axis >= len(shape):
        return _on_whole(walk, node)
    nodes = walk.nodes(node.src[0], along)
    return walk.made(
        node, [n.fold(windows, along.shape(shape, i)) for i, n in enumerate(nodes)], along
    )


def _unary(walk: Sharding, node: UOp) -> Parts:
    along = walk.along(node.src[0])
    own = walk.parts[node.src[0]]
    if along is None and own.cut is not None:  # a flat view of what is cut
        return Parts(_each(node, [own.nodes]), own.cut)
    nodes = walk.nodes(node.src[0], along)
    return walk.made(node, _each(node, [nodes]), along)


# ---- many values to one, one to many -------------------------------------------------------------


def _reduce(walk: Sharding, node: UOp) -> Parts:
    (source,), (monoid, axes) = node.src, node.arg
    own, along = walk.parts[source], walk.along(source)
    if own.partial is not None and own.partial == monoid == "add":
        return Parts(_each(node, [own.nodes]), None, monoid)
    if along is None:
        return _on_whole(walk, node)
    made = _each(node, [own.nodes])
    if along.axis not in axes:
        return walk.made(node, made, along)
    identity = MONOIDS[monoid].identity(node.dtype)
    return Parts(_of_any(own.nodes, made, [n.const_like(identity) for n in made]), None, monoid)


def _of_any(parts: Nodes, made: Sequence[UOp], nothing: Sequence[UOp]) -> Nodes:
    """The result of each part; for a part without elements `nothing`."""
    found = zip(parts, made, nothing, strict=True)
    return tuple(other if is_empty(part) else one for part, one, other in found)


def _running(walk: Sharding, node: UOp) -> Parts:
    """Along the axis that is cut, each device continues from where the one before it ended."""
    (source,), (monoid, axis) = node.src, node.arg
    along = walk.along(source)
    if along is None:
        return _on_whole(walk, node)
    made: list[UOp] = []
    before: UOp | None = None
    for i, part in enumerate(walk.nodes(source, along)):
        if before is None or not along.size(i):
            made.append(part.running(monoid, axis))
        else:
            made.append(continued(part, monoid, axis, sent(before, node.device[i])))
        if along.axis == axis and along.size(i):
            before = made[i].sliced(axis, along.size(i) - 1, along.size(i))
    return walk.made(node, made, along)


def _index(walk: Sharding, node: UOp) -> Parts:
    """Rows of a complete table by indices that are cut; or complete rows of a table whose rows are
    cut; or what each device has of a table whose indexed axes are cut."""
    table, count = node.src[0], len(node.device)
    indices = node.src[1:]  # and a gate
    lead = len(indices[0].shape) if indices else 0
    along = walk.along(table)
    if along is None:
        along = walk.best(indices)
        sources = [walk.nodes(table, None, count), *(walk.nodes(i, along, count) for i in indices)]
        return walk.made(node, _each(node, sources), along)
    tables = walk.nodes(table, along, count)
    nodes = _each(node, [tables, *(walk.nodes(i, None, count) for i in indices)])
    if along.axis >= node.arg:
        return walk.made(node, nodes, Along(along.axis - node.arg + lead, along.bounds))
    found = [_own_rows(local, along, part) for part, local in enumerate(nodes)]
    made = _of_any(tables, found, [n.const_like(-0.0) for n in found])
    return Parts(made, None, "add")


def _own_rows(gather: UOp, along: Along, part: int) -> UOp:
    """The elements that a device has, and zeros for the rest: -0.0, which changes no number that it
    is added to."""
    table, *at = gather.src
    inside, moved = _inside(at[along.axis], along, part, 0)
    gate = inside if len(at) == gather.arg else inside & at.pop()
    at[along.axis] = moved
    read = gather.with_src((table, *at, gate))
    if not dtypes.is_float(gather.dtype):
        return read
    return inside.broadcast_rows(read.shape).where(read, read.const_like(-0.0))


def _inside(at: UOp, along: Along, part: int, elsewhere: int) -> tuple[UOp, UOp]:
    """Whether an index is in a part, and the index in that part; `elsewhere` if it isn't."""
    begin, end = along.box(part)
    inside = (at < end) & (at >= begin)
    return inside, inside.where(at - begin, at.const_like(elsewhere))


def _scatter(walk: Sharding, node: UOp) -> Parts:
    """Into rows that are cut, with rows of updates cut alike; else a part of the updates by each
    device."""
    target, updates, *indices = node.src
    count, lead, first = len(node.device), len(indices[0].shape), len(indices)
    along, of_updates = walk.along(target), walk.best([updates])
    if along is not None and along.axis < first:
        return _into_rows(walk, node, along)
    if along is None and of_updates is not None and of_updates.axis >= lead:
        along = Along(of_updates.axis - lead + first, of_updates.bounds)
    if along is not None:
        inner = Along(along.axis - first + lead, along.bounds)
        sources = [walk.nodes(target, along, count), walk.nodes(updates, inner, count)]
        sources += [walk.nodes(i, None, count) for i in indices]
        return walk.made(node, _each(node, sources), along)
    cut = of_updates or walk.best(indices)
    if cut is None or node.arg[0] not in MONOIDS:
        return Parts(_each(node, [walk.nodes(s, None, count) for s in node.src]))
    return _some_updates(walk, node, cut)


def _some_updates(walk: Sharding, node: UOp, cut: Along) -> Parts:
    """Each device does its part of the updates: the first one to the target, the others to a target
    of identities."""
    target, monoid, names = node.src[0], node.arg[0], node.device
    identity = MONOIDS[monoid].identity(node.dtype)
    targets = list(walk.whole(target))
    for i, name in enumerate(names[1:], 1):
        targets[i] = UOp.const(node.dtype, identity, name).broadcast_to(node.shape)
    sources = [tuple(targets), *(walk.nodes(s, cut, len(names)) for s in node.src[1:])]
    return Parts(_of_any(sources[1], _each(node, sources), targets), None, monoid)


def _into_rows(walk: Sharding, node: UOp, along: Along) -> Parts:
    """Updates of a target whose indexed axis is cut: those for other devices go to an extra row,
    which is dropped."""
    count, axis = len(node.device), along.axis
    sources = [walk.nodes(node.src[0], along, count)]
    sources += [walk.nodes(s, None, count) for s in node.src[1:]]
    made = []
    for part, (target, updates, *at) in enumerate(zip(*sources, strict=True)):
        _, at[axis] = _inside(at[axis], along, part, along.size(part))
        wide = node.with_src((target.padded(axis, 0, 1), updates, *at))
        made.append(wide.sliced(axis, 0, along.size(part)))
    return walk.made(node, made, along)


# ---- loops, functions of the host, storage -------------------------------------------------------


def _call(walk: Sharding, node: UOp) -> Parts:
    """A host function is called once, by the first device; one that works on rows by each
    device."""
    names = node.device
    if node.arg[0] in ROWWISE and is_concrete(node.src[0]):
        walk.results[node] = sorted_parts(walk, node)
        return Parts((node,) * len(names))
    once = node.with_src(tuple(walk.nodes(s, None, len(names))[0] for s in node.src))
    return Parts((once,) * len(names))


def _assign(walk: Sharding, node: UOp) -> Parts:
    """Each device writes its part of the value to its part of the view; or, where the view's parts
    are no views of the buffer's, its part of the whole buffer as it is after the write."""
    target, value = node.src
    own, views, along = walk.parts[target.base], walk.parts[target].nodes, walk.along(target)
    hidden = along is None and own.cut is not None
    sides = zip(own.nodes, views, strict=True)
    if hidden or not all(is_empty(view) or view.base is place for place, view in sides):
        return _assign_whole(walk, node, own)
    values = walk.nodes(value, along, len(node.device))
    return Parts(tuple(map(_written, own.nodes, views, values)), own.cut)


def _assign_whole(walk: Sharding, node: UOp, own: Parts) -> Parts:
    """Each device writes to a copy of the whole buffer, and keeps its part of that."""
    target, value = node.src
    made = []
    new = zip(own.nodes, walk.whole(target.base), walk.whole(value), strict=True)
    for part, (place, old, one) in enumerate(new):
        copy = UOp(Ops.CONTIGUOUS, node.dtype, (old,), tag=("written", node.key))
        written = UOp(Ops.ASSIGN, node.dtype, (target.viewed(copy), one))
        made.append(_written(place, place, _flat_part(written, own.cut, part)))
    return Parts(tuple(made), own.cut)


def _written(place: UOp, view: UOp, value: UOp) -> UOp:
    """A part after a write to a view of it; the old part, if the view is empty."""
    return place if is_empty(view) else UOp(Ops.ASSIGN, value.dtype, (view, value))


def _flat_part(node: UOp, cut: Cut | None, part: int) -> UOp:
    """A device's part of a flat buffer."""
    if cut is None:
        return node
    apart = node.reshape((cut.outer, cut.bounds[-1], node.size // (cut.outer * cut.bounds[-1])))
    mine = apart.sliced(1, *cut.bounds[part : part + 2])
    return mine.reshape((mine.size,))


RULES: dict[Ops, Rule] = {
    **dict.fromkeys(GroupOp.Elementwise, _elementwise),
    Ops.PARAM: _memory,
    Ops.BUFFER: _memory,
    Ops.CONST: _leaf,
    Ops.ARANGE: _leaf,
    Ops.COPY: _copy,
    Ops.CONTIGUOUS: _unary,
    Ops.DETACH: _unary,
    Ops.RESHAPE: _reshape,
    Ops.EXPAND: _expand,
    Ops.PERMUTE: _permute,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _beside,
    Ops.WINDOW: _beside,
    Ops.FOLD: _fold,
    Ops.REDUCE_AXIS: _reduce,
    Ops.RUNNING: _running,
    Ops.INDEX: _index,
    Ops.SCATTER: _scatter,
    Ops.SCAN: scan,
    Ops.CALL: _call,
    Ops.ITEM: item,
    Ops.ASSIGN: _assign,
}


# ---- questions -----------------------------------------------------------------------------------


def placement_of(node: UOp) -> Placement:
    """The placement of a value of several devices, now or once it is computed."""
    node = node if node.known is None else node.known
    walk = Sharding(RULES)
    walk.add([node])
    return Placement(node.device, walk.parts[node].cut)


def axis_of(node: UOp) -> int | None:
    """The axis along which a value is cut; None if each device has all of it."""
    if not isinstance(node.device, tuple):
        return None
    cut = placement_of(node).cut
    where = None if cut is None else cut.on(node.shape)
    return None if where is None else where[0]
