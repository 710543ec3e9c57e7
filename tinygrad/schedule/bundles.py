"""Kernels that are independent of each other, launched as one: BUNDLE(kernel, kernel, ...).

The members are listed in `arg`, a row each: the number of its kernel, the bundle's slot for each of
the kernel's slots, and for each of the kernel's variables a number or the name of one of the
bundle's variables. Members that differ only in their buffers share one kernel. Members that differ
in float constants share one in which these are variables. Members that go over their elements in
the order of memory share one whatever their sizes: its loop has the largest size, and a variable
says where it ends. So the code of a bundle doesn't grow with the number of members: the update of
all parameters of a model is one kernel that is compiled once, and so are the random numbers that
they start from. `codegen/bundles` makes one function of a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from tinygrad.base.dtype import dtypes
from tinygrad.schedule.demand import IN_ORDER, Kernel
from tinygrad.schedule.inlining import reads_again
from tinygrad.schedule.limits import SPARE
from tinygrad.schedule.movement import offset_of
from tinygrad.schedule.plan import Step, bits_variable, signed_bits, variable_name, variable_number
from tinygrad.simplify.affine import simplify_index
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, bit_cast

MOST_WEIGHT = 1 << 10  # operations on an element: longer kernels deserve a launch of their own
MOST_ARGUMENTS = 1 << 11  # with so many, one launch more or less makes no difference
ORDERED = IN_ORDER | {Ops.CHECK}
OPENED = (dtypes.float32, dtypes.float64)  # constants in which kernels may differ
ROOM = 1 << 40  # the size of a kernel of any size, until its largest size is known

Values = tuple[int | str, ...]


@dataclass(frozen=True)
class Member:
    """The arguments of a kernel's run: a slot for each of its slots, and for each of its variables
    a number or a variable's name."""

    slots: tuple[int, ...]
    values: Values


def members_of(bundle: UOp) -> list[tuple[UOp, list[Member]]]:
    """The kernels of a bundle, each with its members."""
    found: list[tuple[UOp, list[Member]]] = [(kernel, []) for kernel in bundle.src]
    for number, slots, values in bundle.arg:
        found[number][1].append(Member(tuple(slots), tuple(values)))
    return found


def kernels_of(ast: UOp) -> list[UOp]:
    """The kernels that a step runs, each as often as it runs and in its own size."""
    return [kernel for kernel, _ in kernels_and_slots(ast)]


def kernels_and_slots(ast: UOp) -> list[tuple[UOp, tuple[int, ...] | None]]:
    """The same; each kernel with the step's slots for its own slots, if these differ."""
    if ast.op is not Ops.BUNDLE:
        return [(ast, None)]
    found: list[tuple[UOp, tuple[int, ...] | None]] = []
    for kernel, members in members_of(ast):
        made = {values: alone(kernel, values) for values in {m.values for m in members}}
        found += [(made[member.values], member.slots) for member in members]
    return found


def is_short(kernel: Kernel) -> bool:
    """Whether the kernel passes once over what it reads, in any order, with a few operations on
    each element."""
    if kernel.weight > MOST_WEIGHT or not all(isinstance(n, int) for n in kernel.shape):
        return False
    return not any(
        node.op in ORDERED
        or node.op is Ops.FOLD
        or (node.op is Ops.REDUCE_AXIS and reads_again(node))
        for node, _ in kernel.inlined
    )


def bundled(steps: Sequence[Step], limit: int) -> Iterable[Step]:
    """Combines kernels of one device into few steps, each of at most `limit` buffers and variables
    (0: as many as are useful)."""
    taken: list[Step] = []
    arguments: set[int | str] = set()
    for step in steps:
        own: set[int | str] = {*step.storages, *step.variables}
        if taken and len(arguments | own) + SPARE > (limit or MOST_ARGUMENTS):
            yield _bundle(taken)
            taken, arguments = [], set()
        taken.append(step)
        arguments |= own
    if taken:
        yield _bundle(taken)


def _bundle(steps: Sequence[Step]) -> Step:
    if len(steps) == 1:
        return steps[0]
    written = dict.fromkeys(n for step in steps for n in step.storages[: step.writes])
    storages = tuple({**written, **dict.fromkeys(n for step in steps for n in step.storages)})
    slots = {number: slot for slot, number in enumerate(storages)}
    variables = tuple(dict.fromkeys(name for step in steps for name in step.variables))
    names = {name: variable_name(i) for i, name in enumerate(variables)}
    kernels: list[UOp] = []
    rows = []
    for kernel, members in _shared(steps):
        for step, own in members:
            values = (*(names[name] for name in step.variables), *own)
            rows.append((len(kernels), tuple(slots[n] for n in step.storages), values))
        kernels.append(kernel)
    ast = UOp(Ops.BUNDLE, dtypes.void, tuple(kernels), tuple(rows))
    first = steps[0]
    return Step(
        Ops.KERNEL, first.device, storages, len(written), ast, None, first.origin, variables
    )


def _shared(steps: Sequence[Step]) -> Iterable[tuple[UOp, list[tuple[Step, tuple[int, ...]]]]]:
    """The kernels that steps can share. Each comes with the steps that share it, the constants in
    which these differ, and their sizes if those differ."""
    same: dict[UOp, list[Step]] = {}
    for step in steps:
        assert step.ast is not None, "a kernel's step"
        same.setdefault(step.ast, []).append(step)
    alike: dict[tuple[UOp, int], list[UOp]] = {}  # a number of one may be a variable of another
    for ast in same:
        own = numbers(ast)
        form, _ = of_any_size(with_variables(ast, own))
        alike.setdefault((form, len(own)), []).append(ast)
    for family in alike.values():
        kernel, values = _one_kernel(family)
        yield kernel, [(s, v) for ast, v in zip(family, values, strict=True) for s in same[ast]]


def _one_kernel(family: Sequence[UOp]) -> tuple[UOp, list[tuple[int, ...]]]:
    """One kernel for several that are equal but for their constants and sizes, and what each of
    them gives to its variables."""
    columns = [*zip(*map(numbers, family), strict=True)]
    places = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    differing = [[numbers(ast)[i] for i in places] for ast in family]
    values = [tuple(map(signed_bits, own)) for own in differing]
    opened = [with_variables(ast, own) for ast, own in zip(family, differing, strict=True)]
    if len(set(opened)) == 1:
        return opened[0], values
    forms, sizes = zip(*map(of_any_size, opened), strict=True)
    return sized(forms[0], sizes), [(*own, n) for own, n in zip(values, sizes, strict=True)]


# ---- kernels of any numbers ----------------------------------------------------------------------


def numbers(kernel: UOp) -> list[UOp]:
    """The float constants of a kernel."""
    return [n for n in kernel.toposort() if n.op is Ops.CONST and n.dtype in OPENED]


def with_variables(kernel: UOp, numbers: Sequence[UOp]) -> UOp:
    """The kernel with these constants replaced by variables, numbered after its own, which hold the
    constants' bits."""
    changes = {}
    for i, number in enumerate(numbers, _next_variable(kernel.toposort())):
        changes[number] = bits_variable(variable_name(i), number.dtype).bitcast(number.dtype)
    return kernel.substitute(changes)


def _next_variable(order: Sequence[UOp]) -> int:
    """The number of the first variable that a kernel of these nodes doesn't have yet."""
    own = (variable_number(node.arg[0]) for node in order if node.op is Ops.DEFINE_VAR)
    return max(own, default=-1) + 1


def _with_numbers(kernel: UOp, values: Values) -> UOp:
    """The kernel with the constants whose bits are in these variables."""
    changes = {}
    for node in kernel.toposort():
        if node.op is Ops.BITCAST and (variable := node.src[0]).op is Ops.DEFINE_VAR:
            value = values[variable_number(variable.arg[0])]
            if isinstance(value, int):
                changes[node] = node.const_like(bit_cast(value, variable.dtype, node.dtype))
    return kernel.substitute(changes)


# ---- kernels of any size -------------------------------------------------------------------------


def of_any_size(kernel: UOp) -> tuple[UOp, int]:
    """If a kernel goes over all elements in memory order: the kernel of ROOM elements, with its
    size as a variable, and that size. Any other kernel unchanged, and 0."""
    target, _, *ranges = kernel.src[0].src
    offset, sizes = target.src[1], [r.vmax + 1 for r in ranges]
    if not ranges or offset is not simplify_index(offset_of(ranges, sizes)):
        return kernel, 0
    if any(len(loop.src) > 1 for loop in ranges):
        return kernel, 0  # of what a variable leaves out nothing is written
    size, order = prod(sizes), kernel.toposort()
    whole = {n.src[0] for n in order if n.op is Ops.INDEX and n.src[1] is offset}
    if any(param.arg[1] != size for param in whole):
        return kernel, 0
    limit = UOp.variable(variable_name(_next_variable(order)), 1, ROOM, dtypes.index)
    loop = UOp.range(ROOM, "i0", limits=(limit,))
    changes = {param: param.replace(arg=(param.arg[0], ROOM)) for param in whole}
    parts = UOp.sink(*(part for store in kernel.src for part in store.src[:2]))
    places = parts.substitute({**changes, offset: loop}).src
    pairs = zip(places[::2], places[1::2], strict=True)
    form = UOp.sink(*(place.store(value, loop) for place, value in pairs))
    is_flat = all(n is loop for n in form.toposort() if n.op is Ops.RANGE)
    return (form, size) if is_flat else (kernel, 0)


def alone(kernel: UOp, values: Values) -> UOp:
    """The kernel of one member, with its constants, and its size if that is a variable."""
    loop, kernel = _loop_of_any_size(kernel), _with_numbers(kernel, values)
    if loop is None:
        return kernel
    size = values[-1]
    assert isinstance(size, int)
    return _resized(kernel, loop, size, UOp.range(size, "i0"))


def sized(form: UOp, sizes: Sequence[int]) -> UOp:
    """The kernel for these sizes: its loop has the longest, but only the shortest is guaranteed."""
    loop, largest = _loop_of_any_size(form), max(sizes)
    assert loop is not None
    limit = loop.src[1]
    limit = limit.replace(arg=(limit.arg[0], 1, largest))
    return _resized(form, loop, min(sizes), UOp.range(largest, "i0", limits=(limit,)))


def _loop_of_any_size(kernel: UOp) -> UOp | None:
    """The loop that a size variable limits."""
    loops = kernel.src[0].src[2:]
    limited = len(loops) == 1 and len(loops[0].src) == 2
    return loops[0] if limited and loops[0].src[1].op is Ops.DEFINE_VAR else None


def _resized(kernel: UOp, loop: UOp, size: int, new: UOp) -> UOp:
    """The kernel with `loop` replaced by one of this many turns, and shapes of the old size
    adjusted."""
    changes = {loop: new}
    for node in kernel.toposort():
        if node.op is Ops.INDEX and node.src[1] is loop:
            param = node.src[0]
            changes[param] = param.replace(arg=(param.arg[0], size))
    return kernel.substitute(changes)
