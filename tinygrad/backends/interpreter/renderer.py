"""Linear program → Python, one line an instruction.

    fit_float = fit('float')
    def E_4(buffers, values, group, lane, memories):
        data0 = view(buffers[0], 'float')
        data1 = view(buffers[1], 'float')
        ridx0 = 0
        while True:
            val0 = load(data1, ridx0)
            alu0 = fit_float(val0 + 7.0)
            store(data0, ridx0, alu0)
            ridx0 += 1
            if not ridx0 < 4: break

A vector is a tuple, a loop is a `while` that turns at least once, a BARRIER is a `yield`: the
queue advances all lanes of a group to it before any goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinygrad.backends.program import carries, params, variables
from tinygrad.backends.statements import OPERATORS as SIGNS
from tinygrad.backends.statements import PREFIXES
from tinygrad.base.dtype import DType, dtypes
from tinygrad.loops.matrix_units import UNITS
from tinygrad.uop import GroupOp, Ops, UOp
from tinygrad.uop.natural import natural_exponent

# Ops that Python's own operators mean; the dtypes whose results these keep need no fitting.
OTHERWISE = (Ops.FDIV, Ops.IDIV, Ops.MOD)
OPERATORS = {op: sign for op, sign in SIGNS.items() if op not in OTHERWISE}
CLOSED = frozenset((Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ))
UNBOUNDED = frozenset((dtypes.index, dtypes.float64))
SPECIALS = {"task": "group[0]"} | {
    f"{short}{axis}": f"{long}[{axis}]"
    for short, long in (("gid", "group"), ("lid", "lane"))
    for axis in range(3)
}


class PythonRenderer:
    """Functions `name(buffers, values, group, lane, memories)`."""

    def render(self, name: str, program: Sequence[UOp]) -> str:
        return _Function(program).render(name)


class _Function:
    """One function while it is written."""

    def __init__(self, program: Sequence[UOp]) -> None:
        self.program = program
        self.names: dict[UOp, str] = {}
        self.pointers: dict[UOp, tuple[str, str]] = {}  # memory, element
        self.counts: dict[str, int] = {}
        self.header: dict[str, str] = {}  # functions made for a dtype
        self.lines: list[str] = []
        self.indent = "    "
        self.carried = carries(program)

    def render(self, name: str) -> str:
        for i, node in enumerate(params(self.program)):
            self.pointers[node] = (f"data{i}", "0")
            self.line(f"data{i} = view(buffers[{i}], {node.dtype.name!r})")
        for i, node in enumerate(variables(self.program)):
            self.names[node] = f"var{i}"
            self.line(f"var{i} = values[{i}]  # {node.arg[0]}")
        if any(node.op is Ops.COMMIT and not node.src for node in self.program):
            self.line("coming, fetches = [], []")
        for node in self.program:
            rule = RULES.get(node.op)
            if rule is not None:
                rule(self, node)
            elif node.op in GroupOp.ALU or node.op in EXPRESSIONS:
                self.assign(node, self.expression(node))
            else:
                raise NotImplementedError(f"[PYTHON] {node.op!r}")
        head = f"def {name}(buffers, values, group, lane, memories):"
        made = [f"{short} = {long}" for short, long in self.header.items()]
        return "\n".join([*made, head, *(self.lines or ["    pass"]), ""])

    # ---- words -----------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def fresh(self, prefix: str) -> str:
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}{number}"

    def assign(self, node: UOp, expression: str) -> None:
        name = self.names[node] = self.fresh(PREFIXES.get(node.op, "alu"))
        self.line(f"{name} = {expression}")

    def made(self, function: str, *words: str) -> str:
        """The name of a function that is made once, above."""
        name = "_".join((function, *words)).replace(".", "_")
        self.header[name] = f"{function}({', '.join(map(repr, words))})"
        return name

    def ref(self, node: UOp) -> str:
        if node.op is not Ops.CONST:
            return self.names[node]
        text = repr(node.arg)
        return text if node.dtype.count == 1 else f"({text},) * {node.dtype.count}"

    # ---- values ----------------------------------------------------------------------------------

    def expression(self, node: UOp) -> str:
        made = EXPRESSIONS.get(node.op)
        if made is not None:
            return made(self, node)
        sources = [self.ref(source) for source in node.src]
        name = node.dtype.scalar().name
        if node.dtype.count > 1:
            function = self.made("operation", node.op.name, name)
            return f"tuple(map({function}, {', '.join(sources)}))"
        operator = OPERATORS.get(node.op)
        if operator is None:
            return f"{self.made('operation', node.op.name, name)}({', '.join(sources)})"
        plain = f"{sources[0]} {operator} {sources[1]}"
        exact = node.op in CLOSED or node.dtype in UNBOUNDED
        return plain if exact else f"{self.made('fit', name)}({plain})"

    def exponential(self, node: UOp) -> str:
        """e**y of what the product y * log2(e) was before it was rounded."""
        (power,) = node.src
        natural = natural_exponent(power)
        op, source = (node.op.name, power) if natural is None else ("EXP", natural)
        function, value = self.made("operation", op, node.dtype.scalar().name), self.ref(source)
        return (
            f"{function}({value})" if node.dtype.count == 1 else f"tuple(map({function}, {value}))"
        )

    def where(self, node: UOp) -> str:
        condition, yes, no = (self.ref(source) for source in node.src)
        if node.dtype.count == 1:
            return f"{yes} if {condition} else {no}"
        return f"tuple(a if c else b for c, a, b in zip({condition}, {yes}, {no}))"

    def cast(self, node: UOp) -> str:
        source = node.src[0]
        names = (source.dtype.scalar().name, node.dtype.scalar().name)
        function = self.made("cast", *names)
        value = self.ref(source)
        return (
            f"{function}({value})" if node.dtype.count == 1 else f"tuple(map({function}, {value}))"
        )

    def bitcast(self, node: UOp) -> str:
        source = node.src[0]
        values = self.ref(source) if source.dtype.count > 1 else f"({self.ref(source)},)"
        names = f"{source.dtype.scalar().name!r}, {node.dtype.scalar().name!r}"
        lane = "[0]" if node.dtype.count == 1 else ""
        return f"bitcast({values}, {names}){lane}"

    def vectorize(self, node: UOp) -> str:
        if len(node.src) == 1:
            return f"({self.ref(node.src[0])},) * {node.dtype.count}"
        return f"({', '.join(self.ref(source) for source in node.src)},)"

    def gep(self, node: UOp) -> str:
        return f"({self.ref(node.src[0])})[{node.arg}]"

    def shuffle(self, node: UOp) -> str:
        both = f"(*{self.ref(node.src[0])}, *{self.ref(node.src[1])})"
        return f"tuple({both}[lane] for lane in {tuple(node.arg)})"

    def multiply_tiles(self, node: UOp) -> str:
        operands = ", ".join(self.ref(source) for source in node.src)
        return f"{self.made('matrix_unit', node.arg)}({operands})"

    def load(self, node: UOp) -> str:
        memory, at = self.pointers[node.src[0]]
        zero = _zero(node.dtype)
        if node.dtype.count > 1:
            return f"load_lanes({memory}, {at}, {self.mask(node, 1, node.dtype.count)}, {zero})"
        plain = f"load({memory}, {at})"
        return plain if len(node.src) == 1 else f"{plain} if {self.ref(node.src[1])} else {zero}"

    def mask(self, node: UOp, position: int, count: int) -> str:
        if len(node.src) == position:
            return f"(True,) * {count}"
        mask = node.src[position]
        return self.ref(mask) if mask.dtype.count > 1 else f"({self.ref(mask)},) * {count}"

    # ---- statements ------------------------------------------------------------------------------

    def nothing(self, node: UOp) -> None:
        """Constants are written where they are used; parameters were named above."""

    def index(self, node: UOp) -> None:
        memory, at = self.pointers[node.src[0]]
        offset = self.ref(node.src[1])
        self.pointers[node] = (memory, offset if at == "0" else f"{at} + {offset}")

    def pick(self, node: UOp) -> None:
        number, *choices = node.src
        if choices[0].op is not Ops.PARAM:
            self.assign(node, f"({', '.join(map(self.ref, choices))},)[{self.ref(number)}]")
            return
        name, memories = self.fresh("data_"), [self.pointers[choice][0] for choice in choices]
        self.line(f"{name} = ({', '.join(memories)},)[{self.ref(number)}]")
        self.pointers[node] = (name, "0")

    def local(self, node: UOp) -> None:
        key, size = node.arg[:2]
        name = self.fresh("local")
        self.pointers[node] = (name, "0")
        self.line(f"{name} = local(memories, {key!r}, {size}, {node.dtype.name!r})")

    def special(self, node: UOp) -> None:
        self.names[node] = node.arg[0]
        self.line(f"{node.arg[0]} = {SPECIALS[node.arg[0]]}")

    def range(self, node: UOp) -> None:
        self.assign(node, self.ref(node.src[0]))
        for carry, _ in self.carried[node]:
            self.assign(carry, self.ref(carry.src[0]))
        self.line("while True:")
        self.indent += "    "

    def end(self, node: UOp) -> None:
        counter = node.src[0]
        if node.src[1:]:
            names = ", ".join(self.ref(carry) for carry in node.src[1::2])
            values = ", ".join(self.ref(following) for following in node.src[2::2])
            self.line(f"{names} = {values}")
        self.line(f"{self.ref(counter)} += 1")
        self.line(f"if not {self.ref(counter)} < {self.ref(counter.src[1])}: break")
        self.indent = self.indent[:-4]

    def branch(self, node: UOp) -> None:
        self.line(f"if {self.ref(node.src[0])}:")
        self.indent += "    "
        self.line("pass")

    def end_branch(self, node: UOp) -> None:
        self.indent = self.indent[:-4]

    def exchange(self, node: UOp) -> None:
        """Each lane publishes its value, and reads another one's when all have done so."""
        self._together(self.ref(node.src[0]))
        self.assign(node, f"said[lane[0] ^ {node.arg}]")
        self.line("yield")

    def matrix(self, node: UOp) -> None:
        """The place of an operand, and its layout."""
        memory, at = self.pointers[node.src[0]]
        self.assign(node, f"({memory}, {at}, {node.arg})")

    def multiply(self, node: UOp) -> None:
        """Products of matrices: of this lane's, of those that a warp's lanes hold together, or of
        those in LOCAL memory. None is on its way for long."""
        unit = UNITS[node.arg]
        if unit.is_staged:
            operands = ", ".join(self.ref(source) for source in node.src)
            self.assign(node, f"{self.made('staged_unit', node.arg)}(lane[0], {operands})")
            return
        if unit.held is None:
            self.assign(node, self.multiply_tiles(node))
            return
        self._together(f"({self.ref(node.src[0])}, {self.ref(node.src[1])})")
        function, total = self.made("warp_unit", node.arg), self.ref(node.src[2])
        self.assign(node, f"{function}(said, lane[0], {total})")
        self.line("yield")

    def fetch(self, node: UOp) -> None:
        """Fetched values are stored when the lane waits for them."""
        if node.src[1].op is Ops.TENSOR:
            self._fetch_box(node)
            return
        (target, at), (memory, start) = (self.pointers[p] for p in node.src[:2])
        names = [p.dtype.name for p in node.src[:2]]
        count = node.arg // node.src[0].dtype.itemsize
        mask = self.mask(node, 2, count)
        zero = _zero(node.src[1].dtype)
        values = f"load_lanes({memory}, {start}, {mask}, {zero})"
        if names[0] != names[1]:
            values = f"bitcast({values}, {names[1]!r}, {names[0]!r})"
        self.line(f"fetches.append(({target}, {at}, {values}))")

    def _fetch_box(self, node: UOp) -> None:
        target, tensor, signal, *places = node.src
        ends = [*self.pointers[target], *self.pointers[tensor.src[0]]]
        kinds = [(p.dtype.itemsize, p.dtype.name) for p in (target, tensor)]
        where = ", ".join(map(self.ref, places))
        given = f"{', '.join(ends)}, {kinds}, {tensor.arg}, ({where},)"
        self.line(f"{self._signal(signal)}.boxes.append(({node.arg}, partial(copy_box, {given})))")

    def _signal(self, pointer: UOp) -> str:
        """The name of a signal: the memory in which it lies, and its place there."""
        memory, at = self.pointers[pointer]
        return f"memories[{memory!r}, {at}]"

    def signal(self, node: UOp) -> None:
        self.line(f"{self._signal(node.src[0])} = Signal({node.arg})")

    def commit(self, node: UOp) -> None:
        if node.src:
            self.line(f"{self._signal(node.src[0])}.arrive({node.arg})")
        elif node.arg == "copies":
            self.line("coming.append(fetches)")
            self.line("fetches = []")

    def wait(self, node: UOp) -> None:
        what, most = node.arg
        if what == "signal":
            signal, odd = self._signal(node.src[0]), self.ref(node.src[1])
            self.line(f"while not {signal}.had({odd}): yield {signal}, {odd}")
            return
        if what == "copies":
            self.line(f"arrive(coming, {most})")
        if node.src:
            self.names[node] = self.ref(node.src[0])

    def gather(self, node: UOp) -> None:
        """Each lane publishes the place of a row, then takes its words from all rows."""
        memory, at = self.pointers[node.src[0]]
        self._together(f"({memory}, {at})")
        words = f"gather(said, lane[0], {node.dtype.count}, {node.src[0].dtype.itemsize}"
        self.assign(node, f"{words}, {node.arg[0]})")
        self.line("yield")

    def _together(self, value: str) -> None:
        self.line("said = memories.setdefault('said', {})")
        self.line(f"said[lane[0]] = {value}")
        self.line("yield")

    def store(self, node: UOp) -> None:
        memory, at = self.pointers[node.src[0]]
        value, count = self.ref(node.src[1]), node.src[1].dtype.count
        if count > 1:
            self.line(f"store_lanes({memory}, {at}, {self.mask(node, 2, count)}, {value})")
        else:
            condition = "" if len(node.src) == 2 else f"if {self.ref(node.src[2])}: "
            self.line(f"{condition}store({memory}, {at}, {value})")

    def fault(self, node: UOp) -> None:
        memory, at = self.pointers[node.src[0]]
        values = ", ".join(self.ref(source) for source in node.src[1:])
        self.line(f"fault({memory}, {at}, {node.arg}, {values})")

    def barrier(self, node: UOp) -> None:
        self.line("yield")


def _zero(dtype: DType) -> str:
    return repr(dtypes.as_const(0, dtype))


EXPRESSIONS: dict[Ops, Callable[[_Function, UOp], str]] = {
    Ops.EXP2: _Function.exponential,
    Ops.WHERE: _Function.where,
    Ops.CAST: _Function.cast,
    Ops.BITCAST: _Function.bitcast,
    Ops.VECTORIZE: _Function.vectorize,
    Ops.GEP: _Function.gep,
    Ops.SHUFFLE: _Function.shuffle,
    Ops.LOAD: _Function.load,
}
RULES: dict[Ops, Callable[[_Function, UOp], None]] = {
    **dict.fromkeys((Ops.CONST, Ops.PARAM, Ops.DEFINE_VAR, Ops.CARRY), _Function.nothing),
    Ops.LOCAL: _Function.local,
    Ops.SPECIAL: _Function.special,
    Ops.INDEX: _Function.index,
    Ops.PICK: _Function.pick,
    Ops.RANGE: _Function.range,
    Ops.END: _Function.end,
    Ops.IF: _Function.branch,
    Ops.ENDIF: _Function.end_branch,
    Ops.STORE: _Function.store,
    Ops.FAULT: _Function.fault,
    Ops.PREFETCH: _Function.nothing,
    Ops.BARRIER: _Function.barrier,
    Ops.EXCHANGE: _Function.exchange,
    Ops.GATHER: _Function.gather,
    Ops.FETCH: _Function.fetch,
    Ops.COMMIT: _Function.commit,
    Ops.WAIT: _Function.wait,
    Ops.TENSOR: _Function.nothing,
    Ops.SIGNAL: _Function.signal,
    Ops.WMMA: _Function.multiply,
    Ops.MATRIX: _Function.matrix,
    Ops.FENCE: _Function.nothing,
}
