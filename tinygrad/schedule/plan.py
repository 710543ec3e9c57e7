"""The plan of a graph: plain data about numbered storages and steps in order, which the engine
runs again and again with other buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, bit_cast


@dataclass(frozen=True)
class Wishes:
    """What the devices need of a plan. `longest_row`: elements of the longest row that kernels keep
    (`schedule/rows`; 0: none). `buffers`: the most buffers in a kernel. `lanes`: kernels should
    have work for all lanes of groups. `in_registers`: products of these dtypes can make scores in
    registers. `window`: the bytes of each buffer that a kernel can see. `largest`: the most bytes
    of a buffer that temporaries share. `turns`: the most turns of a lane's loops in order. Of
    `buffers`, `window`, `largest` and `turns`, 0 means no limit. `cache`: the bytes of the last
    cache, if a kernel may find there what the one before has stored."""

    longest_row: int = 1 << 14
    buffers: int = 0
    lanes: bool = False
    in_registers: frozenset[DType] = frozenset()
    window: int = 0
    largest: int = 0
    turns: int = 0
    cache: int = 0


@dataclass(frozen=True)
class Storage:
    """One numbered storage. `kind`: "param" came with the graph (it is PARAM number `place`), "out"
    will hold a result, "temp" lies at byte `place` of its device's arena. A param or result on
    several devices has a Placement; the piece of it that a step uses is a "part", number `place` of
    storage `whole`."""

    kind: str
    device: Any
    dtype: DType
    size: int
    place: int = 0
    whole: int = -1

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Step:
    """One action: a KERNEL (`ast`), a COPY, or a CALL or SCAN (`arg`: the node, and which of its
    results are needed).

    `storages` are numbers in the plan, in the order of the kernel's slots; the first `writes` of
    them are written. `variables`: the plan's variables that the kernel's `v000`, `v001`, .. stand
    for. `own`: storages that only this kernel uses, added when it was compiled. A step loaded from
    disk has no `ast`, but `touches`, the facts that `engine/faults` needs. `part`: the fraction of
    the work of the largest size that a kernel of any size does.
    """

    op: Ops
    device: str
    storages: tuple[int, ...]
    writes: int = 1
    ast: UOp | None = None
    arg: Any = None
    origin: str | None = None
    variables: tuple[str, ...] = ()
    own: tuple[int, ...] = ()
    touches: Any = ()
    part: float = 1.0


def shortest(limits: Iterable[int]) -> int:
    """The smallest of some limits, where 0 means no limit."""
    return min(filter(None, limits), default=0)


def variable_name(number: int) -> str:
    """The name of a variable in a plan or a kernel: names only have an order."""
    return f"v{number:03}"


def variable_number(name: str) -> int:
    """The number of a variable from `variable_name`."""
    return int(name[1:])


def numbered(leaf: UOp, number: int) -> UOp:
    """A PARAM or a DEFINE_VAR as the one of that number."""
    name = number if leaf.op is Ops.PARAM else variable_name(number)
    return leaf.replace(arg=(name, *leaf.arg[1:]))


BITS = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
"""The type of a variable that holds the bits of a number of this size."""


def bits_variable(name: str, dtype: DType) -> UOp:
    """A variable that holds the bits of a number."""
    bits = BITS[dtype.itemsize]
    return UOp.variable(name, int(dtypes.min(bits)), int(dtypes.max(bits)), bits)


def signed_bits(number: UOp) -> int:
    """A constant's bits as a signed number."""
    return int(bit_cast(number.arg, number.dtype, BITS[number.dtype.itemsize]))


@dataclass(frozen=True)
class KernelInfo:
    """The argument of a KERNEL node, which `kernelize` leaves in a tensor's graph: the kernel
    (a COPY node for a copy), and how many of the node's sources it writes."""

    ast: UOp
    writes: int = 1
    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.ast.op.name} {self.name} {self.ast.key.hex()[:12]}>"


@dataclass(frozen=True)
class Plan:
    """Steps in order. `results`: for each root of the graph, the storage of its base. `arenas`: the
    bytes that the temporaries of each device take together. `values`: the values of variables after
    the graph's own. If a buffer may have no more than `largest` bytes, an arena is several buffers:
    no temporary crosses from one to the next."""

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    arenas: dict[str, int]
    values: tuple[int, ...] = ()
    largest: int = 0
