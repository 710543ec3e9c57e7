"""The primitive `window`, for a value that depends on two loops only through a sum of their
counters: the position and the tap of a window. It is staged over that sum, so an element is kept
once and not once for each tap. The border is staged too, so readers need no mask."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import ceildiv
from tinygrad.loops.layout import element
from tinygrad.loops.operands import at_path, check_unused, loop_named
from tinygrad.loops.reads import reads_of, step
from tinygrad.loops.rebuild import read_where, replaced
from tinygrad.loops.roles import is_plain_loop, name_of, size_of
from tinygrad.simplify.affine import add, divide, modulo, scale
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp

Pair = tuple[str, int, str, int]
"""(position, its step, tap, its step): the sum is step * position + step * tap. Further pairs of
the same position build on it: their position is the sum so far."""


def window(
    kernel: UOp,
    path: Sequence[int],
    over: Sequence[str],
    pairs: Sequence[Pair],
    name: str,
    memory: str = "LOCAL",
    phases: Sequence[tuple[str, int]] = (),
) -> UOp:
    """The value at `path` is staged over the loops `over`. A loop that is the position of a pair is
    replaced in the stage by a counter of the pair's sums (position plus tap), starting at the
    least. With ("i", 2) in `phases`, the even sums of a row are kept first, then the odd ones: what
    neighbouring positions two apart read lies side by side.

    Requires: the conditions of `stage`; the value depends on the loops of a pair only by their sum,
    and every number up to the largest sum is a sum.

        for i: for k: ... x(i + k)
    becomes, with over = (i,) and pairs = ((i, 1, k, 1),)
        for name.i: name[name.i] = x(name.i)
        for i: for k: ... name[i + k]

    >>> from tinygrad.viz.loops import draw, taps
    >>> draw(taps(8, 3))
    reduce add: k:3
    store: i:8
    >>> draw(window(taps(8, 3), (0, 1, 0), ("i",), (("i", 1, "k", 1),), "x"))
    x LOCAL: x.i:10
    reduce add: k:3
    store: i:8
    """
    value = at_path(kernel, path)
    check_unused(kernel, name, *(f"{name}.{n}" for n in over))
    inside, at = value, {n: loop_named(kernel, n) for n in over}
    counters: dict[str, UOp] = {}
    for position, each, tap, apart in pairs:
        counted = counters[position] if position in counters else loop_named(kernel, position)
        other = loop_named(kernel, tap)
        moved = over_sums(inside, counted, each, other, apart, f"{name}.{position}")
        if moved is None:
            raise ArgumentError(
                f"window {name!r}: the value doesn't move by {each}*{position} + {apart}*{tap}"
                " only, or numbers are left out; legal: two plain loops, one of them with step 1"
            )
        inside, counters[position] = moved
        least = min(0, apart * (size_of(other) - 1))
        place = at.get(position, counted)
        at[position] = add(add(scale(place, each), other, apart), number(-least))
    for n in over:
        if n not in counters:
            counters[n] = UOp.range(size_of(at[n]), f"{name}.{n}")
            inside = replaced(inside, {at[n]: counters[n]})
    own, where, counts = tuple[UOp, ...](), list[UOp](), dict(phases)
    for n in over:
        if n not in counts:
            own, where = (*own, counters[n]), [*where, at[n]]
            continue
        inside, made = _by_phases(inside, counters[n], counts[n])
        own, where = (*own, *made), [*where, modulo(at[n], counts[n]), divide(at[n], counts[n])]
    missing = sorted(name_of(r) for r in inside.ranges - set(own))
    if len(over) < len(counters) or not all(map(is_plain_loop, own)) or set(own) - inside.ranges:
        raise ArgumentError(f"window {name!r}: {tuple(over)} are not loops that the value has")
    if missing and memory == "GLOBAL":
        raise ArgumentError(f"window {name!r}: GLOBAL, so all loops are its own; missing {missing}")
    stage = UOp(Ops.STAGE, value.dtype, (inside, *own), (name, memory, ()))
    return replaced(kernel, {value: element(stage, *where)})


def _by_phases(value: UOp, counter: UOp, count: int) -> tuple[UOp, tuple[UOp, UOp]]:
    """`value` in terms of a counter's remainder and quotient by `count`, and these two; it reads
    nothing beyond the counter's last number."""
    size, name = size_of(counter), name_of(counter)
    phase, place = UOp.range(count, f"{name}p"), UOp.range(ceildiv(size, count), name)
    total = add(scale(place, count), phase)
    value = replaced(value, {counter: total})
    if size % count:
        value = read_where(value, total.alu(Ops.CMPLT, number(size)), (phase, place))
    return value, (phase, place)


def pairs_of(
    window: UOp, own: Sequence[UOp], taps: Sequence[UOp], more: int
) -> list[tuple[Pair, UOp, UOp]]:
    """The positions, longer than the tap by at least `more`, for which the value depends on
    position and tap only by their sum. With each comes the value in terms of the sums so far, and
    this sum's counter, which has the position's name."""
    found: list[tuple[Pair, UOp, UOp]] = []
    for tap in taps:
        for position in (r for r in own if size_of(r) >= size_of(tap) + more):
            if (made := _pair_of(window, position, tap)) is not None:
                found.append(made)
                window = made[1]
    return found


def _pair_of(window: UOp, position: UOp, tap: UOp) -> tuple[Pair, UOp, UOp] | None:
    """These two loops as a pair, if the value depends on them only by a sum."""
    for one, other in {(step(n, position), step(n, tap)) for n in reads_of(window.toposort())}:
        if not one or not other or one < 1:
            continue
        each, apart = one // gcd(one, other), other // gcd(one, other)
        moved = over_sums(window, position, each, tap, apart, name_of(position))
        if moved and max(each, abs(apart)) < size_of(tap if abs(apart) == 1 else position):
            return ((name_of(position), each, name_of(tap), apart), *moved)
    return None


def over_sums(
    value: UOp, position: UOp, step: int, tap: UOp, apart: int, name: str
) -> tuple[UOp, UOp] | None:
    """`value` in terms of a counter of the sums instead of the two loops, and the counter. None if
    the value depends on the loops otherwise, or if some number in between is not a sum: nothing
    says that memory can be read there."""
    if not (is_plain_loop(position) and is_plain_loop(tap)) or min(step, abs(apart)) != 1:
        return None
    if step > size_of(tap) if abs(apart) == 1 else abs(apart) > size_of(position):
        return None
    span, reach = step * (size_of(position) - 1), apart * (size_of(tap) - 1)
    counter = UOp.range(span + abs(reach) + 1, name)
    total = add(counter, number(min(0, reach)))
    change = {tap: scale(add(total, position, -step), apart)} if abs(apart) == 1 else {}
    change = change or {position: add(total, tap, -apart)}
    moved = replaced(value, change)
    return None if {position, tap} & moved.ranges else (moved, counter)
