"""TinyJit: a whole step captured once and replayed without its Python.

The first call with some arguments runs as it is, the second is captured (`engine/capture`), later
ones run what was recorded on the new arguments. Anything that would make the replay mean something
else than the call raises JitError.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import JitError
from tinygrad.base.helpers import once
from tinygrad.base.locks import ForkSafeLock
from tinygrad.base.settings import JIT
from tinygrad.engine.call import Call, Given, Outdated
from tinygrad.engine.capture import Capture, Captured, completed
from tinygrad.engine.containers import Attributed, Plain, bindings_below, flatten, without_values
from tinygrad.engine.devices import Device
from tinygrad.engine.gradients import given_since
from tinygrad.engine.holders import Holder, holders, surroundings, surroundings_now
from tinygrad.engine.outlines import Outline, Outlines, difference
from tinygrad.engine.realize import (
    buffer_of_all,
    computing,
    in_memory,
    realize,
    telling,
    version_below,
    whole_buffer,
)
from tinygrad.engine.storage import Buffer, buffer_of, noting, realized_buffer
from tinygrad.engine.turns import turns
from tinygrad.uop.node import UOp

P = ParamSpec("P")
R = TypeVar("R")

_LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)

MANY_KEYS = 64  # that came only once each: this step will never be replayed


class TinyJit(Generic[P, R]):
    """Decorates a function of tensors that computes and returns tensors.

    Arguments and results are tensors in any nesting of lists, tuples, dicts, named tuples and
    dataclasses. Everything else among the arguments (numbers, strings, models), `Tensor.training`
    and the default dtypes are part of the key: for each combination there is one capture. Numbers
    that vary from call to call are given as `Variable("n", low, high).bind(n)` or as tensors. One
    that the function finds elsewhere (`rate`, `self.scale`, the clock, a file) must stay as it is:
    if it is another in the second call than in the first, or what is read by name has changed
    later, that is a JitError.

    Tensors that the function finds elsewhere are *state*: they are read and overwritten (`assign`)
    where they lie. Random numbers are fresh in each call. Python itself runs in the first two calls
    only, so what it does besides (printing, counting calls, `self.h = ...`) is not done again: as
    far as that can be noticed, and is more than a variable that only counts, it is a JitError, like
    arguments of other shapes, dtypes or devices, or that share storage otherwise than those
    captured, and values that are read inside (`item`, `numpy`).

    tinygrad's options `prune` and `optimize`, which leave out or reorder steps, are accepted
    without effect.

    >>> @TinyJit
    ... def double(x): return (x * 2).realize()
    """

    if not TYPE_CHECKING:

        def __new__(cls, fxn=None, **options):
            if fxn is None:  # @TinyJit(prune=True)
                return functools.partial(cls, **options)
            return super().__new__(cls)

    def __init__(self, fxn: Callable[P, R], *, prune: bool = False, optimize: bool = False) -> None:
        if not callable(fxn):
            raise JitError(f"TinyJit: {fxn!r} of type {type(fxn).__name__}; legal are functions")
        if any(is_one(fxn) for is_one in _LATER):
            raise JitError(
                f"TinyJit: {fxn!r} is a generator or async function, whose code runs after the "
                "call; legal are functions that return what they compute, which such code may call"
            )
        self.function = fxn
        self._bound: dict[int, TinyJit[..., R]] = {}
        self._beginning = ForkSafeLock(threading.RLock)  # one thread's first calls after another's
        self.reset()
        functools.update_wrapper(self, fxn)

    def __repr__(self) -> str:
        return self._name

    def reset(self) -> None:
        """Forgets what was captured, for all instances if this is a method.

        >>> step = TinyJit(lambda x: (x + 1).realize())
        >>> _ = [step(Tensor([1]).realize()) for _ in range(3)]
        >>> step.reset()
        >>> step.captured is None
        True
        """
        self.cnt = 0
        self._calls: dict[Any, Call] = {}
        self._latest: Call | None = None
        self._returned: dict[Any, Any] = {}  # key → the shape of what the first call returned
        self._outlines: dict[Any, list[Outline]] = {}  # key and signature → what it computed
        self._left: dict[Any, set[int]] = {}  # key → the gradients that the first call left
        for bound in list(self._bound.values()):
            bound.reset()

    @property
    def captured(self) -> Captured | None:
        """The latest captured call; None before there is one.

        >>> TinyJit(lambda x: (x + 1).realize()).captured is None
        True
        """
        found = next(reversed(self._calls.values()), None)
        return None if found is None else found.captured

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
            with self._beginning.now:
                found = self._bound.get(id(instance))
                if found is None:
                    found = self._bound[id(instance)] = TinyJit(_method(self.function, instance))
                    weakref.finalize(instance, self._bound.pop, id(instance), None)
        return found

    def __reduce__(self) -> Any:
        """A copy captures for itself: what a copied model's step reads is the copy's."""
        return TinyJit, (self.function,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not JIT.value or computing.recorder is not None:  # off, or a step inside another
            return self.function(*args, **kwargs)
        call = self._latest
        if call is not None and (given := call.recognise(args, kwargs)) is not None:
            try:
                result: R = call.run(given)
            except Outdated:
                pass
            else:
                self.cnt += 1
                return result
        with self._beginning.now:
            return self._call(args, kwargs)

    def _call(self, args: Any, kwargs: Any) -> R:
        """A call that is the first, is to be captured, or differs from the one before."""
        given: list[Any] = []
        shape = flatten((args, kwargs), given, self._name)
        tensors = [leaf for leaf in given if not isinstance(leaf, UOp)]
        settled = [_settled(tensor) for tensor in tensors]
        nodes = [tensor.uop for tensor in settled]
        buffers = [buffer_of(version_below(node)) for node in nodes]
        signature = _signature(settled, nodes, buffers)
        key = (shape, surroundings_now())
        self.cnt += 1
        bound = self._bindings(given, nodes)
        known = Given(tensors, buffers, bound)
        if key not in self._returned:
            return self._first_call(key, signature, known, args, kwargs)
        call = self._calls.get(key)
        if call is None:
            with turns.alone():
                call = self._calls.get(key)
                if call is None:
                    left = self._left.get(key, ())
                    capture = Capture(self._name, signature, tensors, settled, known.bound, left)
                    captured = capture.run(self.function, shape, given)
                    self._check_result(captured, self._returned[key])
                    self._check_given((key, signature), capture.outlines)
                    call = Call(self._name, captured, shape, settled, buffers)
                    self._calls[key] = self._latest = call
                    return call.captured_result(known, capture.buffer)  # type: ignore[no-any-return]
        if not _serves(call.captured.signature, signature):
            raise JitError(
                f"{self._name}: captured for {_describe(call.captured.signature)}, called with "
                f"{_describe(signature)}; call reset() to capture again"
            )
        for number in call.captured.owned:
            if settled[number] is not tensors[number]:
                raise JitError(
                    f"{self._name}: argument {number} is a part of a larger tensor or in another "
                    "order, of which a replay gets a copy, and the captured step writes into it or "
                    "returns a view of it; legal is a whole tensor, such as its .clone()"
                )
        self._latest = call
        try:
            return call.run(known)  # type: ignore[no-any-return]
        except Outdated:
            del self._calls[key], self._returned[key]
            self._latest = None
            return self._first_call(key, signature, known, args, kwargs)

    @once
    def _name(self) -> str:
        return f"TinyJit({getattr(self.function, '__qualname__', self.function)})"

    def _first_call(self, key: Any, signature: Any, given: Given, args: Any, kwargs: Any) -> R:
        names = [variable.arg[0] for variable in given.bound]
        outlines = Outlines(names, given.inputs)
        with telling(outlines.see), noting() as changes:
            start = holders.now()
            result = self.function(*args, **kwargs)
            self._returned[key], _ = completed(result, changes, start, ())
            self._left[key] = given_since(start)
        if len(self._returned) == MANY_KEYS and not self._calls:
            warnings.warn(
                f"{self._name}: {MANY_KEYS} calls, each with other arguments that are no tensors, "
                "so none was captured; give numbers that vary as tensors or bound variables",
                stacklevel=3,
            )
        if len(self._outlines) < MANY_KEYS:
            self._outlines[key, signature] = list(outlines)
        return result

    def _check_result(self, captured: Captured, warm: Any) -> None:
        if captured.result != warm:
            raise JitError(
                f"{self._name}: besides tensors returns what differs from call to call: "
                f"{_shown(warm)}, then {_shown(captured.result)}; replays would return the latter "
                "for ever"
            )

    def _check_given(self, first: Any, outlines: Outlines) -> None:
        found = difference(self._outlines.get(first, outlines), outlines)
        if found is not None:
            was, now, line = found
            raise JitError(
                f"{self._name}: computes with {now}{line and f' at {line}'}, and did with {was} in "
                "the call before; replays would keep the former; legal for what changes are "
                "arguments and tensors, and after a change that is to stay reset()"
            )
        self._outlines.pop(first, None)

    def _bindings(self, given: Sequence[Any], nodes: Sequence[UOp]) -> dict[UOp, UOp]:
        """Variables → BINDs with their values in this call."""
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


def _method(function: Callable[..., R], instance: Any) -> Callable[..., R]:
    """`function` bound to its first argument, which it doesn't keep alive."""
    weak = weakref.ref(instance)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> R:
        return function(weak(), *args, **kwargs)

    return call


def _settled(tensor: Holder) -> Holder:
    """The tensor, computed, in a whole buffer in its own order. It may be a view of another, of
    which there is a computed copy, too: then that copy."""
    realize(tensor.uop)
    node = tensor.uop
    found = buffer_of_all(node) if in_memory(node) else None
    if found is not None and buffer_of(found) is realized_buffer(tensor.lies_at.base):
        return tensor
    return type(tensor).of(whole_buffer(node).in_room(node.shape), tensor.requires_grad)


def _signature(
    tensors: Sequence[Holder], nodes: Sequence[UOp], buffers: Sequence[Buffer]
) -> tuple[Any, ...]:
    """Shape, dtype and device of each tensor, which of them share a buffer, and which require a
    gradient."""
    first: dict[Buffer, int] = {}
    rows = []
    for i, (node, buffer) in enumerate(zip(nodes, buffers, strict=True)):
        same = first.setdefault(buffer, i)
        shape = tuple(n if isinstance(n, int) else without_values(n) for n in node.shape)
        kind = node.dtype.name + (" (read-only)" if buffer.fixed else "")
        rows.append((shape, kind, buffer.device, same, tensors[i].requires_grad is True))
    return tuple(rows)


def _serves(captured: tuple[Any, ...], given: tuple[Any, ...]) -> bool:
    """Whether a step captured for one signature computes what is asked with another: no gradient
    reached the arguments that required one, so others may come that don't, such as the step's own
    results."""
    rows = zip(captured, given, strict=True)
    return all(was[:-1] == now[:-1] and was[-1] >= now[-1] for was, now in rows)


def _describe(signature: tuple[Any, ...]) -> str:
    parts = [
        f"{dtype}{list(shape)} on {device}"
        + (f" (the same buffer as input {same})" if same != i else "")
        + (" with requires_grad" if wants else "")
        for i, (shape, dtype, device, same, wants) in enumerate(signature)
    ]
    return "(" + ", ".join(parts) + ")"


def _shown(shape: Any) -> str:
    """The parts of a result that are not tensors, in readable form."""
    if isinstance(shape, Plain):
        return repr(shape.value)
    kind, *parts = shape
    if kind is Holder:
        return "a tensor"
    if kind is Attributed:
        return _shown(parts[0])
    if issubclass(kind, (list, tuple)):
        return f"{kind.__name__}({', '.join(map(_shown, parts))})"
    return str(kind.__name__)


surroundings += [(Device, "DEFAULT"), (dtypes, "default_float"), (dtypes, "default_int")]
