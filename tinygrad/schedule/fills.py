"""Random numbers of any amount: a kernel that reads nothing, and is long, becomes that of all sizes
near its own, and of all numbers that only scale and move what is drawn. A model's weights are then
few kernels, though each is realised alone; in one `realize` they are a bundle (`schedule/bundles`).
"""

from __future__ import annotations

from dataclasses import replace

from tinygrad.schedule.bundles import ORDERED, numbers, of_any_size, sized, with_variables
from tinygrad.schedule.plan import Plan, Step, bits_of, variable_name
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

LONG = 16  # nodes: what has fewer, as one that writes a constant, is compiled in no time
SMALLEST, GROWTH = 1 << 12, 1 << 6  # a kernel's largest sizes: tasks beyond the own one cost little


def with_shared_fills(plan: Plan, variables: int) -> Plan:
    """The plan of a graph with so many variables, which brings further ones with their values."""
    values: list[int] = []
    steps: list[Step] = []
    for step in plan.steps:
        made = _shared(step, variables + len(values))
        steps.append(step if made is None else made[0])
        values += () if made is None else made[1]
    return replace(plan, steps=tuple(steps), values=tuple(values)) if values else plan


def _shared(step: Step, first: int) -> tuple[Step, list[int]] | None:
    """The step with variables from `first` on, and their values."""
    ast, written = step.ast, tuple(range(step.writes))
    if ast is None or ast.op is not Ops.SINK or step.writes < len(step.storages):
        return None
    order = ast.toposort()
    if len(order) < LONG or any(node.op in ORDERED for node in order):
        return None
    opened = [number for number in numbers(ast) if number in _outermost(ast)]
    form, size = of_any_size(with_variables(ast, opened))
    if not size:
        return None
    largest = SMALLEST
    while largest < size:
        largest *= GROWTH
    values = [*map(bits_of, opened), size]
    names = tuple(variable_name(first + i) for i in range(len(values)))
    kernel = sized(form, [largest])
    return replace(
        step,
        ast=kernel,
        variables=(*step.variables, *names),
        part=size / largest,
        touches=(((), written, written),),
    ), values


def _outermost(kernel: UOp) -> set[UOp]:
    """What values are multiplied by, and added to, right before they are stored."""
    found: set[UOp] = set()
    for store in kernel.src:
        value = store.src[1]
        while value.op in (Ops.ADD, Ops.MUL, Ops.CAST):
            inner = [source for source in value.src if source.op is not Ops.CONST]
            found.update(value.src)
            if len(inner) != 1:
                break
            value = inner[0]
    return found
