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
    """What the devices of a plan want of it: values kept in rows of at most so many elements
    (`schedule/rows`; 0: none); no more than so many buffers a kernel (0: any number); work for all
    `lanes` of groups, which are many; scores of these dtypes' products made `in_registers`; each
    buffer of a kernel seen through a `window` of so many bytes (0: any number); no buffer that
    temporaries share of more than `largest` bytes (0: any number); no more than so many `turns` of
    a lane's loops in order (0: any number)."""

    longest_row: int = 1 << 14
    buffers: int = 0
    lanes: bool = False
    in_registers: frozenset[DType] = frozenset()
    window: int = 0
    largest: int = 0
    turns: int = 0


@dataclass(frozen=True)
class Storage:
    """One numbered storage. `kind`: "param" came with the graph (its `place`th PARAM), "out" is
    where a result will live, "temp" lies at byte `place` of its device's arena. A param or result
    of several devices has a Placement; what a step uses of it is a "part", number `place` of
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
    """One thing to do: a KERNEL (`ast`), a COPY, or a CALL or SCAN (`arg`: the node, and which of
    its results are wanted).

    `storages` are numbers in the plan in the order of the kernel's slots; the first `writes` of
    them are written. `variables` names the plan's variables that the kernel's `v000`, `v001`, ..
    stand for. `own` are storages that nobody but this kernel uses, which compiling it added. A step
    from the disk has no `ast`, but what `engine/faults` wants to know of it, `touches`. A kernel of
    any size does only a `part` of what that of the largest would.
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
    """The least of some limits, of which 0 is none."""
    return min(filter(None, limits), default=0)


def variable_name(number: int) -> str:
    """What a plan or a kernel calls a variable: names have no meaning but their order."""
    return f"v{number:03}"


def variable_number(name: str) -> int:
    """The number that `variable_name` was given."""
    return int(name[1:])


BITS = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
"""Of which type a variable is that holds the bits of a float of so many bytes."""


def bits_variable(name: str, dtype: DType) -> UOp:
    """A variable that holds the bits of a float."""
    bits = BITS[dtype.itemsize]
    return UOp.variable(name, int(dtypes.min(bits)), int(dtypes.max(bits)), bits)


def bits_of(number: UOp) -> int:
    """A float constant's bits as a signed number."""
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
    """Steps in order. `results` says for each root of the graph in which storage its base lives;
    `arenas` how many bytes the temporaries of each device take together, `values` what variables
    behind the graph's own are. An arena is several buffers where one may not be longer than
    `largest` bytes: no temporary lies in two of them."""

    storages: tuple[Storage, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    arenas: dict[str, int]
    values: tuple[int, ...] = ()
    largest: int = 0
