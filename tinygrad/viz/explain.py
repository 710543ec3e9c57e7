"""`explain`: what realizing a tensor would do, before it does it."""

from __future__ import annotations

from tinygrad.base.helpers import plural
from tinygrad.base.target import Target
from tinygrad.codegen.names import bundle_name, kernel_name
from tinygrad.engine.devices import Device
from tinygrad.engine.holders import Holder
from tinygrad.engine.making import plan_of
from tinygrad.engine.profile import user_place
from tinygrad.engine.realize import in_memory
from tinygrad.engine.structure import structure_of
from tinygrad.loops.cost import estimate
from tinygrad.loops.heuristic import schedule
from tinygrad.schedule.plan import Plan, Step
from tinygrad.uop.op import Ops


def explain(*tensors: Holder) -> str:
    """The steps that computing the tensors takes, as text: kernels, operations, bytes, the least
    bytes that must move, where each value is stored and who reads it. Computes nothing.

    >>> print(explain(Tensor([1.0, 2.0]).realize() + 1))
    1 step
    ...
    bytes: 8 given + 8 results are the floor; kernels move 16
    """
    wanted = [t.uop for t in tensors if not in_memory(t.uop)]
    if not wanted:
        return "nothing to do: the values are in memory"
    return plan_text(plan_of(structure_of(wanted).sink))


def plan_text(made: Plan, target: Target | None = None) -> str:
    """A plan in readable form. Kernels have the names that they get on `target`, or on the device
    that will run them."""
    arenas = [f"; temporaries share {n} bytes on {name}" for name, n in made.arenas.items()]
    lines = ["".join([plural(len(made.steps), "step"), *arenas])]
    for number, step in enumerate(made.steps):
        lines += _describe(number, step, made, target)
    lines += ["stored:", *(_storage_line(number, made) for number in range(len(made.storages)))]
    given = sum(s.nbytes for s in made.storages if s.kind == "param")
    results = sum(s.nbytes for s in made.storages if s.kind == "out")
    moved = sum(estimate(s.ast).bytes for s in made.steps if s.ast is not None)
    lines.append(f"bytes: {given} given + {results} results are the floor; kernels move {moved}")
    return "\n".join(lines)


def _describe(number: int, step: Step, made: Plan, target: Target | None) -> list[str]:
    stored = ", ".join(_storage(n, made) for n in step.storages[: step.writes])
    read = ", ".join(_storage(n, made) for n in step.storages[step.writes :])
    name, work = step.op.name.lower(), ""
    if step.ast is not None:
        cost = estimate(step.ast)
        bundle = step.ast if step.ast.op is Ops.BUNDLE else None
        kernel = step.ast if bundle is None else bundle.src[0]
        kernel, _ = schedule(kernel, target or Device[step.device].target)
        name = kernel_name(kernel)[0]
        name = name if bundle is None else bundle_name(bundle, name)
        work = f"{cost.operations} operations, {cost.bytes} bytes"
    place = user_place(step.origin)
    facts = ", ".join(filter(None, (work, place)))
    return [
        f"{number:3d} {name:20s} {stored} <- {read or 'nothing'}",
        *([" " * 6 + facts] if facts else []),
    ]


def _storage(number: int, made: Plan) -> str:
    return f"{made.storages[number].kind}{number}"


def _storage_line(number: int, made: Plan) -> str:
    """The content of a storage, and the reason for it: it was given, is a result, or is read by
    other kernels."""
    kept = made.storages[number]
    readers = [str(i) for i, s in enumerate(made.steps) if number in s.storages[s.writes :]]
    reasons = {"param": "given", "out": "a result", "temp": "between kernels"}
    why = reasons.get(kept.kind, f"part {kept.place} of storage {kept.whole}")
    where = f", at byte {kept.place} of the arena" if kept.kind == "temp" else ""
    by = f", read by {'step' if len(readers) == 1 else 'steps'} {', '.join(readers)}"
    what = f"{kept.dtype.name}[{kept.size}] on {kept.device}"
    return f"    {_storage(number, made):8s} {what}: {why}{where}{by if readers else ''}"
