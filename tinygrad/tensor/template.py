"""Methods that are expressions: what they make of tensors of some shapes is remembered, and made
again of other tensors without running the method.

A training loop makes the same expressions in each step, of other buffers. A method says
`@expression` that only combines its tensors, draws no random numbers, and looks at nothing but
their shapes, dtypes, devices, at numbers and modes. With SPEC each call is made both ways.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.settings import SPEC, TRACEMETA
from tinygrad.engine.aliases import bottom_of, is_plain_window
from tinygrad.engine.holders import surroundings
from tinygrad.schedule.bases import MOVED
from tinygrad.tensor.core import Core, user_line
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

F = TypeVar("F", bound=Callable[..., Any])

MOST = 1024  # templates that are kept; the least recently used goes first
_NUMBERS = (int, bool, str, float, type(None), DType)
_STORAGE = (Ops.BUFFER, Ops.ASSIGN)
_NEW = {Ops.UNIQUE, Ops.BUFFER, Ops.BIND, Ops.ASSIGN, Ops.COPY, Ops.CALL, Ops.SCAN}


class Look(NamedTuple):
    """What a method may see of a tensor: `views` of something, from the top down, and that."""

    kind: type[Core]
    wants_gradient: bool | None
    views: tuple[tuple[Ops, Any], ...]
    is_storage: bool
    shape: tuple[int, ...]
    dtype: DType
    device: str


class Template:
    """The expression `root` over some nodes, its holes. Numbers, and views of them, are kept."""

    def __init__(self, holes: Sequence[UOp], root: UOp) -> None:
        nodes = [node for node in root.toposort(stop=holes) if node not in holes]
        self.fixed = [n for n in nodes if n.op is Ops.DEVICE or n.base.op is Ops.CONST]
        at = {node: i for i, node in enumerate((*holes, *self.fixed))}
        self.steps: list[tuple[Ops, DType, list[int], Any, Any]] = []
        for node in nodes:
            if node not in at:
                at[node] = len(at)
                places = [at[source] for source in node.src]
                self.steps.append((node.op, node.dtype, places, node.arg, node.shape))

    def over(self, holes: Sequence[UOp], origin: str | None) -> UOp:
        """The expression over other nodes, made in the line `origin`."""
        made = [*holes, *self.fixed]
        for op, dtype, places, arg, shape in self.steps:
            node = UOp(op, dtype, tuple([made[i] for i in places]), arg)
            node._shape = shape
            node.origin = node.origin or origin
            made.append(node)
        return made[-1]


def expression(method: F) -> F:
    """The method, which remembers what it made of arguments that looked alike."""

    @functools.wraps(method)
    def remembered(*given: Any, **named: Any) -> Any:
        holes: list[UOp] = []
        looks = _looks((*given, *named.values()), holes)
        if looks is None:
            return method(*given, **named)
        modes = tuple([look() for look in surroundings])
        found = _remembered(method, tuple(named), modes, *looks)
        if found is None:
            return method(*given, **named)
        template, kind, wants = found
        node = template.over(holes, user_line() if TRACEMETA.value else None)
        assert not SPEC or node is method(*given, **named)._uop, f"{method.__name__}: another node"
        made = kind.of(node, wants)
        made._taped = wants is True
        return made

    return remembered  # type: ignore[return-value]


def _looks(values: Iterable[Any], holes: list[UOp]) -> list[Hashable] | None:
    """How the arguments look, the nodes of tensors in `holes`; None where more may matter."""
    found: list[Hashable] = []
    for value in values:
        kind = type(value)
        if isinstance(value, Core):
            value = _look(value, holes)
            if value is None:
                return None
        elif kind is float and value == 0 and math.copysign(1.0, value) < 0:
            return None  # equal to 0.0, but another number
        elif kind not in _NUMBERS and not (kind is tuple and all(type(n) is int for n in value)):
            return None
        found.append(value)
    return found


def _look(tensor: Core, holes: list[UOp]) -> Look | None:
    node = tensor._held
    views = []
    while node.op in MOVED and len(node.src) == 1:
        holes.append(node)
        views.append((node.op, node.arg))
        node = node.src[0]
    holes.append(node)
    op, dtype, shape, device = node.op, node.dtype, node.shape, node.device
    is_storage = op in _STORAGE  # else a method may look at bounds
    movement = op in MOVED and op is not Ops.DETACH  # by symbolic sizes
    if not is_storage and (op is Ops.CONST or movement or not dtypes.is_float(dtype)):
        return None
    if tensor._element or type(device) is not str or not all(type(n) is int for n in shape):
        return None
    return Look(type(tensor), tensor.requires_grad, tuple(views), is_storage, shape, dtype, device)


def _stand_in(look: Look, holes: list[UOp]) -> Core:
    """A tensor that looks so."""
    node = UOp.new_buffer(look.device, math.prod(look.shape), look.dtype)
    if not look.is_storage:
        node = UOp(Ops.ITEM, look.dtype, (node,), (0, look.shape))
    nodes = [node]
    for op, arg in reversed(look.views):
        nodes.append(UOp(op, look.dtype, (nodes[-1],), arg))
    holes += reversed(nodes)
    made = look.kind.of(nodes[-1], look.wants_gradient)
    made._taped = True  # no start: of a tensor that is one the node says so
    return made


@functools.lru_cache(MOST, typed=True)
def _remembered(
    method: Callable[..., Any], names: tuple[str, ...], modes: Hashable, *looks: Hashable
) -> tuple[Template, type[Core], bool | None] | None:
    """What the method makes of arguments that look so; None where it isn't to be remembered."""
    holes: list[UOp] = []
    values = [_stand_in(look, holes) if type(look) is Look else look for look in looks]
    first = len(values) - len(names)
    result = method(*values[:first], **dict(zip(names, values[first:], strict=True)))
    if not isinstance(result, Core) or result._element:
        return None
    node = result._value
    if bottom_of(node) in holes or not is_plain_window(node):
        return None  # a view of an argument, or a copy that is yet to be made
    if node.base.op is Ops.CONST or any(
        below.op in _NEW for below in node.toposort(stop=holes) if below not in holes
    ):
        return None  # storage of its own, or numbers that were drawn
    return Template(holes, node), type(result), result.requires_grad
