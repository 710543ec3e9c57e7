"""The op table: what every operation means, before any mechanism.

There is one row for each op: the number of sources, the dtype and shape of the result, its
algebraic properties, its meaning in one line of Python, and a sentence. The interpreter executes
`meaning`; the fuzzer and the prover test rules against it; `infer` and `verify` read the rest.
Integers wrap, and floats are rounded to the result's dtype, after `meaning` (see `evaluate`). An op
that occurs at several stages of a graph has one row; if it means something else in a linear
program, `instructions` says what.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any

from tinygrad.base.bits import decode, encode
from tinygrad.base.dtype import ConstType, DType, dtypes


class Ops(IntEnum):
    """All operations, of every level, in the order of the table below."""

    # leaves and bookkeeping of the tensor graph
    SINK = auto()
    BUNDLE = auto()
    UNIQUE = auto()
    DEVICE = auto()
    BUFFER = auto()
    PARAM = auto()
    CONST = auto()
    ARANGE = auto()
    DEFINE_VAR = auto()
    BIND = auto()
    # what has an effect on storage, or marks it
    COPY = auto()
    CONTIGUOUS = auto()
    DETACH = auto()
    ASSIGN = auto()
    KERNEL = auto()
    # movement: which element, never a new value
    RESHAPE = auto()
    EXPAND = auto()
    PERMUTE = auto()
    PAD = auto()
    SHRINK = auto()
    FLIP = auto()
    WINDOW = auto()
    FOLD = auto()
    BITCAST = auto()
    # graph operations that gather, scatter, loop, call and check
    REDUCE_AXIS = auto()
    RUNNING = auto()
    INDEX = auto()
    SCATTER = auto()
    SCAN = auto()
    CALL = auto()
    ITEM = auto()
    CHECK = auto()
    # one element in, one element out
    CAST = auto()
    EXP2 = auto()
    LOG2 = auto()
    SIN = auto()
    COS = auto()
    SQRT = auto()
    RECIP = auto()
    TRUNC = auto()
    ROUND = auto()
    ADD = auto()
    MUL = auto()
    FDIV = auto()
    IDIV = auto()
    MOD = auto()
    MAX = auto()
    POW = auto()
    LDEXP = auto()
    CMPLT = auto()
    CMPNE = auto()
    CMPEQ = auto()
    AND = auto()
    OR = auto()
    XOR = auto()
    SHL = auto()
    SHR = auto()
    THREEFRY = auto()
    WHERE = auto()
    MULACC = auto()
    # kernels: loops, staged values, stores
    RANGE = auto()
    REDUCE = auto()
    RESCALE = auto()
    STAGE = auto()
    STORE = auto()
    # the linear program: see uop/instructions
    SPECIAL = auto()
    LOCAL = auto()
    LOAD = auto()
    PREFETCH = auto()
    CARRY = auto()
    END = auto()
    IF = auto()
    ENDIF = auto()
    BARRIER = auto()
    EXCHANGE = auto()
    GATHER = auto()
    FETCH = auto()
    COMMIT = auto()
    WAIT = auto()
    TENSOR = auto()
    SIGNAL = auto()
    FENCE = auto()
    MATRIX = auto()
    FAULT = auto()
    VECTORIZE = auto()
    GEP = auto()
    SHUFFLE = auto()
    WMMA = auto()
    PICK = auto()

    def __repr__(self) -> str:
        return f"Ops.{self.name}"

    __str__ = __repr__


@dataclass(frozen=True)
class Row:
    """One op. `arity` None: any number of sources.

    dtype: "first" that of source 0 · "bits" the same, which is no float · "last" that of the last
           source · "bool" · "void" · "given" by the builder.
    shape: "same" all sources have one shape, and so has the result · "none" has no shape ·
           "scalar" () · or the name of a rule in `infer.SHAPE_RULES`.
    algebra: any of commutative, associative, idempotent; `identity` is its neutral element.
    """

    op: Ops
    arity: int | None
    dtype: str
    shape: str
    sentence: str
    meaning: Callable[..., ConstType] | None = None
    algebra: frozenset[str] = frozenset()
    identity: ConstType | None = None


# ---- the meanings that need more than an operator ------------------------------------------------


def _total(function: Callable[[float], float], at_zero: float = math.nan) -> Callable[..., float]:
    """`function` made total: outside its domain it is NaN, and where it overflows it is an
    infinity."""

    def total(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf
        except ValueError:
            return at_zero if x == 0 else math.nan

    return total


def divide(a: float, b: float) -> float:
    """IEEE division: x/0 is an infinity, 0/0 is NaN."""
    if b == 0:
        sign = math.copysign(1.0, a) * math.copysign(1.0, b)
        return math.nan if a == 0 or a != a else sign * math.inf
    return a / b


def floor_divide(a: int, b: int) -> int:
    """Python's //; by zero it gives 0 (a CHECK reports it)."""
    return a // b if b else 0


def modulo(a: int, b: int) -> int:
    """Python's %, so that a == (a // b) * b + a % b always."""
    return a % b if b else a


def maximum(a: Any, b: Any) -> Any:
    """The larger; NaN if either is NaN; 0.0 is above -0.0."""
    if a != a or b != b:
        return math.nan
    if a == b == 0 and isinstance(a, float):
        return b if math.copysign(1.0, a) < 0 else a
    return max(a, b)


def power(a: float, b: float) -> float:
    """C's pow, total."""
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:  # 0 to a negative power, or a negative to a fraction
        if a == 0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def multiply(a: Any, b: Any) -> Any:
    """The product."""
    return a * b


def truncate(a: float) -> float:
    """Toward zero; keeps infinities, NaN and the sign of zero."""
    return a if math.isinf(a) or a != a else math.copysign(float(math.trunc(a)), a)


def round_to_even(a: float) -> float:
    """The nearest whole number, halves to the even one; keeps what `truncate` keeps."""
    return a if math.isinf(a) or a != a else math.copysign(float(round(a)), a)


def shift_left(a: int, n: int) -> int:
    """0 for a shift by the width (64 at most) or more, or by a negative count."""
    return a << n if 0 <= n < 64 else 0


def shift_right(a: int, n: int) -> int:
    """Arithmetic for signed types; by 64 or more, or by a negative count: 0."""
    return a >> n if 0 <= n < 64 else 0


THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_PARITY = 0x1BD11BDA


def threefry(counter: int, key: int) -> int:
    """Threefry-2x32, 20 rounds (Salmon et al., 2011): 64 bits from a counter and a key."""
    mask = 0xFFFFFFFF
    x, y = counter & mask, counter >> 32 & mask
    k0, k1 = key & mask, key >> 32 & mask
    keys = (k1, THREEFRY_PARITY ^ k0 ^ k1, k0)
    x, y = (x + k0) & mask, (y + k1) & mask
    for block in range(5):
        for turn in THREEFRY_ROTATIONS[block % 2]:
            x = (x + y) & mask
            y = (y << turn | y >> (32 - turn)) & mask ^ x
        x, y = (x + keys[block % 3]) & mask, (y + keys[(block + 1) % 3] + block + 1) & mask
    return x | y << 32


_exp2 = _total(lambda x: 2.0**x)
_log2 = _total(math.log2, at_zero=-math.inf)
_sqrt = _total(math.sqrt)
_sin = _total(math.sin)
_cos = _total(math.cos)

_RING = frozenset(("commutative", "associative"))
_LATTICE = _RING | {"idempotent"}
_COMMUTES = frozenset(("commutative",))

TABLE: tuple[Row, ...] = (
    Row(Ops.SINK, None, "void", "none", "Gathers roots, so that a pass sees one graph."),
    Row(Ops.BUNDLE, None, "void", "none", "Kernels launched as one: see schedule/bundles."),
    Row(Ops.UNIQUE, 0, "void", "none", "A number that makes a buffer differ from all others."),
    Row(Ops.DEVICE, 0, "void", "none", "A device, by name; or several, and how a value is cut."),
    Row(Ops.BUFFER, 2, "given", "buffer", "`arg` elements of storage: (UNIQUE, DEVICE)."),
    Row(
        Ops.PARAM,
        None,
        "given",
        "param",
        "Storage number arg[0], arg[1] elements; may name DEVICE.",
    ),
    Row(
        Ops.CONST,
        None,
        "given",
        "scalar",
        "The number `arg`; on a tensor's graph it names a DEVICE, and may be UNIQUE.",
    ),
    Row(Ops.ARANGE, None, "given", "buffer", "The numbers 0 to `arg` - 1; may name a DEVICE."),
    Row(
        Ops.DEFINE_VAR, 0, "given", "scalar", "A whole number named arg[0], from arg[1] to arg[2]."
    ),
    Row(Ops.BIND, 2, "first", "scalar", "A variable and the value that it has this time."),
    Row(
        Ops.COPY,
        2,
        "first",
        "like_first",
        "The first source's value, where the DEVICE second says.",
    ),
    Row(Ops.CONTIGUOUS, 1, "first", "like_first", "The same value, stored in a buffer of its own."),
    Row(
        Ops.DETACH, None, "first", "like_first", "The value 0; gradients go to 1, or 2 times to 1."
    ),
    Row(
        Ops.ASSIGN,
        2,
        "first",
        "assign",
        "The next version of a whole buffer (flat), in which the view 0 of it holds the value 1.",
    ),
    Row(
        Ops.KERNEL,
        None,
        "void",
        "none",
        "A scheduled kernel (arg) and the buffers that it touches.",
    ),
    Row(Ops.RESHAPE, 1, "first", "arg", "The same elements in row-major order under shape `arg`."),
    Row(Ops.EXPAND, 1, "first", "arg", "Axes of size 1 repeated up to shape `arg`."),
    Row(Ops.PERMUTE, 1, "first", "permute", "Axes in the order `arg`."),
    Row(Ops.PAD, 1, "first", "pad", "Zeros around: arg = (before, after) an axis."),
    Row(Ops.SHRINK, 1, "first", "shrink", "A box: arg = (begin, end) an axis."),
    Row(Ops.FLIP, 1, "first", "like_first", "The axes in `arg` backwards."),
    Row(
        Ops.WINDOW,
        1,
        "first",
        "window",
        "Sliding windows: for each (axis, size, stride, dilation, before, after) in arg the axis "
        "counts positions i and a new last axis counts k; reads i*stride + k*dilation - before, "
        "zeros outside.",
    ),
    Row(
        Ops.FOLD,
        1,
        "first",
        "fold",
        "The adjoint of WINDOW: arg = (windows, shape); sums back what each element was read for.",
    ),
    Row(Ops.BITCAST, 1, "given", "like_first", "The same bits as another dtype of the same size."),
    Row(
        Ops.REDUCE_AXIS,
        1,
        "first",
        "reduce_axis",
        "Monoid arg[0] over axes arg[1], kept as size 1.",
    ),
    Row(
        Ops.RUNNING,
        None,
        "first",
        "like_first",
        "Monoid arg[0] over this and all before along axis arg[1]; in a kernel monoid `arg`, over "
        "the turns so far of the index that is source 1 (tagged `before`: without this turn).",
    ),
    Row(
        Ops.INDEX,
        None,
        "first",
        "index",
        "Gather: source 0 at the next `arg` sources, its first axes; 0 where a last bool is false.",
    ),
    Row(
        Ops.SCATTER,
        None,
        "first",
        "like_first",
        "Source 0 with updates (source 1) combined by monoid arg[0] (or 'set', last wins) at the "
        "following index sources, in row-major order of the updates.",
    ),
    Row(
        Ops.SCAN, None, "void", "none", "A counted loop: arg = (turns, states, inputs), body first."
    ),
    Row(Ops.CALL, None, "void", "none", "A registered host function arg[0] on the sources."),
    Row(Ops.ITEM, 1, "given", "item", "Result arg[0] of a SCAN or CALL; arg: shape, and bounds."),
    Row(
        Ops.CHECK, 2, "first", "same", "Source 0; if bool 1 is false, error `arg` at the next read."
    ),
    Row(
        Ops.CAST, 1, "given", "same", "Converted: ints wrap, floats round; float to int saturates."
    ),
    Row(Ops.EXP2, 1, "first", "same", "2 to the power; of y·log2(e) it is e to the y.", _exp2),
    Row(Ops.LOG2, 1, "first", "same", "The logarithm to base 2.", _log2),
    Row(Ops.SIN, 1, "first", "same", "The sine of radians.", _sin),
    Row(Ops.COS, 1, "first", "same", "The cosine of radians.", _cos),
    Row(Ops.SQRT, 1, "first", "same", "The square root, correctly rounded.", _sqrt),
    Row(Ops.RECIP, 1, "first", "same", "One over.", lambda a: divide(1.0, a)),
    Row(Ops.TRUNC, 1, "first", "same", "Rounded toward zero.", truncate),
    Row(Ops.ROUND, 1, "first", "same", "The nearest whole number, halves to even.", round_to_even),
    Row(Ops.ADD, 2, "first", "same", "The sum; on bool the or.", lambda a, b: a + b, _RING, 0),
    Row(Ops.MUL, 2, "first", "same", "The product; on bool the and.", multiply, _RING, 1),
    Row(Ops.FDIV, 2, "first", "same", "The float quotient, correctly rounded.", divide),
    Row(Ops.IDIV, 2, "first", "same", "The quotient rounded down; by 0 it is 0.", floor_divide),
    Row(
        Ops.MOD,
        2,
        "first",
        "same",
        "The remainder, signed as the divisor; by 0 the dividend.",
        modulo,
    ),
    Row(
        Ops.MAX,
        2,
        "first",
        "same",
        "The larger; NaN wins, 0.0 is above -0.0.",
        maximum,
        _LATTICE,
        -math.inf,
    ),
    Row(Ops.POW, 2, "first", "same", "A float to a float power.", power),
    Row(
        Ops.LDEXP, 2, "first", "same", "a·2**n of a whole float n.", lambda a, n: a * power(2.0, n)
    ),
    Row(Ops.CMPLT, 2, "bool", "same", "Less than; false with NaN.", lambda a, b: a < b),
    Row(Ops.CMPNE, 2, "bool", "same", "Not equal; true with NaN.", lambda a, b: a != b, _COMMUTES),
    Row(Ops.CMPEQ, 2, "bool", "same", "Equal; false with NaN.", lambda a, b: a == b, _COMMUTES),
    Row(Ops.AND, 2, "bits", "same", "Bits of both.", lambda a, b: a & b, _LATTICE, -1),
    Row(Ops.OR, 2, "bits", "same", "Bits of either.", lambda a, b: a | b, _LATTICE, 0),
    Row(Ops.XOR, 2, "bits", "same", "Bits that differ.", lambda a, b: a ^ b, _RING, 0),
    Row(Ops.SHL, 2, "bits", "same", "Bits moved up; by the width or more 0.", shift_left),
    Row(Ops.SHR, 2, "bits", "same", "Bits moved down; by the width or more 0.", shift_right),
    Row(Ops.THREEFRY, 2, "first", "same", "Random bits of (counter, key), uint64.", threefry),
    Row(Ops.WHERE, 3, "last", "same", "Bool 0 chooses 1 or 2.", lambda c, a, b: a if c else b),
    Row(Ops.MULACC, 3, "first", "same", "a*b + c, rounded once.", lambda a, b, c: a * b + c),
    Row(Ops.RANGE, None, "given", "scalar", "A loop from 0 to min(sources): arg = (name, role)."),
    Row(
        Ops.REDUCE, None, "first", "scalar", "Monoid `arg` of source 0 over the RANGEs that follow."
    ),
    Row(
        Ops.RESCALE,
        2,
        "first",
        "scalar",
        "A term, source 0, for a sum that was multiplied by source 1 before this turn of its first "
        "loop.",
    ),
    Row(
        Ops.STAGE, None, "first", "stage", "Source 0 for all RANGEs that follow, kept in an array."
    ),
    Row(Ops.STORE, None, "void", "none", "INDEX 0 receives value 1, for all RANGEs that follow."),
    Row(Ops.SPECIAL, 0, "given", "scalar", "The hardware's number of this task, group or lane."),
    Row(Ops.LOCAL, 0, "given", "param", "Scratch storage arg[0] of arg[1] elements."),
    Row(Ops.LOAD, None, "given", "scalar", "Reads memory, or gives 0 where a mask is false."),
    Row(Ops.PREFETCH, 1, "void", "none", "Asks for the cache line at a pointer; no effect."),
    Row(Ops.CARRY, None, "first", "scalar", "A value that a loop carries from turn to turn."),
    Row(Ops.END, None, "void", "none", "Closes a loop: CARRYs take their next values."),
    Row(Ops.IF, None, "void", "none", "Opens a branch, taken where a bool is true."),
    Row(Ops.ENDIF, None, "void", "none", "Closes a branch."),
    Row(Ops.BARRIER, 0, "void", "none", "All lanes of a group arrive before any goes on."),
    Row(
        Ops.EXCHANGE,
        1,
        "first",
        "scalar",
        "What the lane of the warp has whose number differs in the bits of arg; all take part.",
    ),
    Row(
        Ops.GATHER,
        1,
        "given",
        "scalar",
        "Words of 8x8 matrices in LOCAL memory, dealt out to a warp: see codegen/fragments.",
    ),
    Row(
        Ops.FETCH,
        None,
        "void",
        "none",
        "Begins to copy arg bytes to LOCAL memory from another; zeros where a mask is false.",
    ),
    Row(Ops.COMMIT, None, "void", "none", "What the lane began since the last one is a group."),
    Row(Ops.WAIT, None, "given", "scalar", "At most the last arg[1] groups are on their way."),
    Row(Ops.TENSOR, 1, "given", "none", "A buffer as a tensor of which boxes are fetched."),
    Row(Ops.SIGNAL, 1, "void", "none", "A signal begins, a turn of which arg arrivals end."),
    Row(Ops.FENCE, 0, "void", "none", "What the lane wrote to LOCAL is there for units, too."),
    Row(Ops.MATRIX, 1, "given", "scalar", "Where in LOCAL a unit finds an operand, and how."),
    Row(Ops.FAULT, None, "void", "none", "Writes the fault word once where a bool is true."),
    Row(Ops.VECTORIZE, None, "given", "scalar", "A vector of its sources, or one repeated."),
    Row(Ops.GEP, 1, "given", "scalar", "Lane arg of a vector."),
    Row(Ops.SHUFFLE, 2, "given", "scalar", "Lanes `arg` of two vectors side by side."),
    Row(
        Ops.WMMA,
        None,
        "given",
        "scalar",
        "A matrix unit's product of bits a and b, in a linear program plus c: arg names the unit.",
    ),
    Row(Ops.PICK, None, "last", "scalar", "Of the sources that follow, number source 0."),
)

ROW: dict[Ops, Row] = {row.op: row for row in TABLE}


ROUNDED_ONCE = "rounded once"
"""The argument of a MULACC that must be exact where its result fits, also on a device that rounds
the product by itself."""

WEIGHT = {
    Ops.EXP2: 12,
    Ops.LOG2: 24,
    Ops.SIN: 48,
    Ops.COS: 48,
    Ops.POW: 100,
    Ops.THREEFRY: 60,
    Ops.IDIV: 4,
}
"""Operations that one element of these is taken to cost; of every other one it costs one."""


class GroupOp:
    """Sets of ops that rules speak of."""

    All = frozenset(Ops)
    Movement = frozenset(
        (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP, Ops.WINDOW)
    )
    ALU = frozenset(row.op for row in TABLE if row.meaning is not None)
    Unary = frozenset(op for op in ALU if ROW[op].arity == 1)
    Binary = frozenset(op for op in ALU if ROW[op].arity == 2)
    Elementwise = ALU | {Ops.CAST, Ops.BITCAST, Ops.CHECK}
    Commutative = frozenset(row.op for row in TABLE if "commutative" in row.algebra)
    Associative = frozenset(row.op for row in TABLE if "associative" in row.algebra)
    Idempotent = frozenset(row.op for row in TABLE if "idempotent" in row.algebra)
    Comparison = frozenset((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ))
    View = Movement - {Ops.PAD, Ops.WINDOW}


SIZED = frozenset((Ops.RESHAPE, Ops.EXPAND, Ops.PAD, Ops.SHRINK, Ops.FOLD))
"""Movement by sizes, which may be symbolic: those are further sources."""


@dataclass(frozen=True)
class Monoid:
    """How a reduction combines values. `identity(dtype)` is the result of an empty reduction."""

    name: str
    combine: Ops
    identity: Callable[[DType], ConstType]

    def runs_in_order(self, dtype: DType) -> bool:
        """Whether a running reduction is made in order. A product that is 0 stays 0: if later terms
        were multiplied first, these might overflow, and make it NaN."""
        return self.combine is Ops.MUL and dtypes.is_float(dtype)


MONOIDS: dict[str, Monoid] = {
    "add": Monoid("add", Ops.ADD, lambda dtype: dtypes.as_const(0, dtype)),
    "mul": Monoid("mul", Ops.MUL, lambda dtype: dtypes.as_const(1, dtype)),
    "max": Monoid("max", Ops.MAX, dtypes.min),
}


def evaluate(op: Ops, dtype: DType, *values: ConstType) -> ConstType:
    """The value of `op` on these constants, as a constant of `dtype` (the result's).

    >>> evaluate(Ops.ADD, dtypes.uint8, 250, 10), evaluate(Ops.FDIV, dtypes.float32, 1.0, 0.0)
    (4, inf)
    """
    meaning = ROW[op].meaning
    assert meaning is not None, f"{op!r} has no meaning on constants"
    if op in (Ops.SHL, Ops.SHR) and values[1] >= dtype.bitsize:
        return 0
    return dtypes.as_const(meaning(*values), dtype)


def bit_cast(value: ConstType, source: DType, target: DType) -> ConstType:
    """The constant with the same bits in another dtype of the same size."""
    return decode(encode(value, source), target)


def unsigned_of(dtype: DType) -> DType:
    """The unsigned integer of a dtype's size, with as many lanes."""
    size = dtype.scalar().itemsize
    same: DType = next(d for d in dtypes.uints if d.itemsize == size)
    return same.vec(dtype.count)
