"""Gradients for users: backward, gradient, and when not to record."""

from __future__ import annotations

import itertools
from sys import getrefcount
from typing import Any, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, DTypeError, ShapeError
from tinygrad.engine.aliases import bottom_of, on_bottom
from tinygrad.engine.holders import holders
from tinygrad.engine.realize import computing, without_gradient
from tinygrad.engine.turns import in_turn
from tinygrad.tensor.backward import promised_derivatives, promised_gradients
from tinygrad.tensor.core import Core
from tinygrad.tensor.modes import During
from tinygrad.tensor.pairs import Pairs
from tinygrad.tensor.past import STARTS, computed_below, is_start
from tinygrad.tensor.roots import VIEWS, settled
from tinygrad.tensor.shapes import check_devices
from tinygrad.transforms.gradient import gradient
from tinygrad.uop import Ops, UOp

ALONE = 2  # references to a gradient: the tensor's, and that of who asks


def is_differentiable(dtype: DType) -> bool:
    """Whether numbers of this type have gradients: floats, and complex ones, whose gradient holds
    the derivatives by the real and by the imaginary part (PyTorch's convention)."""
    return dtypes.is_float(dtype) or dtypes.is_complex(dtype)


class Autograd(Pairs):
    """Derivatives by the graph."""

    __slots__ = ()

    @staticmethod
    def no_grad() -> During:
        """While it lasts, results need no gradient: `with Tensor.no_grad(): ...`, or a decorator.
        Other threads go on recording.

        >>> with Tensor.no_grad():
        ...     (Tensor([1.0], requires_grad=True) * 2).requires_grad
        False
        """
        return During("on", False)

    @classmethod
    def train(cls, mode: bool = True) -> During:
        """While it lasts, `Tensor.training` is `mode`: `with Tensor.train(): ...`, or a decorator.
        Of other threads it stays what it is; `Tensor.training = mode` is for all of them.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        """
        return During("training", mode, cls)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Says whether a gradient is wanted; returns this. DTypeError unless of floats,
        or complex.

        >>> Tensor([1.0]).requires_grad_().requires_grad
        True
        """
        if requires_grad and not is_differentiable(self.dtype):
            raise DTypeError(f"requires_grad: of {self.dtype!r}; legal are floats, or complex")
        self.requires_grad = requires_grad
        return self

    def gradient(
        self, *targets: Self, gradient: Self | None = None, materialize_grads: bool = False
    ) -> list[Self]:
        """The derivative of this by each target. This has one element unless `gradient`, of this
        one's shape, says how each element counts. Derivatives are tensors like any other, and
        have derivatives. A target is its present version, and, if it is an expression, whatever
        equals it.

        ArgumentError if this or a target says requires_grad=False, and for a target with elements
        that this doesn't depend on, unless `materialize_grads`: zeros. ArgumentError, too, where
        the gradient by a target that says nothing would have to pass a value that was computed
        since.

        >>> x = Tensor([3.0])
        >>> (x * x).sum().gradient(x)[0].tolist()
        [6.0]
        """
        for target in targets:
            if target.requires_grad is False:
                raise ArgumentError(
                    f"gradient: by a target of shape {target.shape} that says requires_grad=False, "
                    "as what .detach() and no_grad make: none passes what is computed of it; legal "
                    "are tensors that say True, or nothing"
                )
        made: Any = None
        if gradient is None:
            made = promised_derivatives(self, targets)
        if made is None:
            found = self._gradients(list(targets), gradient, alone=True)
            for target, node in zip(targets, found, strict=True):
                if node is None and not materialize_grads and 0 not in target.shape:
                    raise ArgumentError(
                        f"gradient: this doesn't depend on the target of shape {target.shape}; "
                        "materialize_grads=True makes it zeros"
                    )
            made = [
                target.zeros_like() if node is None else target.with_node(node)
                for target, node in zip(targets, found, strict=True)
            ]
        for each in made:
            each._taped = True  # computing it must not cut it off from what it can be derived by
        return made  # type: ignore[no-any-return]

    def _gradients(
        self,
        targets: list[Self],
        seed: Self | None,
        graph: _Graph | None = None,
        alone: bool = False,
    ) -> list[UOp | None]:
        """A node for each target, None where this doesn't depend on it. `alone`: what derivatives
        begin with, ones, is a constant that is equal to no other."""
        self._check_root(seed)
        root = self._expression
        self._check_past(root, targets)
        if seed is not None:
            first = seed.cast(self.dtype)._held
        else:
            first = self.ones_like()._held if alone else self._constant(1, shape=self.shape)
        graph = graph or _Graph(root)
        if graph.is_cut:
            raise ArgumentError(
                "backward: of floats that depend on others only by whole numbers, such as argmax "
                "makes; legal is what depends on some by floats alone"
            )
        places = [graph.nodes_of(target) for target in targets]
        flat = [node for nodes in places for node in nodes]
        parts = iter(gradient(root, flat, first, graph.order))
        out: list[UOp | None] = []
        for nodes, target in zip(places, targets, strict=True):
            total: UOp | None = None
            for part in itertools.islice(parts, len(nodes)):
                if part is not None:
                    part = part.reshape(target.shape + target._element)
                    total = part if total is None else total + part
            if total is None and nodes and is_differentiable(target.dtype):
                total = target.zeros_like()._held  # it stands in the graph; the derivative is 0
            out.append(total)
        return out

    def _check_root(self, seed: Self | None) -> None:
        """An error unless gradients can begin here, with `seed`, or with 1 if it is None."""
        if self.requires_grad is False:
            raise ArgumentError(
                "backward: of a tensor that says requires_grad=False: made of what says so, as "
                "t.detach() does, under no_grad, or the result of a captured step, whose "
                "expression stayed inside; call backward there"
            )
        if seed is None and self.numel() != 1:
            raise ShapeError(
                f"backward: of a tensor of shape {self.shape}; legal is one element, or give "
                "gradient= with that shape"
            )
        if seed is not None and not isinstance(seed, Core):
            raise DTypeError(
                f"backward: gradient={seed!r} of type {type(seed).__name__}; legal is a Tensor of "
                f"shape {self.shape}"
            )
        legal = dtypes.is_float if seed is None else is_differentiable
        if not legal(self.dtype):
            raise DTypeError(
                f"backward: of {self.dtype!r}; legal are floats, and with gradient= complex numbers"
            )
        if seed is not None:
            if seed.shape != self.shape:
                raise ShapeError(
                    f"backward: gradient has {seed.shape}, this has {self.shape}; legal is this "
                    "shape"
                )
            check_devices("backward", self, seed)

    def _check_past(self, root: UOp, targets: list[Self]) -> None:
        """ArgumentError where a gradient by a target comes to a value that was made of it, but says
        so no more."""
        silent = [target for target in targets if target.requires_grad is None]
        computed = computed_below(root) if silent else []
        stands = {n: each for each in silent for n in (each._uop, each.uop)} if computed else {}
        for value, made_of in computed:
            for node in made_of & stands.keys():
                at = f" (made at {value.origin})" if value.origin else ""
                raise ArgumentError(
                    f"gradient: by a target of shape {stands[node].shape}, of which a value of "
                    f"{value.arg} elements{at} was made that was computed since: unless the target "
                    "says requires_grad=True how it was made is forgotten then; legal are to say "
                    "so before, the gradient before it is computed, or, where it is given, its "
                    ".detach()"
                )

    def _add_gradient(self, made: Self) -> None:
        step = computing.recorder
        if self._grad is None:
            without_gradient(self)
            self.grad = made
        elif getattr(self._grad, "shape", None) != made.shape or not isinstance(self._grad, Core):
            raise ArgumentError(
                f"backward: the .grad of a tensor of shape {made.shape} was set to {self._grad!r}; "
                "legal are None and a tensor of its shape"
            )
        elif (step is not None and self._grad.serial < step.start) or _is_seen(self):
            there: Any = self._grad
            with self.no_grad():  # where replays, and others, find it
                there.add_(made)
        else:
            with self.no_grad():
                self.grad = self._grad + made

    def move_gradient_to(self, place: Any) -> None:
        """See `Holder`."""
        with self.no_grad():
            place.assign(place.zeros_like() if self._grad is None else self._grad)
        self._grad = place

    @property
    def _expression(self) -> UOp:
        return self._uop if self._taped else self._held

    def backward(self, gradient: Self | None = None, retain_graph: bool = False) -> Self:
        """Adds to `.grad` of each tensor that this depends on the derivative of this by it: in
        place, if there is one, so views of it (parts of one vector of gradients) see the sum.

        Those are all that say requires_grad=True; if none does, all of floats that don't say
        requires_grad=False. ArgumentError where it would have to pass, to one of the latter, a
        value that was computed since; and where that is all that it comes to.

        >>> x = Tensor([2.0], requires_grad=True)
        >>> _ = (x * x).backward()
        >>> x.grad.tolist()
        [4.0]
        """
        if gradient is None and promised_gradients(self):
            return self
        graph = _Graph(self._expression)
        wanted = self._starts(graph)
        for tensor, node in zip(wanted, self._gradients(wanted, gradient, graph), strict=True):
            if node is None and 0 in tensor.shape:
                node = tensor.zeros_like()._held
            if node is not None:
                tensor._add_gradient(tensor.of(node, False))
        return self

    @in_turn
    def _starts(self, graph: _Graph) -> list[Self]:
        """The tensors that `backward` gives gradients to."""
        alive: list[Any] = [t for t in holders if isinstance(t, Autograd)]
        floats = [t for t in alive if is_differentiable(t.dtype) and graph.nodes_of(t)]
        wanted = [t for t in floats if t.requires_grad is True]
        if not wanted:
            wanted = [t for t in floats if t.requires_grad is None]
            some = any(is_start(t.uop) for t in wanted)
            others = [] if some else [t for t in alive if is_differentiable(t.dtype)]
            self._check_past(self._expression, wanted + others)
        empty = [t for t in alive if t.requires_grad is True and 0 in t.shape and not t._taped]
        return wanted + [t for t in empty if not graph.nodes_of(t)]  # no graph has what is empty


def _is_seen(tensor: Any) -> bool:
    """Whether somebody else holds its gradient, or a view of the same."""
    return getrefcount(tensor._grad) > ALONE or tensor._grad.has_views


class _Graph:
    """The nodes of an expression that gradients may come to, and for what was computed since, the
    node that stood for it."""

    def __init__(self, root: UOp) -> None:
        self.order = root.toposort()
        ends = {node for node in self.order if node.op is Ops.DETACH and len(node.src) == 1}
        self.nodes = set(root.toposort(stop=ends) if ends else self.order)
        floats = {node for node in self.nodes if dtypes.is_float(node.dtype)}
        whole = {node for node in self.nodes - floats if node.dtype is not dtypes.void}
        starts = {node for node in floats if node.op in STARTS}
        self.is_cut = bool(starts) and starts.isdisjoint(root.toposort(stop=ends | whole))
        self.by_value: dict[UOp, UOp] = {}
        if all(node.known is None and node.newer is None for node in self.order):
            return  # nothing has happened to any
        for node in self.order:
            if node.known is not None or node.op in VIEWS:
                now = settled(node)
                was = self.by_value.get(now)
                # a version that was overwritten gives way to the one that is there now
                if now is not node and (was is None or _is_over(was.base)):
                    self.by_value[now] = node

    def nodes_of(self, tensor: Core) -> list[UOp]:
        """The nodes that `tensor` stands for: the start that it is, the node that it holds, or the
        one whose value is now in the buffer that it holds."""
        # in this order: what it was when last seen may have been written to since
        now, own = tensor.uop, tensor._uop
        # `replace` may have changed it
        is_leaf = tensor.requires_grad is True and not tensor._taped
        if is_leaf and tensor._start in self.nodes:
            return [tensor._start]  # what is equal to it is something else
        found = [n for n in dict.fromkeys((own, now)) if n in self.nodes]
        if own not in self.nodes:
            others = self.by_value.get(now), _computed_twice(now)
            found += [n for n in dict.fromkeys(others) if n in self.nodes]
        return found


def _is_over(version: UOp) -> bool:
    """Whether this version of a buffer was overwritten."""
    return version.known is None and version.newer is not None


def _computed_twice(now: UOp) -> UOp | None:
    """The node whose value this view of storage holds, too: an equal one was computed elsewhere."""
    made = None if now.base.storage is None else now.base.storage.expression
    node = None if made is None else made()
    if not isinstance(node, UOp):
        return None
    whole = now.base.in_room(node.shape)
    return on_bottom(now, whole, node) if bottom_of(now, whole) is whole else None
