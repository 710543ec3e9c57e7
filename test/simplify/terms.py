"""What the tests of this floor share: values of expressions, and expressions from text."""

import ast
import struct

from tinygrad.base.dtype import DType, dtypes
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops, bit_cast, evaluate


def value(node: UOp, known: dict[UOp, object]):
    """What a scalar expression is, where its leaves have these values."""
    found = dict(known)
    for each in node.toposort(stop=found):
        if each in found:
            continue
        values = [found[s] for s in each.src]
        if each.op is Ops.CONST:
            found[each] = each.arg
        elif each.op is Ops.CAST:
            found[each] = dtypes.as_const(values[0], each.dtype)
        elif each.op is Ops.BITCAST:
            found[each] = bit_cast(values[0], each.src[0].dtype, each.dtype)
        elif each.op is Ops.CHECK:
            found[each] = values[0]
        else:
            found[each] = evaluate(each.op, each.dtype, *values)
    return found[node]


def same(a: object, b: object) -> bool:
    """Bit for bit; every NaN is like any other."""
    if isinstance(a, float) and isinstance(b, float):
        return a != a and b != b or struct.pack("d", a) == struct.pack("d", b)
    return type(a) is type(b) and a == b


CALLS = {
    "max": lambda a, b: a.maximum(b),
    "where": lambda p, a, b: p.where(a, b),
    "check": lambda a: a.check(a < 3, "index", "too far"),
    "int": lambda a: a.cast(dtypes.int32),
    "index": lambda a: a.cast(dtypes.index),
    "float": lambda a: a.cast(dtypes.float32),
    "half": lambda a: a.cast(dtypes.float16),
    "char": lambda a: a.cast(dtypes.int8),
    "bool": lambda a: a.cast(dtypes.bool),
}
BINARY = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b,
    ast.Mod: lambda a, b: a % b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b,
}
COMPARE = {
    ast.Lt: lambda a, b: a < b,
    ast.Gt: lambda a, b: a > b,
    ast.LtE: lambda a, b: a <= b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a.eq(b),
    ast.NotEq: lambda a, b: a.ne(b),
}
UNARY = {ast.USub: lambda a: -a, ast.Invert: lambda a: ~a, ast.Not: lambda a: a.logical_not()}


def parse(text: str, names: dict[str, UOp]) -> UOp:
    """The expression that Python's grammar reads in `text`; names of one letter are leaves."""

    def build(node: ast.expr):
        if isinstance(node, ast.Name):
            return names[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp):
            inner = build(node.operand)
            return UNARY[type(node.op)](inner)
        if isinstance(node, ast.BinOp):
            return BINARY[type(node.op)](build(node.left), build(node.right))
        if isinstance(node, ast.Compare):
            return COMPARE[type(node.ops[0])](build(node.left), build(node.comparators[0]))
        if isinstance(node, ast.Call):
            return CALLS[node.func.id](*map(build, node.args))
        raise ValueError(ast.dump(node))

    made = build(ast.parse(text, mode="eval").body)
    if isinstance(made, UOp):
        return made
    dtype = dtypes.bool if isinstance(made, bool) else next(iter(names.values())).dtype
    return UOp.const(dtype, made)


def leaf(name: str, bounds, dtype: DType = dtypes.index) -> UOp:
    """`8`: a loop of 8 turns; `(-3, 5)`: a variable; a dtype: anything of it."""
    if isinstance(bounds, int):
        return UOp.range(bounds, name)
    if isinstance(bounds, DType):
        return UOp.variable(name, dtypes.min(bounds), dtypes.max(bounds), bounds)
    return UOp.variable(name, *bounds, dtype)
