"""A node before and after a rule, as two formulas. Parts that both have are named by a letter and
written once."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase

from tinygrad.backends.statements import OPERATORS
from tinygrad.base.dtype import dtypes
from tinygrad.uop import GroupOp, Ops, UOp

DEEPEST = 24
"""Operations inside each other that are written out."""

SIGNS = OPERATORS | {Ops.IDIV: "//", Ops.SHL: "<<", Ops.SHR: ">>"}
_PLAIN = frozenset((Ops.CONST, Ops.RANGE, Ops.DEFINE_VAR, Ops.DEVICE, Ops.UNIQUE))

Names = Mapping[UOp, str]
NO_NAMES: Names = {}


def difference(before: UOp, after: UOp) -> tuple[str, str, str]:
    """The two formulas, and what their letters mean.

    >>> x = (Tensor([1.0, 2.0]) * 2).uop
    >>> difference(x + x, x * 2)[:2]
    ('a + a', 'a * 2.0')
    """
    both = ({*before.toposort()} & {*after.toposort()}) - {before}
    seams = [
        s for root in (before, after) for n in root.toposort(both) if n not in both for s in n.src
    ]
    shared = dict.fromkeys(n for n in [*seams, after] if n in both and plain(n).op not in _PLAIN)
    names = {node: _letter(number) for number, node in enumerate(shared)}
    where = "\n".join(f"{name} = {_meaning(node)}" for node, name in names.items())
    return formula(before, names), formula(after, names), where


def plain(node: UOp) -> UOp:
    """The constant that the node is, broadcast; any other node itself."""
    source = node
    while source.op in GroupOp.Movement:
        source = source.src[0]
    return source if source.op is Ops.CONST else node


def formula(node: UOp, names: Names = NO_NAMES, deep: int = 0) -> str:
    """The node as text, where some of those below have names."""
    node = plain(node)
    if node in names:
        return names[node]
    if node.op in _PLAIN:
        return str(node.arg[0] if isinstance(node.arg, tuple) else node.arg)
    if deep == DEEPEST:
        return ".."
    inner = [formula(s, names, deep + 1) for s in node.src]
    if node.op in SIGNS:
        text = f" {SIGNS[node.op]} ".join(inner)
        return f"({text})" if deep else text
    more = [] if node.arg is None else [str(node.arg)]
    if node.op is Ops.CAST or node.op is Ops.BITCAST:
        more.append(node.dtype.name)
    return f"{node.op.name}({', '.join(inner + more)})"


def _letter(number: int) -> str:
    turn, place = divmod(number, len(ascii_lowercase))
    return ascii_lowercase[place] + (str(turn) if turn else "")


def _meaning(node: UOp) -> str:
    """An index is a formula; of anything else its own operation, and what it gives."""
    if node.dtype is dtypes.index and not (node.has_shape and node.shape):
        return formula(node)
    shape = tuple(node.shape) if node.has_shape else ()
    words = [node.op.name, "" if node.arg is None else str(node.arg)]
    words += [f": {node.dtype.name}"]
    return " ".join(filter(None, [*words, str(shape) if shape else ""])).replace(" : ", ": ")
