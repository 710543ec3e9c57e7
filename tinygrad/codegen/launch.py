"""Which tasks a function runs, and what each knows of itself: the grid of groups, the number of a
task, its turns of the PARALLEL loops, and where a variable ends them."""

from __future__ import annotations

from collections.abc import Callable

from tinygrad.base.dtype import dtypes
from tinygrad.base.helpers import ceildiv, prod
from tinygrad.base.target import Target
from tinygrad.codegen.clipping import Arms
from tinygrad.codegen.expand import Expansion
from tinygrad.codegen.leaves import Leaves
from tinygrad.codegen.linear import Number, Program, as_node
from tinygrad.loops.roles import size_of
from tinygrad.uop import Ops, UOp

FALSE = UOp.const(dtypes.bool, False)


def grid_of(count: int, target: Target) -> tuple[int, int, int]:
    """Groups along each axis for `count` tasks; the surplus is less than a row."""
    rows = ceildiv(count, target.grid_limit[0])
    return ceildiv(count, max(1, rows)), rows, 1


def ends_of(tasks: list[UOp]) -> tuple[UOp, ...]:
    """The limits that variables set, if a single loop counts the tasks."""
    counted = [loop for loop in tasks if size_of(loop) > 1]
    if len(counted) != 1:
        return ()
    return tuple(end for end in counted[0].src[1:] if not end.ranges)


def open_tasks(
    expansion: Expansion, tasks: list[UOp], grid: tuple[int, int, int], count: int
) -> None:
    """The code that follows is run by each of `count` tasks, which know their turns of the loops
    `tasks`; groups of the grid beyond do nothing."""
    program = expansion.program
    if count <= 1:
        expansion.given.update(dict.fromkeys(tasks, 0))
        return
    has_groups = expansion.evaluator.target.has_groups
    task = _group_number(program, grid) if has_groups else program.open_tasks(count)
    expansion.given.update(_turns_of(expansion, tasks, task, count))
    if prod(grid) > count:
        program.open_branch(program.test(Ops.CMPLT, task, count))


def _group_number(program: Program, grid: tuple[int, int, int]) -> Number:
    """The number of this group's task."""
    task: Number = program.argument(Ops.SPECIAL, dtypes.index, ("gid0", grid[0]))
    if grid[1] > 1:
        row = program.argument(Ops.SPECIAL, dtypes.index, ("gid1", grid[1]))
        task = program.integer(Ops.ADD, task, program.integer(Ops.MUL, row, grid[0]))
    return task


def _turns_of(
    expansion: Expansion, ranges: list[UOp], task: Number, count: int
) -> dict[UOp, Number]:
    """The counters of the PARALLEL ranges: row-major in the number of the task."""
    program = expansion.program
    found: dict[UOp, Number] = {}
    inside = count
    for loop in ranges:
        size = size_of(loop)
        if size == 1:
            found[loop] = 0
            continue
        outside, inside = inside, inside // size
        value = program.divided(Ops.IDIV, as_node(task), inside)
        found[loop] = value if outside == count else program.divided(Ops.MOD, value, size)
    return found


def run_in_arms(
    expansion: Expansion, arms: Arms, run: Callable[[Leaves], str], masked: Leaves
) -> str:
    """Tasks within a variable's limit run without masks, those that it cuts run with masks. Lanes
    of groups all run with masks, since they synchronise in one place."""
    program, groups = expansion.program, expansion.evaluator.target.has_groups
    expansion.given.update({new: expansion.given[old] for old, new in arms.renamed.items()})
    margins = () if groups else arms.margins
    inside, whole = (expansion.none_negative(each) for each in (arms.inside, margins))
    if inside is not None:
        program.open_branch(inside)
    if groups:
        return run(masked)
    if whole is None:
        return run(arms.whole)
    with program.branch(whole):
        lines = run(arms.whole)
    program.open_branch(program.test(Ops.CMPEQ, whole, FALSE))
    return f"{lines}\na task that a variable cuts:\n{run(masked)}"
