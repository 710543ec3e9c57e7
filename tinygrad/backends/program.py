"""Facts of a linear program that every renderer, and whoever launches it, must agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop import Ops, UOp
from tinygrad.uop.bounds import Interval, interval_of
from tinygrad.uop.instructions import local_layout as local_layout  # the layout of LOCALs, too


def params(program: Sequence[UOp]) -> list[UOp]:
    """The buffers in order of slot: the first arguments. A program lists all that it gets."""
    return sorted((node for node in program if node.op is Ops.PARAM), key=lambda node: node.arg[0])


def variables(program: Sequence[UOp]) -> list[UOp]:
    """The bound variables, in order of name: the arguments after the buffers."""
    found = (node for node in program if node.op is Ops.DEFINE_VAR)
    return sorted(found, key=lambda node: node.arg[0])


def tensors(program: Sequence[UOp]) -> list[UOp]:
    """The buffers that are used as tensors: the arguments after the variables."""
    return [node for node in program if node.op is Ops.TENSOR]


def carries(program: Sequence[UOp]) -> dict[UOp, list[tuple[UOp, UOp]]]:
    """For each RANGE, its CARRYs and the values that they take at each turn."""
    found: dict[UOp, list[tuple[UOp, UOp]]] = {}
    for node in program:
        if node.op is Ops.END:
            following = node.src[2::2]
            found[node.src[0]] = list(zip(node.src[1::2], following, strict=True))
    return found


def zeros_may_meet(node: UOp) -> bool:
    """Whether both sources of a MAX may be zeros, so that their signs matter: the larger of 0.0 and
    -0.0 is 0.0, but the hardware's comparison treats them as equal."""
    lanes = (s.src if s.op is Ops.VECTORIZE else (s,) for s in node.src)
    return dtypes.is_float(node.dtype.scalar()) and all(
        any(lane.op is not Ops.CONST or lane.arg == 0 for lane in source) for source in lanes
    )


def halved(choices: Sequence[str], choose: Callable[[int, str, str], str]) -> str:
    """One of several choices by a binary search on its number. `choose` gets the middle number, and
    the texts for numbers below it and from it on.

    >>> halved("abc", lambda middle, low, high: f"(i<{middle}?{low}:{high})")
    '(i<1?a:(i<2?b:c))'
    """

    def among(first: int, last: int) -> str:
        if last - first == 1:
            return choices[first]
        middle = (first + last) // 2
        return choose(middle, among(first, middle), among(middle, last))

    return among(0, len(choices))


def special_sizes(program: Sequence[UOp]) -> dict[str, int]:
    """The number of tasks, groups and lanes, by the name of their SPECIAL."""
    return {node.arg[0]: node.arg[1] for node in program if node.op is Ops.SPECIAL}


def inlined(program: Sequence[UOp]) -> set[UOp]:
    """The values that are written where they are used: they are used once, in the block that
    computes them."""
    carried = carries(program)
    uses: dict[UOp, list[int]] = {}
    home: dict[UOp, int] = {}
    blocks = [0]
    for number, node in enumerate(program, 1):
        sources = list(node.src)
        if node.op is Ops.RANGE:
            sources += [carry.src[0] for carry, _ in carried[node]]
        elif node.op is Ops.CARRY:
            sources = []
        elif node.op is Ops.END:
            sources = sources[2::2]
        home[node] = blocks[-1]
        for source in sources:
            uses.setdefault(source, []).append(blocks[-1])
        if node.op in (Ops.RANGE, Ops.IF):
            blocks.append(number)
        elif node.op in (Ops.END, Ops.ENDIF):
            blocks.pop()
    return {node for node, used in uses.items() if used == [home.get(node)]}


def index_type(program: Sequence[UOp]) -> DType:
    """int32 if every index of the program provably fits, else int64."""
    least, most = dtypes.min(dtypes.int32), dtypes.max(dtypes.int32)
    found = _intervals(program).items()
    fit = all(least <= low <= high < most for n, (low, high) in found if n.dtype is dtypes.index)
    return dtypes.int32 if fit else dtypes.int64


def most_turns(program: Sequence[UOp]) -> int:
    """The most turns that a lane may take, in all its loops together. It runs one of a bundle's
    parts; if the others are only masked, each of their loops takes one turn."""
    known = _intervals(program)
    total, around = 0, [1]
    before = masked = largest = 0
    for node in program:
        if node.op is Ops.RANGE:
            low, high = known[node]
            around.append(around[-1] * (high - low + 1))
            total += around[-1]
            masked += 1
        elif node.op is Ops.END:
            around.pop()
        elif node.op is Ops.IF and _is_part(node):
            before = total
        elif node.op is Ops.ENDIF and _is_part(node.src[0]):
            largest, total = max(largest, total - before), before
    return total + largest + masked * (largest > 0)


def _is_part(branch: UOp) -> bool:
    """Whether a task that takes this branch takes no other part's branch (`codegen/bundles`)."""
    return isinstance(branch.arg, tuple)


def _intervals(program: Sequence[UOp]) -> dict[UOp, Interval]:
    """The interval of each index, and of the integers that it is computed from."""
    known: dict[UOp, Interval] = {}

    def interval(node: UOp) -> Interval:
        if node.op is Ops.CONST:
            return node.arg, node.arg
        whole = dtypes.min(node.dtype), dtypes.max(node.dtype)
        return known.get(node, whole)

    following = {carry: value for pairs in carries(program).values() for carry, value in pairs}
    for node in program:
        is_whole = dtypes.is_int(node.dtype) and node.dtype.count == 1
        if node.dtype is dtypes.index or (is_whole and node.op not in (Ops.IDIV, Ops.MOD)):
            sources = [interval(source) for source in node.src]
            if node.op is Ops.RANGE:
                begin, end = sources
                known[node] = begin[0], max(end[1] - 1, begin[0])
            elif node.op is Ops.CARRY and _is_step(following[node], node):
                (low, high), (first, last) = sources
                moved = int(following[node].src[1].arg) * (last - first)
                known[node] = low + min(moved, 0), high + max(moved, 0)
            else:
                known[node] = interval_of(node, sources)
    return known


def _is_step(value: UOp, carry: UOp) -> bool:
    """Whether a carried value changes by the same amount each turn: a multiple of the counter."""
    return value.op is Ops.ADD and value.src[0] is carry and value.src[1].op is Ops.CONST


def touched(program: Sequence[UOp]) -> dict[UOp, set[tuple[int, int]]]:
    """For each buffer, the stretches of elements that the program may touch."""
    known = _intervals(program)
    places: dict[UOp, tuple[UOp, int, int]] = {}  # of pointers: the buffer, least and most offset
    found: dict[UOp, set[tuple[int, int]]] = {}
    for node in program:
        if node.op is Ops.PARAM:
            places[node], found[node] = (node, 0, 0), set()
        elif node.op is Ops.INDEX and node.src[0] in places:
            buffer, *before = places[node.src[0]]
            offset = node.src[1]
            own = (offset.arg, offset.arg) if offset.op is Ops.CONST else known.get(offset)
            low, high = (0, buffer.arg[1]) if own is None else own
            places[node] = buffer, before[0] + low, before[1] + high
        for pointer in node.src:
            if pointer in places and node.op is not Ops.INDEX:
                buffer, low, high = places[pointer]
                found[buffer].add((max(0, low), min(buffer.arg[1], high + 1)))
    return found
