"""What a kernel's nodes read, and in which steps its loops go through memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tinygrad.base.dtype import dtypes
from tinygrad.loops.layout import flat_offset
from tinygrad.loops.roles import is_plain_loop, size_of
from tinygrad.simplify.affine import affine
from tinygrad.simplify.forms import step_in
from tinygrad.uop import Ops, UOp

LONGEST_STEP = 4
"""The largest step of a read, in elements, that is done by whole vectors and shuffles."""


def reads_of(nodes: Iterable[UOp]) -> list[UOp]:
    """The INDEXes among these nodes."""
    return [node for node in nodes if node.op is Ops.INDEX]


def sums_of(nodes: Iterable[UOp]) -> list[UOp]:
    """The REDUCEs among these nodes."""
    return [node for node in nodes if node.op is Ops.REDUCE]


def is_index(node: UOp) -> bool:
    """Whether the value is an address or a loop counter."""
    return node.dtype is dtypes.index


def step(access: UOp, loop: UOp) -> int | None:
    """How many elements an INDEX advances with each turn of `loop`; None if the step is not
    constant."""
    return step_in(affine(flat_offset(access))[0], loop)


def steady(access: UOp, loop: UOp) -> bool:
    """Whether a vector along `loop` reads this INDEX as whole vectors."""
    found = step(access, loop)
    return found is not None and abs(found) <= LONGEST_STEP


def divisions(nodes: Iterable[UOp]) -> Iterator[tuple[UOp, int]]:
    """The dividends and divisors of the quotients and remainders in index expressions among these
    nodes."""
    for node in nodes:
        if node.op in (Ops.IDIV, Ops.MOD) and is_index(node) and node.src[1].op is Ops.CONST:
            yield node.src[0], int(node.src[1].arg)


def linear(use: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether an index expression steps through both loops as through one, or depends on
    neither."""
    if not is_index(use):
        return not {outer, inner} & use.ranges
    terms, _ = affine(use)
    if any(t not in (outer, inner) and t.ranges & {outer, inner} for t in terms):
        return False
    return terms.get(outer, 0) == terms.get(inner, 0) * size_of(inner)


def goes_as_one(value: UOp, outer: UOp, inner: UOp) -> bool:
    """Whether everything that a value is computed from steps through two plain loops as through
    one."""
    if not (is_plain_loop(outer) and is_plain_loop(inner)):
        return False
    for node in value.toposort():
        if node.op is Ops.INDEX:
            uses: tuple[UOp, ...] = (flat_offset(node),)
        else:
            uses = () if is_index(node) else tuple(filter(is_index, node.src))
        if not all(linear(use, outer, inner) for use in uses):
            return False
    return True


def below_bits(value: UOp) -> UOp:
    """A value without its bitcasts between dtypes of one size."""
    while value.op is Ops.BITCAST and value.dtype.itemsize == value.src[0].dtype.itemsize:
        value = value.src[0]
    return value


def copy_of(value: UOp) -> UOp | None:
    """The read of a buffer that a value is, but for such bitcasts; None if it is computed."""
    value = below_bits(value)
    return value if value.op is Ops.INDEX and value.src[0].op is Ops.PARAM else None
