"""TinyJit: a whole step captured once and replayed without its Python.

The first call with some arguments runs as it is, the second is captured (`engine/capture`), later
ones run what was recorded on the new arguments. Anything that would make the replay mean something
else than the call raises JitError.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import JitError
from tinygrad.base.settings import JIT
from tinygrad.engine.capture import Capture, Captured, Output, over
from tinygrad.engine.containers import Plain, bindings_below, flatten, unflatten, without_values
from tinygrad.engine.devices import Device
from tinygrad.engine.holders import Holder, surroundings
from tinygrad.engine.layout import Source
from tinygrad.engine.realize import (
    before_overwriting,
    in_memory,
    realize,
    recording,
    version_below,
    whole_buffer,
)
from tinygrad.engine.replay import Replay
from tinygrad.engine.storage import Buffer, Changes, bind, buffer_of, node_of, realized_buffer
from tinygrad.engine.turns import turns
from tinygrad.uop.node import UOp
from tinygrad.uop.op import Ops

P = ParamSpec("P")
R = TypeVar("R")

MANY_KEYS = 64  # that came once each: this step will never be replayed


class TinyJit(Generic[P, R]):
    """Decorates a function of tensors that computes and returns tensors.

    Arguments and results are tensors in any nesting of lists, tuples, dicts, named tuples and
    dataclasses. Everything else among the arguments (numbers, strings, models), `Tensor.training`
    and the default dtypes are part of the key: for each combination there is one capture. Numbers
    that vary from call to call are given as `Variable("n", low, high).bind(n)` or as tensors.

    Tensors that the function finds elsewhere are *state*: they are read and overwritten (`assign`)
    where they lie. Random numbers are fresh in each call. Python itself runs in the first two calls
    only, so what it does besides (printing, counting, `self.h = ...`) is not done again: as far as
    that can be noticed it is a JitError, like arguments of other shapes, dtypes or devices, or that
    share storage otherwise than those captured, and values that are read inside (`item`, `numpy`).

    >>> @TinyJit
    ... def double(x): return (x * 2).realize()
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.cnt = 0
        self._captured: dict[Any, Captured] = {}
        self._warm: dict[Any, Any] = {}  # key → the shape of what the first call returned
        self._bound: dict[int, TinyJit[..., R]] = {}
        functools.update_wrapper(self, function)

    def reset(self) -> None:
        """Forgets what was captured, of all instances if this is a method.

        >>> step = TinyJit(lambda x: (x + 1).realize())
        >>> _ = [step(Tensor([1]).realize()) for _ in range(3)]
        >>> step.reset()
        >>> step.captured is None
        True
        """
        self.cnt = 0
        self._captured.clear()
        self._warm.clear()
        for bound in list(self._bound.values()):
            bound.reset()

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
        found = self._bound.get(id(instance))
        if found is None:
            found = self._bound[id(instance)] = TinyJit(_method(self.function, instance))
            weakref.finalize(instance, self._bound.pop, id(instance), None)
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not JIT or recording.recorder is not None:  # switched off, or a step inside another
            return self.function(*args, **kwargs)
        given: list[Any] = []
        shape = flatten((args, kwargs), given, self._name)
        tensors = [leaf for leaf in given if not isinstance(leaf, UOp)]
        settled = [_settled(tensor) for tensor in tensors]
        nodes = [tensor.uop for tensor in settled]
        buffers = [buffer_of(version_below(node)) for node in nodes]
        signature = _signature(settled, nodes, buffers)
        key = (shape, _surroundings())
        self.cnt += 1
        if key not in self._warm:
            return self._first_call(key, args, kwargs)
        captured = self._captured.get(key)
        bound = self._bindings(given, nodes)
        if captured is None:
            with turns.alone():
                captured = self._captured.get(key)
                if captured is None:
                    capture = Capture(self._name, signature, tensors, settled, bound)
                    captured = capture.run(self.function, shape, given)
                    self._check_result(captured, self._warm[key])
                    self._captured[key] = captured
                    result = self._results(captured, tensors, capture.buffer, bound)
                    return result  # type: ignore[no-any-return]
        if captured.signature != signature:
            raise JitError(
                f"{self._name}: captured for {_describe(captured.signature)}, called with "
                f"{_describe(signature)}; call reset() to capture again"
            )
        self._check_state(captured, buffers)
        return self._replay(captured, tensors, buffers, bound)  # type: ignore[no-any-return]

    @functools.cached_property
    def _name(self) -> str:
        return f"TinyJit({getattr(self.function, '__qualname__', self.function)})"

    def _first_call(self, key: Any, args: Any, kwargs: Any) -> R:
        result = self.function(*args, **kwargs)
        self._warm[key] = flatten(result, [])
        if len(self._warm) == MANY_KEYS and not self._captured:
            warnings.warn(
                f"{self._name}: {MANY_KEYS} calls, each with other arguments that are no tensors, "
                "so none was captured; give numbers that vary as tensors or bound variables",
                stacklevel=3,
            )
        return result

    def _check_result(self, captured: Captured, warm: Any) -> None:
        if captured.result != warm:
            raise JitError(
                f"{self._name}: besides tensors returns what differs from call to call: "
                f"{_shown(warm)}, then {_shown(captured.result)}; replays would return the latter "
                "for ever"
            )

    def _bindings(self, given: Sequence[Any], nodes: Sequence[UOp]) -> dict[UOp, UOp]:
        """Variables → BINDs with the values that they have in this call."""
        binds = dict.fromkeys(leaf for leaf in given if isinstance(leaf, UOp))
        for node in nodes:
            for size in node.shape:
                if isinstance(size, UOp):
                    binds |= dict.fromkeys(bindings_below(size))
        bound = {b.src[0]: b for b in binds}
        if len(bound) < len(binds):
            values = sorted(f"{b.src[0].arg[0]} = {b.val}" for b in binds)
            raise JitError(
                f"{self._name}: a variable has two values in one call: {', '.join(values)}; legal "
                "is one, so bind a second variable"
            )
        return bound

    def _check_state(self, captured: Captured, buffers: Sequence[Buffer]) -> None:
        """The state must be where it was, its writes done, and no argument part of it."""
        if not captured.states.isdisjoint(buffers):
            for number, buffer in enumerate(buffers):
                first = buffers.index(buffer)
                if buffer in captured.written or (
                    buffer in captured.states and first in captured.written_inputs
                ):
                    raise JitError(
                        f"{self._name}: argument {number} lies in a buffer that the step also "
                        "knows from outside, and one of the two is overwritten, which wasn't so "
                        "when it was captured; give a .clone()"
                    )
        if captured.lost is not None:
            raise JitError(
                f"{self._name}: a tensor{captured.lost} that the captured call read is gone; call "
                "reset() to capture again"
            )
        if captured.changes != Changes.count:
            for reference, buffer in captured.homes:
                holder = reference()
                if holder is None:
                    continue
                realize(holder.uop)  # what was assigned since
                if realized_buffer(holder.uop) is not buffer:
                    raise JitError(
                        f"{self._name}: a tensor of shape {holder.uop.shape} that the captured "
                        "call read is another now (replace, load, or a write that made it a buffer "
                        "of its own); call reset() to capture again, or .assign() to it"
                    )
            captured.changes = Changes.count

    def _replay(
        self,
        captured: Captured,
        tensors: Sequence[Holder],
        inputs: Sequence[Buffer],
        bound: dict[UOp, UOp],
    ) -> Any:
        overwritten = captured.written
        if captured.written_inputs:
            overwritten = overwritten.union(inputs[i] for i in captured.written_inputs)
        before_overwriting(overwritten)
        replay = captured.replay
        if replay is None:
            seen = {out.source for out in captured.outputs if isinstance(out, Output)}
            replay = captured.replay = Replay(captured.executions, captured.state, seen)
        known = {variable.arg[0]: bind.val for variable, bind in bound.items()}
        for name, (stream, first, last) in captured.streams.items():
            known[name] = stream.take(last - first) - first
            known[stream.seed_name] = stream.seed
        values = [
            value + known[name] if name in captured.streams else known.get(name, value)
            for execution in captured.executions
            for name, value in execution.variables
        ]
        buffers = replay.run(inputs, values)

        def find(source: Source) -> Buffer:
            return inputs[source.first] if source.kind == "input" else buffers[replay.place(source)]

        results = self._results(captured, tensors, find, bound)
        replay.done(buffers)
        return results

    def _results(
        self,
        captured: Captured,
        tensors: Sequence[Holder],
        find: Callable[[Source], Buffer],
        bound: dict[UOp, UOp],
    ) -> Any:
        made: list[Any] = []
        first_of: dict[tuple[int, Source], Holder] = {}  # of each family
        for out in captured.outputs:
            if isinstance(out, UOp):
                made.append(bound.get(out.src[0], out))
                continue
            tensor = self._result(out, tensors, find, bound, first_of.get((out.family, out.source)))
            first_of.setdefault((out.family, out.source), tensor)
            made.append(tensor)
        return unflatten(captured.result, iter(made))

    def _result(
        self,
        out: Output,
        tensors: Sequence[Holder],
        find: Callable[[Source], Buffer],
        bound: dict[UOp, UOp],
        relative: Holder | None,
    ) -> Holder:
        """The tensor of one output. `relative`: a view of the same that was made before it."""
        kind, number, _ = out.source
        if out.itself and kind == "input":
            return tensors[number]
        if isinstance(out.state, weakref.ref):
            found = out.state()
            assert found is not None, "a state that is gone was noticed before"
            return found
        if kind == "constant":
            return out.kind.of(out.view)
        if out.state is not None:
            relative, node = out.state, out.state.uop
        else:
            buffer, flat = find(out.source), out.view.base
            base = node_of(buffer)
            if base is None:
                base = bind(UOp.new_buffer(buffer.device, flat.arg, flat.dtype), buffer)
            node = over(out.view, base)
            if kind == "input":
                relative = tensors[number]
        if bound:
            node = node.substitute({b: bound.get(b.src[0], b) for b in bindings_below(node)})
        wants = False if out.wanted_gradient else None  # its expression stayed inside
        return out.kind.of(node, wants) if relative is None else relative.alike(node, wants)


def _method(function: Callable[..., R], instance: Any) -> Callable[..., R]:
    """`function` with its first argument, which it doesn't keep alive."""
    weak = weakref.ref(instance)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> R:
        return function(weak(), *args, **kwargs)

    return call


def _surroundings() -> tuple[Any, ...]:
    own = (Device.DEFAULT, dtypes.default_float, dtypes.default_int)
    return (*own, *[look() for look in surroundings])


def _settled(tensor: Holder) -> Holder:
    """The tensor computed, in a whole buffer of its own order."""
    realize(tensor.uop)
    node = tensor.uop
    if in_memory(node) and buffer_is_whole(node):
        return tensor
    return type(tensor).of(whole_buffer(node).in_room(node.shape), tensor.requires_grad)


def buffer_is_whole(node: UOp) -> bool:
    """Whether `node` is a RESHAPE of a BUFFER, or what is in use of its room."""
    if node.op is Ops.SHRINK:
        return node.base.op is Ops.BUFFER and node.base.in_room(node.shape) is node
    while node.op in (Ops.RESHAPE, Ops.DETACH):
        node = node.src[0]
    return node.op is Ops.BUFFER


def _signature(
    tensors: Sequence[Holder], nodes: Sequence[UOp], buffers: Sequence[Buffer]
) -> tuple[Any, ...]:
    """Shape, dtype and device of each tensor, which of them share a buffer, and which say that
    they want a gradient."""
    first: dict[Buffer, int] = {}
    rows = []
    for i, (node, buffer) in enumerate(zip(nodes, buffers, strict=True)):
        same = first.setdefault(buffer, i)
        shape = tuple(n if isinstance(n, int) else without_values(n) for n in node.shape)
        kind = node.dtype.name + (" (read-only)" if buffer.fixed else "")
        rows.append((shape, kind, buffer.device, same, tensors[i].requires_grad is True))
    return tuple(rows)


def _describe(signature: tuple[Any, ...]) -> str:
    parts = [
        f"{dtype}{list(shape)} on {device}"
        + (f" (the same buffer as input {same})" if same != i else "")
        + (" with requires_grad" if wants else "")
        for i, (shape, dtype, device, same, wants) in enumerate(signature)
    ]
    return "(" + ", ".join(parts) + ")"


def _shown(shape: Any) -> str:
    """What is no tensor of a result, as a person reads it."""
    if isinstance(shape, Plain):
        return repr(shape.value)
    kind, *parts = shape
    if kind is Holder:
        return "a tensor"
    if issubclass(kind, (list, tuple)):
        return f"{kind.__name__}({', '.join(map(_shown, parts))})"
    return str(kind.__name__)
