"""What products of a group of lanes have in common: a unit's parts of a loop, and
pieces of operands in the memory that the lanes share, which all of them fill together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.loops.layout import below_bits, own_ranges, reads_of, role_of, size_of, step, sums_of
from tinygrad.loops.matrix_units import Part
from tinygrad.loops.plan import Plan, names
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

WORD = 4  # bytes of a register of a lane
VECTOR = 16  # bytes that a lane moves at once
Options = tuple[tuple[str, object], ...]
DEEPEST = 4  # pieces of a pipeline: of three on their way the first is there in time
TURNED = 2  # bytes of elements whose matrices units can turn as they read them
BUSY_GROUPS = 128  # fewer leave processors idle
SHORT = 8  # a loop of so few turns is written out


def pipeline(target: Target, shared: int, most: int) -> Options:
    """A stage's options for a piece that is fetched while others are used, as many as there is
    room for; `shared`: bytes of one turn's pieces, `most`: turns that there are."""
    depth = min(DEEPEST, target.local_memory // shared, most)
    if "async_copy" not in target.native or depth < 2:
        return ()
    return (("depth", depth), ("via", "async"))


def sum_over(plan: Plan, k: str) -> UOp:
    """The sum that the loop `k` belongs to."""
    loop = plan.loops[k]
    return next(x for x in sums_of(plan.nodes) if loop in own_ranges(x))


def parts_of(
    plan: Plan, loop: str, parts: Sequence[Part], roles: tuple[str, str, str]
) -> list[str]:
    """A loop as its parts. Roles: of lanes, of what a lane holds, of neighbours it holds."""
    found, rest = [], loop
    for i, (_, _, stride) in enumerate(parts):
        inside = prod(size for _, size, _ in parts[i + 1 :])
        role = roles[0] if stride else roles[1 + (i + 1 == len(parts))]
        found.append(rest)
        if inside > 1:
            rest = plan.split(rest, inside, f"{loop}{parts[i + 1][0]}", role, "LOOP")
        elif role != "LOOP":
            plan.do("role", rest, role)
    return found


def is_copy(value: UOp, along: UOp) -> bool:
    """Whether a piece is what memory holds, bit for bit, and has neighbours along its rows."""
    value = below_bits(value)
    return value.op is Ops.INDEX and value.src[0].op is Ops.PARAM and step(value, along) == 1


def fill(plan: Plan, name: str, lanes: int) -> None:
    """A stage is filled by all lanes of a group together: neighbours along what memory has side by
    side, in vectors where it can be."""
    own = names(own_ranges(plan.stages[name]))
    loads = reads_of(plan.below(plan.nest(name).values))
    fast = min(own, key=lambda x: (reach(loads, plan.loops[x]), -own.index(x)))
    others = [x for x in own if x != fast]
    elements = prod(size_of(plan.loops[x]) for x in own)
    width = plan.target.lanes(plan.stages[name].dtype.itemsize)
    while width > 1 and elements < lanes * width:
        width //= 2
    tail: list[str] = []
    if width > 1 and all(_is_row(x, plan.loops[fast]) for x in loads):
        tail = [plan.split(fast, width, fast + "v", "LOOP", "VECTOR")]
    given, _ = deal(plan, (fast, *reversed(others)), lanes)
    for loop in own:
        if role_of(plan.loops[loop]) == "LOOP" and size_of(plan.loops[loop]) <= SHORT:
            plan.do("role", loop, "UNROLL")
    plan.do("order", name, (*(x for x in own if x not in given), *given, *tail))


def piece(
    plan: Plan, value: UOp, layout: Sequence[str], base: str, lanes: int, options: Options = ()
) -> None:
    """A whole stage that so many lanes fill together; its rows begin 16 bytes beyond whole ones,
    unless they are swizzled."""
    name = plan.stage(value, layout, base, "LOCAL", options)
    plan.do("complete", name)
    if len(layout) > 1 and "swizzle" not in dict(options):
        plan.do("pad", name, f"{name}.{layout[0]}", max(1, VECTOR // value.dtype.itemsize))
    fill(plan, name, lanes)


def deal(plan: Plan, loops: Iterable[str], lanes: int) -> tuple[list[str], int]:
    """Loops, the fastest first, are dealt out to lanes for as long as there are lanes to tell
    apart. The loops that count lanes, slowest first, and how many lanes are left for each."""
    given: list[str] = []
    for loop in loops:
        size = size_of(plan.loops[loop])
        if lanes == 1:
            break
        if size <= lanes:
            plan.do("role", loop, "LANE")
            given.insert(0, loop)
            lanes //= power_above(size)
        else:
            given.insert(0, plan.split(loop, lanes, loop + "l", "LOOP", "LANE"))
            lanes = 1
    return given, lanes


def power_below(number: int) -> int:
    """The largest power of two that is not larger."""
    return int(2 ** (number.bit_length() - 1))


def power_above(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return int(2 ** (number - 1).bit_length())


def reach(loads: Iterable[UOp], loop: UOp) -> int:
    """How far apart neighbours along the loop are read; those that are not know no distance."""
    steps = [step(x, loop) for x in loads if loop in x.ranges]
    return sum((1 << 20) if s is None else abs(s) for s in steps) if steps else 1 << 30


def _is_row(load: UOp, loop: UOp) -> bool:
    """Whether a vector along the loop reads neighbours, or one element."""
    return step(load, loop) in (0, 1)
