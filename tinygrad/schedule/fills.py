"""Kernels that only make values and read nothing, as random numbers do, compiled for any size. Such
a kernel, if it is long enough to be worth it, is replaced by one for all sizes up to a limit, with
the size as a variable; the numbers that scale and shift the result are variables too. So the
initial weights of a model need few kernels, even if each is realized alone; weights that are
realized together are one bundle (`schedule/bundles`)."""

from __future__ import annotations

from dataclasses import replace

from tinygrad.schedule.bundles import ORDERED, numbers, of_any_size, sized, with_variables
from tinygrad.schedule.plan import Plan, Step, numbered, signed_bits, variable_name, variable_number
from tinygrad.uop import Ops, UOp

LONG = 16  # nodes: smaller kernels, such as one that writes a constant, compile fast
SMALLEST, GROWTH = 1 << 30, 1 << 6  # a kernel's largest sizes: below the first, places have 32 bits


def with_shared_fills(plan: Plan, variables: int) -> Plan:
    """The plan of a graph with this many variables, extended by new variables and their values."""
    values: list[int] = []
    steps: list[Step] = []
    for step in plan.steps:
        made = _shared(step, variables + len(values))
        steps.append(step if made is None else made[0])
        values += () if made is None else made[1]
    return replace(plan, steps=tuple(steps), values=tuple(values)) if values else plan


def _shared(step: Step, first: int) -> tuple[Step, list[int]] | None:
    """The step with variables numbered from `first` on, and their values."""
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
    values = [*map(signed_bits, opened), size]
    names = (*step.variables, *(variable_name(first + i) for i in range(len(values))))
    kernel, variables = _numbered_alike(sized(form, [largest]), names)
    return replace(
        step,
        ast=kernel,
        variables=variables,
        part=size / largest,
        touches=(((), written, written),),
    ), values


def _numbered_alike(kernel: UOp, names: tuple[str, ...]) -> tuple[UOp, tuple[str, ...]]:
    """The kernel with its variables renumbered in order of occurrence, and the plan's names for
    them. So a constant that was an argument of the graph already doesn't lead to another kernel."""
    found = [node for node in kernel.toposort() if node.op is Ops.DEFINE_VAR]
    alike = {v: numbered(v, i) for i, v in enumerate(found)}
    return kernel.substitute(alike), tuple(names[variable_number(v.arg[0])] for v in found)


def _outermost(kernel: UOp) -> set[UOp]:
    """The values that are multiplied or added right before a value is stored."""
    found: set[UOp] = set()
    for store in kernel.src:
        value = store.src[1]
        while value.op in (Ops.ADD, Ops.MUL, Ops.CAST):
            inner = [source for source in value.src if not _is_known(source)]
            found.update(value.src)
            if len(inner) != 1:
                break
            value = inner[0]
    return found


def _is_known(value: UOp) -> bool:
    """Whether the value is a constant, or a variable that the graph's arguments provide."""
    is_argument = value.op is Ops.BITCAST and value.src[0].op is Ops.DEFINE_VAR
    return value.op is Ops.CONST or is_argument
