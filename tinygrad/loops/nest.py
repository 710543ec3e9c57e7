"""The loop tree, which stands between a scheduled kernel and its instructions: what runs inside
what, in which order.

The graph says what depends on what; the tree adds order, time and place. One rule builds it: before
a loop opens, every REDUCE and STAGE that does not depend on the loops still to come is put into the
innermost open scope that it does depend on. A loop whose last turn is clipped gets a copy of that
turn, and a loop that reads something in some turns only is cut there (`codegen/cuts`), so that
masks become constants.

This file has names and bounds only. The copies of an UNROLL, the lanes of a VECTOR and the
instructions belong to `codegen/`, which builds the tree (`codegen/nesting`) and walks over it
(`codegen/expand`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tinygrad.loops.roles import SEQUENTIAL, name_of, own_ranges, role_of, size_of
from tinygrad.uop import Ops, UOp
from tinygrad.uop.text import SIGNS


@dataclass(eq=False)
class Item:
    """An item of the tree, printed as one or more lines."""


@dataclass(eq=False)
class NestScope(Item):
    """A scope that values can live in: the whole nest, a loop, a copy of one turn, or an arm of a
    branch."""

    loop: UOp | None = None
    low: int = 0
    high: int = 0  # of the counter, inclusive
    items: list[Item] = field(default_factory=list)
    done: set[UOp] = field(default_factory=set)  # REDUCEs and STAGEs computed here
    depth: int = 0  # how many scopes are around it


@dataclass(eq=False)
class Loop(NestScope):
    """A loop. It runs from `low`, or from `start` if that is later, to the least of `ends`
    (expressions) and high + 1, and takes at least one turn. `guarded`: this one turn may be one too
    many, and then must have no effect."""

    ends: tuple[UOp, ...] = ()
    start: UOp | None = None
    guarded: bool = False


@dataclass(eq=False)
class Copy(NestScope):
    """One turn, whose number is known: low == high. `guarded`: it may lie beyond the last turn, and
    then must have no effect."""

    guarded: bool = False


@dataclass(eq=False)
class Given(NestScope):
    """All turns of a loop whose counter the launch provides (tasks, lanes)."""


@dataclass(eq=False)
class Branch(Item):
    """One of the arms runs, chosen by a task's counter; the arms' turns follow each other. An arm
    may be empty."""

    arms: list[Given | Copy]


@dataclass(eq=False)
class Reduce(Item):
    """The loops of the REDUCEs that share them. Its Leaf is where accumulators take in values."""

    nodes: tuple[UOp, ...]
    items: list[Item] = field(default_factory=list)


@dataclass(eq=False)
class Fill(Item):
    """Computes a STAGE. `start` sets the accumulators of a stage that accumulates."""

    stage: UOp
    items: list[Item] = field(default_factory=list)
    start: list[Item] = field(default_factory=list)


@dataclass(eq=False)
class Leaf(Item):
    """The innermost statement of a nest. STAGEs in `filling` are filled by its reads."""

    kind: str  # "store" (or as `stores_of` says), "take" (into accumulators) or "fill"
    filling: frozenset[UOp] = frozenset()


# ---- text ----------------------------------------------------------------------------------------


def text(root: NestScope) -> str:
    """A tree, one line an item.

    for i in 0..4, tasks
      reduce add over k
        for k in 0..64
          take
      store
    """
    return "\n".join(_lines(root.items, 0))


def _lines(items: Sequence[Item], depth: int) -> Iterable[str]:
    for item in items:
        yield "  " * depth + _title(item)
        if isinstance(item, Branch):
            yield from _lines([arm for arm in item.arms if arm.items], depth + 1)
        elif isinstance(item, Fill):
            yield from _lines([*item.start, *item.items], depth + 1)
        elif isinstance(item, (NestScope, Reduce)):
            yield from _lines(item.items, depth + 1)


def _title(item: Item) -> str:
    if isinstance(item, Leaf):
        filled = ", ".join(sorted(map(name_of, item.filling)))
        return item.kind + (f", filling {filled}" if filled else "")
    if isinstance(item, Branch):
        return f"task {name_of(_loop(item.arms[0]))}"
    if isinstance(item, Reduce):
        kinds = ", ".join(str(node.arg) for node in item.nodes)
        return f"reduce {kinds} over {axes(own_ranges(item.nodes[0]))}"
    if isinstance(item, Fill):
        return f"fill {name_of(item.stage)} over {axes(own_ranges(item.stage))}"
    assert isinstance(item, NestScope)
    name = name_of(_loop(item))
    if isinstance(item, Copy):
        return f"{name} = {item.low}"
    if isinstance(item, Loop) and (item.ends or item.start is not None):
        ends = ", ".join([str(item.high + 1), *map(expression, item.ends)])
        low = str(item.low) if item.start is None else f"max({item.low}, {expression(item.start)})"
        return f"for {name} in {low}..{f'min({ends})' if item.ends else ends}"
    word = {"PARALLEL": ", tasks", "LANE": ", lanes", "GROUP": ", lanes"}
    return f"for {name} in {item.low}..{item.high + 1}{word.get(role_of(_loop(item)), '')}"


def _loop(scope: NestScope) -> UOp:
    assert scope.loop is not None
    return scope.loop


def axes(ranges: Sequence[UOp]) -> str:
    """Loops by name; those that become copies in the text are shown with size and role."""
    return ", ".join(
        name_of(r) + ("" if role_of(r) in SEQUENTIAL else f":{size_of(r)} {role_of(r)}")
        for r in ranges
    )


def expression(node: UOp) -> str:
    """An index expression in readable form."""
    if node.op is Ops.CONST:
        return str(node.arg)
    if node.op in (Ops.RANGE, Ops.DEFINE_VAR):
        return str(node.arg[0])
    if node.op in SIGNS:
        return "(" + SIGNS[node.op].join(map(expression, node.src)) + ")"
    return f"{node.op.name.lower()}({', '.join(map(expression, node.src))})"
