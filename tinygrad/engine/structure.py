"""What a graph has in common with others: buffers become numbered parameters, and bound variables
and numbers that change from step to step (`numbers`) lose their values. Two steps of a training
loop have one structure, and so one plan."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import prod
from tinygrad.engine.numbers import IN_ORDER, Begin, Number, Numbers, open_box, value_of
from tinygrad.schedule.bases import is_concrete, stored_base
from tinygrad.schedule.plan import bits_variable, variable_name
from tinygrad.schedule.regroup import regrouped, symbolic_axes_lead
from tinygrad.schedule.strides import steps_between
from tinygrad.uop import Ops, UOp
from tinygrad.uop.infer import least, most, settled
from tinygrad.uop.placement import names_of

_DETACH = Ops.DETACH  # used for each node: lookups of an enum's members are slow
_NUMBERS = frozenset((Ops.CONST, Ops.ARANGE))
NOTHING_SIZED: Mapping[UOp, Any] = {}
_VARIES = frozenset((Ops.BUFFER, Ops.UNIQUE, Ops.BIND, Ops.CONST))


@dataclass(frozen=True)
class Structure:
    """`nodes` are the graph's nodes, sources first, down to known values. They include its buffers
    (`params`), its bound variables (`binds`), and numbers that a plan may take as arguments
    (`numbers`). `form` is the rest: graphs with the same form differ only in these."""

    roots: tuple[UOp, ...]
    nodes: tuple[UOp, ...]
    params: tuple[UOp, ...]
    binds: tuple[UOp, ...]
    numbers: tuple[Number, ...]
    form: tuple[Any, ...]

    @property
    def sink(self) -> UOp:
        """The graph with PARAMs for BUFFERs and `v000`, `v001`, ... for bound variables."""
        return self.open_sink(())

    def open_sink(
        self, open_numbers: Collection[Number], sizes: Mapping[UOp, Any] = NOTHING_SIZED
    ) -> UOp:
        """The same, with further variables for some of the numbers; that of a constant holds
        its bits. `sizes` are the args of nodes whose sizes are symbolic, instead of their own."""
        made: dict[UOp, UOp] = {}
        params = {node: i for i, node in enumerate(self.params)}
        variables = {each: variable_name(i) for i, each in enumerate((*self.binds, *open_numbers))}
        boxes = {number.box for number in open_numbers if isinstance(number, Begin)}
        for node in self.nodes:
            if node.op is Ops.BUFFER:
                source, size = (made[node.src[1]],), sizes.get(node, node.arg)
                bounds = () if isinstance(size, int) else (least(size),)
                param = UOp(Ops.PARAM, node.dtype, source, (params[node], most(size), *bounds))
                made[node] = param.shrink(((0, size),))
            elif node.op is Ops.DEVICE:  # a plan must not keep a tensor's node alive
                made[node] = node.replace(tag="plan")
            elif node.op is Ops.BIND:
                _, low, high = node.src[0].arg
                made[node] = UOp.variable(variables[node], low, high, node.dtype)
            elif node in variables:
                bits = bits_variable(variables[node], node.dtype)
                here = UOp(Ops.CONST, bits.dtype, tuple(made[s] for s in node.src[:1]), 0)
                made[node] = (here + bits).bitcast(node.dtype)
            elif node in boxes:
                whole = made[met(node.src[0], made)]
                made[node] = whole.shrink(open_box(node, variables))
            elif node.op is Ops.CONST:
                made[node] = node.with_src(tuple(made[s] for s in node.src[:1]))
            elif node.op is Ops.DEFINE_VAR:
                raise _without_value(node)
            elif node in sizes:
                made[node] = _resized(node, sizes[node], [made[met(s, made)] for s in node.src])
                made[node].origin = node.origin
            else:
                sources = [made[s if s in made else met(s, made)] for s in node.src]
                made[node] = node.with_src(tuple(sources))
                made[node].origin = node.origin
                if sizes and node.op is Ops.ASSIGN and not is_concrete(made[node]):
                    raise ShapeError(f"write: of {made[node].shape}; legal are sizes that stay")
        return UOp.sink(*self._apart(made, bool(sizes)))

    def _apart(self, made: dict[UOp, UOp], packed: bool) -> list[UOp]:
        """The roots as `made`. What differs only by what plans leave out (gradients' ends,
        constants of their own) comes to one node; it is stored for each, so that no write to one
        is seen by another. `packed`: no results have room between their elements."""
        owners: dict[UOp, UOp] = {}
        roots = []
        for root in self.roots:
            root = met(root, made)
            base, end = stored_base(root), stored_base(made[root])
            steps = steps_between(made[root], end)
            if packed and not is_concrete(end):
                end, steps = _packed(made[met(base, made)]), []
            owner = owners.setdefault(end, base)
            while owner is not base and end.op not in (Ops.PARAM, Ops.ASSIGN):
                end = end.contiguous().replace(tag="own")
                owner = owners.setdefault(end, base)
            roots.append(end.moved_by(steps))
        return roots

    def variables(self, open_numbers: Collection[Number]) -> list[tuple[str, int]]:
        """The values of the sink's variables, and the names of those that have one."""
        named = [(bind.src[0].arg[0], bind.val) for bind in self.binds]
        return named + [("", value_of(number)) for number in open_numbers]


def _resized(node: UOp, arg: Any, sources: Sequence[UOp]) -> UOp:
    """The node with other sizes, of which some are symbolic."""
    if node.op is Ops.ARANGE:
        return UOp.arange(arg, node.device, node.dtype)
    (source,) = sources
    if node.op is Ops.RESHAPE and not symbolic_axes_lead(source.shape, arg):
        return regrouped(source, source.shape, arg)
    return source.moved(node.op, arg)


def _packed(node: UOp) -> UOp:
    """A value of symbolic sizes as its elements in order, without room between them."""
    total = settled(prod(node.shape))
    if symbolic_axes_lead(node.shape, (total,)):
        return node.reshape((total,))
    return regrouped(node, node.shape, (total,))


def resolved(node: UOp) -> UOp:
    """The node, or the view of storage that holds its value. DETACH, which only affects gradients,
    is left out: no plan depends on it.

    A constant, or 0, 1, 2, ..., is part of the kernel even if some copy of it is in memory, so a
    kernel doesn't depend on what else the process has computed."""
    while True:
        if (known := node.known) is not None and node.base.op not in _NUMBERS:
            node = known
        elif node.op is _DETACH:
            node = node.src[0]
        else:
            return node


def resolved_beneath(node: UOp, ops: Collection[Ops]) -> UOp:
    """The node below a chain of these operations, each taken where its value is."""
    while (node := resolved(node)).op in ops:
        node = node.src[0]
    return node


def met(node: UOp, nodes: Container[UOp]) -> UOp:
    """The node that the walk which collected `nodes` met in place of this one. Another thread may
    have computed more since then, so it may differ from today's."""
    while node not in nodes:
        known = node.known
        assert known is not None or node.op is _DETACH, f"{node.op!r} was not met"
        node = node.src[0] if known is None else known
    return node


def nodes_below(roots: Sequence[UOp]) -> list[UOp]:
    """All nodes that the roots still need, sources first."""
    order: list[UOp] = []
    add_nodes_below(roots, order, set())
    return order


def add_nodes_below(roots: Sequence[UOp], order: list[UOp], seen: set[UOp]) -> None:
    """Appends to `order` the nodes that the roots still need and that are not in `seen`, sources
    first."""
    stack: list[UOp | None] = []
    stack.extend(map(resolved, reversed(roots)))
    while stack:
        node = stack.pop()
        if node is None:  # all sources of what follows are in place
            done = stack.pop()
            assert done is not None
            order.append(done)
        elif node not in seen:
            seen.add(node)
            if not node.src or node.op is Ops.BIND:
                order.append(node)
                continue
            stack += (node, None)
            for source in node.src[::-1]:
                if source.known is not None or source.op is _DETACH:
                    source = resolved(source)
                if source not in seen:
                    stack.append(source)


def nodes_of(op: Ops, nodes: Iterable[UOp]) -> list[UOp]:
    """The nodes with this op."""
    return [node for node in nodes if node.op is op]


def devices_of(sink: UOp) -> list[str]:
    """The devices that kernels of this structure may run on."""
    places = [n.arg for n in sink.toposort() if n.op is Ops.DEVICE]
    return sorted({name for place in places for name in names_of(place)} - {"NPY"})


def _without_value(variable: UOp) -> ArgumentError:
    name, low, high = variable.arg
    return ArgumentError(
        f"realize: variable {name} has no value; legal is one with a value from {low} to {high}, "
        f"as .bind({low}) gives"
    )


def structure_of(roots: Sequence[UOp], nodes: Sequence[UOp] | None = None) -> Structure:
    """The structure of what the roots still need; `nodes` are its nodes, if known already."""
    if nodes is None:
        nodes = nodes_below(roots)
    at: dict[UOp, int] = {}  # the place among `nodes`, which the form uses
    places, marks = itertools.count(), itertools.count(-1, -1)
    form: list[Any] = []
    params: list[UOp] = []
    binds: list[UOp] = []
    numbers = Numbers(lambda node: met(node, at))
    views = numbers.views
    for node in nodes:
        op = node.op
        at[node] = next(marks if op is Ops.UNIQUE else places)  # a marker takes no place
        if op not in _VARIES:  # all of it is part of the form, except where a box begins
            arg = numbers.add_movement(node) if op in IN_ORDER else node.arg
            form += (op, node.dtype, arg, node.tag, len(node.src))
            for source in node.src:
                source = source if source in at else met(source, at)
                form.append(at[source])
                if source in views:  # of a number, which this reader may need fixed
                    numbers.use(node, source)
        elif op is Ops.BUFFER:  # a UNIQUE, which only distinguishes buffers, is no part of a form
            params.append(node)
            form += (op, node.dtype, node.arg, at[node.src[1]])
            numbers.add_storage(node)
        elif op is Ops.BIND:
            binds.append(node)
            form += (op, node.dtype, node.src[0].arg[1:])
        elif op is Ops.CONST:
            place = node.src[:1]  # without the marker that makes it a node of its own
            form += (op, node.dtype, len(place))
            if not numbers.add_constant(node):  # by its text: 0.0 and -0.0 are equal
                form.append(repr(node.arg))
            form += [at[s] for s in place]
    ends = [met(root, at) for root in roots]
    numbers.end(nodes, ends)
    form += [at[root] for root in ends]
    form += numbers.fixed
    return Structure(
        tuple(roots), tuple(nodes), tuple(params), tuple(binds), numbers.free, tuple(form)
    )
