"""TinyJit: a whole step captured once and replayed without its Python.

The first call runs as it is, the second is captured: every plan that runs is recorded with where
its buffers came from (an argument, an earlier plan, or state that stays). Later calls with the
same signature run the recorded plans on the new arguments. Anything that would make the replay
mean something else than the call raises JitError.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from tinygrad.base.errors import JitError
from tinygrad.base.settings import JIT
from tinygrad.engine.counters import Counter
from tinygrad.engine.holders import Holder, holders
from tinygrad.engine.realize import (
    before_overwriting,
    in_memory,
    realize,
    recorders,
    version_below,
    whole_buffer,
)
from tinygrad.engine.replay import Execution, Replay, Source
from tinygrad.engine.run import RunnablePlan
from tinygrad.engine.storage import Buffer, bind, buffer_of, forgetting
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Captured:
    """A captured call: what it ran, on what, and what it returned."""

    signature: tuple[Any, ...]
    executions: list[Execution] = field(default_factory=list)
    replay: Replay | None = None  # made when first needed
    state: list[Buffer] = field(default_factory=list)
    written: set[Buffer] = field(default_factory=set)  # of the state
    counters: dict[str, tuple[int, int]] = field(default_factory=dict)  # before, after
    result: Any = None
    outputs: list[tuple[Source, UOp]] = field(default_factory=list)


class TinyJit(Generic[P, R]):
    """Decorates a function of tensors that computes and returns tensors.

    >>> @TinyJit
    ... def double(x): return (x * 2).realize()
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.cnt = 0
        self._captured: dict[Any, Captured] = {}
        self._calls: dict[Any, int] = {}
        self._bound: weakref.WeakKeyDictionary[Any, TinyJit[..., R]] = weakref.WeakKeyDictionary()
        functools.update_wrapper(self, function)

    def reset(self) -> None:
        """Forgets what was captured.

        >>> step = TinyJit(lambda x: (x + 1).realize())
        >>> _ = [step(Tensor([1]).realize()) for _ in range(3)]
        >>> step.reset()
        >>> step.captured is None
        True
        """
        self.cnt = 0
        self._captured.clear()
        self._calls.clear()

    @property
    def captured(self) -> Captured | None:
        """The latest captured call; None before there is one.

        >>> TinyJit(lambda x: (x + 1).realize()).captured is None
        True
        """
        return next(reversed(self._captured.values()), None)

    @property
    def jit_cache(self) -> list[Any]:
        """The steps of the captured call, in order.

        >>> step = TinyJit(lambda x: (x + 1).realize())
        >>> _ = [step(Tensor([1]).realize()) for _ in range(3)]
        >>> [each.op for each in step.jit_cache]
        [Ops.KERNEL]
        """
        found = self.captured
        return [] if found is None else [s for e in found.executions for s in e.plan.plan.steps]

    @property
    def linear(self) -> list[Any]:
        """Another name of `jit_cache`.

        >>> TinyJit(lambda x: (x + 1).realize()).linear
        []
        """
        return self.jit_cache

    def __get__(self, instance: Any, owner: type) -> TinyJit[..., R]:
        """A method: each instance captures for itself."""
        if instance is None:
            return self
        if instance not in self._bound:
            self._bound[instance] = TinyJit(_method(self.function, instance))
        return self._bound[instance]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not JIT:
            return self.function(*args, **kwargs)
        if _capturing:
            return self.function(*args, **kwargs)  # a captured step inside another
        leaves: list[Any] = []
        shape = _flatten((args, kwargs), leaves)
        inputs = [_settled(leaf) if isinstance(leaf, Holder) else leaf for leaf in leaves]
        nodes = [leaf.uop for leaf in inputs if isinstance(leaf, Holder)]
        buffers = [buffer_of(version_below(node)) for node in nodes]
        signature = _signature(nodes, buffers)
        key = (shape, tuple(leaf.src[0] for leaf in inputs if isinstance(leaf, UOp)))
        calls = self._calls[key] = self._calls.get(key, -1) + 1
        self.cnt += 1
        if calls == 0:
            return self.function(*args, **kwargs)
        binds = {b for b in inputs if isinstance(b, UOp)}.union(*map(_binds_of, nodes))
        bound = {b.src[0]: b for b in binds}
        if key not in self._captured:
            made = Captured(signature)
            result = self._capture(made, shape, inputs, buffers)
            self._captured[key] = made
            return result  # type: ignore[no-any-return]
        captured = self._captured[key]
        if captured.signature != signature:
            raise JitError(
                f"{self._name()}: captured for {_describe(captured.signature)}, called with "
                f"{_describe(signature)}; call reset() to capture again"
            )
        return _replay(captured, buffers, bound)  # type: ignore[no-any-return]

    def _name(self) -> str:
        return f"TinyJit({getattr(self.function, '__qualname__', self.function)})"

    def _capture(
        self, captured: Captured, shape: Any, inputs: list[Any], buffers: list[Buffer]
    ) -> Any:
        places: dict[Buffer, Source] = {}
        for i, buffer in enumerate(buffers):
            places.setdefault(buffer, Source("input", i))
        before = {name: counter.value for name, counter in Counter.all.items()}
        recorder = functools.partial(_record, captured, places)
        for holder in holders:
            _ = holder.uop  # tensors that were computed are state, not expressions
        recorders.append(recorder)
        _capturing.append(self)
        try:
            with forgetting():
                args, kwargs = _unflatten(shape, iter(inputs))
                result = self.function(*args, **kwargs)
                leaves: list[Any] = []
                captured.result = _flatten(result, leaves)
                out = [leaf for leaf in leaves if isinstance(leaf, Holder)]
                realize(*(tensor.uop for tensor in out))
        finally:
            recorders.remove(recorder)
            _capturing.remove(self)
        if not captured.executions:
            raise JitError(f"{self._name()}: nothing was computed, so there is nothing to capture")
        for name, counter in Counter.all.items():
            captured.counters[name] = (before.get(name, 0), counter.value)
        for tensor in out:
            node = tensor.uop
            captured.outputs.append((_source(captured, places, buffer_of(node.base)), node))
        return result


def _method(function: Callable[..., R], instance: Any) -> Callable[..., R]:
    """`function` with its first argument, which it doesn't keep alive."""
    weak = weakref.ref(instance)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> R:
        return function(weak(), *args, **kwargs)

    return call


_capturing: list[Any] = []


def capturing() -> bool:
    """Whether a step is being captured."""
    return bool(_capturing)


def _record(
    captured: Captured,
    places: dict[Buffer, Source],
    plan: RunnablePlan,
    params: list[Buffer],
    variables: list[tuple[str, int]],
    buffers: list[Buffer],
) -> None:
    sources = [_source(captured, places, buffer) for buffer in params]
    for step in plan.plan.steps:
        for number in step.storages[: step.writes]:
            if plan.plan.storages[number].kind == "param":
                captured.written.add(buffers[number])
    captured.executions.append(Execution(plan, sources, variables))
    for number, kept in enumerate(plan.plan.storages):
        if kept.kind == "out":
            places[buffers[number]] = Source("made", len(captured.executions) - 1, number)


def _source(captured: Captured, places: dict[Buffer, Source], buffer: Buffer) -> Source:
    if buffer not in places:
        places[buffer] = Source("state", len(captured.state))
        captured.state.append(buffer)
    return places[buffer]


def _replay(captured: Captured, inputs: Sequence[Buffer], bound: dict[UOp, UOp]) -> Any:
    """`bound`: variables → BINDs with the values that they have in this call."""
    before_overwriting(captured.written)
    replay = captured.replay
    if replay is None:
        seen = {source for source, _ in captured.outputs}
        replay = captured.replay = Replay(captured.executions, captured.state, seen)
    variables = {variable.arg[0]: bind.val for variable, bind in bound.items()}
    values: list[int] = []
    for execution in captured.executions:
        for name, value in execution.variables:
            if name in captured.counters:
                value = Counter.all[name].value + value - captured.counters[name][0]
            values.append(variables.get(name, value))
    buffers = replay.run(inputs, values)
    for name, (before, after) in captured.counters.items():
        Counter.all[name].value += after - before

    def find(source: Source) -> Buffer:
        return inputs[source.first] if source.kind == "input" else buffers[replay.place(source)]

    results = _results(captured, find, bound)
    replay.done(buffers)
    return results


def _results(captured: Captured, find: Callable[[Source], Buffer], bound: dict[UOp, UOp]) -> Any:
    outputs = []
    for source, node in captured.outputs:
        base = node.base
        if source.kind != "state":
            buffer = find(source)
            base = bind(UOp.new_buffer(buffer.device, base.arg, base.dtype), buffer)
        if bound:
            node = node.substitute({b: bound.get(b.src[0], b) for b in _binds_below(node)})
        outputs.append(node.viewed(base))
    return _unflatten(captured.result, iter(outputs), as_results=True)


# ---- containers ----------------------------------------------------------------------------------


def _flatten(value: Any, leaves: list[Any]) -> Any:
    """The shape of nested containers with tensors and bound variables taken out, hashable."""
    if isinstance(value, Holder):
        leaves.append(value)
        return (Holder, type(value))
    if isinstance(value, UOp) and value.op is Ops.BIND:
        leaves.append(value)
        return (UOp, value.src[0])
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_flatten(v, leaves) for v in value))
    if isinstance(value, dict):
        return (dict, tuple((k, _flatten(v, leaves)) for k, v in value.items()))
    try:
        hash(value)
    except TypeError:
        return (None, _Identity(value))
    return (None, value)


def _unflatten(shape: Any, leaves: Any, as_results: bool = False) -> Any:
    kind, inner = shape
    if kind is Holder:
        leaf = next(leaves)
        return inner.holding(leaf) if as_results else leaf
    if kind is UOp:
        return inner if as_results else next(leaves)
    if kind in (list, tuple):
        return kind(_unflatten(s, leaves, as_results) for s in inner)
    if kind is dict:
        return {k: _unflatten(s, leaves, as_results) for k, s in inner}
    if kind is not None:  # a named tuple
        return kind(*(_unflatten(s, leaves, as_results) for s in inner))
    return inner.value if isinstance(inner, _Identity) else inner


class _Identity:
    """An unhashable argument, equal to itself only."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value


def _settled(tensor: Holder) -> Holder:
    """The tensor computed, in a whole buffer of its own order."""
    realize(tensor.uop)
    node = tensor.uop
    if in_memory(node) and buffer_is_whole(node):
        return tensor
    return tensor.with_node(whole_buffer(node).in_room(node.shape))


def buffer_is_whole(node: UOp) -> bool:
    """Whether `node` is a RESHAPE of a BUFFER, or what is in use of its room."""
    if node.op is Ops.SHRINK:
        return node.base.op is Ops.BUFFER and node.base.in_room(node.shape) is node
    while node.op in (Ops.RESHAPE, Ops.DETACH):
        node = node.src[0]
    return node.op is Ops.BUFFER


def _signature(nodes: Sequence[UOp], buffers: Sequence[Buffer]) -> tuple[Any, ...]:
    """Shape, dtype and device of each tensor, and which of them share a buffer."""
    first: dict[Buffer, int] = {}
    rows = []
    for i, (node, buffer) in enumerate(zip(nodes, buffers, strict=True)):
        same = first.setdefault(buffer, i)
        shape = tuple(n if isinstance(n, int) else _without_values(n) for n in node.shape)
        kind = node.dtype.name + (" (read-only)" if buffer.fixed else "")
        rows.append((shape, kind, node.device, same))
    return tuple(rows)


def _binds_below(node: UOp) -> list[UOp]:
    return [n for n in node.toposort() if n.op is Ops.BIND]


def _binds_of(node: UOp) -> list[UOp]:
    """The bound variables in a node's sizes."""
    return [b for n in node.shape if isinstance(n, UOp) for b in _binds_below(n)]


def _without_values(size: UOp) -> UOp:
    return size.substitute({bind: bind.src[0] for bind in _binds_below(size)})


def _describe(signature: tuple[Any, ...]) -> str:
    parts = [
        f"{dtype}{list(shape)} on {device}"
        + (f" (the same buffer as input {same})" if same != i else "")
        for i, (shape, dtype, device, same) in enumerate(signature)
    ]
    return "(" + ", ".join(parts) + ")"
