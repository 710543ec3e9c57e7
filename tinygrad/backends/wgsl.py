"""Linear program → WGSL, the language of WebGPU, for a target of words (`codegen/numbers/words`).

    // {"buffers": [[4, 16, 0, 1], [4, 16, 0, 1]], "variables": 0}
    struct Given { at0: i32, at1: i32, nothing: u32 }
    @group(0) @binding(0) var<storage, read_write> data0: array<i32>;
    @group(0) @binding(1) var<storage, read_write> data1: array<i32>;
    @group(0) @binding(2) var<uniform> given: Given;
    @compute @workgroup_size(1, 1, 1) fn E_4(@builtin(workgroup_id) group: vec3<u32>, ...) {
      for (var ridx0: i32 = 0; ridx0 < 4; ridx0++) {
        let val0: i32 = data1[given.at1+ridx0];
        data0[given.at0+ridx0] = (val0+7);
      }
    }

There are no pointers, and a buffer is bound where the device's alignment lets it: `at` says how
many elements further it begins. An array that no binding holds is bound in windows, data1_0,
data1_1 and so on, and functions choose the one that an element is in. Values have 32 bits (bool and
half apart); integers with fewer are cut to their size after what may overflow. Elements with fewer
share words of memory: a store clears its own bits and sets them, two atomic operations that touch
no other lane's.

What lanes a subgroup has is nowhere promised, but each lane is told which it is. So kernels whose
lanes exchange what they have number them by that.

The language lets a compiler assume that there are no NaNs. What is written here asks only whether
numbers are equal or less, never whether they differ, so it is right wherever NaNs are kept. It may
also take floats for real numbers: what it would cancel, as (a+b)-a, goes through `kept`, which
looks as if it could change it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from tinygrad.backends.program import (
    most_turns,
    params,
    special_sizes,
    touched,
    variables,
    zeros_may_meet,
)
from tinygrad.backends.statements import OPERATORS, Rules, Statements, Words, memory_of
from tinygrad.base.dtype import ConstType, DType, dtypes
from tinygrad.base.errors import CompileError, DTypeError, OutOfMemory
from tinygrad.base.target import Target
from tinygrad.base.windows import whole_window, windows
from tinygrad.uop.node import UOp
from tinygrad.uop.op import GroupOp, Ops, bit_cast

TYPES = {
    dtypes.bool: "bool",
    dtypes.index: "i32",
    dtypes.float16: "f16",
    dtypes.float32: "f32",
    dtypes.uint32.vec(2): "vec2<u32>",  # a variable of 64 bits
    **dict.fromkeys((dtypes.int8, dtypes.int16, dtypes.int32), "i32"),
    **dict.fromkeys((dtypes.uint8, dtypes.uint16, dtypes.uint32), "u32"),
}
NAMES = ", ".join(dtype.name for dtype in TYPES if dtype.count == 1)
SUFFIXES = {"u32": "u", "f32": "f", "f16": "h", "i32": ""}
ON_BOOLS = {
    Ops.ADD: "({0}|{1})",
    Ops.MUL: "({0}&{1})",
    Ops.MAX: "({0}|{1})",
    Ops.AND: "({0}&{1})",
    Ops.OR: "({0}|{1})",
    Ops.XOR: "({0}!={1})",
    Ops.CMPNE: "({0}!={1})",
    Ops.CMPEQ: "({0}=={1})",
    Ops.CMPLT: "(!{0}&{1})",
}
FUNCTIONS = {Ops.SQRT: "sqrt", Ops.TRUNC: "trunc", Ops.ROUND: "round", Ops.MULACC: "fma"}
WRAPPING = frozenset((Ops.ADD, Ops.MUL, Ops.SHL))
INFINITY, NAN = 0x7F800000, 0x7FC00000

WGSL = Words(
    name="WGSL",
    declare="let {name}: {type} = {value};",
    mutable="var {name}: {type} = {value};",
    loop="for (var {name}: {type} = {begin}; {name} < {end}; {name}++) {{",
    barrier="storageBarrier(); workgroupBarrier();",
    helpers=(
        ("f16", "enable f16;"),
        # a constant expression must be finite
        ("inf_bits", f"var<private> inf_bits: u32 = {INFINITY:#x}u;"),
        ("nan_bits", f"var<private> nan_bits: u32 = {NAN:#x}u;"),
        (
            "kept(",
            "fn kept(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x)^given.nothing); }",
        ),
        (  # naga has no bitcast of a half
            "kept_half(",
            "fn kept_half(x: f16) -> f16 { let bits = pack2x16float(vec2<f32>(f32(x), 0.0)); "
            "return f16(unpack2x16float(bits^given.nothing).x); }",
        ),
    ),
)
KEPT = {dtypes.float32: "kept", dtypes.float16: "kept_half"}
ACCESSES = {
    "read": "{at}",
    "fetch": "atomicLoad(&{at})",
    "write": "{at} = {x}",
    "clear": "atomicAnd(&{at}, {x})",
    "set": "atomicOr(&{at}, {x})",
}
SPECIALS = {
    "task": "group.x",
    **{f"gid{axis}": f"group.{name}" for axis, name in enumerate("xyz")},
    **{f"lid{axis}": f"lane.{name}" for axis, name in enumerate("xyz")},
}
INPUTS = "@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) lane: vec3<u32>"
OF_SUBGROUPS = "".join(
    f", @builtin(subgroup_{n}) {n}: u32" for n in ("id", "size", "invocation_id")
)


class WGSLRenderer:
    """Compute shaders. The first line tells the queue, as JSON, what they bind."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def render(self, name: str, program: Sequence[UOp]) -> str:
        return _Shader(program, self.target).render(name)


class _Shader(Statements):
    """One shader under construction. `places` has the memory that each pointer is in."""

    def __init__(self, program: Sequence[UOp], target: Target) -> None:
        super().__init__(program, WGSL)
        self.target = target
        self.windows: dict[UOp, list[int]] = {}  # of the arrays that no binding holds
        self.places: dict[UOp, UOp] = {}
        self.words_of: dict[UOp, str] = {}  # the names of memory
        self.globals: list[str] = []
        self.known: set[UOp] = set()
        for node in program:
            if node.op in GroupOp.Elementwise and all(map(self.is_known, node.src)):
                self.known.add(node)
        self.exchanges = any(node.op is Ops.EXCHANGE for node in program)
        written = (node.src[0] for node in program if node.op in (Ops.STORE, Ops.FAULT))
        self.written = {memory_of(pointer) for pointer in written}
        faults = (node.src[0] for node in program if node.op is Ops.FAULT)
        self.faults = {memory_of(pointer) for pointer in faults}

    def render(self, name: str) -> str:
        facts = self._arguments(name)
        limit = self.target.turn_limit
        if limit and (turns := most_turns(self.program)) > limit:
            raise CompileError(
                f"kernel {name}: a lane's loops turn {turns:,} times, and {self.target.cpu} ends "
                f"them after {limit:,} without a word: compute in parts"
            )
        self.write(STATEMENTS, EXPRESSIONS)
        sizes = special_sizes(self.program)
        block = ", ".join(str(sizes.get(f"lid{axis}", 1)) for axis in range(3))
        inputs = INPUTS + OF_SUBGROUPS * self.exchanges
        head = f"@compute @workgroup_size({block}) fn {name}({inputs}) {{"
        body = "\n".join([*self.globals, head, *self.lines, "}"])
        return "\n".join([f"// {json.dumps(facts)}", *self.helpers_of(body), body, ""])

    def _arguments(self, kernel: str) -> dict[str, object]:
        """Declares the host's data: buffers, and a struct with 64 bits of each variable and with
        the offset of each buffer. Returns for each buffer the bytes of an element and of all, and
        the windows through which it is seen. OutOfMemory for too many windows."""
        buffers, given = params(self.program), variables(self.program)
        members = [f"var{i}: vec2<u32>" for i in range(len(given))]
        members += [*(f"at{i}: i32" for i in range(len(buffers))), "nothing: u32"]
        self.globals.append(f"struct Given {{ {', '.join(members)} }}")
        used, largest = touched(self.program), self.target.window_limit
        facts: list[tuple[int, int, list[int]]] = []
        names: list[tuple[str, str]] = []
        for i, node in enumerate(buffers):
            self.words_of[node], self.places[node] = f"data{i}", node
            self.texts[node] = f"given.at{i}"
            size = node.dtype.itemsize
            if 0 < self.target.largest_buffer < node.arg[1] * size:
                raise OutOfMemory(
                    f"kernel {kernel} on {self.target.device}: an array of {node.arg[1] * size:,} "
                    f"bytes; a buffer takes {self.target.largest_buffer:,}"
                )
            seen = windows(used[node], size, node.arg[1], largest)
            facts.append((size, node.arg[1] * size, seen))
            own = [f"data{i}"]
            if seen != [0]:
                self.windows[node] = seen
                own = [f"data{i}_{window}" for window in seen]
            names += ((name, self.element(node)) for name in own)
        if 0 < self.target.buffer_limit < len(names):
            counts = " + ".join(str(len(seen)) for *_, seen in facts)
            raise OutOfMemory(
                f"kernel {kernel} on {self.target.device}: its arrays take {counts} bindings of "
                f"{largest:,} bytes; a kernel of this device has {self.target.buffer_limit}: "
                "compute in parts"
            )
        for i, (name, kind) in enumerate(names):
            declared = f"var<storage, read_write> {name}: array<{kind}>"
            self.globals.append(f"@group(0) @binding({i}) {declared};")
        self.globals.append(f"@group(0) @binding({len(names)}) var<uniform> given: Given;")
        for i, node in enumerate(given):
            self.texts[node] = self._variable(node.dtype, f"given.var{i}")
        return {"buffers": facts, "variables": len(given)}

    def access(self, how: str, memory: UOp, place: str, value: str = "") -> str:
        """The text that reads or changes an element of memory: a function, if the element may be in
        one of several windows."""
        name = self.words_of[memory]
        if memory not in self.windows:
            return ACCESSES[how].format(at=f"{name}[{place}]", x=value)
        function = f"{how}_{name}"
        if not any(f"fn {function}(" in line for line in self.globals):
            self.globals.append(self._chooser(how, function, memory))
        return f"{function}({place}{', ' if value else ''}{value})"

    def _chooser(self, how: str, function: str, memory: UOp) -> str:
        name, kind = self.words_of[memory], self.element(memory).replace("atomic<u32>", "u32")
        size = 4 if self._shares(memory.dtype) else memory.dtype.itemsize
        elements = whole_window(self.target.window_limit) // size
        returns = how in ("read", "fetch")
        cases = []
        for window in self.windows[memory]:
            at = f"{name}_{window}[i-{window * elements}]"
            case = ACCESSES[how].format(at=at, x="x")
            label = "default" if window == self.windows[memory][-1] else f"case {window}"
            cases.append(f"{label}: {{ {'return ' * returns}{case}; }}")
        head = f"(i: i32) -> {kind}" if returns else f"(i: i32, x: {kind})"
        return f"fn {function}{head} {{ switch i/{elements} {{ {' '.join(cases)} }} }}"

    def _variable(self, dtype: DType, words: str) -> str:
        if dtype in (dtypes.int64, dtypes.uint64):
            return words
        return self._cut(dtype, f"bitcast<i32>({words}.x)" if self.type(dtype) == "i32" else words)

    # ---- types -----------------------------------------------------------------------------------

    def type(self, dtype: DType) -> str:
        found = TYPES.get(dtype)
        if found is None:
            raise DTypeError(
                f"{dtype.name}: WGSL computes with {NAMES}, one number at a time; legal are casts "
                "to those, and recipes without vectors"
            )
        return found

    def element(self, memory: UOp) -> str:
        """The element type of an array in storage: numbers that share words are words."""
        if memory.dtype.itemsize < 4 and memory.dtype is not dtypes.float16:
            return "atomic<u32>" if memory in self.written else "u32"
        return "atomic<u32>" if memory in self.faults else self.type(memory.dtype)

    def constant(self, node: UOp) -> str:
        return self.number(node.arg, node.dtype)

    def number(self, value: ConstType, dtype: DType) -> str:
        kind = self.type(dtype)
        if dtype is dtypes.bool:
            return "true" if value else "false"
        if dtypes.is_int(dtype):
            return f"{int(value)}{SUFFIXES[kind]}"
        if math.isfinite(value):
            return f"{float(value)!r}{SUFFIXES[kind]}"
        found = f"bitcast<f32>({'nan_bits' if value != value else 'inf_bits'})"
        found = f"(-{found})" if value < 0 else found
        return found if kind == "f32" else f"{kind}({found})"

    # ---- arithmetic ------------------------------------------------------------------------------

    def binary(self, node: UOp) -> str:
        left, right = node.src
        a, b = self.ref(left), self.ref(right)
        if left.dtype is dtypes.bool:
            return ON_BOOLS[node.op].format(a, b)
        if node.op is Ops.CMPNE and dtypes.is_float(left.dtype):
            return f"(!({a}=={b}))"
        if node.dtype in KEPT and node.op in (Ops.ADD, Ops.MUL, Ops.FDIV):
            a, b = (
                f"{KEPT[node.dtype]}({text})" if self.is_undone(node.op, this, other) else text
                for text, this, other in ((a, left, right), (b, right, left))
            )
        return self.cut(node, f"({a}{OPERATORS[node.op]}{b})")

    def is_undone(self, op: Ops, node: UOp, other: UOp) -> bool:
        """Whether a compiler that treats floats as real numbers would cancel `node` with `other`,
        or add up their constants, or replace a product with 0 by 0, or -0.0 + 0 by -0.0."""
        if node.op is Ops.CONST and node.arg == 0:
            return True
        if op is not Ops.ADD:  # nothing is 0 * x, if x is finite
            return False
        inner, opposite = _plain(node), _plain(other)
        if inner is opposite or inner.op is not Ops.ADD:
            return inner is opposite and node is not other
        parts = [_plain(part) for part in inner.src]
        is_folded = self.is_known(opposite) and any(map(self.is_known, parts))
        return is_folded or opposite in parts

    def is_known(self, node: UOp) -> bool:
        """Whether a compiler could compute the value."""
        return node.op is Ops.CONST or node in self.known

    def shift(self, node: UOp) -> str:
        value, amount = node.src
        by = f"{amount.arg}u" if amount.op is Ops.CONST else f"u32({self.ref(amount)})"
        operator = "<<" if node.op is Ops.SHL else ">>"
        return self.cut(node, f"({self.ref(value)}{operator}{by})")

    def cut(self, node: UOp, text: str) -> str:
        return self._cut(node.dtype, text) if node.op in WRAPPING else text

    def _cut(self, dtype: DType, text: str) -> str:
        """32 bits as the number in their lowest bits."""
        if not dtypes.is_int(dtype) or dtype.itemsize >= 4 or dtype is dtypes.index:
            return text
        if dtypes.is_unsigned(dtype):
            return f"({text}&{(1 << dtype.bitsize) - 1:#x}u)"
        return f"(({text}<<{32 - dtype.bitsize}u)>>{32 - dtype.bitsize}u)"

    def function(self, node: UOp) -> str:
        sources = [self.ref(source) for source in node.src]
        return f"{FUNCTIONS[node.op]}({', '.join(sources)})"

    def maximum(self, node: UOp) -> str:
        """NaN if either operand is: the first is chosen if it is larger or NaN. Two zeros are
        added, which gives 0.0 unless both are -0.0."""
        first, second = node.src
        if first.dtype is dtypes.bool:
            return self.binary(node)
        a, b = (s.op is Ops.CONST and self.ref(s) or self.atom(s) for s in node.src)
        if not dtypes.is_float(first.dtype):
            return f"max({a}, {b})"
        other = f"select({b}, {a}+{b}, ({a}==0)&({b}==0))" if zeros_may_meet(node) else b
        return f"select({other}, {a}, ({a}>{b})|!({a}=={a}))"

    def where(self, node: UOp) -> str:
        condition, yes, no = (self.ref(source) for source in node.src)
        return f"select({no}, {yes}, {condition})"

    def exchange(self, node: UOp) -> str:
        value, is_bool = self.ref(node.src[0]), node.dtype is dtypes.bool
        found = f"subgroupShuffleXor({f'u32({value})' if is_bool else value}, {node.arg}u)"
        return f"({found}!=0u)" if is_bool else found

    def cast(self, node: UOp) -> str:
        (source,) = node.src
        old, new = source.dtype, node.dtype
        if source.op is Ops.CONST and dtypes.is_int(new) and not dtypes.is_float(old):
            return self.number(dtypes.as_const(source.arg, new), new)
        value = self.ref(source)
        if new is dtypes.bool and old is not new:
            return f"(!({value}=={self.number(0, old)}))"
        found = value if self.type(old) == self.type(new) else f"{self.type(new)}({value})"
        is_whole = old is dtypes.bool or dtypes.is_float(old) or new.holds(old.min, old.max)
        return found if is_whole else self._cut(new, found)

    def bitcast(self, node: UOp) -> str:
        (source,) = node.src
        old, new = source.dtype, node.dtype
        if source.dtype in (dtypes.int64, dtypes.uint64, dtypes.index):
            return self.ref(source)  # a variable's words
        if source.op is Ops.CONST and dtypes.bool not in (old, new):
            return self.number(bit_cast(source.arg, old, new), new)
        value, kind = self.ref(source), self.type(new)
        if dtypes.bool in (old, new):
            return self.cast(node)
        if old is new:
            return value
        if old is dtypes.float16:  # naga has no bitcasts between widths, of f16 to two of them
            bits = f"pack2x16float(vec2<f32>(f32({value}), 0.0))"
            return self._cut(new, bits if kind == "u32" else f"bitcast<{kind}>({bits})")
        if new is dtypes.float16:
            bits = value if self.type(old) == "u32" else f"bitcast<u32>({value})"
            return f"f16(unpack2x16float({bits}).x)"
        return value if self.type(old) == kind else self._cut(new, f"bitcast<{kind}>({value})")

    def word(self, node: UOp) -> str:
        """A half of a 64-bit variable."""
        return f"{self.ref(node.src[0])}.{'xy'[node.arg]}"

    # ---- memory ----------------------------------------------------------------------------------

    def local(self, node: UOp) -> None:
        name = self.words_of[node] = f"local{len(self.words_of)}"
        self.texts[node], self.places[node] = "", node
        kind = f"array<{self.type(node.dtype)}, {node.arg[1]}>"
        self.globals.append(f"var<workgroup> {name}: {kind};")

    def special(self, node: UOp) -> None:
        word = self.texts[node] = node.arg[0]
        is_lane = word == "lid0" and self.exchanges
        value = f"i32({'id*size+invocation_id' if is_lane else SPECIALS[word]})"
        self.declare(self.words.declare, node.dtype, word, value)

    def index(self, node: UOp) -> None:
        pointer, offset = node.src
        self.places[node] = self.places[pointer]
        if offset.op is not Ops.CONST and node not in self.once:
            self.atom(offset)
        before = self.texts[pointer]
        self.texts[node] = f"{before}+{self.ref(offset)}" if before else self.ref(offset)

    def load(self, node: UOp) -> None:
        pointer, *mask = node.src
        text = self._read(pointer)
        if not mask:
            self.define(node, text)
            return
        name = self.texts[node] = self.fresh(node)
        self.declare(self.words.mutable, node.dtype, name, self.number(0, node.dtype))
        self.line(f"if ({self.ref(mask[0])}) {{ {name} = {text}; }}")

    def _read(self, pointer: UOp) -> str:
        memory, offset = self.places[pointer], self.texts[pointer] or "0"
        dtype = memory.dtype
        if memory.op is Ops.LOCAL or not self._shares(dtype):
            return self.access("read", memory, offset)
        place, shift = self._within(dtype, offset)
        word = self.access("fetch" if memory in self.written else "read", memory, place)
        if dtype is dtypes.bool:
            return f"((({word}>>{shift})&0xffu)!=0u)"
        bits = f"({word}>>{shift})"
        return self._cut(dtype, bits if self.type(dtype) == "u32" else f"bitcast<i32>{bits}")

    def _shares(self, dtype: DType) -> bool:
        return dtype.itemsize < 4 and dtype is not dtypes.float16

    def _within(self, dtype: DType, offset: str) -> tuple[str, str]:
        """The word of an element, and its bit offset in that word."""
        each = 4 // dtype.itemsize
        shift = f"((u32({offset})&{each - 1}u)*{dtype.bitsize if each == 2 else 8}u)"
        return f"({offset})>>{each.bit_length() - 1}u", shift

    def store(self, node: UOp) -> None:
        pointer, value, *mask = node.src
        memory, offset = self.places[pointer], self.texts[pointer] or "0"
        dtype, text = memory.dtype, self.ref(value)
        if mask:
            self.line(f"if ({self.ref(mask[0])}) {{")
            self.indent += "  "
        if memory.op is Ops.LOCAL or not self._shares(dtype):
            self.line(f"{self.access('write', memory, offset, text)};")
        else:
            place, shift = self._within(dtype, offset)
            ones = (1 << 8 * dtype.itemsize) - 1
            bits = text if self.type(dtype) == "u32" else f"u32({text})"
            for how, x in (
                ("clear", f"~({ones:#x}u<<{shift})"),
                ("set", f"({bits}&{ones:#x}u)<<{shift}"),
            ):
                self.line(f"{self.access(how, memory, place, x)};")
        if mask:
            self.close(node)

    def fault(self, node: UOp) -> None:
        """The first to claim the last word, which nothing else uses, writes. There is no loop: a
        driver that ends loops after a number of turns would count one for lanes without a fault,
        too."""
        pointer, failed, *operands = node.src
        whole = self.places[pointer]
        name, offset = self.words_of[whole], self.texts[pointer]
        lock = f"{offset}+{whole.arg[1] * whole.dtype.itemsize // 4 - 1}"
        self.line(f"if ({self.ref(failed)}) {{ if (atomicExchange(&{name}[{lock}], 1u) == 0u) {{")
        for i, value in enumerate((f"{node.arg}u", *map(self.ref, operands))):
            self.line(f"  atomicStore(&{name}[{offset}{f'+{i}' if i else ''}], {value});")
        self.line("} }")


def _plain(node: UOp) -> UOp:
    """The term that is added or, times -1, subtracted."""
    is_negated = node.op is Ops.MUL and node.src[1].op is Ops.CONST and node.src[1].arg == -1
    return node.src[0] if is_negated else node


EXPRESSIONS: Rules = {
    **dict.fromkeys(OPERATORS, _Shader.binary),
    **dict.fromkeys((Ops.SHL, Ops.SHR), _Shader.shift),
    **dict.fromkeys(FUNCTIONS, _Shader.function),
    Ops.RECIP: _Shader.reciprocal,
    Ops.MAX: _Shader.maximum,
    Ops.WHERE: _Shader.where,
    Ops.EXCHANGE: _Shader.exchange,
    Ops.CAST: _Shader.cast,
    Ops.BITCAST: _Shader.bitcast,
    Ops.GEP: _Shader.word,
}
STATEMENTS: Rules = {
    Ops.LOCAL: _Shader.local,
    Ops.SPECIAL: _Shader.special,
    Ops.INDEX: _Shader.index,
    Ops.LOAD: _Shader.load,
    Ops.STORE: _Shader.store,
    Ops.FAULT: _Shader.fault,
}
