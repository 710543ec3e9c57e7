"""What a tensor holds in place of a node until somebody needs the node: a lazy handle.

If a method was run before on arguments that look alike (`tensor/template`), it doesn't have to run
again, and no graph has to be built: the result holds a *promise*, which names an output of a
template and the template's inputs (other promises, or storage). Asking the tensor for its node
builds the nodes of all promises below it, so code that knows nothing of promises is correct without
any change. In a step that is like an earlier one nobody asks, and the promises are enough to
recognise it (`tensor/again`)."""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter, or_
from typing import Any

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.helpers import once
from tinygrad.engine.aliases import bottom_of, without_detach
from tinygrad.engine.chains import CHEAP, MOST_LINKS, MOST_LOOKED_AT, USES, Runs, grows
from tinygrad.engine.holders import holders
from tinygrad.engine.storage import Buffer, bind, computed_from, learn
from tinygrad.schedule.bases import stored_base
from tinygrad.schedule.strides import repeats
from tinygrad.tensor.looks import Look, chain_of, end_below
from tinygrad.tensor.roots import equals_known
from tinygrad.tensor.version import Bound, Version
from tinygrad.uop import Ops, UOp


class Template:
    """The expressions `roots` over some nodes, its holes. Numbers, and views of them, are kept."""

    def __init__(self, holes: Sequence[UOp], roots: Sequence[UOp]) -> None:
        ends = frozenset(holes)
        nodes = [n for n in UOp.sink(*roots).toposort(stop=ends)[:-1] if n not in ends]
        self.roots = tuple(roots)
        fixed = [n for n in nodes if n.op is Ops.DEVICE or n.base.op is Ops.CONST]
        self.fixed = [n for n in fixed if n.base not in ends]
        given = (*holes, *self.fixed)  # a node may be there twice
        at = {node: i for i, node in enumerate(given)}
        self.steps: list[tuple[Ops, DType, list[int], Any, Any]] = []
        for node in nodes:
            if node not in at:
                at[node] = len(given) + len(self.steps)
                places = [at[source] for source in node.src]
                shape = node.shape if node.has_shape else None
                self.steps.append((node.op, node.dtype, places, node.arg, shape))
        self.places = [at[root] for root in roots]
        self.seen = set(self.places).union(*[places for _, _, places, _, _ in self.steps])
        self.made = 0  # how often, as far as it is counted (`tensor/backlog`)

    def looks_behind(self, looks: Iterable[Any]) -> bool:
        """Whether the template uses what lies behind a box of storage: then it may matter where the
        box begins."""
        behind: list[bool] = []  # of each hole
        for look in looks:
            boxes = [look.is_storage and op is Ops.SHRINK for op, _ in look.views]
            behind += accumulate(boxes, or_, initial=False)
        return any([is_behind and place in self.seen for place, is_behind in enumerate(behind)])

    def over(self, holes: Sequence[UOp], origin: str | None) -> list[UOp]:
        """The expressions over other nodes; their source line is `origin`."""
        made = [*holes, *self.fixed]
        for op, dtype, places, arg, shape in self.steps:
            node = UOp(op, dtype, tuple([made[i] for i in places]), arg)
            node._shape = shape
            node.origin = node.origin or origin
            made.append(node)
        return [made[place] for place in self.places]

    @once
    def stored_alone(self) -> list[bool]:
        """Of each root, whether what must be stored for it is what it is a view of, each element
        once."""
        ends = [end_below(root) for root in self.roots]
        pairs = list(zip(self.roots, ends, strict=True))
        return [stored_base(root) is end and not repeats(root, end) for root, end in pairs]

    @once
    def costs(self) -> bool:
        """Whether making an element takes more than reading it."""
        return any([op not in CHEAP for op, *_ in self.steps])


class Expression:
    """A template over `sources`, written in the user's line `origin`, and its nodes once made. Of
    gradients also the `lines` that these are of (`tensor/backward`), until one is computed.
    `newest`: the number of the newest tensor of storage that it is made of; `serial`: that of the
    newest tensor when it was made. `born`, `links`, `used`, `looked`: as `engine/chains` notes it
    of nodes; `grown`: whether it has grown, when it was last looked."""

    __slots__ = (
        *("template", "sources", "origin", "depth", "newest", "serial", "nodes", "lines"),
        *("born", "looked", "used", "links", "grown"),
    )

    def __init__(
        self, template: Template, sources: Sequence[Source], origin: str | None, lines: Any = None
    ) -> None:
        self.template, self.sources, self.origin, self.lines = template, sources, origin, lines
        self.depth = 1 + max(map(_depth, sources), default=0)
        self.newest, self.serial = max(map(_newest, sources), default=0), holders.newest
        self.nodes: list[UOp] | None = None
        self.born = self.looked = Runs.count
        self.used = self.links = 0
        self.grown = False

    @property
    def grows(self) -> bool:
        """Whether it has grown, or is made of what has."""
        if self.looked != Runs.count and not self.grown:
            self.used += 1
            for each in self.below():
                self.links = max(self.links, each.links + (each.born < self.born))
                if each.grown or (each.nodes is not None and any(map(grows, each.nodes))):
                    self.grown = True
                    break
            self.grown |= self.links + 1 > MOST_LINKS
            self.looked = Runs.count
        return self.grown

    @property
    def is_costly(self) -> bool:
        """Whether it is used after a few runs, and made of no storage, at some cost."""
        if not self.used or self.used % USES:
            return False
        below = self.below()
        inner = set(below)
        ends = [s for each in below for s in each.sources if _expression(s) not in inner]
        return all(map(_is_number, ends)) and any([each.template.costs for each in below])

    def below(self) -> list[Expression]:
        """It, and what it is made of that is not computed, as far as one looks."""
        waiting = [self]
        found = set(waiting)
        for each in waiting:
            for source in each.sources if len(waiting) < MOST_LOOKED_AT else ():
                expression = _expression(source)
                if expression is not None and expression not in found:
                    found.add(expression)
                    waiting.append(expression)
        return waiting


DEEP = 200
"""Expressions that stand on each other, of which more are too many for a recursion."""


def from_below(
    expression: Expression, known: Container[Any], computed: bool = False
) -> Iterator[Expression]:
    """What an expression is made of that is not `known` and is deep, each after what it is made of:
    whoever takes them in this order needs no deep recursion. Beyond what is computed if so asked.
    """
    stack = [expression]
    while stack:
        below = [s for s in stack[-1].sources if isinstance(s, Promise) and s.depth > DEEP]
        open_below = [s.expression for s in below if computed or s.buffer is None]
        waiting = next((each for each in open_below if each not in known), None)
        if waiting is not None:
            stack.append(waiting)
        elif (found := stack.pop()) is not expression:
            yield found


def _expression(source: Source) -> Expression | None:
    """What a promise is of that isn't computed."""
    is_open = isinstance(source, Promise) and source.buffer is None
    return source.expression if is_open else None  # type: ignore[union-attr]


def _is_number(source: Source) -> bool:
    is_constant = isinstance(source, Version) and source.base.op is Ops.CONST
    return is_constant or isinstance(source, Bound)


_depth, _newest = attrgetter("depth"), attrgetter("newest")


class Promise:
    """An output of an expression, maybe a view of what another promises. Once it is computed the
    `buffer` of what is `stored` has its stored base. `equal`: another that has the same value, in
    the same place. `error`: why its node could not be made when all were asked for theirs.
    `again_for`: a node whose value this promises once more."""

    __slots__ = (
        *("expression", "number", "look", "wants", "depth", "newest", "buffer", "equal", "error"),
        *("again_for", "_of", "_base"),
        "__weakref__",
    )

    def __init__(
        self,
        expression: Expression,
        number: int,
        look: Any,
        wants: bool | None,
        of: Promise | None = None,
    ) -> None:
        self.expression, self.number, self.look, self.wants = expression, number, look, wants
        self.depth, self.newest = expression.depth, expression.newest
        self._of = None if of is None else of.stored
        self.buffer: Buffer | None = None
        self.equal: Promise | None = None
        self.error: Exception | None = None
        self.again_for: weakref.ref[UOp] | None = None
        self._base: UOp | None = None

    @property
    def stored(self) -> Promise:
        """The promise that this is a view of, or itself."""
        return self if self._of is None else self._of

    @property
    def is_computed(self) -> bool:
        """Whether the place where it lies is known."""
        return self.stored.buffer is not None

    @property
    def alone(self) -> Buffer | None:
        """Where it was computed, if nobody has asked for that, so that nobody can have written."""
        return self.buffer if (self.equal or self)._base is None else None

    @property
    def like(self) -> UOp:
        """A node of its shape, dtype and device."""
        return self.expression.template.roots[self.number]

    @property
    def node(self) -> UOp:
        """Its node, which is made now if it wasn't."""
        if self.error is not None:
            raise self.error
        if self.expression.nodes is None:
            write_down(self.expression)
        assert self.expression.nodes is not None, "written down"
        node = self.expression.nodes[self.number]
        _tell(self, node)
        return node

    def tell(self) -> None:
        """Tells the node that was made of it, or that it was made again for, where it was
        computed."""
        if self.expression.nodes is not None:
            _ = self.node
        elif self.again_for is not None and (node := self.again_for()) is not None:
            _tell(self, node)

    @property
    def computed_end(self) -> UOp | None:
        """If nodes were made: the node that is stored for it, if that was computed."""
        nodes = self.expression.nodes
        end = None if nodes is None else stored_base(nodes[self.number])
        return None if end is None or end.known is None else end

    @property
    def base(self) -> UOp:
        """The BUFFER of what was computed."""
        if self._of is not None:
            return self._of.base
        if self._base is None and self.equal is not None:
            self._base = self.equal.base
        elif self._base is None:
            assert self.buffer is not None, "it was computed"
            flat = stored_base(self.like)
            self._base = bind(UOp.new_buffer(flat.device, flat.size, flat.dtype), self.buffer)
            self.buffer.expression = weakref.ref(self)  # type: ignore[arg-type]
        return self._base

    @property
    def is_whole(self) -> bool:
        """Whether everything that it shows is stored for it alone, so that views of it can use the
        same storage."""
        return self.expression.template.stored_alone[self.number]

    @property
    def shown(self) -> UOp:
        """What was computed, as a view of storage."""
        end = stored_base(self.like) if self._of is None else bottom_of(self.like)
        return without_detach(self.like, end, self.base.in_room(end.shape))


class Written(Promise):
    """A promise whose value is what all of the version `place` of `tensor` holds next. Expressions
    stand on it as on another; it is in memory once it is written there, and never elsewhere.
    `before`: what the tensor held, which it holds in a later era then. `written`:
    whether the write has a node, or had one."""

    __slots__ = ("place", "before", "tensor", "written")

    def __init__(self, value: Promise, place: Version, before: Source | None, tensor: Any) -> None:
        super().__init__(value.expression, value.number, value.look, value.wants)
        self.place, self.before, self.tensor = place, before, weakref.ref(tensor)
        self.written = False

    @property
    def node(self) -> UOp:
        """The write, which whoever asks first has done, so that the value is made once, and what
        lies there as long as no more is written; then the value's own node, as nobody knew of this
        reader. That, too, if what looks so is a view of the value."""
        tensor: Any = self.tensor()
        if tensor is None or self.look.views:
            return self.value
        if tensor._source is self or type(tensor._source) is BeingWritten:
            _ = tensor._uop
        if not self.written or isinstance(tensor._source, Promise):
            return self.value
        after, now = self.place.base.newer, bottom_of(tensor._uop)
        if after is None or _computed(now) is not _computed(after):
            return self.value
        after = _computed(after)  # by another thread
        is_last = after.storage is None or after.storage.era == self.place.era
        return tensor._uop if is_last else self.value

    @property
    def is_over(self) -> bool:
        """Whether the tensor doesn't wait for this write any more."""
        tensor: Any = self.tensor()
        return tensor is not None and tensor._source is not self

    @property
    def value(self) -> UOp:
        """The node of what is written."""
        return super().node

    @property
    def follows(self) -> bool | None:
        """What the value says of gradients: where it says nothing they may go on through it."""
        is_silent = self.wants is None and dtypes.is_float(self.like.dtype)
        return None if is_silent else False


class BeingWritten:
    """What a tensor has in place of a promised write while that gets its node, `node` so far. Who
    asks for the tensor's node waits, in `_keep_promise`, until it is the written one, unless it is
    the thread that writes."""

    __slots__ = ("node",)

    def __init__(self, node: UOp) -> None:
        self.node = node

    def now(self, tensor: Any) -> None:
        """As of a `Version`: it stands for something else, once its node is there."""
        _ = tensor._uop


Source = Version | Promise | Bound


def write_down(
    expression: Expression, made: dict[Expression, list[UOp]] | None = None
) -> dict[Expression, list[UOp]]:
    """Makes the nodes of this and of all that it stands on, without recursion. With `made` the
    nodes go there, and no expression keeps them."""
    found: dict[Expression, list[UOp]] = {} if made is None else made
    stack = [expression]
    while stack:
        expression = stack[-1]
        if expression in found or expression.nodes is not None:
            found[stack.pop()] = expression.nodes or found[expression]
            continue
        below = [s.expression for s in expression.sources if isinstance(s, Promise)]
        todo = [e for e in below if e not in found]
        if todo:
            stack += todo
            continue
        below_it = [
            source
            if made is None or not isinstance(source, Promise)
            else found[source.expression][source.number]
            for source in expression.sources
        ]
        holes = holes_of([source.look for source in expression.sources], below_it)
        found[expression] = expression.template.over(holes, expression.origin)
        if made is None:
            expression.nodes = found[expression]
    return found


def shadow(tensor: Any, nodes: dict[Expression, list[UOp]]) -> Any:
    """A tensor that stands for a promised one where its graph is made, in `nodes`, seen by nobody
    else: the tensor itself stays promised."""
    source = tensor._source
    if not isinstance(source, Promise):
        return tensor
    write_down(source.expression, nodes)
    there = type(tensor).of(nodes[source.expression][source.number], tensor.requires_grad)
    there._taped = tensor._taped or equals_known(there._uop)
    return there


def _computed(version: UOp) -> UOp:
    """Where this version is now, if it was computed."""
    return version if version.known is None else version.known.base


def _tell(promise: Promise, node: UOp) -> None:
    """Tells a node where it was computed, if it was; of one whose equal was computed elsewhere, at
    least the place is told."""
    if promise.buffer is None:
        return
    end = stored_base(node)
    if end.known is None:
        learn(end, promise.base.in_room(end.shape))
        if node is not end:
            learn(node, promise.shown)
    elif end.known.base is promise.base:
        return
    computed_from(promise.base, end)


def holes_of(looks: Iterable[Look], seen: Iterable[Source | UOp]) -> list[UOp]:
    """What a template is made over: the nodes of tensors that look so, or of what they stand on."""
    holes: list[UOp] = []
    for look, each in zip(looks, seen, strict=True):
        node = each if isinstance(each, UOp) else each.node
        holes += chain_of(node, len(look.views))
    return holes
