"""The schedule primitives: pure functions from kernel to kernel that never change what the kernel
computes.

Each one checks what it requires, and its errors say what would have been legal. Operands are data:
names of loops and stages, and paths (positions of sources from the SINK down). The docstrings show
loops before and after: `i:16` is a loop of 16 turns, `i:16 VECTOR` one with a role, `i:7<x` a loop
that also stops at x. The examples are run by the tests. Their kernels, and `draw`, come from
`viz/loops`; `draw` prints one line for the loops of each stage, reduction and store.

>>> from tinygrad.viz.loops import draw, past_sums, product, scaled, shares, sums
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import ceildiv
from tinygrad.loops.distribute import distribute
from tinygrad.loops.layout import element, fact, memory_of, nodes_of, option, stores_of, strides
from tinygrad.loops.operands import (
    at_path,
    check_unused,
    loop_named,
    loops_of,
    owners_of,
    stage_named,
)
from tinygrad.loops.reads import sums_of
from tinygrad.loops.rebuild import Replacement, rebuild, replaced
from tinygrad.loops.roles import ROLES, is_plain_loop, name_of, own_ranges, role_of, size_of
from tinygrad.loops.tensorise import complete, extend, tensorise
from tinygrad.loops.together import across, follow, own_loop, together
from tinygrad.loops.trims import ENDS, permitted
from tinygrad.loops.windows import window
from tinygrad.simplify.affine import add, build, divide, modulo, scale
from tinygrad.simplify.forms import number
from tinygrad.uop import Ops, UOp

MEMORIES = ("GLOBAL", "LOCAL", "REG")
LARGEST_VECTOR, LARGEST_UNROLL = 64, 64
"""Turns of a VECTOR and of an UNROLL: each is a lane, or a copy in the text."""


# ---- loops -----------------------------------------------------------------------------------


def split(
    kernel: UOp, name: str, factor: int, inner: str, outer_role: str = "LOOP", role: str = "LOOP"
) -> UOp:
    """One loop becomes two; if the size is no multiple of `factor`, the inner one gets a limit.

    Requires: `name` is a LOOP or PARALLEL; `inner` is a new name; factor is at least 1. An ORDERED
    loop may be split into an ORDERED one around a VECTOR, whose lanes store one after the other.

        for i:100: body(i)
    becomes
        for i:7: for i2:min(16, 100 - 16*i): body(16*i + i2)

    >>> draw(scaled(100, 8))
    store: i:100, j:8
    >>> draw(split(scaled(100, 8), "i", 16, "i2"))
    store: i:7, i2:16<((i*-16) + 100), j:8
    >>> draw(split(scaled(96, 8), "i", 16, "i2", "PARALLEL", "UNROLL"))
    store: i:6 PARALLEL, i2:16 UNROLL, j:8
    """
    loop = loop_named(kernel, name)
    in_order = role_of(loop) == outer_role == "ORDERED" and role == "VECTOR"
    if role_of(loop) not in ("LOOP", "PARALLEL") and not in_order:
        raise ArgumentError(f"split {name!r}: its role is {role_of(loop)}; legal: LOOP, PARALLEL")
    if factor < 1:
        raise ArgumentError(f"split {name!r} by {factor}: the factor must be at least 1")
    check_unused(kernel, inner)
    size, limits = loop.src[0], loop.src[1:]
    outer_size = _divided_up(size, factor)
    outer_limits = tuple(_divided_up(limit, factor) for limit in limits)
    outer = UOp(Ops.RANGE, loop.dtype, (outer_size, *outer_limits), (name, outer_role))
    clips = limits if size_of(loop) % factor == 0 else (*limits, size)
    start = scale(outer, factor)
    inner_limits = tuple(add(clip, start, -1) for clip in clips)
    piece = UOp.range(factor, inner, role, inner_limits)
    for each, its_role in ((outer, outer_role), (piece, role)):
        _check_role(kernel, loop, each, its_role)
    change = Replacement(add(start, piece), (outer, piece), factor)
    made = rebuild(kernel, {loop: change}, lambda n: _split_options(n, name, inner))
    ends = {end: tuple(_split_trim(t, name, factor) for t in fact(kernel, end)) for end in ENDS}
    inside = (stop for loop, stop in fact(kernel, "trim") if loop == name)
    for terms, d, f in inside:  # the inner loop stops where the loop did
        ends["trim"] += ((inner, ((*terms, (name, -factor * f)), d, f)),)
    return _with_facts(made, **ends)


def _divided_up(size: UOp, factor: int) -> UOp:
    if size.op is Ops.CONST:
        return number(ceildiv(size.arg, factor))
    return divide(add(size, number(factor - 1)), factor)


def _split_options(node: UOp, name: str, inner: str) -> UOp | None:
    """A stage's options that name a split loop: padding moves to the inner one, the fill order gets
    both."""
    if node.op is not Ops.STAGE or not node.arg[2]:
        return None
    stage, memory, options = node.arg
    changed = []
    for key, value in options:
        if key == "pad":
            value = tuple((inner if n == name else n, extra) for n, extra in value)
        elif key == "loops" and name in value:
            at = value.index(name) + 1
            value = (*value[:at], inner, *value[at:])
        changed.append((key, value))
    return node.replace(arg=(stage, memory, tuple(changed)))


def _split_trim(trim: Any, name: str, factor: int) -> Any:
    loop, (terms, d, f) = trim
    extra = sum(max(0, c) * (factor - 1) for outer, c in terms if outer == name)
    scaled = tuple((outer, c * factor if outer == name else c) for outer, c in terms)
    return loop, (scaled, d + extra, f * factor if loop == name else f)


def merge(kernel: UOp, first: str, second: str, name: str) -> UOp:
    """Two loops, one directly in the other, become one.

    Requires: every node that closes one of the loops closes both, adjacent and in this order; both
    are static LOOPs without limits. If they belong to a stage, its rows have no gaps between them.

        for i:4: for j:8: body(i, j)
    becomes
        for p:32: body(p // 8, p % 8)

    >>> draw(scaled(4, 8))
    store: i:4, j:8
    >>> draw(merge(scaled(4, 8), "i", "j", "p"))
    store: p:32
    """
    outer, inner = loop_named(kernel, first), loop_named(kernel, second)
    check_unused(kernel, name)
    for loop in (outer, inner):
        if not is_plain_loop(loop):
            raise ArgumentError(
                f"merge {name_of(loop)!r}: only a LOOP of fixed size without limits can be merged"
            )
    for owner in owners_of(kernel, outer) + owners_of(kernel, inner):
        own = own_ranges(owner)
        if not (outer in own and own.index(outer) + 1 < len(own)) or (
            own[own.index(outer) + 1] is not inner
        ):
            names = ", ".join(map(name_of, own))
            raise ArgumentError(f"merge {first!r}, {second!r}: not side by side in {names}")
        if owner.op is Ops.STAGE and owner.arg[2]:
            raise ArgumentError(f"merge {first!r}, {second!r}: the stage has {owner.arg[2]}")
    width = size_of(inner)
    both = UOp.range(size_of(outer) * width, name)
    return rebuild(
        kernel,
        {
            outer: Replacement(divide(both, width), (both,)),
            inner: Replacement(modulo(both, width), (), width),
        },
    )


def role(kernel: UOp, name: str, new: str) -> UOp:
    """Changes how a loop is run: as tasks, as the lanes of a vector, as copies in the text, ...

    Requires: the node that closes the loop allows this role (`roles`); VECTOR and UNROLL are static
    and small (LARGEST_VECTOR, LARGEST_UNROLL). When code is emitted, no LOOP may have a limit that
    depends on one of these; an UNROLL or a VECTOR may.

        for i:16: body(i)        becomes        for i:16 VECTOR: body(i)

    >>> draw(scaled(4, 16))
    store: i:4, j:16
    >>> draw(role(scaled(4, 16), "j", "VECTOR"))
    store: i:4, j:16 VECTOR
    >>> role(sums(64, 8), "r", "PARALLEL")
    Traceback (most recent call last):
    tinygrad.base.errors.ArgumentError: role of 'r': Ops.REDUCE can't have PARALLEL; legal: ...
    """
    loop = loop_named(kernel, name)
    if role_of(loop) == "ORDERED" or new == "ORDERED":
        raise ArgumentError(f"role of {name!r}: ORDERED is the scheduler's and stays as it is")
    made = UOp(Ops.RANGE, loop.dtype, loop.src, (name, new))
    _check_role(kernel, loop, made, new)
    return rebuild(kernel, {loop: Replacement(made, (made,))})


def _check_role(kernel: UOp, loop: UOp, made: UOp, new: str) -> None:
    name, size = name_of(made), size_of(made)
    if new == "ORDERED" == role_of(loop):
        return
    if new not in ROLES:
        known = ", ".join(role for role, row in ROLES.items() if row.closers)
        raise ArgumentError(f"role of {name!r}: {new!r} is none; there are {known}")
    if new == "LOOP":
        return
    for owner in owners_of(kernel, loop):
        if owner.op not in ROLES[new].closers:
            legal = ", ".join(r for r, row in ROLES.items() if owner.op in row.closers)
            raise ArgumentError(f"role of {name!r}: {owner.op!r} can't have {new}; legal: {legal}")
        if new == "PARALLEL" and memory_of(owner) in ("LOCAL", "REG"):
            raise ArgumentError(f"role of {name!r}: only a GLOBAL stage has tasks of its own")
    if new == "VECTOR" and size > LARGEST_VECTOR:
        raise ArgumentError(
            f"role of {name!r}: a VECTOR has 1 to {LARGEST_VECTOR} lanes, not {size}; split it"
        )
    if new in ("UNROLL", "SPREAD", "TILE") and size > LARGEST_UNROLL:
        raise ArgumentError(
            f"role of {name!r}: at most {LARGEST_UNROLL} copies, not {size}; split it first"
        )


def order(kernel: UOp, owner: str, names: Sequence[str]) -> UOp:
    """Reorders the loops, outermost first, of the STOREs ("store", or another name from
    `stores_of`), of a stage's fill (its name), or of the reduction that has them ("reduce").

    Requires: the same loops as before. An ORDERED loop keeps its place among the ORDERED ones. A
    stage's layout stays the same.

        for i: for j: body       becomes        for j: for i: body

    >>> draw(scaled(4, 8))
    store: i:4, j:8
    >>> draw(order(scaled(4, 8), "store", ("j", "i")))
    store: j:8, i:4
    """
    names = tuple(names)
    if moved := stores_of(kernel).get(owner):
        own = own_ranges(moved[0])
        have = tuple(map(name_of, own))
        if sorted(have) != sorted(names):
            raise ArgumentError(f"order of the stores: {names} are not their loops {have}")
        strict = [name_of(r) for r in own if role_of(r) == "ORDERED"]
        if [n for n in names if n in strict] != strict:
            raise ArgumentError(f"order of the stores: {strict} must stay in this order")
        loops = [loops_of(kernel)[n] for n in names]
        ordered = {store: store.with_src((*store.src[:2], *loops)) for store in moved}
        return kernel.with_src(tuple(ordered.get(store, store) for store in kernel.src))
    if owner == "reduce":
        return _ordered_reduction(kernel, names)
    stage = stage_named(kernel, owner)
    have = tuple(map(name_of, own_ranges(stage)))
    if not set(names) <= set(have):
        raise ArgumentError(f"order of stage {owner!r}: {names} are not all among {have}")
    return replaced(kernel, {stage: _with_option(stage, "loops", names)})


def _ordered_reduction(kernel: UOp, names: tuple[str, ...]) -> UOp:
    for node in sums_of(nodes_of(kernel)):
        if {name_of(r) for r in own_ranges(node)} == set(names):
            made = node.with_src((node.src[0], *(loops_of(kernel)[n] for n in names)))
            return replaced(kernel, {node: made})
    raise ArgumentError(f"order of a reduction: none has the loops {names}")


def _with_option(stage: UOp, key: str, value: Any) -> UOp:
    name, memory, options = stage.arg
    rest = tuple(pair for pair in options if pair[0] != key)
    return stage.replace(arg=(name, memory, (*rest, (key, value))))


def drop_single(kernel: UOp) -> UOp:
    """Removes loops of one turn, and reductions without a loop.

    ORDERED loops and the layouts of stages stay.

        for i:1: for j:8: body(i, j)        becomes        for j:8: body(0, j)

    Requires: nothing.

    >>> draw(scaled(1, 8))
    store: i:1, j:8
    >>> draw(drop_single(scaled(1, 8)))
    store: j:8
    """
    zero = number(0)
    gone = {
        loop: Replacement(zero, ())
        for loop in loops_of(kernel).values()
        if role_of(loop) != "ORDERED"
        if size_of(loop) == 1 and len(loop.src) == 1
        if not any(owner.op is Ops.STAGE for owner in owners_of(kernel, loop))
    }
    if not gone:
        return kernel
    return rebuild(
        kernel, gone, lambda n: n.src[0] if n.op is Ops.REDUCE and len(n.src) == 1 else None
    )


# ---- stages ----------------------------------------------------------------------------------


def stage(
    kernel: UOp,
    path: Sequence[int],
    over: Sequence[str],
    name: str,
    memory: str = "LOCAL",
    options: tuple[tuple[str, Any], ...] = (),
    twins: Sequence[str] = (),
) -> UOp:
    """The value at `path` is computed for all turns of the loops `over` (its layout, slowest
    first), kept in `memory`, and read from there wherever it occurred. So are values in the loops
    `twins` that are equal to it but for the name of its last loop (`over[-1]`).

    Requires: the value is data, not an index, and depends on every loop in `over`, and on no other
    if `memory` is GLOBAL. Twins have the size of the last loop.

        for m: for k: for n: ... b(k, n)
    becomes, with over = (k, n)
        for name.k: for name.n: name[name.k, name.n] = b(name.k, name.n)
        for m: for k: for n: ... name[k, n]
    and, with over = (j,) and twins = (j1,)
        for j1: s1 += e(j1)          for name.j: name[name.j] = e(name.j)
        for j: out[j] = e(j) * s1    for j1: s1 += name[j1]
                                     for j: out[j] = name[j] * s1

    >>> draw(product(4, 8, 16))
    reduce add: k:16
    store: m:4, n:8
    >>> draw(stage(product(4, 8, 16), (0, 1, 0, 1), ("k", "n"), "pb"))
    pb LOCAL: pb.k:16, pb.n:8
    reduce add: k:16
    store: m:4, n:8
    >>> draw(shares(4, 8))
    reduce add: j1:8
    store: i:4, j:8
    >>> draw(stage(shares(4, 8), (0, 1, 0), ("j",), "e", twins=("j1",)))
    e LOCAL: e.j:8
    reduce add: j1:8
    store: i:4, j:8
    """
    value = at_path(kernel, path)
    read = _staged(kernel, value, over, name, memory, options)
    changes = {value: read}
    for twin in twins:
        last, other = loop_named(kernel, over[-1]), loop_named(kernel, twin)
        if size_of(other) != size_of(last):
            sizes = f"{size_of(last)}, {size_of(other)}"
            raise ArgumentError(f"stage {name!r}: {over[-1]!r}, {twin!r} differ in size: {sizes}")
        changes[replaced(value, {last: other})] = replaced(read, {last: other})
    return replaced(kernel, changes)


def _staged(
    kernel: UOp,
    value: UOp,
    over: Sequence[str],
    name: str,
    memory: str,
    options: tuple[tuple[str, Any], ...],
) -> UOp:
    """The read of a new stage that replaces `value`."""
    if value.op in (Ops.RANGE, Ops.PARAM, Ops.STAGE, Ops.STORE, Ops.SINK):
        raise ArgumentError(f"stage {name!r}: {value.op!r} is no value that can be kept")
    if value.dtype is dtypes.index or value.dtype is dtypes.void:
        raise ArgumentError(f"stage {name!r}: a value of {value.dtype!r} is not kept; legal: data")
    if memory not in MEMORIES:
        raise ArgumentError(f"stage {name!r}: no memory {memory!r}; there are {MEMORIES}")
    free = {name_of(r): r for r in value.ranges}
    if len(set(over)) != len(over):
        raise ArgumentError(f"stage {name!r}: a loop occurs twice in {tuple(over)}")
    missing = [n for n in over if n not in free]
    if missing:
        raise ArgumentError(
            f"stage {name!r}: the value doesn't depend on {missing}; it does on {sorted(free)}"
        )
    outside = sorted(set(free) - set(over))
    if memory == "GLOBAL" and outside:
        raise ArgumentError(f"stage {name!r}: GLOBAL, so all loops are its own; missing {outside}")
    loops = [free[n] for n in over]
    copies: dict[UOp, UOp] = {}
    for loop in sorted(loops, key=lambda r: len(r.ranges)):  # limits refer to outer ones
        src = tuple(replaced(s, copies) for s in loop.src)
        copies[loop] = UOp(Ops.RANGE, loop.dtype, src, (f"{name}.{name_of(loop)}", "LOOP"))
    check_unused(kernel, name, *(name_of(c) for c in copies.values()))
    inside = replaced(value, copies)
    made = UOp(
        Ops.STAGE, value.dtype, (inside, *(copies[r] for r in loops)), (name, memory, options)
    )
    return element(made, *loops)


def pad(kernel: UOp, name: str, loop: str, extra: int) -> UOp:
    """Rows of a stage are placed `extra` elements further apart, so that they start on cache lines
    and don't all map to the same sets. A negative `extra` moves them together: elements that a
    split cut off leave no gap between rows.

    Requires: `loop` is one of the stage's, not its last; rows don't overlap.

        name[k, n] at n + 8*k        becomes, with extra = 4        name[k, n] at n + 12*k

    >>> staged = stage(product(4, 8, 16), (0, 1, 0, 1), ("k", "n"), "pb")
    >>> draw(staged)
    pb LOCAL: pb.k:16, pb.n:8
    reduce add: k:16
    store: m:4, n:8
    >>> draw(pad(staged, "pb", "pb.k", 4))
    pb LOCAL pad=(('pb.k', 4),): pb.k:16, pb.n:8
    reduce add: k:16
    store: m:4, n:8
    """
    found = stage_named(kernel, name)
    own = own_ranges(found)
    names = tuple(map(name_of, own))
    if loop not in names[:-1]:
        raise ArgumentError(f"pad {name!r} by {extra} at {loop!r}: legal are {names[:-1]}")
    room = _cut_off(found, names.index(loop) + 1) if extra < 0 else 0
    if extra < -room:
        raise ArgumentError(f"pad {name!r} by {extra} at {loop!r}: legal from {-room}")
    padding = (*option(found, "pad", ()), (loop, extra))
    return replaced(kernel, {found: _with_option(found, "pad", padding)})


def _cut_off(stage: UOp, first: int) -> int:
    """The elements at the end of a row, from range `first` on, that a limit of its last range cuts
    off in every row."""
    row, steps = own_ranges(stage)[first:], strides(stage)[first:]
    outer = {r: s for r, s in zip(row[:-1], steps[:-1], strict=True) if size_of(r) > 1}
    whole = steps[0] * size_of(row[0])
    ends = [add(limit, build(outer, 0)) for limit in row[-1].src[1:]]
    return max((whole - int(end.arg) for end in ends if end.op is Ops.CONST), default=0)


def accumulate(kernel: UOp, path: Sequence[int], over: Sequence[str], name: str) -> UOp:
    """A REDUCE's accumulators become a stage over the loops `over`; the REDUCE's loops run outside.

    Requires: the value at `path` is a REDUCE.

        for c: acc = 0; for r: acc += x(r, c); out[c] = acc
    becomes
        name[:] = 0; for r: for name.c: name[name.c] += x(r, name.c)
        for c: out[c] = name[c]

    >>> draw(sums(64, 8))
    reduce add: r:64
    store: i:8
    >>> draw(accumulate(sums(64, 8), (0, 1), ("i",), "row"))
    reduce add: r:64
    row LOCAL acc=True: row.i:8
    store: i:8
    """
    value = at_path(kernel, path)
    if value.op is not Ops.REDUCE:
        raise ArgumentError(f"accumulate {name!r}: a REDUCE is needed, not {value.op!r}")
    made = stage(kernel, path, over, name, "LOCAL", (("acc", True),))
    closed = {name_of(r) for n in sums_of(value.toposort()) for r in own_ranges(n)}
    renamed = {loop: f"{name}.{loop}" for loop in over}
    return _with_facts(made, **{k: _renamed(fact(made, k), closed, renamed) for k in ENDS})


def _renamed(trims: Any, loops: set[str], outer: dict[str, str]) -> Any:
    """Bounds of these loops, with outer loops renamed."""
    found = []
    for loop, (terms, constant, factor) in trims:
        if loop in loops:
            terms = tuple((outer.get(name, name), k) for name, k in terms)
        found.append((loop, (terms, constant, factor)))
    return tuple(found)


def regroup(kernel: UOp, path: Sequence[int], inner: Sequence[str]) -> UOp:
    """Splits a REDUCE in two: an inner one over the loops `inner`, whose results the outer one
    takes in.

    Requires: the value at `path` is a REDUCE that closes `inner` and another loop, whose limits
    don't depend on `inner`. Sums are added in another order; a recipe may choose that.

        acc = 0; for k: for j: acc += x(k, j)
    becomes
        acc = 0; for k: part = 0; for j: part += x(k, j); acc += part

    >>> cut = split(sums(64, 8), "r", 16, "j")
    >>> draw(cut)
    reduce add: r:4, j:16
    store: i:8
    >>> draw(regroup(cut, (0, 1), ("j",)))
    reduce add: j:16
    reduce add: r:4
    store: i:8
    """
    value = at_path(kernel, path)
    own = own_ranges(value) if value.op is Ops.REDUCE else ()
    inside = tuple(r for r in own if name_of(r) in inner)
    outside = tuple(r for r in own if r not in inside)
    if len(inside) != len(inner) or not inside or not outside:
        raise ArgumentError(f"regroup {tuple(inner)}: not some of the loops of a REDUCE: {own}")
    if any(not r.ranges.isdisjoint(inside) for r in outside):
        raise ArgumentError(f"regroup {tuple(inner)}: loops that stay outside depend on them")
    part = UOp(Ops.REDUCE, value.dtype, (value.src[0], *inside), value.arg)
    return replaced(kernel, {value: UOp(Ops.REDUCE, value.dtype, (part, *outside), value.arg)})


# ---- facts that only the emission reads --------------------------------------------------------


def prefetch(kernel: UOp, name: str, turns: int, *inside: str) -> UOp:
    """Loads that advance with this loop prefetch the line of `turns` later; all loads, or those
    whose innermost loop is one of `inside`. If that is another loop, a turn is long, and the line
    is only brought to the second cache.

    Requires: the loops exist.

        for k: x(k)        becomes        for k: ask for x(k + turns); x(k)

    >>> draw(product(4, 8, 16))
    reduce add: k:16
    store: m:4, n:8
    >>> draw(prefetch(product(4, 8, 16), "k", 4))
    reduce add: k:16
    store: m:4, n:8
    prefetch: (('k', 4),)
    """
    for each in (name, *inside):
        loop_named(kernel, each)
    return _with_facts(kernel, prefetch=(*fact(kernel, "prefetch"), (name, turns, *inside)))


def trim(kernel: UOp, outer: Sequence[str]) -> UOp:
    """Loops stop as soon as only the identity of their reduction would follow, and skip it at their
    start, if that holds for every turn of the loops that are not in `outer`. A stage is filled only
    as far as it is read.

        for q: for t:T: s += where(t <= q, x(t), 0)
    becomes, with outer = (q,)
        for q: for t:min(T, q + 1): s += where(t <= q, x(t), 0)

    Requires: the loops in `outer` exist.

    >>> draw(past_sums(8))
    reduce add: t:8
    store: q:8
    >>> draw(trim(past_sums(8), ("q",)))
    reduce add: t:8
    store: q:8
    trim: (('t', ((('q', 1),), 1, 1)),)
    """
    for name in outer:
        loop_named(kernel, name)
    return _with_facts(kernel, **permitted(kernel, frozenset(outer)))


def stream(kernel: UOp) -> UOp:
    """The outputs are written past the cache, since they are larger than it.

    Requires: nothing.

        for i: store out[i]        becomes        for i: store out[i], not into the cache

    >>> draw(scaled(4, 8))
    store: i:4, j:8
    >>> draw(stream(scaled(4, 8)))
    store nontemporal: i:4, j:8
    """
    return kernel.with_src(tuple(store.replace(arg="nontemporal") for store in kernel.src))


def _with_facts(kernel: UOp, **facts: tuple[Any, ...]) -> UOp:
    now = dict(kernel.arg or ())
    now.update(facts)
    kept = tuple((key, value) for key, value in sorted(now.items()) if value)
    return kernel.replace(arg=kept or None)


PRIMITIVES: dict[str, Callable[..., UOp]] = {
    "split": split,
    "merge": merge,
    "role": role,
    "order": order,
    "together": together,
    "drop_single": drop_single,
    "stage": stage,
    "window": window,
    "pad": pad,
    "accumulate": accumulate,
    "regroup": regroup,
    "prefetch": prefetch,
    "trim": trim,
    "stream": stream,
    "extend": extend,
    "complete": complete,
    "tensorise": tensorise,
    "distribute": distribute,
    "own_loop": own_loop,
    "follow": follow,
    "across": across,
}
"""Every primitive by the name that recipes use."""
