"""`explain`: what realizing a tensor would do, before it does it."""

from __future__ import annotations

from tinygrad.base.helpers import plural
from tinygrad.codegen.pipeline import kernel_name
from tinygrad.engine.devices import Device
from tinygrad.engine.holders import Holder
from tinygrad.engine.realize import in_memory
from tinygrad.engine.structure import structure_of
from tinygrad.loops.cost import estimate
from tinygrad.loops.heuristic import schedule
from tinygrad.schedule.kernels import plan
from tinygrad.schedule.plan import Plan, Step
from tinygrad.uop.op import Ops


def explain(*tensors: Holder) -> str:
    """The steps that computing the tensors takes, as text: kernels, operations, bytes, the least
    bytes that must move, and where each value is stored. Computes nothing.

    >>> print(explain(Tensor.ones(4) + Tensor.rand(4)))  # doctest: +SKIP
    """
    wanted = [t.uop for t in tensors if not in_memory(t.uop)]
    if not wanted:
        return "nothing to do: the values are in memory"
    structure = structure_of(wanted)
    made = plan(structure.sink)
    lines = [f"{plural(len(made.steps), 'step')}, arenas {made.arenas or 'none'}"]
    lines += [_describe(number, step, made) for number, step in enumerate(made.steps)]
    given = sum(s.nbytes for s in made.storages if s.kind == "param")
    results = sum(s.nbytes for s in made.storages if s.kind == "out")
    moved = sum(estimate(s.ast).bytes for s in made.steps if s.ast is not None)
    lines.append(
        f"bytes: {given} given + {results} results are the floor; the kernels move {moved}"
    )
    return "\n".join(lines)


def _describe(number: int, step: Step, made: Plan) -> str:
    stored = ", ".join(_storage(n, made) for n in step.storages[: step.writes])
    read = ", ".join(_storage(n, made) for n in step.storages[step.writes :])
    where = f"  {step.origin}" if step.origin else ""
    if step.op is not Ops.KERNEL or step.ast is None:
        return f"{number:3d} {step.op.name.lower():20s} {stored} <- {read}{where}"
    cost = estimate(step.ast)
    kernel, _ = schedule(step.ast, Device[step.device].target)
    name, _ = kernel_name(kernel)
    work = f"{cost.operations} operations, {cost.bytes} bytes"
    return f"{number:3d} {name:20s} {stored} <- {read}  {work}{where}"


def _storage(number: int, made: Plan) -> str:
    kept = made.storages[number]
    return f"{kept.kind}{number}:{kept.dtype.name}[{kept.size}]"
