"""Words of the languages that look like C: types, numbers, names, vectors made of lanes.
`c_family.py` says which of them a linear program needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tinygrad.backends.c_dialect import Dialect
from tinygrad.backends.program import index_type
from tinygrad.backends.statements import Statements
from tinygrad.base.bits import encode
from tinygrad.base.dtype import ConstType, DType, dtypes
from tinygrad.base.errors import CompileError
from tinygrad.uop.node import UOp

SUFFIXES = {  # before a long's
    **dict.fromkeys((dtypes.uint32, dtypes.uint64), "u"),
    **dict.fromkeys((dtypes.float32, dtypes.float16, dtypes.bfloat16), "f"),
}
BY_FLOAT = (dtypes.float16, dtypes.bfloat16)  # written as a float, which is converted


class Writer(Statements):
    """Statements whose expressions are in a dialect."""

    def __init__(self, program: Sequence[UOp], dialect: Dialect) -> None:
        super().__init__(program, dialect)
        self.dialect = dialect
        self.typedefs: dict[str, str] = {}
        self.types = {**dialect.types, dtypes.index: dialect.types[index_type(program)]}
        self.index_type = index_type(program)

    def constant(self, node: UOp) -> str:
        if node.dtype.count == 1:
            return self.number(node.arg, node.dtype)
        lane = self.number(node.arg, node.dtype.scalar())
        return self.splat(node.dtype, lane)

    def number(self, value: ConstType, dtype: DType) -> str:
        kind = self.index_type if dtype is dtypes.index else dtype
        suffix = SUFFIXES.get(kind, "")
        if dtypes.is_int(kind) and kind.itemsize == 8:
            suffix += self.dialect.longs
        if dtype is dtypes.bool:
            return "1" if value else "0"
        if dtypes.is_int(dtype):
            lowest = int(value) < -(2**31) + 1 and value in (-(2**31), -(2**63))
            return f"({int(value) + 1}{suffix}-1)" if lowest else f"{value}{suffix}"
        if self.is_bits(dtype):
            return str(encode(value, dtype))
        if math.isfinite(value):
            text = f"{float(value)!r}{suffix}"
            return f"({self.type(dtype)})({text})" if dtype in BY_FLOAT else text
        text = "NAN" if value != value else "INFINITY" if value > 0 else "-INFINITY"
        return text if dtype is dtypes.float32 else f"({self.type(dtype)})({text})"

    def is_bits(self, dtype: DType) -> bool:
        """Whether this float type is held as the integer of its bits."""
        return dtype in self.dialect.as_bits

    def type(self, dtype: DType) -> str:
        if dtype.count == 1:
            return self.types[dtype]
        if dtype.count > self.dialect.widest:
            raise CompileError(
                f"[render] {dtype!r}: a vector of {self.dialect.name} has at most "
                f"{self.dialect.widest} lanes; let the recipe split its loop"
            )
        scalar = dtype.scalar()
        if scalar is dtypes.index:
            scalar = dtypes.int64
        name = f"{self.dialect.vector_words[scalar]}{dtype.count}"
        if self.dialect.typedef and name not in self.typedefs:
            size = 1 << (scalar.itemsize * dtype.count - 1).bit_length()
            element = self.types[dtypes.int8 if scalar is dtypes.bool else scalar]
            facts = {"type": name, "element": element, "bytes": size, "align": scalar.itemsize}
            self.typedefs[name] = self.dialect.typedef.format(**facts)
        return name

    def memory_type(self, dtype: DType) -> str:
        return self.dialect.bool_memory if dtype is dtypes.bool else self.type(dtype)

    def literal(self, dtype: DType, lanes: Sequence[str]) -> str:
        return self.dialect.literal.format(type=self.type(dtype), lanes=",".join(lanes))

    def splat(self, dtype: DType, text: str) -> str:
        """A vector whose lanes are all `text`."""
        scalar = dtype.scalar()
        facts = {"element": self.types[dtypes.int8 if scalar is dtypes.bool else scalar]}
        value = self.into_lane(text, dtype)
        return self.dialect.splat.format(type=self.type(dtype), value=value, **facts)

    def lane(self, node: UOp, lane: int) -> str:
        """One lane of a vector as a scalar; a scalar stands for all lanes."""
        if node.dtype.count == 1:
            return self.atom(node)
        text = self.dialect.lane.format(value=self.atom(node), lane=lane)
        return f"({text}!=0)" if node.dtype.scalar() is dtypes.bool else text

    def into_lane(self, text: str, dtype: DType) -> str:
        """A scalar's text as a lane of `dtype`, in which true is -1."""
        return f"-{text}" if dtype.scalar() is dtypes.bool else text

    def lanes(self, dtype: DType, function: Callable[[int], str]) -> str:
        """A vector made lane by lane."""
        made = [self.into_lane(function(lane), dtype) for lane in range(dtype.count)]
        return self.literal(dtype, made)

    def convert(self, dtype: DType, text: str) -> str:
        return self.dialect.convert.format(type=self.type(dtype), value=text)

    def compared(self, dtype: DType, text: str) -> str:
        """A vector of bools, whose lanes are 0 or -1, from a comparison of vectors."""
        template = self.dialect.compared or self.dialect.convert
        return template.format(type=self.type(dtype), value=text)

    def truth(self, dtype: DType, text: str, old: DType) -> str:
        """A vector of bools from one of numbers of the dtype `old`."""
        return self.compared(dtype, f"({text}!=({self.types[old]})0)")
