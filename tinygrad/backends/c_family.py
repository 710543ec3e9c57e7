"""Linear program → a language that looks like C, to be read by people and by compilers.

    void E_4n2(int* restrict data0, int* restrict data1) {
      for (int ridx0 = 0; ridx0 < 4; ridx0++) {
        int val0 = *(data1+ridx0);
        *(data0+ridx0) = (val0+7);
      }
    }

Integers of C are promoted to int, so shorter results are cast back. Scopes and names are those of
`statements`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tinygrad.backends.c_dialect import C, Dialect
from tinygrad.backends.c_text import Writer
from tinygrad.backends.program import (
    halved,
    local_layout,
    params,
    special_sizes,
    variables,
    zeros_may_meet,
)
from tinygrad.backends.statements import OPERATORS, Rules, memory_of
from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop import Ops, UOp

BINARY = OPERATORS | {Ops.SHL: "<<", Ops.SHR: ">>"}
ON_BOOLS = BINARY | {Ops.ADD: "|", Ops.MUL: "&", Ops.MAX: "|"}
CHAINED = frozenset((Ops.ADD, Ops.MUL, Ops.AND, Ops.OR, Ops.XOR))  # (a+b)+c is a+b+c
COMPARES = frozenset((Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ))
# On vectors of bools, whose lanes are 0 or -1.
ON_BOOL_VECTORS = {Ops.CMPLT: "(~{0}&{1})", Ops.CMPNE: "({0}^{1})", Ops.CMPEQ: "(~({0}^{1}))"}
FUNCTIONS = {
    Ops.SQRT: "sqrt",
    Ops.TRUNC: "trunc",
    Ops.ROUND: "rint",
    Ops.EXP2: "exp2",
    Ops.LOG2: "log2",
    Ops.SIN: "sin",
    Ops.COS: "cos",
    Ops.POW: "pow",
    Ops.LDEXP: "ldexp",
}
MASKS = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
WRAPPING = frozenset((Ops.ADD, Ops.MUL, Ops.SHL))


class CRenderer:
    """Functions in one dialect. `entry` adds `name_run` with the CPU's calling convention."""

    def __init__(self, dialect: Dialect = C, entry: bool = False) -> None:
        self.dialect = dialect
        self.entry = entry

    def render(self, name: str, program: Sequence[UOp]) -> str:
        function = _Function(program, self.dialect)
        source = function.render(name)
        return source + function.render_entry(name) if self.entry else source


class _Function(Writer):
    """One function under construction."""

    def __init__(self, program: Sequence[UOp], dialect: Dialect) -> None:
        super().__init__(program, dialect)
        self.parameters: list[str] = []

    def render(self, name: str) -> str:
        self._arguments()
        self.write(STATEMENTS, EXPRESSIONS)
        parameters = ", ".join(self.parameters)
        lanes = prod(size for key, size in special_sizes(self.program).items() if "lid" in key)
        head = self.dialect.head.format(name=name, parameters=parameters, lanes=lanes)
        body = "\n".join([head, *self.lines, "}"])
        return "\n".join([*self.helpers_of(body), *self.typedefs.values(), body, ""])

    def render_entry(self, name: str) -> str:
        """A second function, with the calling convention of a CPU."""
        kinds = ["{}"] * len(params(self.program)) + ["(long long){}"] * len(self.parameters)
        given = [kind.format(f"args[{i}]") for i, kind in enumerate(kinds)]
        words = [parameter.rsplit(" ", 1)[1] for parameter in self.parameters]
        kept = ("task", "scratch")
        arguments = (word if word in kept else given[i] for i, word in enumerate(words))
        head = f"void {name}_run(void** args, long long lo, long long hi, char* scratch)"
        loop = "for (long long task = lo; task < hi; task++)"
        return f"{head} {{\n  {loop} {name}({', '.join(arguments)});\n}}\n"

    def _arguments(self) -> None:
        for i, node in enumerate(params(self.program)):
            self.texts[node] = f"data{i}"
            facts = {"type": self.memory_type(node.dtype), "name": f"data{i}", "slot": i}
            self.parameters.append(self.dialect.pointer.format(**facts))
            if self.dialect.begin:
                self.line(self.dialect.begin.format(**facts))
        whole = self.dialect.types[dtypes.int64]
        for i, node in enumerate(variables(self.program)):
            word = f"var_{node.arg[0]}" if node.arg[0].isidentifier() else f"var{i}"
            self.texts[node] = f"({self.type(node.dtype)}){word}"
            facts = {"type": whole, "name": word, "slot": len(self.parameters)}
            self.parameters.append(self.dialect.bound.format(**facts))
        offsets, total = local_layout(self.program)
        if total and "scratch" in self.dialect.local:
            self.parameters.append("char* restrict scratch")
        for i, (node, offset) in enumerate(offsets.items()):
            self.texts[node] = f"local{i}"
            place = {"name": f"local{i}", "offset": offset, "size": node.arg[1]}
            self.line(self.dialect.local.format(type=self.memory_type(node.dtype), **place))

    # ---- expressions -----------------------------------------------------------------------------

    def binary(self, node: UOp) -> str:
        left, right = node.src
        scalar, count = left.dtype.scalar(), left.dtype.count
        a, b = self.ref(left), self.ref(right)
        if scalar is dtypes.bool:
            if count > 1 and node.op in ON_BOOL_VECTORS:
                return ON_BOOL_VECTORS[node.op].format(a, b)
            if count == 1 and node.op is Ops.CMPNE and right.op is Ops.CONST and right.arg:
                return f"(!{a})"
        operator = (ON_BOOLS if scalar is dtypes.bool else BINARY)[node.op]
        if self.may_overflow(node):
            return self.as_unsigned(node, lambda x, y: f"{x}{operator}{y}")
        if node.op in CHAINED and left.op is node.op and a.startswith("("):
            a = a[1:-1]
        if b.startswith("-") and operator == "+":
            operator = ""
        if node.op in COMPARES and count > 1:
            return self.compared(node.dtype, f"({a}{operator}{b})")
        negated = operator == "*" and right.op is Ops.CONST and right.arg == -1
        if negated and not dtypes.is_unsigned(scalar):
            plain = f"-({a})" if a.startswith("-") else f"-{self.ref(left)}"
            return self.narrow(node, plain)
        return self.narrow(node, f"({a}{operator}{b})")

    def narrow(self, node: UOp, text: str) -> str:
        """`text` truncated to the node's size, since C computes with int."""
        short = dtypes.is_int(node.dtype) and node.dtype.itemsize < 4
        return f"(({self.type(node.dtype)}){text})" if short and node.op in WRAPPING else text

    def may_overflow(self, node: UOp) -> bool:
        """Whether overflow of this integer is undefined in the language."""
        if self.dialect.wraps or node.op not in WRAPPING:
            return False
        scalar = node.dtype.scalar()
        return scalar in dtypes.sints or scalar in (dtypes.uint8, dtypes.uint16)

    def as_unsigned(self, node: UOp, function: Callable[..., str]) -> str:
        """`function` of the sources' texts, computed on unsigned integers of 32 or 64 bits."""
        dtype = node.dtype
        wide = dtypes.uint64 if dtype.scalar().itemsize == 8 else dtypes.uint32
        if dtype.count == 1:
            sources = [f"({self.type(wide)}){self.ref(source)}" for source in node.src]
            return f"(({self.type(dtype)})({function(*sources)}))"
        sources = [self.convert(wide.vec(dtype.count), self.ref(source)) for source in node.src]
        return self.convert(dtype, function(*sources))

    def function(self, node: UOp) -> str:
        return self.call(FUNCTIONS[node.op], node)

    def call(self, name: str, node: UOp) -> str:
        if node.dtype.scalar() is dtypes.float32:
            name += self.dialect.single
        sources = ", ".join(self.ref(source) for source in node.src)
        if node.dtype.count == 1:
            return f"{name}({sources})"
        facts = {"name": name, "type": self.type(node.dtype), "count": len(node.src)}
        return self.dialect.lanewise.format(sources=sources, **facts)

    def multiply_add(self, node: UOp) -> str:
        return self.call("fma", node)  # `decompose` leaves those of floats only

    def maximum(self, node: UOp) -> str:
        """NaN if either operand is: the first is chosen if it is larger or NaN. Two zeros are
        added, which gives 0.0 unless both are -0.0."""
        first, second = node.src
        if node.dtype.scalar() is dtypes.bool:
            return self.binary(node)
        if second.op is Ops.CONST:
            first, second = second, first
        a = self.ref(first) if first.op is Ops.CONST else self.atom(first)
        b = self.atom(second) if second.op is not Ops.CONST else self.ref(second)
        if found := self._extreme("larger", node, a, b):
            return found
        larger, other = f"{a}>{b}", b
        if dtypes.is_float(node.dtype) and (first.op is not Ops.CONST or first.arg != first.arg):
            larger = f"({larger})|({a}!={a})" if node.dtype.count > 1 else f"{larger}||{a}!={a}"
        if zeros_may_meet(node):
            zeros = f"(({b}==0)&({a}==0))"
            other = f"({zeros}?{a}+{b}:{b})" if node.dtype.count == 1 else ""
            other = other or self.choose(node.dtype, zeros, f"({a}+{b})", b)
        if node.dtype.count == 1:
            return f"({larger}?{a}:{other})"
        return self.choose(node.dtype, f"({larger})", a, other)

    def where(self, node: UOp) -> str:
        condition, yes, no = (self.ref(source) for source in node.src)
        if node.dtype.count == 1:
            return f"({condition}?{yes}:{no})"
        if node.src[0].op is Ops.CMPLT and set(node.src[0].src) == set(node.src[1:]):
            name = "smaller" if node.src[0].src == node.src[1:] else "larger"
            if found := self._extreme(name, node, yes, no):
                return found
        return self.choose(node.dtype, self._as_mask(node) or condition, yes, no)

    def _extreme(self, name: str, node: UOp, a: str, b: str) -> str:
        """The smaller or larger integers of two vectors, as a compiler recognises them."""
        if node.dtype.count == 1 or not dtypes.is_int(node.dtype.scalar()):
            return ""
        facts = {"name": name, "type": self.type(node.dtype), "sources": f"{a}, {b}"}
        return self.dialect.extreme.format(**facts)

    def _as_mask(self, node: UOp) -> str:
        """The condition of a WHERE, if it is a comparison used only there, of numbers as wide as
        the values: it is left as it is, so that compilers recognise a minimum."""
        condition = node.src[0]
        if condition not in self.once or condition.op not in COMPARES:
            return ""
        compared = condition.src[0].dtype.scalar()
        if compared is dtypes.bool or compared.itemsize != node.dtype.scalar().itemsize:
            return ""
        return BINARY[condition.op].join(self.ref(source) for source in condition.src)

    def choose(self, dtype: DType, condition: str, yes: str, no: str) -> str:
        mask = self.type(MASKS[dtype.scalar().itemsize].vec(dtype.count))
        facts = {"condition": condition, "yes": yes, "no": no, "mask": mask, "count": dtype.count}
        return self.dialect.choose.format(type=self.type(dtype), **facts)

    def cast(self, node: UOp) -> str:
        source = node.src[0]
        old, new = source.dtype.scalar(), node.dtype.scalar()
        if node.dtype.count == 1:
            return self._cast_scalar(self.ref(source), old, new)
        if self.is_bits(old) or self.is_bits(new):
            return self.lanes(
                node.dtype, lambda lane: self._cast_scalar(self.lane(source, lane), old, new)
            )
        value = self.ref(source)
        if new is dtypes.bool:
            return value if old is new else self.truth(node.dtype, value, old)
        return self.convert(node.dtype, f"-{value}" if old is dtypes.bool else value)

    def _cast_scalar(self, value: str, old: DType, new: DType) -> str:
        if self.types[old] == self.types[new]:
            return value
        if self.is_bits(old):
            return self._cast_scalar(f"half_to_float({value})", dtypes.float32, new)
        if self.is_bits(new):
            if old is dtypes.float64:
                return f"double_to_half({value})"
            return f"float_to_half({self._cast_scalar(value, old, dtypes.float32)})"
        return f"({value}!=0)" if new is dtypes.bool else f"({self.types[new]}){value}"

    def bitcast(self, node: UOp) -> str:
        source = node.src[0]
        if dtypes.bool in (source.dtype.scalar(), node.dtype.scalar()):
            return self.cast(node)
        old, new = self.type(source.dtype), self.type(node.dtype)
        value = self.ref(source)
        if old == new:
            return value
        if source.dtype.itemsize < 4:  # the value may have been promoted to int
            value = f"({old}){value}"
        return self.dialect.bits.format(type=new, value=value)

    def vectorize(self, node: UOp) -> str:
        if len(node.src) > 1:
            return self.lanes(node.dtype, lambda lane: self.ref(node.src[lane]))
        return self.splat(node.dtype, self.ref(node.src[0]))

    def gep(self, node: UOp) -> str:
        return self.lane(node.src[0], node.arg)

    def shuffle(self, node: UOp) -> str:
        left, right = node.src
        count = left.dtype.count

        def pick(lane: int) -> str:
            at = node.arg[lane]
            return self.lane(left, at) if at < count else self.lane(right, at - count)

        return self.lanes(node.dtype, pick)

    def load(self, node: UOp) -> str:
        pointer, dtype = self.ref(node.src[0]), node.dtype
        mask = node.src[1] if len(node.src) > 1 else None
        if mask is not None and mask.dtype.count > 1:
            return self.lanes(dtype, lambda lane: self._element(pointer, dtype, mask, lane))
        if dtype.count == 1:
            return self._element(pointer, dtype, mask, 0)
        text = self.dialect.load.format(**self.vector_facts(node, dtype))
        if dtype.scalar() is dtypes.bool:
            text = self.truth(dtype, text, dtypes.int8)
        if mask is None:
            return text
        zeros = self.splat(dtype, self.number(0, dtype.scalar()))
        return f"({self.ref(mask)}?{text}:{zeros})"

    def _element(self, pointer: str, dtype: DType, mask: UOp | None, lane: int) -> str:
        text = f"*({pointer}+{lane})" if lane else f"*({pointer})"
        if dtype.scalar() is dtypes.bool and self.dialect.bool_memory != self.types[dtypes.bool]:
            text = f"({text}!=0)"
        if mask is None:
            return text
        return f"({self.lane(mask, lane)}?{text}:{self.number(0, dtype.scalar())})"

    # ---- statements ------------------------------------------------------------------------------

    def special(self, node: UOp) -> None:
        word = self.texts[node] = node.arg[0]
        value = self.dialect.specials[word]
        if value == word:
            self.parameters.append(f"const {self.dialect.types[dtypes.index]} {word}")
        else:
            self.line(f"{self.type(node.dtype)} {word} = {value};")

    def index(self, node: UOp) -> None:
        pointer, offset = node.src
        if offset.op is not Ops.CONST and node not in self.once:
            self.atom(offset)
        self.texts[node] = f"{self.ref(pointer)}+{self.ref(offset)}"

    def pick(self, node: UOp) -> None:
        """One of a few, by comparisons."""
        number, *choices = node.src
        at, texts = self.atom(number), [self.ref(choice) for choice in choices]
        value = halved(texts, lambda middle, low, high: f"({at}<{middle}?{low}:{high})")
        if choices[0].op is not Ops.PARAM:
            self.texts[node] = value
            self.name(node)
            return
        name = self.texts[node] = self.fresh(node)
        facts = {"type": self.memory_type(node.dtype), "value": value}
        self.line(self.dialect.picked.format(name=name, **facts))

    def exchange(self, node: UOp) -> None:
        """By a name, since all lanes must take part; numbers of 64 bits as pairs of words."""
        (source,), value = node.src, self.ref(node.src[0])
        pair, wide = self.type(dtypes.uint32.vec(2)), node.dtype.itemsize == 8
        if wide:
            value = self.dialect.bits.format(type=pair, value=f"({self.type(source.dtype)}){value}")
        text = self.dialect.exchange.format(value=value, mask=node.arg)
        if wide:
            text = self.dialect.bits.format(type=self.type(node.dtype), value=text)
        self.texts[node] = text
        self.name(node)

    def store(self, node: UOp) -> None:
        target, value = node.src[:2]
        pointer, dtype = self.ref(target), value.dtype
        mask = node.src[2] if len(node.src) > 2 else None
        if mask is not None and mask.dtype.count > 1:
            for lane in range(dtype.count):
                at = f"*({pointer}+{lane})" if lane else f"*({pointer})"
                self.line(f"if ({self.lane(mask, lane)}) {at} = {self.lane(value, lane)};")
            return
        condition = "" if mask is None else f"if ({self.ref(mask)}) "
        if dtype.count == 1:
            self.line(f"{condition}*({pointer}) = {self.ref(value)};")
            return
        text = self.ref(value)
        if dtype.scalar() is dtypes.bool:
            text = f"-{text}"
        facts = self.vector_facts(node, dtype)
        self.line(condition + self.dialect.store.format(value=text, **facts))

    def vector_facts(self, node: UOp, dtype: DType) -> dict[str, Any]:
        """The values that the templates for loading and storing a vector need. The type is packed
        if the vector may be aligned to elements only."""
        pointer, aligned = node.src[0], node.arg[0]
        facts = {"type": self.type(dtype), "pointer": self.ref(pointer), "count": dtype.count}
        space = self.dialect.spaces[memory_of(pointer).op is Ops.LOCAL]
        return facts | {"space": space, "packed": "packed_" * (aligned < dtype.itemsize)}

    def fault(self, node: UOp) -> None:
        """The first to find a fault claims the first word and writes the others."""
        words, failed, *operands = node.src
        pointer = self.ref(words)
        take = self.dialect.take.format(pointer=pointer, code=node.arg)
        if failed.dtype.count > 1:
            lanes = (self.lane(failed, lane) for lane in range(failed.dtype.count))
            self.line(f"if ({'|'.join(lanes)}) {{")
        for lane in range(failed.dtype.count):
            condition = self.lane(failed, lane)
            values = [self.lane(operand, lane) for operand in operands]
            self.line(f"if ({condition} && {take}) {{")
            for i, value in enumerate(values, 1):
                self.line(f"  *({pointer}+{i}) = {value};")
            self.line("}")
        if failed.dtype.count > 1:
            self.line("}")


EXPRESSIONS: Rules = {
    **dict.fromkeys(BINARY, _Function.binary),
    **dict.fromkeys(FUNCTIONS, _Function.function),
    Ops.MULACC: _Function.multiply_add,
    Ops.RECIP: _Function.reciprocal,
    Ops.MAX: _Function.maximum,
    Ops.WHERE: _Function.where,
    Ops.CAST: _Function.cast,
    Ops.BITCAST: _Function.bitcast,
    Ops.VECTORIZE: _Function.vectorize,
    Ops.GEP: _Function.gep,
    Ops.SHUFFLE: _Function.shuffle,
    Ops.LOAD: _Function.load,
}
STATEMENTS: Rules = {
    Ops.LOCAL: _Function.nothing,
    Ops.SPECIAL: _Function.special,
    Ops.INDEX: _Function.index,
    Ops.EXCHANGE: _Function.exchange,
    Ops.STORE: _Function.store,
    Ops.FAULT: _Function.fault,
    Ops.PICK: _Function.pick,
}
