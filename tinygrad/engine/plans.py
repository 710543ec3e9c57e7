"""Plans made once: structure → plan, in the process by the structure's form, on disk by its
content. A plan from the disk brings no graph along, only kernel keys: a warm process rewrites
nothing.

The first graph of a form gets a plan with its numbers written into the code. When another differs
in some of them (a learning rate that falls, the begin of a batch), those become arguments of the
form's plan for good."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from tinygrad.backends import keeps
from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError, ShapeError
from tinygrad.base.helpers import Recent
from tinygrad.base.settings import (
    BEAM,
    CACHELEVEL,
    DEBUG,
    FUSE_OPS,
    NOOPT,
    RECIPES,
    RING,
    RING_BYTES,
)
from tinygrad.engine.cache import disk_cache, stamped_key
from tinygrad.engine.cold import making
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import touches_of
from tinygrad.engine.numbers import Number, key_of
from tinygrad.engine.run import RunnablePlan
from tinygrad.engine.sizes import MOST_ROOM, Alike, Keys, Span, outline
from tinygrad.engine.structure import Structure, devices_of
from tinygrad.engine.turns import preparing
from tinygrad.schedule.plan import Plan, Step, Storage, variable_name
from tinygrad.uop import Ops, UOp
from tinygrad.uop.placement import Cut, Place, Placement

MOST_PLANS = 4096  # kept in the process; the least recently used goes first
ENOUGH = 16  # uses of a plan for any size by one form, after which that gets its own


@dataclass
class _Shared:
    """The plan of a form, and how often it was used. It was made for `numbers`; those at the places
    `open` may differ. A plan for any size is given that of the form."""

    plan: RunnablePlan
    numbers: Keys
    open: tuple[int, ...] = ()
    size: tuple[int, ...] = ()
    uses: int = 0

    @property
    def operations(self) -> float:
        """Of a kernel, on average."""
        return self.plan.operations


_plans: Recent[tuple[Any, ...], _Shared] = Recent(MOST_PLANS)

listeners: list[Callable[[UOp], None]] = []
"""Called with each structure's graph whose plan is found or made (VIZ)."""


class Found(NamedTuple):
    """A plan with its kernels compiled and loaded; the names and values of its variables; and the
    bound variables and numbers whose values the first of these are. Whether it is one for graphs of
    several sizes."""

    plan: RunnablePlan
    variables: list[tuple[str, int]]
    numbers: list[Number]
    is_of_any_size: bool


def known_plan(structure: Structure, own: bool = False) -> Found | None:
    """The plan of a structure, if it was made before; `own`: not one for any size."""
    found = _plans.get(key := _key_of(structure))
    if found is None or (found.size and (own or found.uses >= ENOUGH)):
        return None
    if not _differing(found, structure).issubset(found.open):
        return None
    _plans.used(key)
    found.uses += 1
    numbers = [structure.numbers[i] for i in found.open]
    variables = structure.variables(numbers)
    variables += [("", value) for value in (*found.size, *found.plan.plan.values)]
    return Found(found.plan, variables, [*structure.binds, *numbers], bool(found.size))


def make_plan(structure: Structure, own: bool = False) -> None:
    """Makes the plan of a structure known; `own`: not one for any size."""
    key = _key_of(structure)
    with preparing.now:
        if known_plan(structure, own) is not None:
            return  # another thread was faster
        before = _plans.get(key)
        is_first = before is None and not (own or BEAM)
        _plans[key] = _for_any_size(structure) if is_first else _shared(structure, before)


def _key_of(structure: Structure) -> tuple[Any, ...]:
    key = (structure.form, *settings_of_plans())
    # who is shown kernels is shown the lines that made them, not those of an equal graph
    return key if DEBUG < 2 else (*key, *(node.origin for node in structure.nodes))


def _differing(found: _Shared, structure: Structure) -> set[int]:
    pairs = zip(found.numbers, structure.numbers, strict=True)
    return {i for i, (ours, theirs) in enumerate(pairs) if ours != key_of(theirs)}


def _shared(structure: Structure, before: _Shared | None) -> _Shared:
    """A plan with variables for the numbers that were open before or that differ now."""
    changing = _differing(before, structure).union(before.open) if before is not None else ()
    places = tuple(sorted(changing))
    sink = structure.open_sink([structure.numbers[i] for i in places])
    return _Shared(runnable_plan(sink), _keys_of(structure), places)


def _keys_of(structure: Structure) -> Keys:
    return tuple(map(key_of, structure.numbers))


_alike: Recent[tuple[Any, ...], Alike] = Recent(MOST_PLANS)


def _for_any_size(structure: Structure) -> _Shared:
    """The plan for this graph and for those that differ from it in sizes, if these change in each
    turn; else its own."""
    places = {node.arg for node in structure.nodes if node.op is Ops.DEVICE}
    takes = len(places) == 1 and all(map(_takes_any_size, places))
    if not takes or (outlined := outline(structure)) is None:
        return _shared(structure, None)
    form, sizes = outlined
    numbers = _keys_of(structure)
    alike = _alike.setdefault((form, *settings_of_plans()), Alike())
    size = alike.number_of(sizes, numbers)
    if size is None and (span := alike.next_span(sizes, numbers)) is not None:
        alike.take(span, _plan_of(structure, span))
        size = alike.number_of(sizes, numbers)
    if size is None:
        made = _shared(structure, None)
        alike.see(sizes, numbers, made)
        return made
    return _Shared(alike.plan, numbers, alike.open, (size,))


def _plan_of(structure: Structure, span: Span) -> RunnablePlan | None:
    """The plan for all graphs of a span; None if an operation takes no symbolic size, or the
    largest size much memory."""
    variables = [structure.numbers[i] for i in span.open]
    name = variable_name(len(structure.binds) + len(variables))
    n = UOp.variable(name, span.rule.low, span.rule.high)
    try:
        made = runnable_plan(structure.open_sink(variables, span.args(structure, n)))
        return made if made.room <= MOST_ROOM else None
    except (ArgumentError, ShapeError) as error:
        if DEBUG >= 1:
            print(f"each size gets a plan of its own, as there is none for all: {error}")
        return None


def _takes_any_size(device: Any) -> bool:
    """Whether a kernel of any size is nearly as fast there as one of a fixed size."""
    return isinstance(device, str) and not keeps(device) and not Device[device].target.has_groups


def runnable_plan(sink: UOp) -> RunnablePlan:
    """The plan of a structure's graph, its kernels compiled and loaded: from disk, or made now."""
    for listener in listeners:
        listener(sink)
    devices, on_disk, key = devices_of(sink), CACHELEVEL >= 2, ""
    if on_disk:
        targets = [Device[name].target.key() for name in devices]
        key = stamped_key(sink, targets, devices, *settings_of_plans())
        raw = disk_cache().get("plan", key) if DEBUG < 3 else None
        if raw is not None and (loaded := _unpack(raw, sink)).complete:
            return loaded
    made = RunnablePlan(making.plan_to_run(sink, devices))
    # host functions exist only in their process
    if on_disk and all(step.op in (Ops.KERNEL, Ops.COPY) for step in made.given.steps):
        disk_cache().put("plan", key, _pack(made, sink))
    return made


def settings_of_plans() -> tuple[object, ...]:
    """The settings, besides the graph and its devices, that affect the plan and the recipes of its
    kernels."""
    recipes = NOOPT.value, BEAM.value, _pins_stamp()
    return *recipes, FUSE_OPS.value, RING.value, RING_BYTES.value


def _pins_stamp() -> str:
    if not RECIPES.value:
        return ""
    folder, digest = Path(RECIPES.value), sha256()
    if not folder.is_dir():
        raise ArgumentError(f"RECIPES={folder}: legal is a folder, of files <kernel id>.recipe")
    for path in sorted(folder.glob("*.recipe")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _pack(runnable: RunnablePlan, sink: UOp) -> bytes:
    """The plan as JSON, with a place in the graph for each line: the next program has its own."""
    made, places = runnable.given, {node.origin: i for i, node in enumerate(sink.toposort())}
    touched = {ast: _touched(s) for ast, s in {s.ast: s for s in made.steps}.items()}
    storages = [(s.kind, s.device, s.dtype.name, s.size, s.place, s.whole) for s in made.storages]
    steps = []
    for s in made.steps:
        slots = s.storages, s.writes, places.get(s.origin)
        steps.append((s.op.name, s.device, *slots, s.variables, touched[s.ast], s.part))
    rest = (made.results, made.arenas, made.values, made.largest, runnable.keys)
    return json.dumps((storages, steps, *rest)).encode()


def _touched(step: Step) -> list[Any]:
    return [[*map(sorted, each)] for each in touches_of(step)] if step.op is Ops.KERNEL else []


def _unpack(raw: bytes, sink: UOp) -> RunnablePlan:
    storages, steps, results, arenas, values, largest, keys = json.loads(raw)
    kinds, nodes = dtypes.fields(), sink.toposort()
    made = Plan(
        tuple(
            Storage(kind, _place(dev), kinds[dtype], *rest) for kind, dev, dtype, *rest in storages
        ),
        tuple(
            Step(Ops[op], dev, tuple(n), writes, None, None, line, tuple(names), (), *rest)
            for op, dev, n, writes, place, names, *rest in steps
            for line in [None if place is None else nodes[place].origin]
        ),
        tuple(results),
        arenas,
        tuple(values),
        largest,
    )
    return RunnablePlan(made, keys)


def _place(packed: Any) -> Place:
    """A device from its JSON form."""
    if isinstance(packed, str):
        return packed
    names, cut = packed
    return Placement(tuple(names), None if cut is None else Cut(cut[0], tuple(cut[1])))
