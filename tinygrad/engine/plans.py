"""Plans made once: structure → plan, in the process by the structure's form, on disk by its
content. A plan from the disk brings no graph along, only kernel keys: a warm process rewrites
nothing.

The first graph of a form gets a plan with its numbers written into the code. When another differs
in some of them (a learning rate that falls), those become arguments of the form's plan for good."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.settings import (
    BEAM,
    CACHELEVEL,
    DEBUG,
    FUSE_OPS,
    NOOPT,
    RECIPES,
    RING,
    RING_BYTES,
    SPEC,
)
from tinygrad.engine.cache import disk_cache, stamped_key
from tinygrad.engine.devices import Device
from tinygrad.engine.faults import touches_of
from tinygrad.engine.profile import GlobalCounters
from tinygrad.engine.recipes import recipe_settings
from tinygrad.engine.run import RunnablePlan
from tinygrad.engine.show import show_plan
from tinygrad.engine.structure import Structure, nobodys
from tinygrad.loops.groups.rows import longest_row
from tinygrad.loops.groups.unit_rows import row_units
from tinygrad.schedule.bundles import kernels_of
from tinygrad.schedule.fills import with_shared_fills
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Plan, Step, Storage, Wishes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops
from tinygrad.uop.placement import Cut, Place, Placement, names_of
from tinygrad.uop.verify import verify

MOST_PLANS = 4096  # kept in the process; the least recently used goes first


@dataclass(frozen=True)
class _Shared:
    """The plan of a form. `numbers` are its constants; those at the places `open` may differ."""

    plan: RunnablePlan
    numbers: tuple[UOp, ...]
    open: tuple[int, ...] = ()


_plans: OrderedDict[tuple[Any, ...], _Shared] = OrderedDict()

met: list[Callable[[UOp], None]] = []
"""Told of each structure's graph that a plan is found or made for (VIZ)."""


def plan_for(structure: Structure) -> tuple[RunnablePlan, list[tuple[str, int]]]:
    """The plan of a structure, its kernels compiled and loaded; and its variables' names and
    values."""
    key = (structure.form, *settings_of_plans())
    found = _plans.get(key)
    if found is None or not _fits(found, structure):
        _plans[key] = found = _shared(structure, found)
        if len(_plans) > MOST_PLANS:
            _plans.popitem(last=False)
    else:
        _plans.move_to_end(key)
    variables = structure.variables([structure.numbers[i] for i in found.open])
    return found.plan, variables + [("", value) for value in found.plan.plan.values]


def _differing(found: _Shared, structure: Structure) -> set[int]:
    pairs = zip(found.numbers, structure.numbers, strict=True)
    return {i for i, (ours, theirs) in enumerate(pairs) if ours is not nobodys(theirs)}


def _fits(found: _Shared, structure: Structure) -> bool:
    return _differing(found, structure).issubset(found.open)


def _shared(structure: Structure, before: _Shared | None) -> _Shared:
    """A plan in which those numbers are open that were before, or that differ now."""
    changing = _differing(before, structure).union(before.open) if before is not None else ()
    places = tuple(sorted(changing))
    sink = structure.open_sink([structure.numbers[i] for i in places])
    return _Shared(runnable_plan(sink), tuple(map(nobodys, structure.numbers)), places)


def runnable_plan(sink: UOp) -> RunnablePlan:
    """The plan of a structure's graph, its kernels compiled and loaded: from the disk, or made."""
    for tell in met:
        tell(sink)
    devices = _devices_of(sink)
    disk_key = _disk_key(sink, devices) if CACHELEVEL >= 2 else ""
    return _from_disk(disk_key) or _make(sink, disk_key, devices)


def plan_of(sink: UOp, devices: Sequence[str] = ()) -> Plan:
    """The plan of a structure, as its devices want it."""
    targets = [Device[name].target for name in devices or _devices_of(sink)]
    limits = [target.buffer_limit for target in targets if target.buffer_limit]
    groups = [target for target in targets if target.has_groups]
    rows = [longest_row(target) for target in groups]
    longest = 0 if NOOPT else min(rows, default=Wishes.longest_row)
    units = [frozenset(unit.a for unit in row_units(target)) for target in targets]
    registers = frozenset.intersection(*units) if units and not NOOPT else frozenset()
    wishes = Wishes(longest, min(limits, default=0), not NOOPT and bool(groups), registers)
    return plan(sink, wishes)


def _devices_of(sink: UOp) -> list[str]:
    """The devices that kernels of this structure may run on."""
    places = [n.arg for n in sink.toposort() if n.op is Ops.DEVICE]
    return sorted({name for place in places for name in names_of(place)} - {"NPY"})


def _make(sink: UOp, disk_key: str, devices: Sequence[str]) -> RunnablePlan:
    if SPEC:
        verify(sink, "tensor")
    GlobalCounters.plans_made += 1
    made = plan_of(sink, devices)
    if not (NOOPT or BEAM or RECIPES) and all(_compiles(name) for name in devices):
        made = with_shared_fills(made, sum(n.op is Ops.DEFINE_VAR for n in sink.toposort()))
    if SPEC:
        for step in made.steps:
            if step.ast is not None and step.ast.op in (Ops.SINK, Ops.BUNDLE):
                for kernel in kernels_of(step.ast):
                    verify(kernel, "kernel")
    show_plan(made)
    runnable = RunnablePlan(made)
    if _storable(made):
        disk_cache().put("plan", disk_key, _pack(runnable))
    return runnable


def _compiles(device: str) -> bool:
    """Whether kernels are compiled for it, by LLVM, which takes a while, and for no groups."""
    target = Device[device].target
    return bool(target.triple) and not target.has_groups


def _from_disk(disk_key: str) -> RunnablePlan | None:
    if CACHELEVEL < 2 or DEBUG >= 3:
        return None
    raw = disk_cache().get("plan", disk_key)
    if raw is None:
        return None
    loaded = _unpack(raw)
    return loaded if loaded.complete else None


def _disk_key(sink: UOp, devices: Sequence[str]) -> str:
    return stamped_key(
        sink, [Device[d].target.key() for d in devices], devices, *settings_of_plans()
    )


def settings_of_plans() -> tuple[object, ...]:
    """What decides, besides the graph and its devices, how it is planned."""
    return recipe_settings(), FUSE_OPS.value, RING.value, RING_BYTES.value


def _storable(made: Plan) -> bool:
    """Host functions live in their process."""
    return CACHELEVEL >= 2 and all(s.op in (Ops.KERNEL, Ops.COPY) for s in made.steps)


def _pack(runnable: RunnablePlan) -> bytes:
    made = runnable.given
    storages = [(s.kind, s.device, s.dtype.name, s.size, s.place, s.whole) for s in made.storages]
    steps = [
        (s.op.name, s.device, s.storages, s.writes, s.origin, s.variables, _touched(s), s.part)
        for s in made.steps
    ]
    rest = (made.results, made.arenas, made.values, runnable.keys)
    return json.dumps((storages, steps, *rest)).encode()


def _touched(step: Step) -> list[Any]:
    return [[*map(sorted, each)] for each in touches_of(step)] if step.op is Ops.KERNEL else []


def _unpack(raw: bytes) -> RunnablePlan:
    storages, steps, results, arenas, values, keys = json.loads(raw)
    kinds = dtypes.fields()
    made = Plan(
        tuple(
            Storage(kind, _place(dev), kinds[dtype], *rest) for kind, dev, dtype, *rest in storages
        ),
        tuple(
            Step(Ops[op], dev, tuple(n), writes, None, None, origin, tuple(names), (), *rest)
            for op, dev, n, writes, origin, names, *rest in steps
        ),
        tuple(results),
        arenas,
        tuple(values),
    )
    return RunnablePlan(made, keys)


def _place(packed: Any) -> Place:
    """A device as JSON gives it back."""
    if isinstance(packed, str):
        return packed
    names, cut = packed
    return Placement(tuple(names), None if cut is None else Cut(cut[0], tuple(cut[1])))
