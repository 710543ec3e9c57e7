"""LLVM's words: how types, numbers and instructions are written. `llvm_ir.py` says which of them a
linear program needs."""

from __future__ import annotations

import struct

from tinygrad.backends.llvm_dialect import Dialect
from tinygrad.base.bits import encode
from tinygrad.base.dtype import ConstType, DType, dtypes
from tinygrad.uop import Ops, UOp

TYPES = {
    dtypes.bool: "i1",
    dtypes.index: "i64",
    dtypes.float16: "half",
    dtypes.float32: "float",
    dtypes.float64: "double",
    **{dtype: f"i{dtype.bitsize}" for dtype in (*dtypes.ints, *dtypes.fp8s, dtypes.bfloat16)},
}
SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}

FLOAT, SIGNED, UNSIGNED, BOOL = range(4)


def kind_of(dtype: DType) -> int:
    """FLOAT, SIGNED, UNSIGNED or BOOL."""
    scalar = dtype.scalar()
    if scalar is dtypes.bool:
        return BOOL
    if dtypes.is_float(scalar):
        return FLOAT
    return UNSIGNED if dtypes.is_unsigned(scalar) else SIGNED


def is_number(node: UOp) -> bool:
    """Whether this is a constant, the same in every lane."""
    if node.op is Ops.VECTORIZE:
        return all(source.op is Ops.CONST for source in node.src)
    return node.op is Ops.CONST


def has_nan(node: UOp) -> bool:
    """Whether this constant has a lane that is NaN."""
    lanes = node.src if node.op is Ops.VECTORIZE else (node,)
    return any(lane.arg != lane.arg for lane in lanes)


class Writer:
    """The lines, and the name of each node in them."""

    dialect: Dialect

    def __init__(self, types: dict[DType, str]) -> None:
        self.types = types  # grows by the vectors and memory forms that are met
        self.spaces: dict[UOp, str] = {}  # types of pointers, where there are several
        self.names: dict[UOp, str] = {}
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.parts: dict[UOp, list[str]] = {}  # elements of vectors that are separate registers
        self.in_group = False  # whether a unit's products have begun that no COMMIT has ended
        self.count = 0
        self.label = "entry"  # the block that is being written
        self.in_block: dict[str, str] = {}  # what it has computed, by text: see `once`

    def type(self, dtype: DType) -> str:
        found = self.types.get(dtype)
        if found is None:
            found = self.types[dtype] = f"<{dtype.count} x {self.types[dtype.scalar()]}>"
        return found

    def memory_type(self, dtype: DType) -> str:
        """Like `type`, except that a bool is a byte."""
        return self.type(dtypes.uint8.vec(dtype.count) if kind_of(dtype) == BOOL else dtype)

    def vector(self, element: str, count: int) -> str:
        return element if count == 1 else f"<{count} x {element}>"

    def ref(self, node: UOp) -> str:
        """The node as an operand: a register, or a literal."""
        found = self.names.get(node)
        if found is None:
            found = self.names[node] = self._immediate(node)
        return found

    def typed(self, node: UOp) -> str:
        return f"{self.type(node.dtype)} {self.ref(node)}"

    def pointer(self, node: UOp) -> str:
        """A pointer with its type, which includes its address space."""
        return f"{self.spaces.get(node, 'ptr')} {self.ref(node)}"

    def width(self, dtype: DType) -> int:
        """The bits of an element; those of an index depend on the program."""
        kind = self.types[dtype.scalar()]
        return int(kind[1:]) if kind.startswith("i") else dtype.scalar().bitsize

    def _immediate(self, node: UOp) -> str:
        element = self.types[node.dtype.scalar()]
        if node.op is Ops.CONST:
            text = self.number(node.arg, node.dtype.scalar())
            return text if node.dtype.count == 1 else f"splat ({element} {text})"
        assert is_number(node), f"{node.op!r} is used before it is in the program"
        if len(set(node.src)) == 1:
            return f"splat ({element} {self.ref(node.src[0])})"
        return "<" + ", ".join(f"{element} {self.ref(s)}" for s in node.src) + ">"

    def number(self, value: ConstType, dtype: DType) -> str:
        kind = self.types[dtype]
        if kind in ("float", "double"):
            return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
        if kind in ("half", "bfloat"):
            return f"0x{'H' if kind == 'half' else 'R'}{encode(value, dtype):04X}"
        if dtype is dtypes.bool:
            return "true" if value else "false"
        return str(value if dtypes.is_int(dtype) else encode(value, dtype))

    def emit(self, text: str) -> str:
        """Emits one instruction; returns the register of its value."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def once(self, text: str) -> str:
        """Like `emit`, but reuses what the block has computed already."""
        if text not in self.in_block:
            self.in_block[text] = self.emit(text)
        return self.in_block[text]

    def splat(self, element: str, value: str, count: int) -> str:
        """A scalar in every lane."""
        kind = f"<{count} x {element}>"
        lane = self.once(f"insertelement {kind} poison, {element} {value}, i32 0")
        zeros = f"<{count} x i32> zeroinitializer"
        return self.once(f"shufflevector {kind} {lane}, {kind} poison, {zeros}")

    def call(self, name: str, result: str, *arguments: str, types: str) -> str:
        """The text of a call of an intrinsic, which is declared, too."""
        self.declared.setdefault(name, f"declare {result} @{name}({types})")
        return f"call {result} @{name}({', '.join(arguments)})"

    def intrinsic(self, name: str, dtype: DType, *sources: str) -> str:
        """Calls a function whose arguments and result have the same type."""
        kind = self.type(dtype)
        given = [f"{kind} {source}" for source in sources]
        types = ", ".join([kind] * len(sources))
        return self.emit(self.call(f"{name}.{self.suffix(dtype)}", kind, *given, types=types))

    def suffix(self, dtype: DType) -> str:
        element = self.types[dtype.scalar()]
        word = SUFFIXES.get(element, element)
        return word if dtype.count == 1 else f"v{dtype.count}{word}"

    def start_block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label
        self.in_block.clear()

    def fork(self, condition: str, then: str, otherwise: str, rare: str = "") -> None:
        """Ends the block; the block `then` comes next."""
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}{rare}")
        self.start_block(then)

    def join(self, label: str) -> None:
        """Ends the block; the next one is where the branches join."""
        self.lines.append(f"  br label %{label}")
        self.start_block(label)

    def choose(self, dtype: DType, condition: str, yes: str, no: str) -> str:
        """One of two values, in each lane."""
        kind, bools = self.type(dtype), self.vector("i1", dtype.count)
        return self.emit(f"select {bools} {condition}, {kind} {yes}, {kind} {no}")

    def as_bytes(self, mask: UOp) -> str:
        """A vector of bools as one of bytes: type and value. The bits of a mask are never moved to
        an integer directly: LLVM 22 turns that into a sign-mask move that can only encode registers
        0 to 15 (X86CompressEVEX), and reads a wrong register from 16 on."""
        kind = f"<{mask.dtype.count} x i8>"
        return f"{kind} " + self.once(f"zext {self.typed(mask)} to {kind}")
