"""What the lanes of a group share: loops, split into the parts that a matrix unit prescribes, and
pieces of operands in memory. All lanes fill a piece together, whatever expression the operand
is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinygrad.base.helpers import prod
from tinygrad.base.target import Target
from tinygrad.loops.draft import Draft, names
from tinygrad.loops.matrix_units import Part
from tinygrad.loops.reads import copy_of, reads_of, step
from tinygrad.loops.roles import own_ranges, role_of
from tinygrad.uop.node import UOp

WORD = 4  # bytes of a register of a lane
VECTOR = 16  # bytes that a lane moves at once
DEEPEST = 4  # pieces of a pipeline: with three being fetched, the first arrives in time
SHORT = 8  # a loop of so few turns is unrolled
UNKNOWN_STEP = 1 << 20  # elements between neighbours of which nothing is known
NOT_READ = 1 << 30
Options = tuple[tuple[str, object], ...]


def parts_of(
    draft: Draft, loop: str, parts: Sequence[Part], roles: tuple[str, str, str]
) -> list[str]:
    """Splits a loop into its parts. Roles: of parts that lanes count, of elements that a lane
    holds, of adjacent elements that it holds."""
    found, rest = [], loop
    for i, (_, _, stride) in enumerate(parts):
        inside = prod(size for _, size, _ in parts[i + 1 :])
        role = roles[0] if stride else roles[1 + (i + 1 == len(parts))]
        found.append(rest)
        if inside > 1:
            rest = draft.split(rest, inside, f"{loop}{parts[i + 1][0]}", role, "LOOP")
        elif role != "LOOP":
            draft.do("role", rest, role)
    return found


def lanes_first(pairs: Iterable[tuple[Sequence[str], Sequence[Part]]]) -> tuple[list[str], ...]:
    """The loops that count lanes, slowest first; and the loops over what a lane holds."""
    strides = {
        name: part[2] for names, parts in pairs for name, part in zip(names, parts, strict=True)
    }
    lanes = sorted((x for x in strides if strides[x]), key=lambda x: -strides[x])
    return lanes, [x for x in strides if not strides[x]]


def pipeline(target: Target, shared: int, most: int) -> Options:
    """The options of a stage whose next pieces are fetched while others are used, as many as there
    is room for. `shared`: bytes of one turn's pieces, `most`: number of turns."""
    depth = min(DEEPEST, target.local_memory // shared, most)
    if "async_copy" not in target.native or depth < 2:
        return ()
    return (("depth", depth), ("via", "async"))


def is_copy(value: UOp, along: UOp) -> bool:
    """Whether a piece is an exact copy of memory whose rows have neighbours along `along`."""
    read = copy_of(value)
    return read is not None and step(read, along) == 1


def fill(draft: Draft, name: str, lanes: int) -> None:
    """All lanes of a group fill a stage together: adjacent lanes read adjacent memory, in vectors
    if possible."""
    own = names(own_ranges(draft.stages[name]))
    loads = reads_of(draft.below(draft.nest(name).values))
    fast = min(own, key=lambda x: (reach(loads, draft.loops[x]), -own.index(x)))
    others = [x for x in own if x != fast]
    elements = draft.turns(own)
    width = draft.target.lanes(draft.stages[name].dtype.itemsize)
    while width > 1 and elements < lanes * width:
        width //= 2
    tail: list[str] = []
    if width > 1 and all(_is_row(x, draft.loops[fast]) for x in loads):
        tail = [draft.split(fast, width, fast + "v", "LOOP", "VECTOR")]
    given, _ = deal(draft, (fast, *reversed(others)), lanes)
    for loop in own:
        if role_of(draft.loops[loop]) == "LOOP" and draft.size(loop) <= SHORT:
            draft.do("role", loop, "UNROLL")
    draft.do("order", name, (*(x for x in own if x not in given), *given, *tail))


def piece(
    draft: Draft, value: UOp, layout: Sequence[str], base: str, lanes: int, options: Options = ()
) -> None:
    """A complete stage that this many lanes fill together. Its rows are padded by 16 bytes, unless
    they are swizzled."""
    name = draft.stage(value, layout, base, "LOCAL", options)
    draft.do("complete", name)
    if len(layout) > 1 and "swizzle" not in dict(options):
        draft.do("pad", name, f"{name}.{layout[0]}", max(1, VECTOR // value.dtype.itemsize))
    fill(draft, name, lanes)


def deal(draft: Draft, loops: Iterable[str], lanes: int) -> tuple[list[str], int]:
    """Distributes loops, the fastest first, over lanes until no lanes are left. Returns the loops
    that count lanes, slowest first, and how many lanes share each position."""
    given: list[str] = []
    for loop in loops:
        size = draft.size(loop)
        if lanes == 1:
            break
        if size <= lanes:
            draft.do("role", loop, "LANE")
            given.insert(0, loop)
            lanes //= power_above(size)
        else:
            given.insert(0, draft.split(loop, lanes, loop + "l", "LOOP", "LANE"))
            lanes = 1
    return given, lanes


def power_below(number: int) -> int:
    """The largest power of two that is at most `number`."""
    return int(2 ** (number.bit_length() - 1))


def power_above(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return int(2 ** (number - 1).bit_length())


def reach(loads: Iterable[UOp], loop: UOp) -> int:
    """The distance between reads of neighbours along the loop, summed over the reads. An unknown
    step counts as a very large one."""
    steps = [step(x, loop) for x in loads if loop in x.ranges]
    if not steps:
        return NOT_READ
    return sum(UNKNOWN_STEP if s is None else abs(s) for s in steps)


def _is_row(load: UOp, loop: UOp) -> bool:
    """Whether a vector along the loop reads adjacent elements, or a single one."""
    return step(load, loop) in (0, 1)
