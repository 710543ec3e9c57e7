"""Numbers in which graphs of one form may differ: constants, and the offsets at which slices of
storage begin. A plan can take such a number as an argument if every operation that uses it gives
the same bits for an argument as for a constant.

It decides only which numbers may be arguments; `structure` walks the graph and asks here at each
node, `plans` decides which of them become arguments. Read the two tables first (what may read a
number, or a box, that isn't known in advance), then `Numbers` in the order of a walk: `add_...`,
`use`, `end`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from tinygrad.backends import keeps
from tinygrad.base.dtype import DType, dtypes
from tinygrad.schedule.plan import BITS, signed_bits
from tinygrad.uop import GroupOp, Ops, UOp

# Ops with the same result whether a number is in the code or read at run time.
_TAKES_ANY_NUMBER = frozenset(
    (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.MAX, Ops.WHERE, Ops.CMPLT, Ops.CMPEQ, Ops.CMPNE)
    + (Ops.CONTIGUOUS, Ops.ASSIGN)
)
# Ops whose kernel can read or write a box wherever that begins.
_TAKES_ANY_BOX = (
    GroupOp.Elementwise
    | {Ops.REDUCE_AXIS, Ops.RUNNING, Ops.INDEX, Ops.SCATTER}
    | {Ops.CONTIGUOUS, Ops.COPY, Ops.ASSIGN}
)
_WHOLE = frozenset((dtypes.int32, dtypes.uint32))
IN_ORDER = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK))


class Begin(NamedTuple):
    """The begin of a box of storage along an axis that it doesn't fill."""

    box: UOp
    axis: int


def is_argument(dtype: DType) -> bool:
    """Whether a plan may take a constant of this type: a float, or a whole number of 32 bits, which
    all devices have."""
    return dtype.itemsize in BITS if dtypes.is_float(dtype) else dtype in _WHOLE


Number = UOp | Begin
"""A constant, or the begin of a box."""


def value_of(number: Number) -> int:
    """The value that a plan gets for it: the bits of a constant."""
    return signed_bits(number) if isinstance(number, UOp) else number.box.arg[number.axis][0]


def key_of(number: Number) -> UOp | int:
    """A key that is equal for equal numbers: the begin of a box; or the constant, without the
    marker that made it a node of its own."""
    return number.with_src(number.src[:1]) if isinstance(number, UOp) else value_of(number)


def open_box(box: UOp, variables: Mapping[Number, str]) -> tuple[tuple[Any, Any], ...]:
    """Its begins and ends along each axis; begins are replaced by variables of these names."""
    sides: list[tuple[Any, Any]] = []
    for axis, ((begin, end), room) in enumerate(zip(box.arg, box.src[0].shape, strict=True)):
        name = variables.get(Begin(box, axis))
        where = UOp.variable(name, 0, room - (end - begin)) if name else begin
        sides.append((where, where + (end - begin)))
    return tuple(sides)


class Numbers:
    """The numbers of a graph that is walked sources first; `met` returns the node in place of a
    source."""

    def __init__(self, met: Callable[[UOp], UOp]) -> None:
        self.met = met
        self.owners: dict[UOp, tuple[Number, ...]] = {}  # constants and boxes, with their numbers
        self.views: dict[UOp, tuple[UOp, ...]] = {}  # those, and views of them → of which ones
        self.stored: set[UOp] = set()  # storage, and views that show it in its order

    def add_constant(self, node: UOp) -> bool:
        """Whether the constant may differ between graphs."""
        may = bool(node.src) and is_argument(node.dtype)
        if may:
            self.owners[node], self.views[node] = (node,), (node,)
        return may

    def add_storage(self, node: UOp) -> None:
        """Adds a buffer. One on several devices is cut at known places."""
        if isinstance(node.device, str) and not keeps(node.device):
            self.stored.add(node)

    def add_movement(self, node: UOp) -> Any:
        """The part of its `arg` that doesn't differ."""
        source = self.met(node.src[0])
        if source not in self.stored or len(node.src) > 1:
            return node.arg
        self.stored.add(node)
        if node.op is not Ops.SHRINK:
            return node.arg
        sizes = tuple([end - begin for begin, end in node.arg])
        axes = (i for i, room in enumerate(source.shape) if sizes[i] != room)
        self.owners[node] = tuple([Begin(node, axis) for axis in axes])
        self.views[node] = (node, *self.views.get(source, ()))
        return sizes

    def use(self, node: UOp, source: UOp) -> None:
        """Notes that a node has a view of such numbers as its source."""
        if node.op in GroupOp.Movement:
            self.views.setdefault(node, self.views[source])
            return
        for owner in self.views[source]:
            legal = _TAKES_ANY_NUMBER if owner.op is Ops.CONST else _TAKES_ANY_BOX
            if node.op not in legal:
                self.owners.pop(owner, None)

    def end(self, nodes: Sequence[UOp], roots: Iterable[UOp]) -> None:
        """Called after the walk. If the graph writes to storage of which it also sees other parts,
        the plan depends on whether they overlap; and a view that is a result has no kernel."""
        fixed = [root for root in roots if root in self.views]
        if not self.stored.isdisjoint(self.owners):
            fixed += self._overwritten(nodes)
        for owner in chain.from_iterable(self.views[view] for view in fixed if view in self.views):
            self.owners.pop(owner, None)

    def _overwritten(self, nodes: Sequence[UOp]) -> Iterator[UOp]:
        written = {self._bottom(self.met(n.src[0])) for n in nodes if n.op is Ops.ASSIGN}
        seen: dict[UOp, set[UOp]] = {storage: set() for storage in written}
        for node in nodes if written else ():
            if node not in self.stored and node.op is not Ops.BIND:
                for source in map(self.met, node.src):
                    if source in self.stored and (storage := self._bottom(source)) in written:
                        seen[storage].add(source)
        return chain.from_iterable(views for views in seen.values() if len(views) > 1)

    def _bottom(self, node: UOp) -> UOp:
        while node.op in GroupOp.Movement:
            node = self.met(node.src[0])
        return node

    @property
    def free(self) -> tuple[Number, ...]:
        """All numbers that a plan may take as arguments."""
        return tuple(chain.from_iterable(self.owners.values()))

    @property
    def fixed(self) -> list[str]:
        """All other numbers, which are part of the form."""
        owners = dict.fromkeys(chain.from_iterable(self.views.values()))
        return [repr(owner.arg) for owner in owners if owner not in self.owners]
