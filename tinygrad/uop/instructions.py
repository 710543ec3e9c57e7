"""The instruction set that a backend implements: the ops of a linear program, each with its sources
and its value.

CORE is what every renderer must write. Other ops occur only if the Target has them: because it
names the op in `native`, or has vectors, groups of lanes, or a matrix unit. Codegen never emits an
op that the Target lacks: `codegen/numbers/decompose` makes functions of arithmetic, and
`codegen/derived` does so for the rest.

    python -c "from tinygrad.uop.instructions import listing; print(listing())"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.base.helpers import round_up
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

ALIGNMENT = 64
"""Bytes to which every array in scratch memory is aligned, and every buffer that is written."""


@dataclass(frozen=True)
class Instruction:
    """One op. `brought` by: "" every backend · "native" a name in Target.native · "vector"
    Target.vector · "groups" Target.has_groups · "warp" Target.warp · "async_copy", "box_copy"
    and "matrix_load" names of these in Target.native · "unit" a row of `loops/matrix_units` ·
    "staged_unit" a row whose operands are staged."""

    op: Ops
    sources: str
    meaning: str
    brought: str = ""


TABLE: tuple[Instruction, ...] = (
    # what a function is given
    Instruction(Ops.PARAM, "", "argument arg[0]: a pointer to elements of its dtype"),
    Instruction(Ops.DEFINE_VAR, "", "a whole number of the call, int64; in order of name"),
    Instruction(Ops.LOCAL, "", "arg[1] elements of scratch memory, 64-byte aligned"),
    Instruction(Ops.SPECIAL, "", "the number of this task (of this group or lane)"),
    Instruction(Ops.CONST, "", "the number arg"),
    # memory
    Instruction(Ops.INDEX, "pointer, index", "the pointer, moved by so many elements"),
    Instruction(Ops.LOAD, "pointer, mask?", "what lies there; 0, and no access, if mask is false"),
    Instruction(Ops.STORE, "pointer, value, mask?", "puts it there"),
    # the way through
    Instruction(Ops.RANGE, "begin, end", "opens a loop; the counter. At least one turn"),
    Instruction(Ops.CARRY, "initial, RANGE", "in the loop the value so far; after it the last"),
    Instruction(Ops.END, "RANGE, (CARRY, next)..", "next turn: CARRYs take theirs all at once"),
    Instruction(Ops.IF, "bool", "opens a branch"),
    Instruction(Ops.ENDIF, "IF", "closes it"),
    # numbers, lane by lane
    Instruction(Ops.CAST, "a", "a in another dtype; a float to an integer only in range"),
    Instruction(Ops.BITCAST, "a", "the same bits"),
    Instruction(Ops.ADD, "a, b", "the sum; integers wrap"),
    Instruction(Ops.MUL, "a, b", "the product; integers wrap"),
    Instruction(Ops.FDIV, "a, b", "the float quotient"),
    Instruction(Ops.IDIV, "a, b", "the whole quotient toward zero; b is not 0, nothing overflows"),
    Instruction(Ops.SQRT, "a", "the square root"),
    Instruction(Ops.CMPLT, "a, b", "bool: less than; false with NaN"),
    Instruction(Ops.CMPNE, "a, b", "bool: not equal; true with NaN"),
    Instruction(Ops.AND, "a, b", "bits of both"),
    Instruction(Ops.XOR, "a, b", "bits that differ"),
    Instruction(Ops.WHERE, "bool, a, b", "a where it is true, else b"),
    # ops that most machines have, and that are made of the core for those that don't
    Instruction(Ops.MAX, "a, b", "the larger; NaN wins, 0.0 is above -0.0", "native"),
    Instruction(Ops.MOD, "a, b", "what IDIV leaves", "native"),
    Instruction(Ops.CMPEQ, "a, b", "bool: equal; false with NaN", "native"),
    Instruction(Ops.OR, "a, b", "bits of either", "native"),
    Instruction(Ops.SHL, "a, b", "bits moved up, by less than the width", "native"),
    Instruction(Ops.SHR, "a, b", "bits moved down, of a signed a with its sign", "native"),
    Instruction(Ops.FAULT, "fault words, bool, operand..", "once: arg and the operands", "native"),
    Instruction(Ops.MULACC, "a, b, c", "a*b + c, rounded once", "native"),
    Instruction(Ops.RECIP, "a", "one over a", "native"),
    Instruction(Ops.TRUNC, "a", "a without its fraction", "native"),
    Instruction(Ops.ROUND, "a", "the whole number next to a, halves to even", "native"),
    Instruction(Ops.EXP2, "a", "2 to the power", "native"),
    Instruction(Ops.LOG2, "a", "the logarithm to base 2", "native"),
    Instruction(Ops.SIN, "a", "the sine", "native"),
    Instruction(Ops.COS, "a", "the cosine", "native"),
    Instruction(Ops.POW, "a, b", "a to the power b", "native"),
    Instruction(Ops.LDEXP, "a, n", "a·2**n, n a whole float from -2**31 up or NaN", "native"),
    Instruction(Ops.THREEFRY, "counter, key", "random bits, uint64", "native"),
    Instruction(Ops.PREFETCH, "pointer", "asks for its cache line; changes nothing", "native"),
    Instruction(Ops.PICK, "index, a, b, ..", "of these numbers or pointers the index-th", "native"),
    # machines with more than scalars
    Instruction(Ops.VECTORIZE, "a, ..", "a vector of its sources, or one repeated", "vector"),
    Instruction(Ops.GEP, "vector", "lane arg", "vector"),
    Instruction(Ops.SHUFFLE, "vector, vector", "lanes arg of the two side by side", "vector"),
    Instruction(Ops.BARRIER, "", "all lanes of a group arrive before any goes on", "groups"),
    Instruction(Ops.EXCHANGE, "a", "a of the warp's lane whose number differs in arg", "warp"),
    Instruction(Ops.FETCH, "pointer, pointer, mask?", "begins to copy arg bytes", "async_copy"),
    Instruction(Ops.COMMIT, "", "what arg began since the last one is a group", "async_copy"),
    Instruction(Ops.WAIT, "a?", "at most arg[1] groups of arg[0] are on their way", "async_copy"),
    Instruction(
        Ops.TENSOR, "pointer", "a buffer as a tensor, of which FETCH takes boxes", "box_copy"
    ),
    Instruction(Ops.SIGNAL, "pointer", "begins a signal; arg arrivals end its turn", "box_copy"),
    Instruction(Ops.GATHER, "pointer", "words of matrices in LOCAL, to a warp", "matrix_load"),
    Instruction(Ops.WMMA, "a, b, c", "c + a·b: matrices, row-major, of the unit arg", "unit"),
    Instruction(Ops.MATRIX, "pointer", "an operand that a unit reads from LOCAL", "staged_unit"),
    Instruction(Ops.FENCE, "", "what a lane wrote to LOCAL is there for units", "staged_unit"),
)

INSTRUCTIONS: dict[Ops, Instruction] = {row.op: row for row in TABLE}
CORE: frozenset[Ops] = frozenset(row.op for row in TABLE if not row.brought)
"""What every backend writes."""

NATIVE: frozenset[Ops] = frozenset(row.op for row in TABLE if row.brought == "native")
"""What codegen emits only where `Target.native` names it."""

FACTS: dict[str, str] = {
    "CAST_HALF": "CAST between float16 and float32 is as IEEE says",
    "CAST_BFLOAT16": "CAST between bfloat16 and float32 is as IEEE says",
    "CAST_BFLOAT": "CAST of float32 to bfloat16 is, but may take subnormal numbers as 0",
    "VRANGE": "MAX of whole vectors is one instruction",
    "VMIN": "the least of two vectors is an instruction, the second of them where one is NaN",
    "masked_store": "a masked STORE costs no more than a plain one",
}
"""What else `Target.native` may name: how a machine does ops that every one has."""

TITLES = {
    "": "every backend",
    "native": "where `Target.native` names it",
    "vector": "where `Target.vector` is not 0",
    "groups": "where `Target.has_groups`",
    "warp": "where `Target.warp` is not 0",
    "async_copy": "where `Target.native` has async_copy",
    "box_copy": "where `Target.native` has box_copy; FETCH, COMMIT, WAIT take signals there",
    "matrix_load": "where `Target.native` has matrix_load",
    "unit": "where a matrix unit is registered",
    "staged_unit": "where one is that reads LOCAL memory itself",
}


def local_alignment(node: UOp) -> int:
    """Bytes that the address of a LOCAL is a multiple of: what it asks for, if it asks."""
    return int(node.arg[2]) if len(node.arg) > 2 else ALIGNMENT


def local_layout(program: Sequence[UOp]) -> tuple[dict[UOp, int], int]:
    """Where each LOCAL begins in the scratch memory, and the bytes of all."""
    offsets: dict[UOp, int] = {}
    total = 0
    for node in program:
        if node.op is Ops.LOCAL:
            offsets[node] = total = round_up(total, local_alignment(node))
            total += round_up(node.arg[1] * node.dtype.itemsize, ALIGNMENT)
    return offsets, total


def listing() -> str:
    """The table as text, the core first; docs/new_backend.md shows it."""
    lines = []
    for brought, title in TITLES.items():
        rows = [row for row in TABLE if row.brought == brought]
        lines.append(f"{title}: {len(rows)}")
        lines += [f"    {row.op.name:<11}{row.sources:<30}{row.meaning}".rstrip() for row in rows]
    lines.append(f"facts that `Target.native` may name besides: {len(FACTS)}")
    lines += [f"    {name:<14}{meaning}" for name, meaning in FACTS.items()]
    return "\n".join(lines)
