"""Linear program → LLVM IR, as text: for processors, and for the GPUs that `llvm_dialect.py` names.

No pass of LLVM runs on this text, only its code generator, so it must come as good code: loops
turn at the bottom, what a loop carries is a phi, vectors are explicit, constants are literals. It
must also be right by construction: LLVM ends the process on IR that breaks its rules, and no
number that a user can supply may reach an operation that LLVM leaves undefined.

A bool is an `i1` in registers and a byte in memory. Types that the target can store but not
compute with (bfloat16, fp8) are whole numbers of their size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinygrad.backends.llvm_dialect import Dialect, dialect_of
from tinygrad.backends.llvm_fault import fault
from tinygrad.backends.llvm_frame import Frame, LaneFrame, TaskFrame
from tinygrad.backends.llvm_masks import LaneMasks
from tinygrad.backends.llvm_matrix import TILE_CONFIG, TileRegisters, multiply
from tinygrad.backends.llvm_text import (
    BOOL,
    FLOAT,
    SIGNED,
    TYPES,
    UNSIGNED,
    Writer,
    has_nan,
    is_number,
    kind_of,
)
from tinygrad.backends.llvm_warp import commit, exchange, fence, fetch, gather, matrix, signal, wait
from tinygrad.backends.program import carries, index_type, zeros_may_meet
from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.target import Target
from tinygrad.uop import Ops, UOp

# One column each for floats, signed integers, unsigned integers and bool.
BINARY: dict[Ops, tuple[str, str, str, str]] = {
    Ops.ADD: ("fadd", "add", "add", "or"),
    Ops.MUL: ("fmul", "mul", "mul", "and"),
    Ops.FDIV: ("fdiv", "", "", ""),
    Ops.IDIV: ("", "sdiv", "udiv", ""),
    Ops.MOD: ("", "srem", "urem", ""),
    Ops.AND: ("", "and", "and", "and"),
    Ops.OR: ("", "or", "or", "or"),
    Ops.XOR: ("", "xor", "xor", "xor"),
    Ops.CMPLT: ("fcmp olt", "icmp slt", "icmp ult", "icmp ult"),
    Ops.CMPNE: ("fcmp une", "icmp ne", "icmp ne", "icmp ne"),
    Ops.CMPEQ: ("fcmp oeq", "icmp eq", "icmp eq", "icmp eq"),
}
SHIFTS = {Ops.SHL: ("", "shl", "shl", ""), Ops.SHR: ("", "ashr", "lshr", "")}
UNARY = {Ops.SQRT: "llvm.sqrt", Ops.TRUNC: "llvm.trunc", Ops.ROUND: "llvm.roundeven"}
INTEGER_MAX = {SIGNED: "llvm.smax", UNSIGNED: "llvm.umax"}
# from which kind, to which kind; integers of two sizes are told apart below
CASTS = {
    (FLOAT, SIGNED): "fptosi",
    (FLOAT, UNSIGNED): "fptoui",
    (SIGNED, FLOAT): "sitofp",
    (UNSIGNED, FLOAT): "uitofp",
    (BOOL, FLOAT): "uitofp",
    (BOOL, SIGNED): "zext",
    (BOOL, UNSIGNED): "zext",
}

SCALES = {
    dtypes.float32.vec(16): "llvm.x86.avx512.mask.scalef.ps.512",
    dtypes.float64.vec(8): "llvm.x86.avx512.mask.scalef.pd.512",
}
RANGES = {
    dtypes.float32.vec(16): "llvm.x86.avx512.mask.range.ps.512",
    dtypes.float64.vec(8): "llvm.x86.avx512.mask.range.pd.512",
}
_SAME_SIZE = ((dtypes.float32, dtypes.int32), (dtypes.float64, dtypes.int64))
BITS_OF_A_VECTOR = {
    f.vec(n // f.itemsize): i.vec(n // f.itemsize) for f, i in _SAME_SIZE for n in (16, 32)
}
"""Vectors of AVX; the bits of a scalar would go to another kind of register."""
ONE_IN_A_VECTOR = {f: f.vec(16 // f.itemsize) for f, _ in _SAME_SIZE}
ZERO = "@zero = private unnamed_addr constant [16 x i8] zeroinitializer, align 16"
METADATA = '!0 = !{}\n!1 = !{i32 1}\n!2 = !{!"branch_weights", i32 1, i32 1000000}'


ROUNDS = 2
"""LLVM tries to combine each shuffle with all that it depends on, which takes a dozen milliseconds
for a transposed square of 16, without success. After so many rounds a fence hides the earlier
ones."""
FENCED = (dtypes.float32, dtypes.float64)

OFF = UOp.const(dtypes.bool, False)


class LLVMRenderer:
    """Functions for one Target, with the calling convention of its dialect."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.dialect = dialect_of(target)
        types = dict(TYPES)
        if "bfloat16" in target.dtypes:
            types[dtypes.bfloat16] = "bfloat"
        self.types = {dtypes.int64: types, dtypes.int32: types | {dtypes.index: "i32"}}

    def render(self, name: str, program: Sequence[UOp]) -> str:
        index = index_type(program) if self.dialect.short_index else dtypes.int64
        function = _Function(program, self.types[index], self.dialect, self.target)
        text = function.render(name)
        vars(function).clear()  # its parts know it: they would wait for the garbage collector
        return text


class _Function(Writer):
    """One function under construction."""

    def __init__(
        self, program: Sequence[UOp], types: dict[DType, str], dialect: Dialect, target: Target
    ) -> None:
        super().__init__(types)
        self.program, self.dialect = program, dialect
        self.ranges = RANGES if "VRANGE" in target.native else {}
        self.by_least = "VMIN" in target.native
        self.masks = LaneMasks(self, program, target)
        self.frame: Frame = (TaskFrame if dialect.tasks else LaneFrame)(self, program, dialect)
        self.carried = carries(program)
        self.tiles = TileRegisters(self, program, self.carried)
        self.open_loops: dict[UOp, tuple[int, str]] = {}  # RANGE → line of its phis, block before
        self.constants = {TILE_CONFIG} if self.tiles.values else set()
        self.rounds: dict[UOp, int] = {}  # of shuffles, one after the other, since the last fence
        self.streams = False  # whether a store is nontemporal

    def render(self, name: str) -> str:
        self.frame.begin()
        self.lines += self.tiles.begin()
        for node in self.program:
            if not self.tiles.write(node):
                RULES[node.op](self, node)
            self.masks.follow(node)
        self.frame.finish()
        self.lines += self.tiles.end()
        if self.streams:
            self.lines.append("  fence seq_cst")
        above = sorted(self.constants | self.frame.constants)
        parts = [*above, self.frame.head(name), "entry:", *self.lines, "  ret void", "}"]
        parts += [*self.declared.values(), f"attributes #0 = {{ {self.frame.attributes()} }}"]
        return "\n".join([*parts, METADATA, self.dialect.flags])

    def special(self, node: UOp) -> None:
        assert not self.open_loops, "a SPECIAL stands outside of loops"
        self.frame.special(node)

    def pick(self, node: UOp) -> None:
        self.frame.pick(node)

    # ---- loops and branches ----------------------------------------------------------------------

    def range(self, node: UOp) -> None:
        self.count += 1
        name = self.names[node] = f"%i{self.count}"
        before = self.label
        self.lines.append(f"  br label %loop{name[1:]}")
        self.start_block(f"loop{name[1:]}")
        self.open_loops[node] = (len(self.lines), before)
        self.lines.append("")

    def carry(self, node: UOp) -> None:
        self.count += 1
        self.names[node] = f"%c{self.count}"

    def end(self, node: UOp) -> None:
        counter = node.src[0]
        begin, end = counter.src
        name = self.ref(counter)
        kind = self.type(counter.dtype)
        step = self.emit(f"add nsw {kind} {name}, 1")
        more = self.emit(f"icmp slt {kind} {step}, {self.ref(end)}")
        at, before = self.open_loops.pop(counter)
        back = self.label
        phis = [f"  {name} = phi {kind} [ {self.ref(begin)}, %{before} ], [ {step}, %{back} ]"]
        last: dict[UOp, str] = {}
        for carry, following in self.carried[counter]:
            first, last[carry] = self.ref(carry.src[0]), self.ref(following)
            phi = f"phi {self.type(carry.dtype)} [ {first}, %{before} ], "
            phis.append(f"  {self.ref(carry)} = {phi}[ {last[carry]}, %{back} ]")
        self.lines[at] = "\n".join(phis)
        self.lines.append(f"  br i1 {more}, label %loop{name[1:]}, label %after{name[1:]}")
        self.start_block(f"after{name[1:]}")
        self.names.update(last)

    def branch(self, node: UOp) -> None:
        self.count += 1
        self.names[node] = str(self.count)
        self.fork(self.ref(node.src[0]), f"then{self.count}", f"else{self.count}")

    def end_branch(self, node: UOp) -> None:
        self.join(f"else{self.names[node.src[0]]}")

    def nothing(self, node: UOp) -> None:
        """CONST is emitted where it is used; the frame names arguments and LOCAL memory."""

    # ---- memory ----------------------------------------------------------------------------------

    def index(self, node: UOp) -> None:
        pointer, offset = node.src
        element = self.memory_type(node.dtype.scalar())
        text = f"getelementptr {element}, {self.pointer(pointer)}, {self.typed(offset)}"
        self.names[node] = self.emit(text)
        if pointer in self.spaces:
            self.spaces[node] = self.spaces[pointer]

    def load(self, node: UOp) -> None:
        pointer, kind = self.pointer(node.src[0]), self.memory_type(node.dtype)
        plain = f"load {kind}, {pointer}, align {node.arg[0]}"
        if len(node.src) == 1:
            value = self.emit(plain)
        elif self._is_guard(node.src[1]):
            value = self._guarded(plain, kind, self.ref(node.src[1]))
        elif node.dtype.count == 1:  # where the mask is false, a zero of ours is read
            self.constants.add(ZERO)
            choose = f"select i1 {self.ref(node.src[1])}, {pointer}, ptr @zero"
            aligned = min(node.arg[0], node.dtype.itemsize)
            value = self.emit(f"load {kind}, ptr {self.emit(choose)}, align {aligned}")
        else:
            value = self.emit(self._masked_load(node, kind))
        if kind_of(node.dtype) == BOOL:
            value = self.emit(f"icmp ne {kind} {value}, zeroinitializer")
        self.names[node] = value

    def _guarded(self, instruction: str, kind: str, condition: str) -> str:
        """The instruction's value from a branch; zero if the condition is false."""
        self.count += 1
        before, inside, after = self.label, f"inside{self.count}", f"after{self.count}"
        self.fork(condition, inside, after)
        value = self.emit(instruction)
        self.join(after)
        return self.emit(f"phi {kind} [ {value}, %{inside} ], [ zeroinitializer, %{before} ]")

    def _masked_load(self, node: UOp, kind: str) -> str:
        mask = self._mask(node.src[1], node.dtype.count)
        space, value = self.pointer(node.src[0]).rsplit(" ", 1)
        types = f"{space}, <{node.dtype.count} x i1>, {kind}"
        return self.call(
            f"llvm.masked.load.{self._memory_suffix(node.dtype)}.{_space(space)}",
            kind,
            f"{space} align {node.arg[0]} {value}",
            f"<{node.dtype.count} x i1> {mask}",
            f"{kind} zeroinitializer",
            types=types,
        )

    def _memory_suffix(self, dtype: DType) -> str:
        return self.suffix(dtypes.uint8.vec(dtype.count) if kind_of(dtype) == BOOL else dtype)

    def _mask(self, node: UOp, count: int) -> str:
        """One bool for each lane, also if one bool stands for all lanes."""
        return self.ref(node) if node.dtype.count > 1 else self.splat("i1", self.ref(node), count)

    def store(self, node: UOp) -> None:
        pointer, value = self.pointer(node.src[0]), self.ref(node.src[1])
        dtype = node.src[1].dtype
        kind = self.memory_type(dtype)
        if kind_of(dtype) == BOOL:
            value = self.emit(f"zext {self.type(dtype)} {value} to {kind}")
        stream = ""
        if node.arg[1] == "nontemporal" and self.dialect.streams:
            stream, self.streams = ", !nontemporal !1", True
        plain = f"  store {kind} {value}, {pointer}, align {node.arg[0]}{stream}"
        if len(node.src) == 2:
            self.lines.append(plain)
        elif dtype.count == 1 or self._is_guard(node.src[2]):
            self.count += 1
            labels = (f"store{self.count}", f"stored{self.count}")
            self.fork(self.ref(node.src[2]), *labels)
            self.lines.append(plain)
            self.join(labels[1])
        else:
            mask = f"<{dtype.count} x i1> {self._mask(node.src[2], dtype.count)}"
            space, where = pointer.rsplit(" ", 1)
            name = f"llvm.masked.store.{self._memory_suffix(dtype)}.{_space(space)}"
            arguments = (f"{kind} {value}", f"{space} align {node.arg[0]} {where}", mask)
            types = f"{kind}, {space}, <{dtype.count} x i1>"
            self.lines.append("  " + self.call(name, "void", *arguments, types=types))

    def _is_guard(self, mask: UOp) -> bool:
        """Whether this mask becomes a branch around the whole access."""
        return mask.dtype.count == 1 and not self.dialect.masked_vectors

    def prefetch(self, node: UOp) -> None:
        if not self.dialect.prefetch:
            return
        how = ("i32 0", f"i32 {4 - node.arg}", "i32 1")  # to read, to which cache, data
        types = "ptr, i32 immarg, i32 immarg, i32 immarg"
        pointer = self.pointer(node.src[0])
        self.lines.append("  " + self.call("llvm.prefetch.p0", "void", pointer, *how, types=types))

    def barrier(self, node: UOp) -> None:
        self.lines += (f"  {line}" for line in self.dialect.barrier)
        self.declared.update((line, line) for line in self.dialect.declared)

    # ---- vectors ---------------------------------------------------------------------------------

    def vectorize(self, node: UOp) -> None:
        if is_number(node):
            return
        element, count = self.types[node.dtype.scalar()], node.dtype.count
        lanes = set(node.src) - {OFF}
        if len(lanes) == 1:
            name = self.splat(element, self.ref(*lanes), count)
            if OFF in node.src:  # a bit that some lanes have: they are not set one by one
                on = ", ".join(f"i1 {int(source is not OFF)}" for source in node.src)
                name = self.emit(f"and {self.type(node.dtype)} {name}, <{on}>")
            self.names[node] = name
            return
        value = "poison"
        for lane, source in enumerate(node.src):
            item = f"{element} {self.ref(source)}"
            value = self.emit(f"insertelement {self.type(node.dtype)} {value}, {item}, i32 {lane}")
        self.names[node] = value

    def gep(self, node: UOp) -> None:
        source, lane = node.src[0], f"i32 {node.arg}"
        if kind_of(source.dtype) == BOOL:
            wide = self.emit(f"extractelement {self.as_bytes(source)}, {lane}")
            self.names[node] = self.emit(f"icmp ne i8 {wide}, 0")
        else:
            self.names[node] = self.emit(f"extractelement {self.typed(source)}, {lane}")

    def shuffle(self, node: UOp) -> None:
        is_mask, count = kind_of(node.dtype) == BOOL, len(node.arg)
        left, right = map(self.as_bytes if is_mask else self.typed, node.src)
        lanes = ", ".join(f"i32 {lane}" for lane in node.arg)
        name = self.emit(f"shufflevector {left}, {right}, <{count} x i32> <{lanes}>")
        if is_mask:
            name = self.emit(f"icmp ne <{count} x i8> {name}, zeroinitializer")
        rounds = 1 + max(self.rounds.get(source, 0) for source in node.src)
        if rounds == ROUNDS and self.dialect.tasks and node.dtype.scalar() in FENCED:
            name, rounds = self.intrinsic("llvm.arithmetic.fence", node.dtype, name), 0
        self.names[node], self.rounds[node] = name, rounds

    # ---- arithmetic ------------------------------------------------------------------------------

    def binary(self, node: UOp) -> None:
        left, right = node.src
        word = f"{BINARY[node.op][kind_of(left.dtype)]} {self.type(left.dtype)}"
        name = self.emit(f"{word} {self.ref(left)}, {self.ref(right)}")
        if node.op is Ops.FDIV and node.dtype.count > 1:
            # hides 0 / 0: the code generator takes it for 0 where it knows lanes of both to be 0
            name = self.intrinsic("llvm.arithmetic.fence", node.dtype, name)
        self.names[node] = name

    def shift(self, node: UOp) -> None:
        value, amount = node.src
        kind, count = self.type(value.dtype), self.ref(amount)
        if self.type(amount.dtype) != kind:
            wider = self.width(amount.dtype) < self.width(value.dtype)
            word = "zext" if wider else "trunc"
            count = self.emit(f"{word} {self.typed(amount)} to {kind}")
        word = SHIFTS[node.op][kind_of(value.dtype)]
        self.names[node] = self.emit(f"{word} {kind} {self.ref(value)}, {count}")

    def unary(self, node: UOp) -> None:
        self.names[node] = self.intrinsic(UNARY[node.op], node.dtype, self.ref(node.src[0]))

    def scaled(self, node: UOp) -> None:
        """Scales by a power of two: by AVX-512's instruction, which takes float exponents, if a
        vector is a register; else by LLVM's function, which takes integers."""
        value, number = node.src
        if node.dtype in SCALES:
            kind, every = self.type(node.dtype), f"i{node.dtype.count}"
            given = (self.typed(value), self.typed(number), f"{kind} undef", f"{every} -1", "i32 4")
            types = f"{kind}, {kind}, {kind}, {every}, i32"  # all lanes, rounded as ever
            self.names[node] = self.emit(self.call(SCALES[node.dtype], kind, *given, types=types))
            return
        whole = dtypes.int32.vec(node.dtype.count)
        count = self.emit(f"fptosi {self.typed(number)} to {self.type(whole)}")
        out, kind = self.type(node.dtype), self.type(whole)
        name = f"llvm.ldexp.{self.suffix(node.dtype)}.{self.suffix(whole)}"
        made = self.call(name, out, self.typed(value), f"{kind} {count}", types=f"{out}, {kind}")
        self.names[node] = self.emit(made)

    def reciprocal(self, node: UOp) -> None:
        one = self.number(1.0, node.dtype.scalar())
        if node.dtype.count > 1:
            one = f"splat ({self.types[node.dtype.scalar()]} {one})"
        kind = self.type(node.dtype)
        self.names[node] = self.emit(f"fdiv {kind} {one}, {self.ref(node.src[0])}")

    def multiply_add(self, node: UOp) -> None:
        sources = [self.ref(source) for source in node.src]  # `decompose` leaves only floats
        self.names[node] = self.intrinsic("llvm.fma", node.dtype, *sources)

    def maximum(self, node: UOp) -> None:
        """Of floats, an accumulator is the second operand."""
        first, second = node.src
        if first.op in (Ops.MAX, Ops.CARRY) or is_number(second):
            first, second = second, first
        kind, a, b = self.type(node.dtype), self.ref(first), self.ref(second)
        family = kind_of(node.dtype)
        if family == BOOL:
            larger = self.emit(f"or {kind} {a}, {b}")
        elif family != FLOAT:
            larger = self.intrinsic(INTEGER_MAX[family], node.dtype, a, b)
        elif zeros_may_meet(node):
            larger = self._maximum_with_signs(node.dtype, a, b)
        else:
            larger = self._maximum(node.dtype, a, b, not is_number(first) or has_nan(first))
        self.names[node] = larger

    def _maximum(self, dtype: DType, a: str, b: str, may_be_nan: bool) -> str:
        """The hardware's maximum, which returns its second operand if one is NaN, followed by a
        selection of the first if that is NaN: that is off the critical path of an accumulator."""
        kind = self.type(dtype)
        larger = self.choose(dtype, self.emit(f"fcmp ogt {kind} {a}, {b}"), a, b)
        if not may_be_nan:
            return larger
        return self.choose(dtype, self.emit(f"fcmp uno {kind} {a}, {a}"), a, larger)

    def _maximum_with_signs(self, dtype: DType, a: str, b: str) -> str:
        """Where zeros may meet, an operation that respects their signs: AVX-512's range, AVX's
        minimum of the negated operands, or LLVM's maximum."""
        if dtype in self.ranges:
            return self._range(dtype, a, b)
        if self.by_least and dtype in BITS_OF_A_VECTOR:
            return self._negated_least(dtype, a, b)
        if self.by_least and dtype in ONE_IN_A_VECTOR:
            return self._least_of_one(dtype, a, b)
        return self.intrinsic("llvm.maximum", dtype, a, b)

    def _range(self, dtype: DType, a: str, b: str) -> str:
        """The larger by AVX-512's instruction, which respects the signs of zeros but prefers a
        number to a NaN; so if one is NaN, their sum is taken."""
        kind, every = self.type(dtype), f"i{dtype.count}"
        given = (f"{kind} {a}", f"{kind} {b}", "i32 5", f"{kind} undef", f"{every} -1", "i32 4")
        types = f"{kind}, {kind}, i32, {kind}, {every}, i32"  # 5: the larger, with its own sign
        larger = self.emit(self.call(self.ranges[dtype], kind, *given, types=types))
        unordered, total = (self.emit(f"{op} {kind} {a}, {b}") for op in ("fcmp uno", "fadd"))
        return self.choose(dtype, unordered, total, larger)

    def _negated_least(self, dtype: DType, a: str, b: str) -> str:
        """The larger by AVX's minimum of the negated operands, which returns its second operand if
        one is NaN or both are zeros. Combining the bits of both orders gives a NaN, or the zero
        with a sign if there is one; otherwise both are the same. In a tree of maxima the negations
        cancel."""
        kind, bits = self.type(dtype), self.type(BITS_OF_A_VECTOR[dtype])
        a, b = (self.emit(f"fneg {kind} {each}") for each in (a, b))
        orders = ((a, b), (b, a))
        less = [self.choose(dtype, self.emit(f"fcmp olt {kind} {x}, {y}"), x, y) for x, y in orders]
        first, second = (self.emit(f"bitcast {kind} {each} to {bits}") for each in less)
        both = self.emit(f"or {bits} {first}, {second}")
        return self.emit(f"fneg {kind} {self.emit(f'bitcast {bits} {both} to {kind}')}")

    def _least_of_one(self, dtype: DType, a: str, b: str) -> str:
        """The same in the first lane of a vector. LLVM's maximum of two scalars tests the sign by a
        branch, which no processor can predict."""
        wide = ONE_IN_A_VECTOR[dtype]
        kind, one = self.type(wide), self.type(dtype)
        alone = [self.emit(f"insertelement {kind} poison, {one} {n}, i32 0") for n in (a, b)]
        return self.emit(f"extractelement {kind} {self._negated_least(wide, *alone)}, i32 0")

    def where(self, node: UOp) -> None:
        self.names[node] = self.choose(node.dtype, *(self.ref(source) for source in node.src))

    def cast(self, node: UOp) -> None:
        source = node.src[0]
        old, new = kind_of(source.dtype), kind_of(node.dtype)
        kind, target = self.type(source.dtype), self.type(node.dtype)
        value = self.ref(source)
        if dtypes.bfloat16 in (node.dtype.scalar(), source.dtype.scalar()) and target != kind:
            value = self._cast_bfloat(value, source.dtype, node.dtype)
        elif new == BOOL:
            if old != BOOL:
                word = "fcmp une" if old == FLOAT else "icmp ne"
                value = self.emit(f"{word} {kind} {value}, zeroinitializer")
        elif (old, new) == (BOOL, FLOAT) and node.dtype.count > 1:  # a mask needs no conversion
            one = f"splat ({self.types[node.dtype.scalar()]} 1.0)"
            value = self.choose(node.dtype, value, one, "zeroinitializer")
        elif kind != target:
            word = CASTS.get((old, new)) or self._resize(source.dtype, node.dtype)
            if word == "fpext" and source.dtype.itemsize == node.dtype.itemsize:  # half, bfloat16
                wide = self.vector("float", node.dtype.count)
                value, kind, word = self.emit(f"fpext {kind} {value} to {wide}"), wide, "fptrunc"
            value = self.emit(f"{word} {kind} {value} to {target}")
        self.names[node] = value

    def _cast_bfloat(self, value: str, old: DType, new: DType) -> str:
        """A cast to or from float32, by way of LLVM's own type: ours may be an integer."""
        own, wide = (self.vector(word, new.count) for word in ("bfloat", "float"))
        if new.scalar() is dtypes.bfloat16:
            value = self.emit(f"fptrunc {wide} {value} to {own}")
            return self.emit(f"bitcast {own} {value} to {self.type(new)}")
        value = self.emit(f"bitcast {self.type(old)} {value} to {own}")
        return self.emit(f"fpext {own} {value} to {wide}")

    def _resize(self, old: DType, new: DType) -> str:
        """The instruction that converts between two floats, or two integers."""
        wider = self.width(new) >= self.width(old)
        if kind_of(new) == FLOAT:
            return "fpext" if wider else "fptrunc"
        if not wider:
            return "trunc"
        return "sext" if kind_of(old) == SIGNED else "zext"

    def bitcast(self, node: UOp) -> None:
        source = node.src[0]
        value, kind = self.ref(source), self.type(source.dtype)
        target = self.type(node.dtype)
        if kind_of(source.dtype) == BOOL:
            kind = self.memory_type(source.dtype)
            value = self.emit(f"zext {self.typed(source)} to {kind}")
        if kind_of(node.dtype) == BOOL:
            value = self.emit(f"icmp ne {kind} {value}, zeroinitializer")
        elif kind != target:
            value = self.emit(f"bitcast {kind} {value} to {target}")
        self.names[node] = value


def _space(pointer: str) -> str:
    """The part of an intrinsic's name for the type of a pointer."""
    return "p" + (pointer.rpartition("(")[2].rstrip(")") if "(" in pointer else "0")


RULES: dict[Ops, Callable[[_Function, UOp], Any]] = {
    **dict.fromkeys((Ops.CONST, Ops.PARAM, Ops.DEFINE_VAR, Ops.LOCAL), _Function.nothing),
    **dict.fromkeys(BINARY, _Function.binary),
    **dict.fromkeys(SHIFTS, _Function.shift),
    **dict.fromkeys(UNARY, _Function.unary),
    Ops.BARRIER: _Function.barrier,
    Ops.SPECIAL: _Function.special,
    Ops.RANGE: _Function.range,
    Ops.CARRY: _Function.carry,
    Ops.END: _Function.end,
    Ops.IF: _Function.branch,
    Ops.ENDIF: _Function.end_branch,
    Ops.INDEX: _Function.index,
    Ops.LOAD: _Function.load,
    Ops.STORE: _Function.store,
    Ops.FAULT: fault,
    Ops.PREFETCH: _Function.prefetch,
    Ops.VECTORIZE: _Function.vectorize,
    Ops.GEP: _Function.gep,
    Ops.SHUFFLE: _Function.shuffle,
    Ops.RECIP: _Function.reciprocal,
    Ops.MULACC: _Function.multiply_add,
    Ops.LDEXP: _Function.scaled,
    Ops.MAX: _Function.maximum,
    Ops.WHERE: _Function.where,
    Ops.PICK: _Function.pick,
    Ops.CAST: _Function.cast,
    Ops.BITCAST: _Function.bitcast,
    Ops.EXCHANGE: exchange,
    Ops.GATHER: gather,
    Ops.FETCH: fetch,
    Ops.COMMIT: commit,
    Ops.WAIT: wait,
    Ops.TENSOR: _Function.nothing,
    Ops.SIGNAL: signal,
    Ops.WMMA: multiply,
    Ops.FENCE: fence,
    Ops.MATRIX: matrix,
}
