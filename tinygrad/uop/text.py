"""Graphs as text, in two forms. `shown` is for people: the tree that tinygrad prints (`tree`), or a
formula for a size. `dump` writes the exact form, one node on each line, which goes to files, and
`parse` reads it."""

from __future__ import annotations

import ast
import functools
import re
from typing import Any

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

DEEPEST = 80  # columns of indentation: deeper nodes stand no further right


SIGNS = {Ops.ADD: " + ", Ops.MUL: "*", Ops.IDIV: "//", Ops.MOD: "%"}
SIGNS |= {Ops.CMPLT: " < ", Ops.CMPEQ: " == ", Ops.CMPNE: " != ", Ops.AND: " & ", Ops.OR: " | "}
_VARIABLES = frozenset((Ops.DEFINE_VAR, Ops.BIND))
_OF_SIZES = frozenset((*SIGNS, *_VARIABLES, Ops.CONST, Ops.CAST, Ops.MAX))


def shown(node: UOp) -> str:
    """What `repr` gives: for an integer made of variables its formula, with bounds and, if all
    variables have one, the value; else the tree.

    >>> n = UOp.variable("n", 1, 8)
    >>> shown(n), shown(n.bind(5)), shown(n.bind(5) * 2 - 1)
    ('n[1..8]', 'n[1..8]=5', '(n*2 - 1)[1..15]=9')
    """
    text = rendered(node)
    if not _is_size(node):
        return text
    bound = {n for n in node.toposort() if n.op is Ops.BIND}
    known = all(n.op is not Ops.DEFINE_VAR for n in node.toposort(stop=bound))
    return f"{text}[{node.vmin}..{node.vmax}]" + (f"={node.val}" if known else "")


def rendered(node: UOp) -> str:
    """The formula of an integer made of variables; else the tree.

    >>> rendered(UOp.variable("n", 1, 8) * 2 - 1)
    '(n*2 - 1)'
    """
    if not _is_size(node):
        return tree(node)
    text = _formula(node)
    return text if text.isidentifier() else f"({text})"


def _is_size(node: UOp) -> bool:
    whole = dtypes.is_int(node.dtype) or node.dtype is dtypes.bool
    ops = {n.op for n in node.toposort()} if whole else set()
    return ops <= _OF_SIZES and not ops.isdisjoint(_VARIABLES)


def _formula(node: UOp) -> str:
    """A size without its value."""
    if node.op in _VARIABLES:
        return str((node.src or (node,))[0].arg[0])
    if node.op is Ops.CAST:
        return _formula(node.src[0])
    if node.vmin == node.vmax:
        return str(node.vmin)
    parts = [_formula(source) for source in node.src]
    if node.op is Ops.MAX:
        return f"max({', '.join(parts)})"
    if node.op is not Ops.ADD:
        parts = [f"({part})" if " " in part else part for part in parts]
    return SIGNS[node.op].join(parts).replace("+ -", "- ")


def tree(root: UOp) -> str:
    """Nested constructor calls; a node used twice is named `x0:=` where it first stands."""
    uses: dict[UOp, int] = {}
    for node in root.toposort():
        for source in node.src:
            uses[source] = uses.get(source, 0) + 1
    names: dict[UOp, str] = {}
    out: list[str] = []
    stack: list[tuple[UOp | str, int]] = [(root, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        indent = " " * min(depth, DEEPEST)
        if item in names:
            out.append(f"{indent} {names[item]}")
            continue
        label = ""
        if uses.get(item, 0) > 1:
            names[item] = f"x{len(names)}"
            label = f"{names[item]}:="
        tag = "" if item.tag is None else f", tag={item.tag!r}"
        out.append(f"{indent}{label}UOp({item.op!r}, {item.dtype!r}, arg={item.arg!r}{tag}, src=(")
        stack.append(("))", depth))
        for source in reversed(item.src):
            stack.extend(((",", depth), (source, depth + 2), ("\n", depth)))
    return "".join(out)


def dump(root: UOp) -> str:
    """One node a line, sources first: `%3 = ADD dtypes.int None %1 %2`."""
    order = root.toposort()
    number = {node: i for i, node in enumerate(order)}
    return "\n".join(
        f"%{i} = {node.op.name} {node.dtype!r} {node.arg!r}"
        + "".join(f" %{number[s]}" for s in node.src)
        for i, node in enumerate(order)
    )


def parse(text: str) -> UOp:
    """The graph that `dump` wrote. ValueError with the line if it is not one."""
    nodes: list[UOp] = []
    for line in filter(None, text.splitlines()):
        try:
            op, dtype, arg, sources = _LINE.fullmatch(line).groups()  # type: ignore[union-attr]
            src = tuple(nodes[int(s)] for s in sources.split(" %")[1:])
            nodes.append(UOp(Ops[op], _read_dtype(dtype), src, _read(arg)))
        except (AttributeError, LookupError, SyntaxError, ValueError) as error:
            raise ValueError(f"not a line of a graph: {line!r}") from error
    if not nodes:
        raise ValueError("an empty text is no graph")
    return nodes[-1]


_LINE = re.compile(r"%\d+ = (\w+) (\S+) (.*?)((?: %\d+)*)")


class _Floats(ast.NodeTransformer):
    """The names that `repr` gives to floats without a literal."""

    def visit_Name(self, node: ast.Name) -> ast.expr:  # noqa: N802  ast's spelling
        known = {"inf": float("inf"), "nan": float("nan")}
        return ast.Constant(known[node.id]) if node.id in known else node


@functools.lru_cache(1024)  # most lines of a large graph repeat a few arguments
def _read(text: str) -> Any:
    return ast.literal_eval(_Floats().visit(ast.parse(text, mode="eval")))


def _read_dtype(text: str) -> DType:
    name, _, count = text.removeprefix("dtypes.").partition(".vec(")
    base = dtypes.index if name == "index" else dtypes.fields()[name]
    return base.vec(int(count[:-1])) if count else base
