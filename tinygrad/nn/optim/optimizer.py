"""What all optimizers share.

An optimizer states one thing: the new value of a parameter, given its gradient. Everything else is
here, once: which tensors are parameters, that parameters and state are written in place, and that
one `realize` computes a whole step, so that it needs few kernels. The learning rate is a tensor, so
another value needs no new kernel.

Papers write θ, g, m and v; here they are `param`, `grad`, `m` and `v`.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import repeat
from operator import is_
from typing import Any

from tinygrad.base.dtype import DType, dtypes, least_upper_dtype
from tinygrad.base.errors import ArgumentError
from tinygrad.base.helpers import dedup, plain
from tinygrad.engine.holders import surroundings_now
from tinygrad.engine.realize import capturing, without_gradient
from tinygrad.engine.storage import buffer_of
from tinygrad.nn.optim.options import (
    NUMBERED,
    PARTS,
    PREFIX,
    Options,
    options_in,
    options_state,
    take_options,
)
from tinygrad.nn.optim.pytorch import from_pytorch, is_pytorchs
from tinygrad.nn.state import get_state_dict, load_state_dict, own_copy
from tinygrad.tensor import Tensor
from tinygrad.tensor.again import again
from tinygrad.tensor.arguments import check_types, number_of
from tinygrad.tensor.template import Several, expression, looks_of
from tinygrad.uop.op import Ops

Parameters = Iterable[Tensor] | Sequence[dict[str, Any]]
"""The tensors to move; or groups of them, dicts of "params" and of options for these."""


class Stepper(ABC):
    """What a training loop calls: an optimizer, or a group of optimizers."""

    params: list[Tensor]
    buffers: list[Tensor]

    @property
    @abstractmethod
    def param_groups(self) -> list[Options]:
        """What can be set of each optimizer, by name: `param_groups[0]["lr"] = 0.1`."""

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step depends on besides the tensors that it was given, by name.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> sorted(optimizer.state_dict())[:3]
        ['b.0', 'lr', 'options.base_lr']
        """
        return self._tensors() | self._options()

    def _tensors(self) -> dict[str, Tensor]:
        """What steps write to, by name."""
        given = set(map(id, (*self.params, *self.buffers)))
        return {name: t for name, t in get_state_dict(self).items() if id(t) not in given}

    @abstractmethod
    def _options(self) -> dict[str, Tensor]:
        """The options that are plain values, by name, each in a tensor of its own."""

    @abstractmethod
    def _take(self, state: dict[str, Tensor]) -> list[str]:
        """Has the options in `state` from now on, and room for its tensors; returns the names of
        these options. ArgumentError if one makes no sense."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from where `state` was taken, with the options that were in use there. What a
        state doesn't say, as one of `get_state_dict(optimizer)`, which has tensors alone, is as it
        was made. A state that is refused changes nothing.

        A state of PyTorch's optimizer of this kind is taken, too, as `torch_load` gives it: of as
        many parameters in the same order, and of as many groups.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> other = nn.optim.SGD([w], lr=0.1, momentum=0.5)
        >>> other.load_state_dict(optimizer.state_dict())
        >>> other.lr.item()
        0.25
        """
        before = [(vars(each), dict(vars(each))) for each in self._alone]
        try:
            if is_pytorchs(state):
                state = from_pytorch(self._named_alone(), state)
            options, known = set(self._take(state)), get_state_dict(self)
            others = [n for n in state if n not in options and n not in known]
            if tensors := [n for n in others if PREFIX not in n]:
                raise ArgumentError(
                    f"load_state_dict: no place for {', '.join(tensors[:5])}; legal is the state "
                    "of an optimizer of this kind, of as many parameters"
                )
            places = self._tensors()
            given = set(known) - set(places)
            load_state_dict(
                places, {n: t for n, t in state.items() if n not in options and n not in given}
            )
        except BaseException:
            for held, was in before:
                held.clear()
                held.update(was)
            raise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, so that the next `backward` starts from nothing; or sets them to
        zeros, in place.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> _ = (w * w).sum().backward()
        >>> optimizer.zero_grad()
        >>> w.grad is None
        True
        """
        for param, grad in with_gradients(self.params):
            if set_to_none:
                param.grad = None
            elif param.grad is not None:  # a replay has to find one, too: without it, it stays None
                with Tensor.no_grad():
                    grad.copy_(_nothing_like(grad))

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Updates the parameters, and everything that changes with them, and computes all of it
        now. A step that is like an earlier one runs the same plan. That is possible for the
        optimizers of this package, which depend on nothing but what they and the parameters hold;
        of others nothing is known.

        Args:
            closure: called first; it makes the gradients and returns the loss, which this returns.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> with Tensor.train():
        ...     _ = (w * w).sum().backward()
        ...     optimizer.step()
        >>> w.item()
        1.0
        """
        loss = None if closure is None else closure()
        step_again(self._alone, self.schedule_step)
        return loss

    @property
    def _alone(self) -> list[Optimizer]:
        """The optimizers that this consists of, each of which has options of its own."""
        return [one for _, one in self._named_alone()]

    @abstractmethod
    def _named_alone(self) -> list[tuple[str, Optimizer]]:
        """Each of these with what its names in a state begin with."""

    @abstractmethod
    def schedule_step(self) -> list[Tensor]:
        """Updates the parameters; returns all tensors that change. Realize them together."""


class Optimizer(Stepper):
    """The base of optimizers: the parameters, the learning rate, and one step for all of them.

    Args:
        params: the tensors to move: all floats but those that say requires_grad=False; the others
            say requires_grad=True from now on. Tensors that don't move, such as a BatchNorm's
            averages, are only realized with them. Groups with options of their own, dicts such as
            {"params": [..], "lr": 0.1}, make an OptimizerGroup, of one optimizer each.
        lr: the learning rate. `self.lr` is a tensor of one number; assign to change it. A tensor is
            the rate from then on, so that who writes to it changes it.
        maximize: go along the gradient, not against it.

    Raises:
        ArgumentError: none of them is to be moved.

    >>> layer = nn.Linear(2, 1)
    >>> optimizer = nn.optim.SGD(nn.state.get_parameters(layer), lr=0.1)
    >>> isinstance(optimizer, Optimizer), len(optimizer.params)
    (True, 2)
    """

    __slots__ = ("_looked_at",)
    _looked_at: tuple[Sequence[Any], Sequence[Hashable], list[Tensor]]
    """What the last step found here, how that looks, and the tensors among it."""

    applies: Tensor | None = None
    """A bool: whether a step counts. None is yes; loss scaling says no after an overflow."""

    cuts: Sequence[int | None] = ()
    """Of each parameter the axis along which devices share its steps; see `zero`."""

    keeps_gradients: bool = True
    """Whether a gradient stays on each device as a whole after a step."""

    numbers: tuple[str, ...] = ()
    """The names of numbers that go on once a step, such as a count of the steps. All parameters
    share them; of those that once had no gradient while others had, each has its own: `late`."""

    takes_groups: bool = True
    """Whether parameters may come in groups with options of their own."""

    parts: tuple[str, ...] = PARTS
    """The options that must be below 1."""

    weight_decay: float = 0.0
    """The option that says by how much parameters shrink; see `_decayed`."""

    inertia: str = ""
    """The option that says how much of the last direction is kept: schedules may move it."""

    def __new__(cls, params: Any = (), *args: Any, **options: Any) -> Any:  # noqa: D102
        several = isinstance(params, (list, tuple)) and any(isinstance(g, dict) for g in params)
        if several and cls.takes_groups:
            names = list(inspect.signature(cls.__init__).parameters)[2:]
            return OptimizerGroup.of(cls, params, **dict(zip(names, args, strict=False)), **options)
        return super().__new__(cls)

    def __init__(self, params: Parameters, lr: Any, maximize: bool = False) -> None:
        self._looked_at = (), (), []
        params = checked_tensors(self._name, params)
        given, lr = lr, number_of(lr.reshape(())) if isinstance(lr, Tensor) else lr
        self._check(lr=lr)
        for param in params:
            if param.requires_grad is None:
                param.requires_grad = dtypes.is_float(param.dtype)
            if param._taped:
                param.hold(param._value)  # a start from now on, whatever it was computed from
        tensors = dedup(params)
        self.params = [t for t in tensors if _moves(t)]
        self.buffers = [t for t in tensors if not _moves(t)]
        if not self.params:
            raise ArgumentError(
                f"{self._name}: {len(tensors)} tensors, none wants a gradient; "
                "legal are tensors with requires_grad=True"
            )
        self.device = self.params[0].device
        self.late: dict[str, Tensor] = {}
        self.base_lr = lr
        self.is_scheduled = self.rate_was_set = False  # by a schedule; by hand since
        self.maximize = maximize
        self.__dict__["lr"] = self._rate(given)

    def _check(self, **numbers: float) -> None:
        """ArgumentError for a setting that makes no sense: of what averages keep a part below 1,
        of all else less than nothing."""
        for name, value in numbers.items():
            known = isinstance(value, (int, float)) and 0 <= value < math.inf
            if not known or (name in self.parts and not value < 1):
                legal = "numbers from 0 to below 1" if name in self.parts else "numbers from 0"
                raise ArgumentError(f"{self._name}: {name} {value}; legal are {legal}")

    def _pair(self, b1: float, b2: float, betas: Any) -> tuple[float, float]:
        """b1 and b2, of which `betas` may be the pair."""
        if betas is None:
            return b1, b2
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise ArgumentError(f"{self._name}: betas {betas!r}; legal are two numbers")
        return betas[0], betas[1]

    @property
    def lr(self) -> Tensor:
        """The learning rate, a tensor of one number. Assigning a number changes it in place, and
        schedules that are made later begin with it.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> optimizer.lr = 0.5
        >>> optimizer.lr.item()
        0.5
        """
        rate: Tensor = self.__dict__["lr"]
        return rate

    @lr.setter
    def lr(self, value: float | Tensor) -> None:
        self.write_rate(value)
        if self.is_scheduled:
            self.rate_was_set = True
        elif not capturing():
            self.base_lr = number_of(self.lr.reshape(())) if isinstance(value, Tensor) else value

    def write_rate(self, value: float | Tensor) -> None:
        """Sets the rate, as schedules do: it isn't taken for one that was set by hand.

        >>> optimizer = nn.optim.SGD([Tensor([2.0])], lr=0.25)
        >>> optimizer.write_rate(0.5)
        >>> optimizer.lr.item(), optimizer.base_lr
        (0.5, 0.25)
        """
        if isinstance(value, Tensor):
            value = value.reshape(1).cast(self.lr.dtype).to(self.device)
        self.lr.assign(plain(value)).realize()

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def param_groups(self) -> list[Options]:
        """What can be set, by name.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> optimizer.param_groups[0]["lr"]
        0.25
        """
        return [Options(self)]

    def _shown(self) -> dict[str, Any]:
        return Options(self)._shown()

    def add_param_group(self, group: dict[str, Any]) -> None:
        """ArgumentError: only an optimizer that was made of groups takes more of them.

        >>> from tinygrad.nn.optim import SGD
        >>> optimizer = SGD([{"params": [Tensor([1.0])]}])
        >>> optimizer.add_param_group({"params": [Tensor([2.0])]})
        """
        raise ArgumentError(
            f"{self._name}.add_param_group: it was made of one list; legal is "
            f'{self._name}([{{"params": [..]}}]), which takes more groups, or '
            f"OptimizerGroup(optimizer, {self._name}([..]))"
        )

    # ---- state -----------------------------------------------------------------------------------

    def _rate(self, given: float | Tensor) -> Tensor:
        """The rate as a tensor; of a tensor a view, so that who writes to it changes the rate."""
        if not isinstance(given, Tensor):
            return self._number(given)
        if given.dtype is not dtypes.float32 or given.device != self.device:
            raise ArgumentError(
                f"{self._name}: lr of {given.dtype} on {given.device}; legal are numbers, and "
                f"{dtypes.float32} on {self.device}"
            )
        return given.realize().reshape(1)

    def _number(self, value: float) -> Tensor:
        """One number that steps may read and change."""
        return Tensor([value], device=self.device, dtype=dtypes.float32, requires_grad=False)

    def _zeros(self) -> list[Tensor]:
        """Zeros in the shape of each parameter, in float32 at least."""
        return [p.zeros_like(dtype=wide(p.dtype), requires_grad=False) for p in self.params]

    def vary_inertia(self) -> Tensor:
        """How much of the last direction is kept, as a number that steps read from now on.

        Raises:
            ArgumentError: nothing is kept.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> optimizer.vary_inertia().item()
        0.5
        """
        if not self.inertia:
            raise ArgumentError(
                f"{self._name} has neither momentum nor b1, which a cycle moves; legal is "
                "cycle_momentum=False"
            )
        kept = getattr(self, self.inertia)
        if not isinstance(kept, Tensor):
            self._before_it_varies()
            kept = own_copy(self._number(kept)).realize()
            setattr(self, self.inertia, kept)
        return kept

    def _before_it_varies(self) -> None:
        """Makes the state that is needed only if `inertia` is no constant."""

    def _inertia(self, like: Tensor) -> float | Tensor:
        """How much of the last direction is kept, beside a piece of state."""
        kept: float | Tensor = getattr(self, self.inertia)
        return self._beside(like, kept) if isinstance(kept, Tensor) else kept

    def _own_zeros(self) -> list[Tensor]:
        """Computed zeros in the shape of each parameter, where its step is computed."""
        zeros = (self._shared(i, each, each)[0] for i, each in enumerate(self._zeros()))
        return [own_copy(each).realize() for each in zeros]

    def _room(self, state: list[Tensor], is_needed: bool) -> list[Tensor]:
        """This state, or zeros where there is none; nothing if it isn't needed."""
        return (state or self._own_zeros()) if is_needed else []

    def _has_inertia(self) -> bool:
        kept = getattr(self, self.inertia)
        return isinstance(kept, Tensor) or kept != 0

    def _own(self, state: list[Tensor]) -> None:
        """Computes all that steps write to, each in storage of its own: equal values may share
        theirs, and then moving one would move the other. Views of one tensor share it on purpose.
        Constructors end with it."""
        self._check(**_numbered(vars(self)))
        tensors = [*self.params, *self.buffers, self.lr, *state]
        views = [tensor for tensor in tensors if tensor.has_views]
        if views:
            Tensor.realize(*views)
        taken: dict[Any, Tensor] = {}
        for tensor in tensors:
            held = tensor.uop.realized
            first = taken.setdefault(held, tensor)
            if held is None or (first is not tensor and first.family is not tensor.family):
                tensor.replace(own_copy(tensor))
        Tensor.realize(*tensors)

    # ---- a step ----------------------------------------------------------------------------------

    def _named_alone(self) -> list[tuple[str, Optimizer]]:
        return [("", self)]

    def _holds(self) -> tuple[Hashable, list[Tensor]] | None:
        """All that a step depends on: what is no tensor, and tensors. None if there is more."""
        held: list[Any] = []
        for name, value in vars(self).items():
            if name in OF_SCHEDULES:
                continue
            held.append(name)
            if type(value) is list:
                held += value
            elif type(value) is dict:
                held += (*value, *value.values())
            else:
                held.append(value)
        before, looks, tensors = self._looked_at
        if len(held) != len(before) or not all(map(is_, held, before)):
            tensors = []
            found = looks_of(held, _as_it_is, tensors)
            if found is None or not type(self).__module__.startswith(__package__ or ""):
                return None
            looks = found
            if Several not in map(type, looks):  # in which others may be later
                self._looked_at = held, looks, tensors
        grads = [param._grad for param in self.params]
        given = [grad for grad in grads if grad is not None]
        if not all([isinstance(grad, Tensor) for grad in given]):
            return None
        wants = [bool(tensor.requires_grad) for tensor in tensors]
        return (type(self), *looks, *wants, *map(is_, grads, repeat(None))), [*tensors, *given]

    @Tensor.no_grad()
    def schedule_step(self) -> list[Tensor]:
        """Moves the parameters that have a gradient; returns all tensors that change.

        Raises:
            ArgumentError: outside `Tensor.train()`, or if no parameter has a gradient.

        >>> w = Tensor([2.0], requires_grad=True)
        >>> optimizer = nn.optim.SGD([w], lr=0.25, momentum=0.5)
        >>> with Tensor.train():
        ...     _ = (w * w).sum().backward()
        ...     changed = optimizer.schedule_step()
        >>> _ = Tensor.realize(*changed)
        >>> w.item()
        1.0
        """
        if not Tensor.training:
            raise ArgumentError(f"{self._name}.step: use it inside `with Tensor.train():`")
        with_gradients(self.params)
        moved = [i for i, param in enumerate(self.params) if param._grad is not None]
        if not moved:
            raise ArgumentError(f"{self._name}.step: no gradients; call backward() on a loss first")
        for i in moved:
            self._check_gradient(i, self.params[i])
        self._part()
        changed = []
        for who in dict.fromkeys(i if self._is_late(i) else None for i in moved):
            changed += self._advance(who)
        for i in moved:
            param, grad = self.params[i], self.params[i]._grad
            assert grad is not None, "filtered above"
            kind = wide(param.dtype)
            here, slope = self._shared(i, param, grad)
            if not self.keeps_gradients:
                param.grad = slope
            slope = slope.cast(kind)
            new, state = self._moved(i, here.cast(kind), -slope if self.maximize else slope)
            value = new.cast(param.dtype).shard_like(param)
            changed += [self._put(param, value), *state]
        still = [param for param in self.params if param._grad is None]
        return [*still, *self.buffers, *changed]

    def _check_gradient(self, i: int, param: Tensor) -> None:
        """ArgumentError where `.grad` was given what `backward` doesn't give."""
        grad = param._grad
        assert grad is not None, "it moves"
        check_types(f"{self._name}.step", [grad], Tensor, "tensors as .grad of a parameter")
        if grad.shape != param.shape or grad.device != param.device:
            raise ArgumentError(
                f"{self._name}.step: parameter {i} has shape {param.shape} on {param.device}, its "
                f"gradient {grad.shape} on {grad.device}; legal is the parameter's"
            )
        if grad.uop.base.op is Ops.BUFFER:
            try:
                buffer_of(grad.uop.base)
            except ArgumentError as error:  # before anything is written
                raise ArgumentError(f"{self._name}.step: parameter {i}: {error}") from error

    def _shared(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        """A parameter and its gradient as a step sees them: of several devices each its part."""
        axis = self.cuts[i] if self.cuts else None
        if axis is None:
            return param, grad.shard_like(param)
        return param.shard(param.device, axis), grad.shard(param.device, axis)

    def _put(self, tensor: Tensor, value: Tensor) -> Tensor:
        """Writes a parameter or a piece of state, if this step counts."""
        if self.applies is None:
            return tensor.assign(value)
        return tensor.assign(self.applies.to(tensor.device).where(value, tensor))

    def _part(self) -> None:
        """Parameters that stay while others move have numbers of their own from now on: copies."""
        still = [i for i, p in enumerate(self.params) if p._grad is None] if self.numbers else []
        for i in still if len(still) < len(self.params) else ():
            if not self._is_late(i):
                for name in self.numbers:
                    self.late[f"{i}.{name}"] = own_copy(getattr(self, name)).realize()

    def _is_late(self, i: int) -> bool:
        return f"{i}.{self.numbers[0]}" in self.late if self.late else False

    def _of(self, i: int | None, name: str) -> Tensor:
        """The number of this name that parameter `i` has; None: that all share."""
        shared: Tensor = getattr(self, name)
        return self.late.get(f"{i}.{name}", shared)

    def _options(self) -> dict[str, Tensor]:
        return options_state(self, self.device)

    def _take(self, state: dict[str, Tensor]) -> list[str]:
        options = options_in(state, self)
        self._check(**_numbered(options))
        take_options(options, self)
        self._make_room(list(state))
        return [PREFIX + name for name in options]

    def _make_room(self, names: list[str]) -> None:
        """Has state for all these, as far as it depends on options, and on what happened to the
        parameters."""
        own = [name.removeprefix("late.") for name in names if name.startswith("late.")]
        self.late = {name: self.late.get(name, self._number(0.0)) for name in own}
        if self.inertia in names:
            self.vary_inertia()

    def _advance(self, i: int | None) -> list[Tensor]:
        """Changes the numbers of parameter `i`, or of None, before parameters move: "t", if it is
        one of them, counts the steps."""
        return [self._put(self._of(i, "t"), self._of(i, "t") + 1)] if "t" in self.numbers else []

    @abstractmethod
    def _moved(self, i: int, param: Tensor, grad: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The new value of parameter `i`, and the tensors of state that changed."""

    def _decayed(
        self, param: Tensor, grad: Tensor, decoupled: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Both, after what makes the parameter shrink was added to its gradient; or, `decoupled`
        from all that is made of gradients, after the parameter itself shrank."""
        if not self.weight_decay:
            return param, grad
        if decoupled:
            return param * (1 - self._lr(param) * self.weight_decay), grad
        return param, grad + self.weight_decay * param

    def _lr(self, like: Tensor) -> Tensor:
        """The learning rate beside a parameter: on its device, in its dtype."""
        return self._beside(like, self.lr)

    @staticmethod
    def _beside(like: Tensor, number: Tensor) -> Tensor:
        """A number of the optimizer on the device of `like`, in its dtype."""
        return number.to(like.device).cast(like.dtype)


class OptimizerGroup(Stepper):
    """Several optimizers as one, for parameters that are updated in different ways.

    >>> from tinygrad.nn.optim import SGD
    >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    >>> both = OptimizerGroup(SGD([a], lr=0.5), SGD([b], lr=0.25))
    >>> with Tensor.train():
    ...     _ = (a + b).sum().backward()
    ...     both.step()
    >>> a.item(), b.item()
    (0.5, 0.75)
    """

    def __init__(self, *optimizers: Stepper) -> None:
        if not optimizers:
            raise ArgumentError("OptimizerGroup: of no optimizers; give at least one")
        self.optimizers = list(optimizers)
        self._kind: Callable[..., Stepper] | None = None
        self._defaults: dict[str, Any] = {}
        self.params = [param for each in optimizers for param in each.params]
        self.buffers = [buffer for each in optimizers for buffer in each.buffers]

    @staticmethod
    def of(
        kind: Callable[..., Stepper], groups: Sequence[dict[str, Any]], **defaults: Any
    ) -> OptimizerGroup:
        """One optimizer of `kind` a group, as PyTorch's parameter groups: each a dict of "params"
        and of the options in which it differs from `defaults`.

        >>> from tinygrad.nn.optim import AdamW
        >>> matrix, bias = Tensor.ones(2, 2), Tensor.ones(2)
        >>> groups = [{"params": [matrix]}, {"params": [bias], "weight_decay": 0.0}]
        >>> [each.weight_decay for each in OptimizerGroup.of(AdamW, groups, lr=0.1).optimizers]
        [0.01, 0.0]
        """
        wrong = [group for group in groups if not isinstance(group, dict) or "params" not in group]
        if wrong:
            raise ArgumentError(
                f'OptimizerGroup: {wrong[0]!r} among groups; legal are dicts with "params"'
            )
        one = [g | {"params": [p]} if isinstance(p := g["params"], Tensor) else g for g in groups]
        made = OptimizerGroup(*(kind(**{**defaults, **group}) for group in one))
        made._check_once()
        made._kind, made._defaults = kind, defaults
        return made

    def _check_once(self) -> None:
        """ArgumentError if a step would move a parameter twice."""
        if twice := len(self.params) - len(set(map(id, self.params))):
            raise ArgumentError(
                f"OptimizerGroup: {twice} of {len(self.params)} parameters are in two groups; "
                "legal is one"
            )

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Moves more parameters from now on, as a group that was there from the start: a dict of
        "params" and of options.

        >>> from tinygrad.nn.optim import SGD
        >>> a, b = Tensor([1.0]), Tensor([1.0])
        >>> optimizer = SGD([{"params": [a]}], lr=0.1)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.5})
        >>> len(optimizer.param_groups)
        2
        """
        if self._kind is None:
            raise ArgumentError(
                "OptimizerGroup.add_param_group: of optimizers made one by one; legal is "
                "OptimizerGroup(*group.optimizers, another)"
            )
        more = OptimizerGroup.of(self._kind, [group], **self._defaults)
        OptimizerGroup(self, more)._check_once()
        self.optimizers += more.optimizers
        self.params += more.params
        self.buffers += more.buffers

    def _named_alone(self) -> list[tuple[str, Optimizer]]:
        return [
            (begin + name, one)
            for begin, each in self._named()
            for name, one in each._named_alone()
        ]

    @property
    def param_groups(self) -> list[Options]:
        """What can be set of each optimizer, by name.

        >>> from tinygrad.nn.optim import SGD
        >>> both = OptimizerGroup(SGD([Tensor([1.0])], lr=0.5), SGD([Tensor([1.0])], lr=0.25))
        >>> [each["lr"] for each in both.param_groups]
        [0.5, 0.25]
        """
        return [options for each in self.optimizers for options in each.param_groups]

    def _refuse_rate(self, rate: Any) -> None:
        raise ArgumentError(
            f"OptimizerGroup: lr = {rate!r}, but each of its optimizers has a rate of its own; "
            'legal is to set param_groups[i]["lr"] of each'
        )

    lr = property(fset=_refuse_rate)

    def _shown(self) -> dict[str, Any]:
        return {str(i): each for i, each in enumerate(self.optimizers)}

    def __getitem__(self, i: int) -> Stepper:
        return self.optimizers[i]

    def _options(self) -> dict[str, Tensor]:
        return {begin + n: t for begin, each in self._named() for n, t in each._options().items()}

    def _take(self, state: dict[str, Tensor]) -> list[str]:
        taken = []
        for begin, each in self._named():
            own = {n.removeprefix(begin): x for n, x in state.items() if n.startswith(begin)}
            taken += [begin + name for name in each._take(own)]
        return taken

    def _named(self) -> list[tuple[str, Stepper]]:
        """Each with what the names in its state begin with."""
        return [(f"optimizers.{i}.", each) for i, each in enumerate(self.optimizers)]

    def schedule_step(self) -> list[Tensor]:
        """A step of each that has a gradient; returns all tensors that change.

        >>> from tinygrad.nn.optim import SGD
        >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
        >>> both = OptimizerGroup(SGD([a], lr=0.5), SGD([b], lr=0.25))
        >>> with Tensor.train():
        ...     _ = (a + b).sum().backward()
        ...     _ = Tensor.realize(*both.schedule_step())
        >>> a.item(), b.item()
        (0.5, 0.75)
        """
        moved = [one for one in self._alone if any(p._grad is not None for p in one.params)]
        return [tensor for each in moved or self.optimizers for tensor in each.schedule_step()]


OF_SCHEDULES = frozenset(("base_lr", "is_scheduled", "rate_was_set"))
"""What steps don't depend on."""


def step_again(
    optimizers: Sequence[Optimizer],
    schedule: Callable[[], list[Tensor]],
    plain: tuple[Hashable, ...] = (),
    tensors: Sequence[Tensor] = (),
) -> None:
    """Computes what `schedule` makes, a step of these optimizers that depends on nothing else but
    what is `plain`, and `tensors`: by the plan of an earlier step if that was like this one."""
    held: list[Any] = []
    for each in optimizers:
        each._part()
        held.append(each._holds())

    def step(more: Sequence[Tensor] = ()) -> None:
        changed = schedule()
        Tensor.realize(*changed, *more)

    if Tensor.training and None not in held:
        given = [*tensors, *[tensor for _, several in held for tensor in several]]
        name = (plain, surroundings_now(), *[looks for looks, _ in held])
        again(name, given, step, writes=True)
    else:
        step()
    for each in optimizers:
        for param in () if each.keeps_gradients else each.params:
            _ = param._grad is not None and param._grad.uop  # parts let go of the whole


def with_gradients(params: Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Those that have a gradient, and that. Replays must find none where a captured step did."""
    found = []
    for param in params:
        if param._grad is None:
            without_gradient(param)
        else:
            found.append((param, param._grad))
    return found


def checked_tensors(who: str, params: Any) -> list[Tensor]:
    """The parameters as a list; ArgumentError for anything else."""
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        raise ArgumentError(f"{who}: parameters {params!r}; legal are lists of tensors")
    tensors = list(params)
    check_types(f"{who}: among the parameters", tensors, Tensor, "tensors", ArgumentError)
    return tensors


def _numbered(options: dict[str, Any]) -> dict[str, Any]:
    """Those that must be numbers: Adafactor's "eps" is a pair, a momentum may be a tensor."""
    return {
        n: x for n, x in options.items() if n in NUMBERED and not isinstance(x, (tuple, Tensor))
    }


def _moves(tensor: Tensor) -> bool:
    return bool(tensor.requires_grad) and dtypes.is_float(tensor.dtype)


def _as_it_is(tensor: Any, tensors: list[Any]) -> Hashable:
    tensors.append(tensor)
    return Tensor


def norm(x: Tensor) -> Tensor:
    """The Euclidean length of all elements."""
    return x.square().sum().sqrt()


@expression
def moved_along(param: Tensor, direction: Tensor, lr: Tensor, decay: float = 0.0) -> Tensor:
    """The parameter after a step against `direction`, which shrinks it by lr times `decay` too."""
    return param - lr * (direction + decay * param if decay else direction)


@expression
def moved_average(
    average: Tensor, new: Tensor, keep: float | Tensor, squared: bool = False
) -> Tensor:
    """An average that keeps this part of itself, with `new`, or its square, in it."""
    return keep * average + (1 - keep) * (new.square() if squared else new)


def wide(dtype: DType) -> DType:
    """The dtype that steps are computed in: float32 at least."""
    return least_upper_dtype(dtype, dtypes.float32)


@expression
def _nothing_like(grad: Tensor) -> Tensor:
    """Zeros as an expression, which a plain step knows again."""
    return (grad.isnan() & False).cast(grad.dtype)
